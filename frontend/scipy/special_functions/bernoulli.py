"""Bernoulli numbers."""

from fractions import Fraction
from functools import cache
from math import comb as binomial

import numpy as np

from shardir.frontend.argument_checks import check_integer
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.creation import array_conversion
from shardir.frontend.tracing.tracer import Tracer

MAX_FINITE_ORDER = 258
"""Order of the largest Bernoulli number that is finite in f64."""


@cache
def bernoulli_numbers(last: int) -> tuple[Fraction, ...]:
    """Return the Bernoulli numbers B_0 to B_last, with B_1 = -1/2 (DLMF 24.5.3)."""
    numbers: list[Fraction] = [Fraction(1)]
    for n in range(1, last + 1):
        total = sum(binomial(n + 1, k) * number for k, number in enumerate(numbers))
        numbers.append(-Fraction(total) / (n + 1))
    return tuple(numbers)


@public(static=("n",))
def bernoulli(n: int) -> Tracer:
    """Return the Bernoulli numbers B_0 to B_n, with B_1 = -1/2."""
    last = check_integer("n of bernoulli", n, 0)
    known = [float(each) for each in bernoulli_numbers(min(last, MAX_FINITE_ORDER))]
    # The sign of B_n is that of cos(pi (n / 2 - 1)) for even n.
    orders = np.arange(len(known), last + 1)
    beyond = np.where(orders % 2, 0.0, np.where(orders % 4 == 2, np.inf, -np.inf))
    return array_conversion.asarray(np.concatenate([known, beyond]))
