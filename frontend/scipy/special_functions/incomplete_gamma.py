"""The incomplete gamma functions, by series and continued fractions."""

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax.control_flow.loops import while_loop
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import complex_parts, float_parts, math_functions, selection
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    promote_args_inexact,
    require_real,
)
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.scipy.special_functions.continued_fractions import (
    MAX_ITERATIONS,
    continued_fraction,
    partial_derivative,
    tolerance_of,
)
from shardir.frontend.scipy.special_functions.double_double import compute_in_double
from shardir.frontend.scipy.special_functions.gamma_family import gammaln
from shardir.frontend.scipy.special_functions.prefactors import is_near_large, poisson_weight
from shardir.frontend.scipy.special_functions.stirling import STIRLING_FROM, log_poisson
from shardir.frontend.scipy.special_functions.temme_expansion import (
    temme_pair,
    uses_temme_expansion,
)
from shardir.frontend.tracing.operands import align
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types_of_arrays
from shardir.frontend.transforms.custom_jvp import custom_jvp

EULER_CONSTANT = 0.5772156649015329
"""Euler's constant: the negative derivative of log(gamma(x)) at 1."""
MAX_UNSCALED_ARGUMENT, ARGUMENT_SCALE = 1e270, 2.0**-100
"""Above the first, arguments are scaled by the second; the functions are steps in both ranges."""


def _lower_series(a: Tracer, x: Tracer, small: Tracer, eps: float) -> Tracer:
    """Return the lower incomplete gamma function over x**a exp(-x) / gamma(a + 1), as a series.

    Where `small`, return the sum of (-x)**n / (n! (a + n)) for n >= 1. One loop computes both,
    because each element needs only one of them.
    """
    one = filling.ones_like(x)
    factor = selection.where(small, -x, x)

    def is_unconverged(state: tuple[Tracer, ...]) -> Tracer:
        n, term, total = state
        return basic_reductions.any(complex_parts.abs(term) > eps * complex_parts.abs(total)) & (
            n < MAX_ITERATIONS
        )

    def step(state: PyTree) -> PyTree:
        n, term, total = state
        beyond = a + n
        term = term * factor / selection.where(small, n, beyond)
        return n + 1, term, total + selection.where(small, term / beyond, term)

    state = filling.ones((), x.dtype), one, selection.where(small, constant_like(x, 0), one)
    total: Tracer = while_loop(is_unconverged, step, state)[2]
    return total


def _upper_fraction(a: Tracer, x: Tracer, eps: float) -> Tracer:
    """Return the upper incomplete gamma function over x**a exp(-x) / gamma(a)."""

    def term(n: Tracer) -> tuple[Tracer, Tracer]:
        return n * (a - n), x + 2 * n + 1 - a

    fraction: Tracer = continued_fraction(x + 1 - a, term, eps)
    return 1 / fraction


def _log_gamma_1p(a: Tracer) -> Tracer:
    """Return log(gamma(1 + a)) for a from 0 to 2, accurate relative to the a that 1 + a
    contains.
    """
    rounded_a = (1 + a) - 1
    ratio = gammaln(1 + a) / selection.where(rounded_a == 0, constant_like(a, 1), rounded_a)
    return a * selection.where(rounded_a == 0, constant_like(a, -EULER_CONSTANT), ratio)


def _upper_small(a: Tracer, x: Tracer, total: Tracer) -> Tracer:
    """Return the upper incomplete gamma function of small a and x, where it is far below 1.

    It is x**a / gamma(1 + a) times 1 plus a series, minus 1, computed without rounding next to 1
    (W. Gautschi, ACM TOMS 5, 1979).
    """
    power = a * math_functions.log(x) - _log_gamma_1p(a)
    return -math_functions.expm1(power) - math_functions.exp(power) * (a * total)


def _regularized_pair(a: Tracer, x: Tracer, eps: float) -> tuple[Tracer, Tracer]:
    """Return the regularized lower and upper incomplete gamma functions."""
    is_invalid = (x < 0) | (a < 0) | float_parts.isnan(x) | float_parts.isnan(a)
    is_invalid = is_invalid | ((a == x) & ((x == 0) | (x == dtypes.inf)))
    scale = selection.where(
        selection.maximum(a, x) > MAX_UNSCALED_ARGUMENT,
        constant_like(a, ARGUMENT_SCALE),
        constant_like(a, 1),
    )
    a, x = a * scale, x * scale
    is_regular = (x > 0) & (a > 0) & float_parts.isfinite(x) & float_parts.isfinite(a)
    large = is_regular & uses_temme_expansion(a, x, eps)
    good_a = selection.where(is_regular, a, filling.ones_like(a))
    good_x = selection.where(is_regular, x, filling.ones_like(x))
    # Within these bounds the upper function is below about 1/2.
    max_a = selection.where(
        x < 0.5, -0.4 / math_functions.log(selection.minimum(good_x, 0.5)), 1.1 * good_x
    )
    small = is_regular & (x < 1.1) & (a < max_a)
    # Between a and a + 1 both methods converge; the upper function of small a is small there.
    low = x < selection.where((x >= 1.1) & (a < 3), a, a + 1)
    summed = (is_regular & low & ~large) | small
    inner_a, inner = (
        selection.where(summed, a, constant_like(a, 1)),
        selection.where(summed, x, constant_like(x, 0.5)),
    )
    sums = _lower_series(inner_a, inner, small, eps)
    safe_a = selection.where(large, constant_like(a, 1), good_a)
    outer = selection.where(is_regular & ~low & ~large, x, safe_a + 2)
    weight = poisson_weight(good_a, good_x)
    below = weight * sums
    above = weight * safe_a * _upper_fraction(safe_a, outer, eps)
    above = selection.where(small, _upper_small(inner_a, inner, sums), above)
    low = low & ~small
    lower = selection.where(low, below, 1 - above)
    upper = selection.where(low, 1 - below, above)
    # The arguments are those of the weight, so that both share operations.
    center = selection.where(good_a >= STIRLING_FROM, good_a, constant_like(a, STIRLING_FROM))
    expansion = temme_pair(center, selection.where(is_near_large(good_a, good_x), good_x, center))
    lower, upper = (
        selection.where(large, expansion[0], lower),
        selection.where(large, expansion[1], upper),
    )
    is_limit = ((x == 0) | (x == dtypes.inf) | (a == 0) | (a == dtypes.inf)) & ~is_invalid
    is_one = (x == dtypes.inf) | (a == 0)
    lower = selection.where(is_limit, selection.where(is_one, 1.0, 0.0), lower)
    upper = selection.where(is_limit, selection.where(is_one, 0.0, 1.0), upper)
    return selection.where(is_invalid, dtypes.nan, lower), selection.where(
        is_invalid, dtypes.nan, upper
    )


@compute_in_double
def _density(a: Tracer, x: Tracer) -> Tracer:
    return math_functions.exp(
        log_poisson(a - 1, x, (a - 1) * math_functions.log(x) - x - gammaln(a))
    )


def lower_gamma(a: Tracer, x: Tracer) -> Tracer:
    """Return the regularized lower incomplete gamma function, without a custom derivative."""
    eps = tolerance_of(x)
    return compute_in_double(lambda a, x: _regularized_pair(a, x, eps)[0])(a, x)


def upper_gamma(a: Tracer, x: Tracer) -> Tracer:
    """Return the regularized upper incomplete gamma function, without a custom derivative."""
    eps = tolerance_of(x)
    return compute_in_double(lambda a, x: _regularized_pair(a, x, eps)[1])(a, x)


_lower_differentiable = custom_jvp(lower_gamma)
_upper_differentiable = custom_jvp(upper_gamma)


@_lower_differentiable.defjvp
def _lower_rule(primals: PyTree, tangents: PyTree) -> tuple[Tracer, ...]:
    result = (
        _density(*primals) * tangents[1] + partial_derivative(lower_gamma, primals, 0) * tangents[0]
    )
    return _lower_differentiable(*primals), result


@_upper_differentiable.defjvp
def _higher_rule(primals: PyTree, tangents: PyTree) -> tuple[Tracer, ...]:
    result = (
        _density(*primals) * tangents[1] + partial_derivative(lower_gamma, primals, 0) * tangents[0]
    )
    return _upper_differentiable(*primals), -result


@public()
def gammainc(a: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the regularized lower incomplete gamma function, elementwise."""
    return _lower_differentiable(*promote_args_inexact(*require_real("gammainc", a, x)))


@public()
def gammaincc(a: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the regularized upper incomplete gamma function, elementwise."""
    return _upper_differentiable(*promote_args_inexact(*require_real("gammaincc", a, x)))


@public(name="igamma_grad_a")
def gammainc_slope(a: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the derivative of `gammainc` in its first argument, elementwise."""
    a, x = align(*promote_args_inexact(*require_real("igamma_grad_a", a, x)))
    return partial_derivative(lower_gamma, (a, x), 0)


@public(name="random_gamma_grad")
@strip_weak_types_of_arrays
def gamma_sample_slope(a: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the derivative in `a` of a sample `x` of the gamma distribution with shape `a`.

    The cumulative probability of the sample stays constant.
    """
    a, x = align(*promote_args_inexact(*require_real("random_gamma_grad", a, x)))
    return -partial_derivative(lower_gamma, (a, x), 0) / _density(a, x)
