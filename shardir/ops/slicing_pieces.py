"""How a device that has a piece of a tensor pads it and updates parts of it."""

from typing import Any

from shardir.factors import FactorRule
from shardir.ops.check import Ints
from shardir.partitioning import Local, natural_cuts
from shardir.types import TensorType


def pad_cuts(
    rule: FactorRule, x: TensorType, value: TensorType, *, low: Ints, high: Ints, **_: Any
) -> list[int]:
    """A dimension of the old size may still be shifted: padded here and shortened there."""
    shifted = {i for d, dim in enumerate(rule.operands[0]) if low[d] or high[d] for i in dim}
    return [i for i in natural_cuts(rule) if i not in shifted]


def update_cuts(
    rule: FactorRule, x: TensorType, update: TensorType, *_: TensorType, **__: Any
) -> list[int]:
    """A dimension that is written in part may be cut, but random keys cannot be padded."""
    sizes = zip(x.shape, update.shape, strict=True)
    partly = {i for d, (n, part) in enumerate(sizes) if n != part for i in rule.results[0][d]}
    return [i for i in natural_cuts(rule) if x.dtype != "key" or i not in partly]


def update_pieces(b: Any, local: Local, x: Any, update: Any, *starts: Any) -> Any:
    """Every device writes what falls into its piece.

    Along a cut dimension the update is spread over the piece: padded on both sides by as much as
    the piece has, and sliced where the piece is seen from the update. The rest keeps its values.
    """
    whole, written = (value.type.shape for value in local.op.operands[:2])
    at, inside = list(starts), None
    for d, (size, part) in enumerate(zip(whole, written, strict=True)):
        own = local.start(b, local.op.operands[0], d) if size != part else None
        if own is None:
            continue
        start = _inside(b, starts[d], size - part)
        update = _spread(b, update, d, x.type.shape[d], b.sub(own, start))
        index = b.iota(dim=d, result=x.type.with_dtype("i32"))
        index = b.add(index, b.broadcast(b.sub(own, start), dims=(), result=index.type))
        low, high = b.full(0, index.type), b.full(part, index.type)
        here = b.and_(b.ge(index, low), b.lt(index, high))
        inside = here if inside is None else b.and_(inside, here)
        at[d] = b.full(0, starts[d].type)
    new = b.dynamic_update_slice(x, update, *at)
    return new if inside is None else b.select(inside, new, x)


def _inside(b: Any, start: Any, high: int) -> Any:
    """A start as i32, moved to where the update does not stick out."""
    if start.type.numpy.itemsize < 4:
        start = b.convert(start, result=start.type.with_dtype("i32"))
    start = b.clamp(b.full(0, start.type), start, b.full(high, start.type))
    return (
        start
        if start.type.dtype == "i32"
        else b.convert(start, result=start.type.with_dtype("i32"))
    )


def _spread(b: Any, update: Any, d: int, piece: int, seen: Any) -> Any:
    """What an update has at `seen` and the `piece` elements from there on, along a dimension."""
    rank = update.type.rank
    around = tuple(piece if i == d else 0 for i in range(rank))
    filler = b.full(0, update.type.with_shape(()))
    padded = b.pad(update, filler, low=around, high=around, interior=(0,) * rank)
    shape = tuple(piece if i == d else n for i, n in enumerate(update.type.shape))
    at, zero = b.add(seen, b.full(piece, seen.type)), b.full(0, seen.type)
    starts = (at if i == d else zero for i in range(rank))
    return b.dynamic_slice(padded, *starts, result=update.type.with_shape(shape))
