"""Functions of complex numbers, composed of the library's functions of f64.

c64 is computed in f64 and rounded once, so that nothing overflows on the way. Zeros and infinities
follow C99 (Annex G), as in NumPy. The formulas of tanh are W. Kahan's, "Branch cuts for complex
elementary functions" (1987).
"""

from collections.abc import Callable
from math import log

from shardir.backends.cpu.native.llvm.text import Value, element, lanes, vector
from shardir.backends.cpu.native.vector import library
from shardir.backends.cpu.native.vector.application import Application, Rule
from shardir.backends.cpu.native.vector.arithmetic import (
    INFINITY,
    NAN,
    at_least,
    at_most,
    bits_of,
    constant,
    float_of,
    fma,
    root,
    signed_as,
    size,
    two_product,
    two_sum,
    where,
)
from shardir.backends.cpu.native.vector.complex_size import size_of_single
from shardir.backends.cpu.native.vector.complexes import Pair, divided, multiplied
from shardir.backends.cpu.native.vector.registers import Held, parts

LN2 = log(2)


def call(name: str, *args: Value) -> Value:
    return library.call(args[0].function, name, "f64", *args)


def _is_endless(x: Value) -> Value:
    return size(x).is_("oeq", INFINITY)


def _is_finite(x: Value) -> Value:
    return size(x).is_("olt", INFINITY)


def exp(z: Pair) -> Pair:
    """Return e^a (cos b, sin b)."""
    return _turned_power(z, "exp", 709.0, ("cos", "sin"))


def exp2(z: Pair) -> Pair:
    """Return 2^a (cos(b ln 2), sin(b ln 2)), without rounding b ln 2, which could be off by whole
    turns."""
    return _turned_power(z, "exp2", 1023.0, ("cos_ln2", "sin_ln2"))


def _turned_power(z: Pair, power: str, end: float, waves: tuple[str, str]) -> Pair:
    """Return a power of the real part times cosine and sine of the other, in two factors if it
    overflows."""
    a, b = z
    large = a.is_("ogt", end)
    scale = call(power, where(large, a * 0.5, a))
    again = where(large, scale, 1.0)
    real = scale * call(waves[0], b) * again
    imag = where(b.is_("oeq", 0.0), b, scale * call(waves[1], b) * again)
    is_nonfinite = ~_is_finite(b)
    vanishes = a.is_("oeq", -INFINITY) & is_nonfinite
    overflows = a.is_("oeq", INFINITY) & is_nonfinite
    real = where(vanishes, 0.0, where(overflows, INFINITY, real))
    return real, where(vanishes, 0.0, imag)


def _squares(z: Pair) -> tuple[Value, Value, Value, Value]:
    """Return the larger and the smaller magnitude of the parts, and 2^e and 2^-e that scale the
    larger to 1."""
    a, b = size(z[0]), size(z[1])
    high, low = where(a.is_("ogt", b), a, b), where(a.is_("ogt", b), b, a)
    exponent = float_of(bits_of(at_most(at_least(high, 2.0**-1000), 2.0**1000)) & (0x7FF << 52))
    return high, low, exponent, 1.0 / exponent


def absolute(z: Pair) -> Value:
    """Return the root of the sum of squares, scaled to around 1; an infinity dominates NaN."""
    high, low, up, down = _squares(z)
    m, n = high * down, low * down
    value = root(fma(m, m, n * n)) * up
    return where(_is_endless(z[0]) | _is_endless(z[1]), INFINITY, value)


def log_of(z: Pair, past: Value | None = None) -> Pair:
    """Return log |z| and the angle; with `past`, those of (past + a, b).

    Near |z| = 1 the logarithm is computed from |z|^2 - 1, which is summed in two parts; otherwise
    from the larger part.
    """
    a, b = z
    whole, rest = (a, constant(a, 0.0)) if past is None else two_sum(past, a)
    high, low, _, _ = _squares((whole, b))
    p, p_low = two_product(at_most(high, 4.0), at_most(high, 4.0))
    q, q_low = two_product(at_most(low, 4.0), at_most(low, 4.0))
    s, s_low = two_sum(p, q)
    near = s.is_("ogt", 0.5) & s.is_("olt", 2.0)
    more = 2.0 * where(near, whole, 0.0) * rest
    excess = (s - 1.0) + (s_low + (p_low + q_low) + more)
    ratio = low / where(high.is_("oeq", 0.0) | _is_endless(high), 1.0, high)
    ratio = where(_is_endless(high), 0.0, ratio)
    tail = 0.5 * call("log1p", where(near, excess, ratio * ratio))
    real = where(near, tail, call("log", high) + tail)
    is_infinite = _is_endless(a) | _is_endless(b)
    real = where(is_infinite, INFINITY, where(a.is_("uno", b), NAN, real))
    return real, call("atan2", b, whole)


def log1p(z: Pair) -> Pair:
    """Return log(1 + z); for small z |1 + z|^2 - 1 = 2 a + a^2 + b^2 is computed without adding the
    1."""
    a, b = z
    whole = log_of(z, constant(a, 1.0))
    square, low = two_product(a, a)
    other, other_low = two_product(b, b)
    first, second = two_sum(2.0 * a, square)
    third, fourth = two_sum(first, other)
    excess = third + (second + fourth + low + other_low)
    near = size(a).is_("olt", 0.25) & size(b).is_("olt", 0.25)
    return where(near, 0.5 * call("log1p", where(near, excess, 0.0)), whole[0]), whole[1]


def sqrt(z: Pair) -> Pair:
    """Return the square root with a nonnegative real part."""
    a, b = z
    _, _, up, _ = _squares(z)
    even = float_of((bits_of(up) & (0x3FF << 53)) | (1 << 52))
    m, n = size(a) / even, b / even
    t = root(0.5 * (absolute((m, n)) + m))
    other = size(n) / where(t.is_("oeq", 0.0), 1.0, t + t)
    scale = root(even)
    left = a.is_("olt", 0.0)
    real, imag = where(left, other, t) * scale, where(left, t, other) * scale
    is_infinite = _is_endless(a)
    nan_or_zero = where(b.is_("uno", b), NAN, constant(a, 0.0))
    real = where(is_infinite, where(left, nan_or_zero, a), real)
    imag = where(is_infinite, where(left, INFINITY, nan_or_zero), imag)
    real = where(_is_endless(b), INFINITY, real)
    return real, where(_is_endless(b), b, signed_as(imag, b))


def _hyperbolic(a: Value) -> tuple[Value, Value, Value]:
    """Return cosh, sinh, and a factor of both, which differs from 1 where they overflow."""
    large = size(a).is_("ogt", 709.0)
    inside = where(large, 1.0, a)
    half = call("exp", where(large, size(a) * 0.5, 0.0))
    cosh = where(large, 0.5 * half, call("cosh", inside))
    return cosh, where(large, signed_as(0.5 * half, a), call("sinh", inside)), half


def sinh(z: Pair) -> Pair:
    a, b = z
    cosh, sinh_, more = _hyperbolic(a)
    real = sinh_ * call("cos", b) * more
    imag = where(b.is_("oeq", 0.0), b, cosh * call("sin", b) * more)
    is_indefinite = _is_endless(a) & ~_is_finite(b)
    return where(is_indefinite | (a.is_("oeq", 0.0) & ~_is_finite(b)), a, real), imag


def cosh(z: Pair) -> Pair:
    a, b = z
    cosh_, sinh_, more = _hyperbolic(a)
    real = cosh_ * call("cos", b) * more
    imag = sinh_ * call("sin", b) * more
    flat = (b.is_("oeq", 0.0) | a.is_("oeq", 0.0)) & imag.is_("uno", imag)
    sign = signed_as(constant(a, 1.0), a) * signed_as(constant(b, 1.0), b)
    imag = where(flat, 0.0 * sign, imag)
    is_indefinite = _is_endless(a) & ~_is_finite(b)
    return where(is_indefinite, INFINITY, real), imag


def tanh(z: Pair) -> Pair:
    a, b = z
    is_large = size(a).is_("ogt", 20.0)
    t = call("tan", b)
    s = call("sinh", where(is_large, 0.0, a))
    beta, rho = fma(t, t, 1.0), root(fma(s, s, 1.0))
    below = fma(beta * s, s, 1.0)
    real = where(is_large, signed_as(constant(a, 1.0), a), beta * rho * s / below)
    decay = 4.0 * call("exp", -2.0 * where(is_large, size(a), 0.0))
    tail = call("sin", b) * call("cos", b) * decay
    tail = where(_is_finite(b), tail, where(_is_endless(a), constant(a, 0.0), NAN))
    imag = where(is_large, tail, t / below)
    real = where(a.is_("oeq", 0.0), a, where(_is_finite(b) | _is_endless(a), real, NAN))
    return real, where(b.is_("oeq", 0.0), b, imag)


def turned(function: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    """Return -i f(iz), which is sin for sinh and tan for tanh."""

    def apply(z: Pair) -> Pair:
        real, imag = function((-z[1], z[0]))
        return imag, -real

    return apply


def expm1(z: Pair) -> Pair:
    """Return the parts (expm1(a) cos b - 2 sin^2(b / 2), e^a sin b)."""
    a, b = z
    half = call("sin", b * 0.5)
    real = fma(call("expm1", a), call("cos", b), -2.0 * half * half)
    is_nonfinite = ~_is_finite(b)
    low, high = a.is_("oeq", -INFINITY), a.is_("oeq", INFINITY)
    real = where(low, -1.0, where(high & is_nonfinite, INFINITY, real))
    imag = where(b.is_("oeq", 0.0), b, call("exp", a) * call("sin", b))
    return real, where(low & is_nonfinite, 0.0, imag)


def logistic(z: Pair) -> Pair:
    """Return 1 / (1 + e^-z), computed from the smaller of both exponentials."""
    a, b = z
    left = a.is_("olt", 0.0)
    small = exp((where(left, a, -a), where(left, b, -b)))
    one = constant(a, 1.0), constant(a, 0.0)
    above = where(left, small[0], one[0]), where(left, small[1], one[1])
    return divided(above, (small[0] + 1.0, small[1]))


def rsqrt(z: Pair) -> Pair:
    return divided((constant(z[0], 1.0), constant(z[0], 0.0)), sqrt(z))


def sign(z: Pair) -> Pair:
    """Return z / |z|, and 0 for 0."""
    length = absolute(z)
    is_zero = length.is_("oeq", 0.0)
    result = divided(z, (where(is_zero, 1.0, length), constant(z[0], 0.0)))
    return where(is_zero, 0.0, result[0]), where(is_zero, 0.0, result[1])


def power(x: Pair, y: Pair) -> Pair:
    """Return exp(y log x); 1 for y = 0. 0 to a power with a positive real part is 0, otherwise
    NaN."""
    value = exp(multiplied(y, log_of(x)))
    is_zero = x[0].is_("oeq", 0.0) & x[1].is_("oeq", 0.0)
    zero = where(y[0].is_("ogt", 0.0), constant(x[0], 0.0), NAN)
    one = y[0].is_("oeq", 0.0) & y[1].is_("oeq", 0.0)
    real, imag = (where(is_zero, zero, part) for part in value)
    return where(one, 1.0, real), where(one, 0.0, imag)


def in_double(function: Callable[..., Held]) -> Rule:
    """Return a rule for both complex types from a function of f64 pairs."""

    def rule(a: Application) -> Held:
        given = a.pairs
        wide = vector("double", lanes(given[0][0].type))
        narrow = given[0][0].type
        if narrow == wide:
            return function(*given)
        result = function(*((re.to(wide, "fpext"), im.to(wide, "fpext")) for re, im in given))
        if isinstance(result, Value):
            return result.to(narrow, "fptrunc")
        real, imag = parts(result)
        return real.to(narrow, "fptrunc"), imag.to(narrow, "fptrunc")

    return rule


def _absolute(a: Application) -> Held:
    z = a.pairs[0]
    narrow = z[0].type
    if element(narrow) == "double":
        return absolute(z)

    def in_f64() -> Value:
        """Compute in f64, where squares neither overflow nor underflow."""
        re, im = (part.to(vector("double", lanes(narrow)), "fpext") for part in z)
        result = root(fma(re, re, im * im)).to(narrow, "fptrunc")
        return where(_is_endless(z[0]) | _is_endless(z[1]), INFINITY, result)

    return size_of_single(z, in_f64)


def log2(z: Pair) -> Pair:
    real, imag = log_of(z)
    return real * (1 / LN2), imag * (1 / LN2)


FUNCTIONS: dict[str, Callable[..., Held]] = {
    "exp": exp, "exp2": exp2, "expm1": expm1, "log": log_of,
    "log2": log2, "log1p": log1p, "sqrt": sqrt, "rsqrt": rsqrt,
    "sinh": sinh, "cosh": cosh, "tanh": tanh, "sin": turned(sinh),
    "cos": lambda z: cosh((-z[1], z[0])), "tan": turned(tanh), "logistic": logistic,
    "sign": sign, "pow": power,
}  # fmt: skip
"""Functions of f64 pairs."""

RULES: dict[str, Rule] = {
    "abs": _absolute,
    **{name: in_double(function) for name, function in FUNCTIONS.items()},
}
