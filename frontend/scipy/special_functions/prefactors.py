"""Prefactors of series and continued fractions: powers with bases in double-double arithmetic.

Their logarithms lose digits in proportion to their size; they are used only where a power
overflows.
"""

from math import pi

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.numpy.elementwise import complex_parts, math_functions, selection
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    apply_elementwise,
    constant_like,
)
from shardir.frontend.scipy.special_functions.double_double import (
    DoubleDouble,
    power_of_quotient,
    two_product,
    two_sum,
)
from shardir.frontend.scipy.special_functions.gamma_function import gamma_by_recurrence
from shardir.frontend.scipy.special_functions.gamma_quotients import (
    PRODUCT_OVERFLOW_ARGUMENT,
    beta_of_positive,
)
from shardir.frontend.scipy.special_functions.stirling import (
    STIRLING_FROM,
    log_beta,
    log_beta_weight,
    poisson_exponent,
    stirling_remainder,
)
from shardir.frontend.tracing.tracer import Tracer

FULL_PRECISION_BOUND = 1e300
"""The bound below which powers and their inverses have full precision."""
HIGH_ROOT_DISTANCE, GAUSSIAN_DISTANCE, ZERO_WEIGHT_DISTANCE = 600.0, 4000.0, 5500.0
"""Distances of a and x: above the first a higher root is used, above the second a Gaussian if x is
near; if x exceeds a by more than the third and is not near, the weight is 0."""
MAX_EXPONENT = 700.0
"""The largest argument of exponentials, which are then finite."""


def poisson_weight(a: Tracer, x: Tracer) -> Tracer:
    """Return x^a exp(-x) / gamma(a + 1) of positive numbers.

    It is computed as a power of a root (the square root or the eighth root), whose factors do not
    overflow if their product does not. Where neither root suffices, the weight is 0, or x is close
    to a large a: then it is a Gaussian.
    """
    is_large_a = a >= STIRLING_FROM
    large = selection.where(is_large_a, a, constant_like(a, STIRLING_FROM))
    is_close = is_near_large(a, x)
    difference, rounding_error = two_sum(selection.where(is_large_a, a, constant_like(a, 0)), -x)
    high_order = complex_parts.abs(difference) > HIGH_ROOT_DISTANCE
    part = selection.where(high_order, constant_like(a, 0.125), constant_like(a, 0.5))
    power, c = power_of_quotient(
        (x, 0.0), (selection.where(is_large_a, a, constant_like(a, 1)), 0.0), part * a
    )
    root = power * math_functions.exp(
        selection.clip(part * difference, -MAX_EXPONENT, MAX_EXPONENT)
    )
    fourth = (root * root) * (root * root)
    root = selection.where(high_order, fourth, root)
    small = selection.where(is_large_a, constant_like(a, 1), a)
    past_one = small < 1
    gamma = gamma_by_recurrence(selection.where(past_one, 1 + small, small))
    gamma = selection.where(past_one, gamma, small * gamma)
    factor = selection.where(is_large_a, 1 / math_functions.sqrt(2 * pi * large), 1 / gamma)
    c = (
        c / part
        + rounding_error
        - selection.where(is_large_a, stirling_remainder(large), constant_like(a, 0))
    )
    weight = root * factor * root * math_functions.exp(selection.clip(c, -1.0, 1.0))
    high, low = poisson_exponent(large, selection.where(is_close, x, large))[:2]
    gaussian = (
        factor * math_functions.exp(-high) * math_functions.exp(-low - stirling_remainder(large))
    )
    weight = selection.where(difference > -ZERO_WEIGHT_DISTANCE, weight, constant_like(a, 0))
    return selection.where(
        is_close & (complex_parts.abs(difference) > GAUSSIAN_DISTANCE), gaussian, weight
    )


def is_near_large(a: Tracer, x: Tracer) -> Tracer:
    """Return whether a is large and x is close to it."""
    return (a >= STIRLING_FROM) & (complex_parts.abs(x - a) < 0.5 * a)


def beta_weight(a: Tracer, b: Tracer, x: DoubleDouble, rest_of_x: DoubleDouble) -> Tracer:
    """Return x^a (1 - x)^b / beta(a, b) of positive numbers; x and 1 - x are in two parts."""
    both_large = selection.minimum(a, b) >= STIRLING_FROM
    one = constant_like(a, 1)
    total = two_sum(a, b)

    def power(x: DoubleDouble, a: Tracer) -> DoubleDouble:
        scaled, lost = two_product(x[0], total[0])
        lost = lost + x[0] * total[1] + x[1] * total[0]
        top = selection.where(both_large, scaled, x[0]), selection.where(both_large, lost, x[1])
        return power_of_quotient(top, (selection.where(both_large, a, one), 0.0), 0.5 * a)

    first, c = power(x, a)
    second, more_correction = power(rest_of_x, b)
    is_in_range = selection.maximum(a, b) < PRODUCT_OVERFLOW_ARGUMENT
    is_direct = ~both_large & is_in_range
    beta = beta_of_positive(selection.where(is_direct, a, one), selection.where(is_direct, b, one))
    a_far, b_far = (
        selection.where(both_large, a, constant_like(a, STIRLING_FROM)),
        selection.where(both_large, b, constant_like(b, STIRLING_FROM)),
    )
    total_far = a_far + b_far
    rests = stirling_remainder(total_far) - stirling_remainder(a_far) - stirling_remainder(b_far)
    front = selection.where(
        both_large, math_functions.sqrt(a_far * (b_far / total_far) / (2 * pi)), 1 / beta
    )
    root = first * second
    weight = (
        root
        * front
        * root
        * math_functions.exp(
            2 * (c + more_correction) + selection.where(both_large, rests, constant_like(a, 0))
        )
    )
    plain = (
        a * math_functions.log(x[0])
        + b * math_functions.log(rest_of_x[0])
        - log_beta(a, b, _lgamma)
    )
    logarithm = math_functions.exp(log_beta_weight(a, b, x[0], plain))
    is_accurate = (
        is_in_range
        & _has_full_precision(first)
        & _has_full_precision(second)
        & _has_full_precision(front)
    )
    return selection.where(is_accurate, weight, logarithm)


def _has_full_precision(x: Tracer) -> Tracer:
    return (x > 1 / FULL_PRECISION_BOUND) & (x < FULL_PRECISION_BOUND)


def _lgamma(x: ArrayLike) -> Tracer:
    return apply_elementwise("lgamma", x)
