"""`shard_map`: a function that every device of a mesh runs on its shards of the arguments."""

from collections.abc import Callable, Collection

from shardir.frontend.argument_checks import check_flag, check_positional_only
from shardir.frontend.call_signatures import check_call_signature
from shardir.frontend.errors import ArgumentError, ShardingError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief, brief_with_type
from shardir.frontend.shardings.mesh import Mesh, current_mesh
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.parameters import Parameters
from shardir.frontend.transforms.manual.manual_region import is_manual_axis
from shardir.frontend.transforms.manual.shard_map_call import (
    ShardMapCall,
    format_names,
    infer_in_specs,
    is_in_spec,
    is_partition_spec,
)
from shardir.frontend.wrappers import wraps

_MISSING: object = object()


@traceback_boundary
def shard_map(
    f: UserFunction | None = None,
    mesh: Mesh | None = None,
    in_specs: object = _MISSING,
    out_specs: object = _MISSING,
    *,
    axis_names: Collection[str] = frozenset(),
    check_vma: bool = True,
    check_rep: bool | None = None,
    auto: Collection[str] = frozenset(),
    uneven: str | None = None,
) -> UserFunction:
    """Return a function that runs `f` on every device of `mesh` with its shards of the arguments.

    `in_specs` gives the sharding of each positional argument, `out_specs` how the results of the
    devices form the global results: a `PartitionSpec` for all, or pytree prefixes of specs. Inside
    of `f`, collectives such as `lax.psum` name axes of the mesh. An argument is replicated along
    axes that its spec does not mention. An argument with `None` in `in_specs` is passed to `f`
    unchanged, as a global array.

    `axis_names` are the manual axes, all of the mesh if empty; along the others (`auto`) the
    compiler shards the inside of `f` as it does outside. The default of `mesh` is that of the
    enclosing `with mesh:`. On a mesh with Explicit axes, the default of `in_specs` is the shardings
    in the types of the arguments, and other shardings are refused.

    With `check_vma`, a result whose spec replicates it along an axis must provably not vary along
    it, for example after `lax.psum`; and a value that does not vary along an axis counts as one
    value when derivatives are taken inside. Without it each device has a separate copy of every
    value: a derivative inside is that of the sum of the results of all devices, with respect to
    each copy. `check_rep` is an older name of the option.

    `uneven="pad"` accepts arguments with dimensions that their specs do not divide; without it they
    are refused, even with the setting `uneven`. Such a dimension is padded with zeros at its end,
    which `f` receives on the last devices: 6 rows over 4 devices are shards of 2 rows, and the last
    shard is padding. Nothing masks the padding in `f`: a minimum or a mean over the shard includes
    the zeros and the results that `f` computes from them. A dimension of a result that `out_specs`
    shards as `in_specs` shards the argument's has the size of the argument again if `f` preserves
    the positions of its rows (elementwise operations, products over other dimensions, cumulative
    sums, loops and branches of these). If `f` moves rows (a sort, a reversal, `ppermute`) or
    creates them, the result has as many rows as the shards together, including padding.

    Use as `shard_map(f, mesh=..., in_specs=..., out_specs=...)` or, without `f`, as a decorator.
    Raises `ShardingError` for specs that do not fit, and `IndivisibleError` for a dimension that
    does not divide.
    """
    checked = (
        check_flag("check_vma of shard_map", check_vma)
        if check_rep is None
        else check_flag("check_rep of shard_map", check_rep)
    )
    if not (uneven is None or (isinstance(uneven, str) and uneven == "pad")):
        raise ArgumentError(
            with_location(f"uneven of shard_map is {brief(uneven)}; it must be 'pad' or None")
        )

    def decorate(fun: UserFunction) -> UserFunction:
        parameters = Parameters.of(fun)
        if in_specs is not _MISSING:
            _check_spec_entries(in_specs, f"in_specs of shard_map of {parameters.name}", is_in_spec)
        _check_spec_entries(out_specs, f"out_specs of shard_map of {parameters.name}")

        @traceback_boundary
        @wraps(fun)
        def call_mapped(*args: PyTree, **options: PyTree) -> PyTree:
            check_positional_only(f"shard_map of {parameters.name} has in_specs", options)
            used = current_mesh() if mesh is None else mesh
            if used is not None and not isinstance(used, Mesh):
                raise ArgumentError(
                    with_location(f"shard_map of {parameters.name} takes a Mesh, got {brief(used)}")
                )
            if used is None:
                raise ArgumentError(
                    with_location(
                        f"shard_map of {parameters.name} has no mesh; pass mesh=, or call it "
                        "inside `with mesh:`"
                    )
                )
            check_call_signature(fun, parameters.name, args)
            names = _resolve_manual_axes(used, axis_names, auto, parameters.name)
            pads = uneven == "pad"
            specs = in_specs
            if in_specs is _MISSING:
                if not used.has_explicit_axes:
                    _check_spec_entries(in_specs, f"in_specs of shard_map of {parameters.name}")
                specs = infer_in_specs(args, names)
            call = ShardMapCall(parameters.name, fun, used, names, checked, pads, specs, out_specs)
            return call.run(args, parameters)

        return call_mapped

    return decorate if f is None else decorate(f)


def _check_spec_entries(
    specs: object, word: str, is_entry: Callable[[PyTree], bool] = is_partition_spec
) -> None:
    if specs is _MISSING:
        raise ArgumentError(
            with_location(f"{word} is missing; pass a PartitionSpec, or a pytree of them")
        )
    for spec in tree.leaves(specs, is_leaf=is_entry):
        if not is_entry(spec):
            raise ArgumentError(
                with_location(f"{word} has {brief_with_type(spec)}; its entries are PartitionSpecs")
            )


def _resolve_manual_axes(
    mesh: Mesh, axis_names: Collection[str], auto: Collection[str], name: str
) -> tuple[str, ...]:
    """Return the manual axes, in mesh order."""
    for word, names in (("axis_names", axis_names), ("auto", auto)):
        if not isinstance(names, (str, set, frozenset, list, tuple)):
            raise ArgumentError(
                with_location(
                    f"{word} of shard_map of {name} is a set of names, got {brief(names)}"
                )
            )
        for axis in names:
            if axis not in mesh.axis_names:
                raise ShardingError(
                    with_location(
                        f"{word} of shard_map of {name} has {axis!r}, which is not an axis of the "
                        f"mesh; its axes are {format_names(mesh.axis_names)}"
                    )
                )
    chosen = tuple(
        axis
        for axis in mesh.axis_names
        if (axis in axis_names if axis_names else axis not in auto and not is_manual_axis(axis))
    )
    for axis in chosen:
        if is_manual_axis(axis):
            raise ShardingError(
                with_location(
                    f"shard_map of {name} is over {axis!r}, and so is an enclosing one; list the "
                    "other axes of the mesh in axis_names"
                )
            )
    return chosen
