"""Expressions of integer operations: division, powers, bits and shifts, with all cases that the
device leaves undefined.
"""

from shardir.backends.ipu.codegen.device_types import NARROW_INTEGERS
from shardir.backends.ipu.codegen.expressions import (
    ApplyNode,
    Node,
    NumberNode,
    apply,
    number,
    wrap_narrow,
)
from shardir.backends.ipu.lowering.pointwise import (
    NotExpressible,
    bit_width,
    compare,
    constant_like,
    pointwise,
    where,
)
from shardir.ir.types import FLOATS, INTEGERS, UNSIGNED


@pointwise("popcnt")
def _popcnt(x: Node) -> Node:
    return apply("POPCOUNT", _zero_extend(x), dtype=x.dtype)


@pointwise("clz")
def _clz(x: Node) -> Node:
    """Count leading zeros, without those that widening adds to narrow integers."""
    zeros = apply("COUNT_LEADING_ZEROS", _zero_extend(x), dtype=x.dtype)
    bits = bit_width(x.dtype)
    return zeros if bits == 32 else apply("-", zeros, constant_like(32 - bits, x))


def _zero_extend(x: Node) -> Node:
    """Zero-extend a narrow integer."""
    if x.dtype not in NARROW_INTEGERS or x.dtype in UNSIGNED:
        return x
    return apply("&", x, number((1 << bit_width(x.dtype)) - 1, "i32"), dtype=x.dtype)


@pointwise("div", 0, 1, of=INTEGERS)
def _div(x: Node, y: Node) -> Node:
    """Divide; integers truncate, with x / 0 = -1 and min / -1 = min, which C++ leaves undefined."""
    if x.dtype in FLOATS:
        return apply("/", x, y)
    one, all_bits = constant_like(1, x), constant_like(-1, x)
    if x.dtype in UNSIGNED:
        all_bits = constant_like((1 << bit_width(x.dtype)) - 1, x)
        return _unless_zero(y, apply("/", x, _safe_divisor(y, one)), all_bits)
    if isinstance(y, NumberNode) and int(y.value) not in (0, -1):
        return apply("/", x, y)
    minus = compare("==", y, all_bits)
    quotient = where(minus, wrap_narrow(apply("-", x)), apply("/", x, _safe_divisor(y, one, minus)))
    return _unless_zero(y, quotient, all_bits)


@pointwise("rem", 0, 1, of=INTEGERS)
def _rem(x: Node, y: Node) -> Node:
    """Return the remainder with the sign of `x`; for integers x rem 0 = x and min rem -1 = 0."""
    if x.dtype in FLOATS or (isinstance(y, NumberNode) and int(y.value) not in (0, -1)):
        return apply("%", x, y)
    one = constant_like(1, x)
    if x.dtype in UNSIGNED:
        return _unless_zero(y, apply("%", x, _safe_divisor(y, one)), x)
    minus = compare("==", y, constant_like(-1, x))
    return _unless_zero(y, apply("%", x, _safe_divisor(y, one, minus)), x)


def _safe_divisor(y: Node, one: Node, also: Node | None = None) -> Node:
    """Return a divisor with values that are invalid for division replaced by one."""
    if isinstance(y, NumberNode) and int(y.value) != 0:
        return y
    zero = compare("==", y, constant_like(0, y))
    return where(apply("||", zero, also) if also is not None else zero, one, y)


def _unless_zero(y: Node, quotient: Node, otherwise: Node) -> Node:
    if isinstance(y, NumberNode):
        return otherwise if int(y.value) == 0 else quotient
    return where(compare("==", y, constant_like(0, y)), otherwise, quotient)


@pointwise("pow", 0, of=INTEGERS)
def _pow(x: Node, y: Node) -> Node:
    if x.dtype in FLOATS:
        return apply("Pow", x, y)
    if not isinstance(y, NumberNode):
        raise NotExpressible(
            "raises integers to powers that are known only at run time, for which poplibs has no "
            "call",
            "convert to f32, or multiply",
        )
    power = int(y.value)
    if power < 0:
        raise NotExpressible("raises integers to a negative power", "convert to f32")
    product: Node = constant_like(1, x)
    for _ in range(power):
        product = x if isinstance(product, NumberNode) else wrap_narrow(apply("*", product, x))
    return product


@pointwise("shift_left", 1)
def _shift_left(x: Node, amount: Node) -> Node:
    shifted = wrap_narrow(apply("<<", x, _safe_amount(x, amount)))
    return _select_shift(x, amount, shifted, constant_like(0, x))


@pointwise("shift_right_logical", 1)
def _shift_right_logical(x: Node, amount: Node) -> Node:
    shifted = wrap_narrow(apply(">>", _zero_extend(x), _safe_amount(x, amount), dtype=x.dtype))
    return _select_shift(x, amount, shifted, constant_like(0, x))


@pointwise("shift_right_arithmetic", 0, 1)
def _shift_right_arithmetic(x: Node, amount: Node) -> Node:
    """Shift right, copying the highest bit, also for unsigned types."""
    if x.dtype in UNSIGNED and x.dtype != "u32":
        bits = bit_width(x.dtype)
        x = apply("-", x, _top_bit(x, bits), dtype=x.dtype)
    last = constant_like(bit_width(x.dtype) - 1, x)
    if isinstance(amount, NumberNode):
        within: Node = amount if _is_valid_amount(amount) else last
    else:
        within = where(_is_below_width(x, amount), amount, last)
    return wrap_narrow(ApplyNode("ShrSE", (x, within), x.dtype))


def _top_bit(x: Node, bits: int) -> Node:
    """Return twice the highest bit, which converts an unsigned number to the signed one of its
    bits.
    """
    top = compare(">=", x, number(1 << (bits - 1), "i32"))
    return where(top, number(1 << bits, "i32"), number(0, "i32"))


def _is_valid_amount(amount: NumberNode) -> bool:
    return 0 <= int(amount.value) < bit_width(amount.dtype)


def _is_below_width(x: Node, amount: Node) -> Node:
    """Return whether the amount, taken as unsigned, is less than the bit width."""
    less = compare("<", amount, constant_like(bit_width(x.dtype), x))
    if x.dtype in UNSIGNED:
        return less
    return apply("&&", compare(">=", amount, constant_like(0, x)), less)


def _safe_amount(x: Node, amount: Node) -> Node:
    if isinstance(amount, NumberNode):
        return amount if _is_valid_amount(amount) else constant_like(0, x)
    return where(_is_below_width(x, amount), amount, constant_like(0, x))


def _select_shift(x: Node, amount: Node, shifted: Node, otherwise: Node) -> Node:
    if isinstance(amount, NumberNode):
        return shifted if _is_valid_amount(amount) else otherwise
    return where(_is_below_width(x, amount), shifted, otherwise)
