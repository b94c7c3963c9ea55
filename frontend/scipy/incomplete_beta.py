"""The incomplete beta function, by a continued fraction on the side of the mean where it is small.

Source: A. DiDonato and A. Morris, ACM TOMS 18, 1992.
"""

from functools import partial
from typing import Any

from shardir.frontend import numpy as snp
from shardir.frontend.custom_jvp import custom_jvp
from shardir.frontend.eager import public
from shardir.frontend.numpy.pointwise import floats, like, ordered
from shardir.frontend.scipy.endless import exactness, fraction, slope
from shardir.frontend.scipy.gammas import betaln
from shardir.frontend.scipy.narrow import in_double
from shardir.frontend.scipy.twofold import two_product, two_sum
from shardir.frontend.scipy.weights import beta_weight

LEAST = 30
END = 0.99
"""The argument from which on the fraction of the lower side converges too slowly."""
HUGE = 1e270
"""The limit of parameters: the function is a step there, and products of larger ones overflow."""


def _below(a: Any, b: Any, x: Any, eps: float, least: int = 1) -> Any:
    good = (x > 0) & (x < 1) & (a > 0) & (b > 0)
    a, b = (snp.where(good, snp.minimum(x, HUGE), like(x, 1)) for x in (a, b))
    inner = snp.where(good, x, snp.full_like(x, 0.5))
    # For small b the function is small beyond the mean, too: 1 minus it would be nearly 1.
    low = (b < 1) & (b < a) & (inner < END)
    swap = (inner > (a + 1) / (a + b + 2)) & ~low
    p, q = snp.where(swap, b, a), snp.where(swap, a, b)
    left, left_error = two_sum(like(x, 1), -inner)
    zero = like(x, 0)
    z, z_lost = snp.where(swap, left, inner), snp.where(swap, left_error, zero)
    rest = snp.where(swap, inner, left), snp.where(swap, zero, left_error)

    # This is p (1 - z) - q z, which is small near the mean.
    of_p, product_error = two_product(p, rest[0])
    of_q, other_error = two_product(q, z)
    difference = (of_p - of_q) + ((product_error - other_error) + (p * rest[1] - q * z_lost))

    def bottom(n: Any) -> Any:
        twice = p + 2 * n
        return (
            n
            + n * (q - n) * z / (twice - 1)
            + (p + n) * (difference + 1 + n * (2 - z)) / (twice + 1)
        )

    def term(n: Any) -> tuple[Any, Any]:
        below = p + 2 * n - 1
        top = (n * (p + n - 1) / below) * ((p + q + n - 1) / below) * (q - n)
        return top * z * z, bottom(n)

    first = p * (difference + 1) / (p + 1)
    value = beta_weight(p, q, (z, z_lost), rest) / fraction(first, term, eps, least)
    value = snp.where(swap, 1 - value, value)
    outside = snp.where(x <= 0, 0.0, 1.0)
    ends = snp.where((x == 0) | (x == 1), outside, snp.nan)
    return snp.where(good, value, ends)


def _plain(a: Any, b: Any, x: Any) -> Any:
    return in_double(partial(_below, eps=exactness(x)))(a, b, x)


def _patient(a: Any, b: Any, x: Any) -> Any:
    """Compute the function for derivatives, with more terms.

    For integers the fraction ends early, but not for numbers close to them.
    """
    return in_double(partial(_below, eps=exactness(x), least=LEAST))(a, b, x)


@in_double
def _density(a: Any, b: Any, x: Any) -> Any:
    return snp.exp((a - 1) * snp.log(x) + (b - 1) * snp.log1p(-x) - betaln(a, b))


_betainc = custom_jvp(_plain)


@_betainc.defjvp
def _betainc_rule(primals: Any, tangents: Any) -> Any:
    result = _density(*primals) * tangents[2]
    for at in (0, 1):
        result = result + slope(_patient, primals, at) * tangents[at]
    return _betainc(*primals), result


@public()
def betainc(a: Any, b: Any, x: Any) -> Any:
    """Return the regularized incomplete beta function, elementwise."""
    return _betainc(*floats(*ordered("betainc", a, b, x)))
