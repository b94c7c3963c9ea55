"""The incomplete gamma functions of large a near x = a, where series take ever longer.

N. Temme's expansion (SIAM J. Math. Anal. 10, 1979): with m = x / a - 1 and eta^2 / 2 =
m - log(1 + m), the upper one is erfc(eta sqrt(a / 2)) / 2 plus a bell times a series in 1 / a,
whose terms are power series in eta.
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
"""From which a on, by the bytes of an element."""
NEAR = 0.3
"""How large |m| may be."""
POWERS = (15, 12, 9, 7, 5)
"""Of eta, in each term of the series in 1 / a."""


@cache
def _terms() -> tuple[tuple[float, ...], ...]:
    """C_k of Temme: C_0 = 1 / m - 1 / eta, and C_k is C_{k-1}' / eta less what has a pole at 0."""
    count = POWERS[0] + 2 * len(POWERS)
    # m in powers of eta, from m m' = eta (1 + m).
    m = [Fraction(0), Fraction(1)]
    for n in range(2, count + 3):
        inner = sum((i * m[i] * m[n + 1 - i] for i in range(2, n)), Fraction(0))
        m.append((m[n - 1] - inner) / (n + 1))
    # m times 1 / m is 1.
    inverse = [Fraction(1)]
    for n in range(1, count + 2):
        inverse.append(-sum((m[i + 1] * inverse[n - i] for i in range(1, n + 1)), Fraction(0)))
    first = term = inverse[1:]
    made = []
    for powers in POWERS:
        made.append(tuple(map(float, term[:powers])))
        sloped = [(n + 2) * c for n, c in enumerate(term[2:])]
        term = [a - term[1] * b for a, b in zip(sloped, first, strict=False)]
    return tuple(made)


def is_large(a: Any, x: Any, eps: float) -> Any:
    """Where the expansion is as good as that."""
    return (a >= START[8 if eps < 1e-15 else 4]) & (snp.abs(x - a) <= NEAR * a)


def both_large(a: Any, x: Any) -> tuple[Any, Any]:
    """The regularised lower and upper functions where `is_large`, of arguments that are near."""
    square, more, bend = fall(a, x)
    eta = (x - a) / a * snp.sqrt(2 * bend)
    z = eta * snp.sqrt(0.5 * a)
    total = like(a, 0)
    for term in reversed(_terms()):
        inner = like(a, term[-1])
        for coefficient in reversed(term[:-1]):
            inner = inner * eta + coefficient
        total = total / a + inner
    bell = snp.exp(-square) * (1 - more)
    rest = bell / snp.sqrt(2 * pi * a) * total
    # What z lacks, by the slope of erfc.
    again, lost = two_product(z, z)
    slip = ((square - again) - lost + more) / (2 * snp.where(z == 0, like(z, 1), z))
    rest = rest - bell * (same("stop_gradient", slip) / sqrt(pi))
    below, above = (0.5 * pointwise("erfc", sign * z) for sign in (-1, 1))
    return below - rest, above + rest
