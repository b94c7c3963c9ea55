"""Sums, products and powers of f64 together with what rounding takes from them.

A number in two parts is their sum, where the second is below a unit of the first.
"""

from typing import Any

from shardir.frontend.numpy.pointwise import pointwise

Pair = tuple[Any, Any]

SPLIT = 2.0**27 + 1
"""What takes half of the bits of a number (T. Dekker, 1971)."""


def two_sum(a: Any, b: Any) -> Pair:
    """a + b and what it lacks, exactly (D. Knuth, 1969)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def two_product(a: Any, b: Any) -> Pair:
    """a b and what it lacks, exactly, for numbers below 2^996 (T. Dekker, 1971)."""
    (high, low), (other_high, other_low) = _halves(a), _halves(b)
    product = a * b
    rest = (high * other_high - product) + high * other_low + low * other_high
    return product, rest + low * other_low


def _halves(x: Any) -> Pair:
    scaled = x * SPLIT
    high = scaled - (scaled - x)
    return high, x - high


def power_of_quotient(top: Pair, bottom: Pair, y: Any) -> Pair:
    """(top / bottom)^y over e^c, and c: y times what the quotient lacks."""
    quotient = top[0] / bottom[0]
    product, rest = two_product(quotient, bottom[0])
    lost = ((top[0] - product) - rest) + (top[1] - quotient * bottom[1])
    return pointwise("pow", quotient, y), lost / top[0] * y
