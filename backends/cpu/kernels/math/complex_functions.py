"""Functions of complex numbers, composed of the library's functions of f64.

c64 is computed in f64 and rounded once, so that nothing overflows on the way. Zeros and infinities
follow C99 (Annex G), as in NumPy. The formulas of tanh are W. Kahan's, "Branch cuts for complex
elementary functions" (1987).
"""

from collections.abc import Callable
from math import log

from shardir.backends.cpu.codegen.llvm_text import LLVMValue, element_type, lane_count, vector_type
from shardir.backends.cpu.kernels.math import library
from shardir.backends.cpu.kernels.math.application import OpApplication, VectorRule
from shardir.backends.cpu.kernels.math.complex_arithmetic import (
    ComplexPair,
    abs_of_single,
    divide_complex,
    multiply_complex,
)
from shardir.backends.cpu.kernels.math.registers import VectorValue, parts
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    INFINITY,
    NAN,
    absolute_value,
    bits_of,
    clamp_above,
    clamp_below,
    constant_like,
    copy_sign,
    float_of,
    fma,
    square_root,
    two_product,
    two_sum,
    where,
)

LN2 = log(2)


def call_double(name: str, *args: LLVMValue) -> LLVMValue:
    return library.call_function(args[0].function, name, "f64", *args)


def _is_infinite(x: LLVMValue) -> LLVMValue:
    return absolute_value(x).is_("oeq", INFINITY)


def _is_finite(x: LLVMValue) -> LLVMValue:
    return absolute_value(x).is_("olt", INFINITY)


def exp(z: ComplexPair) -> ComplexPair:
    """Return e^a (cos b, sin b)."""
    return _emit_complex_power(z, "exp", 709.0, ("cos", "sin"))


def exp2(z: ComplexPair) -> ComplexPair:
    """Return 2^a (cos(b ln 2), sin(b ln 2)), without rounding b ln 2, which could be off by whole
    turns."""
    return _emit_complex_power(z, "exp2", 1023.0, ("cos_ln2", "sin_ln2"))


def _emit_complex_power(
    z: ComplexPair, power: str, end: float, waves: tuple[str, str]
) -> ComplexPair:
    """Return a power of the real part times cosine and sine of the other, in two factors if it
    overflows."""
    a, b = z
    large = a.is_("ogt", end)
    scale = call_double(power, where(large, a * 0.5, a))
    again = where(large, scale, 1.0)
    real = scale * call_double(waves[0], b) * again
    imag = where(b.is_("oeq", 0.0), b, scale * call_double(waves[1], b) * again)
    is_nonfinite = ~_is_finite(b)
    vanishes = a.is_("oeq", -INFINITY) & is_nonfinite
    overflows = a.is_("oeq", INFINITY) & is_nonfinite
    real = where(vanishes, 0.0, where(overflows, INFINITY, real))
    return real, where(vanishes, 0.0, imag)


def _sorted_magnitudes(z: ComplexPair) -> tuple[LLVMValue, LLVMValue, LLVMValue, LLVMValue]:
    """Return the larger and the smaller magnitude of the parts, and 2^e and 2^-e that scale the
    larger to 1."""
    a, b = absolute_value(z[0]), absolute_value(z[1])
    high, low = where(a.is_("ogt", b), a, b), where(a.is_("ogt", b), b, a)
    exponent = float_of(
        bits_of(clamp_above(clamp_below(high, 2.0**-1000), 2.0**1000)) & (0x7FF << 52)
    )
    return high, low, exponent, 1.0 / exponent


def complex_abs(z: ComplexPair) -> LLVMValue:
    """Return the root of the sum of squares, scaled to around 1; an infinity dominates NaN."""
    high, low, up, down = _sorted_magnitudes(z)
    m, n = high * down, low * down
    value = square_root(fma(m, m, n * n)) * up
    return where(_is_infinite(z[0]) | _is_infinite(z[1]), INFINITY, value)


def complex_log(z: ComplexPair, past: LLVMValue | None = None) -> ComplexPair:
    """Return log |z| and the angle; with `past`, those of (past + a, b).

    Near |z| = 1 the logarithm is computed from |z|^2 - 1, which is summed in two parts; otherwise
    from the larger part.
    """
    a, b = z
    whole, rest = (a, constant_like(a, 0.0)) if past is None else two_sum(past, a)
    high, low, _, _ = _sorted_magnitudes((whole, b))
    p, p_low = two_product(clamp_above(high, 4.0), clamp_above(high, 4.0))
    q, q_low = two_product(clamp_above(low, 4.0), clamp_above(low, 4.0))
    s, s_low = two_sum(p, q)
    near = s.is_("ogt", 0.5) & s.is_("olt", 2.0)
    more = 2.0 * where(near, whole, 0.0) * rest
    excess = (s - 1.0) + (s_low + (p_low + q_low) + more)
    ratio = low / where(high.is_("oeq", 0.0) | _is_infinite(high), 1.0, high)
    ratio = where(_is_infinite(high), 0.0, ratio)
    tail = 0.5 * call_double("log1p", where(near, excess, ratio * ratio))
    real = where(near, tail, call_double("log", high) + tail)
    is_infinite = _is_infinite(a) | _is_infinite(b)
    real = where(is_infinite, INFINITY, where(a.is_("uno", b), NAN, real))
    return real, call_double("atan2", b, whole)


def log1p(z: ComplexPair) -> ComplexPair:
    """Return log(1 + z); for small z |1 + z|^2 - 1 = 2 a + a^2 + b^2 is computed without adding the
    1."""
    a, b = z
    whole = complex_log(z, constant_like(a, 1.0))
    square, low = two_product(a, a)
    other, other_low = two_product(b, b)
    first, second = two_sum(2.0 * a, square)
    third, fourth = two_sum(first, other)
    excess = third + (second + fourth + low + other_low)
    near = absolute_value(a).is_("olt", 0.25) & absolute_value(b).is_("olt", 0.25)
    return where(near, 0.5 * call_double("log1p", where(near, excess, 0.0)), whole[0]), whole[1]


def sqrt(z: ComplexPair) -> ComplexPair:
    """Return the square root with a nonnegative real part."""
    a, b = z
    _, _, up, _ = _sorted_magnitudes(z)
    even = float_of((bits_of(up) & (0x3FF << 53)) | (1 << 52))
    m, n = absolute_value(a) / even, b / even
    t = square_root(0.5 * (complex_abs((m, n)) + m))
    other = absolute_value(n) / where(t.is_("oeq", 0.0), 1.0, t + t)
    scale = square_root(even)
    left = a.is_("olt", 0.0)
    real, imag = where(left, other, t) * scale, where(left, t, other) * scale
    is_infinite = _is_infinite(a)
    nan_or_zero = where(b.is_("uno", b), NAN, constant_like(a, 0.0))
    real = where(is_infinite, where(left, nan_or_zero, a), real)
    imag = where(is_infinite, where(left, INFINITY, nan_or_zero), imag)
    real = where(_is_infinite(b), INFINITY, real)
    return real, where(_is_infinite(b), b, copy_sign(imag, b))


def _scaled_hyperbolic(a: LLVMValue) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
    """Return cosh, sinh, and a factor of both, which differs from 1 where they overflow."""
    large = absolute_value(a).is_("ogt", 709.0)
    inside = where(large, 1.0, a)
    half = call_double("exp", where(large, absolute_value(a) * 0.5, 0.0))
    cosh = where(large, 0.5 * half, call_double("cosh", inside))
    return cosh, where(large, copy_sign(0.5 * half, a), call_double("sinh", inside)), half


def sinh(z: ComplexPair) -> ComplexPair:
    a, b = z
    cosh, sinh_, more = _scaled_hyperbolic(a)
    real = sinh_ * call_double("cos", b) * more
    imag = where(b.is_("oeq", 0.0), b, cosh * call_double("sin", b) * more)
    is_indefinite = _is_infinite(a) & ~_is_finite(b)
    return where(is_indefinite | (a.is_("oeq", 0.0) & ~_is_finite(b)), a, real), imag


def cosh(z: ComplexPair) -> ComplexPair:
    a, b = z
    cosh_, sinh_, more = _scaled_hyperbolic(a)
    real = cosh_ * call_double("cos", b) * more
    imag = sinh_ * call_double("sin", b) * more
    flat = (b.is_("oeq", 0.0) | a.is_("oeq", 0.0)) & imag.is_("uno", imag)
    sign = copy_sign(constant_like(a, 1.0), a) * copy_sign(constant_like(b, 1.0), b)
    imag = where(flat, 0.0 * sign, imag)
    is_indefinite = _is_infinite(a) & ~_is_finite(b)
    return where(is_indefinite, INFINITY, real), imag


def tanh(z: ComplexPair) -> ComplexPair:
    a, b = z
    is_large = absolute_value(a).is_("ogt", 20.0)
    t = call_double("tan", b)
    s = call_double("sinh", where(is_large, 0.0, a))
    beta, rho = fma(t, t, 1.0), square_root(fma(s, s, 1.0))
    below = fma(beta * s, s, 1.0)
    real = where(is_large, copy_sign(constant_like(a, 1.0), a), beta * rho * s / below)
    decay = 4.0 * call_double("exp", -2.0 * where(is_large, absolute_value(a), 0.0))
    tail = call_double("sin", b) * call_double("cos", b) * decay
    tail = where(_is_finite(b), tail, where(_is_infinite(a), constant_like(a, 0.0), NAN))
    imag = where(is_large, tail, t / below)
    real = where(a.is_("oeq", 0.0), a, where(_is_finite(b) | _is_infinite(a), real, NAN))
    return real, where(b.is_("oeq", 0.0), b, imag)


def rotate_by_i(
    function: Callable[[ComplexPair], ComplexPair],
) -> Callable[[ComplexPair], ComplexPair]:
    """Return -i f(iz), which is sin for sinh and tan for tanh."""

    def apply(z: ComplexPair) -> ComplexPair:
        real, imag = function((-z[1], z[0]))
        return imag, -real

    return apply


def expm1(z: ComplexPair) -> ComplexPair:
    """Return the parts (expm1(a) cos b - 2 sin^2(b / 2), e^a sin b)."""
    a, b = z
    half = call_double("sin", b * 0.5)
    real = fma(call_double("expm1", a), call_double("cos", b), -2.0 * half * half)
    is_nonfinite = ~_is_finite(b)
    low, high = a.is_("oeq", -INFINITY), a.is_("oeq", INFINITY)
    real = where(low, -1.0, where(high & is_nonfinite, INFINITY, real))
    imag = where(b.is_("oeq", 0.0), b, call_double("exp", a) * call_double("sin", b))
    return real, where(low & is_nonfinite, 0.0, imag)


def logistic(z: ComplexPair) -> ComplexPair:
    """Return 1 / (1 + e^-z), computed from the smaller of both exponentials."""
    a, b = z
    left = a.is_("olt", 0.0)
    small = exp((where(left, a, -a), where(left, b, -b)))
    one = constant_like(a, 1.0), constant_like(a, 0.0)
    above = where(left, small[0], one[0]), where(left, small[1], one[1])
    return divide_complex(above, (small[0] + 1.0, small[1]))


def rsqrt(z: ComplexPair) -> ComplexPair:
    return divide_complex((constant_like(z[0], 1.0), constant_like(z[0], 0.0)), sqrt(z))


def sign(z: ComplexPair) -> ComplexPair:
    """Return z / |z|, and 0 for 0."""
    length = complex_abs(z)
    is_zero = length.is_("oeq", 0.0)
    result = divide_complex(z, (where(is_zero, 1.0, length), constant_like(z[0], 0.0)))
    return where(is_zero, 0.0, result[0]), where(is_zero, 0.0, result[1])


def power(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    """Return exp(y log x); 1 for y = 0. 0 to a power with a positive real part is 0, otherwise
    NaN."""
    value = exp(multiply_complex(y, complex_log(x)))
    is_zero = x[0].is_("oeq", 0.0) & x[1].is_("oeq", 0.0)
    zero = where(y[0].is_("ogt", 0.0), constant_like(x[0], 0.0), NAN)
    one = y[0].is_("oeq", 0.0) & y[1].is_("oeq", 0.0)
    real, imag = (where(is_zero, zero, part) for part in value)
    return where(one, 1.0, real), where(one, 0.0, imag)


def compute_in_double(function: Callable[..., VectorValue]) -> VectorRule:
    """Return a rule for both complex types from a function of f64 pairs."""

    def rule(a: OpApplication) -> VectorValue:
        given = a.pairs
        wide = vector_type("double", lane_count(given[0][0].type))
        narrow = given[0][0].type
        if narrow == wide:
            return function(*given)
        result = function(*((re.to(wide, "fpext"), im.to(wide, "fpext")) for re, im in given))
        if isinstance(result, LLVMValue):
            return result.to(narrow, "fptrunc")
        real, imag = parts(result)
        return real.to(narrow, "fptrunc"), imag.to(narrow, "fptrunc")

    return rule


def _abs_rule(a: OpApplication) -> VectorValue:
    z = a.pairs[0]
    narrow = z[0].type
    if element_type(narrow) == "double":
        return complex_abs(z)

    def in_f64() -> LLVMValue:
        """Compute in f64, where squares neither overflow nor underflow."""
        re, im = (part.to(vector_type("double", lane_count(narrow)), "fpext") for part in z)
        result = square_root(fma(re, re, im * im)).to(narrow, "fptrunc")
        return where(_is_infinite(z[0]) | _is_infinite(z[1]), INFINITY, result)

    return abs_of_single(z, in_f64)


def log2(z: ComplexPair) -> ComplexPair:
    real, imag = complex_log(z)
    return real * (1 / LN2), imag * (1 / LN2)


FUNCTIONS: dict[str, Callable[..., VectorValue]] = {
    "exp": exp, "exp2": exp2, "expm1": expm1, "log": complex_log,
    "log2": log2, "log1p": log1p, "sqrt": sqrt, "rsqrt": rsqrt,
    "sinh": sinh, "cosh": cosh, "tanh": tanh, "sin": rotate_by_i(sinh),
    "cos": lambda z: cosh((-z[1], z[0])), "tan": rotate_by_i(tanh), "logistic": logistic,
    "sign": sign, "pow": power,
}  # fmt: skip
"""Functions of f64 pairs."""

RULES: dict[str, VectorRule] = {
    "abs": _abs_rule,
    **{name: compute_in_double(function) for name, function in FUNCTIONS.items()},
}
