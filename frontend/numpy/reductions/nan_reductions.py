"""Reductions that ignore NaN."""

from collections.abc import Callable

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike, AxisLike, DTypeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.reductions.basic_reductions import (
    argmax,
    argmin,
    as_mask,
    emit_reduction,
    empty_reduction_error,
    highest_of_dtype,
    is_empty_reduction,
    lowest_of_dtype,
    mask_elements,
    max as maximum_of,
    mean,
    min as minimum_of,
    prod,
    sum as _sum,
)
from shardir.frontend.numpy.reductions.statistics import std, var
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    check_no_out,
    constant_like,
    emit_elementwise,
    emit_isnan,
)
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import INEXACT

NAN_REDUCTION_STATIC_ARGNAMES = ("axis", "dtype", "out", "keepdims")


def _mask_nan(a: ArrayLike, where: ArrayLike | None) -> tuple[Tracer, ArrayLike | None]:
    """Return the array, and the mask of its elements that are included."""
    x = as_tracer(a)
    if x.value.type.dtype not in INEXACT:
        return x, where
    found = emit_elementwise("not", emit_isnan(x))
    return x, found if where is None else as_mask(where) & found


@public(static=NAN_REDUCTION_STATIC_ARGNAMES)
def nansum(
    a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the `sum` of the elements that are not NaN; 0 if there are none."""
    x, numbers = _mask_nan(a, where)
    return _sum(x, axis, dtype, out, keepdims, initial, numbers)


@public(static=NAN_REDUCTION_STATIC_ARGNAMES)
def nanprod(
    a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the `prod` of the elements that are not NaN; 1 if there are none."""
    x, numbers = _mask_nan(a, where)
    return prod(x, axis, dtype, out, keepdims, initial, numbers)


@public(static=NAN_REDUCTION_STATIC_ARGNAMES)
def nanmean(
    a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
    keepdims: bool = False, where: ArrayLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the `mean` of the elements that are not NaN; NaN if there are none."""
    x, numbers = _mask_nan(a, where)
    return mean(x, axis, dtype, out, keepdims, where=numbers)


@public(static=(*NAN_REDUCTION_STATIC_ARGNAMES, "ddof"))
def nanvar(
    a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
    ddof: float = 0, keepdims: bool = False, where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the `var` of the elements that are not NaN; NaN if there are not more than `ddof`."""
    x, numbers = _mask_nan(a, where)
    return var(x, axis, dtype, out, ddof, keepdims, where=numbers, mean=mean)


@public(static=(*NAN_REDUCTION_STATIC_ARGNAMES, "ddof"))
def nanstd(
    a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
    ddof: float = 0, keepdims: bool = False, where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the `std` of the elements that are not NaN; NaN if there are not more than `ddof`."""
    x, numbers = _mask_nan(a, where)
    return std(x, axis, dtype, out, ddof, keepdims, where=numbers, mean=mean)


@public(static=("axis", "out", "keepdims"))
def nanmax(
    a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the `max` of the elements that are not NaN; NaN if there are none."""
    return _nan_extreme(
        "nanmax", maximum_of, lowest_of_dtype, a, axis, out, keepdims, initial, where
    )


@public(static=("axis", "out", "keepdims"))
def nanmin(
    a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the `min` of the elements that are not NaN; NaN if there are none."""
    return _nan_extreme(
        "nanmin", minimum_of, highest_of_dtype, a, axis, out, keepdims, initial, where
    )


def _nan_extreme(
    name: str, extreme: UserFunction, neutral: Callable[[Tracer], PyTree], a: ArrayLike,
    axis: AxisLike, out: object, keepdims: bool, initial: ArrayLike | None, where: ArrayLike | None,
) -> Tracer:  # fmt: skip
    check_no_out(name, out)
    x, numbers = _mask_nan(a, where)
    if numbers is where:
        return as_tracer(extreme(x, axis, None, keepdims, initial, where))
    dims = canonicalize_axes(axis, x.ndim)
    if is_empty_reduction(x, dims) and initial is None:
        raise empty_reduction_error(name, x, "pass initial=")
    start = neutral(x) if initial is None else initial
    result = as_tracer(extreme(mask_elements(x, numbers, neutral(x)), axis, None, keepdims, start))
    if initial is not None:
        return result
    some = emit_reduction("any", as_tracer(numbers), dims, keepdims)
    return emit_elementwise("select", some, result, constant_like(result, np.nan))


@public(static=("axis", "out", "keepdims"))
def nanargmax(
    a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool | None = None
) -> Tracer:
    """Return the index of the largest element that is not NaN; -1 if there is none."""
    return _nan_arg_extreme("nanargmax", argmax, lowest_of_dtype, a, axis, out, keepdims)


@public(static=("axis", "out", "keepdims"))
def nanargmin(
    a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool | None = None
) -> Tracer:
    """Return the index of the smallest element that is not NaN; -1 if there is none."""
    return _nan_arg_extreme("nanargmin", argmin, highest_of_dtype, a, axis, out, keepdims)


def _nan_arg_extreme(
    name: str, arg_extreme: UserFunction, neutral: Callable[[Tracer], PyTree], a: ArrayLike,
    axis: AxisLike, out: object, keepdims: object,
) -> Tracer:  # fmt: skip
    check_no_out(name, out)
    x, numbers = _mask_nan(a, None)
    if numbers is None:
        return as_tracer(arg_extreme(x, axis, None, keepdims))
    found = as_tracer(arg_extreme(mask_elements(x, numbers, neutral(x)), axis, None, keepdims))
    dims = canonicalize_axes(axis, x.ndim)
    some = emit_reduction("any", as_tracer(numbers), dims, bool(keepdims))
    return emit_elementwise("select", some, found, constant_like(found, -1))
