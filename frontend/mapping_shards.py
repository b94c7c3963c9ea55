"""`smap`: `shard_map` along one axis of the mesh, in the words of `vmap`."""

from collections.abc import Callable
from typing import Any

from shardir.frontend import tree
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.partition_spec import PartitionSpec
from shardir.frontend.shard_mapping import shard_map

_MISSING: Any = object()


def smap(
    f: Callable[..., Any] | None = None,
    /,
    *,
    in_axes: Any = _MISSING,
    out_axes: Any,
    axis_name: str,
) -> Any:
    """The function that lets every device along `axis_name` run `f` on its piece of the arguments.

    `in_axes` says which axis of each positional argument is cut: a number for all, or a tuple with
    an entry for each; `None` is for what all devices get whole. `out_axes` says along which axis
    the pieces of each result follow one another, `None` for what is the same on all. The mesh is
    the one entered; along its other axes the compiler cuts what is inside.

    Use without `f` as a decorator. Raises `ArgumentError` for entries that are no axes.
    """
    if not isinstance(axis_name, str):
        raise ArgumentError(point(f"axis_name of smap is {axis_name!r}, which is no string"))
    if in_axes is _MISSING:
        raise ArgumentError(point("in_axes of smap is missing; give a number, None or a tuple"))
    into = _specs(in_axes, axis_name, "in_axes")
    out = _specs(out_axes, axis_name, "out_axes")

    def wrapped(fun: Callable[..., Any]) -> Callable[..., Any]:
        mapped: Callable[..., Any] = shard_map(
            fun, in_specs=into, out_specs=out, axis_names={axis_name}
        )
        return mapped

    return wrapped if f is None else wrapped(f)


def _specs(axes: Any, name: str, word: str) -> Any:
    def spec(axis: Any) -> PartitionSpec:
        if axis is None:
            return PartitionSpec()
        if isinstance(axis, bool) or not isinstance(axis, int) or axis < 0:
            raise ArgumentError(
                point(
                    f"{word} of smap has {axis!r}; its entries are numbers of axes, counted from "
                    "the front, and None for what is not cut"
                )
            )
        return PartitionSpec(*[None] * axis, name)

    return tree.map(spec, axes, is_leaf=lambda x: x is None)
