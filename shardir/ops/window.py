"""Reductions over sliding windows (pooling), and select-and-scatter for their gradients.

All dimensions have a window; a window of size 1 leaves a dimension unchanged. Positions that
padding or dilation adds are never selected and count as the reduction's identity.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from shardir.batching import further
from shardir.factors import FactorRule, Kind, RuleBuilder
from shardir.ir import Op
from shardir.ops.check import ARITHMETIC, NUMBER, ORDERED, Domain, Ints, one_dtype
from shardir.ops.numerics import NARROW
from shardir.ops.select_pieces import select_loops, select_pieces
from shardir.ops.window_gradients import reduce_window_vjp, select_and_scatter_vjp
from shardir.ops.window_pieces import window_pieces
from shardir.ops.windowing import (
    Array,
    Padding,
    arranged,
    check_numbers,
    check_padding,
    count,
    dilated,
    windows,
)
from shardir.opset import define
from shardir.partitioning import Partitioning, every_loop, loops_in_pieces
from shardir.tangents import Tangents, linear
from shardir.types import TensorType

_OPS: dict[str, tuple[Domain, np.ufunc]] = {
    "add": (ARITHMETIC, np.add),
    "mul": (NUMBER, np.multiply),
    "max": (ORDERED, np.maximum),
    "min": (ORDERED, np.minimum),
}


def _identity(op: str, dtype: np.dtype[Any]) -> Any:
    """Return the identity element of a reduction."""
    if op in ("add", "mul"):
        return dtype.type(op == "mul")
    if dtype == np.bool_:
        return op == "min"
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if op == "max" else np.iinfo(dtype).max
    return dtype.type("-inf" if op == "max" else "inf")


def _places(
    x: TensorType,
    window: Ints,
    strides: Ints,
    padding: Padding,
    base_dilation: Ints,
    window_dilation: Ints,
) -> Ints:
    """Return the number of windows along each dimension; raise `TypeError` for malformed ones."""
    check_numbers(
        x.rank,
        "dimension",
        window=window,
        strides=strides,
        base_dilation=base_dilation,
        window_dilation=window_dilation,
    )
    check_padding(x.rank, "dimension", padding)
    reach = [
        dilated(n, step) + lo + hi
        for n, step, (lo, hi) in zip(x.shape, base_dilation, padding, strict=True)
    ]
    inner = [dilated(n, step) for n, step in zip(window, window_dilation, strict=True)]
    return tuple(map(count, reach, inner, strides))


def _type(
    x: TensorType,
    *,
    result: TensorType | None,
    op: str,
    window: Ints,
    strides: Ints,
    padding: Padding,
    base_dilation: Ints,
    window_dilation: Ints,
) -> TensorType:
    if op not in _OPS:
        raise TypeError(f"op={op} is not one of {', '.join(_OPS)}")
    _OPS[op][0].check(x)
    return x.with_shape(_places(x, window, strides, padding, base_dilation, window_dilation))


def _untouched(i: int, *, window: Ints, strides: Ints, padding: Padding, base_dilation: Ints,
               **_: Ints) -> bool:  # fmt: skip
    """Return whether the windows along a dimension are its single elements."""
    return (window[i], strides[i], padding[i], base_dilation[i]) == (1, 1, (0, 0), 1)


def _factors(x: TensorType, *, result: TensorType, op: str, **attrs: Any) -> FactorRule:
    builder = RuleBuilder([x.shape], [result.shape])
    for i, size in enumerate(result.shape):
        builder.add([i], [i], size, Kind.PASS if _untouched(i, **attrs) else Kind.PERMUTE)
    return builder.build()


def _reference(
    x: Array,
    *,
    result: TensorType,
    op: str,
    window: Ints,
    strides: Ints,
    padding: Padding,
    base_dilation: Ints,
    window_dilation: Ints,
) -> Array:
    """Reduce one dimension after the other."""
    wide = np.dtype(np.float32) if result.dtype in NARROW else result.numpy
    x = arranged(x.astype(wide, copy=False), _identity(op, wide), padding, base_dilation)
    for d, (size, stride, step) in enumerate(zip(window, strides, window_dilation, strict=True)):
        if size == 1 and stride == 1:
            continue
        alone = [(size, stride, step) if i == d else (1, 1, 1) for i in range(x.ndim)]
        views = windows(x, *(tuple(column) for column in zip(*alone, strict=True)))
        x = _OPS[op][1].reduce(views, tuple(range(x.ndim, 2 * x.ndim)), dtype=wide)
    return x.astype(result.numpy, copy=False)


_BATCH = further(window=1, strides=1, padding=(0, 0), base_dilation=1, window_dilation=1)


def _reduce_jvp(b: Any, op: Op, tangents: Tangents) -> Tangents | None:
    return linear(b, op, tangents) if op.attrs["op"] == "add" else None


reduce_window = define(
    "reduce_window",
    type=_type,
    factors=_factors,
    reference=_reference,
    batch=_BATCH,
    vjp=reduce_window_vjp,
    jvp=_reduce_jvp,
    linear=lambda *, op, **_: ((0,),) if op == "add" else (),
    partition=Partitioning(window_pieces, every_loop, uneven=every_loop),
)
"""The elements of each window reduced by `op`."""


def _select_type(
    x: TensorType,
    source: TensorType,
    *,
    result: TensorType | None,
    op: str,
    window: Ints,
    strides: Ints,
    padding: Padding,
    base_dilation: Ints,
    window_dilation: Ints,
) -> TensorType:
    if op not in ("max", "min"):
        raise TypeError(f"op={op} is not one of max, min")
    NUMBER.check(source)
    ORDERED.check(x)
    one_dtype(x, source)
    sizes = _places(x, window, strides, padding, base_dilation, window_dilation)
    if source.shape != sizes:
        raise TypeError(f"needs one element for each window ({x.with_shape(sizes)}), got {source}")
    return x


def _select_factors(
    x: TensorType, source: TensorType, *, result: TensorType, op: str, **attrs: Any
) -> FactorRule:
    builder = RuleBuilder([x.shape, source.shape], [result.shape])
    for i, size in enumerate(result.shape):
        if _untouched(i, **attrs):
            builder.add([i, i], [i], size)
        else:
            builder.add([None, i], [None], source.shape[i], Kind.REPLICATE)
            builder.add([i, None], [i], size, Kind.PERMUTE)
    return builder.build()


def _select_reference(
    x: Array,
    source: Array,
    *,
    result: TensorType,
    op: str,
    window: Ints,
    strides: Ints,
    padding: Padding,
    base_dilation: Ints,
    window_dilation: Ints,
) -> Array:
    """Visit the positions inside a window in order and keep each window's best element so far."""
    if source.size == 0:
        return np.zeros(x.shape, x.dtype)
    inner = arranged(x, 0, padding, base_dilation)
    real = arranged(np.ones(x.shape, bool), False, padding, base_dilation)
    values = windows(inner, window, strides, window_dilation)
    exists = windows(real, window, strides, window_dilation)
    best = np.zeros(source.shape, x.dtype)
    choice = np.full(source.shape, -1)
    for number, place in enumerate(_inside(window)):
        here = values[_at(place)]
        better = here > best if op == "max" else here < best
        # NaN takes precedence over all numbers, as in the reduction.
        better |= (here != here) & (best == best)
        better = exists[_at(place)] & (better | (choice < 0))
        best = np.where(better, here, best)
        choice[better] = number
    wide = np.float32 if result.dtype in NARROW else result.numpy
    total = np.zeros(inner.shape, wide)
    for number, place in enumerate(_inside(window)):
        spots = tuple(
            slice(p * step, p * step + (n - 1) * stride + 1 if n else p * step, stride)
            for p, step, n, stride in zip(
                place, window_dilation, source.shape, strides, strict=True
            )
        )
        total[spots] += np.where(choice == number, source, 0).astype(wide)
    back = tuple((-lo, -hi) for lo, hi in padding)
    dense = arranged(total, 0, back, (1,) * x.ndim)
    kept = tuple(slice(None, None, step) for step in base_dilation)
    return dense[kept].astype(result.numpy, copy=False)


def _at(place: Ints) -> Any:
    """Return the index of one window position in all windows."""
    return (..., *place)


def _inside(window: Ints) -> Iterator[Ints]:
    """Return the positions in a window, in row-major order."""
    return product(*map(range, window))


def _select_jvp(b: Any, op: Op, tangents: Tangents) -> Tangents:
    """Return the tangent, which is linear in the source; the selection is piecewise constant."""
    x, source = op.operands[0], tangents[1]
    return (None if source is None else b.select_and_scatter(x, source, **op.attrs),)


select_and_scatter = define(
    "select_and_scatter",
    type=_select_type,
    factors=_select_factors,
    partition=Partitioning(
        select_pieces, loops_in_pieces, uneven=loops_in_pieces, loops=select_loops
    ),
    reference=_select_reference,
    batch=_BATCH,
    vjp=select_and_scatter_vjp,
    jvp=_select_jvp,
)
"""For each window of `x`, an element of `source` added at the position of the window's extremum.

The first of equal elements of a window is selected, and a NaN takes precedence over numbers.
"""
