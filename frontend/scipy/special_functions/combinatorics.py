"""Binomial coefficients and Bernoulli numbers."""

from fractions import Fraction
from functools import cache
from math import comb as binomial
from typing import Any

import numpy as np

from shardir.frontend.argument_checks import check_integer
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.creation import array_conversion
from shardir.frontend.numpy.elementwise import selection
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    promote_args_inexact,
    require_real,
)
from shardir.frontend.scipy.special_functions.gamma_family import beta
from shardir.frontend.tracing.tracer import Tracer


@cache
def bernoulli_numbers(last: int) -> tuple[Fraction, ...]:
    """Return the Bernoulli numbers B_0 to B_last, with B_1 = -1/2 (DLMF 24.5.3)."""
    numbers: list[Fraction] = [Fraction(1)]
    for n in range(1, last + 1):
        total = sum(binomial(n + 1, k) * number for k, number in enumerate(numbers))
        numbers.append(-Fraction(total) / (n + 1))
    return tuple(numbers)


@public(static=("n",))
def bernoulli(n: int) -> Any:
    """Return the Bernoulli numbers B_0 to B_n, with B_1 = -1/2."""
    last = check_integer("n of bernoulli", n, 0)
    return array_conversion.asarray(np.array([float(each) for each in bernoulli_numbers(last)]))


@public(static=("repetition",))
def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Tracer:
    """Return the number of ways to choose k of N things, elementwise, as floats.

    It is 0 for negative arguments and for k above N. With `repetition`, a thing may be chosen
    several times. Other real numbers give quotients of gamma functions.
    """
    total, chosen = promote_args_inexact(*require_real("comb", N, k))
    if repetition:
        result = _binomial(total + chosen - 1, chosen)
        return selection.where((chosen == 0) & (total >= 0), constant_like(result, 1), result)
    return _binomial(total, chosen)


def _binomial(total: Tracer, chosen: Tracer) -> Tracer:
    is_valid = (total >= 0) & (chosen >= 0) & (chosen <= total)
    total, chosen = (
        selection.where(is_valid, each, constant_like(each, 1)) for each in (total, chosen)
    )
    result = 1 / ((total + 1) * beta(total - chosen + 1, chosen + 1))
    return selection.where(is_valid, result, constant_like(result, 0))
