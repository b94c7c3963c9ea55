"""Collectives along named axes, between the positions of a mapped function.

Each collective is emitted as communication between devices. It becomes an operation on the mapped
dimension if its axis is the axis of a vectorized batch. Semantics follow `jax.lax`.
"""

from collections.abc import Callable, Sequence
from operator import index

from shardir.frontend.argument_checks import check_flag, check_integer, check_integers
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import abstract_of, is_number
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, PermutationError, ShapeError
from shardir.frontend.lax.collective_ops.axis_index_groups import (
    IrregularGroups,
    check_groups,
    find_sub_axis,
)
from shardir.frontend.lax.slicing import dynamic_slice_in_dim
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.named_axes import (
    NamedAxis,
    axes_size,
    checked_axes,
    ir_axes,
    resolve_axis_names,
)
from shardir.frontend.tracing.operands import as_tracer, convert, reshape, splat
from shardir.frontend.tracing.promotion import canonical_dtype, inexact_dtype
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import typeof
from shardir.frontend.tracing.varying_axes import varying_axis_names
from shardir.ir.operation import Attr, Symbol
from shardir.ir.sharding import Axes
from shardir.ir.types import TensorType
from shardir.op_rules.partitioning import identity_element

AxisName = str | Sequence[str]
Pairs = Sequence[tuple[int, int]]
Groups = Sequence[Sequence[int]] | None
_REDUCTION_OF = {"add": "sum", "max": "max", "min": "min"}


def _map_leaves(x: PyTree, fun: Callable[[Tracer], Tracer]) -> PyTree:
    return tree.map(lambda leaf: fun(as_tracer(leaf)), x)


def _checked_arrays(x: PyTree) -> PyTree:
    """Return `x` unchanged; raise `NotAnArrayError` unless it contains only arrays and numbers."""
    for leaf in tree.leaves(x):
        abstract_of(leaf)
    return x


def _emit_collective(name: str, x: Tracer, axes: Axes, **attrs: Attr) -> Tracer:
    """Emit a collective along axes; return `x` if there are none."""
    if not axes:
        return x
    result: Tracer = emit(name, x, axes=axes, weak=x.weak_type, **attrs)
    return result


def _axes_and_groups(
    axis_name: AxisName, groups: Groups, what: str, *, even: bool = True
) -> tuple[tuple[NamedAxis, ...], IrregularGroups | None]:
    """Return the axes of a collective, and its groups if they do not correspond to an axis."""
    named = resolve_axis_names(axis_name, what)
    if groups is None:
        return named, None
    # Several axes form one, with all combinations of their positions.
    axis_label = " and ".join(repr(axis.name) for axis in named)
    manual = all(axis.manual for axis in named)
    axis = NamedAxis(axis_label, axes_size(named), ir_axes(named), manual)
    groups_read = check_groups(axis, groups, what, even=even)
    if not named:
        return named, None
    part = find_sub_axis(axis, groups_read)
    return ((part,), None) if part else (named, IrregularGroups(axis, groups_read))


def _all_reduce(
    x: Tracer, named: Sequence[NamedAxis], members: IrregularGroups | None, op: str
) -> Tracer:
    if members is None:
        return _emit_collective("all-reduce", x, ir_axes(named), op=Symbol(op))
    identity_value = identity_element(op, x.value.type.dtype)
    result: Tracer = emit(
        _REDUCTION_OF[op], members.gather_masked(x, identity_value), dims=(0,), weak=x.weak_type
    )
    return result


@with_argument_errors
def psum(x: PyTree, axis_name: AxisName, *, axis_index_groups: Groups = None) -> PyTree:
    """Return the sum of `x`, a container of arrays, over all positions along the axis or axes.

    The sum of a Python number is a Python number. With `axis_index_groups`, a partition of the
    positions, the sum is over the group of the position.
    """
    named, members = _axes_and_groups(axis_name, axis_index_groups, "psum", even=False)
    if not named:
        return _checked_arrays(x)
    size = axes_size(named)

    def total(leaf: ArrayLike) -> ArrayLike:
        if is_number(leaf) and members is None:
            return leaf * size
        summed = as_tracer(leaf)
        if summed.value.type.dtype == "bool":
            summed = convert(summed, canonical_dtype("i64"))
        return _all_reduce(summed, named, members, "add")

    return tree.map(total, x)


@public(static=("axis_name", "axis_index_groups"))
def pmean(x: PyTree, axis_name: AxisName, *, axis_index_groups: Groups = None) -> PyTree:
    """Return the mean of `x` over all positions along the axis or axes, or over the group."""
    resolve_axis_names(axis_name, "pmean")
    count = psum(1, axis_name, axis_index_groups=axis_index_groups)

    def mean(leaf: Tracer) -> Tracer:
        leaf = convert(leaf, inexact_dtype(leaf.value.type.dtype), leaf.weak_type)
        total = psum(leaf, axis_name, axis_index_groups=axis_index_groups)
        if isinstance(count, int):
            by = splat(count, total.value.type)
        else:
            by = convert(count, total.value.type.dtype)
            if total.ndim:
                by = emit("broadcast", by, dims=(), result=total.value.type)
        result: Tracer = emit("div", total, by, weak=leaf.weak_type)
        return result

    return _map_leaves(x, mean)


@public(static=("axis_name", "axis_index_groups"))
def pmax(x: PyTree, axis_name: AxisName, *, axis_index_groups: Groups = None) -> PyTree:
    """Return the elementwise maximum of `x` over all positions along the axis or axes, or the
    group.
    """
    named, members = _axes_and_groups(axis_name, axis_index_groups, "pmax", even=False)
    return _map_leaves(x, lambda leaf: _all_reduce(leaf, named, members, "max"))


@public(static=("axis_name", "axis_index_groups"))
def pmin(x: PyTree, axis_name: AxisName, *, axis_index_groups: Groups = None) -> PyTree:
    """Return the elementwise minimum of `x` over all positions along the axis or axes, or the
    group.
    """
    named, members = _axes_and_groups(axis_name, axis_index_groups, "pmin", even=False)
    return _map_leaves(x, lambda leaf: _all_reduce(leaf, named, members, "min"))


@with_argument_errors
def axis_size(axis_name: AxisName) -> int:
    """Return the number of positions along the axis or axes."""
    return axes_size(resolve_axis_names(axis_name, "axis_size"))


@public(static=("axis_name",))
def axis_index(axis_name: AxisName) -> Tracer:
    """Return the position of this call along the axis (i32); of several, the first is the major
    axis.
    """
    index = None
    for named in resolve_axis_names(axis_name, "axis_index"):
        if not named.axes:
            continue
        position: Tracer = emit("axis-index", axes=named.axes)
        if index is not None:
            before = emit("mul", index, splat(named.size, position.value.type))
            position = emit("add", before, position)
        index = position
    return splat(0, TensorType((), "i32")) if index is None else index


@public(static=("axis_name", "perm"))
def ppermute(x: PyTree, axis_name: AxisName, perm: Pairs) -> PyTree:
    """Send `x` from position `source` to position `target`, for each `(source, target)` of `perm`.

    A position that receives nothing gets zeros. Raise `ArgumentError` for an object that is not a
    list of pairs, and `PermutationError` for a position that is out of range or occurs twice.
    """
    named = resolve_axis_names(axis_name, "ppermute")
    pairs = _check_pairs(perm, named)

    def permute_leaf(leaf: Tracer) -> Tracer:
        if not ir_axes(named):
            return leaf if pairs else splat(0, leaf.value.type, leaf.weak_type)
        return _emit_collective("collective-permute", leaf, ir_axes(named), pairs=pairs)

    return _map_leaves(x, permute_leaf)


def _check_pairs(perm: Pairs, named: Sequence[NamedAxis]) -> tuple[tuple[int, int], ...]:
    try:
        pairs = tuple((index(source), index(target)) for source, target in perm)
    except (TypeError, ValueError):
        raise ArgumentError(
            with_location(f"perm of ppermute is {perm!r}; it is a list of pairs (source, target)")
        ) from None
    size = axes_size(named)
    axes = " and ".join(repr(axis.name) for axis in named)
    for column, what in ((0, "source"), (1, "target")):
        positions = [pair[column] for pair in pairs]
        for position in positions:
            if not 0 <= position < size:
                raise PermutationError(
                    with_location(
                        f"perm of ppermute has the {what} {position}; the positions along "
                        f"{axes} are 0 to {size - 1}"
                    )
                )
            if positions.count(position) > 1:
                raise PermutationError(
                    with_location(
                        f"perm of ppermute has the {what} {position} twice; every position sends "
                        "once and receives once at most"
                    )
                )
    return pairs


@public(static=("axis_name", "perm"))
def pshuffle(x: PyTree, axis_name: AxisName, perm: Sequence[int]) -> PyTree:
    """Return `x` of position `perm[i]` at position `i`; `perm` is a permutation of the
    positions.
    """
    size = axes_size(resolve_axis_names(axis_name, "pshuffle"))
    perm = check_integers("perm of pshuffle", perm)
    if sorted(perm) != list(range(size)):
        raise PermutationError(
            with_location(
                f"perm of pshuffle is {list(perm)}; it has every number from 0 to {size - 1} once"
            )
        )
    return ppermute(x, axis_name, [(source, target) for target, source in enumerate(perm)])


@public(static=("axis_name", "source"))
def pbroadcast(x: PyTree, axis_name: AxisName, source: int) -> PyTree:
    """Return `x` of position `source` at every position along the axis."""
    named = resolve_axis_names(axis_name, "pbroadcast")
    size = axes_size(named)
    source = check_integer("source of pbroadcast", source, least=-size)
    if not 0 <= source < size:
        raise ArgumentError(
            with_location(
                f"source of pbroadcast is {source}; the positions along "
                f"{' and '.join(repr(axis.name) for axis in named)} are 0 to {size - 1}"
            )
        )

    def broadcast_leaf(leaf: Tracer) -> Tracer:
        is_source: Tracer = emit("eq", axis_index(axis_name), splat(source, TensorType((), "i32")))
        if leaf.ndim:
            is_source = emit(
                "broadcast", is_source, dims=(), result=leaf.value.type.with_dtype("bool")
            )
        zeros = splat(0, leaf.value.type)
        masked: Tracer = emit("select", is_source, leaf, zeros, weak=leaf.weak_type)
        if leaf.value.type.dtype == "bool":
            return _emit_collective("all-reduce", masked, ir_axes(named), op=Symbol("max"))
        return _emit_collective("all-reduce", masked, ir_axes(named), op=Symbol("add"))

    return _map_leaves(x, broadcast_leaf)


@with_argument_errors
def all_gather(
    x: PyTree, axis_name: AxisName, *, axis_index_groups: Groups = None, axis: int = 0,
    tiled: bool = False, to: str = "varying",
) -> PyTree:  # fmt: skip
    """Gather `x` of all positions, or of the group.

    The arrays are stacked along a new dimension `axis`, or concatenated along it if `tiled`. The
    result varies along the axis, which `to` states.
    """
    if to != "varying":
        raise ArgumentError(
            with_location(f"the result of all_gather is varying; to={brief(to)} is not supported")
        )
    named, members = _axes_and_groups(axis_name, axis_index_groups, "all_gather")
    tiled = check_flag("tiled of all_gather", tiled)
    if not named:
        return _checked_arrays(x)

    def gather_leaf(leaf: Tracer) -> Tracer:
        dim = canonicalize_axis(axis, leaf.ndim + (not tiled))
        if members is not None:
            return _unstack_to(members.gather_group(leaf), dim, tiled)
        if not tiled:
            leaf = reshape(leaf, (*leaf.shape[:dim], 1, *leaf.shape[dim:]))
        for each in reversed(named):
            leaf = _emit_collective("all-gather", leaf, each.axes, dim=dim)
        return leaf

    return _map_leaves(x, gather_leaf)


def _unstack_to(stacked: Tracer, dim: int, tiled: bool) -> Tracer:
    """Move a stack from the leading dimension to `dim`, or concatenate it along `dim`."""
    perm = list(range(1, stacked.ndim))
    perm.insert(dim, 0)
    result: Tracer = emit("transpose", stacked, perm=tuple(perm), weak=stacked.weak_type)
    if not tiled:
        return result
    count, *shape = stacked.shape
    shape[dim] *= count
    return reshape(result, shape)


@with_argument_errors
def psum_scatter(
    x: PyTree, axis_name: AxisName, *, scatter_dimension: int = 0,
    axis_index_groups: Groups = None, tiled: bool = False,
) -> PyTree:  # fmt: skip
    """Sum `x` over all positions, or the group, and scatter the result.

    Along `scatter_dimension` each position keeps one element, without that dimension, or an equal
    share if `tiled`. Raise `ShapeError` if the dimension is not divisible.
    """
    named, members = _axes_and_groups(axis_name, axis_index_groups, "psum_scatter")
    tiled = check_flag("tiled of psum_scatter", tiled)
    if not named:
        return _checked_arrays(x)
    size = len(members.groups[0]) if members else axes_size(named)

    def scatter_leaf(leaf: Tracer) -> Tracer:
        dim = canonicalize_axis(scatter_dimension, leaf.ndim)
        _check_divisible("psum_scatter", leaf, dim, size, tiled)
        if members is not None:
            leaf = _own_part(_all_reduce(leaf, named, members, "add"), dim, size, members)
        else:
            for each in named:
                leaf = _emit_collective(
                    "reduce-scatter", leaf, each.axes, dim=dim, op=Symbol("add")
                )
        return leaf if tiled else reshape(leaf, (*leaf.shape[:dim], *leaf.shape[dim + 1 :]))

    return _map_leaves(x, scatter_leaf)


def _own_part(x: Tracer, dim: int, count: int, members: IrregularGroups) -> Tracer:
    length = x.shape[dim] // count
    start = emit("mul", members.group_rank(), splat(length, TensorType((), "i32")))
    piece: Tracer = dynamic_slice_in_dim(x, start, length, dim)
    return piece


@public(static=("axis_name", "split_axis", "concat_axis", "axis_index_groups", "tiled"))
def all_to_all(
    x: PyTree, axis_name: AxisName, split_axis: int, concat_axis: int, *,
    axis_index_groups: Groups = None, tiled: bool = False,
) -> PyTree:  # fmt: skip
    """Send part i of `x` along `split_axis` to position i, which stacks the received parts.

    They are stacked along a new dimension `concat_axis`, and `split_axis` is removed; if `tiled`,
    both dimensions stay, one shorter and one longer. Raise `ShapeError` if a dimension is not
    divisible.
    """
    named, members = _axes_and_groups(axis_name, axis_index_groups, "all_to_all")
    tiled = check_flag("tiled of all_to_all", tiled)
    size = len(members.groups[0]) if members else axes_size(named)

    def exchange_leaf(leaf: Tracer) -> Tracer:
        split, concat = (
            canonicalize_axis(split_axis, leaf.ndim),
            canonicalize_axis(concat_axis, leaf.ndim),
        )
        _check_divisible("all_to_all", leaf, split, size, tiled)
        share = leaf.shape[split] // size
        rest = [*leaf.shape[:split], share, *leaf.shape[split + 1 :]]
        if members is not None:
            senders = _own_part(members.gather_group(leaf), split + 1, size, members)
            if not tiled:
                del rest[split]
                senders = reshape(senders, [size, *rest])
            return _unstack_to(senders, concat, tiled)
        # The parts get a dimension of their own, which becomes the dimension of the senders.
        stages = _exchange_stages(named)
        shape = list(leaf.shape)
        shape[split : split + 1] = [n for stage in stages for n in (axes_size(stage), 1)] + [share]
        sent = reshape(leaf, shape)
        for i, stage in enumerate(stages):
            dim = split + 2 * i
            sent = _emit_collective("all-to-all", sent, ir_axes(stage), split=dim, concat=dim + 1)
        senders = reshape(sent, [*rest[:split], size, *rest[split:]])
        if not tiled:
            del rest[split]
            senders = reshape(senders, [*rest[:split], size, *rest[split:]])
        perm = [d for d in range(senders.ndim) if d != split]
        perm.insert(concat, split)
        moved: Tracer = emit("transpose", senders, perm=tuple(perm), weak=leaf.weak_type)
        if not tiled:
            return moved
        rest[concat] *= size
        return reshape(moved, rest)

    return _map_leaves(x, exchange_leaf)


def _exchange_stages(named: Sequence[NamedAxis]) -> list[list[NamedAxis]]:
    """Group the axes by exchange: all mesh axes together, each batch axis separately."""
    stages: list[list[NamedAxis]] = []
    for axis in named:
        if stages and axis.manual and stages[-1][0].manual:
            stages[-1].append(axis)
        else:
            stages.append([axis])
    return stages


@public(static=("axis_name", "axis", "axis_index_groups"))
def pswapaxes(
    x: PyTree, axis_name: AxisName, axis: int, *, axis_index_groups: Groups = None
) -> PyTree:
    """Exchange the mapped axis with dimension `axis` of `x`."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


@with_argument_errors
def pvary(x: PyTree, axis_name: AxisName) -> PyTree:
    """Return `x` as a value that varies along the axes.

    The elements and tangents are unchanged. A value that does not vary is one value that all
    positions share, whose gradient is the sum over them; a varying value has one gradient per
    position.
    """
    names = resolve_axis_names(axis_name, "pvary")
    if not names:
        return _checked_arrays(x)
    axes = tuple(axis for named in names if named.checked for axis in named.axes)
    return _map_leaves(x, lambda leaf: _emit_collective("vary", leaf, axes))


_REMEDIES = {
    "unreduced": "add them with lax.psum or lax.psum_scatter, or return them with an additional "
    "dimension that the axis shards, and sum it outside with out_sharding=",
    "reduced": "state reduced axes outside with sharding.reshard, and add gradients with lax.psum",
}
"""The remedy in the error for a cast to a type that only values outside of `shard_map` have."""


@with_argument_errors
def pcast(x: PyTree, axis_name: AxisName | None = None, *, to: str) -> PyTree:
    """Return `x` as a value that varies along the axes (`to="varying"`); see `pvary`.

    Inside of `shard_map`, values have no unreduced and no reduced axes.
    """
    if isinstance(to, str) and to in _REMEDIES:
        raise ArgumentError(
            with_location(
                f"pcast cannot make a value {to}: inside of shard_map, values vary along an axis "
                f"or are equal; {_REMEDIES[to]}"
            )
        )
    if not isinstance(to, str) or to != "varying" or axis_name is None:
        raise ArgumentError(
            with_location(f"pcast takes to='varying' and the names of axes, got to={to!r}")
        )
    named = resolve_axis_names(axis_name, "pcast")
    for leaf in tree.leaves(x):
        varying = varying_axis_names(leaf) if isinstance(leaf, Tracer) and checked_axes() else ()
        for axis in named:
            if axis.checked and axis.name in varying:
                raise ArgumentError(
                    with_location(
                        f"pcast makes a value vary along {axis.name!r}, and {typeof(leaf)} varies "
                        "along it already; name the other axes"
                    )
                )
    return pvary(x, axis_name)


def _check_divisible(what: str, x: Tracer, dim: int, size: int, tiled: bool) -> None:
    extent = x.shape[dim]
    if tiled and extent % size:
        raise ShapeError(
            with_location(
                f"{what} splits dimension {dim} of {x.value.type} into {size} equal parts, and "
                f"{extent} is not divisible by {size}; pad the dimension"
            )
        )
    if not tiled and extent != size:
        raise ShapeError(
            with_location(
                f"{what} gives each of {size} positions one element along dimension {dim} of "
                f"{x.value.type}, whose size is {extent}; reshape it to size {size}, or pass "
                "tiled=True to give each position several elements"
            )
        )
