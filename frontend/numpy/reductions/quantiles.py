"""Medians, quantiles and percentiles: sorted elements at fractional positions."""

import numpy as np

from shardir.frontend.argument_checks import is_one_of
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike
from shardir.frontend.arrays.numpy_conversion import abstract_of, is_number
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.creation.array_conversion import asarray
from shardir.frontend.numpy.reductions.basic_reductions import restore_reduced_dims
from shardir.frontend.numpy.reductions.inverted_cdf import quantiles_of_distribution
from shardir.frontend.numpy.reductions.quantile_lines import (
    align_fractions,
    move_axes_first,
    shape_result,
    sort_lines,
    stack_rows,
)
from shardir.frontend.numpy.reductions.quantile_ranks import (
    emit_nan_quantiles,
    interpolate_at,
    propagate_nan,
    read_fractions,
)
from shardir.frontend.numpy.tracer_helpers.concrete_values import is_concrete, to_concrete_array
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import check_no_out, inexact_kind
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.shardings.resharding import call_with_out_sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import convert
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import FLOATS

QUANTILE_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")
INVERTED_CDF = "inverted_cdf"


@with_argument_errors
def quantile(
    a: ArrayLike, q: ArrayLike, axis: AxisLike = None, out: None = None,
    overwrite_input: bool = False, method: str = "linear", keepdims: bool = False, *,
    weights: ArrayLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the `q`-quantile over `axis`, interpolated between two elements if necessary.

    `q` may be an array, whose axes precede those of the result. The result is NaN if an element is
    NaN. `method` is the interpolation: linear, lower, higher, midpoint or nearest. With
    `inverted_cdf` the result is the first element whose cumulative distribution is at least `q`;
    this method takes `weights` of the elements, of their shape or of that of `axis`. The result is
    NaN if a weight is negative or NaN, or their sum is 0 or infinite. Raise `ShapeError` for no
    elements, and `ArgumentError` for numbers `q` of Python or NumPy outside of 0 to 1. The elements
    of other arrays `q` are limited to this range, as in JAX, and those that are NaN give NaN.
    """
    check_no_out("quantile", out)
    return _quantile("quantile", a, q, axis, method, keepdims, False, weights)


@with_argument_errors
def nanquantile(
    a: ArrayLike, q: ArrayLike, axis: AxisLike = None, out: None = None,
    overwrite_input: bool = False, method: str = "linear", keepdims: bool = False, *,
    weights: ArrayLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the `quantile` of the elements that are not NaN."""
    check_no_out("nanquantile", out)
    return _quantile("nanquantile", a, q, axis, method, keepdims, True, weights)


@with_argument_errors
def percentile(
    a: ArrayLike, q: ArrayLike, axis: AxisLike = None, out: None = None,
    overwrite_input: bool = False, method: str = "linear", keepdims: bool = False, *,
    weights: ArrayLike | None = None, out_sharding: ShardingRequest = None,
) -> Tracer:  # fmt: skip
    """Return the `quantile` of `q` / 100."""
    check_no_out("percentile", out)
    share = _percent_to_fraction("percentile", q)
    return call_with_out_sharding(
        out_sharding, _quantile, "percentile", a, share, axis, method, keepdims, False, weights
    )


@with_argument_errors
def nanpercentile(
    a: ArrayLike, q: ArrayLike, axis: AxisLike = None, out: None = None,
    overwrite_input: bool = False, method: str = "linear", keepdims: bool = False, *,
    weights: ArrayLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the `percentile` of the elements that are not NaN."""
    check_no_out("nanpercentile", out)
    share = _percent_to_fraction("nanpercentile", q)
    return _quantile("nanpercentile", a, share, axis, method, keepdims, True, weights)


@with_argument_errors
def median(
    a: ArrayLike, axis: AxisLike = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Tracer:  # fmt: skip
    """Return the middle element over `axis`, or the mean of the two; NaN if an element is NaN."""
    check_no_out("median", out)
    return _quantile("median", a, 0.5, axis, "midpoint", keepdims, False)


@with_argument_errors
def nanmedian(
    a: ArrayLike, axis: AxisLike = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Tracer:  # fmt: skip
    """Return the `median` of the elements that are not NaN."""
    check_no_out("nanmedian", out)
    return _quantile("nanmedian", a, 0.5, axis, "midpoint", keepdims, True)


def _percent_to_fraction(name: str, q: ArrayLike) -> ArrayLike:
    """Return percentages as fractions; raise `NotAnArrayError` if they are not numbers."""
    if is_number(q):
        if isinstance(q, int) and not 0 <= q <= 100:
            raise _out_of_range_error(name, q)
        return q / 100
    label = f"argument q of {name}"
    if isinstance(q, (list, tuple)) and is_concrete(q):
        return to_concrete_array(q, label) / 100
    if not isinstance(q, (list, tuple)):
        abstract_of(q, label)
    return np.asarray(q) / 100 if isinstance(q, (np.ndarray, np.generic)) else asarray(q) / 100


def _quantile(
    name: str, a: ArrayLike, q: ArrayLike, axis: AxisLike, method: str, keepdims: bool, nans: bool,
    weights: ArrayLike | None = None,
) -> Tracer:  # fmt: skip
    if not is_one_of(method, (*QUANTILE_METHODS, INVERTED_CDF)):
        methods = ", ".join((*QUANTILE_METHODS, INVERTED_CDF))
        raise ArgumentError(
            with_location(f"{name} has no method {brief(method)}; the methods are {methods}")
        )
    if weights is not None and method != INVERTED_CDF:
        raise ArgumentError(
            with_location(f"{name} takes weights with method={INVERTED_CDF!r}, not {method!r}")
        )
    fraction = _checked_fraction(name, q) if is_number(q) else None
    fractions = None if is_number(q) else _known_fractions(name, q)
    if method == INVERTED_CDF:
        return quantiles_of_distribution(a, q, weights, axis, keepdims, nans, name)
    if fraction is not None:
        return _quantile_static(a, fraction, axis, method, keepdims, nans, name)
    if fractions is not None and 0 < len(fractions) <= MAX_SELECTED_FRACTIONS:
        return _quantiles_static(a, fractions, axis, method, keepdims, nans, name)
    return _quantiles_traced(a, q, axis, method, keepdims, nans, name)


def _checked_fraction(name: str, q: complex) -> float:
    """Return a concrete fraction; raise `ArgumentError` unless it is real and in range."""
    if isinstance(q, complex):
        number = _largest_q(name) * q
        raise ArgumentError(with_location(f"{name} takes a real number as q, got {number}"))
    if not 0 <= q <= 1:
        raise _out_of_range_error(name, _largest_q(name) * q)
    return float(q)


def _largest_q(name: str) -> int:
    return 100 if "percentile" in name else 1


def _out_of_range_error(name: str, q: float) -> ArgumentError:
    value = f"{q:g}" if isinstance(q, float) else brief(q)
    return ArgumentError(with_location(f"{name} takes q from 0 to {_largest_q(name)}, got {value}"))


MAX_SELECTED_FRACTIONS = 7
"""The maximum number of concrete fractions that are selected one by one, without a sort."""


def _known_fractions(name: str, q: ArrayLike) -> tuple[float, ...] | None:
    """Return a vector of numbers of Python or NumPy as a tuple, and `None` for other objects.

    Raise `ArgumentError` if a number of Python or NumPy is not from 0 to 1.
    """
    if isinstance(q, (list, tuple)):
        if not all(is_number(each) or isinstance(each, np.generic) for each in q):
            return None
    elif not isinstance(q, np.ndarray):
        return None
    known = np.asarray(q)
    if known.dtype.kind not in "iuf":
        return None
    outside = known[~((known >= 0) & (known <= 1))]
    if outside.size:
        raise _out_of_range_error(name, _largest_q(name) * float(outside.flat[0]))
    return tuple(map(float, known)) if known.ndim == 1 else None


QUANTILE_STATIC_ARGNAMES = ("axis", "method", "keepdims", "nans", "name")


@public(static=("q", *QUANTILE_STATIC_ARGNAMES), name="quantile")
def _quantile_static(
    a: ArrayLike, q: float, axis: AxisLike, method: str, keepdims: bool, nans: bool, name: str
) -> Tracer:
    return _emit_quantiles(a, (q,), axis, method, keepdims, nans, name)[0]


@public(static=("q", *QUANTILE_STATIC_ARGNAMES), name="quantile")
def _quantiles_static(
    a: ArrayLike,
    q: tuple[float, ...],
    axis: AxisLike,
    method: str,
    keepdims: bool,
    nans: bool,
    name: str,
) -> Tracer:
    return stack_rows(_emit_quantiles(a, q, axis, method, keepdims, nans, name))


def _emit_quantiles(
    a: ArrayLike,
    q: tuple[float, ...],
    axis: AxisLike,
    method: str,
    keepdims: bool,
    nans: bool,
    name: str,
) -> list[Tracer]:
    """Return one array per fraction."""
    x, lines, dims = move_axes_first(name, a, axis)
    if nans and lines.value.type.dtype in FLOATS:
        rows = emit_nan_quantiles(lines, q, method)
    else:
        ranked = sort_lines(lines)
        last = lines.shape[0] - 1
        rows = [propagate_nan(interpolate_at(ranked, each * last, method), ranked) for each in q]
    rows = [convert(row, inexact_kind(x)[0]) for row in rows]
    return [restore_reduced_dims(row, x, dims) for row in rows] if keepdims else rows


@public(static=QUANTILE_STATIC_ARGNAMES, name="quantile")
def _quantiles_traced(
    a: ArrayLike, q: ArrayLike, axis: AxisLike, method: str, keepdims: bool, nans: bool, name: str
) -> Tracer:
    x, lines, dims = move_axes_first(name, a, axis)
    fractions, each = align_fractions(name, q, lines)
    found = read_fractions(lines, each, method, nans and lines.value.type.dtype in FLOATS)
    return shape_result(found, fractions, x, dims, keepdims)
