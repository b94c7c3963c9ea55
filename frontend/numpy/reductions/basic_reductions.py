"""Reductions over some or all axes: sum, product, extremes, any and all, mean, argmax and argmin.

`axis` is an integer, a tuple of integers or `None` (all axes); `keepdims` keeps reduced axes with
size 1; `where` is a mask of the elements that are included; `initial` is the start value.
"""

from collections.abc import Callable

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike, DTypeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes, canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import broadcast_back
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    apply_elementwise,
    as_bool,
    check_no_out,
    constant_like,
    emit_elementwise,
    emit_isnan,
    emit_select,
    is_complex,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast,
    convert,
    promote_to,
    reshape,
    splat,
)
from shardir.frontend.tracing.promotion import canonical_dtype, dtype_of, inexact_dtype
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import COMPUTE_DTYPES, DTYPE_INFO, greatest_number, least_number
from shardir.ir.types import INTEGERS, UNSIGNED, TensorType

REDUCTION_STATIC_ARGNAMES = ("axis", "dtype", "out", "keepdims", "promote_integers")


def emit_reduction(
    op: str, x: Tracer, dims: tuple[int, ...], keepdims: bool, weak: bool = False
) -> Tracer:
    """Emit one reduction over `dims`; with `keepdims` the reduced dimensions stay with size 1."""
    if not dims:
        result = convert(x, x.value.type.dtype, weak)
    elif op in ("max", "min") and is_complex(x):
        result = convert(_emit_complex_extreme(op, x, dims), x.value.type.dtype, weak)
    else:
        result = emit(op, x, dims=dims, weak=weak)
    return restore_reduced_dims(result, x, dims) if keepdims else result


def _emit_complex_extreme(op: str, x: Tracer, dims: tuple[int, ...]) -> Tracer:
    """Emit the extreme of complex numbers, ordered by real part, then by imaginary part.

    The real part is reduced again over the elements that attain the extreme, so that its derivative
    depends on no other element.
    """
    is_nan = emit_isnan(x)
    identity = -np.inf if op == "max" else np.inf
    attains = emit_elementwise("not", is_nan)
    result = []
    for part in ("real", "imag", "real"):
        number = emit_elementwise(part, x)
        number = emit_elementwise("select", is_nan, constant_like(number, np.nan), number)
        included = emit_elementwise(
            "select",
            emit_elementwise("or", attains, is_nan),
            number,
            constant_like(number, identity),
        )
        result.append(emit(op, included, dims=dims))
        equal = emit_elementwise("eq", number, broadcast_back(result[-1], x, dims))
        attains = emit_elementwise("and", attains, equal)
    return emit_elementwise("complex", result[2], result[1])


def restore_reduced_dims(result: Tracer, x: Tracer, dims: tuple[int, ...]) -> Tracer:
    """Reshape a value reduced from `x` so that the reduced dimensions have size 1."""
    return reshape(result, [1 if d in dims else n for d, n in enumerate(x.shape)])


def accumulation_dtype(dtype: str) -> str:
    """Return the accumulation type of sums and products: at least the default integer type."""
    if dtype == "bool":
        return canonical_dtype("i64")
    if dtype in INTEGERS:
        usual = canonical_dtype("u64" if dtype in UNSIGNED else "i64")
        return dtype if DTYPE_INFO[dtype].bits > DTYPE_INFO[usual].bits else usual
    return dtype


def as_mask(where: ArrayLike) -> Tracer:
    """Return the mask `where` of a reduction; raise `OperationTypeError` unless it has bools."""
    mask = as_tracer(where)
    if mask.value.type.dtype != "bool":
        raise OperationTypeError(
            with_location(
                f"where= takes bools, got {mask.value.type}; compare the numbers, as in w != 0"
            )
        )
    return mask


def mask_elements(x: Tracer, where: ArrayLike | None, otherwise: complex) -> Tracer:
    """Replace the elements of `x` that `where` excludes by `otherwise`."""
    if where is None:
        return x
    return emit_select(as_mask(where), x, splat(otherwise, TensorType((), x.value.type.dtype)))


def _accumulate(
    name: str, op: str, combine: str, neutral: int, a: ArrayLike, axis: AxisLike,
    dtype: DTypeLike | None, out: object, keepdims: bool, initial: ArrayLike | None,
    where: ArrayLike | None, promote: bool,
) -> Tracer:  # fmt: skip
    check_no_out(name, out)
    x = as_tracer(a)
    if dtype is not None:
        x = convert(x, dtype_of(dtype))
    elif promote or x.value.type.dtype == "bool":
        x = convert(x, accumulation_dtype(x.value.type.dtype))
    if x.value.type.dtype == "bool":  # The sum of bools is their logical or.
        op, combine = {"sum": ("any", "or"), "prod": ("all", "and")}[op]
    x = mask_elements(x, where, neutral)
    result = emit_reduction(op, x, canonicalize_axes(axis, x.ndim), keepdims)
    return result if initial is None else combine_with_initial(combine, result, initial)


def combine_with_initial(combine: str, result: Tracer, initial: ArrayLike) -> Tracer:
    """Combine the result of a reduction with its initial value.

    As in NumPy and JAX, the initial value is converted to the element type of the reduction.
    """
    (start,) = promote_to((result.value.type.dtype, result.weak_type), initial)
    if start.ndim:
        raise OperationTypeError(
            with_location(f"initial= takes one number, got an array of shape {start.shape}")
        )
    return apply_elementwise(combine, result, start)


@public(static=REDUCTION_STATIC_ARGNAMES)
def sum(
    a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Tracer:  # fmt: skip
    """Return the sum of elements over `axis`.

    Bools and integers narrower than the default integer type are summed in that type, unless
    `dtype` is given or `promote_integers` is false.
    """
    return _accumulate(
        "sum", "sum", "add", 0, a, axis, dtype, out, keepdims, initial, where, promote_integers
    )


@public(static=REDUCTION_STATIC_ARGNAMES)
def prod(
    a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Tracer:  # fmt: skip
    """Return the product of elements over `axis`.

    Bools and integers narrower than the default integer type are multiplied in that type, unless
    `dtype` is given or `promote_integers` is false.
    """
    return _accumulate(
        "prod", "prod", "mul", 1, a, axis, dtype, out, keepdims, initial, where, promote_integers
    )


def _emit_extreme(
    name: str,
    identity: Callable[[Tracer], float],
    a: ArrayLike,
    axis: AxisLike,
    out: object,
    keepdims: bool,
    initial: ArrayLike | None,
    where: ArrayLike | None,
) -> Tracer:
    """Emit the reduction `name`, to which elements that `where` excludes contribute `identity`."""
    check_no_out(name, out)
    x = as_tracer(a)
    dims = canonicalize_axes(axis, x.ndim)
    if initial is None and is_empty_reduction(x, dims):
        raise empty_reduction_error(name, x, "pass initial=")
    if where is not None:
        if initial is None:
            raise OperationTypeError(with_location(f"{name} with where= needs initial="))
        x = mask_elements(x, where, identity(x))
    result = emit_reduction(name, x, dims, keepdims)
    return result if initial is None else combine_with_initial(f"{name}imum", result, initial)


def is_empty_reduction(x: Tracer, dims: tuple[int, ...]) -> bool:
    """Return whether a reduction over `dims` has no elements to reduce."""
    return 0 in [x.shape[d] for d in dims]


def lowest_of_dtype(x: Tracer) -> float:
    """Return the smallest value of the element type of `x`; -inf for floats."""
    dtype = x.value.type.numpy
    if dtype == np.bool_:
        return False
    return least_number(x.value.type.dtype) if dtype.kind != "c" else -np.inf


def highest_of_dtype(x: Tracer) -> float:
    """Return the largest value of the element type of `x`; inf for floats."""
    dtype = x.value.type.numpy
    if dtype == np.bool_:
        return True
    return greatest_number(x.value.type.dtype) if dtype.kind != "c" else np.inf


@public(static=("axis", "out", "keepdims"))
def max(
    a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the largest element over `axis`; NaN if an element is NaN.

    Raise `ShapeError` for an empty reduction without `initial`.
    """
    return _emit_extreme("max", lowest_of_dtype, a, axis, out, keepdims, initial, where)


@public(static=("axis", "out", "keepdims"))
def min(
    a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the smallest element over `axis`; NaN if an element is NaN.

    Raise `ShapeError` for an empty reduction without `initial`.
    """
    return _emit_extreme("min", highest_of_dtype, a, axis, out, keepdims, initial, where)


amax, amin = max, min


@public(static=("axis", "out", "keepdims"))
def any(
    a: ArrayLike,
    axis: AxisLike = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Tracer:
    """Return whether at least one element over `axis` is true (not zero), as bools."""
    check_no_out("any", out)
    x = mask_elements(as_bool(a), where, False)
    return emit_reduction("any", x, canonicalize_axes(axis, x.ndim), keepdims)


@public(static=("axis", "out", "keepdims"))
def all(
    a: ArrayLike,
    axis: AxisLike = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Tracer:
    """Return whether every element over `axis` is true (not zero), as bools."""
    check_no_out("all", out)
    x = mask_elements(as_bool(a), where, True)
    return emit_reduction("all", x, canonicalize_axes(axis, x.ndim), keepdims)


@public(static=("axis", "keepdims"))
def count_nonzero(a: ArrayLike, axis: AxisLike = None, keepdims: bool = False) -> Tracer:
    """Return the number of elements over `axis` that are not zero, in the default integer type."""
    x = convert(as_bool(a), canonical_dtype("i64"))
    return emit_reduction("sum", x, canonicalize_axes(axis, x.ndim), keepdims)


@public(static=("axis", "dtype", "out", "keepdims"))
def mean(
    a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, *, where: ArrayLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the arithmetic mean over `axis`.

    The mean of integers is a float. Half-precision floats are accumulated in float32.
    """
    check_no_out("mean", out)
    x = as_tracer(a)
    name = inexact_dtype(x.value.type.dtype) if dtype is None else dtype_of(dtype)
    return mean_over_dims(x, name, canonicalize_axes(axis, x.ndim), keepdims, where)


def mean_over_dims(
    x: Tracer, name: str, dims: tuple[int, ...], keepdims: bool, where: ArrayLike | None = None
) -> Tracer:
    """Return the mean over `dims` in the element type `name`."""
    wide = convert(x, COMPUTE_DTYPES[name])
    summed = emit_reduction("sum", mask_elements(wide, where, 0), dims, keepdims)
    return convert(
        emit_elementwise("div", summed, count_reduced_elements(x, summed, dims, keepdims, where)),
        name,
    )


def count_reduced_elements(
    x: Tracer, summed: Tracer, dims: tuple[int, ...], keepdims: bool, where: ArrayLike | None
) -> Tracer:
    """Return the number of elements of `x` that contribute to each element of `summed`."""
    if where is None:
        return constant_like(summed, reduction_size(x, dims))
    ones = convert(broadcast(as_mask(where), x.shape), summed.value.type.dtype)
    return emit_reduction("sum", ones, dims, keepdims)


def empty_reduction_error(
    name: str, x: Tracer, remedy: str = "reduce along axes with elements"
) -> ShapeError:
    """Return the error of a reduction over no elements that has no result for them."""
    return ShapeError(
        with_location(f"{name} of no elements, shape {x.shape}, has no result; {remedy}")
    )


def reduction_size(x: Tracer, dims: tuple[int, ...]) -> int:
    """Return the number of elements that a reduction over `dims` combines into one."""
    return int(np.prod([x.shape[d] for d in dims], dtype=np.int64))


def _emit_arg_extreme(op: str, a: ArrayLike, axis: AxisLike, keepdims: object) -> Tracer:
    x = as_tracer(a)
    line = reshape(x, (x.value.type.size,)) if axis is None else x
    dim = 0 if axis is None else canonicalize_axis(axis, x.ndim)
    if line.shape[dim] == 0:
        raise empty_reduction_error(op, x)
    sizes = tuple(n for d, n in enumerate(line.shape) if d != dim)
    kind = TensorType(sizes, canonical_dtype("i64"))
    result: Tracer = emit(op, line, dim=dim, result=kind, weak=False)
    return restore_reduced_dims(result, x, canonicalize_axes(axis, x.ndim)) if keepdims else result


@public(static=("axis", "out", "keepdims"))
def argmax(
    a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool | None = None
) -> Tracer:
    """Return the index of the largest element along `axis`, in the default integer type.

    The first of equal elements, or the first NaN, is returned. Without `axis`, the index is into
    the flattened array. Raise `ShapeError` for no elements.
    """
    check_no_out("argmax", out)
    return _emit_arg_extreme("argmax", a, axis, keepdims)


@public(static=("axis", "out", "keepdims"))
def argmin(
    a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool | None = None
) -> Tracer:
    """Return the index of the smallest element along `axis`, in the default integer type.

    The first of equal elements, or the first NaN, is returned. Without `axis`, the index is into
    the flattened array. Raise `ShapeError` for no elements.
    """
    check_no_out("argmin", out)
    return _emit_arg_extreme("argmin", a, axis, keepdims)


@public(static=("axis", "out", "keepdims"))
def ptp(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False) -> Tracer:
    """Return the largest element minus the smallest one over `axis`."""
    check_no_out("ptp", out)
    return emit_elementwise("sub", max(a, axis, None, keepdims), min(a, axis, None, keepdims))
