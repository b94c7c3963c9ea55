"""Indexed reads `x[...]` with as few operations as possible.

Slices and integers become one `slice`, added and removed dimensions one `reshape`, traced integers
one `dynamic_slice`, index arrays one `gather`. A traced index out of range reads the nearest
element.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardir.frontend.array import Array
from shardir.frontend.composing import composed
from shardir.frontend.eager import public
from shardir.frontend.errors import IndexingError
from shardir.frontend.locations import point
from shardir.frontend.numpy.at import At as At
from shardir.frontend.numpy.masking import chosen
from shardir.frontend.numpy.subscripts import Subscript, parse
from shardir.frontend.numpy.vectors import clamped, inside, vectors, wrapped
from shardir.frontend.numpy.views import view as view
from shardir.frontend.operands import as_tracer, reshape, splat
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import INTEGERS, NUMPY_DTYPES, UNSIGNED, TensorType


@composed(blind=True)
def getitem(x: Any, index: Any) -> Any:
    """Return `x[index]` for every kind of index that NumPy supports.

    Integers, slices, None, `...`, integer arrays (traced or not) and concrete boolean arrays are
    supported. Raise `IndexingError` for an integer out of range; index arrays and traced integers
    that are out of range read the nearest element.
    """
    subscript, arrays = parse(tuple(x.shape), index)
    return _read(x, arrays, subscript)


def masked(x: Any, index: Any) -> Array | None:
    """Return the elements that one mask selects, alone or after full slices: `x[mask]`, `x[:,
    mask]`.

    Return `None` for other subscripts, and inside of a trace. The result size depends on values, so
    that the native dispatcher does not cache such calls of `getitem`.
    """
    if type(index) is not tuple:
        return chosen(x, index, 0)
    if not index or any(type(each) is not slice or each != slice(None) for each in index[:-1]):
        return None
    return chosen(x, index[-1], len(index) - 1)


def get(x: Any, index: Any, mode: str | None, fill_value: Any = None) -> Any:
    """Return `x[index]`; with the mode "fill", `fill_value` for indices out of range."""
    subscript, arrays = parse(tuple(x.shape), index, beyond=mode is not None)
    return _read(x, arrays, subscript, mode, fill_value)


@public(static=("subscript", "mode", "fill_value"), name="getitem")
def _read(
    x: Any, arrays: Any, subscript: Subscript, mode: str | None = None, fill_value: Any = None
) -> Any:
    tracer = as_tracer(x)
    fill = filling(tracer.value.type.dtype, fill_value) if mode == "fill" else None
    return read(tracer, subscript, [as_tracer(array) for array in arrays], fill, mode == "clip")


def filling(dtype: str, fill_value: Any) -> complex:
    """Return the fill value of an element type: NaN, the lowest signed or highest unsigned integer,
    or true.
    """
    if fill_value is not None:
        number: complex = np.asarray(fill_value).item()
        return number
    if dtype == "bool":
        return True
    if dtype in INTEGERS:
        limits = np.iinfo(NUMPY_DTYPES[dtype])
        return int(limits.max if dtype in UNSIGNED else limits.min)
    return float("nan")


def read(
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
    for d in subscript.indexed:
        if not x.shape[d]:
            if fill is not None:
                return splat(fill, kind.with_shape(subscript.shape), x.weak_type)
            raise IndexingError(point(f"dimension {d} of shape {x.shape} has no elements to index"))
    sliced = _sliced(x, subscript)
    if arrays and subscript.batch == () and fill is None and not subscript.known:
        sliced = _one(sliced, subscript, arrays)
    elif arrays:
        sliced = _gathered(sliced, subscript, arrays, fill, clip)
    return reshape(sliced, subscript.shape)


def _sliced(x: Tracer, subscript: Subscript) -> Tracer:
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


def _one(x: Tracer, subscript: Subscript, arrays: Sequence[Tracer]) -> Tracer:
    """Read one element along the dimensions of traced integers."""
    indexed = dict(zip(subscript.indexed, arrays, strict=True))
    starts = wrapped(list(indexed.values()), [x.shape[d] for d in indexed])
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


def _gathered(
    x: Tracer, subscript: Subscript, arrays: Sequence[Tracer], fill: complex | None, clip: bool
) -> Tracer:
    points = [d for d, span in enumerate(subscript.spans) if span and span.point]
    indices = vectors(subscript, arrays)
    x = reshape(x, [n for d, n in enumerate(x.shape) if d not in points])
    indexed = tuple(d - sum(p < d for p in points) for d in subscript.indexed)
    if clip:
        indices = clamped(indices, [x.shape[d] for d in indexed])
    plain, lead, count = subscript.plain, subscript.lead, len(subscript.batch)
    batch = range(lead, lead + count)
    found: Tracer = emit(
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
        return found
    return select_inside(found, indices, [x.shape[d] for d in indexed], fill, batch)


def select_inside(
    found: Tracer, indices: Tracer, sizes: Sequence[int], fill: complex, batch: Sequence[int]
) -> Tracer:
    """Replace gathered elements by `fill` where the index vector was out of range.

    `batch` are the dimensions of `found` that correspond to the indices.
    """
    in_range: Tracer = inside(indices, sizes)
    if in_range.shape != found.shape:
        kind = TensorType(found.shape, "bool")
        in_range = emit("broadcast", in_range, dims=tuple(batch), result=kind)
    other = splat(fill, found.value.type, True)
    result: Tracer = emit("select", in_range, found, other, weak=found.weak_type)
    return result
