"""Variances, weighted means and correlations. Half-precision floats are computed in float32."""

from math import nan

from shardir.errors import OperationTypeError
from shardir.frontend.argument_checks import check_integer
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike, DTypeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy.elementwise.selection import clip
from shardir.frontend.numpy.linear_algebra.contraction import contract
from shardir.frontend.numpy.linear_algebra.diagonals import diagonal_in_place
from shardir.frontend.numpy.reductions.basic_reductions import (
    count_reduced_elements,
    emit_reduction,
    mask_elements,
    mean,
    reduction_size,
)
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes
from shardir.frontend.numpy.tracer_helpers.axis_slices import broadcast_back, broadcast_in_dim
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    check_no_out,
    constant_like,
    emit_conjugate,
    emit_elementwise,
    inexact_kind,
    is_complex,
)
from shardir.frontend.numpy.tracer_helpers.product_precision import Precision
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, broadcast, convert, promote_to, reshape
from shardir.frontend.tracing.promotion import dtype_of, inexact_dtype as floating
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import COMPUTE_DTYPES
from shardir.ir.types import COMPLEX, INEXACT, REAL_OF

VARIANCE_STATIC_ARGNAMES = ("axis", "dtype", "out", "ddof", "keepdims", "correction")


@public(static=VARIANCE_STATIC_ARGNAMES)
def var(
    a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
    ddof: float = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
    mean: ArrayLike | None = None, correction: float | None = None,
) -> Tracer:  # fmt: skip
    """Return the variance over `axis`: the mean squared distance from the mean, with divisor n -
    ddof.

    `correction` is another name of `ddof`. `mean`, if given, is the result of `mean` with
    `keepdims` and is not computed again. The variance of complex numbers is real.
    """
    wide, name = _variance_of_operand(
        "var", a, axis, dtype, out, ddof, keepdims, where, mean, correction
    )
    return convert(wide, name)


@public(static=VARIANCE_STATIC_ARGNAMES)
def std(
    a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
    ddof: float = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
    mean: ArrayLike | None = None, correction: float | None = None,
) -> Tracer:  # fmt: skip
    """Return the standard deviation over `axis`: the square root of the variance; see `var`."""
    wide, name = _variance_of_operand(
        "std", a, axis, dtype, out, ddof, keepdims, where, mean, correction
    )
    return convert(emit_elementwise("sqrt", wide), name)


def _variance_of_operand(
    name: str, a: ArrayLike, axis: AxisLike, dtype: DTypeLike | None, out: None, ddof: float,
    keepdims: bool, where: ArrayLike | None, mean: ArrayLike | None,
    correction: float | None,
) -> tuple[Tracer, str]:  # fmt: skip
    """Return the variance in its computation type, and the element type of the result."""
    check_no_out(name, out)
    if correction is not None and ddof:
        raise ArgumentError(with_location(f"{name} takes ddof or correction, which mean the same"))
    x = as_tracer(a)
    kind = floating(x.value.type.dtype) if dtype is None else dtype_of(dtype)
    if is_complex(x) and kind not in COMPLEX:
        raise ArgumentError(
            with_location(
                f"{name} of complex numbers is computed in a complex type, got dtype {dtype}; "
                "leave it out, and convert the result, which is real, with .astype"
            )
        )
    wide = convert(x, COMPUTE_DTYPES[kind])
    correction_value = ddof if correction is None else correction
    centre = None if mean is None else convert(as_tracer(mean), wide.value.type.dtype)
    result = emit_variance(
        wide, canonicalize_axes(axis, x.ndim), correction_value, keepdims, where, centre
    )
    return result, REAL_OF.get(kind, kind) if dtype is None else kind


def emit_variance(
    x: Tracer, dims: tuple[int, ...], ddof: float, keepdims: bool, where: ArrayLike | None = None,
    centre: Tracer | None = None,
) -> Tracer:  # fmt: skip
    """Return the sum over `dims` of the squared distances from the mean, divided by n - ddof.

    The result is NaN if n is not larger than `ddof`. `centre` is the mean, if it is already
    computed, with `dims` of size 1.
    """
    if centre is None:
        summed = emit_reduction("sum", mask_elements(x, where, 0), dims, False)
        centre = broadcast_back(
            emit_elementwise("div", summed, count_reduced_elements(x, summed, dims, False, where)),
            x,
            dims,
        )
    # Excluded elements are masked before the square: they may be NaN, and so would be their
    # derivative.
    deviation = mask_elements(emit_elementwise("sub", x, broadcast(centre, x.shape)), where, 0)
    parts = (
        [emit_elementwise("real", deviation), emit_elementwise("imag", deviation)]
        if is_complex(x)
        else [deviation]
    )
    squares = [emit_elementwise("mul", part, part) for part in parts]
    square = squares[0] if len(squares) == 1 else emit_elementwise("add", *squares)
    total = emit_reduction("sum", square, dims, keepdims)
    if where is None:
        divisor = reduction_size(x, dims) - ddof
        return emit_elementwise("div", total, constant_like(total, divisor if divisor > 0 else nan))
    divisors = count_reduced_elements(x, total, dims, keepdims, where) - ddof
    return emit_elementwise(
        "div",
        total,
        emit_elementwise(
            "select",
            emit_elementwise("gt", divisors, constant_like(divisors, 0)),
            divisors,
            constant_like(divisors, nan),
        ),
    )


@public(static=("axis", "returned", "keepdims"))
def average(
    a: ArrayLike,
    axis: AxisLike = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    keepdims: bool = False,
) -> PyTree:
    """Return the mean over `axis` with weights, which have the shape of `a` or the sizes along
    `axis`.

    With `returned`, return also the sum of weights.
    """
    x = as_tracer(a)
    dims = canonicalize_axes(axis, x.ndim)
    if weights is None:
        found = as_tracer(mean(x, axis, keepdims=keepdims))
        return (found, constant_like(found, reduction_size(x, dims))) if returned else found
    x, w = promote_to(inexact_kind(x, weights), x, weights)
    if w.shape != x.shape:
        sizes = tuple(x.shape[d] for d in dims)
        if axis is None or w.shape != sizes:
            expected = f"{x.shape}" if axis is None else f"{x.shape} or {sizes}"
            raise ShapeError(
                with_location(f"weights of average have shape {w.shape}, not {expected}")
            )
        order = tuple(sorted(range(len(dims)), key=dims.__getitem__))
        w = emit("transpose", w, perm=order, weak=w.weak_type)
        w = broadcast_in_dim(w, x.shape, tuple(sorted(dims)))
    total = emit_reduction("sum", w, dims, keepdims)
    found = emit_elementwise(
        "div", emit_reduction("sum", emit_elementwise("mul", x, w), dims, keepdims), total
    )
    return (found, total) if returned else found


@public(static=("rowvar", "bias", "ddof", "dtype"))
def cov(
    m: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, bias: bool = False,
    ddof: int | None = None, fweights: object = None, aweights: object = None,
    dtype: DTypeLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the covariance matrix of the rows of `m` (and `y`); of the columns if `rowvar` is
    false.

    `fweights` are the frequencies of the observations, `aweights` their weights. The result is NaN
    if there are not more observations than `ddof` (by default 1, or 0 with `bias`).
    """
    if dtype is not None and dtype_of(dtype) not in INEXACT:
        raise OperationTypeError(
            with_location(f"cov computes floating-point or complex numbers, not {dtype_of(dtype)}")
        )
    rows = [_as_observations(each, rowvar) for each in (m, y) if each is not None]
    parts = promote_to(inexact_kind(*rows) if dtype is None else (dtype_of(dtype), False), *rows)
    x: Tracer = parts[0] if len(parts) == 1 else emit("concatenate", *parts, dim=0)
    given = [as_tracer(w) for w in (fweights, aweights) if w is not None]
    for w in given:
        if w.shape != x.shape[1:]:
            raise ShapeError(
                with_location(f"weights of cov have shape {w.shape}, for {x.shape[1]} observations")
            )
    correction = (0 if bias else 1) if ddof is None else check_integer("ddof of cov", ddof)
    if not given:
        deviation = x - broadcast_back(emit_reduction("sum", x, (1,), False) / x.shape[1], x, (1,))
        products = contract(deviation, emit_conjugate(deviation), "bi,hi->bh")
        return _normalize_covariance(products, max(x.shape[1] - correction, 0))
    (weights,) = promote_to((x.value.type.dtype, False), given[0])
    for w in given[1:]:
        weights = weights * w
    total = emit_reduction("sum", weights, (0,), False)
    weighted_sum = contract(x, weights, "bi,i->b", precision=Precision.HIGHEST)
    deviation = x - broadcast_back(weighted_sum / total, x, (1,))
    divisor = total
    if correction:
        squared_weights = weights if aweights is None else weights * aweights
        subtracted = (
            correction
            if aweights is None
            else correction * emit_reduction("sum", squared_weights, (0,), False) / total
        )
        divisor = clip(total - subtracted, 0)
    return _normalize_covariance(
        contract(deviation * weights, emit_conjugate(deviation), "bi,hi->bh"), divisor
    )


def _as_observations(m: ArrayLike, rowvar: bool) -> Tracer:
    """Return a matrix of variables by observations; a vector is one variable."""
    x = as_tracer(m)
    if x.ndim > 2:
        raise ShapeError(with_location(f"cov takes a vector or a matrix, got shape {x.shape}"))
    if x.ndim < 2:
        return reshape(x, (1, x.value.type.size))
    if rowvar:
        return x
    result: Tracer = emit("transpose", x, perm=(1, 0), weak=x.weak_type)
    return result


def _normalize_covariance(products: Tracer, divisor: object) -> Tracer:
    result: Tracer = products / divisor
    return reshape(result, ()) if result.shape == (1, 1) else result


@public(static=("rowvar", "dtype"))
def corrcoef(
    x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, dtype: DTypeLike | None = None
) -> Tracer:
    """Return the correlation coefficients of the rows of `x` (and `y`).

    If `rowvar` is false, the columns are the variables.
    """
    result = as_tracer(cov(x, y, rowvar, dtype=dtype))
    if not result.ndim:
        return result / result
    variances = diagonal_in_place(result, 0, 1)
    deviation = emit_elementwise(
        "sqrt", emit_elementwise("real", variances) if is_complex(variances) else variances
    )
    scaled = (
        result
        / broadcast_in_dim(deviation, result.shape, (0,))
        / broadcast_in_dim(deviation, result.shape, (1,))
    )
    if is_complex(scaled):
        return emit_elementwise(
            "complex", *(clip(emit_elementwise(p, scaled), -1, 1) for p in ("real", "imag"))
        )
    return clip(scaled, -1, 1)
