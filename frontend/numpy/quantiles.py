"""Medians, quantiles and percentiles: sorted elements at places between the ends."""

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
"""The operation that makes a whole place of one between two elements."""


@refusing
def quantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False,
) -> Any:  # fmt: skip
    """The element that the fraction `q` of all are not above, between two if need be.

    `q` may be an array; its axes come first. NaN where an element is NaN. `method` says what
    happens between two elements: linear, lower, higher, midpoint or nearest.
    """
    no_out("quantile", out)
    return _quantile("quantile", a, q, axis, method, keepdims, False)


@refusing
def nanquantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False,
) -> Any:  # fmt: skip
    """`quantile` of the elements that are not NaN."""
    no_out("nanquantile", out)
    return _quantile("nanquantile", a, q, axis, method, keepdims, True)


@refusing
def percentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, out_sharding: Any = None,
) -> Any:  # fmt: skip
    """`quantile` of `q` hundredths."""
    no_out("percentile", out)
    share = _hundredth("percentile", q)
    made = _quantile("percentile", a, share, axis, method, keepdims, False)
    return laid_out(made, out_sharding)


@refusing
def nanpercentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False,
) -> Any:  # fmt: skip
    """`percentile` of the elements that are not NaN."""
    no_out("nanpercentile", out)
    return _quantile(
        "nanpercentile", a, _hundredth("nanpercentile", q), axis, method, keepdims, True
    )


@refusing
def median(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """The element in the middle, the mean of two of them if need be; NaN where one is NaN."""
    no_out("median", out)
    return _quantile("median", a, 0.5, axis, "midpoint", keepdims, False)


@refusing
def nanmedian(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """`median` of the elements that are not NaN."""
    no_out("nanmedian", out)
    return _quantile("nanmedian", a, 0.5, axis, "midpoint", keepdims, True)


def _hundredth(name: str, q: Any) -> Any:
    """Hundredths as fractions; raises `NotAnArrayError`."""
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
        told = ", ".join(METHODS)
        raise ArgumentError(point(f"{name} has no method {brief(method)}; the methods are {told}"))
    if not is_number(q):
        few = _few(q)
        if few is not None:
            return _at_few(a, few, axis, method, keepdims, nans, name)
        return _at_many(a, q, axis, method, keepdims, nans, name)
    end = 100 if "percentile" in name else 1
    if isinstance(q, complex):
        raise ArgumentError(point(f"{name} takes a real number as q, got {end * q}"))
    if not 0 <= q <= 1:
        raise _out_of_range(name, end * q, end)
    return _at_one(a, float(q), axis, method, keepdims, nans, name)


def _out_of_range(name: str, q: float, end: int) -> ArgumentError:
    told = f"{q:g}" if isinstance(q, float) else brief(q)
    return ArgumentError(point(f"{name} takes q from 0 to {end}, got {told}"))


FEW = 7
"""So many fractions that are known are looked for one by one, which needs no sorting."""


def _few(q: Any) -> tuple[float, ...] | None:
    """Fractions that are known, if they are a few in a row and between the ends."""
    if not isinstance(q, np.ndarray):
        listed = isinstance(q, (list, tuple))
        if not listed or not all(is_number(each) or isinstance(each, np.generic) for each in q):
            return None
    known = np.asarray(q)
    inside = known.dtype.kind in "iuf" and ((known >= 0) & (known <= 1)).all()
    return (
        tuple(map(float, known)) if inside and known.ndim == 1 and 0 < len(known) <= FEW else None
    )


LONG = 1 << 16
"""A computed place in lines of so many elements is selected. Shorter lines are sorted, and so are
lines of which several places are read: devices that share a line then gather it once, and nothing
else."""

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
    """One array for each fraction."""
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
    """The elements at known fractions of the numbers, of lines that may contain NaN."""
    if len(q) == 1 and lines.shape[0] >= LONG:
        return [_at_known(lines, q[0], method)]
    first = _row(lines, 0)
    fractions = _stacked([like(first, each) for each in q])
    found = _read(lines, fractions, method, True)
    return [_row(found, i) for i in range(len(q))]


def _at_known(lines: Tracer, q: float, method: str) -> Tracer:
    """The elements at a known fraction of the numbers, without sorting all of them.

    As many NaN become -inf as move the wanted element to the place where it would be without NaN.
    That place is known, so it can be selected without sorting the others, and the lines keep their
    size, so devices that share a line gather nothing but the line.
    """
    count, kind = lines.shape[0], lines.value.type.dtype
    missing = is_nan(lines)
    nans = reduced("sum", convert(missing, "i32"), (0,), False)
    numbers = same("neg", nans) + count
    last = convert(same("maximum", numbers - 1, like(numbers, 0)), kind)
    place = same("mul", like(last, q), last)
    most = floor(q * (count - 1))
    # Rounding may put `place` just beside a whole number, on the other side than `most`.
    down = same("minimum", convert(same("floor", place), "i32"), like(nans, most))
    down = same("maximum", down, same("neg", nans) + most)
    lowered = same("neg", down) + most
    rank = emit("cumsum", convert(missing, "i32"), dim=0, reverse=False)
    early = same("le", rank, spread(lowered, lines.shape, range(1, lines.ndim)))
    least = splat(-np.inf, lines.value.type)
    ranked = _sorted(same("select", same("and", missing, early), least, lines))
    low, high = _row(ranked, most), _row(ranked, min(most + 1, count - 1))
    part = same("sub", place, convert(down, kind))
    none, whole = like(part, 0), like(part, 1)
    if method in ROUNDINGS:
        chosen = convert(same(ROUNDINGS[method], place), "i32")
        return same("select", same("gt", chosen, down), high, low)
    share = like(part, 0.5) if method == "midpoint" else part
    between = same("add", same("mul", low, same("sub", whole, share)), same("mul", high, share))
    # An infinity times nothing would be NaN.
    found = same("select", same("ge", part, whole), high, between)
    return same("select", same("le", part, none), low, found)


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
    """The array, its elements along a first axis made of `axis`, and what that is."""
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
    """Along the first axis."""
    ranked: Tracer = emit("sort", lines, dim=0, keys=1, stable=True)
    return ranked


def _row(lines: Tracer, i: int) -> Tracer:
    return reshape(piece(lines, 0, i, i + 1), lines.shape[1:])


def _element(lines: Tracer, place: float, method: str) -> Tracer:
    """The element at a place of the sorted lines, or what is between two of them."""
    down, part = floor(place), place - floor(place)
    if method == "nearest":
        down, part = round(place), 0
    elif method == "higher":
        down, part = ceil(place), 0
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
    """NaN where there is one; it is sorted to the end."""
    last = _row(lines, lines.shape[0] - 1)
    return same("select", is_nan(last), last, found)


def _read(lines: Tracer, fractions: Tracer, method: str, nans: bool) -> Tracer:
    """The elements at fractions of the way from the least to the largest, line by line.

    With `nans` to the largest number.
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
    place = same("mul", fractions, most)
    if method == "nearest":
        place = same("round", place)
    down, up = same("floor", place), same("ceil", place)
    places = convert(down, "i32"), convert(up, "i32")
    low, high = _taken(lines, *places) if is_sorted else _between(lines, *places)
    found = _blended(low, high, same("sub", place, down), method)
    if nans:
        return found
    if is_sorted:
        unknown = is_nan(broadcast(_row(lines, lines.shape[0] - 1), found.shape))
    else:
        any_nan = reduced("any", is_nan(lines), (0,), False)
        unknown = spread(any_nan, found.shape, range(1, found.ndim))
    return same("select", unknown, like(found, np.nan), found)


def _taken(ranked: Tracer, down: Tracer, up: Tracer) -> tuple[Tracer, Tracer]:
    """The elements at two places each of sorted lines."""
    from shardir.frontend.numpy.taking import take_along_axis

    low, high = (take_along_axis(ranked, i, axis=0, mode="promise_in_bounds") for i in (down, up))
    return low, high


def _between(lines: Tracer, down: Tracer, up: Tracer) -> tuple[Tracer, Tracer]:
    """The elements that sorting puts at one place, and those at the same or the next one."""
    first = same("maximum", same("minimum", down, like(down, lines.shape[0] - 1)), like(down, 0))
    low, high = (_stacked([row]) for row in _moved(lines, _row(first, 0), lines.shape[0] - 1))
    return low, same("select", same("eq", down, up), low, high)


def _moved(lines: Tracer, place: Tracer, most: int) -> tuple[Tracer, Tracer]:
    """The element at a place that is computed and at most `most`, and the next one.

    So many infinities are sorted along that it always ends up at `most`: places that are known can
    be looked for without sorting the others.
    """
    if most:
        missing = like(place, most) - place
        kind = lines.value.type.with_shape((most, *lines.shape[1:]))
        number = emit("iota", dim=0, result=kind.with_dtype("i32"))
        below = same("lt", number, spread(missing, kind.shape, range(1, lines.ndim)))
        least = splat(-np.inf, kind)
        more = same("select", below, least, same("neg", least))
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
    # An infinity times nothing would be NaN.
    return same("select", same("eq", part, like(part, 0)), low, middle)
