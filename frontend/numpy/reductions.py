"""Reductions over some or all axes: sum, product, extremes, any and all, mean, argmax and argmin.

`axis` is an integer, a tuple of integers or `None` (all axes); `keepdims` keeps reduced axes with
size 1; `where` is a mask of the elements that are included; `initial` is the start value.
"""

from typing import Any

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import axes_of, axis_of
from shardir.frontend.numpy.pointwise import choose, like, no_out, pointwise, same, truth
from shardir.frontend.numpy.rounding import WIDE
from shardir.frontend.operands import as_tracer, broadcast, convert, promote_to, reshape, splat
from shardir.frontend.promotion import canonical, dtype_of, inexact
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import INTEGERS, UNSIGNED, TensorType

STATIC = ("axis", "dtype", "out", "keepdims", "promote_integers")


def reduced(op: str, x: Tracer, dims: tuple[int, ...], keepdims: bool) -> Tracer:
    """Emit one reduction over `dims`; with `keepdims` the reduced dimensions stay with size 1."""
    result: Tracer = emit(op, x, dims=dims) if dims else convert(x, x.value.type.dtype)
    return kept(result, x, dims) if keepdims else result


def kept(result: Tracer, x: Tracer, dims: tuple[int, ...]) -> Tracer:
    """Reshape a value reduced from `x` so that the reduced dimensions have size 1."""
    return reshape(result, [1 if d in dims else n for d, n in enumerate(x.shape)])


def total(dtype: str) -> str:
    """Return the accumulation type of sums and products: at least the default integer type."""
    if dtype == "bool":
        return canonical("i64")
    if dtype in INTEGERS:
        usual = canonical("u64" if dtype in UNSIGNED else "i64")
        return dtype if int(dtype[1:]) > int(usual[1:]) else usual
    return dtype


def only(x: Tracer, where: Any, otherwise: complex) -> Tracer:
    """Replace the elements of `x` that `where` excludes by `otherwise`."""
    if where is None:
        return x
    return choose(truth(where), x, splat(otherwise, TensorType((), x.value.type.dtype)))


def _accumulated(
    name: str, op: str, combine: str, neutral: int, a: Any, axis: Any, dtype: Any, out: Any,
    keepdims: bool, initial: Any, where: Any, promote: bool,
) -> Any:  # fmt: skip
    no_out(name, out)
    x = as_tracer(a)
    if dtype is not None:
        x = convert(x, dtype_of(dtype))
    elif promote or x.value.type.dtype == "bool":
        x = convert(x, total(x.value.type.dtype))
    x = only(x, where, neutral)
    result = reduced(op, x, axes_of(axis, x.ndim), keepdims)
    return result if initial is None else started(combine, result, initial)


def started(combine: str, result: Tracer, initial: Any) -> Tracer:
    """Combine the result of a reduction with its initial value.

    As in NumPy and JAX, the initial value is converted to the element type of the reduction.
    """
    (start,) = promote_to((result.value.type.dtype, result.weak_type), initial)
    return pointwise(combine, result, start)


@public(static=STATIC)
def sum(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
    initial: Any = None, where: Any = None, promote_integers: bool = True,
) -> Any:  # fmt: skip
    """Return the sum of elements over `axis`.

    Bools and integers narrower than the default integer type are summed in that type, unless
    `dtype` is given or `promote_integers` is false.
    """
    return _accumulated(
        "sum", "sum", "add", 0, a, axis, dtype, out, keepdims, initial, where, promote_integers
    )


@public(static=STATIC)
def prod(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
    initial: Any = None, where: Any = None, promote_integers: bool = True,
) -> Any:  # fmt: skip
    """Return the product of elements over `axis`.

    Bools and integers narrower than the default integer type are multiplied in that type, unless
    `dtype` is given or `promote_integers` is false.
    """
    return _accumulated(
        "prod", "prod", "mul", 1, a, axis, dtype, out, keepdims, initial, where, promote_integers
    )


def _extreme(
    name: str, a: Any, axis: Any, out: Any, keepdims: bool, initial: Any, where: Any
) -> Any:
    no_out(name, out)
    x = as_tracer(a)
    dims = axes_of(axis, x.ndim)
    if initial is None and any_empty(x, dims):
        raise ShapeError(point(f"{name} of no elements, shape {x.shape}, needs initial="))
    if where is not None:
        if initial is None:
            raise OperationTypeError(point(f"{name} with where= needs initial="))
        x = only(x, where, lowest(x) if name == "max" else highest(x))
    result = reduced(name, x, dims, keepdims)
    return result if initial is None else started(f"{name}imum", result, initial)


def any_empty(x: Tracer, dims: tuple[int, ...]) -> bool:
    """Return whether a reduction over `dims` has no elements to reduce."""
    return 0 in [x.shape[d] for d in dims]


def lowest(x: Tracer) -> Any:
    """Return the smallest value of the element type of `x`; -inf for floats."""
    dtype = x.value.type.numpy
    if dtype == np.bool_:
        return False
    return int(np.iinfo(dtype).min) if dtype.kind in "iu" else -np.inf


def highest(x: Tracer) -> Any:
    """Return the largest value of the element type of `x`; inf for floats."""
    dtype = x.value.type.numpy
    if dtype == np.bool_:
        return True
    return int(np.iinfo(dtype).max) if dtype.kind in "iu" else np.inf


@public(static=("axis", "out", "keepdims"))
def max(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
    where: Any = None,
) -> Any:  # fmt: skip
    """Return the largest element over `axis`; NaN if an element is NaN.

    Raise `ShapeError` for an empty reduction without `initial`.
    """
    return _extreme("max", a, axis, out, keepdims, initial, where)


@public(static=("axis", "out", "keepdims"))
def min(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
    where: Any = None,
) -> Any:  # fmt: skip
    """Return the smallest element over `axis`; NaN if an element is NaN.

    Raise `ShapeError` for an empty reduction without `initial`.
    """
    return _extreme("min", a, axis, out, keepdims, initial, where)


amax, amin = max, min


@public(static=("axis", "out", "keepdims"))
def any(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
) -> Any:
    """Return whether at least one element over `axis` is true (not zero), as bools."""
    no_out("any", out)
    x = only(truth(a), where, False)
    return reduced("any", x, axes_of(axis, x.ndim), keepdims)


@public(static=("axis", "out", "keepdims"))
def all(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
) -> Any:
    """Return whether every element over `axis` is true (not zero), as bools."""
    no_out("all", out)
    x = only(truth(a), where, True)
    return reduced("all", x, axes_of(axis, x.ndim), keepdims)


@public(static=("axis", "keepdims"))
def count_nonzero(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the number of elements over `axis` that are not zero, in the default integer type."""
    x = convert(truth(a), canonical("i64"))
    return reduced("sum", x, axes_of(axis, x.ndim), keepdims)


@public(static=("axis", "dtype", "out", "keepdims"))
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, *,
    where: Any = None,
) -> Any:  # fmt: skip
    """Return the arithmetic mean over `axis`.

    The mean of integers is a float. Half-precision floats are accumulated in float32.
    """
    no_out("mean", out)
    x = as_tracer(a)
    name = inexact(x.value.type.dtype) if dtype is None else dtype_of(dtype)
    return averaged(x, name, axes_of(axis, x.ndim), keepdims, where)


def averaged(
    x: Tracer, name: str, dims: tuple[int, ...], keepdims: bool, where: Any = None
) -> Tracer:
    """Return the mean over `dims` in the element type `name`."""
    wide = convert(x, WIDE.get(name, name))
    summed = reduced("sum", only(wide, where, 0), dims, keepdims)
    return convert(same("div", summed, counted(x, summed, dims, keepdims, where)), name)


def counted(x: Tracer, summed: Tracer, dims: tuple[int, ...], keepdims: bool, where: Any) -> Tracer:
    """Return the number of elements of `x` that contribute to each element of `summed`."""
    if where is None:
        return like(summed, size_of(x, dims))
    ones = convert(broadcast(truth(where), x.shape), summed.value.type.dtype)
    return reduced("sum", ones, dims, keepdims)


def size_of(x: Tracer, dims: tuple[int, ...]) -> int:
    """Return the number of elements that a reduction over `dims` combines into one."""
    return int(np.prod([x.shape[d] for d in dims], dtype=np.int64))


def _best(op: str, a: Any, axis: Any, keepdims: Any) -> Tracer:
    x = as_tracer(a)
    line = reshape(x, (x.value.type.size,)) if axis is None else x
    dim = 0 if axis is None else axis_of(axis, x.ndim)
    if line.shape[dim] == 0:
        raise ShapeError(point(f"{op} of no elements, shape {x.shape}"))
    sizes = tuple(n for d, n in enumerate(line.shape) if d != dim)
    result: Tracer = emit(op, line, dim=dim, result=TensorType(sizes, canonical("i64")))
    return kept(result, x, axes_of(axis, x.ndim)) if keepdims else result


@public(static=("axis", "out", "keepdims"))
def argmax(a: Any, axis: Any = None, out: None = None, keepdims: Any = None) -> Any:
    """Return the index of the largest element along `axis`, in the default integer type.

    The first of equal elements, or the first NaN, is returned. Without `axis`, the index is into
    the flattened array. Raise `ShapeError` for no elements.
    """
    no_out("argmax", out)
    return _best("argmax", a, axis, keepdims)


@public(static=("axis", "out", "keepdims"))
def argmin(a: Any, axis: Any = None, out: None = None, keepdims: Any = None) -> Any:
    """Return the index of the smallest element along `axis`, in the default integer type.

    The first of equal elements, or the first NaN, is returned. Without `axis`, the index is into
    the flattened array. Raise `ShapeError` for no elements.
    """
    no_out("argmin", out)
    return _best("argmin", a, axis, keepdims)


@public(static=("axis", "out", "keepdims"))
def ptp(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
    """Return the largest element minus the smallest one over `axis`."""
    no_out("ptp", out)
    return same("sub", max(a, axis, None, keepdims), min(a, axis, None, keepdims))
