"""Medians, quantiles and percentiles: sorted elements at fractional positions."""

from collections.abc import Sequence
from math import ceil, floor

import numpy as np

from shardir.frontend.argument_checks import is_one_of
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike
from shardir.frontend.arrays.numpy_conversion import abstract_of, is_number
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy.creation.array_conversion import asarray
from shardir.frontend.numpy.indexing.take import take_along_axis
from shardir.frontend.numpy.reductions.basic_reductions import (
    emit_reduction,
    empty_reduction_error,
    reduction_size,
    restore_reduced_dims,
)
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes
from shardir.frontend.numpy.tracer_helpers.axis_slices import (
    broadcast_in_dim,
    concatenate_parts,
    slice_dim,
    transpose_dims,
)
from shardir.frontend.numpy.tracer_helpers.concrete_values import is_concrete, to_concrete_array
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    check_no_out,
    constant_like,
    emit_elementwise,
    emit_isnan,
    inexact_kind,
    require_real,
)
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.shardings.resharding import call_with_out_sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast,
    convert,
    promote_to,
    reshape,
    splat,
)
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import COMPUTE_DTYPES
from shardir.ir.types import FLOATS

QUANTILE_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")
INVERTED_CDF = "inverted_cdf"
POSITION_ROUNDING_OPS = {"lower": "floor", "higher": "ceil", "nearest": "round"}
"""The operation that rounds a fractional position to an index, for each method."""


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
    elements and `ArgumentError` for `q` outside of 0 to 1.
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
            raise _out_of_range_error(name, q, 100)
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
    if method == INVERTED_CDF:
        return _quantiles_of_distribution(a, q, weights, axis, keepdims, nans, name)
    if fraction is None:
        fractions = _as_static_fractions(q)
        if fractions is not None:
            return _quantiles_static(a, fractions, axis, method, keepdims, nans, name)
        return _quantiles_traced(a, q, axis, method, keepdims, nans, name)
    return _quantile_static(a, fraction, axis, method, keepdims, nans, name)


def _checked_fraction(name: str, q: complex) -> float:
    """Return a concrete fraction; raise `ArgumentError` unless it is real and in range."""
    end = 100 if "percentile" in name else 1
    if isinstance(q, complex):
        raise ArgumentError(with_location(f"{name} takes a real number as q, got {end * q}"))
    if not 0 <= q <= 1:
        raise _out_of_range_error(name, end * q, end)
    return float(q)


def _out_of_range_error(name: str, q: float, end: int) -> ArgumentError:
    value = f"{q:g}" if isinstance(q, float) else brief(q)
    return ArgumentError(with_location(f"{name} takes q from 0 to {end}, got {value}"))


MAX_SELECTED_FRACTIONS = 7
"""The maximum number of concrete fractions that are selected one by one, without a sort."""


def _as_static_fractions(q: ArrayLike) -> tuple[float, ...] | None:
    """Return concrete fractions as a tuple, if they are a short vector of values from 0 to 1."""
    if isinstance(q, (list, tuple)):
        if not all(is_number(each) or isinstance(each, np.generic) for each in q):
            return None
    elif not isinstance(q, np.ndarray):
        return None
    known = np.asarray(q)
    in_range = known.dtype.kind in "iuf" and ((known >= 0) & (known <= 1)).all()
    return (
        tuple(map(float, known))
        if in_range and known.ndim == 1 and 0 < len(known) <= MAX_SELECTED_FRACTIONS
        else None
    )


SELECTION_MIN_LINE_ELEMENTS = 1 << 16
"""The minimum length of lines in which one traced position is selected without a complete sort.
Shorter lines are sorted, and so are lines of which several positions are read: devices that share
a line then gather it only once."""

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
    return _stack_rows(_emit_quantiles(a, q, axis, method, keepdims, nans, name))


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
    x, lines, dims = _move_axes_first(name, a, axis)
    if nans and lines.value.type.dtype in FLOATS:
        rows = _emit_nan_quantiles(lines, q, method)
    else:
        ranked = _sort_lines(lines)
        last = lines.shape[0] - 1
        rows = [_propagate_nan(_interpolate_at(ranked, each * last, method), ranked) for each in q]
    rows = [convert(row, inexact_kind(x)[0]) for row in rows]
    return [restore_reduced_dims(row, x, dims) for row in rows] if keepdims else rows


def _emit_nan_quantiles(lines: Tracer, q: tuple[float, ...], method: str) -> list[Tracer]:
    """Return the elements at concrete fractions of the elements that are not NaN."""
    if len(q) == 1 and lines.shape[0] >= SELECTION_MIN_LINE_ELEMENTS:
        return [_select_without_nan(lines, q[0], method)]
    first = _line_at(lines, 0)
    fractions = _stack_rows([constant_like(first, each) for each in q])
    found = _read_fractions(lines, fractions, method, True)
    return [_line_at(found, i) for i in range(len(q))]


def _select_without_nan(lines: Tracer, q: float, method: str) -> Tracer:
    """Return the element at a concrete fraction of the elements of each line that are not NaN,
    without a complete sort.

    Enough NaN are replaced by -inf to move the element to the index that it would have without NaN.
    That index is static, so that the element can be selected, and the lines keep their size, so
    that devices that share a line gather only the line.
    """
    count, kind = lines.shape[0], lines.value.type.dtype
    missing = emit_isnan(lines)
    nans = emit_reduction("sum", convert(missing, "i32"), (0,), False)
    numbers = emit_elementwise("neg", nans) + count
    last = convert(emit_elementwise("maximum", numbers - 1, constant_like(numbers, 0)), kind)
    position = emit_elementwise("mul", constant_like(last, q), last)
    max_index = floor(q * (count - 1))
    # Rounding may put `position` on the other side of an integer than `max_index`.
    down = emit_elementwise(
        "minimum",
        convert(emit_elementwise("floor", position), "i32"),
        constant_like(nans, max_index),
    )
    down = emit_elementwise("maximum", down, emit_elementwise("neg", nans) + max_index)
    lowered = emit_elementwise("neg", down) + max_index
    rank = emit("cumsum", convert(missing, "i32"), dim=0, reverse=False)
    early = emit_elementwise(
        "le", rank, broadcast_in_dim(lowered, lines.shape, range(1, lines.ndim))
    )
    lowest_value = splat(-np.inf, lines.value.type)
    ranked = _sort_lines(
        emit_elementwise("select", emit_elementwise("and", missing, early), lowest_value, lines)
    )
    low, high = _line_at(ranked, max_index), _line_at(ranked, min(max_index + 1, count - 1))
    part = emit_elementwise("sub", position, convert(down, kind))
    zero, one = constant_like(part, 0), constant_like(part, 1)
    if method in POSITION_ROUNDING_OPS:
        chosen = convert(emit_elementwise(POSITION_ROUNDING_OPS[method], position), "i32")
        return emit_elementwise("select", emit_elementwise("gt", chosen, down), high, low)
    share = constant_like(part, 0.5) if method == "midpoint" else part
    between = emit_elementwise(
        "add",
        emit_elementwise("mul", low, emit_elementwise("sub", one, share)),
        emit_elementwise("mul", high, share),
    )
    # The product of infinity and zero would be NaN.
    found = emit_elementwise("select", emit_elementwise("ge", part, one), high, between)
    return emit_elementwise("select", emit_elementwise("le", part, zero), low, found)


def _stack_rows(rows: Sequence[Tracer]) -> Tracer:
    return concatenate_parts([reshape(row, (1, *row.shape)) for row in rows], 0)


@public(static=QUANTILE_STATIC_ARGNAMES, name="quantile")
def _quantiles_traced(
    a: ArrayLike, q: ArrayLike, axis: AxisLike, method: str, keepdims: bool, nans: bool, name: str
) -> Tracer:
    x, lines, dims = _move_axes_first(name, a, axis)
    fractions, each = _align_fractions(name, q, lines)
    found = _read_fractions(lines, each, method, nans and lines.value.type.dtype in FLOATS)
    return _shape_result(found, fractions, x, dims, keepdims)


def _align_fractions(name: str, q: ArrayLike, lines: Tracer) -> tuple[Tracer, Tracer]:
    """Return traced fractions, and one row of them for each fraction, with the shape of a row of
    `lines`."""
    (fractions,) = promote_to(
        (lines.value.type.dtype, False), as_tracer(require_real(f"the q of {name}", q)[0])
    )
    line = reshape(fractions, (fractions.value.type.size,))
    return fractions, broadcast_in_dim(line, (line.shape[0], *lines.shape[1:]), (0,))


def _shape_result(
    found: Tracer, fractions: Tracer, x: Tracer, dims: tuple[int, ...], keepdims: bool
) -> Tracer:
    """Return one row per fraction with the dimensions of the fractions and of the reduced `x`."""
    rest = found.shape[1:]
    if keepdims:
        rest = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    return convert(reshape(found, (*fractions.shape, *rest)), inexact_kind(x)[0])


@public(static=("axis", "keepdims", "nans", "name"), name="quantile")
def _quantiles_of_distribution(
    a: ArrayLike, q: ArrayLike, weights: ArrayLike | None, axis: AxisLike, keepdims: bool,
    nans: bool, name: str,
) -> Tracer:  # fmt: skip
    """Return the first sorted elements whose cumulative weight is at least `q` of the total."""
    x, lines, dims = _move_axes_first(name, a, axis)
    fractions, each = _align_fractions(name, q, lines)
    if weights is None:
        mass = constant_like(lines, 1)
    else:
        mass = _move_axes_first(name, _align_weights(name, weights, x, axis, dims), axis)[1]
        mass = convert(mass, lines.value.type.dtype)
    if nans:
        mass = emit_elementwise("select", emit_isnan(lines), constant_like(mass, 0), mass)
    ranked, mass = emit_results("sort", lines, mass, dim=0, keys=1, stable=True)
    sums: Tracer = emit("cumsum", mass, dim=0, reverse=False)
    total = broadcast_in_dim(_line_at(sums, sums.shape[0] - 1), sums.shape, range(1, sums.ndim))
    shares = emit_elementwise("div", sums, total)
    # An element without weight is never the result, even of the fraction 0.
    empty = emit_elementwise("eq", sums, constant_like(sums, 0))
    shares = emit_elementwise("select", empty, constant_like(shares, -1), shares)
    shape = (each.shape[0], *lines.shape)
    rows = (0, *range(2, len(shape)))
    before = emit_elementwise(
        "lt",
        broadcast_in_dim(shares, shape, range(1, len(shape))),
        broadcast_in_dim(each, shape, rows),
    )
    index = emit_reduction("sum", convert(before, "i32"), (1,), False)
    index = emit_elementwise("minimum", index, constant_like(index, lines.shape[0] - 1))
    found = take_along_axis(ranked, index, axis=0, mode="promise_in_bounds")
    unknown = emit_elementwise("not", _has_valid_weights(mass, sums))
    if not nans:
        last = _line_at(ranked, ranked.shape[0] - 1)
        unknown = emit_elementwise("or", unknown, emit_isnan(last))
    unknown = broadcast_in_dim(unknown, found.shape, range(1, found.ndim))
    found = emit_elementwise("select", unknown, constant_like(found, np.nan), found)
    return _shape_result(found, fractions, x, dims, keepdims)


def _has_valid_weights(mass: Tracer, sums: Tracer) -> Tracer:
    """Return whether the weights of each line are not negative, with a positive finite sum."""
    smallest = emit_reduction("min", mass, (0,), False)
    total = _line_at(sums, sums.shape[0] - 1)
    return emit_elementwise(
        "and",
        emit_elementwise("ge", smallest, constant_like(smallest, 0)),
        emit_elementwise(
            "and",
            emit_elementwise("gt", total, constant_like(total, 0)),
            emit_elementwise("lt", total, constant_like(total, np.inf)),
        ),
    )


def _align_weights(
    name: str, weights: ArrayLike, x: Tracer, axis: AxisLike, dims: tuple[int, ...]
) -> Tracer:
    """Return weights with the shape of `x`; they may have the shape of the axes alone."""
    (given,) = require_real(f"the weights of {name}", weights)
    mass = as_tracer(given)
    if mass.shape == x.shape:
        return mass
    if axis is None or mass.shape != tuple(x.shape[d] for d in dims):
        raise ShapeError(
            with_location(
                f"{name} takes weights of shape {x.shape} or of the shape of its axes, "
                f"{tuple(x.shape[d] for d in dims)}, got {mass.shape}"
            )
        )
    order = sorted(range(len(dims)), key=dims.__getitem__)
    return broadcast_in_dim(transpose_dims(mass, order), x.shape, sorted(dims))


def _move_axes_first(
    name: str, a: ArrayLike, axis: AxisLike
) -> tuple[Tracer, Tracer, tuple[int, ...]]:
    """Return the array, its elements along a leading axis that combines `axis`, and the axes."""
    x = as_tracer(require_real(name, a)[0])
    dims = canonicalize_axes(axis, x.ndim)
    count = reduction_size(x, dims)
    if not count:
        raise empty_reduction_error(name, x)
    kind, _ = inexact_kind(x)
    rest = [d for d in range(x.ndim) if d not in dims]
    moved = transpose_dims(convert(x, COMPUTE_DTYPES[kind]), [*dims, *rest])
    return x, reshape(moved, (count, *(x.shape[d] for d in rest))), dims


def _sort_lines(lines: Tracer) -> Tracer:
    """Sort along the first axis."""
    result: Tracer = emit("sort", lines, dim=0, keys=1, stable=True)
    return result


def _line_at(lines: Tracer, i: int) -> Tracer:
    return reshape(slice_dim(lines, 0, i, i + 1), lines.shape[1:])


def _interpolate_at(lines: Tracer, position: float, method: str) -> Tracer:
    """Return the element at a position of the sorted lines, interpolated between two of them."""
    down, part = floor(position), position - floor(position)
    if method == "nearest":
        down, part = round(position), 0
    elif method == "higher":
        down, part = ceil(position), 0
    elif method == "lower" or not part:
        part = 0
    elif method == "midpoint":
        part = 0.5
    low = _line_at(lines, down)
    if not part:
        return low
    result: Tracer = low * (1 - part) + _line_at(lines, down + 1) * part
    return result


def _propagate_nan(found: Tracer, lines: Tracer) -> Tracer:
    """Return NaN where a line contains NaN, which is sorted to the end."""
    last = _line_at(lines, lines.shape[0] - 1)
    return emit_elementwise("select", emit_isnan(last), last, found)


def _read_fractions(lines: Tracer, fractions: Tracer, method: str, nans: bool) -> Tracer:
    """Return the elements at traced fractions of each line.

    With `nans`, NaNs do not count as elements.
    """
    is_sorted = fractions.shape[0] > 1 or lines.shape[0] < SELECTION_MIN_LINE_ELEMENTS
    if is_sorted:
        lines = _sort_lines(lines)
    if nans:
        numbers = emit_elementwise("not", emit_isnan(lines))
        counts = emit_reduction("sum", convert(numbers, lines.value.type.dtype), (0,), False)
        most = broadcast(counts - 1, fractions.shape)
        most = emit_elementwise("maximum", most, constant_like(most, 0))
    else:
        most = constant_like(fractions, lines.shape[0] - 1)
    position = emit_elementwise("mul", fractions, most)
    if method == "nearest":
        position = emit_elementwise("round", position)
    down, up = emit_elementwise("floor", position), emit_elementwise("ceil", position)
    indices = convert(down, "i32"), convert(up, "i32")
    low, high = _take_ranks(lines, *indices) if is_sorted else _select_ranks(lines, *indices)
    result = _interpolate(low, high, emit_elementwise("sub", position, down), method)
    if nans:
        return result
    if is_sorted:
        unknown = emit_isnan(broadcast(_line_at(lines, lines.shape[0] - 1), result.shape))
    else:
        any_nan = emit_reduction("any", emit_isnan(lines), (0,), False)
        unknown = broadcast_in_dim(any_nan, result.shape, range(1, result.ndim))
    return emit_elementwise("select", unknown, constant_like(result, np.nan), result)


def _take_ranks(ranked: Tracer, down: Tracer, up: Tracer) -> tuple[Tracer, Tracer]:
    """Return the elements of sorted lines at two positions each."""
    low, high = (take_along_axis(ranked, i, axis=0, mode="promise_in_bounds") for i in (down, up))
    return low, high


def _select_ranks(lines: Tracer, down: Tracer, up: Tracer) -> tuple[Tracer, Tracer]:
    """Return the elements of sorted rank `down` and of rank `up`, which is equal or the next
    one.
    """
    first = emit_elementwise(
        "maximum",
        emit_elementwise("minimum", down, constant_like(down, lines.shape[0] - 1)),
        constant_like(down, 0),
    )
    low, high = (
        _stack_rows([row])
        for row in _select_traced_rank(lines, _line_at(first, 0), lines.shape[0] - 1)
    )
    return low, emit_elementwise("select", emit_elementwise("eq", down, up), low, high)


def _select_traced_rank(lines: Tracer, rank: Tracer, most: int) -> tuple[Tracer, Tracer]:
    """Return the elements of a traced sorted rank, which is at most `most`, and of the next one.

    Additional infinities are sorted along so that the element always has the static index `most`:
    an element at a static index can be selected without a complete sort.
    """
    if most:
        missing = constant_like(rank, most) - rank
        kind = lines.value.type.with_shape((most, *lines.shape[1:]))
        number = emit("iota", dim=0, result=kind.with_dtype("i32"))
        below = emit_elementwise(
            "lt", number, broadcast_in_dim(missing, kind.shape, range(1, lines.ndim))
        )
        lowest_value = splat(-np.inf, kind)
        more = emit_elementwise(
            "select", below, lowest_value, emit_elementwise("neg", lowest_value)
        )
        lines = emit("concatenate", lines, more, dim=0)
    ranked = _sort_lines(lines)
    return _line_at(ranked, most), _line_at(ranked, min(most + 1, ranked.shape[0] - 1))


def _interpolate(low: Tracer, high: Tracer, part: Tracer, method: str) -> Tracer:
    if method == "higher":
        return high
    if method in ("lower", "nearest"):
        return low
    share = 0.5 if method == "midpoint" else part
    middle = low * (1 - share) + high * share
    # The product of infinity and zero would be NaN.
    return emit_elementwise(
        "select", emit_elementwise("eq", part, constant_like(part, 0)), low, middle
    )
