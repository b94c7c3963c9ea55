"""The steps that vector functions consist of, for f32 and f64 vectors of any number of lanes.

A function is written once for three grades: `f32`, `f64`, and `short`, which computes in f64 what
is finally rounded to f32, with polynomials of just the necessary degree. Fused multiply-adds are
needed for accuracy, not only for speed (the rounding error of a product is one); on a machine
without them, LLVM calls the C library's.
"""

from collections.abc import Callable, Sequence

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMValue,
    Operand,
    element_type,
    lane_count,
    vector_type,
)
from shardir.backends.cpu.codegen.target import HostDescription, architecture
from shardir.backends.cpu.kernels.math.coefficients import POLYNOMIALS

FunctionBody = Callable[..., LLVMValue]
FunctionTable = dict[str, tuple[int, FunctionBody]]

INFINITY, NAN = float("inf"), float("nan")
FRACTION_BITS = {"float": 23, "double": 52}
EXPONENT_BIAS = {"float": 127, "double": 1023}
INTEGER_TYPE = {"float": "i32", "double": "i64"}
AVX512_BYTES = 64
"""Bytes of a register of AVX-512."""
MIN_NORMAL = {"float": 2.0**-126, "double": 2.0**-1022}
"""The least normal number."""


def is_single(x: LLVMValue) -> bool:
    return element_type(x.type) == "float"


def fma(a: LLVMValue, b: Operand, c: Operand) -> LLVMValue:
    """Return a b + c, rounded once."""
    return a.function.fma(a, b, c)


def where(condition: LLVMValue, yes: Operand, no: Operand) -> LLVMValue:
    return condition.function.select(condition, yes, no)


def absolute_value(x: LLVMValue) -> LLVMValue:
    """Return |x|."""
    return x.function.intrinsic("fabs", x)


def copy_sign(x: LLVMValue, sign: LLVMValue) -> LLVMValue:
    """Return |x| with the sign of `sign`."""
    return x.function.intrinsic("copysign", x, sign)


def square_root(x: LLVMValue) -> LLVMValue:
    return x.function.intrinsic("sqrt", x)


def constant_like(like: LLVMValue, number: float) -> LLVMValue:
    return like.function.value(number, like.type)


def bits_of(x: LLVMValue) -> LLVMValue:
    """Return the bits as integers."""
    return x.to(vector_type(INTEGER_TYPE[element_type(x.type)], lane_count(x.type)), "bitcast")


def float_of(bits: LLVMValue) -> LLVMValue:
    """Return the float with these bits."""
    kind = "float" if element_type(bits.type) == "i32" else "double"
    return bits.to(vector_type(kind, lane_count(bits.type)), "bitcast")


def to_float(integer: LLVMValue) -> LLVMValue:
    """Convert an integer to a float."""
    kind = "float" if element_type(integer.type) == "i32" else "double"
    return integer.to(vector_type(kind, lane_count(integer.type)), "sitofp")


def clamp_above(x: LLVMValue, bound: float) -> LLVMValue:
    """Return the minimum of x and a bound; NaN is preserved."""
    return where(x.is_("ogt", bound), bound, x)


def clamp_below(x: LLVMValue, bound: float) -> LLVMValue:
    """Return the maximum of x and a bound; NaN is preserved."""
    return where(x.is_("olt", bound), bound, x)


def polynomial(x: LLVMValue, name: str, grade: str) -> LLVMValue:
    """Evaluate the polynomial of a name and grade by Horner's rule.

    The number of instructions matters, not their latency.
    """
    return horner(x, POLYNOMIALS[f"{name}.{grade}"])


def horner(x: LLVMValue, coefficients: Sequence[float]) -> LLVMValue:
    """Return c0 + c1 x + c2 x^2 + ..."""
    *lower, last = coefficients
    total = constant_like(x, last)
    for coefficient in reversed(lower):
        total = fma(total, x, coefficient)
    return total


def round_to_integer(x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return the nearest integer, as a float and as an integer; correct if |x| < 2^22 (f64: 2^51).

    Adding 1.5 * 2^23 (f64: 1.5 * 2^52) shifts the fraction out at the right end.
    """
    kind = element_type(x.type)
    shift = 1.5 * 2.0 ** FRACTION_BITS[kind]
    shifted = x + shift
    pattern = (0x4B400000, 0x4338000000000000)[kind == "double"]
    return shifted - shift, bits_of(shifted) - pattern


def round_product_to_integer(x: LLVMValue, factor: Operand) -> tuple[LLVMValue, LLVMValue]:
    """Return `round_to_integer` of x times a factor, without rounding the product."""
    kind = element_type(x.type)
    shift = 1.5 * 2.0 ** FRACTION_BITS[kind]
    shifted = fma(x, factor, shift)
    pattern = (0x4B400000, 0x4338000000000000)[kind == "double"]
    return shifted - shift, bits_of(shifted) - pattern


def any_of(f: LLVMFunction, condition: LLVMValue) -> LLVMValue:
    """Return whether a condition holds in any lane."""
    count = lane_count(condition.type)
    if count == 1:
        return condition
    name = f"llvm.vector.reduce.or.v{count}i1"
    f.module.declare(name, "i1", [condition.type])
    return f.call(name, [condition], "i1")


def select_rare(
    rare: LLVMValue,
    value: LLVMValue,
    otherwise: Callable[[], LLVMValue],
    easy: Callable[[], tuple[LLVMValue, Operand]] | None = None,
) -> LLVMValue:
    """Return `value`, but in rare lanes the result of `otherwise`, which runs only if a lane is
    rare.

    Its results in other lanes are discarded, so that no lane depends on the others. `easy` returns
    the lanes with a trivial value, and that value: if all rare lanes are such, `otherwise` does not
    run.
    """
    f = value.function
    result = f.variable(value.type, value)
    with f.when(any_of(f, rare), seldom=True):
        if easy is None:
            result.set(where(rare, (f.cold_path or otherwise)(), value))
        else:
            which, known = easy()
            result.set(where(which, known, value))
            left = rare & ~which
            with f.when(any_of(f, left), seldom=True):
                result.set(where(left, (f.cold_path or otherwise)(), result.get()))
    return result.get()


def power_of_two(exponent: LLVMValue) -> LLVMValue:
    """Return 2^exponent for integers whose power is a normal number."""
    kind = "float" if element_type(exponent.type) == "i32" else "double"
    return float_of((exponent + EXPONENT_BIAS[kind]) << FRACTION_BITS[kind])


def scale_by_power_of_two(
    x: LLVMValue, exponent: LLVMValue, number: LLVMValue | None = None
) -> LLVMValue:
    """Return x 2^exponent, rounded once if 1 <= |x| < 4 or if the machine has an instruction for
    it.

    Otherwise the product is computed in two steps, since the power alone may overflow. `number` is
    the exponent as a float, if it is known, which is the operand of the instruction.
    """
    f = x.function
    if number is not None and has_scaling_registers(f.machine):
        return scale_registers(x, number)
    if "+avx512f" in f.machine.features:
        type_name = {"float": "f32", "double": "f64"}[element_type(x.type)]
        name = f"llvm.ldexp.v{lane_count(x.type)}{type_name}.v{lane_count(x.type)}i{type_name[1:]}"
        f.module.declare(name, x.type, [x.type, exponent.type])
        return f.call(name, [x, exponent], x.type)
    half = shift_right(exponent, 1)
    return x * power_of_two(half) * power_of_two(exponent - half)


def has_scaling_registers(machine: HostDescription) -> bool:
    """Return whether an instruction multiplies registers by powers of two (AVX-512)."""
    return machine.has("avx512f") and machine.vector_bytes == AVX512_BYTES


def scale_registers(x: LLVMValue, number: LLVMValue) -> LLVMValue:
    """Return x 2^number, with the number rounded down, by the instruction for each register;
    vectors of fewer lanes are extended."""
    f, count, kind = x.function, lane_count(x.type), element_type(x.type)
    lanes = AVX512_BYTES // (4 if kind == "float" else 8)
    if count > lanes:
        low, high = (
            scale_registers(*(f.shuffle(v, v, range(at, at + count // 2)) for v in (x, number)))
            for at in (0, count // 2)
        )
        return f.shuffle(low, high, range(count))
    if count < lanes:
        first = [i % count for i in range(lanes)]
        scaled = scale_registers(*(f.shuffle(v, v, first) for v in (x, number)))
        return f.shuffle(scaled, scaled, range(count))
    name = f"llvm.x86.avx512.mask.scalef.{'ps' if kind == 'float' else 'pd'}.512"
    mask = f"i{lanes}"
    f.module.declare(name, x.type, [x.type, x.type, x.type, mask, "i32 immarg"])
    text = f"{x.type} {x}, {x.type} {number}, {x.type} poison, {mask} -1, i32 4"
    return f.emit(f"call {x.type} @{name}({text})", x.type)


def shift_right(integer: LLVMValue, times: int) -> LLVMValue:
    """Return integer / 2^times, rounded down."""
    f = integer.function
    by = f.value(times, integer.type)
    return f.emit(f"ashr {integer.type} {integer}, {by}", integer.type)


def split_power(x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Split a positive normal x = m 2^k into m in [sqrt(1/2), sqrt(2)) and the integer k."""
    kind = element_type(x.type)
    least = (0x3F3504F3, 0x3FE6A09E667F3BCD)[kind == "double"]
    bits = bits_of(x) - least
    k = shift_right(bits, FRACTION_BITS[kind])
    return float_of(bits - (k << FRACTION_BITS[kind]) + least), k


def two_sum(a: LLVMValue, b: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return a + b as a rounded sum and its rounding error (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def fast_two_sum(a: LLVMValue, b: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return a + b as a rounded sum and its rounding error, for |a| >= |b| (Dekker)."""
    s = a + b
    return s, b - (s - a)


def two_product(a: LLVMValue, b: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return a b as a rounded product and its rounding error."""
    p = a * b
    return p, fma(a, b, -p)


def emit_minimum_maximum(
    f: LLVMFunction, op: str, a: LLVMValue, b: LLVMValue, no_nan: bool = False
) -> LLVMValue:
    """Return `max` or `min` of two vectors; `no_nan` means that no element is NaN.

    NaN is propagated, and +0 is greater than -0.

    If the processor has no such instruction, two comparisons are used: of equal operands, and of a
    number and NaN, they return one operand in one order and the other in the opposite order.
    Combining the bits of both results gives NaN if either is NaN; for two zeros the sign bits are
    combined by `and` (for `max`) or by `or`, and for other operands both results are the same.
    """
    if architecture(f.machine.triple) != "x86_64":
        return f.intrinsic("maximum" if op == "max" else "minimum", a, b)
    further = "ogt" if op == "max" else "olt"
    one = f.select(a.is_(further, b), a, b)
    other = f.select(b.is_(further, a), b, a)
    width = 32 if element_type(a.type) == "float" else 64
    bits = vector_type(f"i{width}", lane_count(a.type))
    whole, rest = one.to(bits, "bitcast"), other.to(bits, "bitcast")
    if op == "min":
        return (whole | rest).to(a.type, "bitcast")
    both = whole & rest
    if not no_nan:
        both = both | ((whole | rest) & ((1 << width - 1) - 1))
    return both.to(a.type, "bitcast")
