"""Continued fractions, tolerances and derivatives for special functions.

A loop has no reverse-mode derivative, so that functions with loops have custom rules: the
derivative in x is a formula, the derivatives in the other arguments are forward-mode derivatives of
the loop.
"""

from collections.abc import Callable

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.lax.control_flow.loops import fori_loop, while_loop
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import complex_parts, selection
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.jvp_vjp import jvp

MAX_ITERATIONS = 10_000
"""The maximum number of iterations of a loop."""


def tolerance_of(x: Tracer) -> float:
    """Return the relative tolerance; narrower floats need less precision than f64."""
    return float(np.finfo(np.float64).eps) if x.dtype == np.float64 else 2.0**-34


def continued_fraction(
    first: Tracer, term: Callable[[PyTree], tuple[PyTree, PyTree]], eps: float, least: int = 1
) -> PyTree:
    """Return first + a1/(b1 + a2/(b2 + ...)), where `term(n)` is (a_n, b_n).

    J. Steed's method evaluates it as a sum. At least `least` terms are used, even if some are 0.
    """
    tiny = 1e-30

    def inverse_of(x: ArrayLike) -> Tracer:
        return 1 / selection.where(complex_parts.abs(x) < tiny, filling.full_like(x, tiny), x)

    def is_unfinished(state: tuple[Tracer, ...]) -> Tracer:
        n, total, _, change = state
        is_unconverged = basic_reductions.any(
            complex_parts.abs(change) > eps * complex_parts.abs(total)
        ) | (n < least)
        return is_unconverged & (n < MAX_ITERATIONS)

    def step(state: PyTree) -> PyTree:
        n, total, previous_inverse, change = state
        top, bottom = term(n)
        inverse = inverse_of(bottom + top * previous_inverse)
        change = -(top * previous_inverse) * inverse * change
        return n + 1, total + change, inverse, change

    one = filling.ones((), first.dtype)
    top, bottom = term(one)
    inverse = inverse_of(bottom)
    change = top * inverse
    return while_loop(is_unfinished, step, (one + 1, first + change, inverse, change))[1]


def continued_fraction_of_e(n: Tracer | float, x: Tracer, terms: int) -> Tracer:
    """Return exp(x) E_n(x) by its continued fraction, evaluated from the last term."""

    def step(number: Tracer, total: Tracer) -> Tracer:
        k = (terms - number).astype(np.float64)
        return x + n + 2 * (k - 1) - k * (n + k - 1) / total

    total: Tracer = fori_loop(0, terms, step, x + n + 2 * terms)
    return 1 / total


def partial_derivative(fun: UserFunction, args: tuple[PyTree, ...], at: int) -> Tracer:
    """Return the derivative of an elementwise function in one of its arguments."""
    tangents = tuple(
        filling.ones_like(x) if i == at else filling.zeros_like(x) for i, x in enumerate(args)
    )
    derivative: Tracer = jvp(fun, args, tangents)[1]
    return derivative
