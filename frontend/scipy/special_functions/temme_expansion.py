"""The incomplete gamma functions of large a near x = a, where series converge slowly.

N. Temme's expansion (SIAM J. Math. Anal. 10, 1979): with m = x / a - 1 and eta^2 / 2 = m - log(1 +
m), the upper function is erfc(eta sqrt(a / 2)) / 2 plus a Gaussian times a series in 1 / a, whose
terms are power series in eta.
"""

from fractions import Fraction
from functools import cache
from math import pi, sqrt

from shardir.frontend.numpy.elementwise import complex_parts, math_functions, selection
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    apply_elementwise,
    constant_like,
    emit_elementwise,
)
from shardir.frontend.scipy.special_functions.double_double import two_product
from shardir.frontend.scipy.special_functions.stirling import poisson_exponent
from shardir.frontend.tracing.tracer import Tracer

EXPANSION_MIN_A = {4: 30.0, 8: 300.0}
"""The smallest a for the expansion, by element size in bytes."""
EXPANSION_MAX_RATIO = 0.3
"""The largest |m| for the expansion."""
ETA_POWERS = (15, 12, 9, 7, 5)
"""The number of powers of eta in each term of the series in 1 / a."""


@cache
def _temme_coefficients() -> tuple[tuple[float, ...], ...]:
    """Return the C_k of Temme: C_0 = 1 / m - 1 / eta, C_k is C_{k-1}' / eta without its pole
    at 0.
    """
    count = ETA_POWERS[0] + 2 * len(ETA_POWERS)
    # This is m in powers of eta, from m m' = eta (1 + m).
    m = [Fraction(0), Fraction(1)]
    for n in range(2, count + 3):
        inner = sum((i * m[i] * m[n + 1 - i] for i in range(2, n)), Fraction(0))
        m.append((m[n - 1] - inner) / (n + 1))
    # The product of m and 1 / m is 1.
    inverse = [Fraction(1)]
    for n in range(1, count + 2):
        inverse.append(-sum((m[i + 1] * inverse[n - i] for i in range(1, n + 1)), Fraction(0)))
    first = term = inverse[1:]
    results = []
    for powers in ETA_POWERS:
        results.append(tuple(map(float, term[:powers])))
        differentiated = [(n + 2) * c for n, c in enumerate(term[2:])]
        term = [a - term[1] * b for a, b in zip(differentiated, first, strict=False)]
    return tuple(results)


def uses_temme_expansion(a: Tracer, x: Tracer, eps: float) -> Tracer:
    """Return whether the expansion has the tolerance `eps`."""
    return (a >= EXPANSION_MIN_A[8 if eps < 1e-15 else 4]) & (
        complex_parts.abs(x - a) <= EXPANSION_MAX_RATIO * a
    )


def temme_pair(a: Tracer, x: Tracer) -> tuple[Tracer, Tracer]:
    """Return the regularized lower and upper functions for large `a` and `x` that are close."""
    square, correction, bend = poisson_exponent(a, x)
    eta = (x - a) / a * math_functions.sqrt(2 * bend)
    z = eta * math_functions.sqrt(0.5 * a)
    total = constant_like(a, 0)
    for term in reversed(_temme_coefficients()):
        inner = constant_like(a, term[-1])
        for coefficient in reversed(term[:-1]):
            inner = inner * eta + coefficient
        total = total / a + inner
    bell = math_functions.exp(-square) * (1 - correction)
    rest = bell / math_functions.sqrt(2 * pi * a) * total
    # This corrects the rounding error of z by the derivative of erfc.
    rounded_square, square_error = two_product(z, z)
    z_error = ((square - rounded_square) - square_error + correction) / (
        2 * selection.where(z == 0, constant_like(z, 1), z)
    )
    rest = rest - bell * (emit_elementwise("stop_gradient", z_error) / sqrt(pi))
    below, above = (0.5 * apply_elementwise("erfc", sign * z) for sign in (-1, 1))
    return below - rest, above + rest
