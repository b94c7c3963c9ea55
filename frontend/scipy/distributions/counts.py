"""Distributions of the number of successes, and of counts that sum to a given number.

The logarithms of binomial coefficients and quotients of beta functions are computed in f64, where
they cancel less than in f32.
"""

from types import SimpleNamespace

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import math_functions, rounding, selection
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import promote_args_inexact
from shardir.frontend.scipy import special
from shardir.frontend.scipy.distributions.log_probabilities import (
    exponentiate,
    minus_inf_outside_support,
)
from shardir.frontend.scipy.special_functions.double_double import compute_in_double
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import INTEGERS


def _is_count(x: Tracer) -> Tracer:
    return (x >= 0) & (rounding.floor(x) == x)


def _log_binomial(n: Tracer, k: Tracer) -> Tracer:
    return -math_functions.log1p(n) - special.betaln(n - k + 1, k + 1)


@compute_in_double
def _binom(x: Tracer, n: Tracer, p: Tracer) -> Tracer:
    good = _is_count(x) & (x <= n)
    k = selection.where(good, x, filling.zeros_like(x))
    value = _log_binomial(n, k) + special.xlogy(k, p) + special.xlog1py(n - k, -p)
    is_valid = _is_count(n) & (p >= 0) & (p <= 1)
    return selection.where(is_valid, minus_inf_outside_support(x, good, value), dtypes.nan)


@compute_in_double
def _nbinom(x: Tracer, n: Tracer, p: Tracer) -> Tracer:
    good = _is_count(x)
    k = selection.where(good, x, filling.zeros_like(x))
    coefficient = -math_functions.log(n + k) - special.betaln(n, k + 1)
    value = coefficient + special.xlogy(n, p) + special.xlog1py(k, -p)
    is_valid = (n > 0) & (p >= 0) & (p <= 1)
    return selection.where(is_valid, minus_inf_outside_support(x, good, value), dtypes.nan)


@compute_in_double
def _betabinom(x: Tracer, n: Tracer, a: Tracer, b: Tracer) -> Tracer:
    good = _is_count(x) & (x <= n)
    k = selection.where(good, x, filling.zeros_like(x))
    value = _log_binomial(n, k) + special.betaln(k + a, n - k + b) - special.betaln(a, b)
    is_valid = _is_count(n) & (a > 0) & (b > 0)
    return selection.where(is_valid, minus_inf_outside_support(x, good, value), dtypes.nan)


@public(name="binom.logpmf")
def _binom_logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Tracer:
    """Return the log-probability of k successes in n trials."""
    k, n, p, loc = promote_args_inexact(k, n, p, loc)
    return _binom(k - loc, n, p)


@public(name="nbinom.logpmf")
def _nbinom_logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Tracer:
    """Return the log-probability of k failures before the n-th success."""
    k, n, p, loc = promote_args_inexact(k, n, p, loc)
    return _nbinom(k - loc, n, p)


@public(name="betabinom.logpmf")
def _betabinom_logpmf(
    k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0
) -> Tracer:
    """Return the log-probability of k successes in n trials with a beta-distributed chance."""
    k, n, a, b, loc = promote_args_inexact(k, n, a, b, loc)
    return _betabinom(k - loc, n, a, b)


@public(name="multinomial.logpmf")
def _multinomial_logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Tracer:
    """Return the log-probability of counts `x` along the last dimension, which sum to n."""
    counts, total = as_tracer(x), as_tracer(n)
    for name, value in (("x", counts), ("n", total)):
        if value.value.type.dtype not in INTEGERS:
            raise ArgumentError(
                with_location(
                    f"multinomial.logpmf takes integer counts, but {name} is of type "
                    f"{value.value.type}; convert it with .astype(int)"
                )
            )
    (p,) = promote_args_inexact(p)
    is_sum = (basic_reductions.sum(counts, axis=-1) == total) & basic_reductions.all(
        counts >= 0, axis=-1
    )
    value = _multinomial(p, selection.maximum(counts, 0), selection.maximum(total, 0))
    return selection.where(is_sum, value, -dtypes.inf)


@compute_in_double
def _multinomial(p: Tracer, counts: Tracer, total: Tracer) -> Tracer:
    terms = special.xlogy(counts, p) - special.gammaln(counts + 1)
    return special.gammaln(total + 1) + basic_reductions.sum(terms, axis=-1)


binom = SimpleNamespace(logpmf=_binom_logpmf, pmf=exponentiate(_binom_logpmf))
"""The binomial distribution of `n` trials with the probability `p` of success."""
nbinom = SimpleNamespace(logpmf=_nbinom_logpmf, pmf=exponentiate(_nbinom_logpmf))
"""The negative binomial distribution of failures before `n` successes of probability `p`."""
betabinom = SimpleNamespace(logpmf=_betabinom_logpmf, pmf=exponentiate(_betabinom_logpmf))
"""The beta-binomial distribution of `n` trials with the parameters `a` and `b`."""
multinomial = SimpleNamespace(logpmf=_multinomial_logpmf, pmf=exponentiate(_multinomial_logpmf))
"""The multinomial distribution of `n` trials with the probabilities `p`."""
