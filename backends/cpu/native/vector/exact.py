"""Operations on real vectors that take one or two instructions.

`shardir.ops.elementwise` and `shardir.ops.numerics` define them; results equal the reference
interpreter's in all bits.
"""

from shardir.backends.cpu.native.llvm.text import Value, element
from shardir.backends.cpu.native.vector.application import Application, Rule
from shardir.backends.cpu.native.vector.division import WIDTHS, divided
from shardir.backends.cpu.native.vector.extremes import extreme
from shardir.backends.cpu.native.vector.registers import NARROW, Held, narrowed, single, widened


def add(a: Application) -> Held:
    x, y = a.values
    return x | y if a.dtype == "bool" else x + y


def sub(a: Application) -> Held:
    x, y = a.values
    return x - y


def mul(a: Application) -> Held:
    x, y = a.values
    return x & y if a.dtype == "bool" else x * y


def neg(a: Application) -> Held:
    return -a.values[0]


def div(a: Application) -> Held:
    x, y = a.values
    return x / y if a.is_float else divided(a)


def absolute(a: Application) -> Held:
    (x,) = a.values
    if a.is_float:
        return a.function.intrinsic("fabs", x)
    return a.function.select(x.is_("slt", 0), -x, x) if a.is_signed else x


def sign(a: Application) -> Held:
    (x,) = a.values
    f = a.function
    if a.is_float:
        one = f.intrinsic("copysign", f.value(1.0, x.type), x)
        return f.select(x.is_("ueq", 0.0), x, one)
    nonzero = f.select(x.is_("ne", 0), f.value(1, x.type), 0)
    return f.select(x.is_("slt", 0), -1, nonzero) if a.is_signed else nonzero


def _unary_intrinsic(name: str) -> Rule:
    return lambda a: a.function.intrinsic(name, a.values[0])


def rsqrt(a: Application) -> Held:
    return 1.0 / a.function.intrinsic("sqrt", a.values[0])


def is_finite(a: Application) -> Held:
    return a.function.intrinsic("fabs", a.values[0]).is_("olt", float("inf"))


def logical_not(a: Application) -> Held:
    (x,) = a.values
    return x ^ (1 if a.dtype == "bool" else -1)


def clz(a: Application) -> Held:
    (x,) = a.values
    defined = Value("false", "i1", a.function)
    return a.function.intrinsic("ctlz", x, defined)


def larger(a: Application) -> Held:
    return _extreme(a, "max", *a.values)


def smaller(a: Application) -> Held:
    return _extreme(a, "min", *a.values)


def clamp(a: Application) -> Held:
    low, x, high = a.values
    return _extreme(a, "min", _extreme(a, "max", x, low), high)


def _extreme(a: Application, op: str, x: Value, y: Value) -> Value:
    if a.dtype == "bool":
        return x | y if op == "max" else x & y
    if a.is_float:
        return extreme(a.function, op, x, y)
    return a.function.intrinsic(("s" if a.is_signed else "u") + op, x, y)


def bitwise(how: str) -> Rule:
    def rule(a: Application) -> Held:
        x, y = a.values
        return a.function.emit(f"{how} {x.type} {x}, {y}", x.type)

    return rule


def shift_left(a: Application) -> Held:
    return _shifted(a, "shl")


def shift_right_logical(a: Application) -> Held:
    return _shifted(a, "lshr")


def shift_right_arithmetic(a: Application) -> Held:
    x, by = a.values
    last = WIDTHS[element(x.type)] - 1
    by = a.function.select(by.is_("ugt", last), last, by)
    return a.function.emit(f"ashr {x.type} {x}, {by}", x.type)


def _shifted(a: Application, how: str) -> Value:
    x, by = a.values
    f, width = a.function, WIDTHS[element(x.type)]
    within = by.is_("ult", width)
    moved = f.emit(f"{how} {x.type} {x}, {f.select(within, by, 0)}", x.type)
    return f.select(within, moved, 0)


def compare(of_floats: str, of_integers: str) -> Rule:
    """Return a comparison rule; comparisons with NaN are false, except for `ne`."""

    def rule(a: Application) -> Held:
        x, y = a.values
        if a.is_float:
            return x.is_(of_floats, y)
        signed = a.is_signed or of_integers in ("eq", "ne")
        return x.is_(of_integers if signed else f"u{of_integers[1:]}", y)

    return rule


def select(a: Application) -> Held:
    condition, x, y = a.operands
    return a.function.select(single(condition), single(x), single(y))


def identity(a: Application) -> Held:
    return a.operands[0]


def nextafter(a: Application) -> Held:
    """Return the next float towards y: the bits of floats, as integers, are ordered by
    magnitude."""
    f, dtype = a.function, a.dtype
    x, y = a.values
    narrow = dtype in NARROW
    whole = a.lanes_of("i16" if narrow else f"i{WIDTHS[element(x.type)]}")

    def bits_of(value: Value) -> Value:
        return narrowed(f, value, dtype) if narrow else value.to(whole, "bitcast")

    outward = y.is_("ogt", x) ^ x.is_("olt", 0.0)
    moved = bits_of(x) + f.select(outward, f.value(1, whole), -1)
    sign = bits_of(y) & -(1 << (WIDTHS[element(whole)] - 1))
    moved = f.select(x.is_("oeq", 0.0), sign | 1, moved)
    result = widened(f, moved, dtype) if narrow else moved.to(x.type, "bitcast")
    result = f.select(
        x.is_("oeq", y), x if dtype == "f16" else y, result
    )  # like NumPy, for two zeros
    return f.select(x.is_("uno", y), x + y, result)


MOVES: dict[str, Rule] = dict.fromkeys(
    (
        "stop_gradient", "sharding_constraint", "reshard", "propagation_barrier", "data_flow_edge",
        "checkpoint-name", "vary",
    ),
    identity,
)  # fmt: skip
"""Operations that return their operand, of any type."""

RULES: dict[str, Rule] = {
    "add": add, "sub": sub, "mul": mul, "div": div, "neg": neg, "abs": absolute, "sign": sign,
    "floor": _unary_intrinsic("floor"), "ceil": _unary_intrinsic("ceil"),
    "round": _unary_intrinsic("roundeven"), "sqrt": _unary_intrinsic("sqrt"),
    "rsqrt": rsqrt,
    "is_finite": is_finite, "not": logical_not, "popcnt": _unary_intrinsic("ctpop"), "clz": clz,
    "maximum": larger, "minimum": smaller, "clamp": clamp, "and": bitwise("and"),
    "or": bitwise("or"), "xor": bitwise("xor"), "shift_left": shift_left,
    "shift_right_logical": shift_right_logical, "shift_right_arithmetic": shift_right_arithmetic,
    "eq": compare("oeq", "eq"), "ne": compare("une", "ne"), "lt": compare("olt", "slt"),
    "le": compare("ole", "sle"), "gt": compare("ogt", "sgt"), "ge": compare("oge", "sge"),
    "select": select, "nextafter": nextafter, **MOVES,
}  # fmt: skip
"""Rules for real operands; integer `rem` and `pow` are in `inline`."""
