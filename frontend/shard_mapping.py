"""`shard_map`: a function that every device of a mesh runs on its own piece of the arguments."""

from collections.abc import Callable, Collection
from functools import wraps
from typing import Any

from shardir.frontend import tree
from shardir.frontend.amounts import flag_of
from shardir.frontend.errors import ArgumentError, ShardingError
from shardir.frontend.locations import point
from shardir.frontend.manual import is_manual
from shardir.frontend.mesh import Mesh, current_mesh
from shardir.frontend.parameters import Parameters, check_call
from shardir.frontend.quoting import brief, brief_with_type
from shardir.frontend.shard_call import Call, is_entry, is_spec, listed

_MISSING: Any = object()


def shard_map(
    f: Callable[..., Any] | None = None,
    mesh: Mesh | None = None,
    in_specs: Any = _MISSING,
    out_specs: Any = _MISSING,
    *,
    axis_names: Collection[str] = frozenset(),
    check_vma: bool = True,
    check_rep: bool | None = None,
    auto: Collection[str] = frozenset(),
    uneven: str | None = None,
) -> Any:
    """The function that lets every device of `mesh` run `f` on its piece of the arguments.

    `in_specs` says how each positional argument is cut, `out_specs` how the devices' results make
    up the whole ones: a `PartitionSpec` for all, or containers of specs that begin like the
    arguments and the results. Inside, collectives such as `lax.psum` name axes of the mesh.
    What a spec does not mention is whole: the same on all devices along that axis. What stands
    under `None` in `in_specs` reaches `f` as it is, arrays whole.

    `axis_names` are the axes along which devices are on their own, all of the mesh if empty;
    along the others (`auto`) the compiler cuts what is inside, as it does outside. Without `mesh`
    it is the one entered by `with mesh:`.

    With `check_vma`, results that are said to be whole along an axis must be so by construction,
    for example by `lax.psum`; and what is the same along an axis counts as one value when
    derivatives are taken inside. Without it each device has a copy of its own of everything: a
    derivative inside is one of the sum of all devices' results, by each copy. `check_rep` is an
    older name of it.

    `uneven="pad"` admits arguments with dimensions that their specs do not divide; without it they
    are refused, whatever the setting `uneven` says. Such a dimension is padded with zeros at its
    end, which `f` sees on the last devices: 6 rows over 4 devices are shards of 2 rows, and the
    last shard is padding. Nothing masks it in `f`: a minimum or a mean over the shard counts the
    zeros, and what `f` computes of them counts as well. A dimension of a result that `out_specs`
    shard as `in_specs` shard the argument's has the argument's size again, if `f` has kept the
    positions of its rows (elementwise operations, products over other dimensions, running sums,
    loops and branches of these). Where `f` moves rows (a sort, a reversal, `ppermute`) or makes
    them, the result has as many as the shards together, padding included.

    Use as `shard_map(f, mesh=..., in_specs=..., out_specs=...)` or, without `f`, as a decorator.
    Raises `ShardingError` for specs that do not fit, `IndivisibleError` for a dimension that does
    not divide.
    """
    checked = (
        flag_of("check_vma of shard_map", check_vma)
        if check_rep is None
        else flag_of("check_rep of shard_map", check_rep)
    )
    if uneven not in (None, "pad"):
        raise ArgumentError(
            point(f"uneven of shard_map is {brief(uneven)}; it must be 'pad' or None")
        )

    def wrapped(fun: Callable[..., Any]) -> Callable[..., Any]:
        parameters = Parameters.of(fun)
        _check_specs(in_specs, f"in_specs of shard_map of {parameters.name}", is_entry)
        _check_specs(out_specs, f"out_specs of shard_map of {parameters.name}")

        @wraps(fun)
        def mapped(*args: Any) -> Any:
            used = current_mesh() if mesh is None else mesh
            if used is not None and not isinstance(used, Mesh):
                raise ArgumentError(
                    point(f"shard_map of {parameters.name} takes a Mesh, got {brief(used)}")
                )
            if used is None:
                raise ArgumentError(
                    point(
                        f"shard_map of {parameters.name} has no mesh; pass mesh=, or call it "
                        "inside `with mesh:`"
                    )
                )
            check_call(fun, parameters.name, args)
            names = _manual_names(used, axis_names, auto, parameters.name)
            pads = uneven == "pad"
            call = Call(parameters.name, fun, used, names, checked, pads, in_specs, out_specs)
            return call.run(args, parameters)

        return mapped

    return wrapped if f is None else wrapped(f)


def _check_specs(specs: Any, word: str, is_entry: Callable[[Any], bool] = is_spec) -> None:
    if specs is _MISSING:
        raise ArgumentError(point(f"{word} is missing; give one PartitionSpec, or containers"))
    for spec in tree.leaves(specs, is_leaf=is_entry):
        if not is_entry(spec):
            raise ArgumentError(
                point(f"{word} has {brief_with_type(spec)}; its entries are PartitionSpecs")
            )


def _manual_names(
    mesh: Mesh, axis_names: Collection[str], auto: Collection[str], name: str
) -> tuple[str, ...]:
    """The axes along which devices are on their own, in the order of the mesh."""
    for word, names in (("axis_names", axis_names), ("auto", auto)):
        if not isinstance(names, (str, set, frozenset, list, tuple)):
            raise ArgumentError(
                point(f"{word} of shard_map of {name} is a set of names, got {brief(names)}")
            )
        for axis in names:
            if axis not in mesh.axis_names:
                raise ShardingError(
                    point(
                        f"{word} of shard_map of {name} has {axis!r}, which is no axis of the "
                        f"mesh; its axes are {listed(mesh.axis_names)}"
                    )
                )
    chosen = tuple(
        axis
        for axis in mesh.axis_names
        if (axis in axis_names if axis_names else axis not in auto and not is_manual(axis))
    )
    for axis in chosen:
        if is_manual(axis):
            raise ShardingError(
                point(
                    f"shard_map of {name} is over {axis!r}, and so is one around it; name the "
                    "other axes of the mesh in axis_names"
                )
            )
    return chosen
