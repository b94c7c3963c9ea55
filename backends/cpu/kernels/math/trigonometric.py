"""sin, cos and tan: x - k pi/2 in three parts (Cody and Waite), polynomials of the remainder.

x - k P1 is exact when fused, since P1 is pi/2 to all bits that it has in common with x. Larger
arguments are reduced lane by lane (`argument_reduction`).
"""

from shardir.backends.cpu.codegen.llvm_text import LLVMValue, element_type
from shardir.backends.cpu.kernels.math.argument_reduction import REDUCE_LN2_SYMBOL, reduce_large
from shardir.backends.cpu.kernels.math.coefficients import POLYNOMIALS
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    FunctionTable,
    absolute_value,
    bits_of,
    constant_like,
    fast_two_sum,
    float_of,
    fma,
    is_single,
    polynomial,
    round_product_to_integer,
    select_rare,
    two_product,
    where,
)

HALF_PI_PARTS = {
    True: (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    False: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
"""pi/2 in three parts, for f32 and for f64."""
HALF_PI_OVER_LN2_PARTS = (2.266180070913597, -1.7290587296149343e-16, -1.0508274702698301e-32)
"""pi/2 divided by ln 2, in three parts of f64."""
LN2_PARTS = (0.6931471805599453, 2.3190468138462996e-17)
SINE_COEFFICIENTS = (*POLYNOMIALS["sin.f32"], 0.0)
COSINE_COEFFICIENTS = (-0.5, *POLYNOMIALS["cos.f32"])
"""Coefficients in z = r^2, padded to the same degree."""
LARGE_ARGUMENT = {True: 2.0**17, False: 2.0**28}
"""From this magnitude on lanes are reduced one by one."""


def reduce_argument(x: LLVMValue, exact: bool) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
    """Return r, low (0 unless `exact`) and k of x = k pi/2 + r + low."""
    near = _subtract_quarters(x, exact, HALF_PI_PARTS[is_single(x)])
    return reduce_large(x, LARGE_ARGUMENT[is_single(x)], near)


def _reduce_times_ln2(x: LLVMValue) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
    """Return r, low and k of x ln(2) = k pi/2 + r + low for f64, subtracting multiples before
    rounding."""
    r, low, k = _subtract_quarters(x, True, HALF_PI_OVER_LN2_PARTS)
    product, lost = two_product(r, constant_like(x, LN2_PARTS[0]))
    low = fma(r, LN2_PARTS[1], fma(low, LN2_PARTS[0], lost))
    return reduce_large(x, LARGE_ARGUMENT[False], (product, low, k), REDUCE_LN2_SYMBOL)


def _subtract_quarters(
    x: LLVMValue, exact: bool, quarter: tuple[float, float, float]
) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
    """Subtract the nearest multiple of a quarter turn; return the remainder and the multiple."""
    first, second, third = quarter
    k, integer = round_product_to_integer(x, 1 / sum(quarter))
    before = fma(k, -first, x)
    if exact:
        # The product is rounded separately, so that `before - r` is exact even if r is tiny.
        r = before - k * second
        low = fma(k, -third, fma(k, -second, before - r))
    else:
        r, low = fma(k, -third, fma(k, -second, before)), constant_like(x, 0.0)
    return r, low, integer


def sine(r: LLVMValue, low: LLVMValue | None, grade: str) -> tuple[LLVMValue, LLVMValue]:
    """Return the sine of r + low, and its rounding error."""
    z = r * r
    tail = r * z * polynomial(z, "sin", grade)
    if low is not None:
        tail = tail + low * fma(z, -0.5, 1.0)
    return fast_two_sum(r, tail)


def cosine(r: LLVMValue, low: LLVMValue | None, grade: str) -> tuple[LLVMValue, LLVMValue]:
    """Return the cosine of r + low, and its rounding error."""
    z = r * r
    tail = z * z * polynomial(z, "cos", grade)
    if low is None:
        return fast_two_sum(fma(z, -0.5, 1.0), tail)
    half = z * 0.5
    whole = 1.0 - half
    return fast_two_sum(whole, ((1.0 - whole) - half) + (tail - r * low))


def _sine_of_quadrant(x: LLVMValue, grade: str, turn: int) -> LLVMValue:
    exact = grade == "f64"
    r, rest, k = reduce_argument(x, exact)
    return _select_wave(r, rest if exact else None, k + turn if turn else k, grade)


def _select_wave(r: LLVMValue, low: LLVMValue | None, k: LLVMValue, grade: str) -> LLVMValue:
    value = where((k & 1).is_("ne", 0), cosine(r, low, grade)[0], sine(r, low, grade)[0])
    top = {"float": 30, "double": 62}[element_type(r.type)]
    return float_of(bits_of(value) ^ ((k & 2) << top))


def _unsigned_wave(a: LLVMValue, turn: int) -> tuple[LLVMValue, LLVMValue]:
    """Return the sine of a + `turn` quarter turns without its sign, and the quadrant, of f32.

    1 + z P(z) with z = r^2 is the cosine, r times another such series is the sine: one polynomial
    whose coefficients each lane selects.
    """
    r, _, k = reduce_argument(a, False)
    k = k + turn if turn else k
    z = r * r
    even = (k & 1).is_("ne", 0)
    total = where(even, constant_like(a, COSINE_COEFFICIENTS[-1]), SINE_COEFFICIENTS[-1])
    for of_cosine, of_sine in zip(
        COSINE_COEFFICIENTS[-2::-1], SINE_COEFFICIENTS[-2::-1], strict=True
    ):
        total = fma(total, z, where(even, constant_like(a, of_cosine), of_sine))
    base = where(even, 1.0, r)
    return fma(base * z, total, base), k


def sin(x: LLVMValue, grade: str) -> LLVMValue:
    """Return the sine; NaN for infinities."""
    if is_single(x):
        value, k = _unsigned_wave(absolute_value(x), 0)
        sign = ((k << 30) ^ bits_of(x)) & -(1 << 31)
        return _replace_large(x, float_of(bits_of(value) ^ sign))
    return where(absolute_value(x).is_("oeq", 0.0), x, _sine_of_quadrant(x, grade, 0))


def cos(x: LLVMValue, grade: str) -> LLVMValue:
    """Return the cosine; NaN for infinities."""
    if is_single(x):
        value, k = _unsigned_wave(absolute_value(x), 1)
        return _replace_large(x, float_of(bits_of(value) ^ ((k << 30) & -(1 << 31))))
    return _sine_of_quadrant(x, grade, 1)


def sin_ln2(x: LLVMValue, grade: str) -> LLVMValue:
    """Return the sine of x ln(2) for f64, without rounding the product."""
    value = _select_wave(*_reduce_times_ln2(x), grade)
    return where(absolute_value(x).is_("oeq", 0.0), x, value)


def cos_ln2(x: LLVMValue, grade: str) -> LLVMValue:
    """Return the cosine of x ln(2) for f64, without rounding the product."""
    r, low, k = _reduce_times_ln2(x)
    return _select_wave(r, low, k + 1, grade)


def tan(x: LLVMValue, grade: str) -> LLVMValue:
    """Return the tangent: a polynomial, and its negative inverse in every other quadrant."""
    if is_single(x):
        r, _, k = reduce_argument(absolute_value(x), False)
        z = r * r
        tangent = fma(r * z, polynomial(z, "tan", grade), r)
    else:
        r, low, k = reduce_argument(absolute_value(x), True)
        z = r * r
        tangent = r + fma(r * z, polynomial(z, "tan", "f64"), fma(low, z, low))
    odd = (k & 1).is_("ne", 0)
    value = where(odd, -1.0, tangent) / where(odd, tangent, 1.0)
    top = -(1 << 63 - 32 * is_single(x))
    return _replace_large(x, float_of(bits_of(value) ^ (bits_of(x) & top)))


def _replace_large(x: LLVMValue, value: LLVMValue) -> LLVMValue:
    """Return the value, with large lanes computed out of line if the function has such a path."""
    if x.function.cold_path is None or not is_single(x):
        return value
    return select_rare(
        absolute_value(x).is_("uge", LARGE_ARGUMENT[True]), value, x.function.cold_path
    )


FUNCTIONS: FunctionTable = {
    "sin": (1, sin),
    "cos": (1, cos),
    "tan": (1, tan),
    "sin_ln2": (1, sin_ln2),
    "cos_ln2": (1, cos_ln2),
}
