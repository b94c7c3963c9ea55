"""One dimension at a time: a piece of it, another size for it."""

from collections.abc import Sequence

from shardir.frontend.operands import broadcast, convert
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer


def resized(shape: Sequence[int], dim: int, size: int) -> tuple[int, ...]:
    """The shape with another size for one dimension."""
    return (*shape[:dim], size, *shape[dim + 1 :])


def piece(x: Tracer, dim: int, start: int, stop: int) -> Tracer:
    """The elements from `start` up to `stop` along one dimension."""
    if (start, stop) == (0, x.shape[dim]):
        return x
    cut: Tracer = emit(
        "slice",
        x,
        starts=resized((0,) * x.ndim, dim, start),
        strides=(1,) * x.ndim,
        result=x.value.type.with_shape(resized(x.shape, dim, max(stop - start, 0))),
        weak=x.weak_type,
    )
    return cut


def repeated(x: Tracer, dim: int, at: int, count: int) -> Tracer:
    """The elements at one place along a dimension, `count` times."""
    return broadcast(piece(x, dim, at, at + 1), resized(x.shape, dim, count))


def joined(parts: Sequence[Tracer], dim: int) -> Tracer:
    """Parts of one type, one after the other along a dimension; empty ones leave no trace."""
    full = [part for part in parts if part.shape[dim]] or list(parts[:1])
    if len(full) == 1:
        return full[0]
    weak = all(part.weak_type for part in full)
    whole: Tracer = emit("concatenate", *full, dim=dim, weak=weak)
    return whole


def counted(vector: Tracer) -> Tracer:
    """The sums of a vector of bools or integers up to each element, that one included, in i32."""
    sums: Tracer = emit("cumsum", convert(vector, "i32"), dim=0, reverse=False)
    return sums
