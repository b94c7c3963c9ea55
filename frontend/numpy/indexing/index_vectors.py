"""Conversion of index arrays to the index vectors of gather and scatter."""

from collections.abc import Sequence

import numpy as np

from shardir.frontend.numpy.indexing.subscripts import Subscript
from shardir.frontend.tracing.operands import broadcast, constant, convert, reshape, splat
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import UNSIGNED

_INDEX_DTYPES = ("i32", "i64", "u32", "u64")


def wrap_negative_indices(indices: Sequence[Tracer], sizes: Sequence[int]) -> list[Tracer]:
    """Convert indices to one integer type and add the dimension size to negative ones."""
    converted = zip(_unify_types(indices), sizes, strict=True)
    return [_wrap_negative_index(index, size) for index, size in converted]


def _unify_types(indices: Sequence[Tracer]) -> list[Tracer]:
    """Convert indices to one integer type."""
    kinds = {index.value.type.dtype for index in indices}
    common = kinds.pop() if len(kinds) == 1 else "i32"
    dtype = common if common in _INDEX_DTYPES else "i32"
    return [convert(index, dtype) for index in indices]


def _wrap_negative_index(index: Tracer, size: int) -> Tracer:
    kind = index.value.type
    if kind.dtype in UNSIGNED:
        return index
    below = emit("lt", index, splat(0, kind))
    result: Tracer = emit("select", below, emit("add", index, splat(size, kind)), index)
    return result


def make_index_vectors(subscript: Subscript, arrays: Sequence[Tracer]) -> Tracer:
    """Return the index arrays as one array of index vectors, counted from the front."""
    if subscript.is_concrete:
        return arrays[0]
    return stack_indices(count_from_front(subscript, arrays), subscript.batch)


def count_from_front(subscript: Subscript, arrays: Sequence[Tracer]) -> list[Tracer]:
    """Return the index arrays in one integer type, with negative indices as the subscript states
    it."""
    if not subscript.wraps:
        return _unify_types(arrays)
    return wrap_negative_indices(arrays, [subscript.operand[d] for d in subscript.indexed_dims])


def stack_indices(indices: Sequence[Tracer], batch: tuple[int, ...]) -> Tracer:
    """Broadcast indices of one type to `batch` and stack them in a new last dimension."""
    parts = [reshape(broadcast(index, batch), (*batch, 1)) for index in indices]
    if len(parts) == 1:
        return parts[0]
    joined: Tracer = emit("concatenate", *parts, dim=len(batch))
    return joined


def are_in_range(indices: Tracer, sizes: Sequence[int]) -> Tracer:
    """Return whether each index vector is in range, as bools without the last dimension."""
    kind = indices.value.type
    last = len(kind.shape) - 1
    limits = constant(np.asarray(sizes, kind.numpy))
    high = emit("broadcast", limits, dims=(last,), result=kind)
    low = emit("ge", indices, splat(0, kind))
    both = emit("and", low, emit("lt", indices, high))
    result: Tracer = emit("all", both, dims=(last,))
    return result


def clamp_index_vectors(indices: Tracer, sizes: Sequence[int]) -> Tracer:
    """Clamp index vectors into range, component by component."""
    kind = indices.value.type
    last = len(kind.shape) - 1
    highest = constant(np.asarray([max(size - 1, 0) for size in sizes], kind.numpy))
    high = emit("broadcast", highest, dims=(last,), result=kind)
    result: Tracer = emit("clamp", splat(0, kind.with_shape(())), indices, high)
    return result
