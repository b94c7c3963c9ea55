"""Elements at fractional positions of lines, read from sorted lines or selected without a sort."""

from math import ceil, floor

import numpy as np

from shardir.frontend.numpy.indexing.take import take_along_axis
from shardir.frontend.numpy.reductions.basic_reductions import emit_reduction
from shardir.frontend.numpy.reductions.quantile_lines import line_at, sort_lines, stack_rows
from shardir.frontend.numpy.tracer_helpers.axis_slices import broadcast_in_dim
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    emit_elementwise,
    emit_isnan,
)
from shardir.frontend.tracing.operands import broadcast, convert, splat
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer

POSITION_ROUNDING_OPS = {"lower": "floor", "higher": "ceil", "nearest": "round"}
"""The operation that rounds a fractional position to an index, for each method."""

SELECTION_MIN_LINE_ELEMENTS = 1 << 16
"""The minimum length of lines in which one traced position is selected without a complete sort.
Shorter lines are sorted, and so are lines of which several positions are read: devices that share
a line then gather it only once."""


def interpolate_at(lines: Tracer, position: float, method: str) -> Tracer:
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
    low = line_at(lines, down)
    if not part:
        return low
    result: Tracer = low * (1 - part) + line_at(lines, down + 1) * part
    return result


def propagate_nan(found: Tracer, lines: Tracer) -> Tracer:
    """Return NaN where a line contains NaN, which is sorted to the end."""
    last = line_at(lines, lines.shape[0] - 1)
    return emit_elementwise("select", emit_isnan(last), last, found)


def emit_nan_quantiles(lines: Tracer, q: tuple[float, ...], method: str) -> list[Tracer]:
    """Return the elements at concrete fractions of the elements that are not NaN."""
    if len(q) == 1 and lines.shape[0] >= SELECTION_MIN_LINE_ELEMENTS:
        return [_select_without_nan(lines, q[0], method)]
    first = line_at(lines, 0)
    fractions = stack_rows([constant_like(first, each) for each in q])
    found = read_fractions(lines, fractions, method, True)
    return [line_at(found, i) for i in range(len(q))]


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
    ranked = sort_lines(
        emit_elementwise("select", emit_elementwise("and", missing, early), lowest_value, lines)
    )
    low, high = line_at(ranked, max_index), line_at(ranked, min(max_index + 1, count - 1))
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


def read_fractions(lines: Tracer, fractions: Tracer, method: str, nans: bool) -> Tracer:
    """Return the elements at traced fractions of each line.

    With `nans`, NaNs do not count as elements.
    """
    is_sorted = fractions.shape[0] > 1 or lines.shape[0] < SELECTION_MIN_LINE_ELEMENTS
    if is_sorted:
        lines = sort_lines(lines)
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
        unknown = emit_isnan(broadcast(line_at(lines, lines.shape[0] - 1), result.shape))
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
        stack_rows([row])
        for row in _select_traced_rank(lines, line_at(first, 0), lines.shape[0] - 1)
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
    ranked = sort_lines(lines)
    return line_at(ranked, most), line_at(ranked, min(most + 1, ranked.shape[0] - 1))


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
