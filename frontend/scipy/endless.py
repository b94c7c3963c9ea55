"""What loops of special functions share: how exact they are, fractions without end, and slopes.

A loop has no way back, so what has one has a rule: the derivative for x is a formula, that for the
other arguments is taken forward through the loop.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from shardir.frontend import numpy as snp
from shardir.frontend.directions import jvp
from shardir.frontend.lax.loops import while_loop

MOST = 10_000
"""Rounds after which a loop ends whatever it has."""


def exactness(x: Any) -> float:
    """What may be left out, relative: f64 for narrower floats need not be as good as it can."""
    return float(np.finfo(np.float64).eps) if x.dtype == np.float64 else 2.0**-34


def fraction(first: Any, term: Callable[[Any], tuple[Any, Any]], eps: float, least: int = 1) -> Any:
    """first + a1/(b1 + a2/(b2 + ...)), where `term(n)` is (a_n, b_n), by J. Steed's method: as a
    sum, whose terms lose more digits the smaller they are. Of `least` terms, though some be 0."""
    tiny = 1e-30

    def inverse_of(x: Any) -> Any:
        return 1 / snp.where(snp.abs(x) < tiny, snp.full_like(x, tiny), x)

    def goes_on(state: Any) -> Any:
        n, total, _, change = state
        more = snp.any(snp.abs(change) > eps * snp.abs(total)) | (n < least)
        return more & (n < MOST)

    def step(state: Any) -> Any:
        n, total, before, change = state
        top, bottom = term(n)
        inverse = inverse_of(bottom + top * before)
        change = -(top * before) * inverse * change
        return n + 1, total + change, inverse, change

    one = snp.ones((), first.dtype)
    top, bottom = term(one)
    inverse = inverse_of(bottom)
    change = top * inverse
    return while_loop(goes_on, step, (one + 1, first + change, inverse, change))[1]


def slope(fun: Callable[..., Any], args: tuple[Any, ...], at: int) -> Any:
    """The derivative of an elementwise function for one of its arguments."""
    tangents = tuple(snp.ones_like(x) if i == at else snp.zeros_like(x) for i, x in enumerate(args))
    return jvp(fun, args, tangents)[1]
