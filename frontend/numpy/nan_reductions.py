"""Reductions that ignore NaN."""

from collections.abc import Callable
from typing import Any

import numpy as np

from shardir.frontend.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import axes_of
from shardir.frontend.numpy.floating import is_nan
from shardir.frontend.numpy.pointwise import like, no_out, same, truth
from shardir.frontend.numpy.reductions import (
    any_empty,
    argmax,
    argmin,
    highest,
    lowest,
    max as maximum_of,
    mean,
    min as minimum_of,
    only,
    prod,
    reduced,
    sum as _sum,
)
from shardir.frontend.numpy.statistics import std, var
from shardir.frontend.operands import as_tracer
from shardir.frontend.tracer import Tracer
from shardir.types import INEXACT

STATIC = ("axis", "dtype", "out", "keepdims")


def _numbers(a: Any, where: Any) -> tuple[Tracer, Any]:
    """Return the array, and the mask of its elements that are included."""
    x = as_tracer(a)
    if x.value.type.dtype not in INEXACT:
        return x, where
    found = same("not", is_nan(x))
    return x, found if where is None else truth(where) & found


@public(static=STATIC)
def nansum(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
    initial: Any = None, where: Any = None,
) -> Any:  # fmt: skip
    """Return the `sum` of the elements that are not NaN; 0 if there are none."""
    x, numbers = _numbers(a, where)
    return _sum(x, axis, dtype, out, keepdims, initial, numbers)


@public(static=STATIC)
def nanprod(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
    initial: Any = None, where: Any = None,
) -> Any:  # fmt: skip
    """Return the `prod` of the elements that are not NaN; 1 if there are none."""
    x, numbers = _numbers(a, where)
    return prod(x, axis, dtype, out, keepdims, initial, numbers)


@public(static=STATIC)
def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
    where: Any = None,
) -> Any:  # fmt: skip
    """Return the `mean` of the elements that are not NaN; NaN if there are none."""
    x, numbers = _numbers(a, where)
    return mean(x, axis, dtype, out, keepdims, where=numbers)


@public(static=(*STATIC, "ddof"))
def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
    keepdims: bool = False, where: Any = None, *, mean: Any = None,
) -> Any:  # fmt: skip
    """Return the `var` of the elements that are not NaN; NaN if there are not more than `ddof`."""
    x, numbers = _numbers(a, where)
    return var(x, axis, dtype, out, ddof, keepdims, where=numbers, mean=mean)


@public(static=(*STATIC, "ddof"))
def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
    keepdims: bool = False, where: Any = None, *, mean: Any = None,
) -> Any:  # fmt: skip
    """Return the `std` of the elements that are not NaN; NaN if there are not more than `ddof`."""
    x, numbers = _numbers(a, where)
    return std(x, axis, dtype, out, ddof, keepdims, where=numbers, mean=mean)


@public(static=("axis", "out", "keepdims"))
def nanmax(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
    where: Any = None,
) -> Any:  # fmt: skip
    """Return the `max` of the elements that are not NaN; NaN if there are none."""
    return _extreme("nanmax", maximum_of, lowest, a, axis, out, keepdims, initial, where)


@public(static=("axis", "out", "keepdims"))
def nanmin(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
    where: Any = None,
) -> Any:  # fmt: skip
    """Return the `min` of the elements that are not NaN; NaN if there are none."""
    return _extreme("nanmin", minimum_of, highest, a, axis, out, keepdims, initial, where)


def _extreme(
    name: str, extreme: Callable[..., Any], neutral: Callable[[Tracer], Any], a: Any, axis: Any,
    out: Any, keepdims: bool, initial: Any, where: Any,
) -> Tracer:  # fmt: skip
    no_out(name, out)
    x, numbers = _numbers(a, where)
    if numbers is where:
        return as_tracer(extreme(x, axis, None, keepdims, initial, where))
    dims = axes_of(axis, x.ndim)
    if any_empty(x, dims) and initial is None:
        raise ShapeError(point(f"{name} of no elements, shape {x.shape}, needs initial="))
    start = neutral(x) if initial is None else initial
    found = as_tracer(extreme(only(x, numbers, neutral(x)), axis, None, keepdims, start))
    if initial is not None:
        return found
    some = reduced("any", numbers, dims, keepdims)
    return same("select", some, found, like(found, np.nan))


@public(static=("axis", "out", "keepdims"))
def nanargmax(a: Any, axis: Any = None, out: None = None, keepdims: Any = None) -> Any:
    """Return the index of the largest element that is not NaN; -1 if there is none."""
    return _place("nanargmax", argmax, lowest, a, axis, out, keepdims)


@public(static=("axis", "out", "keepdims"))
def nanargmin(a: Any, axis: Any = None, out: None = None, keepdims: Any = None) -> Any:
    """Return the index of the smallest element that is not NaN; -1 if there is none."""
    return _place("nanargmin", argmin, highest, a, axis, out, keepdims)


def _place(
    name: str, arg_extreme: Callable[..., Any], neutral: Callable[[Tracer], Any], a: Any, axis: Any,
    out: Any, keepdims: Any,
) -> Tracer:  # fmt: skip
    no_out(name, out)
    x, numbers = _numbers(a, None)
    if numbers is None:
        return as_tracer(arg_extreme(x, axis, None, keepdims))
    found = as_tracer(arg_extreme(only(x, numbers, neutral(x)), axis, None, keepdims))
    some = reduced("any", numbers, axes_of(axis, x.ndim), bool(keepdims))
    return same("select", some, found, like(found, -1))
