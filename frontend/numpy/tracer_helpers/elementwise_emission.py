"""Helpers of elementwise functions: promote the operands, broadcast them, emit one operation."""

from collections.abc import Callable

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import (
    align,
    as_tracer,
    broadcast,
    broadcast_shapes,
    convert,
    operand_dtype,
    splat,
)
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import COMPLEX, INEXACT, TensorType

DtypeAndWeakType = tuple[str, bool]
"""An element type and whether it is weakly typed."""

BOOL_RESULT_OPS = ("eq", "ne", "lt", "le", "gt", "ge", "is_finite")
"""Operations that return bools, which are never weakly typed."""

Unary = Callable[[ArrayLike], Tracer]
Binary = Callable[[ArrayLike, ArrayLike], Tracer]


def emit_elementwise(op: str, *operands: Tracer) -> Tracer:
    """Emit `op` on operands of one type.

    The result is weakly typed if all operands other than bools are weakly typed and `op` does not
    return bools. Complex numbers are ordered as pairs, by real part and then by imaginary part.
    """
    if op in COMPLEX_ORDER_OPS and is_complex(operands[0]):
        return COMPLEX_ORDER_OPS[op](op, *operands)
    numbers = [x.weak_type for x in operands if x.value.type.dtype != "bool"]
    weak = bool(numbers) and all(numbers) and op not in BOOL_RESULT_OPS
    result: Tracer = emit(op, *operands, weak=weak)
    return result


def _compare_complex(op: str, x: Tracer, y: Tracer) -> Tracer:
    """Compare complex numbers by real part, then by imaginary part."""
    (a, b), (c, d) = ((emit_elementwise("real", v), emit_elementwise("imag", v)) for v in (x, y))
    return emit_elementwise(
        "select",
        emit_elementwise("eq", a, c),
        emit_elementwise(op, b, d),
        emit_elementwise(op[0] + "t", a, c),
    )


def _complex_extreme(op: str, x: Tracer, y: Tracer) -> Tracer:
    """Return the larger or smaller complex number; NaN if either is NaN.

    Where the numbers are equal, the real operation on their parts distributes the derivative.
    """
    first = _compare_complex("ge" if op == "maximum" else "le", x, y)
    is_y_number = emit_elementwise("eq", y, y)
    takes_x = emit_elementwise("or", emit_isnan(x), emit_elementwise("and", first, is_y_number))
    parts = [(emit_elementwise(part, x), emit_elementwise(part, y)) for part in ("real", "imag")]
    both = emit_elementwise("complex", *(emit_elementwise(op, a, b) for a, b in parts))
    one = emit_elementwise("select", takes_x, x, y)
    return emit_elementwise("select", emit_elementwise("eq", x, y), both, one)


COMPLEX_ORDER_OPS: dict[str, Callable[[str, Tracer, Tracer], Tracer]] = {
    **dict.fromkeys(("lt", "le", "gt", "ge"), _compare_complex),
    **dict.fromkeys(("maximum", "minimum"), _complex_extreme),
}
"""Operations that need an order, and their emission for complex operands."""


def apply_elementwise(op: str, *xs: object, kind: DtypeAndWeakType | None = None) -> Tracer:
    """Promote the operands (or convert them to `kind`), broadcast them, and emit `op`."""
    return emit_elementwise(op, *align(*xs, kind=kind))


def as_operands(*xs: PyTree) -> tuple[PyTree, ...]:
    """Return the operands as tracers, except Python scalars, which stay as they are."""
    operands: list[PyTree] = [x if is_number(x) else as_tracer(x) for x in xs]
    return tuple(operands)


def common_kind(*xs: object) -> DtypeAndWeakType:
    """Return the element type and weak type to which the operands promote."""
    return promotion.result_type(*map(operand_dtype, as_operands(*xs)))


def inexact_kind(*xs: object) -> DtypeAndWeakType:
    """Return the promoted element type, converted to a floating type if it is bool or integer."""
    name, weak = common_kind(*xs)
    return promotion.inexact_dtype(name), weak


def default_float_kind(x: ArrayLike) -> DtypeAndWeakType:
    """Return the element type of `x`, or the default floating type if that is bool or integer."""
    name, weak = common_kind(x)
    return (name if name in INEXACT else promotion.canonical_dtype("f64")), weak


def promote_args_inexact(*xs: object) -> tuple[Tracer, ...]:
    """Promote the operands to one floating or complex type and broadcast them to one shape."""
    return align(*xs, kind=inexact_kind(*xs))


def convert_and_broadcast(
    shape: tuple[int, ...], kind: DtypeAndWeakType, *xs: PyTree
) -> tuple[Tracer, ...]:
    """Convert the operands to the element type `kind` and broadcast them to `shape`."""
    name, weak = kind
    return tuple(
        splat(x, TensorType(shape, name), weak)
        if is_number(x)
        else broadcast(convert(as_tracer(x), name, weak), shape)
        for x in xs
    )


def constant_like(x: Tracer, number: complex) -> Tracer:
    """Return a constant with the shape and element type of `x`."""
    return splat(number, x.value.type, x.weak_type)


def check_not_bool(name: str, dtype: str, replacement: str) -> None:
    """Raise `OperationTypeError` for bools, which an arithmetic function does not take."""
    if dtype == "bool":
        raise OperationTypeError(
            with_location(f"{name} does not take bools; use {replacement}, or .astype(int)")
        )


def as_bool(x: ArrayLike) -> Tracer:
    """Convert the operand to bools: zero is false, every other element is true."""
    value = as_tracer(x)
    return (
        value
        if value.value.type.dtype == "bool"
        else emit_elementwise("ne", value, constant_like(value, 0))
    )


def emit_select(condition: Tracer, x: ArrayLike, y: ArrayLike) -> Tracer:
    """Select `x` where the condition is true and `y` elsewhere, after promotion and
    broadcasting.
    """
    x, y = as_operands(x, y)
    kind = common_kind(x, y)
    shapes = [v.shape for v in (condition, x, y) if isinstance(v, Tracer)]
    shape = broadcast_shapes(*shapes)
    if condition.ndim:
        condition = broadcast(condition, shape)
    x, y = convert_and_broadcast(shape, kind, x, y)
    result: Tracer = emit("select", condition, x, y, weak=kind[1])
    return result


def require_real(name: str, *xs: object) -> tuple[Tracer, ...]:
    """Return the operands; raise `OperationTypeError` if one is complex."""
    operands = as_operands(*xs)
    for x in operands:
        if operand_dtype(x)[0] in COMPLEX:
            kind = x.value.type if isinstance(x, Tracer) else operand_dtype(x)[0]
            raise OperationTypeError(
                with_location(
                    f"{name} takes no complex numbers, got {kind}; pass .real, .imag or abs"
                )
            )
    return operands


def check_no_out(name: str, out: object) -> None:
    """Raise `ArgumentError` if `out` is given: arrays are immutable."""
    if out is not None:
        raise ArgumentError(
            with_location(f"{name} takes no out=; arrays are immutable, so use its result")
        )


def emit_isnan(x: Tracer) -> Tracer:
    """Emit x != x, which is true only for NaN."""
    return emit_elementwise("ne", x, x)


def is_complex(x: Tracer) -> bool:
    """Return whether the element type is complex."""
    return x.value.type.dtype in COMPLEX


def emit_conjugate(x: Tracer) -> Tracer:
    """Emit the complex conjugate; return real operands unchanged."""
    return emit_elementwise("conj", x) if is_complex(x) else x


def compare_row_column(op: str, shape: tuple[int, ...], k: int | Tracer) -> Tracer:
    """Compare row index + k with the column index by `op`, in the last two dimensions, as bools."""
    kind = TensorType(shape, "i32")
    rows: Tracer = emit("iota", dim=len(shape) - 2, result=kind)
    columns: Tracer = emit("iota", dim=len(shape) - 1, result=kind)
    if isinstance(k, Tracer):
        rows = emit_elementwise("add", rows, broadcast(k, shape))
    elif k:
        rows = emit_elementwise("add", rows, constant_like(rows, k))
    return emit_elementwise(op, rows, columns)
