"""Sums of exponentials, normalized by the largest element to prevent overflow.

The largest element carries no derivative, because it cancels.
"""

from operator import index
from typing import Any

import numpy as np

from shardir.frontend import numpy as snp
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.nn.activations import floating
from shardir.frontend.numpy.axes import axes_of, axis_of
from shardir.frontend.numpy.layout import back, spread
from shardir.frontend.numpy.pointwise import inexact, like, same, truth
from shardir.frontend.numpy.reductions import kept, only, reduced, size_of
from shardir.frontend.operands import as_tracer, convert, promote_to
from shardir.frontend.promotion import dtype_of
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import TensorType


def _relative(x: Tracer, dims: tuple[int, ...], where: Any) -> tuple[Tracer, Tracer | None]:
    """Subtract the largest element over `dims`; excluded elements become -inf.

    Return also whether each reduction has an included element (`None`: all have).
    """
    included = only(x, where, -np.inf)
    top: Tracer = emit("stop_gradient", reduced("max", included, dims, False))
    has_included = None
    if where is not None:
        has_included = reduced(
            "any", as_tracer(snp.broadcast_to(truth(where), x.shape)), dims, False
        )
        top = same("select", has_included, top, like(top, 0))
    return same("sub", included, back(top, x, dims)), has_included


@public(static=("axis",))
def softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """Return exp(x) divided by its sum along `axis`; 0 for elements that `where` excludes."""
    x = floating(x)
    dims = axes_of(axis, x.ndim)
    shifted, has_included = _relative(x, dims, where)
    parts = same("exp", shifted)
    total = reduced("sum", parts, dims, False)
    if has_included is not None:
        total = same("select", has_included, total, like(total, 1))
    return same("div", parts, back(total, x, dims))


@public(static=("axis",))
def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """Return log(softmax(x)) without underflow; -inf for elements that `where` excludes."""
    x = floating(x)
    dims = axes_of(axis, x.ndim)
    shifted, has_included = _relative(x, dims, where)
    total = reduced("sum", same("exp", shifted), dims, False)
    if has_included is not None:
        total = same("select", has_included, total, like(total, 1))
    return same("sub", shifted, back(same("log", total), x, dims))


@public(static=("axis", "keepdims", "return_sign"))
def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False,
    where: Any = None,
) -> Any:  # fmt: skip
    """Return log(sum(b * exp(a))) along `axis` without overflow and underflow.

    The result is NaN if the sum is negative; `return_sign` returns (log of its absolute value,
    sign).
    """
    kind = inexact(a) if b is None else inexact(a, b)
    (x,) = promote_to(kind, a)
    if b is not None:
        x = snp.broadcast_to(x, snp.broadcast_shapes(x.shape, snp.shape(b)))
    dims = axes_of(axis, x.ndim)
    included = only(x, where, -np.inf)
    if b is not None:
        included = only(included, snp.not_equal(b, 0), -np.inf)
    top = reduced("max", included, dims, False)
    # The difference of infinities would be NaN.
    top = same("select", same("is_finite", top), top, like(top, 0))
    top = emit("stop_gradient", top)
    parts = same("exp", same("sub", included, back(top, x, dims)))
    total = reduced("sum", parts if b is None else parts * b, dims, False)
    signs = same("sign", total) if return_sign else None
    size = same("abs", total) if return_sign else total
    found = same("add", same("log", size), top)
    if keepdims:
        found = kept(found, x, dims)
    if signs is None:
        return found
    return found, kept(signs, x, dims) if keepdims else signs


@public(static=("axis", "keepdims"))
def logmeanexp(a: Any, axis: Any = None, keepdims: bool = False, where: Any = None) -> Any:
    """Return log(mean(exp(a))) along `axis`."""
    total = as_tracer(logsumexp(a, axis, None, keepdims, False, where))
    x = as_tracer(a)
    dims = axes_of(axis, x.ndim)
    if where is None:
        return total - float(np.log(size_of(x, dims)))
    ones = snp.broadcast_to(convert(truth(where), total.value.type.dtype), x.shape)
    return total - snp.log(snp.sum(ones, axis, keepdims=keepdims))


@public(static=("axis", "epsilon", "algorithm"))
def standardize(
    x: Any, axis: Any = -1, mean: Any = None, variance: Any = None, epsilon: float = 1e-5,
    where: Any = None, *, algorithm: str = "stable",
) -> Any:  # fmt: skip
    """Return (x - mean) / sqrt(variance + epsilon), with both along `axis` unless given.

    The variance is the mean squared difference from the mean for both values of `algorithm`
    ("stable" and "fast").
    """
    if algorithm not in ("stable", "fast"):
        raise ArgumentError(point(f"algorithm is 'stable' or 'fast', got {algorithm!r}"))
    x = floating(x)
    if mean is None:
        mean = snp.mean(x, axis, keepdims=True, where=where)
    if variance is None:
        variance = snp.mean(snp.square(x - mean), axis, keepdims=True, where=where)
    return (x - mean) * same("rsqrt", floating(variance + epsilon))


@public(static=("num_classes", "dtype", "axis"))
def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: int = -1) -> Any:
    """Return a new axis of `num_classes` elements: 1 at the index that `x` contains, 0 elsewhere.

    An index out of range gives only zeros. The element type is the default floating type, or
    `dtype`.
    """
    x = as_tracer(x)
    count = index(num_classes)
    dim = axis_of(axis, x.ndim + 1)
    shape = (*x.shape[:dim], count, *x.shape[dim:])
    name = dtype_of(float if dtype is None else dtype)
    classes: Tracer = emit("iota", dim=dim, result=TensorType(shape, x.value.type.dtype))
    indices = spread(x, shape, [d for d in range(len(shape)) if d != dim])
    return convert(same("eq", indices, classes), name)
