"""Transposition and broadcast of tracers along named dimensions."""

from collections.abc import Sequence

from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer


def transpose_dims(x: Tracer, perm: Sequence[int]) -> Tracer:
    """Transpose the dimensions of `x` by `perm`; return `x` if the order does not change."""
    if list(perm) == list(range(x.ndim)):
        return x
    result: Tracer = emit("transpose", x, perm=tuple(perm), weak=x.weak_type)
    return result


def broadcast_in_dim(x: Tracer, shape: Sequence[int], dims: Sequence[int]) -> Tracer:
    """Broadcast `x` to `shape`; dimension i of `x` becomes dimension `dims[i]` of the result."""
    kind = x.value.type.with_shape(shape)
    if x.shape == kind.shape:
        return x
    result: Tracer = emit("broadcast", x, dims=tuple(dims), result=kind, weak=x.weak_type)
    return result


def broadcast_back(reduced: Tracer, x: Tracer, dims: Sequence[int]) -> Tracer:
    """Broadcast a value that was reduced from `x` over `dims` to the shape of `x`."""
    return broadcast_in_dim(reduced, x.shape, [d for d in range(x.ndim) if d not in dims])
