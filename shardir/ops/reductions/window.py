"""Reductions over sliding windows (pooling), and select-and-scatter for their gradients.

All dimensions have a window; a window of size 1 leaves a dimension unchanged. Positions that
padding or dilation adds are never selected and count as the reduction's identity.
"""

from collections.abc import Iterator
from itertools import product
from types import EllipsisType

import numpy as np

from shardir.ir.arithmetic import arithmetic_of_attribute
from shardir.ir.builder import Builder
from shardir.ir.dtypes import DTYPE_INFO, NARROW_FLOATS
from shardir.ir.module import Op
from shardir.ir.operation import Partitioning, Tangents, define_op
from shardir.ir.types import NumpyDType, TensorType, dtype_name
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.op_rules.partitioning import all_factors, factors_without_replicated
from shardir.op_rules.tangents import linear_tangent
from shardir.ops.reductions.select_and_scatter_partitioning import (
    partition_select_and_scatter,
    select_and_scatter_factors,
)
from shardir.ops.reductions.window_geometry import (
    Array,
    WindowAttributes,
    check_padding,
    check_positive,
    count_windows,
    dilate_and_pad,
    dilated_size,
    window_views,
)
from shardir.ops.reductions.window_gradients import reduce_window_vjp, select_and_scatter_vjp
from shardir.ops.reductions.window_partitioning import partition_reduce_window
from shardir.ops.type_checks import ARITHMETIC, NUMERIC, ORDERED, DtypeDomain, Ints, common_dtype

_WINDOW_REDUCTIONS: dict[str, tuple[DtypeDomain, np.ufunc]] = {
    "add": (ARITHMETIC, np.add),
    "mul": (NUMERIC, np.multiply),
    "max": (ORDERED, np.maximum),
    "min": (ORDERED, np.minimum),
}


def _identity(op: str, dtype: NumpyDType) -> object:
    """Return the identity element of a reduction."""
    if op in ("add", "mul"):
        return dtype.type(op == "mul")
    if dtype == np.bool_:
        return op == "min"
    info = DTYPE_INFO[dtype_name(dtype)]
    if info.kind != "float":
        return info.min_integer if op == "max" else info.max_integer
    return dtype.type("-inf" if op == "max" else "inf")


def _count_windows(x: TensorType, attributes: WindowAttributes) -> Ints:
    """Return the number of windows along each dimension; raise `TypeError` for malformed ones."""
    window, strides, padding = attributes.window, attributes.strides, attributes.padding
    base_dilation, window_dilation = attributes.base_dilation, attributes.window_dilation
    check_positive(
        x.rank,
        "dimension",
        window=window,
        strides=strides,
        base_dilation=base_dilation,
        window_dilation=window_dilation,
    )
    check_padding(x.rank, "dimension", padding)
    reach = [
        dilated_size(n, step) + lo + hi
        for n, step, (lo, hi) in zip(x.shape, base_dilation, padding, strict=True)
    ]
    inner = [dilated_size(n, step) for n, step in zip(window, window_dilation, strict=True)]
    return tuple(map(count_windows, reach, inner, strides))


def _type(
    x: TensorType,
    *,
    result: TensorType | None,
    attributes: WindowAttributes,
) -> TensorType:
    op = attributes.op
    if op not in _WINDOW_REDUCTIONS:
        raise TypeError(f"op={op} is not one of {', '.join(_WINDOW_REDUCTIONS)}")
    _WINDOW_REDUCTIONS[op][0].check(x)
    return x.with_shape(_count_windows(x, attributes))


def _factors(x: TensorType, *, result: TensorType, attributes: WindowAttributes) -> FactorRule:
    builder = RuleBuilder([x.shape], [result.shape])
    for i, size in enumerate(result.shape):
        kind = FactorKind.PASS if attributes.is_trivial(i) else FactorKind.PERMUTE
        builder.add([i], [i], size, kind)
    return builder.build()


def _reference(
    x: Array,
    *,
    result: TensorType,
    attributes: WindowAttributes,
) -> Array:
    """Reduce one dimension after the other."""
    op, steps = attributes.op, (attributes.window, attributes.strides, attributes.window_dilation)
    wide = np.dtype(np.float32) if result.dtype in NARROW_FLOATS else result.numpy
    x = dilate_and_pad(
        x.astype(wide, copy=False),
        _identity(op, wide),
        attributes.padding,
        attributes.base_dilation,
    )
    for d, (size, stride, step) in enumerate(zip(*steps, strict=True)):
        if size == 1 and stride == 1:
            continue
        alone = [(size, stride, step) if i == d else (1, 1, 1) for i in range(x.ndim)]
        views = window_views(x, *(tuple(column) for column in zip(*alone, strict=True)))
        x = _WINDOW_REDUCTIONS[op][1].reduce(views, tuple(range(x.ndim, 2 * x.ndim)), dtype=wide)
    return x.astype(result.numpy, copy=False)


_BATCH = ShiftDims(window=1, strides=1, padding=(0, 0), base_dilation=1, window_dilation=1)


def _reduce_jvp(b: Builder, op: Op, tangents: Tangents) -> Tangents | None:
    return linear_tangent(b, op, tangents) if op.attrs["op"] == "add" else None


reduce_window = define_op(
    "reduce_window",
    attributes=WindowAttributes,
    type=_type,
    factors=_factors,
    reference=_reference,
    batch=_BATCH,
    vjp=reduce_window_vjp,
    jvp=_reduce_jvp,
    linear=lambda *, attributes: ((0,),) if attributes.op == "add" else (),
    partition=Partitioning(partition_reduce_window, all_factors, uneven=all_factors),
    arithmetic=arithmetic_of_attribute,
)
"""The elements of each window reduced by `op`."""


def _select_type(
    x: TensorType,
    source: TensorType,
    *,
    result: TensorType | None,
    attributes: WindowAttributes,
) -> TensorType:
    if attributes.op not in ("max", "min"):
        raise TypeError(f"op={attributes.op} is not one of max, min")
    NUMERIC.check(source)
    ORDERED.check(x)
    common_dtype(x, source)
    sizes = _count_windows(x, attributes)
    if source.shape != sizes:
        raise TypeError(f"needs one element for each window ({x.with_shape(sizes)}), got {source}")
    return x


def _select_factors(
    x: TensorType, source: TensorType, *, result: TensorType, attributes: WindowAttributes
) -> FactorRule:
    builder = RuleBuilder([x.shape, source.shape], [result.shape])
    for i, size in enumerate(result.shape):
        if attributes.is_trivial(i):
            builder.add([i, i], [i], size)
        else:
            builder.add([None, i], [None], source.shape[i], FactorKind.REPLICATE)
            builder.add([i, None], [i], size, FactorKind.PERMUTE)
    return builder.build()


def _select_reference(
    x: Array,
    source: Array,
    *,
    result: TensorType,
    attributes: WindowAttributes,
) -> Array:
    """Visit the positions inside a window in order and keep each window's best element so far."""
    op, window, strides = attributes.op, attributes.window, attributes.strides
    padding, base_dilation = attributes.padding, attributes.base_dilation
    window_dilation = attributes.window_dilation
    if source.size == 0:
        return np.zeros(x.shape, x.dtype)
    inner = dilate_and_pad(x, 0, padding, base_dilation)
    real = dilate_and_pad(np.ones(x.shape, bool), False, padding, base_dilation)
    values = window_views(inner, window, strides, window_dilation)
    exists = window_views(real, window, strides, window_dilation)
    best = np.zeros(source.shape, x.dtype)
    choice = np.full(source.shape, -1)
    for number, position in enumerate(_window_positions(window)):
        here = values[_index_of_position(position)]
        better = here > best if op == "max" else here < best
        # NaN takes precedence over all numbers, as in the reduction.
        better |= (here != here) & (best == best)
        better = exists[_index_of_position(position)] & (better | (choice < 0))
        best = np.where(better, here, best)
        choice[better] = number
    wide = np.float32 if result.dtype in NARROW_FLOATS else result.numpy
    total = np.zeros(inner.shape, wide)
    for number, position in enumerate(_window_positions(window)):
        spots = tuple(
            slice(p * step, p * step + (n - 1) * stride + 1 if n else p * step, stride)
            for p, step, n, stride in zip(
                position, window_dilation, source.shape, strides, strict=True
            )
        )
        total[spots] += np.where(choice == number, source, 0).astype(wide)
    back = tuple((-lo, -hi) for lo, hi in padding)
    dense = dilate_and_pad(total, 0, back, (1,) * x.ndim)
    undilated = tuple(slice(None, None, step) for step in base_dilation)
    return dense[undilated].astype(result.numpy, copy=False)


def _index_of_position(position: Ints) -> tuple[EllipsisType | int, ...]:
    """Return the index of one window position in all windows."""
    return (..., *position)


def _window_positions(window: Ints) -> Iterator[Ints]:
    """Return the positions in a window, in row-major order."""
    return product(*map(range, window))


def _select_jvp(b: Builder, op: Op, tangents: Tangents) -> Tangents:
    """Return the tangent, which is linear in the source; the selection is piecewise constant."""
    x, source = op.operands[0], tangents[1]
    return (None if source is None else b.select_and_scatter(x, source, **op.attrs),)


select_and_scatter = define_op(
    "select_and_scatter",
    attributes=WindowAttributes,
    type=_select_type,
    factors=_select_factors,
    partition=Partitioning(
        partition_select_and_scatter,
        factors_without_replicated,
        uneven=factors_without_replicated,
        factors=select_and_scatter_factors,
    ),
    reference=_select_reference,
    batch=_BATCH,
    vjp=select_and_scatter_vjp,
    jvp=_select_jvp,
)
"""For each window of `x`, an element of `source` added at the position of the window's extremum.

The first of equal elements of a window is selected, and a NaN takes precedence over numbers.
"""
