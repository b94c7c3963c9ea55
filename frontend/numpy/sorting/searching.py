"""Searches in sorted vectors: insertion points, bins, linear interpolation."""

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.argument_checks import is_one_of
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.lax.control_flow import loops
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import arithmetic, float_parts, selection
from shardir.frontend.numpy.indexing import take
from shardir.frontend.numpy.shaping import concatenation, reshaping
from shardir.frontend.numpy.sorting import sort_functions
from shardir.frontend.numpy.tracer_helpers.axis_slices import slice_dim
from shardir.frontend.numpy.tracer_helpers.concrete_values import is_concrete, to_concrete_array
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import as_operands, emit_elementwise
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast,
    convert,
    promote,
    promote_inexact,
    reshape,
    splat,
)
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import COMPLEX, FLOATS

MAX_FULL_COMPARISONS = 1 << 16
"""The maximum number of comparisons for a full comparison; above it, a binary search is used."""

MAX_REGISTER_TABLE_ELEMENTS = 64
"""The maximum number of table elements to which each query is compared in registers."""

SEARCH_METHODS = ("scan", "scan_unrolled", "sort", "compare_all")


@with_argument_errors
def searchsorted(
    a: ArrayLike,
    v: ArrayLike,
    side: str = "left",
    sorter: ArrayLike | None = None,
    *,
    method: str | None = None,
) -> Tracer:
    """Return the i32 indices at which to insert `v` into the sorted vector `a` to keep it sorted.

    `side` "left" inserts before equal elements, "right" after them. NaN is larger than every
    number. `method` is "compare_all" (compare every element with every query), or another name for
    a binary search; without it, the sizes decide.
    """
    if not is_one_of(side, ("left", "right")):
        raise ArgumentError(
            with_location(f"side {brief(side)} is unknown; it is 'left' or 'right'")
        )
    if method is not None and not is_one_of(method, SEARCH_METHODS):
        raise ArgumentError(
            with_location(
                f"method {brief(method)} is unknown; the methods are {', '.join(SEARCH_METHODS)}"
            )
        )
    return _search(a, v, sorter, side, method)


@public(static=("side", "method"), name="searchsorted")
def _search(
    a: ArrayLike, v: ArrayLike, sorter: ArrayLike | None, side: str, method: str | None
) -> Tracer:

    table, query = promote(*as_operands(a, v))
    if table.ndim != 1:
        raise OperationTypeError(
            with_location(f"searchsorted takes a vector as the table, got shape {table.shape}")
        )
    if table.value.type.dtype in COMPLEX:
        raise OperationTypeError(with_location("searchsorted does not take complex numbers"))
    if sorter is not None:
        order = as_tracer(sorter)
        if order.ndim != 1:
            raise OperationTypeError(
                with_location(f"searchsorted takes a vector as the sorter, got shape {order.shape}")
            )
        table = take.take(table, sorter, mode="promise_in_bounds")
    if not table.size or not query.size:
        return filling.zeros(query.shape, np.int32)
    search = _binary_search
    if method is None and table.size <= MAX_REGISTER_TABLE_ELEMENTS:
        search = _count_in_registers
    elif method == "compare_all" or (
        method is None and table.size * query.size <= MAX_FULL_COMPARISONS
    ):
        search = _compare_all
    return search(table, query, side)


def _is_before_insertion(element: Tracer, query: Tracer, side: str) -> Tracer:
    """Return whether the insertion point of each query is after the element; both have one
    shape.
    """

    result: Tracer = emit("lt" if side == "left" else "le", element, query)
    if element.value.type.dtype not in FLOATS:
        return result
    last = (
        float_parts.isnan(query)
        if side == "right"
        else float_parts.isnan(query) & ~float_parts.isnan(element)
    )
    later: Tracer = result | last
    return later


def _compare_all(table: Tracer, query: Tracer, side: str) -> Tracer:
    """Count the elements before each insertion point by comparing all pairs."""
    shape = (*query.shape, table.shape[0])
    elements = broadcast(table, shape)
    queries = broadcast(reshape(query, (*query.shape, 1)), shape)
    ones = convert(_is_before_insertion(elements, queries, side), "i32")
    count: Tracer = emit("sum", ones, dims=(query.ndim,))
    return count


def _count_in_registers(table: Tracer, query: Tracer, side: str) -> Tracer:
    """Count the elements before each insertion point, one per step, in one pass over the
    queries.
    """
    count = splat(0, query.value.type.with_dtype("i32"))
    for k in range(table.size):
        element = broadcast(reshape(slice_dim(table, 0, k, k + 1), ()), query.shape)
        count = emit_elementwise(
            "add", count, convert(_is_before_insertion(element, query, side), "i32")
        )
    return count


def _binary_search(table: Tracer, query: Tracer, side: str) -> Tracer:
    """Find the insertion points by binary search with a fixed number of steps."""

    def step(_: Tracer, bounds: tuple[Tracer, Tracer]) -> tuple[Tracer, Tracer]:
        low, high = bounds
        middle = low + (high - low) // 2
        after = _is_before_insertion(
            take.take(table, middle, mode="promise_in_bounds"), query, side
        )
        # A finished search (low == high) keeps its bounds.
        searching = low < high
        low = selection.where(searching & after, middle + 1, low)
        return low, selection.where(searching & ~after, middle, high)

    first = filling.zeros(query.shape, np.int32)
    last = filling.full(query.shape, table.shape[0], np.int32)
    result: Tracer = loops.fori_loop(0, table.shape[0].bit_length(), step, (first, last))[0]
    return result


@with_argument_errors
def digitize(
    x: ArrayLike, bins: ArrayLike, right: bool = False, *, method: str | None = None
) -> Tracer:
    """Return the i32 index of the bin that contains each element; bin i begins at bins[i - 1].

    Edges are monotonic. With `right` the upper edge belongs to the bin, otherwise the lower edge.
    """
    return _digitize(x, bins, right, method)


@public(static=("right", "method"), name="digitize")
def _digitize(x: ArrayLike, bins: ArrayLike, right: bool, method: str | None) -> Tracer:

    edges = as_tracer(bins)
    if edges.ndim != 1:
        raise OperationTypeError(
            with_location(f"digitize takes a vector of edges, got {edges.value.type}")
        )
    count = edges.shape[0]
    if not count:
        return filling.zeros(as_tracer(x).shape, np.int32)
    side = "left" if right else "right"
    ascending_bins = searchsorted(edges, x, side, method=method)
    if method is None and count <= MAX_REGISTER_TABLE_ELEMENTS:
        # The comparison count does not depend on the order of the edges.
        descending_bins = count - ascending_bins
    else:
        descending_bins = count - searchsorted(reshaping.flip(edges), x, side, method=method)
    return selection.where(edges[-1] >= edges[0], ascending_bins, descending_bins)


@with_argument_errors
def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    period: ArrayLike | None = None,
) -> Tracer:
    """Evaluate at `x` the piecewise linear function through the points (xp, fp) with ascending
    `xp`.

    Outside of the points the value is `left` and `right` (by default the first and last value; or
    "extrapolate"). With `period` the function is periodic, and `xp` need not be sorted.
    """
    for bound, name in ((left, "left"), (right, "right")):
        if isinstance(bound, str) and bound != "extrapolate":
            raise ArgumentError(
                with_location(f"{name}={bound!r} is unknown; it is a number or 'extrapolate'")
            )
    if period is not None and is_concrete(period):
        number = to_concrete_array(period, "argument period of interp")
        if number.ndim or number.dtype.kind == "c":
            raise ArgumentError(
                with_location(f"the period of interp is a number, got {brief(period)}")
            )
        if number == 0:
            raise ArgumentError(with_location("the period of interp cannot be 0"))
    return _interpolate(x, xp, fp, left, right, period)


@public(name="interp")
def _interpolate(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | None,
    right: ArrayLike | None,
    period: ArrayLike | None,
) -> Tracer:

    x, xp = promote_inexact(*as_operands(x, xp))
    (fp,) = promote_inexact(*as_operands(fp))
    if xp.ndim != 1 or fp.shape != xp.shape or not xp.shape[0]:
        raise OperationTypeError(
            with_location(
                f"interp takes points as two vectors of one size, got {xp.shape} and {fp.shape}"
            )
        )
    if period is not None:
        period = abs(convert(as_tracer(period), x.value.type.dtype))
        x, xp = arithmetic.remainder(x, period), arithmetic.remainder(xp, period)
        order = sort_functions.argsort(xp)
        xp, fp = take.take(xp, order, mode="clip"), take.take(fp, order, mode="promise_in_bounds")
        xp = concatenation.concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = concatenation.concatenate([fp[-1:], fp, fp[:1]])
    count = xp.shape[0]
    if count == 1:
        value = broadcast(fp, x.shape) if x.ndim else fp[0]
    else:
        span = xp[1:] - xp[:-1]
        gradients = selection.where(
            span == 0, 0, (fp[1:] - fp[:-1]) / selection.where(span == 0, 1, span)
        )
        before = selection.clip(searchsorted(xp, x, "right") - 1, 0, count - 2)
        below, start, gradient = (
            take.take(each, before, mode="promise_in_bounds") for each in (xp, fp, gradients)
        )
        value = start + (x - below) * gradient
    if period is not None:
        return value
    if not isinstance(left, str):
        value = selection.where(x < xp[0], fp[0] if left is None else left, value)
    if not isinstance(right, str):
        value = selection.where(x > xp[-1], fp[-1] if right is None else right, value)
    return value
