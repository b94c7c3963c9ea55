"""Slices, repetition, concatenation and prefix sums along one dimension of a tracer.

Also transposition and broadcast along given dimensions.
"""

from collections.abc import Sequence

from shardir.frontend.tracing.operands import broadcast, convert, reshape
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer


def replace_dim_size(shape: Sequence[int], dim: int, size: int) -> tuple[int, ...]:
    """Return the shape with the size of one dimension replaced."""
    return (*shape[:dim], size, *shape[dim + 1 :])


def slice_dim(x: Tracer, dim: int, start: int, stop: int) -> Tracer:
    """Return the elements with indices from `start` to `stop` (exclusive) along one dimension."""
    if (start, stop) == (0, x.shape[dim]):
        return x
    sliced: Tracer = emit(
        "slice",
        x,
        starts=replace_dim_size((0,) * x.ndim, dim, start),
        strides=(1,) * x.ndim,
        result=x.value.type.with_shape(replace_dim_size(x.shape, dim, max(stop - start, 0))),
        weak=x.weak_type,
    )
    return sliced


def repeat_slice(x: Tracer, dim: int, at: int, count: int) -> Tracer:
    """Return `count` copies of the elements at index `at` along a dimension."""
    return broadcast(slice_dim(x, dim, at, at + 1), replace_dim_size(x.shape, dim, count))


def concatenate_parts(parts: Sequence[Tracer], dim: int) -> Tracer:
    """Concatenate parts of one element type along a dimension; empty parts are left out."""
    full = [part for part in parts if part.shape[dim]] or list(parts[:1])
    if len(full) == 1:
        return full[0]
    weak = all(part.weak_type for part in full)
    result: Tracer = emit("concatenate", *full, dim=dim, weak=weak)
    return result


def prefix_sums(vector: Tracer) -> Tracer:
    """Return the inclusive prefix sums of a vector of bools or integers, in i32."""
    sums: Tracer = emit("cumsum", convert(vector, "i32"), dim=0, reverse=False)
    return sums


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


def flatten(x: Tracer) -> Tracer:
    """Flatten `x` to one dimension."""
    return reshape(x, (x.value.type.size,))
