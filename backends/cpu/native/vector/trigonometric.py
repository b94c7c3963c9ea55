"""sin, cos and tan: x - k pi/2 in three parts (Cody and Waite), polynomials of the remainder.

x - k P1 is exact when fused, since P1 is pi/2 to all bits that it has in common with x. Larger
arguments are reduced lane by lane (`argument_reduction`).
"""

from shardir.backends.cpu.native.llvm.text import Value, element
from shardir.backends.cpu.native.vector.arithmetic import (
    Functions,
    bits_of,
    constant,
    fast_two_sum,
    float_of,
    fma,
    is_single,
    nearest_product,
    polynomial,
    rarely,
    size,
    two_product,
    where,
)
from shardir.backends.cpu.native.vector.coefficients import POLYNOMIALS
from shardir.backends.cpu.native.vector.reduction import BY_LN2, reduced_far

HALF_PI = {
    True: (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    False: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
"""pi/2 in three parts, for f32 and for f64."""
OVER_LN2 = (2.266180070913597, -1.7290587296149343e-16, -1.0508274702698301e-32)
"""pi/2 divided by ln 2, in three parts of f64."""
LN2 = (0.6931471805599453, 2.3190468138462996e-17)
SINE = (*POLYNOMIALS["sin.f32"], 0.0)
COSINE = (-0.5, *POLYNOMIALS["cos.f32"])
"""Coefficients in z = r^2, padded to the same degree."""
FAR = {True: 2.0**17, False: 2.0**28}
"""From this magnitude on lanes are reduced one by one."""


def reduced(x: Value, exact: bool) -> tuple[Value, Value, Value]:
    """Return r, low (0 unless `exact`) and k of x = k pi/2 + r + low."""
    near = _less_quarters(x, exact, HALF_PI[is_single(x)])
    return reduced_far(x, FAR[is_single(x)], near)


def _reduced_times_ln2(x: Value) -> tuple[Value, Value, Value]:
    """Return r, low and k of x ln(2) = k pi/2 + r + low for f64, subtracting multiples before
    rounding."""
    r, low, k = _less_quarters(x, True, OVER_LN2)
    product, lost = two_product(r, constant(x, LN2[0]))
    low = fma(r, LN2[1], fma(low, LN2[0], lost))
    return reduced_far(x, FAR[False], (product, low, k), BY_LN2)


def _less_quarters(
    x: Value, exact: bool, quarter: tuple[float, float, float]
) -> tuple[Value, Value, Value]:
    """Subtract the nearest multiple of a quarter turn; return the remainder and the multiple."""
    first, second, third = quarter
    k, integer = nearest_product(x, 1 / sum(quarter))
    before = fma(k, -first, x)
    if exact:
        # The product is rounded separately, so that `before - r` is exact even if r is tiny.
        r = before - k * second
        low = fma(k, -third, fma(k, -second, before - r))
    else:
        r, low = fma(k, -third, fma(k, -second, before)), constant(x, 0.0)
    return r, low, integer


def sine(r: Value, low: Value | None, grade: str) -> tuple[Value, Value]:
    """Return the sine of r + low, and its rounding error."""
    z = r * r
    tail = r * z * polynomial(z, "sin", grade)
    if low is not None:
        tail = tail + low * fma(z, -0.5, 1.0)
    return fast_two_sum(r, tail)


def cosine(r: Value, low: Value | None, grade: str) -> tuple[Value, Value]:
    """Return the cosine of r + low, and its rounding error."""
    z = r * r
    tail = z * z * polynomial(z, "cos", grade)
    if low is None:
        return fast_two_sum(fma(z, -0.5, 1.0), tail)
    half = z * 0.5
    whole = 1.0 - half
    return fast_two_sum(whole, ((1.0 - whole) - half) + (tail - r * low))


def _of_quadrant(x: Value, grade: str, turn: int) -> Value:
    exact = grade == "f64"
    r, rest, k = reduced(x, exact)
    return _wave_in_quarter(r, rest if exact else None, k + turn if turn else k, grade)


def _wave_in_quarter(r: Value, low: Value | None, k: Value, grade: str) -> Value:
    value = where((k & 1).is_("ne", 0), cosine(r, low, grade)[0], sine(r, low, grade)[0])
    top = {"float": 30, "double": 62}[element(r.type)]
    return float_of(bits_of(value) ^ ((k & 2) << top))


def _wave(a: Value, turn: int) -> tuple[Value, Value]:
    """Return the sine of a + `turn` quarter turns without its sign, and the quadrant, of f32.

    1 + z P(z) with z = r^2 is the cosine, r times another such series is the sine: one polynomial
    whose coefficients each lane selects.
    """
    r, _, k = reduced(a, False)
    k = k + turn if turn else k
    z = r * r
    even = (k & 1).is_("ne", 0)
    total = where(even, constant(a, COSINE[-1]), SINE[-1])
    for of_cosine, of_sine in zip(COSINE[-2::-1], SINE[-2::-1], strict=True):
        total = fma(total, z, where(even, constant(a, of_cosine), of_sine))
    base = where(even, 1.0, r)
    return fma(base * z, total, base), k


def sin(x: Value, grade: str) -> Value:
    """Return the sine; NaN for infinities."""
    if is_single(x):
        value, k = _wave(size(x), 0)
        sign = ((k << 30) ^ bits_of(x)) & -(1 << 31)
        return _unless_far(x, float_of(bits_of(value) ^ sign))
    return where(size(x).is_("oeq", 0.0), x, _of_quadrant(x, grade, 0))


def cos(x: Value, grade: str) -> Value:
    """Return the cosine; NaN for infinities."""
    if is_single(x):
        value, k = _wave(size(x), 1)
        return _unless_far(x, float_of(bits_of(value) ^ ((k << 30) & -(1 << 31))))
    return _of_quadrant(x, grade, 1)


def sin_ln2(x: Value, grade: str) -> Value:
    """Return the sine of x ln(2) for f64, without rounding the product."""
    value = _wave_in_quarter(*_reduced_times_ln2(x), grade)
    return where(size(x).is_("oeq", 0.0), x, value)


def cos_ln2(x: Value, grade: str) -> Value:
    """Return the cosine of x ln(2) for f64, without rounding the product."""
    r, low, k = _reduced_times_ln2(x)
    return _wave_in_quarter(r, low, k + 1, grade)


def tan(x: Value, grade: str) -> Value:
    """Return the tangent: a polynomial, and its negative inverse in every other quadrant."""
    if is_single(x):
        r, _, k = reduced(size(x), False)
        z = r * r
        tangent = fma(r * z, polynomial(z, "tan", grade), r)
    else:
        r, low, k = reduced(size(x), True)
        z = r * r
        tangent = r + fma(r * z, polynomial(z, "tan", "f64"), fma(low, z, low))
    odd = (k & 1).is_("ne", 0)
    value = where(odd, -1.0, tangent) / where(odd, tangent, 1.0)
    top = -(1 << 63 - 32 * is_single(x))
    return _unless_far(x, float_of(bits_of(value) ^ (bits_of(x) & top)))


def _unless_far(x: Value, value: Value) -> Value:
    """Return the value, with large lanes computed out of line if the function has such a path."""
    if x.function.apart is None or not is_single(x):
        return value
    return rarely(size(x).is_("uge", FAR[True]), value, x.function.apart)


FUNCTIONS: Functions = {
    "sin": (1, sin),
    "cos": (1, cos),
    "tan": (1, tan),
    "sin_ln2": (1, sin_ln2),
    "cos_ln2": (1, cos_ln2),
}
