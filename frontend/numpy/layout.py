"""Where dimensions go: another order, new ones to repeat along."""

from collections.abc import Sequence

from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer


def transposed(x: Tracer, perm: Sequence[int]) -> Tracer:
    """`x` with its dimensions in another order; itself if it is the same one."""
    if list(perm) == list(range(x.ndim)):
        return x
    turned: Tracer = emit("transpose", x, perm=tuple(perm), weak=x.weak_type)
    return turned


def spread(x: Tracer, shape: Sequence[int], dims: Sequence[int]) -> Tracer:
    """`x` repeated along the dimensions of `shape` that are not among `dims`, its own."""
    kind = x.value.type.with_shape(shape)
    if x.shape == kind.shape:
        return x
    repeated: Tracer = emit("broadcast", x, dims=tuple(dims), result=kind, weak=x.weak_type)
    return repeated


def back(reduced: Tracer, x: Tracer, dims: Sequence[int]) -> Tracer:
    """What was reduced from `x` over `dims`, repeated along them."""
    return spread(reduced, x.shape, [d for d in range(x.ndim) if d not in dims])
