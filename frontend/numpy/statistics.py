"""Variances, weighted means and correlations. Half-precision floats are computed in float32."""

from math import nan
from typing import Any

from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import axes_of
from shardir.frontend.numpy.complexes import conjugate_of, is_complex
from shardir.frontend.numpy.contraction import contract
from shardir.frontend.numpy.diagonals import diagonal_of
from shardir.frontend.numpy.layout import back, spread
from shardir.frontend.numpy.pointwise import inexact, like, no_out, same
from shardir.frontend.numpy.reductions import counted, mean, only, reduced, size_of
from shardir.frontend.numpy.rounding import WIDE
from shardir.frontend.numpy.selection import clip
from shardir.frontend.operands import as_tracer, broadcast, convert, promote_to, reshape
from shardir.frontend.promotion import dtype_of, inexact as floating
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import COMPLEX, REAL_OF

STATIC = ("axis", "dtype", "out", "ddof", "keepdims", "correction")


@public(static=STATIC)
def var(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
    keepdims: bool = False, *, where: Any = None, mean: Any = None,
    correction: float | None = None,
) -> Any:  # fmt: skip
    """Return the variance over `axis`: the mean squared distance from the mean, with divisor n -
    ddof.

    `correction` is another name of `ddof`. `mean`, if given, is the result of `mean` with
    `keepdims` and is not computed again. The variance of complex numbers is real.
    """
    wide, name = _variance("var", a, axis, dtype, out, ddof, keepdims, where, mean, correction)
    return convert(wide, name)


@public(static=STATIC)
def std(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
    keepdims: bool = False, *, where: Any = None, mean: Any = None,
    correction: float | None = None,
) -> Any:  # fmt: skip
    """Return the standard deviation over `axis`: the square root of the variance; see `var`."""
    wide, name = _variance("std", a, axis, dtype, out, ddof, keepdims, where, mean, correction)
    return convert(same("sqrt", wide), name)


def _variance(
    name: str, a: Any, axis: Any, dtype: Any, out: Any, ddof: float, keepdims: bool, where: Any,
    mean: Any, correction: float | None,
) -> tuple[Tracer, str]:  # fmt: skip
    """Return the variance in its computation type, and the element type of the result."""
    no_out(name, out)
    if correction is not None and ddof:
        raise ArgumentError(point(f"{name} takes ddof or correction, which mean the same"))
    x = as_tracer(a)
    kind = floating(x.value.type.dtype) if dtype is None else dtype_of(dtype)
    if is_complex(x) and kind not in COMPLEX:
        raise ArgumentError(
            point(
                f"{name} of complex numbers is computed in a complex type, got dtype {dtype}; "
                "leave it out, and convert the result, which is real, with .astype"
            )
        )
    wide = convert(x, WIDE.get(kind, kind))
    correction_value = ddof if correction is None else correction
    centre = None if mean is None else convert(as_tracer(mean), wide.value.type.dtype)
    found = variance(wide, axes_of(axis, x.ndim), correction_value, keepdims, where, centre)
    return found, REAL_OF.get(kind, kind) if dtype is None else kind


def variance(
    x: Tracer, dims: tuple[int, ...], ddof: float, keepdims: bool, where: Any = None,
    centre: Tracer | None = None,
) -> Tracer:  # fmt: skip
    """Return the sum over `dims` of the squared distances from the mean, divided by n - ddof.

    The result is NaN if n is not larger than `ddof`. `centre` is the mean, if it is already
    computed, with `dims` of size 1.
    """
    if centre is None:
        summed = reduced("sum", only(x, where, 0), dims, False)
        centre = back(same("div", summed, counted(x, summed, dims, False, where)), x, dims)
    # Excluded elements are masked before the square: they may be NaN, and so would be their
    # derivative.
    deviation = only(same("sub", x, broadcast(centre, x.shape)), where, 0)
    parts = [same("real", deviation), same("imag", deviation)] if is_complex(x) else [deviation]
    squares = [same("mul", part, part) for part in parts]
    square = squares[0] if len(squares) == 1 else same("add", *squares)
    total = reduced("sum", square, dims, keepdims)
    if where is None:
        divisor = size_of(x, dims) - ddof
        return same("div", total, like(total, divisor if divisor > 0 else nan))
    divisors = counted(x, total, dims, keepdims, where) - ddof
    return same(
        "div",
        total,
        same("select", same("gt", divisors, like(divisors, 0)), divisors, like(divisors, nan)),
    )


@public(static=("axis", "returned", "keepdims"))
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False
) -> Any:
    """Return the mean over `axis` with weights, which have the shape of `a` or the sizes along
    `axis`.

    With `returned`, return also the sum of weights.
    """
    x = as_tracer(a)
    dims = axes_of(axis, x.ndim)
    if weights is None:
        found = as_tracer(mean(x, axis, keepdims=keepdims))
        return (found, like(found, size_of(x, dims))) if returned else found
    x, w = promote_to(inexact(x, weights), x, weights)
    if w.shape != x.shape:
        sizes = tuple(x.shape[d] for d in dims)
        if axis is None or w.shape != sizes:
            expected = f"{x.shape}" if axis is None else f"{x.shape} or {sizes}"
            raise ShapeError(point(f"weights of average have shape {w.shape}, not {expected}"))
        order = tuple(sorted(range(len(dims)), key=dims.__getitem__))
        w = emit("transpose", w, perm=order, weak=w.weak_type)
        w = spread(w, x.shape, tuple(sorted(dims)))
    total = reduced("sum", w, dims, keepdims)
    found = same("div", reduced("sum", same("mul", x, w), dims, keepdims), total)
    return (found, total) if returned else found


@public(static=("rowvar", "bias", "ddof", "dtype"))
def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
    fweights: Any = None, aweights: Any = None, dtype: Any = None,
) -> Any:  # fmt: skip
    """Return the covariance matrix of the rows of `m` (and `y`); of the columns if `rowvar` is
    false.

    `fweights` are the frequencies of the observations, `aweights` their weights. The result is NaN
    if there are not more observations than `ddof` (by default 1, or 0 with `bias`).
    """
    rows = [_observations(each, rowvar) for each in (m, y) if each is not None]
    parts = promote_to(inexact(*rows) if dtype is None else (dtype_of(dtype), False), *rows)
    x: Tracer = parts[0] if len(parts) == 1 else emit("concatenate", *parts, dim=0)
    given = [as_tracer(w) for w in (fweights, aweights) if w is not None]
    for w in given:
        if w.shape != x.shape[1:]:
            raise ShapeError(
                point(f"weights of cov have shape {w.shape}, for {x.shape[1]} observations")
            )
    correction = (0 if bias else 1) if ddof is None else ddof
    if not given:
        deviation = x - back(reduced("sum", x, (1,), False) / x.shape[1], x, (1,))
        products = contract(deviation, conjugate_of(deviation), "bi,hi->bh")
        return _settled(products, max(x.shape[1] - correction, 0))
    (weights,) = promote_to((x.value.type.dtype, False), given[0])
    for w in given[1:]:
        weights = weights * w
    total = reduced("sum", weights, (0,), False)
    deviation = x - back(contract(x, weights, "bi,i->b") / total, x, (1,))
    divisor = total
    if correction:
        squared_weights = weights if aweights is None else weights * aweights
        subtracted = (
            correction
            if aweights is None
            else correction * reduced("sum", squared_weights, (0,), False) / total
        )
        divisor = clip(total - subtracted, 0)
    return _settled(contract(deviation * weights, conjugate_of(deviation), "bi,hi->bh"), divisor)


def _observations(m: Any, rowvar: bool) -> Tracer:
    """Return a matrix of variables by observations; a vector is one variable."""
    x = as_tracer(m)
    if x.ndim > 2:
        raise ShapeError(point(f"cov takes a vector or a matrix, got shape {x.shape}"))
    if x.ndim < 2:
        return reshape(x, (1, x.value.type.size))
    if rowvar or x.shape[0] == 1:
        return x
    result: Tracer = emit("transpose", x, perm=(1, 0), weak=x.weak_type)
    return result


def _settled(products: Tracer, divisor: Any) -> Tracer:
    result: Tracer = products / divisor
    return reshape(result, ()) if result.shape == (1, 1) else result


@public(static=("rowvar", "dtype"))
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Any:
    """Return the correlation coefficients of the rows of `x` (and `y`).

    If `rowvar` is false, the columns are the variables.
    """
    found = as_tracer(cov(x, y, rowvar, dtype=dtype))
    if not found.ndim:
        return found / found
    variances = diagonal_of(found, 0, 1)
    deviation = same("sqrt", same("real", variances) if is_complex(variances) else variances)
    scaled = found / spread(deviation, found.shape, (0,)) / spread(deviation, found.shape, (1,))
    if is_complex(scaled):
        return same("complex", *(clip(same(p, scaled), -1, 1) for p in ("real", "imag")))
    return clip(scaled, -1, 1)
