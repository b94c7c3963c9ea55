"""The gamma function and related functions, and binomial coefficients."""

from functools import partial
from math import log as log_of, pi

from shardir.frontend.argument_checks import check_integer
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.config import config
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import filling, ranges
from shardir.frontend.numpy.elementwise import (
    complex_parts,
    float_parts,
    math_functions,
    rounding,
    selection,
)
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    apply_elementwise,
    constant_like,
    inexact_kind,
    promote_args_inexact,
    require_real,
)
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.scipy.special_functions.double_double import compute_in_double
from shardir.frontend.scipy.special_functions.gamma_function import (
    factorial_of_double,
    gamma_of_double,
    is_even,
)
from shardir.frontend.scipy.special_functions.gamma_quotients import (
    beta_of_double,
    rising_factorial,
)
from shardir.frontend.scipy.special_functions.stirling import log_beta
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, promote_to
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.frontend.transforms.custom_jvp import custom_jvp


@public()
def gammaln(x: ArrayLike) -> Tracer:
    """Return the logarithm of the absolute value of the gamma function, elementwise."""
    return apply_elementwise("lgamma", x, kind=inexact_kind(x))


@public()
def digamma(x: ArrayLike) -> Tracer:
    """Return the derivative of `gammaln`, elementwise."""
    return apply_elementwise("digamma", x, kind=inexact_kind(x))


psi = digamma


@public()
def gammasgn(x: ArrayLike) -> Tracer:
    """Return the sign of the gamma function, 1 or -1, elementwise.

    At a zero it is the sign of the zero; it is NaN at other poles and for NaN.
    """
    (x,) = promote_args_inexact(x)
    below = rounding.floor(x)
    sign = selection.where((x > 0) | is_even(below), 1.0, -1.0)
    sign = selection.where((x < 0) & (below == x) | (x != x), dtypes.nan, sign)
    return selection.where(x == 0, float_parts.copysign(filling.ones_like(x), x), sign).astype(
        x.dtype
    )


@custom_jvp
def _gamma(x: ArrayLike) -> Tracer:
    return compute_in_double(gamma_of_double)(x)


@_gamma.defjvp
def _gamma_rule(primals: PyTree, tangents: PyTree) -> tuple[Tracer, ...]:
    value = _gamma(*primals)
    return value, value * digamma(*primals) * tangents[0]


@public()
@strip_weak_types
def gamma(x: ArrayLike) -> Tracer:
    """Return the gamma function, elementwise."""
    return _gamma(*promote_args_inexact(*require_real("gamma", x)))


@custom_jvp
def _factorial(n: Tracer) -> Tracer:
    return compute_in_double(factorial_of_double)(n)


@_factorial.defjvp
def _factorial_rule(primals: PyTree, tangents: PyTree) -> tuple[Tracer, ...]:
    (n,) = primals
    value = _factorial(n)
    return value, value * digamma(selection.maximum(n, 0) + 1) * tangents[0]


@public(static=("exact",))
def factorial(n: ArrayLike, exact: bool = False) -> Tracer:
    """Return gamma(n + 1), 0 for negative n, elementwise, in floating point."""
    if exact:
        raise ArgumentError(
            with_location(
                "factorial computes in floating point; leave exact out, and call math.factorial "
                "for exact integers"
            )
        )
    return _factorial(*promote_args_inexact(*require_real("factorial", n)))


@public()
def betaln(a: ArrayLike, b: ArrayLike) -> Tracer:
    """Return the logarithm of the absolute value of the beta function, elementwise."""
    return compute_in_double(partial(log_beta, gammaln=gammaln))(
        *promote_args_inexact(*require_real("betaln", a, b))
    )


def _signed_beta(a: Tracer, b: Tracer) -> Tracer:
    return beta_of_double(a, b, gammasgn(a) * gammasgn(b) * gammasgn(a + b))


@custom_jvp
def _beta(a: ArrayLike, b: ArrayLike) -> Tracer:
    return compute_in_double(_signed_beta)(a, b)


@_beta.defjvp
def _beta_rule(primals: PyTree, tangents: PyTree) -> tuple[Tracer, ...]:
    a, b = primals
    value, total = _beta(a, b), digamma(a + b)
    derivative = (digamma(a) - total) * tangents[0] + (digamma(b) - total) * tangents[1]
    return value, value * derivative


@public()
@strip_weak_types
def beta(a: ArrayLike, b: ArrayLike) -> Tracer:
    """Return the beta function, elementwise."""
    return _beta(*promote_args_inexact(*require_real("beta", a, b)))


MAX_UNROLLED_TERMS = 64
"""Number of terms of a sum up to which each one is an operation of its own."""


@public(static=("d",))
@strip_weak_types
def multigammaln(a: ArrayLike, d: int) -> Tracer:
    """Return the logarithm of the multivariate gamma function of dimension `d`, elementwise."""
    d = check_integer("d of multigammaln", d, 1)
    (a,) = promote_to(inexact_kind(a, 1), a)
    total = constant_like(a, 0.25 * d * (d - 1) * log_of(pi))
    if d > MAX_UNROLLED_TERMS:
        shifted = a[..., None] - as_tracer(ranges.arange(d, dtype=a.dtype)) / 2
        return total + basic_reductions.sum(gammaln(shifted), -1)
    for j in range(d):
        total = total + gammaln(a - j / 2)
    return total


@custom_jvp
def _poch(z: ArrayLike, m: ArrayLike) -> Tracer:
    return compute_in_double(rising_factorial)(z, m)


@_poch.defjvp
def _poch_rule(primals: PyTree, tangents: PyTree) -> tuple[Tracer, ...]:
    z, m = primals
    value, above = _poch(z, m), digamma(z + m)
    return value, value * (above * tangents[1] + (above - digamma(z)) * tangents[0])


@public()
@strip_weak_types
def poch(z: ArrayLike, m: ArrayLike) -> Tracer:
    """Return the rising factorial gamma(z + m) / gamma(z), elementwise."""
    return _poch(*promote_args_inexact(*require_real("poch", z, m)))


STIRLING_SHIFT = 9
"""The number of factors that move a complex argument to where Stirling's series converges."""
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


def _complex_loggamma(z: Tracer) -> Tracer:
    """Return log gamma(z) for complex numbers of f64.

    Stirling's series (DLMF 5.11.1) after a shift; in the left half-plane by reflection (DLMF
    5.5.3), whose sine is an exponential times a factor near 1 above the real axis. Below the real
    axis the result is the conjugate of that above.
    """
    imaginary = complex_parts.imag(z)
    upper = selection.where(imaginary < 0, complex_parts.conj(z), z)
    is_left = complex_parts.real(z) < 0.5
    right = selection.where(is_left, 1 - upper, upper)
    shifted, logarithms = right, constant_like(right, 0)
    for _ in range(STIRLING_SHIFT):
        logarithms = logarithms + math_functions.log(shifted)
        shifted = shifted + 1
    square = 1 / (shifted * shifted)
    series: object = 0.0
    for coefficient in reversed(_STIRLING):
        series = series * square + coefficient
    core = (shifted - 0.5) * math_functions.log(shifted) - shifted + 0.5 * log_of(2 * pi)
    core = core + series / shifted - logarithms
    left = selection.where(is_left, upper, constant_like(upper, 0.25 + 0.25j))
    sine = math_functions.log(-math_functions.expm1(2j * pi * left))
    reflected = log_of(2 * pi) - (0.5j * pi - 1j * pi * left + sine) - core
    result = selection.where(is_left, reflected, core)
    return selection.where(imaginary < 0, complex_parts.conj(result), result)


@public()
def loggamma(x: ArrayLike) -> Tracer:
    """Return the principal branch of the logarithm of the gamma function, elementwise.

    For real x it is NaN unless x is positive; for complex x its branch cut is the negative real
    axis.
    """
    (x,) = promote_args_inexact(x)
    if x.dtype.kind != "c":
        is_positive = x > 0
        safe = selection.where(is_positive, x, constant_like(x, 1))
        return selection.where(is_positive, gammaln(safe), dtypes.nan)
    kind = x.value.type.dtype
    with config(enable_x64=True):
        result = _complex_loggamma(convert(x, "c128"))
    return convert(result, kind, x.weak_type)


@public(static=("repetition",))
def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Tracer:
    """Return the number of ways to choose k of N things, elementwise, as floats.

    It is 0 for negative arguments and for k above N. With `repetition`, an element may be chosen
    several times. Other real numbers give quotients of gamma functions.
    """
    total, chosen = promote_args_inexact(*require_real("comb", N, k))
    if repetition:
        result = _binomial(total + chosen - 1, chosen)
        return selection.where((chosen == 0) & (total >= 0), constant_like(result, 1), result)
    return _binomial(total, chosen)


def _binomial(total: Tracer, chosen: Tracer) -> Tracer:
    is_valid = (total >= 0) & (chosen >= 0) & (chosen <= total)
    is_weak = total.weak_type and chosen.weak_type
    total, chosen = (
        selection.where(is_valid, each, constant_like(each, 1)) for each in (total, chosen)
    )
    result = 1 / ((total + 1) * beta(total - chosen + 1, chosen + 1))
    ways = selection.where(is_valid, result, constant_like(result, 0))
    return convert(ways, ways.value.type.dtype, is_weak)
