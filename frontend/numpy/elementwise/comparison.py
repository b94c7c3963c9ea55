"""Elementwise comparisons and logic, which return bools."""

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    Binary,
    apply_elementwise,
    as_bool,
    convert_and_broadcast,
    emit_elementwise,
    emit_isnan,
    inexact_kind,
)
from shardir.frontend.tracing.operands import align, as_tracer, splat
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import INEXACT, TensorType


def _define_comparison(name: str, op: str, sign: str) -> Binary:
    def function(x: ArrayLike, y: ArrayLike, /) -> Tracer:
        return apply_elementwise(op, x, y)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return x {sign} y, elementwise, as bools."
    return public()(function)


equal = _define_comparison("equal", "eq", "==")
not_equal = _define_comparison("not_equal", "ne", "!=")
less = _define_comparison("less", "lt", "<")
less_equal = _define_comparison("less_equal", "le", "<=")
greater = _define_comparison("greater", "gt", ">")
greater_equal = _define_comparison("greater_equal", "ge", ">=")


def _define_logic(name: str, op: str, meaning: str) -> Binary:
    def function(x: ArrayLike, y: ArrayLike, /) -> Tracer:
        return apply_elementwise(op, as_bool(x), as_bool(y))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return whether {meaning} true (not zero), elementwise, as bools."
    return public()(function)


logical_and = _define_logic("logical_and", "and", "both are")
logical_or = _define_logic("logical_or", "or", "one or both are")
logical_xor = _define_logic("logical_xor", "xor", "exactly one is")


@public()
def logical_not(x: ArrayLike, /) -> Tracer:
    """Return whether each element is false (zero), as bools."""
    return emit_elementwise("not", as_bool(x))


@public(static=("equal_nan",))
def isclose(
    a: ArrayLike, b: ArrayLike, rtol: object = 1e-05, atol: object = 1e-08, equal_nan: bool = False
) -> Tracer:
    """Return whether |a - b| <= atol + rtol * |b|, elementwise; equal infinities are close.

    With `equal_nan`, NaN is close to NaN.
    """
    x, y = align(a, b, kind=inexact_kind(a, b))
    gap, size = emit_elementwise("abs", emit_elementwise("sub", x, y)), emit_elementwise("abs", y)
    kind = (size.value.type.dtype, False)
    slack, part = convert_and_broadcast(size.shape, kind, atol, rtol)
    near = emit_elementwise(
        "le", gap, emit_elementwise("add", slack, emit_elementwise("mul", part, size))
    )
    # An infinity is within an infinite tolerance, so that both elements must be finite.
    close = emit_elementwise(
        "or",
        emit_elementwise("eq", x, y),
        emit_elementwise("and", near, emit_elementwise("is_finite", y)),
    )
    if equal_nan:
        close = emit_elementwise("or", close, emit_elementwise("and", emit_isnan(x), emit_isnan(y)))
    return close


@public(static=("equal_nan",))
def allclose(
    a: ArrayLike, b: ArrayLike, rtol: object = 1e-05, atol: object = 1e-08, equal_nan: bool = False
) -> Tracer:
    """Return whether all elements are close in the sense of `isclose`, as a scalar bool."""
    close = as_tracer(isclose(a, b, rtol, atol, equal_nan))
    result: Tracer = emit("all", close, dims=tuple(range(close.ndim)))
    return result


@public(static=("equal_nan",))
def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Tracer:
    """Return whether shapes and all elements are equal, as a scalar bool.

    NaN is equal to NaN only with `equal_nan`.
    """
    x, y = as_tracer(a1), as_tracer(a2)
    if x.shape != y.shape:
        return splat(False, TensorType((), "bool"))
    return _all_equal(x, y, equal_nan)


@public()
def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Tracer:
    """Return whether all elements are equal after broadcasting, as a scalar bool."""
    x, y = as_tracer(a1), as_tracer(a2)
    for n, m in zip(x.shape[::-1], y.shape[::-1], strict=False):
        if n != m and 1 not in (n, m):
            return splat(False, TensorType((), "bool"))
    return _all_equal(x, y, False)


def _all_equal(x: Tracer, y: Tracer, equal_nan: bool) -> Tracer:
    x, y = align(x, y)
    equal = emit_elementwise("eq", x, y)
    if equal_nan and x.value.type.dtype in INEXACT:
        equal = emit_elementwise("or", equal, emit_elementwise("and", emit_isnan(x), emit_isnan(y)))
    result: Tracer = emit("all", equal, dims=tuple(range(equal.ndim)))
    return result
