"""Sums of exponentials, normalized by the largest element to prevent overflow.

The largest element carries no derivative, because it cancels.
"""

from operator import index

import numpy as np

from shardir.caller_warnings import warn_caller
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike, DTypeLike
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.nn.activations import promote_to_float
from shardir.frontend.numpy.elementwise import comparison, complex_parts, math_functions
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.reductions.basic_reductions import (
    as_mask,
    emit_reduction,
    mask_elements,
    reduction_size,
    restore_reduced_dims,
)
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.numpy.tracer_helpers import inspection
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes, canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import broadcast_back, broadcast_in_dim
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    emit_elementwise,
    inexact_kind,
    is_complex,
)
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, promote_to
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import COMPLEX, FLOATS, TensorType


def _subtract_max(
    x: Tracer, dims: tuple[int, ...], where: ArrayLike | None
) -> tuple[Tracer, Tracer | None]:
    """Subtract the largest element over `dims`; excluded elements become -inf.

    Return also whether each reduction has an included element (`None`: all have).
    """
    included = mask_elements(x, where, -np.inf)
    top: Tracer = emit("stop_gradient", emit_reduction("max", included, dims, False))
    has_included = None
    if where is not None:
        has_included = emit_reduction(
            "any", as_tracer(reshaping.broadcast_to(as_mask(where), x.shape)), dims, False
        )
        top = emit_elementwise("select", has_included, top, constant_like(top, 0))
    return emit_elementwise("sub", included, broadcast_back(top, x, dims)), has_included


@public(static=("axis",))
def softmax(x: ArrayLike, axis: AxisLike = -1, where: ArrayLike | None = None) -> Tracer:
    """Return exp(x) divided by its sum along `axis`; 0 for elements that `where` excludes."""
    x = promote_to_float(x)
    dims = canonicalize_axes(axis, x.ndim)
    shifted, has_included = _subtract_max(x, dims, where)
    parts = emit_elementwise("exp", shifted)
    total = emit_reduction("sum", parts, dims, False)
    if has_included is not None:
        total = emit_elementwise("select", has_included, total, constant_like(total, 1))
    return emit_elementwise("div", parts, broadcast_back(total, x, dims))


@public(static=("axis",))
def log_softmax(x: ArrayLike, axis: AxisLike = -1, where: ArrayLike | None = None) -> Tracer:
    """Return log(softmax(x)) without underflow; -inf for elements that `where` excludes."""
    x = promote_to_float(x)
    dims = canonicalize_axes(axis, x.ndim)
    shifted, has_included = _subtract_max(x, dims, where)
    total = emit_reduction("sum", emit_elementwise("exp", shifted), dims, False)
    if has_included is not None:
        total = emit_elementwise("select", has_included, total, constant_like(total, 1))
    return emit_elementwise("sub", shifted, broadcast_back(emit_elementwise("log", total), x, dims))


@public(static=("axis", "keepdims", "return_sign"))
def logsumexp(
    a: ArrayLike, axis: AxisLike = None, b: ArrayLike | None = None, keepdims: bool = False,
    return_sign: bool = False, where: ArrayLike | None = None,
) -> PyTree:  # fmt: skip
    """Return log(sum(b * exp(a))) along `axis` without overflow and underflow.

    The result is NaN if the sum is negative; `return_sign` returns (log of its absolute value,
    sign). The sign of a complex sum is a number of absolute value 1.
    """
    kind = inexact_kind(a) if b is None else inexact_kind(a, b)
    (x,) = promote_to(kind, a)
    if b is not None:
        x = reshaping.broadcast_to(x, reshaping.broadcast_shapes(x.shape, inspection.shape(b)))
    dims = canonicalize_axes(axis, x.ndim)
    included = mask_elements(x, where, -np.inf)
    if b is not None:
        included = mask_elements(included, comparison.not_equal(b, 0), -np.inf)
    real = emit_elementwise("real", included) if is_complex(included) else included
    top = emit_reduction("max", real, dims, False)
    # The difference of infinities would be NaN.
    top = emit_elementwise("select", emit_elementwise("is_finite", top), top, constant_like(top, 0))
    top = emit("stop_gradient", top)
    shift = broadcast_back(convert(top, x.value.type.dtype), x, dims)
    parts = emit_elementwise("exp", emit_elementwise("sub", included, shift))
    total = emit_reduction("sum", parts if b is None else parts * b, dims, False)
    signs = emit_elementwise("sign", total) if return_sign else None
    size = emit_elementwise("abs", total) if return_sign else total
    logarithm = emit_elementwise("log", size)
    result = emit_elementwise("add", logarithm, convert(top, logarithm.value.type.dtype))
    if keepdims:
        result = restore_reduced_dims(result, x, dims)
    if signs is None:
        return result
    return result, restore_reduced_dims(signs, x, dims) if keepdims else signs


@public(static=("axis", "keepdims"))
def logmeanexp(
    x: ArrayLike, axis: AxisLike = None, where: ArrayLike | None = None, keepdims: bool = False
) -> Tracer:
    """Return log(mean(exp(x))) along `axis`."""
    total = as_tracer(logsumexp(x, axis, None, keepdims, False, where))
    v = as_tracer(x)
    dims = canonicalize_axes(axis, v.ndim)
    if where is None:
        return total - float(np.log(reduction_size(v, dims)))
    ones = reshaping.broadcast_to(convert(as_mask(where), total.value.type.dtype), v.shape)
    return total - math_functions.log(basic_reductions.sum(ones, axis, keepdims=keepdims))


@public(static=("axis", "epsilon", "algorithm"))
def standardize(
    x: ArrayLike, axis: AxisLike = -1, mean: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    epsilon: float = 1e-5, where: ArrayLike | None = None, *, algorithm: str = "stable",
) -> Tracer:  # fmt: skip
    """Return (x - mean) / sqrt(variance + epsilon), with both along `axis` unless given.

    The variance is the mean squared difference from the mean for both values of `algorithm`
    ("stable" and "fast").
    """
    if algorithm not in ("stable", "fast"):
        raise ArgumentError(with_location(f"algorithm is 'stable' or 'fast', got {algorithm!r}"))
    x = promote_to_float(x)
    if mean is None:
        mean = basic_reductions.mean(x, axis, keepdims=True, where=where)
    deviation = x - as_tracer(mean)
    if variance is None:
        variance = basic_reductions.mean(
            complex_parts.square(deviation), axis, keepdims=True, where=where
        )
    elif not is_number(variance):
        variance = as_tracer(variance)
    return deviation * emit_elementwise("rsqrt", promote_to_float(variance + epsilon))


@public(static=("num_classes", "dtype", "axis"))
def one_hot(
    x: ArrayLike, num_classes: int, *, dtype: DTypeLike | None = None, axis: int = -1
) -> Tracer:
    """Return a new axis of `num_classes` elements: 1 at the index that `x` contains, 0 elsewhere.

    An index out of range gives only zeros. The element type is the default floating type, or
    `dtype`. Floating-point indices are deprecated, as in JAX.
    """
    x = as_tracer(x)
    if x.value.type.dtype in (*FLOATS, *COMPLEX):
        warn_caller(
            with_location(
                f"one_hot takes integers, got {x.value.type}; convert them with .astype(int)"
            ),
            DeprecationWarning,
        )
    count = index(num_classes)
    dim = canonicalize_axis(axis, x.ndim + 1)
    shape = (*x.shape[:dim], count, *x.shape[dim:])
    name = dtype_of(float if dtype is None else dtype)
    classes: Tracer = emit("iota", dim=dim, result=TensorType(shape, x.value.type.dtype))
    indices = broadcast_in_dim(x, shape, [d for d in range(len(shape)) if d != dim])
    return convert(emit_elementwise("eq", indices, classes), name)
