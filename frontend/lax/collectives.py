"""Collectives along named axes: what the many calls of a mapped function tell one another.

Each is emitted as the communication it would be between devices, and becomes an operation on the
mapped dimension when the axis is vectorized. Semantics follow `jax.lax`.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from shardir.frontend import tree
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.locations import point
from shardir.frontend.named_axes import axes_named
from shardir.frontend.numpy.axes import axis_of
from shardir.frontend.operands import as_tracer, convert, is_number, reshape, splat
from shardir.frontend.promotion import canonical, inexact
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.opset import Symbol
from shardir.placement import Axis
from shardir.types import TensorType

AxisName = str | Sequence[str]
Pairs = Sequence[tuple[int, int]]


def _ungrouped(groups: Any, what: str) -> None:
    if groups is not None:
        raise ArgumentError(
            point(f"{what} along a mapped axis takes no axis_index_groups; map over two axes")
        )


def _each(x: Any, fun: Callable[[Tracer], Tracer]) -> Any:
    return tree.map(lambda leaf: fun(as_tracer(leaf)), x)


def _all_reduce(x: Tracer, axes: tuple[Axis, ...], op: str) -> Tracer:
    if not axes:
        return x
    made: Tracer = emit("all-reduce", x, axes=axes, op=Symbol(op), weak=x.weak_type)
    return made


def psum(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The sum of `x`, a container of arrays, over all positions along the axis, or several.

    Of a Python number it is a Python number.
    """
    axes = axes_named(axis_name, "psum")
    _ungrouped(axis_index_groups, "psum")
    size = prod(axis.size for axis in axes)

    def total(leaf: Any) -> Any:
        if is_number(leaf):
            return leaf * size
        summed = as_tracer(leaf)
        if summed.value.type.dtype == "bool":
            summed = convert(summed, canonical("i64"))
        return _all_reduce(summed, axes, "add")

    return tree.map(total, x)


def pmean(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The mean of `x` over all positions along the axis, or several."""
    axes = axes_named(axis_name, "pmean")
    _ungrouped(axis_index_groups, "pmean")
    size = prod(axis.size for axis in axes)

    def mean(leaf: Tracer) -> Tracer:
        leaf = convert(leaf, inexact(leaf.value.type.dtype), leaf.weak_type)
        total = _all_reduce(leaf, axes, "add")
        made: Tracer = emit("div", total, splat(size, total.value.type), weak=leaf.weak_type)
        return made

    return _each(x, mean)


def pmax(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The largest of `x`, element by element, over all positions along the axis, or several."""
    axes = axes_named(axis_name, "pmax")
    _ungrouped(axis_index_groups, "pmax")
    return _each(x, lambda leaf: _all_reduce(leaf, axes, "max"))


def pmin(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The smallest of `x`, element by element, over all positions along the axis, or several."""
    axes = axes_named(axis_name, "pmin")
    _ungrouped(axis_index_groups, "pmin")
    return _each(x, lambda leaf: _all_reduce(leaf, axes, "min"))


def axis_size(axis_name: AxisName) -> int:
    """How many positions there are along the axis, or several."""
    return prod(axis.size for axis in axes_named(axis_name, "axis_size"))


def axis_index(axis_name: AxisName) -> Any:
    """The position of this call along the axis (i32); along several, the first is the major one."""
    index = None
    for axis in axes_named(axis_name, "axis_index"):
        place: Tracer = emit("axis-index", axes=(axis,))
        if index is not None:
            before = emit("mul", index, splat(axis.size, place.value.type))
            place = emit("add", before, place)
        index = place
    return splat(0, TensorType((), "i32")) if index is None else index


def ppermute(x: Any, axis_name: str, perm: Pairs) -> Any:
    """`x` of position `source` at position `target`, for each `(source, target)` of `perm`.

    A position that receives nothing has zeros. Raises `ArgumentError` for pairs that are none, or
    name a position twice.
    """
    (axis,) = _one(axis_name, "ppermute")
    pairs = _pairs(perm, axis)
    return _each(
        x, lambda y: emit("collective-permute", y, axes=(axis,), pairs=pairs, weak=y.weak_type)
    )


def _pairs(perm: Pairs, axis: Axis) -> tuple[tuple[int, int], ...]:
    try:
        pairs = tuple((int(source), int(target)) for source, target in perm)
    except (TypeError, ValueError):
        raise ArgumentError(
            point(f"perm of ppermute is {perm!r}; it is a list of pairs (source, target)")
        ) from None
    for column, what in ((0, "source"), (1, "target")):
        places = [pair[column] for pair in pairs]
        for place in places:
            if not 0 <= place < axis.size:
                raise ArgumentError(
                    point(
                        f"perm of ppermute has the {what} {place}; the positions along "
                        f"{axis.name!r} are 0 to {axis.size - 1}"
                    )
                )
            if places.count(place) > 1:
                raise ArgumentError(
                    point(
                        f"perm of ppermute has the {what} {place} twice; every position sends "
                        "once and receives once at most"
                    )
                )
    return pairs


def pshuffle(x: Any, axis_name: str, perm: Sequence[int]) -> Any:
    """`x` of position `perm[i]` at position `i`; `perm` names every position once."""
    axis = _one(axis_name, "pshuffle")[0]
    if sorted(perm) != list(range(axis.size)):
        raise ArgumentError(
            point(
                f"perm of pshuffle is {list(perm)}; it has every number from 0 to {axis.size - 1} "
                "once"
            )
        )
    return ppermute(x, axis_name, [(source, target) for target, source in enumerate(perm)])


def all_gather(
    x: Any, axis_name: AxisName, *, axis_index_groups: Any = None, axis: int = 0,
    tiled: bool = False,
) -> Any:  # fmt: skip
    """`x` of all positions, stacked along a new dimension `axis`, or put together along it if
    `tiled`."""
    axes = axes_named(axis_name, "all_gather")
    _ungrouped(axis_index_groups, "all_gather")

    def gathered(leaf: Tracer) -> Tracer:
        dim = axis_of(axis, leaf.ndim + (not tiled))
        if not tiled:
            leaf = reshape(leaf, (*leaf.shape[:dim], 1, *leaf.shape[dim:]))
        for named in reversed(axes):
            leaf = emit("all-gather", leaf, dim=dim, axes=(named,), weak=leaf.weak_type)
        return leaf

    return _each(x, gathered)


def psum_scatter(
    x: Any, axis_name: AxisName, *, scatter_dimension: int = 0, axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:  # fmt: skip
    """The sum of `x` over all positions, of which each keeps its own piece.

    Along `scatter_dimension` a position has one element, without that dimension, or its share of
    them if `tiled`. Raises `ShapeError` when the dimension does not divide.
    """
    axes = axes_named(axis_name, "psum_scatter")
    _ungrouped(axis_index_groups, "psum_scatter")
    size = prod(axis.size for axis in axes)

    def scattered(leaf: Tracer) -> Tracer:
        dim = axis_of(scatter_dimension, leaf.ndim)
        _check_pieces("psum_scatter", leaf, dim, size, tiled)
        for axis in axes:
            leaf = emit(
                "reduce-scatter", leaf, dim=dim, axes=(axis,), op=Symbol("add"),
                weak=leaf.weak_type,
            )  # fmt: skip
        return leaf if tiled else reshape(leaf, (*leaf.shape[:dim], *leaf.shape[dim + 1 :]))

    return _each(x, scattered)


def all_to_all(
    x: Any, axis_name: str, split_axis: int, concat_axis: int, *, axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:  # fmt: skip
    """Piece i of `x` along `split_axis` goes to position i, where what all sent is stacked.

    It is stacked along a new dimension `concat_axis`, and `split_axis` is gone; if `tiled`, both
    stay, one shorter and one longer. Raises `ShapeError` when a dimension does not divide.
    """
    (axis,) = _one(axis_name, "all_to_all")
    _ungrouped(axis_index_groups, "all_to_all")

    def exchanged(leaf: Tracer) -> Tracer:
        split, concat = axis_of(split_axis, leaf.ndim), axis_of(concat_axis, leaf.ndim)
        _check_pieces("all_to_all", leaf, split, axis.size, tiled)
        # The pieces are a dimension of their own, which becomes that of their senders.
        shape = list(leaf.shape)
        shape[split : split + 1] = [axis.size, 1, shape[split] // axis.size]
        apart = reshape(leaf, shape)
        sent: Tracer = emit(
            "all-to-all", apart, split=split, concat=split + 1, axes=(axis,), weak=leaf.weak_type
        )
        rest = [*leaf.shape[:split], leaf.shape[split] // axis.size, *leaf.shape[split + 1 :]]
        senders = reshape(sent, [*rest[:split], axis.size, *rest[split:]])
        if not tiled:
            del rest[split]
            senders = reshape(senders, [*rest[:split], axis.size, *rest[split:]])
        perm = [d for d in range(senders.ndim) if d != split]
        perm.insert(concat, split)
        moved: Tracer = emit("transpose", senders, perm=tuple(perm), weak=leaf.weak_type)
        if not tiled:
            return moved
        rest[concat] *= axis.size
        return reshape(moved, rest)

    return _each(x, exchanged)


def pswapaxes(x: Any, axis_name: str, axis: int, *, axis_index_groups: Any = None) -> Any:
    """The mapped axis exchanged with dimension `axis` of `x`."""
    _ungrouped(axis_index_groups, "pswapaxes")
    return all_to_all(x, axis_name, axis, axis)


def _one(axis_name: AxisName, what: str) -> tuple[Axis, ...]:
    axes = axes_named(axis_name, what)
    if len(axes) != 1:
        raise ArgumentError(point(f"{what} is along one axis, not along {axis_name!r}"))
    return axes


def _check_pieces(what: str, x: Tracer, dim: int, size: int, tiled: bool) -> None:
    extent = x.shape[dim]
    if tiled and extent % size:
        raise ShapeError(
            point(
                f"{what} cuts dimension {dim} of {x.value.type} into {size} pieces, which do not "
                f"divide {extent}"
            )
        )
    if not tiled and extent != size:
        raise ShapeError(
            point(
                f"{what} gives each of {size} positions one element of dimension {dim} of "
                f"{x.value.type}, which has {extent}; tiled=True gives them more"
            )
        )
