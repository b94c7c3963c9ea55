"""Spreads, weighted means and correlations. Half floats are computed as float32."""

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
from shardir.frontend.operands import as_tracer, convert, promote_to, reshape
from shardir.frontend.promotion import dtype_of, inexact as floating
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import REAL_OF

STATIC = ("axis", "dtype", "out", "ddof", "keepdims", "correction")


@public(static=STATIC)
def var(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
    keepdims: bool = False, *, where: Any = None, correction: float | None = None,
) -> Any:  # fmt: skip
    """The variance: the mean square of the distances from the mean, divided by n - ddof."""
    wide, name = _variance("var", a, axis, dtype, out, ddof, keepdims, where, correction)
    return convert(wide, name)


@public(static=STATIC)
def std(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
    keepdims: bool = False, *, where: Any = None, correction: float | None = None,
) -> Any:  # fmt: skip
    """The standard deviation: the square root of the variance."""
    wide, name = _variance("std", a, axis, dtype, out, ddof, keepdims, where, correction)
    return convert(same("sqrt", wide), name)


def _variance(
    name: str, a: Any, axis: Any, dtype: Any, out: Any, ddof: float, keepdims: bool, where: Any,
    correction: float | None,
) -> tuple[Tracer, str]:  # fmt: skip
    """The variance in the type it is computed in, and the one it is wanted in."""
    no_out(name, out)
    if correction is not None and ddof:
        raise ArgumentError(point(f"{name} takes ddof or correction, which mean the same"))
    x = as_tracer(a)
    kind = floating(x.value.type.dtype) if dtype is None else dtype_of(dtype)
    wide = convert(x, WIDE.get(kind, kind))
    less = ddof if correction is None else correction
    found = variance(wide, axes_of(axis, x.ndim), less, keepdims, where)
    return found, REAL_OF.get(kind, kind)


def variance(
    x: Tracer, dims: tuple[int, ...], ddof: float, keepdims: bool, where: Any = None
) -> Tracer:
    """The sum over `dims` of the squared distances from the mean, divided by n - ddof."""
    summed = reduced("sum", only(x, where, 0), dims, False)
    average = same("div", summed, counted(x, summed, dims, False, where))
    away = same("sub", x, back(average, x, dims))
    parts = [same("real", away), same("imag", away)] if is_complex(x) else [away]
    squares = [same("mul", part, part) for part in parts]
    square = squares[0] if len(squares) == 1 else same("add", *squares)
    total = reduced("sum", only(square, where, 0), dims, keepdims)
    if where is None:
        return same("div", total, like(total, max(size_of(x, dims) - ddof, 0)))
    left = counted(x, total, dims, keepdims, where)
    return same("div", total, clip(left - ddof, 0) if ddof else left)


@public(static=("axis", "returned", "keepdims"))
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False
) -> Any:
    """The mean with weights: of the shape of `a`, or of the sizes along `axis`.

    With `returned` the sum of weights comes along.
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
            wanted = f"{x.shape}" if axis is None else f"{x.shape} or {sizes}"
            raise ShapeError(point(f"weights of average have shape {w.shape}, not {wanted}"))
        w = spread(w, x.shape, dims)
    total = reduced("sum", w, dims, keepdims)
    found = same("div", reduced("sum", same("mul", x, w), dims, keepdims), total)
    return (found, total) if returned else found


@public(static=("rowvar", "bias", "ddof"))
def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
    fweights: Any = None, aweights: Any = None,
) -> Any:  # fmt: skip
    """The covariances of the rows of `m` (and `y`), or of their columns without `rowvar`.

    `fweights` says how often each observation counts, `aweights` how much.
    """
    rows = [_observations(each, rowvar) for each in (m, y) if each is not None]
    parts = promote_to(inexact(*rows), *rows)
    x: Tracer = parts[0] if len(parts) == 1 else emit("concatenate", *parts, dim=0)
    given = [as_tracer(w) for w in (fweights, aweights) if w is not None]
    for w in given:
        if w.shape != x.shape[1:]:
            raise ShapeError(
                point(f"weights of cov have shape {w.shape}, for {x.shape[1]} observations")
            )
    less = (0 if bias else 1) if ddof is None else ddof
    if not given:
        away = x - back(reduced("sum", x, (1,), False) / x.shape[1], x, (1,))
        return _settled(contract(away, conjugate_of(away), "bi,hi->bh"), x.shape[1] - less)
    (weights,) = promote_to((x.value.type.dtype, False), given[0])
    for w in given[1:]:
        weights = weights * w
    total = reduced("sum", weights, (0,), False)
    away = x - back(contract(x, weights, "bi,i->b") / total, x, (1,))
    left = total
    if less:
        waste = weights if aweights is None else weights * aweights
        lost = less if aweights is None else less * reduced("sum", waste, (0,), False) / total
        left = total - lost
    return _settled(contract(away * weights, conjugate_of(away), "bi,hi->bh"), left)


def _observations(m: Any, rowvar: bool) -> Tracer:
    """Variables by observations; a vector is one variable."""
    x = as_tracer(m)
    if x.ndim > 2:
        raise ShapeError(point(f"cov takes a vector or a matrix, got shape {x.shape}"))
    if x.ndim < 2:
        return reshape(x, (1, x.value.type.size))
    if rowvar or x.shape[0] == 1:
        return x
    turned: Tracer = emit("transpose", x, perm=(1, 0), weak=x.weak_type)
    return turned


def _settled(products: Tracer, divisor: Any) -> Tracer:
    found: Tracer = products / divisor
    return reshape(found, ()) if found.shape == (1, 1) else found


@public(static=("rowvar",))
def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    """The correlations of the rows of `x` (and `y`), or of their columns without `rowvar`."""
    found = as_tracer(cov(x, y, rowvar))
    if not found.ndim:
        return found / found
    own = diagonal_of(found, 0, 1)
    deviation = same("sqrt", same("real", own) if is_complex(own) else own)
    scaled = found / spread(deviation, found.shape, (0,)) / spread(deviation, found.shape, (1,))
    if is_complex(scaled):
        return same("complex", *(clip(same(p, scaled), -1, 1) for p in ("real", "imag")))
    return clip(scaled, -1, 1)
