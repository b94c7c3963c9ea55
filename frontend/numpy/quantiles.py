"""Medians, quantiles and percentiles: sorted elements at fractional positions."""

from collections.abc import Sequence
from math import ceil, floor
from typing import Any

import numpy as np

from shardir.frontend.amounts import is_one_of
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.locations import point
from shardir.frontend.numpy.along import joined, piece
from shardir.frontend.numpy.axes import axes_of
from shardir.frontend.numpy.creation import asarray
from shardir.frontend.numpy.floating import is_nan
from shardir.frontend.numpy.known import is_known, numbers_of
from shardir.frontend.numpy.layout import spread, transposed
from shardir.frontend.numpy.pointwise import inexact, like, no_out, ordered, same
from shardir.frontend.numpy.reductions import kept, reduced, size_of
from shardir.frontend.numpy.rounding import WIDE
from shardir.frontend.operands import (
    abstract_of,
    as_tracer,
    broadcast,
    convert,
    is_number,
    promote_to,
    reshape,
    splat,
)
from shardir.frontend.quoting import brief
from shardir.frontend.refusals import refusing
from shardir.frontend.resharding import laid_out
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import FLOATS

METHODS = ("linear", "lower", "higher", "midpoint", "nearest")
ROUNDINGS = {"lower": "floor", "higher": "ceil", "nearest": "round"}
"""The operation that rounds a fractional position to an index, for each method."""


@refusing
def quantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False,
) -> Any:  # fmt: skip
    """Return the `q`-quantile over `axis`, interpolated between two elements if necessary.

    `q` may be an array, whose axes precede those of the result. The result is NaN if an element is
    NaN. `method` is the interpolation: linear, lower, higher, midpoint or nearest. Raise
    `ShapeError` for no elements and `ArgumentError` for `q` outside of 0 to 1.
    """
    no_out("quantile", out)
    return _quantile("quantile", a, q, axis, method, keepdims, False)


@refusing
def nanquantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False,
) -> Any:  # fmt: skip
    """Return the `quantile` of the elements that are not NaN."""
    no_out("nanquantile", out)
    return _quantile("nanquantile", a, q, axis, method, keepdims, True)


@refusing
def percentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Return the `quantile` of `q` / 100."""
    no_out("percentile", out)
    share = _hundredth("percentile", q)
    result = _quantile("percentile", a, share, axis, method, keepdims, False)
    return laid_out(result, out_sharding)


@refusing
def nanpercentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False,
) -> Any:  # fmt: skip
    """Return the `percentile` of the elements that are not NaN."""
    no_out("nanpercentile", out)
    return _quantile(
        "nanpercentile", a, _hundredth("nanpercentile", q), axis, method, keepdims, True
    )


@refusing
def median(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """Return the middle element over `axis`, or the mean of the two; NaN if an element is NaN."""
    no_out("median", out)
    return _quantile("median", a, 0.5, axis, "midpoint", keepdims, False)


@refusing
def nanmedian(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """Return the `median` of the elements that are not NaN."""
    no_out("nanmedian", out)
    return _quantile("nanmedian", a, 0.5, axis, "midpoint", keepdims, True)


def _hundredth(name: str, q: Any) -> Any:
    """Return percentages as fractions; raise `NotAnArrayError` if they are not numbers."""
    if is_number(q):
        if isinstance(q, int) and not 0 <= q <= 100:
            raise _out_of_range(name, q, 100)
        return q / 100
    label = f"argument q of {name}"
    if isinstance(q, (list, tuple)) and is_known(q):
        return numbers_of(q, label) / 100
    if not isinstance(q, (list, tuple)):
        abstract_of(q, label)
    return np.asarray(q) / 100 if isinstance(q, (np.ndarray, np.generic)) else asarray(q) / 100


def _quantile(name: str, a: Any, q: Any, axis: Any, method: str, keepdims: bool, nans: bool) -> Any:
    if not is_one_of(method, METHODS):
        methods = ", ".join(METHODS)
        raise ArgumentError(
            point(f"{name} has no method {brief(method)}; the methods are {methods}")
        )
    if not is_number(q):
        fractions = _few(q)
        if fractions is not None:
            return _at_few(a, fractions, axis, method, keepdims, nans, name)
        return _at_many(a, q, axis, method, keepdims, nans, name)
    end = 100 if "percentile" in name else 1
    if isinstance(q, complex):
        raise ArgumentError(point(f"{name} takes a real number as q, got {end * q}"))
    if not 0 <= q <= 1:
        raise _out_of_range(name, end * q, end)
    return _at_one(a, float(q), axis, method, keepdims, nans, name)


def _out_of_range(name: str, q: float, end: int) -> ArgumentError:
    value = f"{q:g}" if isinstance(q, float) else brief(q)
    return ArgumentError(point(f"{name} takes q from 0 to {end}, got {value}"))


FEW = 7
"""The maximum number of concrete fractions that are selected one by one, without a sort."""


def _few(q: Any) -> tuple[float, ...] | None:
    """Return concrete fractions as a tuple, if they are a short vector of values from 0 to 1."""
    if not isinstance(q, np.ndarray):
        is_list = isinstance(q, (list, tuple))
        if not is_list or not all(is_number(each) or isinstance(each, np.generic) for each in q):
            return None
    known = np.asarray(q)
    in_range = known.dtype.kind in "iuf" and ((known >= 0) & (known <= 1)).all()
    return (
        tuple(map(float, known)) if in_range and known.ndim == 1 and 0 < len(known) <= FEW else None
    )


LONG = 1 << 16
"""The minimum length of lines in which one traced position is selected without a complete sort.
Shorter lines are sorted, and so are lines of which several positions are read: devices that share
a line then gather it only once."""

STATIC = ("axis", "method", "keepdims", "nans", "name")


@public(static=("q", *STATIC), name="quantile")
def _at_one(a: Any, q: float, axis: Any, method: str, keepdims: bool, nans: bool, name: str) -> Any:
    return _rows(a, (q,), axis, method, keepdims, nans, name)[0]


@public(static=("q", *STATIC), name="quantile")
def _at_few(
    a: Any, q: tuple[float, ...], axis: Any, method: str, keepdims: bool, nans: bool, name: str
) -> Any:
    return _stacked(_rows(a, q, axis, method, keepdims, nans, name))


def _rows(
    a: Any, q: tuple[float, ...], axis: Any, method: str, keepdims: bool, nans: bool, name: str
) -> list[Tracer]:
    """Return one array per fraction."""
    x, lines, dims = _lined(name, a, axis)
    if nans and lines.value.type.dtype in FLOATS:
        rows = _rows_of_numbers(lines, q, method)
    else:
        ranked = _sorted(lines)
        last = lines.shape[0] - 1
        rows = [_with_nan(_element(ranked, each * last, method), ranked) for each in q]
    rows = [convert(row, inexact(x)[0]) for row in rows]
    return [kept(row, x, dims) for row in rows] if keepdims else rows


def _rows_of_numbers(lines: Tracer, q: tuple[float, ...], method: str) -> list[Tracer]:
    """Return the elements at concrete fractions of the elements that are not NaN."""
    if len(q) == 1 and lines.shape[0] >= LONG:
        return [_at_known(lines, q[0], method)]
    first = _row(lines, 0)
    fractions = _stacked([like(first, each) for each in q])
    found = _read(lines, fractions, method, True)
    return [_row(found, i) for i in range(len(q))]


def _at_known(lines: Tracer, q: float, method: str) -> Tracer:
    """Return the element at a concrete fraction of the numbers of each line, without a complete
    sort.

    Enough NaN are replaced by -inf to move the element to the index that it would have without NaN.
    That index is static, so that the element can be selected, and the lines keep their size, so
    that devices that share a line gather only the line.
    """
    count, kind = lines.shape[0], lines.value.type.dtype
    missing = is_nan(lines)
    nans = reduced("sum", convert(missing, "i32"), (0,), False)
    numbers = same("neg", nans) + count
    last = convert(same("maximum", numbers - 1, like(numbers, 0)), kind)
    position = same("mul", like(last, q), last)
    max_index = floor(q * (count - 1))
    # Rounding may put `position` on the other side of an integer than `max_index`.
    down = same("minimum", convert(same("floor", position), "i32"), like(nans, max_index))
    down = same("maximum", down, same("neg", nans) + max_index)
    lowered = same("neg", down) + max_index
    rank = emit("cumsum", convert(missing, "i32"), dim=0, reverse=False)
    early = same("le", rank, spread(lowered, lines.shape, range(1, lines.ndim)))
    lowest_value = splat(-np.inf, lines.value.type)
    ranked = _sorted(same("select", same("and", missing, early), lowest_value, lines))
    low, high = _row(ranked, max_index), _row(ranked, min(max_index + 1, count - 1))
    part = same("sub", position, convert(down, kind))
    zero, one = like(part, 0), like(part, 1)
    if method in ROUNDINGS:
        chosen = convert(same(ROUNDINGS[method], position), "i32")
        return same("select", same("gt", chosen, down), high, low)
    share = like(part, 0.5) if method == "midpoint" else part
    between = same("add", same("mul", low, same("sub", one, share)), same("mul", high, share))
    # The product of infinity and zero would be NaN.
    found = same("select", same("ge", part, one), high, between)
    return same("select", same("le", part, zero), low, found)


def _stacked(rows: Sequence[Tracer]) -> Tracer:
    return joined([reshape(row, (1, *row.shape)) for row in rows], 0)


@public(static=STATIC, name="quantile")
def _at_many(a: Any, q: Any, axis: Any, method: str, keepdims: bool, nans: bool, name: str) -> Any:
    x, lines, dims = _lined(name, a, axis)
    (fractions,) = promote_to((lines.value.type.dtype, False), as_tracer(q))
    line = reshape(fractions, (fractions.value.type.size,))
    each = spread(line, (line.shape[0], *lines.shape[1:]), (0,))
    found = _read(lines, each, method, nans and lines.value.type.dtype in FLOATS)
    rest = found.shape[1:]
    if keepdims:
        rest = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    return convert(reshape(found, (*fractions.shape, *rest)), inexact(x)[0])


def _lined(name: str, a: Any, axis: Any) -> tuple[Tracer, Tracer, tuple[int, ...]]:
    """Return the array, its elements along a leading axis that combines `axis`, and the axes."""
    x = as_tracer(ordered(name, a)[0])
    dims = axes_of(axis, x.ndim)
    count = size_of(x, dims)
    if not count:
        raise ShapeError(point(f"{name} of no elements, shape {x.shape}"))
    kind, _ = inexact(x)
    rest = [d for d in range(x.ndim) if d not in dims]
    moved = transposed(convert(x, WIDE.get(kind, kind)), [*dims, *rest])
    return x, reshape(moved, (count, *(x.shape[d] for d in rest))), dims


def _sorted(lines: Tracer) -> Tracer:
    """Sort along the first axis."""
    result: Tracer = emit("sort", lines, dim=0, keys=1, stable=True)
    return result


def _row(lines: Tracer, i: int) -> Tracer:
    return reshape(piece(lines, 0, i, i + 1), lines.shape[1:])


def _element(lines: Tracer, position: float, method: str) -> Tracer:
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
    low = _row(lines, down)
    if not part:
        return low
    found: Tracer = low * (1 - part) + _row(lines, down + 1) * part
    return found


def _with_nan(found: Tracer, lines: Tracer) -> Tracer:
    """Return NaN where a line contains NaN, which is sorted to the end."""
    last = _row(lines, lines.shape[0] - 1)
    return same("select", is_nan(last), last, found)


def _read(lines: Tracer, fractions: Tracer, method: str, nans: bool) -> Tracer:
    """Return the elements at traced fractions of each line.

    With `nans`, NaNs do not count as elements.
    """
    is_sorted = fractions.shape[0] > 1 or lines.shape[0] < LONG
    if is_sorted:
        lines = _sorted(lines)
    if nans:
        numbers = same("not", is_nan(lines))
        counts = reduced("sum", convert(numbers, lines.value.type.dtype), (0,), False)
        most = broadcast(counts - 1, fractions.shape)
        most = same("maximum", most, like(most, 0))
    else:
        most = like(fractions, lines.shape[0] - 1)
    position = same("mul", fractions, most)
    if method == "nearest":
        position = same("round", position)
    down, up = same("floor", position), same("ceil", position)
    indices = convert(down, "i32"), convert(up, "i32")
    low, high = _taken(lines, *indices) if is_sorted else _between(lines, *indices)
    found = _blended(low, high, same("sub", position, down), method)
    if nans:
        return found
    if is_sorted:
        unknown = is_nan(broadcast(_row(lines, lines.shape[0] - 1), found.shape))
    else:
        any_nan = reduced("any", is_nan(lines), (0,), False)
        unknown = spread(any_nan, found.shape, range(1, found.ndim))
    return same("select", unknown, like(found, np.nan), found)


def _taken(ranked: Tracer, down: Tracer, up: Tracer) -> tuple[Tracer, Tracer]:
    """Return the elements of sorted lines at two positions each."""
    from shardir.frontend.numpy.taking import take_along_axis

    low, high = (take_along_axis(ranked, i, axis=0, mode="promise_in_bounds") for i in (down, up))
    return low, high


def _between(lines: Tracer, down: Tracer, up: Tracer) -> tuple[Tracer, Tracer]:
    """Return the elements of sorted rank `down` and of rank `up`, which is equal or the next
    one.
    """
    first = same("maximum", same("minimum", down, like(down, lines.shape[0] - 1)), like(down, 0))
    low, high = (_stacked([row]) for row in _moved(lines, _row(first, 0), lines.shape[0] - 1))
    return low, same("select", same("eq", down, up), low, high)


def _moved(lines: Tracer, rank: Tracer, most: int) -> tuple[Tracer, Tracer]:
    """Return the elements of a traced sorted rank, which is at most `most`, and of the next one.

    Additional infinities are sorted along so that the element always has the static index `most`:
    an element at a static index can be selected without a complete sort.
    """
    if most:
        missing = like(rank, most) - rank
        kind = lines.value.type.with_shape((most, *lines.shape[1:]))
        number = emit("iota", dim=0, result=kind.with_dtype("i32"))
        below = same("lt", number, spread(missing, kind.shape, range(1, lines.ndim)))
        lowest_value = splat(-np.inf, kind)
        more = same("select", below, lowest_value, same("neg", lowest_value))
        lines = emit("concatenate", lines, more, dim=0)
    ranked = _sorted(lines)
    return _row(ranked, most), _row(ranked, min(most + 1, ranked.shape[0] - 1))


def _blended(low: Tracer, high: Tracer, part: Tracer, method: str) -> Tracer:
    if method == "higher":
        return high
    if method in ("lower", "nearest"):
        return low
    share: Any = 0.5 if method == "midpoint" else part
    middle = low * (1 - share) + high * share
    # The product of infinity and zero would be NaN.
    return same("select", same("eq", part, like(part, 0)), low, middle)
