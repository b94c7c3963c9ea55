"""The incomplete beta function, by a continued fraction on the side of the mean where it is small.

Source: A. DiDonato and A. Morris, ACM TOMS 18, 1992.
"""

from functools import partial

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import math_functions, selection
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    promote_args_inexact,
    require_real,
)
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.scipy.special_functions.continued_fractions import (
    continued_fraction,
    partial_derivative,
    tolerance_of,
)
from shardir.frontend.scipy.special_functions.double_double import (
    compute_in_double,
    two_product,
    two_sum,
)
from shardir.frontend.scipy.special_functions.gamma_family import betaln
from shardir.frontend.scipy.special_functions.prefactors import beta_weight
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_jvp import custom_jvp

MIN_DERIVATIVE_TERMS = 30
LOWER_SIDE_END = 0.99
"""The argument from which on the fraction of the lower side converges too slowly."""
MAX_PARAMETER = 1e270
"""The limit of parameters: the function is a step there, and products of larger ones overflow."""


def _regularized_beta(a: Tracer, b: Tracer, x: Tracer, eps: float, least: int = 1) -> Tracer:
    good = (x > 0) & (x < 1) & (a > 0) & (b > 0)
    a, b = (
        selection.where(good, selection.minimum(x, MAX_PARAMETER), constant_like(x, 1))
        for x in (a, b)
    )
    inner = selection.where(good, x, filling.full_like(x, 0.5))
    # For small b the function is small beyond the mean, too: 1 minus it would be nearly 1.
    low = (b < 1) & (b < a) & (inner < LOWER_SIDE_END)
    swap = (inner > (a + 1) / (a + b + 2)) & ~low
    p, q = selection.where(swap, b, a), selection.where(swap, a, b)
    left, left_error = two_sum(constant_like(x, 1), -inner)
    zero = constant_like(x, 0)
    z, z_lost = selection.where(swap, left, inner), selection.where(swap, left_error, zero)
    rest = selection.where(swap, inner, left), selection.where(swap, zero, left_error)

    # This is p (1 - z) - q z, which is small near the mean.
    of_p, product_error = two_product(p, rest[0])
    of_q, other_error = two_product(q, z)
    difference = (of_p - of_q) + ((product_error - other_error) + (p * rest[1] - q * z_lost))

    def bottom(n: Tracer) -> Tracer:
        twice = p + 2 * n
        return (
            n
            + n * (q - n) * z / (twice - 1)
            + (p + n) * (difference + 1 + n * (2 - z)) / (twice + 1)
        )

    def term(n: Tracer) -> tuple[Tracer, Tracer]:
        below = p + 2 * n - 1
        top = (n * (p + n - 1) / below) * ((p + q + n - 1) / below) * (q - n)
        return top * z * z, bottom(n)

    first = p * (difference + 1) / (p + 1)
    value = beta_weight(p, q, (z, z_lost), rest) / continued_fraction(first, term, eps, least)
    value = selection.where(swap, 1 - value, value)
    outside = selection.where(x <= 0, 0.0, 1.0)
    ends = selection.where((x == 0) | (x == 1), outside, dtypes.nan)
    return selection.where(good, value, ends)


def _beta_values(a: Tracer, b: Tracer, x: Tracer) -> Tracer:
    return compute_in_double(partial(_regularized_beta, eps=tolerance_of(x)))(a, b, x)


def _beta_with_min_terms(a: Tracer, b: Tracer, x: Tracer) -> Tracer:
    """Compute the function for derivatives, with more terms.

    For integers the fraction ends early, but not for numbers close to them.
    """
    return compute_in_double(
        partial(_regularized_beta, eps=tolerance_of(x), least=MIN_DERIVATIVE_TERMS)
    )(a, b, x)


@compute_in_double
def _density(a: Tracer, b: Tracer, x: Tracer) -> Tracer:
    return math_functions.exp(
        (a - 1) * math_functions.log(x) + (b - 1) * math_functions.log1p(-x) - betaln(a, b)
    )


_betainc = custom_jvp(_beta_values)


@_betainc.defjvp
def _betainc_rule(primals: PyTree, tangents: PyTree) -> tuple[Tracer, ...]:
    result = _density(*primals) * tangents[2]
    for at in (0, 1):
        result = result + partial_derivative(_beta_with_min_terms, primals, at) * tangents[at]
    return _betainc(*primals), result


@public()
def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the regularized incomplete beta function, elementwise."""
    return _betainc(*promote_args_inexact(*require_real("betainc", a, b, x)))
