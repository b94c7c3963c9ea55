"""Indexed reads `x[...]` with as few operations as possible.

Slices and integers become one `slice`, added and removed dimensions one `reshape`, traced integers
one `dynamic_slice`, index arrays one `gather`. A traced index out of range reads the nearest
element.
"""

from collections.abc import Sequence

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, IndexingError
from shardir.frontend.numpy.indexing.index_items import Index
from shardir.frontend.numpy.indexing.index_vectors import (
    are_in_range,
    clamp_index_vectors,
    count_from_front,
    make_index_vectors,
)
from shardir.frontend.numpy.indexing.mask_compression import compress_rows
from shardir.frontend.numpy.indexing.subscripts import Subscript, parse_subscript
from shardir.frontend.numpy.indexing.unclamped_indices import emit_index_check, has_index_checks
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, reshape, splat
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import DTYPE_INFO, KEYS
from shardir.ir.types import INTEGERS, TensorType


@composed_function(blind=True)
def getitem(x: Tracer, index: Index) -> Tracer:
    """Return `x[index]` for every kind of index that NumPy supports.

    Integers, slices, None, `...`, integer arrays (traced or not) and concrete boolean arrays are
    supported. Raise `IndexingError` for an integer out of range, unless the setting
    `check_static_indices` is false; index arrays and traced integers that are out of range read the
    nearest element.
    """
    subscript, arrays = parse_subscript(tuple(x.shape), index)
    return _getitem(x, arrays, subscript)


def getitem_by_mask(x: ArrayLike, index: object) -> Tracer | None:
    """Return the elements that one mask selects, alone or after full slices: `x[mask]`, `x[:,
    mask]`.

    Return `None` for other subscripts, and inside of a trace. The result size depends on values, so
    that the native dispatcher does not cache such calls of `getitem`.
    """
    if type(index) is not tuple:
        return compress_rows(x, index, 0)
    if not index or any(type(each) is not slice or each != slice(None) for each in index[:-1]):
        return None
    return compress_rows(x, index[-1], len(index) - 1)


def getitem_with_mode(
    x: Tracer,
    index: ArrayLike,
    mode: str | None,
    fill_value: ArrayLike | None = None,
    wraps: bool = True,
) -> Tracer:
    """Return `x[index]`; with the mode "fill", `fill_value` for indices out of range.

    Unless `wraps`, negative indices are out of range.
    """
    beyond = mode is not None or not wraps
    subscript, arrays = parse_subscript(tuple(x.shape), index, beyond, wraps)
    return _getitem(x, arrays, subscript, mode, fill_value)


@public(static=("subscript", "mode", "fill_value"), name="getitem")
def _getitem(
    x: ArrayLike,
    arrays: Sequence[ArrayLike],
    subscript: Subscript,
    mode: str | None = None,
    fill_value: ArrayLike | None = None,
) -> Tracer:
    tracer = as_tracer(x)
    fill = fill_value_of(tracer.value.type.dtype, fill_value) if mode == "fill" else None
    return emit_read(
        tracer, subscript, [as_tracer(array) for array in arrays], fill, mode == "clip"
    )


def fill_value_of(dtype: str, fill_value: ArrayLike | None) -> complex:
    """Return the fill value of an element type: NaN, the lowest signed or highest unsigned integer,
    or true; of keys, whose words are unsigned, that of a word.
    """
    if fill_value is not None:
        values = np.asarray(fill_value)
        if values.size != 1:
            raise ArgumentError(with_location(f"fill_value is one number, got {brief(fill_value)}"))
        number: complex = values.item()
        return number
    if dtype == "bool":
        return True
    if dtype in INTEGERS or dtype in KEYS:
        info = DTYPE_INFO["u32" if dtype in KEYS else dtype]
        return info.min_integer or info.max_integer
    return float("nan")


def emit_read(
    x: Tracer,
    subscript: Subscript,
    arrays: Sequence[Tracer],
    fill: complex | None = None,
    clip: bool = False,
) -> Tracer:
    """Return the elements that `subscript` and its index arrays select.

    Index vectors out of range read the nearest element, or give `fill`. As in JAX, the derivative
    flows to such a nearest element only with `clip`.
    """
    kind = x.value.type
    if 0 in subscript.batch and (0 in kind.shape or not arrays):
        return splat(0, kind.with_shape(subscript.shape), x.weak_type)
    for d in subscript.indexed_dims:
        if not x.shape[d]:
            if fill is not None:
                return splat(fill, kind.with_shape(subscript.shape), x.weak_type)
            raise IndexingError(
                with_location(f"dimension {d} of shape {x.shape} has no elements to index")
            )
    if arrays and has_index_checks():
        vectors = make_index_vectors(subscript, arrays)
        emit_index_check(x.shape, vectors, subscript.indexed_dims)
    sliced = _apply_spans(x, subscript)
    if arrays and subscript.batch == () and fill is None and not subscript.is_concrete:
        sliced = _read_at_scalars(sliced, subscript, arrays, clip)
    elif arrays:
        sliced = _emit_gather(sliced, subscript, arrays, fill, clip)
    return reshape(sliced, subscript.shape)


def _apply_spans(x: Tracer, subscript: Subscript) -> Tracer:
    """Apply the spans; dimensions of points get size 1, those of index arrays stay complete."""
    starts, strides, shape = [], [], []
    for size, span in zip(x.shape, subscript.spans, strict=True):
        starts.append(span.start if span else 0)
        strides.append(span.stride if span else 1)
        shape.append(span.size if span else size)
    if tuple(shape) != x.shape:
        x = emit(
            "slice",
            x,
            starts=tuple(starts),
            strides=tuple(strides),
            result=x.value.type.with_shape(shape),
            weak=x.weak_type,
        )
    back = tuple(d for d, span in enumerate(subscript.spans) if span and span.reverse)
    return emit("reverse", x, dims=back, weak=x.weak_type) if back else x


def _read_at_scalars(
    x: Tracer, subscript: Subscript, arrays: Sequence[Tracer], clip: bool
) -> Tracer:
    """Read one element along the dimensions of traced integers.

    `dynamic_slice` clamps its starts. With `clip` they are clamped before it, so that checks of
    indices accept them.
    """
    indexed = dict(zip(subscript.indexed_dims, arrays, strict=True))
    starts = count_from_front(subscript, arrays)
    if clip:
        starts = [_clamp(i, x.shape[d]) for d, i in zip(indexed, starts, strict=True)]
    zero = splat(0, starts[0].value.type) if len(starts) < x.ndim else starts[0]
    found = dict(zip(indexed, starts, strict=True))
    shape = [1 if d in indexed else n for d, n in enumerate(x.shape)]
    result: Tracer = emit(
        "dynamic_slice",
        x,
        *(found.get(d, zero) for d in range(x.ndim)),
        result=x.value.type.with_shape(shape),
        weak=x.weak_type,
    )
    return result


def _clamp(index: Tracer, size: int) -> Tracer:
    """Return the nearest index that is in range."""
    low, high = (splat(n, index.value.type) for n in (0, size - 1))
    result: Tracer = emit("clamp", low, index, high)
    return result


def _emit_gather(
    x: Tracer, subscript: Subscript, arrays: Sequence[Tracer], fill: complex | None, clip: bool
) -> Tracer:
    points = [d for d, span in enumerate(subscript.spans) if span and span.point]
    indices = make_index_vectors(subscript, arrays)
    x = reshape(x, [n for d, n in enumerate(x.shape) if d not in points])
    indexed = tuple(d - sum(p < d for p in points) for d in subscript.indexed_dims)
    if clip:
        indices = clamp_index_vectors(indices, [x.shape[d] for d in indexed])
    plain, lead, count = subscript.shape_without_new, subscript.lead, len(subscript.batch)
    batch = range(lead, lead + count)
    result: Tracer = emit(
        "gather",
        x,
        indices,
        offset_dims=tuple(d for d in range(len(plain)) if d not in batch),
        collapsed_dims=indexed,
        start_index_map=indexed,
        result=x.value.type.with_shape(plain),
        weak=x.weak_type,
    )
    if fill is None:
        return result
    return fill_out_of_bounds(result, indices, [x.shape[d] for d in indexed], fill, batch)


def fill_out_of_bounds(
    found: Tracer, indices: Tracer, sizes: Sequence[int], fill: complex, batch: Sequence[int]
) -> Tracer:
    """Replace gathered elements by `fill` where the index vector was out of range.

    `batch` are the dimensions of `found` that correspond to the indices.
    """
    in_range: Tracer = are_in_range(indices, sizes)
    if in_range.shape != found.shape:
        kind = TensorType(found.shape, "bool")
        in_range = emit("broadcast", in_range, dims=tuple(batch), result=kind)
    other = splat(fill, found.value.type, True)
    result: Tracer = emit("select", in_range, found, other, weak=found.weak_type)
    return result
