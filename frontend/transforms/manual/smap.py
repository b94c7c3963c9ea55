"""`smap`: `shard_map` along one mesh axis, with the notation of `vmap`."""

from shardir.frontend.argument_checks import MAX_RANK
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.source_locations import with_location
from shardir.frontend.transforms.manual.shard_map import shard_map

_MISSING: object = object()


@with_argument_errors
def smap(
    f: UserFunction | None = None,
    /,
    *,
    in_axes: object = _MISSING,
    out_axes: object,
    axis_name: str,
) -> UserFunction:
    """Return a function that runs `f` on every device along `axis_name` with its shard of the
    arguments.

    `in_axes` is the sharded axis of each positional argument: an integer for all, or a tuple with
    an entry for each; `None` marks an argument that is replicated. `out_axes` is the axis along
    which the shards of each result are concatenated, `None` for a result that is equal on all
    devices. The mesh is the entered one; along its other axes the compiler shards the inside of
    `f`.

    Use without `f` as a decorator. Raises `ArgumentError` for entries that are no axes.
    """
    if not isinstance(axis_name, str):
        raise ArgumentError(
            with_location(f"axis_name of smap is {axis_name!r}, which is not a string")
        )
    if in_axes is _MISSING:
        raise ArgumentError(
            with_location("in_axes of smap is missing; give a number, None or a tuple")
        )
    into = _specs_of_axes(in_axes, axis_name, "in_axes")
    out = _specs_of_axes(out_axes, axis_name, "out_axes")

    def decorate(fun: UserFunction) -> UserFunction:
        mapped: UserFunction = shard_map(fun, in_specs=into, out_specs=out, axis_names={axis_name})
        return mapped

    return decorate if f is None else decorate(f)


def _specs_of_axes(axes: object, name: str, word: str) -> PyTree:
    def spec(axis: object) -> PartitionSpec:
        if axis is None:
            return PartitionSpec()
        if isinstance(axis, bool) or not isinstance(axis, int) or not 0 <= axis < MAX_RANK:
            raise ArgumentError(
                with_location(
                    f"{word} of smap has {axis!r}; its entries are axis numbers from 0 to 63, "
                    "and None for a replicated value"
                )
            )
        return PartitionSpec(*[None] * axis, name)

    return tree.map(spec, axes, is_leaf=lambda x: x is None)
