"""Bernoulli numbers."""

from fractions import Fraction
from functools import cache
from math import comb as binomial

import numpy as np

from shardir.frontend.argument_checks import check_integer
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.creation import array_conversion
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
def bernoulli(n: int) -> Tracer:
    """Return the Bernoulli numbers B_0 to B_n, with B_1 = -1/2."""
    last = check_integer("n of bernoulli", n, 0)
    return array_conversion.asarray(np.array([float(each) for each in bernoulli_numbers(last)]))
