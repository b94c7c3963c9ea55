"""Collectives along named axes: what the many calls of a mapped function tell one another.

Each is emitted as the communication it is between devices, and becomes an operation on the mapped
dimension when its axis is one of a batch that is vectorized. Semantics follow `jax.lax`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from shardir.frontend import tree
from shardir.frontend.amounts import flag_of, sizes_of, whole_of
from shardir.frontend.errors import ArgumentError, PermutationError, ShapeError
from shardir.frontend.lax.groups import Members, part_of, read_groups
from shardir.frontend.lax.slicing import dynamic_slice_in_dim
from shardir.frontend.locations import point
from shardir.frontend.named_axes import Named, joined, named_axes, size_of
from shardir.frontend.numpy.axes import axis_of
from shardir.frontend.operands import as_tracer, convert, is_number, reshape, splat
from shardir.frontend.promotion import canonical, inexact
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.opset import Symbol
from shardir.partitioning import identity
from shardir.placement import Axes
from shardir.types import TensorType

AxisName = str | Sequence[str]
Pairs = Sequence[tuple[int, int]]
Groups = Sequence[Sequence[int]] | None
_FOLDS = {"add": "sum", "max": "max", "min": "min"}


def _each(x: Any, fun: Callable[[Tracer], Tracer]) -> Any:
    return tree.map(lambda leaf: fun(as_tracer(leaf)), x)


def _sent(name: str, x: Tracer, axes: Axes, **attrs: Any) -> Tracer:
    """A communication along axes; along none there is nobody to hear it."""
    if not axes:
        return x
    made: Tracer = emit(name, x, axes=axes, weak=x.weak_type, **attrs)
    return made


def _among(
    axis_name: AxisName, groups: Groups, what: str, *, even: bool = True
) -> tuple[tuple[Named, ...], Members | None]:
    """The axes of a collective, and among whom along them where no axis says it."""
    named = named_axes(axis_name, what)
    if groups is None:
        return named, None
    # Several axes are one, of all their positions.
    word = " and ".join(repr(axis.name) for axis in named)
    manual = all(axis.manual for axis in named)
    axis = Named(word, size_of(named), joined(named), manual)
    read = read_groups(axis, groups, what, even=even)
    part = part_of(axis, read)
    return ((part,), None) if part else (named, Members(axis, read))


def _all_reduce(x: Tracer, named: Sequence[Named], members: Members | None, op: str) -> Tracer:
    if members is None:
        return _sent("all-reduce", x, joined(named), op=Symbol(op))
    nothing = identity(op, x.value.type.dtype)
    everybody: Tracer = emit(_FOLDS[op], members.masked(x, nothing), dims=(0,), weak=x.weak_type)
    return everybody


def psum(x: Any, axis_name: AxisName, *, axis_index_groups: Groups = None) -> Any:
    """The sum of `x`, a container of arrays, over all positions along the axis, or several.

    Of a Python number it is a Python number. With `axis_index_groups`, lists of positions that
    have every one once, it is the sum over the position's group.
    """
    named, members = _among(axis_name, axis_index_groups, "psum", even=False)
    size = size_of(named)

    def total(leaf: Any) -> Any:
        if is_number(leaf) and members is None:
            return leaf * size
        summed = as_tracer(leaf)
        if summed.value.type.dtype == "bool":
            summed = convert(summed, canonical("i64"))
        return _all_reduce(summed, named, members, "add")

    return tree.map(total, x)


def pmean(x: Any, axis_name: AxisName, *, axis_index_groups: Groups = None) -> Any:
    """The mean of `x` over all positions along the axis, or several; or over its group."""
    named_axes(axis_name, "pmean")
    count = psum(1, axis_name, axis_index_groups=axis_index_groups)

    def mean(leaf: Tracer) -> Tracer:
        leaf = convert(leaf, inexact(leaf.value.type.dtype), leaf.weak_type)
        total = psum(leaf, axis_name, axis_index_groups=axis_index_groups)
        if isinstance(count, int):
            by = splat(count, total.value.type)
        else:
            by = convert(count, total.value.type.dtype)
            if total.ndim:
                by = emit("broadcast", by, dims=(), result=total.value.type)
        made: Tracer = emit("div", total, by, weak=leaf.weak_type)
        return made

    return _each(x, mean)


def pmax(x: Any, axis_name: AxisName, *, axis_index_groups: Groups = None) -> Any:
    """The largest of `x`, element by element, over all positions along the axis, or several."""
    named, members = _among(axis_name, axis_index_groups, "pmax", even=False)
    return _each(x, lambda leaf: _all_reduce(leaf, named, members, "max"))


def pmin(x: Any, axis_name: AxisName, *, axis_index_groups: Groups = None) -> Any:
    """The smallest of `x`, element by element, over all positions along the axis, or several."""
    named, members = _among(axis_name, axis_index_groups, "pmin", even=False)
    return _each(x, lambda leaf: _all_reduce(leaf, named, members, "min"))


def axis_size(axis_name: AxisName) -> int:
    """How many positions there are along the axis, or several."""
    return size_of(named_axes(axis_name, "axis_size"))


def axis_index(axis_name: AxisName) -> Any:
    """The position of this call along the axis (i32); along several, the first is the major one."""
    index = None
    for named in named_axes(axis_name, "axis_index"):
        if not named.axes:
            continue
        place: Tracer = emit("axis-index", axes=named.axes)
        if index is not None:
            before = emit("mul", index, splat(named.size, place.value.type))
            place = emit("add", before, place)
        index = place
    return splat(0, TensorType((), "i32")) if index is None else index


def ppermute(x: Any, axis_name: AxisName, perm: Pairs) -> Any:
    """`x` of position `source` at position `target`, for each `(source, target)` of `perm`.

    A position that receives nothing has zeros. Raises `ArgumentError` for pairs that are none, or
    name a position twice.
    """
    named = named_axes(axis_name, "ppermute")
    pairs = _pairs(perm, named)

    def moved(leaf: Tracer) -> Tracer:
        if not joined(named):
            return leaf if pairs else splat(0, leaf.value.type, leaf.weak_type)
        return _sent("collective-permute", leaf, joined(named), pairs=pairs)

    return _each(x, moved)


def _pairs(perm: Pairs, named: Sequence[Named]) -> tuple[tuple[int, int], ...]:
    try:
        pairs = tuple((int(source), int(target)) for source, target in perm)
    except (TypeError, ValueError):
        raise ArgumentError(
            point(f"perm of ppermute is {perm!r}; it is a list of pairs (source, target)")
        ) from None
    size = size_of(named)
    along = " and ".join(repr(axis.name) for axis in named)
    for column, what in ((0, "source"), (1, "target")):
        places = [pair[column] for pair in pairs]
        for place in places:
            if not 0 <= place < size:
                raise PermutationError(
                    point(
                        f"perm of ppermute has the {what} {place}; the positions along "
                        f"{along} are 0 to {size - 1}"
                    )
                )
            if places.count(place) > 1:
                raise PermutationError(
                    point(
                        f"perm of ppermute has the {what} {place} twice; every position sends "
                        "once and receives once at most"
                    )
                )
    return pairs


def pshuffle(x: Any, axis_name: AxisName, perm: Sequence[int]) -> Any:
    """`x` of position `perm[i]` at position `i`; `perm` names every position once."""
    size = size_of(named_axes(axis_name, "pshuffle"))
    perm = sizes_of("perm of pshuffle", perm)
    if sorted(perm) != list(range(size)):
        raise PermutationError(
            point(
                f"perm of pshuffle is {list(perm)}; it has every number from 0 to {size - 1} once"
            )
        )
    return ppermute(x, axis_name, [(source, target) for target, source in enumerate(perm)])


def pbroadcast(x: Any, axis_name: AxisName, source: int) -> Any:
    """`x` of position `source` at every position along the axis."""
    named = named_axes(axis_name, "pbroadcast")
    size = size_of(named)
    source = whole_of("source of pbroadcast", source, least=-size)
    if not 0 <= source < size:
        raise ArgumentError(
            point(
                f"source of pbroadcast is {source}; the positions along "
                f"{' and '.join(repr(axis.name) for axis in named)} are 0 to {size - 1}"
            )
        )

    def given(leaf: Tracer) -> Tracer:
        mine: Tracer = emit("eq", axis_index(axis_name), splat(source, TensorType((), "i32")))
        if leaf.ndim:
            mine = emit("broadcast", mine, dims=(), result=leaf.value.type.with_dtype("bool"))
        none = splat(0, leaf.value.type)
        alone: Tracer = emit("select", mine, leaf, none, weak=leaf.weak_type)
        if leaf.value.type.dtype == "bool":
            return _sent("all-reduce", alone, joined(named), op=Symbol("max"))
        return _sent("all-reduce", alone, joined(named), op=Symbol("add"))

    return _each(x, given)


def all_gather(
    x: Any, axis_name: AxisName, *, axis_index_groups: Groups = None, axis: int = 0,
    tiled: bool = False,
) -> Any:  # fmt: skip
    """`x` of all positions, or of the group's, stacked along a new dimension `axis`, or put
    together along it if `tiled`."""
    named, members = _among(axis_name, axis_index_groups, "all_gather")
    tiled = flag_of("tiled of all_gather", tiled)

    def gathered(leaf: Tracer) -> Tracer:
        dim = axis_of(axis, leaf.ndim + (not tiled))
        if members is not None:
            return _joined(members.mine(leaf), dim, tiled)
        if not tiled:
            leaf = reshape(leaf, (*leaf.shape[:dim], 1, *leaf.shape[dim:]))
        for each in reversed(named):
            leaf = _sent("all-gather", leaf, each.axes, dim=dim)
        return leaf

    return _each(x, gathered)


def _joined(stacked: Tracer, dim: int, tiled: bool) -> Tracer:
    """Arrays that are stacked in front, stacked along `dim` or put together along it."""
    perm = list(range(1, stacked.ndim))
    perm.insert(dim, 0)
    moved: Tracer = emit("transpose", stacked, perm=tuple(perm), weak=stacked.weak_type)
    if not tiled:
        return moved
    count, *shape = stacked.shape
    shape[dim] *= count
    return reshape(moved, shape)


def psum_scatter(
    x: Any, axis_name: AxisName, *, scatter_dimension: int = 0, axis_index_groups: Groups = None,
    tiled: bool = False,
) -> Any:  # fmt: skip
    """The sum of `x` over all positions, or the group's, of which each keeps its own piece.

    Along `scatter_dimension` a position has one element, without that dimension, or its share of
    them if `tiled`. Raises `ShapeError` when the dimension does not divide.
    """
    named, members = _among(axis_name, axis_index_groups, "psum_scatter")
    tiled = flag_of("tiled of psum_scatter", tiled)
    size = len(members.groups[0]) if members else size_of(named)

    def scattered(leaf: Tracer) -> Tracer:
        dim = axis_of(scatter_dimension, leaf.ndim)
        _check_pieces("psum_scatter", leaf, dim, size, tiled)
        if members is not None:
            leaf = _own_piece(_all_reduce(leaf, named, members, "add"), dim, size, members)
        else:
            for each in named:
                leaf = _sent("reduce-scatter", leaf, each.axes, dim=dim, op=Symbol("add"))
        return leaf if tiled else reshape(leaf, (*leaf.shape[:dim], *leaf.shape[dim + 1 :]))

    return _each(x, scattered)


def _own_piece(x: Tracer, dim: int, count: int, members: Members) -> Tracer:
    length = x.shape[dim] // count
    start = emit("mul", members.rank(), splat(length, TensorType((), "i32")))
    piece: Tracer = dynamic_slice_in_dim(x, start, length, dim)
    return piece


def all_to_all(
    x: Any, axis_name: AxisName, split_axis: int, concat_axis: int, *,
    axis_index_groups: Groups = None, tiled: bool = False,
) -> Any:  # fmt: skip
    """Piece i of `x` along `split_axis` goes to position i, where what all sent is stacked.

    It is stacked along a new dimension `concat_axis`, and `split_axis` is gone; if `tiled`, both
    stay, one shorter and one longer. Raises `ShapeError` when a dimension does not divide.
    """
    named, members = _among(axis_name, axis_index_groups, "all_to_all")
    tiled = flag_of("tiled of all_to_all", tiled)
    size = len(members.groups[0]) if members else size_of(named)

    def exchanged(leaf: Tracer) -> Tracer:
        split, concat = axis_of(split_axis, leaf.ndim), axis_of(concat_axis, leaf.ndim)
        _check_pieces("all_to_all", leaf, split, size, tiled)
        share = leaf.shape[split] // size
        rest = [*leaf.shape[:split], share, *leaf.shape[split + 1 :]]
        if members is not None:
            senders = _own_piece(members.mine(leaf), split + 1, size, members)
            if not tiled:
                del rest[split]
                senders = reshape(senders, [size, *rest])
            return _joined(senders, concat, tiled)
        # The pieces are a dimension of their own, which becomes that of their senders.
        stages = _stages(named)
        shape = list(leaf.shape)
        shape[split : split + 1] = [n for stage in stages for n in (size_of(stage), 1)] + [share]
        sent = reshape(leaf, shape)
        for i, stage in enumerate(stages):
            dim = split + 2 * i
            sent = _sent("all-to-all", sent, joined(stage), split=dim, concat=dim + 1)
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

    return _each(x, exchanged)


def _stages(named: Sequence[Named]) -> list[list[Named]]:
    """The axes along which one exchange goes: those of a mesh at once, those of batches singly."""
    stages: list[list[Named]] = []
    for axis in named:
        if stages and axis.manual and stages[-1][0].manual:
            stages[-1].append(axis)
        else:
            stages.append([axis])
    return stages


def pswapaxes(x: Any, axis_name: AxisName, axis: int, *, axis_index_groups: Groups = None) -> Any:
    """The mapped axis exchanged with dimension `axis` of `x`."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pvary(x: Any, axis_name: AxisName) -> Any:
    """`x` as a value that each position along the axes has for itself.

    The numbers are the same, and so are tangents. What is the same everywhere counts as one value
    that all positions share, whose gradient is the sum over them; its `pvary` has a gradient at
    each position.
    """
    axes = tuple(
        axis for named in named_axes(axis_name, "pvary") if named.checked for axis in named.axes
    )
    return _each(x, lambda leaf: _sent("vary", leaf, axes))


def pcast(x: Any, axis_name: AxisName | None = None, *, to: str) -> Any:
    """`x` as a value that varies along the axes (`to="varying"`); see `pvary`."""
    if not isinstance(to, str) or to != "varying" or axis_name is None:
        raise ArgumentError(
            point(f"pcast is to 'varying' along axes that are named, got to={to!r}")
        )
    return pvary(x, axis_name)


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
