"""The incomplete gamma functions of large a near x = a, where series converge slowly.

N. Temme's expansion (SIAM J. Math. Anal. 10, 1979): with m = x / a - 1 and eta^2 / 2 = m - log(1 +
m), the upper function is erfc(eta sqrt(a / 2)) / 2 plus a Gaussian times a series in 1 / a, whose
terms are power series in eta.
"""

from fractions import Fraction
from functools import cache
from math import pi, sqrt
from typing import Any

from shardir.frontend import numpy as snp
from shardir.frontend.numpy.pointwise import like, pointwise, same
from shardir.frontend.scipy.stirling import fall
from shardir.frontend.scipy.twofold import two_product

START = {4: 30.0, 8: 300.0}
"""The smallest a for the expansion, by element size in bytes."""
NEAR = 0.3
"""The largest |m| for the expansion."""
POWERS = (15, 12, 9, 7, 5)
"""The number of powers of eta in each term of the series in 1 / a."""


@cache
def _terms() -> tuple[tuple[float, ...], ...]:
    """Return the C_k of Temme: C_0 = 1 / m - 1 / eta, C_k is C_{k-1}' / eta without its pole
    at 0.
    """
    count = POWERS[0] + 2 * len(POWERS)
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
    for powers in POWERS:
        results.append(tuple(map(float, term[:powers])))
        differentiated = [(n + 2) * c for n, c in enumerate(term[2:])]
        term = [a - term[1] * b for a, b in zip(differentiated, first, strict=False)]
    return tuple(results)


def is_large(a: Any, x: Any, eps: float) -> Any:
    """Return whether the expansion has the tolerance `eps`."""
    return (a >= START[8 if eps < 1e-15 else 4]) & (snp.abs(x - a) <= NEAR * a)


def both_large(a: Any, x: Any) -> tuple[Any, Any]:
    """Return the regularized lower and upper functions where `is_large`, for close arguments."""
    square, correction, bend = fall(a, x)
    eta = (x - a) / a * snp.sqrt(2 * bend)
    z = eta * snp.sqrt(0.5 * a)
    total = like(a, 0)
    for term in reversed(_terms()):
        inner = like(a, term[-1])
        for coefficient in reversed(term[:-1]):
            inner = inner * eta + coefficient
        total = total / a + inner
    bell = snp.exp(-square) * (1 - correction)
    rest = bell / snp.sqrt(2 * pi * a) * total
    # This corrects the rounding error of z by the derivative of erfc.
    rounded_square, square_error = two_product(z, z)
    z_error = ((square - rounded_square) - square_error + correction) / (
        2 * snp.where(z == 0, like(z, 1), z)
    )
    rest = rest - bell * (same("stop_gradient", z_error) / sqrt(pi))
    below, above = (0.5 * pointwise("erfc", sign * z) for sign in (-1, 1))
    return below - rest, above + rest
