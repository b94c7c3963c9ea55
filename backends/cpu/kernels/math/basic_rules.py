"""Operations on real vectors that take one or two instructions.

`shardir.ops.elementwise.elementwise` and `shardir.ops.elementwise.numerics` define them; results
equal the reference interpreter's in all bits.
"""

from collections.abc import Callable

from shardir.backends.cpu.codegen.cache_keys import add_extension_source
from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import LLVMValue, element_type
from shardir.backends.cpu.kernels.math.application import OpApplication, VectorRule
from shardir.backends.cpu.kernels.math.division import TYPE_BITS, divide_rule
from shardir.backends.cpu.kernels.math.registers import (
    VectorValue,
    narrow_elements,
    real_vector,
    widen_elements,
)
from shardir.backends.cpu.kernels.math.vector_arithmetic import emit_minimum_maximum
from shardir.ir.dtypes import NARROW_FLOATS


def add(a: OpApplication) -> VectorValue:
    x, y = a.values
    return x | y if a.dtype == "bool" else x + y


def sub(a: OpApplication) -> VectorValue:
    x, y = a.values
    return x - y


def mul(a: OpApplication) -> VectorValue:
    x, y = a.values
    return x & y if a.dtype == "bool" else x * y


def neg(a: OpApplication) -> VectorValue:
    return -a.values[0]


def div(a: OpApplication) -> VectorValue:
    x, y = a.values
    return x / y if a.is_float else divide_rule(a)


def absolute(a: OpApplication) -> VectorValue:
    (x,) = a.values
    if a.is_float:
        return a.function.intrinsic("fabs", x)
    return a.function.select(x.is_("slt", 0), -x, x) if a.is_signed else x


def sign(a: OpApplication) -> VectorValue:
    (x,) = a.values
    f = a.function
    if a.is_float:
        one = f.intrinsic("copysign", f.value(1.0, x.type), x)
        return f.select(x.is_("ueq", 0.0), x, one)
    nonzero = f.select(x.is_("ne", 0), f.value(1, x.type), 0)
    return f.select(x.is_("slt", 0), -1, nonzero) if a.is_signed else nonzero


def _unary_intrinsic_rule(name: str) -> VectorRule:
    return lambda a: a.function.intrinsic(name, a.values[0])


def rsqrt(a: OpApplication) -> VectorValue:
    return 1.0 / a.function.intrinsic("sqrt", a.values[0])


def is_finite(a: OpApplication) -> VectorValue:
    return a.function.intrinsic("fabs", a.values[0]).is_("olt", float("inf"))


def logical_not(a: OpApplication) -> VectorValue:
    (x,) = a.values
    return x ^ (1 if a.dtype == "bool" else -1)


def clz(a: OpApplication) -> VectorValue:
    (x,) = a.values
    defined = LLVMValue("false", "i1", a.function)
    return a.function.intrinsic("ctlz", x, defined)


def maximum(a: OpApplication) -> VectorValue:
    return _extreme(a, "max", *a.values)


def minimum(a: OpApplication) -> VectorValue:
    return _extreme(a, "min", *a.values)


def clamp(a: OpApplication) -> VectorValue:
    low, x, high = a.values
    return _extreme(a, "min", _extreme(a, "max", x, low), high)


def _extreme(a: OpApplication, op: str, x: LLVMValue, y: LLVMValue) -> LLVMValue:
    if a.dtype == "bool":
        return x | y if op == "max" else x & y
    if a.is_float:
        return emit_minimum_maximum(a.function, op, x, y)
    return a.function.intrinsic(("s" if a.is_signed else "u") + op, x, y)


def bitwise_rule(how: str) -> VectorRule:
    def rule(a: OpApplication) -> VectorValue:
        x, y = a.values
        return a.function.emit(f"{how} {x.type} {x}, {y}", x.type)

    return rule


def shift_left(a: OpApplication) -> VectorValue:
    return _shift(a, "shl")


def shift_right_logical(a: OpApplication) -> VectorValue:
    return _shift(a, "lshr")


def shift_right_arithmetic(a: OpApplication) -> VectorValue:
    x, by = a.values
    last = TYPE_BITS[element_type(x.type)] - 1
    by = a.function.select(by.is_("ugt", last), last, by)
    return a.function.emit(f"ashr {x.type} {x}, {by}", x.type)


def _shift(a: OpApplication, how: str) -> LLVMValue:
    x, by = a.values
    f, width = a.function, TYPE_BITS[element_type(x.type)]
    within = by.is_("ult", width)
    moved = f.emit(f"{how} {x.type} {x}, {f.select(within, by, 0)}", x.type)
    return f.select(within, moved, 0)


def compare_rule(of_floats: str, of_integers: str) -> VectorRule:
    """Return a comparison rule; comparisons with NaN are false, except for `ne`."""

    def rule(a: OpApplication) -> VectorValue:
        x, y = a.values
        if a.is_float:
            return x.is_(of_floats, y)
        signed = a.is_signed or of_integers in ("eq", "ne")
        return x.is_(of_integers if signed else f"u{of_integers[1:]}", y)

    return rule


def select(a: OpApplication) -> VectorValue:
    condition, x, y = a.operands
    return a.function.select(real_vector(condition), real_vector(x), real_vector(y))


def identity(a: OpApplication) -> VectorValue:
    return a.operands[0]


def nextafter(a: OpApplication) -> VectorValue:
    """Return the next float towards y: the bits of floats, as integers, are ordered by
    magnitude."""
    f, dtype = a.function, a.dtype
    x, y = a.values
    narrow = dtype in NARROW_FLOATS
    whole = a.vector_of(MEMORY_TYPES[dtype] if narrow else f"i{TYPE_BITS[element_type(x.type)]}")

    def bits_of(value: LLVMValue) -> LLVMValue:
        return narrow_elements(f, value, dtype) if narrow else value.to(whole, "bitcast")

    outward = y.is_("ogt", x) ^ x.is_("olt", 0.0)
    moved = bits_of(x) + f.select(outward, f.value(1, whole), -1)
    sign = bits_of(y) & -(1 << (TYPE_BITS[element_type(whole)] - 1))
    moved = f.select(x.is_("oeq", 0.0), sign | 1, moved)
    result = widen_elements(f, moved, dtype) if narrow else moved.to(x.type, "bitcast")
    result = f.select(x.is_("oeq", y), y, result)  # C defines the result for two zeros.
    return f.select(x.is_("uno", y), x + y, result)


IDENTITY_RULES: dict[str, VectorRule] = dict.fromkeys(
    (
        "stop_gradient", "sharding_constraint", "reshard", "propagation_barrier",
        "checkpoint-name", "pipeline-stage", "vary",
    ),
    identity,
)  # fmt: skip
"""Operations that return their operand, of any type."""

RULES: dict[str, VectorRule] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "neg": neg,
    "abs": absolute,
    "sign": sign,
    "floor": _unary_intrinsic_rule("floor"),
    "ceil": _unary_intrinsic_rule("ceil"),
    "round": _unary_intrinsic_rule("roundeven"),
    "sqrt": _unary_intrinsic_rule("sqrt"),
    "rsqrt": rsqrt,
    "is_finite": is_finite,
    "not": logical_not,
    "popcnt": _unary_intrinsic_rule("ctpop"),
    "clz": clz,
    "maximum": maximum,
    "minimum": minimum,
    "clamp": clamp,
    "and": bitwise_rule("and"),
    "or": bitwise_rule("or"),
    "xor": bitwise_rule("xor"),
    "shift_left": shift_left,
    "shift_right_logical": shift_right_logical,
    "shift_right_arithmetic": shift_right_arithmetic,
    "eq": compare_rule("oeq", "eq"),
    "ne": compare_rule("une", "ne"),
    "lt": compare_rule("olt", "slt"),
    "le": compare_rule("ole", "sle"),
    "gt": compare_rule("ogt", "sgt"),
    "ge": compare_rule("oge", "sge"),
    "select": select,
    "nextafter": nextafter,
    **IDENTITY_RULES,
}
"""Rules for real operands; integer `rem` and `pow` are in `inline`."""


extension_observers: list[Callable[[], None]] = []
"""Functions that are called after a rule of another package is registered."""


def cpu_rule(name: str) -> Callable[[VectorRule], VectorRule]:
    """Return a decorator that registers the instructions of a pointwise operation from outside.

    The rule returns the vector of the results, or `None` for element types that it does not
    support; the operation then runs its reference semantics.
    """

    def register(rule: VectorRule) -> VectorRule:
        if name in RULES:
            raise ValueError(f"operation {name!r} has instructions for CPUs already")
        RULES[name] = rule
        # Code on disk depends on the rule.
        add_extension_source(rule.__code__.co_filename)
        for observer in extension_observers:
            observer()
        return rule

    return register
