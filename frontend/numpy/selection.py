"""Elementwise selection between values: maximum, minimum, where, clip, select, piecewise."""

from collections.abc import Callable, Sequence
from typing import Any

from shardir.frontend.composing import composed
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.numpy.comparison import compared
from shardir.frontend.numpy.complexes import is_complex
from shardir.frontend.numpy.floating import is_nan
from shardir.frontend.numpy.pointwise import choose, common, known, pointwise, same, truth
from shardir.frontend.operands import align, as_tracer, broadcast, broadcast_shapes, promote_to
from shardir.frontend.quoting import brief
from shardir.frontend.tracer import Tracer
from shardir.types import INEXACT


@public()
def maximum(x: Any, y: Any, /) -> Any:
    """Return the larger element, elementwise; NaN if either is NaN."""
    return larger("maximum", *align(x, y))


@public()
def minimum(x: Any, y: Any, /) -> Any:
    """Return the smaller element, elementwise; NaN if either is NaN."""
    return larger("minimum", *align(x, y))


def larger(op: str, x: Tracer, y: Tracer) -> Tracer:
    """Emit `maximum` or `minimum`; complex numbers compare lexicographically."""
    if not is_complex(x):
        return same(op, x, y)
    first = compared("ge" if op == "maximum" else "le", x, y)
    return same("select", same("or", is_nan(x), first), x, y)


@public()
def fmax(x: Any, y: Any, /) -> Any:
    """Return the larger element, elementwise; if one is NaN, the other one."""
    return _prefer("maximum", *align(x, y))


@public()
def fmin(x: Any, y: Any, /) -> Any:
    """Return the smaller element, elementwise; if one is NaN, the other one."""
    return _prefer("minimum", *align(x, y))


def _prefer(op: str, x: Tracer, y: Tracer) -> Tracer:
    extreme = larger(op, x, y)
    if x.value.type.dtype not in INEXACT:
        return extreme
    return same("select", is_nan(x), y, same("select", is_nan(y), x, extreme))


@composed()
def where(condition: Any, x: Any = None, y: Any = None, /, **options: Any) -> Any:
    """Return `x` where the condition is true (not zero) and `y` elsewhere; all three broadcast.

    The result has the promoted type of `x` and `y`. With only a condition, return
    `nonzero(condition, **options)`.
    """
    if x is None and y is None:
        from shardir.frontend import numpy as snp

        return snp.nonzero(condition, **options)
    if x is None or y is None or options:
        raise ArgumentError(
            point("where takes a condition, or a condition and two arrays to choose from")
        )
    return _where(condition, x, y)


@public()
def _where(condition: Any, x: Any, y: Any) -> Any:
    return choose(truth(condition), x, y)


@public()
def clip(arr: Any, /, min: Any = None, max: Any = None) -> Any:
    """Clamp `arr` to the range from `min` to `max`, elementwise; each bound is optional.

    If min > max, the result is max. Raise `OperationTypeError` for complex numbers.
    """
    if min is None and max is None:
        return as_tracer(arr)
    if max is None:
        return pointwise("maximum", arr, min)
    if min is None:
        return pointwise("minimum", arr, max)
    return pointwise("minimum", pointwise("maximum", arr, min), max)


@public()
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """Return the choice of the first true condition, elementwise, else `default`."""
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ArgumentError(
            point(
                f"select takes one choice for each condition, got {len(condlist)} conditions and "
                f"{len(choicelist)} choices"
            )
        )
    conditions = [as_tracer(c) for c in condlist]
    choices = known(*choicelist, default)
    kind = common(*choices)
    result = choices[-1]
    for condition, choice in zip(conditions[::-1], choices[-2::-1], strict=True):
        picked, other = promote_to(kind, choice, result)
        result = choose(truth(condition), picked, other)
    return result


@public(static=("funclist", "kw"), cached=False, name="piecewise")
def _piecewise(
    x: Any, condlist: Sequence[Any], funclist: Sequence[Any], args: Any, kw: dict[str, Any]
) -> Any:
    return _pieces(x, condlist, funclist, args, kw)


@public(name="piecewise")
def _piecewise_of_numbers(x: Any, condlist: Sequence[Any], numbers: Sequence[Any]) -> Any:
    return _pieces(x, condlist, numbers, (), {})


def _pieces(
    x: Any, condlist: Sequence[Any], funclist: Sequence[Any], args: Any, kw: dict[str, Any]
) -> Any:
    x = as_tracer(x)
    conditions = [truth(c) for c in condlist]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        raise ArgumentError(
            point(
                f"piecewise takes a function for each of {len(conditions)} conditions, and maybe "
                f"one more for the rest; got {len(funclist)}"
            )
        )

    def value(function: Any) -> Tracer:
        evaluated = function(x, *args, **kw) if callable(function) else function
        return promote_to((x.value.type.dtype, x.weak_type), evaluated)[0]

    rest = funclist[-1] if len(funclist) > len(conditions) else 0
    result = value(rest)
    for condition, function in zip(conditions, funclist, strict=False):
        result = choose(condition, value(function), result)
    return broadcast(result, broadcast_shapes(x.shape, result.shape))


def piecewise(
    x: Any, condlist: Any, funclist: Sequence[Callable[..., Any] | Any], *args: Any, **kw: Any
) -> Any:
    """Apply the function (or constant) of the last true condition to `x`, elementwise.

    With one function more than conditions, the last one applies where no condition is true;
    otherwise the result is 0 there.
    """
    if not isinstance(funclist, (list, tuple)):
        raise ArgumentError(
            point(f"piecewise takes a list of functions and numbers, got {brief(funclist)}")
        )
    conditions = list(condlist) if isinstance(condlist, (list, tuple)) else [condlist]
    if not any(map(callable, funclist)):
        return _piecewise_of_numbers(x, conditions, tuple(funclist))
    return _piecewise(x, conditions, tuple(funclist), args, kw)
