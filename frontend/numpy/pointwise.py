"""Helpers of elementwise functions: promote the operands, broadcast them, emit one operation."""

from collections.abc import Callable
from typing import Any

from shardir.errors import OperationTypeError
from shardir.frontend import promotion
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.operands import (
    align,
    as_tracer,
    broadcast,
    broadcast_shapes,
    convert,
    is_number,
    kind_of,
    splat,
)
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import COMPLEX, INEXACT, TensorType

Kind = tuple[str, bool]
"""An element type and whether it is weakly typed."""

TELLING = ("eq", "ne", "lt", "le", "gt", "ge", "is_finite")
"""Operations that return bools, which are never weakly typed."""

Unary = Callable[[Any], Any]
Binary = Callable[[Any, Any], Any]


def same(op: str, *operands: Tracer) -> Tracer:
    """Emit `op` on operands of one type.

    The result is weakly typed if all operands other than bools are weakly typed and `op` does not
    return bools.
    """
    numbers = [x.weak_type for x in operands if x.value.type.dtype != "bool"]
    weak = bool(numbers) and all(numbers) and op not in TELLING
    result: Tracer = emit(op, *operands, weak=weak)
    return result


def pointwise(op: str, *xs: Any, kind: Kind | None = None) -> Tracer:
    """Promote the operands (or convert them to `kind`), broadcast them, and emit `op`."""
    return same(op, *align(*xs, kind=kind))


def known(*xs: Any) -> tuple[Any, ...]:
    """Return the operands as tracers, except Python scalars, which stay as they are."""
    return tuple(x if is_number(x) else as_tracer(x) for x in xs)


def common(*xs: Any) -> Kind:
    """Return the element type and weak type to which the operands promote."""
    return promotion.result_type(*map(kind_of, known(*xs)))


def inexact(*xs: Any) -> Kind:
    """Return the promoted element type, converted to a floating type if it is bool or integer."""
    name, weak = common(*xs)
    return promotion.inexact(name), weak


def usual_float(x: Any) -> Kind:
    """Return the element type of `x`, or the default floating type if that is bool or integer."""
    name, weak = common(x)
    return (name if name in INEXACT else promotion.canonical("f64")), weak


def floats(*xs: Any) -> tuple[Tracer, ...]:
    """Promote the operands to one floating or complex type and broadcast them to one shape."""
    return align(*xs, kind=inexact(*xs))


def fitted(shape: tuple[int, ...], kind: Kind, *xs: Any) -> tuple[Tracer, ...]:
    """Convert the operands to the element type `kind` and broadcast them to `shape`."""
    name, weak = kind
    return tuple(
        splat(x, TensorType(shape, name), weak)
        if is_number(x)
        else broadcast(convert(as_tracer(x), name, weak), shape)
        for x in xs
    )


def like(x: Tracer, number: complex) -> Tracer:
    """Return a constant with the shape and element type of `x`."""
    return splat(number, x.value.type, x.weak_type)


def truth(x: Any) -> Tracer:
    """Convert the operand to bools: zero is false, every other element is true."""
    value = as_tracer(x)
    return value if value.value.type.dtype == "bool" else same("ne", value, like(value, 0))


def choose(condition: Tracer, x: Any, y: Any) -> Tracer:
    """Select `x` where the condition is true and `y` elsewhere, after promotion and
    broadcasting.
    """
    x, y = known(x, y)
    kind = common(x, y)
    shapes = [v.shape for v in (condition, x, y) if not is_number(v)]
    shape = broadcast_shapes(*shapes)
    if condition.ndim:
        condition = broadcast(condition, shape)
    x, y = fitted(shape, kind, x, y)
    result: Tracer = emit("select", condition, x, y, weak=kind[1])
    return result


def ordered(name: str, *xs: Any) -> tuple[Any, ...]:
    """Return the operands; raise `OperationTypeError` if one is complex, as `name` needs an
    order.
    """
    operands = known(*xs)
    for x in operands:
        if kind_of(x)[0] in COMPLEX:
            kind = x.value.type if isinstance(x, Tracer) else kind_of(x)[0]
            raise OperationTypeError(
                point(f"{name} takes no complex numbers, they have no order; got {kind}")
            )
    return operands


def no_out(name: str, out: Any) -> None:
    """Raise `ArgumentError` if `out` is given: arrays are immutable."""
    if out is not None:
        raise ArgumentError(point(f"{name} takes no out=; arrays are immutable"))
