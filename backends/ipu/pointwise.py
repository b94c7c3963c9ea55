"""Pointwise operations as expressions of `popops::map`.

A rule takes the expressions of the operands and gives that of the result. `repeats` says which
operands it speaks of more than once: what is computed for those is stored first, so that nothing is
evaluated twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shardir.backends.ipu.expressions import Apply, Node, Number, apply, cast, narrowed, number
from shardir.backends.ipu.types import NARROW_INTEGERS
from shardir.types import FLOATS, INTEGERS, UNSIGNED

Rule = Callable[..., Node]


@dataclass(frozen=True, slots=True)
class Pointwise:
    """The rule of an operation; `repeats(dtype)` are the operands that it uses more than once.

    A rule that `stores` takes a function as well, which has an expression of its own stored.
    """

    rule: Rule
    repeats: Callable[[str], Sequence[int]]
    stores: bool = False


POINTWISE: dict[str, Pointwise] = {}


def pointwise(
    name: str, *repeats: int, of: Sequence[str] | None = None, stores: bool = False
) -> Callable[[Rule], Rule]:
    """Register the rule of an operation, which repeats these operands (for these types only)."""

    def repeated(dtype: str) -> Sequence[int]:
        return repeats if of is None or dtype in of else ()

    def register(rule: Rule) -> Rule:
        POINTWISE[name] = Pointwise(rule, repeated, stores)
        return rule

    return register


def _simple(name: str, constructor: str) -> None:
    @pointwise(name)
    def rule(x: Node) -> Node:
        return apply(constructor, x)


for _name, _constructor in {
    "floor": "Floor", "ceil": "Ceil", "round": "NearbyInt", "exp": "Exp", "exp2": "Exp2",
    "expm1": "Expm1", "log": "Log", "log1p": "Log1p", "sqrt": "Sqrt", "rsqrt": "Rsqrt",
    "cbrt": "Cbrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "tanh": "Tanh",
    "logistic": "Sigmoid", "erf": "Erf",
}.items():  # fmt: skip
    _simple(_name, _constructor)


def constant_like(value: float, x: Node) -> Number:
    """A number of the type of an expression."""
    return number(value, x.dtype)


def where(condition: Node, yes: Node, no: Node) -> Node:
    """`condition ? yes : no`; of two truths the condition itself."""
    if yes.dtype == "bool" and isinstance(yes, Number) and isinstance(no, Number):
        if yes.value == no.value:
            return yes
        return condition if yes.value else apply("!", condition)
    return Apply("Select", (yes, no, condition), yes.dtype)


EXTREMES = ("maximum", "minimum", "clamp")


def keep_nan(made: Node, operands: Sequence[Node]) -> Node:
    """An extreme of floats that is NaN where one of its operands is."""
    for x in operands:
        if not isinstance(x, Number):
            made = where(apply("IsNaN", x, dtype="bool"), x, made)
    return made


def compare(operator: str, x: Node, y: Node) -> Apply:
    """A comparison."""
    return Apply(operator, (x, y), "bool")


@pointwise("neg")
def _neg(x: Node) -> Node:
    if x.dtype == "u32":
        return apply("-", number(0, "u32"), x)
    return narrowed(apply("-", x))


@pointwise("abs")
def _abs(x: Node) -> Node:
    return x if x.dtype in UNSIGNED else narrowed(apply("Abs", x))


@pointwise("sign", 0)
def _sign(x: Node) -> Node:
    """Zeros keep their sign and NaN stays, which `Signum` does not promise."""
    if x.dtype in UNSIGNED:
        return cast(compare("!=", x, constant_like(0, x)), x.dtype)
    if x.dtype not in FLOATS:
        return apply("Signum", x)
    return where(compare(">", apply("Abs", x), constant_like(0, x)), apply("Signum", x), x)


@pointwise("log2")
def _log2(x: Node) -> Node:
    return apply("*", apply("Log", x), constant_like(1 / np.log(2), x))


@pointwise("is_finite")
def _is_finite(x: Node) -> Node:
    return apply("IsFinite", x, dtype="bool")


@pointwise("not")
def _not(x: Node) -> Node:
    if x.dtype == "bool":
        return apply("!", x)
    return narrowed(apply("~", x))


@pointwise("stop_gradient")
def _same(x: Node) -> Node:
    return x


for _name in (
    "sharding_constraint", "reshard", "propagation_barrier", "checkpoint-name", "vary",
):  # fmt: skip
    pointwise(_name)(_same)


@pointwise("popcnt")
def _popcnt(x: Node) -> Node:
    return apply("POPCOUNT", _bits(x), dtype=x.dtype)


@pointwise("clz")
def _clz(x: Node) -> Node:
    """Of narrow integers without the zeros that they get in front when they are widened."""
    zeros = apply("COUNT_LEADING_ZEROS", _bits(x), dtype=x.dtype)
    width = _width(x.dtype)
    return zeros if width == 32 else apply("-", zeros, constant_like(32 - width, x))


def _width(dtype: str) -> int:
    return int(dtype[1:])


def _bits(x: Node) -> Node:
    """A narrow integer with zeros in front of its own bits."""
    if x.dtype not in NARROW_INTEGERS or x.dtype in UNSIGNED:
        return x
    return apply("&", x, number((1 << _width(x.dtype)) - 1, "i32"), dtype=x.dtype)


def _binary(name: str, operator: str, boolean: str = "") -> None:
    @pointwise(name)
    def rule(x: Node, y: Node) -> Node:
        if x.dtype == "bool":
            return apply(boolean, x, y)
        return narrowed(apply(operator, x, y))


_binary("add", "+", "||")
_binary("sub", "-")


@pointwise("mul")
def _mul(x: Node, y: Node) -> Node:
    if x.dtype == "bool":
        return apply("&&", x, y)
    if x == y and not isinstance(x, Number) and x.dtype in FLOATS:
        return apply("Square", x)
    return narrowed(apply("*", x, y))


def _bitwise(name: str, operator: str, boolean: str) -> None:
    @pointwise(name)
    def rule(x: Node, y: Node) -> Node:
        return apply(boolean if x.dtype == "bool" else operator, x, y)


_bitwise("and", "&", "&&")
_bitwise("or", "|", "||")
_bitwise("xor", "^", "!=")
_bitwise("maximum", "Max", "||")
_bitwise("minimum", "Min", "&&")


@pointwise("div", 0, 1, of=INTEGERS)
def _div(x: Node, y: Node) -> Node:
    """Of integers truncated; x / 0 = -1 and min / -1 = min, which C++ leaves open."""
    if x.dtype in FLOATS:
        return apply("/", x, y)
    one, all_bits = constant_like(1, x), constant_like(-1, x)
    if x.dtype in UNSIGNED:
        all_bits = constant_like((1 << _width(x.dtype)) - 1, x)
        return _unless_zero(y, apply("/", x, _safe(y, one)), all_bits)
    if isinstance(y, Number) and int(y.value) not in (0, -1):
        return apply("/", x, y)
    minus = compare("==", y, all_bits)
    quotient = where(minus, narrowed(apply("-", x)), apply("/", x, _safe(y, one, minus)))
    return _unless_zero(y, quotient, all_bits)


@pointwise("rem", 0, 1, of=INTEGERS)
def _rem(x: Node, y: Node) -> Node:
    """With the sign of `x`; of integers x rem 0 = x and min rem -1 = 0."""
    if x.dtype in FLOATS or (isinstance(y, Number) and int(y.value) not in (0, -1)):
        return apply("%", x, y)
    one = constant_like(1, x)
    if x.dtype in UNSIGNED:
        return _unless_zero(y, apply("%", x, _safe(y, one)), x)
    minus = compare("==", y, constant_like(-1, x))
    return _unless_zero(y, apply("%", x, _safe(y, one, minus)), x)


def _safe(y: Node, one: Node, also: Node | None = None) -> Node:
    """A divisor that may be divided by."""
    if isinstance(y, Number) and int(y.value) != 0:
        return y
    zero = compare("==", y, constant_like(0, y))
    return where(apply("||", zero, also) if also is not None else zero, one, y)


def _unless_zero(y: Node, quotient: Node, otherwise: Node) -> Node:
    if isinstance(y, Number):
        return otherwise if int(y.value) == 0 else quotient
    return where(compare("==", y, constant_like(0, y)), otherwise, quotient)


@pointwise("pow", 0, of=INTEGERS)
def _pow(x: Node, y: Node) -> Node:
    if x.dtype in FLOATS:
        return apply("Pow", x, y)
    if not isinstance(y, Number):
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
        product = x if isinstance(product, Number) else narrowed(apply("*", product, x))
    return product


class NotExpressible(Exception):
    """An operation for which there is no expression: why, and what to write instead."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason, fix)
        self.reason, self.fix = reason, fix


@pointwise("atan2")
def _atan2(y: Node, x: Node) -> Node:
    return apply("Atan2", y, x)


@pointwise("shift_left", 1)
def _shift_left(x: Node, amount: Node) -> Node:
    shifted = narrowed(apply("<<", x, _amount(x, amount)))
    return _shifted(x, amount, shifted, constant_like(0, x))


@pointwise("shift_right_logical", 1)
def _shift_right_logical(x: Node, amount: Node) -> Node:
    shifted = narrowed(apply(">>", _bits(x), _amount(x, amount), dtype=x.dtype))
    return _shifted(x, amount, shifted, constant_like(0, x))


@pointwise("shift_right_arithmetic", 0, 1)
def _shift_right_arithmetic(x: Node, amount: Node) -> Node:
    """Copies of the highest bit come in from the left, also for unsigned numbers."""
    if x.dtype in UNSIGNED and x.dtype != "u32":
        bits = _width(x.dtype)
        x = apply("-", x, _top_bit(x, bits), dtype=x.dtype)
    last = constant_like(_width(x.dtype) - 1, x)
    if isinstance(amount, Number):
        within: Node = amount if _inside(amount) else last
    else:
        within = where(_few(x, amount), amount, last)
    return narrowed(Apply("ShrSE", (x, within), x.dtype))


def _top_bit(x: Node, bits: int) -> Node:
    """Twice the highest bit, which makes an unsigned number the signed one of the same bits."""
    top = compare(">=", x, number(1 << (bits - 1), "i32"))
    return where(top, number(1 << bits, "i32"), number(0, "i32"))


def _inside(amount: Number) -> bool:
    return 0 <= int(amount.value) < _width(amount.dtype)


def _few(x: Node, amount: Node) -> Node:
    """Whether a shift leaves anything; amounts count as unsigned."""
    less = compare("<", amount, constant_like(_width(x.dtype), x))
    if x.dtype in UNSIGNED:
        return less
    return apply("&&", compare(">=", amount, constant_like(0, x)), less)


def _amount(x: Node, amount: Node) -> Node:
    if isinstance(amount, Number):
        return amount if _inside(amount) else constant_like(0, x)
    return where(_few(x, amount), amount, constant_like(0, x))


def _shifted(x: Node, amount: Node, shifted: Node, otherwise: Node) -> Node:
    if isinstance(amount, Number):
        return shifted if _inside(amount) else otherwise
    return where(_few(x, amount), shifted, otherwise)


def _comparison(name: str, operator: str) -> None:
    @pointwise(name)
    def rule(x: Node, y: Node) -> Node:
        if x.dtype != "bool" or operator in ("==", "!="):
            return compare(operator, x, y)
        low, high = (x, y) if operator in ("<", "<=") else (y, x)
        if operator in ("<", ">"):
            return apply("&&", apply("!", low), high)
        return apply("||", apply("!", low), high)


for _name, _operator in {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}.items():  # fmt: skip
    _comparison(_name, _operator)


@pointwise("select")
def _select(condition: Node, x: Node, y: Node) -> Node:
    return where(condition, x, y)


@pointwise("clamp")
def _clamp(low: Node, x: Node, high: Node) -> Node:
    if x.dtype == "bool":
        return apply("&&", apply("||", x, low), high)
    return apply("Min", apply("Max", x, low), high)


def convert(x: Node, to: str) -> Node:
    """Elements as another type, as `shardir.ops.numerics.convert` says.

    Floats become integers towards zero, the nearest that exists when out of range, 0 for NaN: of
    that the device's conversion promises only the first. An operand that is not stored is
    repeated then; see `conversion_repeats`.
    """
    if x.dtype == to:
        return x
    if to == "bool":
        return compare("!=", x, constant_like(0, x))
    if x.dtype not in FLOATS or to in FLOATS:
        narrow = to in NARROW_INTEGERS and not _within(x.dtype, to)
        if x.dtype == "u32" and narrow:
            return narrowed(Apply("Cast", (cast(x, "i32"),), to))
        return narrowed(cast(x, to)) if narrow else cast(x, to)
    wide = cast(x, "f32") if x.dtype == "f16" else x
    info = np.iinfo(np.dtype(f"{'u' if to in UNSIGNED else 'i'}{_width(to) // 8}"))
    least, most = np.float32(info.min), np.nextafter(np.float32(info.max) + 1, np.float32(0))
    if _width(to) < 32:
        most = np.float32(info.max)
    inside = apply(
        "Max", apply("Min", wide, number(float(most), "f32")), number(float(least), "f32")
    )
    whole: Node = Apply("Cast", (apply("Trunc", inside),), to)
    if _width(to) == 32:
        above = compare(">=", wide, number(float(np.float32(info.max)), "f32"))
        whole = where(above, number(info.max, to), whole)
    return where(compare("==", wide, wide), whole, number(0, to))


def conversion_repeats(source: str, to: str) -> bool:
    """Whether a conversion speaks of its operand more than once."""
    return source in FLOATS and to in INTEGERS


def _within(source: str, to: str) -> bool:
    """Whether every number of one integer type is one of another."""
    if source == "bool":
        return True
    have, want = (np.iinfo(np.dtype(f"{t[0]}{_width(t) // 8}")) for t in (source, to))
    return bool(want.min <= have.min and have.max <= want.max)
