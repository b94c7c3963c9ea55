"""Elementwise comparisons and logic, which return bools."""

from typing import Any

from shardir.frontend.eager import public
from shardir.frontend.numpy.complexes import is_complex
from shardir.frontend.numpy.floating import is_nan
from shardir.frontend.numpy.pointwise import (
    Binary,
    fitted,
    inexact,
    pointwise,
    same,
    truth,
)
from shardir.frontend.operands import (
    align,
    as_tracer,
    splat,
)
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import INEXACT, TensorType


def _comparison(name: str, op: str, sign: str) -> Binary:
    def function(x: Any, y: Any, /) -> Any:
        return compared(op, *align(x, y))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return x {sign} y, elementwise, as bools."
    return public()(function)


def compared(op: str, x: Tracer, y: Tracer) -> Tracer:
    """Emit a comparison; complex numbers compare by real part, then by imaginary part."""
    if not is_complex(x) or op in ("eq", "ne"):
        return same(op, x, y)
    (a, b), (c, d) = ((same("real", v), same("imag", v)) for v in (x, y))
    return same("select", same("eq", a, c), same(op, b, d), same(op[0] + "t", a, c))


equal = _comparison("equal", "eq", "==")
not_equal = _comparison("not_equal", "ne", "!=")
less = _comparison("less", "lt", "<")
less_equal = _comparison("less_equal", "le", "<=")
greater = _comparison("greater", "gt", ">")
greater_equal = _comparison("greater_equal", "ge", ">=")


def _logic(name: str, op: str, meaning: str) -> Binary:
    def function(x: Any, y: Any, /) -> Any:
        return pointwise(op, truth(x), truth(y))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return whether {meaning} true (not zero), elementwise, as bools."
    return public()(function)


logical_and = _logic("logical_and", "and", "both are")
logical_or = _logic("logical_or", "or", "one or both are")
logical_xor = _logic("logical_xor", "xor", "exactly one is")


@public()
def logical_not(x: Any, /) -> Any:
    """Return whether each element is false (zero), as bools."""
    return same("not", truth(x))


@public(static=("equal_nan",))
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Return whether |a - b| <= atol + rtol * |b|, elementwise; equal infinities are close.

    With `equal_nan`, NaN is close to NaN.
    """
    x, y = align(a, b, kind=inexact(a, b))
    gap, size = same("abs", same("sub", x, y)), same("abs", y)
    kind = (size.value.type.dtype, False)
    slack, part = fitted(size.shape, kind, atol, rtol)
    near = same("le", gap, same("add", slack, same("mul", part, size)))
    # An infinity is within an infinite tolerance, so that both elements must be finite.
    close = same("or", same("eq", x, y), same("and", near, same("is_finite", y)))
    if equal_nan:
        close = same("or", close, same("and", is_nan(x), is_nan(y)))
    return close


@public(static=("equal_nan",))
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Return whether all elements are close in the sense of `isclose`, as a scalar bool."""
    close = as_tracer(isclose(a, b, rtol, atol, equal_nan))
    result: Tracer = emit("all", close, dims=tuple(range(close.ndim)))
    return result


@public(static=("equal_nan",))
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Return whether shapes and all elements are equal, as a scalar bool.

    NaN is equal to NaN only with `equal_nan`.
    """
    x, y = as_tracer(a1), as_tracer(a2)
    if x.shape != y.shape:
        return splat(False, TensorType((), "bool"))
    return _all_equal(x, y, equal_nan)


@public()
def array_equiv(a1: Any, a2: Any) -> Any:
    """Return whether all elements are equal after broadcasting, as a scalar bool."""
    x, y = as_tracer(a1), as_tracer(a2)
    for n, m in zip(x.shape[::-1], y.shape[::-1], strict=False):
        if n != m and 1 not in (n, m):
            return splat(False, TensorType((), "bool"))
    return _all_equal(x, y, False)


def _all_equal(x: Tracer, y: Tracer, equal_nan: bool) -> Tracer:
    x, y = align(x, y)
    equal = same("eq", x, y)
    if equal_nan and x.value.type.dtype in INEXACT:
        equal = same("or", equal, same("and", is_nan(x), is_nan(y)))
    result: Tracer = emit("all", equal, dims=tuple(range(equal.ndim)))
    return result
