"""What stands before series and fractions: probabilities, as powers of bases in two parts.

Their logarithms lose digits in proportion to their size; they are taken where a power is no number.
"""

from math import pi
from typing import Any

from shardir.frontend import numpy as snp
from shardir.frontend.numpy.pointwise import like, pointwise
from shardir.frontend.scipy.gamma_function import by_recurrence
from shardir.frontend.scipy.gamma_quotients import HUGE, beta_of_positive
from shardir.frontend.scipy.stirling import FAR, fall, log_beta, log_beta_weight, rest
from shardir.frontend.scipy.twofold import Pair, power_of_quotient, two_product, two_sum

SAFE = 1e300
"""Powers below it, whose inverses are, too, are good to their last digit."""
FEW, MANY, MOST = 600.0, 4000.0, 5500.0
"""Distances of a and x: from the first on a root is taken of higher order, from the second on there
is a bell, if x is near; where x is beyond a by the third, and not near, the weight is nothing."""
LIMIT = 700.0
"""Exponentials of it are numbers."""


def poisson_weight(a: Any, x: Any) -> Any:
    """x^a exp(-x) / gamma(a + 1) of positive numbers.

    As a power of a root, of which neither factor overflows where their product does not: of the
    square root, or of the eighth. Where neither will do the weight is nothing, or x is near a large
    a: then it is a bell.
    """
    far = a >= FAR
    large = snp.where(far, a, like(a, FAR))
    near = is_near(a, x)
    apart, lost = two_sum(snp.where(far, a, like(a, 0)), -x)
    high_order = snp.abs(apart) > FEW
    part = snp.where(high_order, like(a, 0.125), like(a, 0.5))
    power, c = power_of_quotient((x, 0.0), (snp.where(far, a, like(a, 1)), 0.0), part * a)
    root = power * snp.exp(snp.clip(part * apart, -LIMIT, LIMIT))
    fourth = (root * root) * (root * root)
    root = snp.where(high_order, fourth, root)
    small = snp.where(far, like(a, 1), a)
    past_one = small < 1
    gamma = by_recurrence(snp.where(past_one, 1 + small, small))
    gamma = snp.where(past_one, gamma, small * gamma)
    front = snp.where(far, 1 / snp.sqrt(2 * pi * large), 1 / gamma)
    c = c / part + lost - snp.where(far, rest(large), like(a, 0))
    made = root * front * root * snp.exp(snp.clip(c, -1.0, 1.0))
    high, low = fall(large, snp.where(near, x, large))[:2]
    bell = front * snp.exp(-high) * snp.exp(-low - rest(large))
    made = snp.where(apart > -MOST, made, like(a, 0))
    return snp.where(near & (snp.abs(apart) > MANY), bell, made)


def is_near(a: Any, x: Any) -> Any:
    """Where a is large and x near it."""
    return (a >= FAR) & (snp.abs(x - a) < 0.5 * a)


def beta_weight(a: Any, b: Any, x: Pair, rest_of_x: Pair) -> Any:
    """x^a (1 - x)^b over the beta function, of positive numbers; x and 1 - x in two parts."""
    far = snp.minimum(a, b) >= FAR
    one = like(a, 1)
    total = two_sum(a, b)

    def power(x: Pair, a: Any) -> Pair:
        scaled, lost = two_product(x[0], total[0])
        lost = lost + x[0] * total[1] + x[1] * total[0]
        top = snp.where(far, scaled, x[0]), snp.where(far, lost, x[1])
        return power_of_quotient(top, (snp.where(far, a, one), 0.0), 0.5 * a)

    first, c = power(x, a)
    second, more = power(rest_of_x, b)
    usual = snp.maximum(a, b) < HUGE
    near = ~far & usual
    beta = beta_of_positive(snp.where(near, a, one), snp.where(near, b, one))
    a_far, b_far = snp.where(far, a, like(a, FAR)), snp.where(far, b, like(b, FAR))
    whole = a_far + b_far
    rests = rest(whole) - rest(a_far) - rest(b_far)
    front = snp.where(far, snp.sqrt(a_far * (b_far / whole) / (2 * pi)), 1 / beta)
    root = first * second
    made = root * front * root * snp.exp(2 * (c + more) + snp.where(far, rests, like(a, 0)))
    plain = a * snp.log(x[0]) + b * snp.log(rest_of_x[0]) - log_beta(a, b, _lgamma)
    logarithm = snp.exp(log_beta_weight(a, b, x[0], plain))
    good = usual & _good(first) & _good(second) & _good(front)
    return snp.where(good, made, logarithm)


def _good(x: Any) -> Any:
    return (x > 1 / SAFE) & (x < SAFE)


def _lgamma(x: Any) -> Any:
    return pointwise("lgamma", x)
