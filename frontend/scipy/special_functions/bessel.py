"""Bessel functions: J_n by recurrence, modified ones of order 0 and 1 as polynomials with
coefficients per interval.

I_n(x) is the mean of exp(x cos t) cos(n t) over a period, to which the trapezoidal rule converges
faster than any power; the polynomials interpolate these values at Chebyshev nodes. Each polynomial
is a constant plus a small remainder, which limits rounding errors: exp(-x) I_n(x) around the
centres of intervals, and over x^n around 0; beyond the last interval, exp(-x) sqrt(x) I_n(x) in 1 /
x.
"""

from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from math import comb, factorial

import numpy as np

from shardir.frontend.argument_checks import check_integer
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax.control_flow.loops import fori_loop
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import complex_parts, math_functions, selection
from shardir.frontend.numpy.shaping import concatenation
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    promote_args_inexact,
    require_real,
)
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.scipy.special_functions.double_double import (
    compute_in_double,
    compute_in_single,
)
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_jvp import custom_jvp
from shardir.ir.dtypes import NumpyArray

Array = NumpyArray
INTERVAL_ENDS = {4: (0.5, 1.5, 3.5), 8: (0.5, 1.5, 3.5, 8.0)}
"""The ends of the intervals by element size in bytes; the last interval is unbounded."""
POLYNOMIAL_TERMS = {4: 13, 8: 24}
"""The number of terms of each polynomial by element size in bytes."""
TRAPEZOID_POINTS = 2048
MAX_FINITE_ARGUMENT = 1000.0
"""The argument from which on the functions overflow f64, without their scale."""
EXP_OVERFLOW_ARGUMENT, EXP_ARGUMENT_SHIFT = 700.0, 530.76171875
"""Above the first, exp(x) may overflow although I_n(x) does not; the second is subtracted there: an
exact difference, whose exponential is accurate to four digits more than f64."""


def scaled_bessel_reference(order: int, x: Array) -> Array:
    """Return exp(-x) I_n(x) for x from 0 to 100,000, in long double."""
    angles = np.arange(-TRAPEZOID_POINTS // 2, TRAPEZOID_POINTS // 2) * (
        2 * np.arccos(np.longdouble(-1)) / TRAPEZOID_POINTS
    )
    integrand: Array = np.exp(-2 * x[:, None] * np.sin(angles / 2) ** 2)
    mean: Array = (integrand * np.cos(order * angles)).mean(1)
    return mean


def _chebyshev_coefficients(
    function: Callable[[Array], Array], low: float | int, high: float, count: int
) -> Array:
    """Return coefficients of powers of a variable from -1 at `low` to 1 at `high`."""
    angles = np.arccos(np.longdouble(-1)) * (np.arange(count) + np.longdouble(0.5)) / count
    middle, half = (low + high) / np.longdouble(2), (high - low) / np.longdouble(2)
    values = function(middle + half * np.cos(angles))
    terms = 2 / np.longdouble(count) * np.cos(np.outer(np.arange(count), angles)) @ values
    terms[0] /= 2
    return np.asarray(np.polynomial.chebyshev.cheb2poly(terms))


def _power_series(order: int, count: int) -> Array:
    """Return the coefficients of the power series of exp(-x) I_n(x) / x^n.

    For order 0 they are (-1/2)^k binomial(2k, k) / k!; exp(-x) I_1(x) is that series plus its
    derivative.
    """
    zero = np.array([np.longdouble(comb(2 * k, k)) / (-2) ** k / factorial(k) for k in range(31)])
    one = zero[1:-1] + np.arange(2, 31) * zero[2:]
    return (zero, one)[order][:count]


@cache
def _coefficient_table(order: int, size: int) -> tuple[tuple[float, ...], ...]:
    """Return the coefficients of all intervals by power, and last the rounding errors of the
    constants.
    """
    count, ends = POLYNOMIAL_TERMS[size], INTERVAL_ENDS[size]
    rows = [_power_series(order, count)]
    for low, high in pairwise(ends):
        terms = _chebyshev_coefficients(partial(scaled_bessel_reference, order), low, high, count)
        rows.append(terms / ((high - low) / 2) ** np.arange(count))
    last = ends[-1]
    rows.append(
        _chebyshev_coefficients(
            lambda u: scaled_bessel_reference(order, 1 / u) / np.sqrt(u), 0, 1 / last, count
        )
    )
    table = np.array(rows).T
    number = np.float32 if size == 4 else np.float64
    rounding_errors = table[0] - table[0].astype(number)
    return tuple(tuple(map(float, row)) for row in (*table, rounding_errors))


def _scaled_bessel(order: int, x: Tracer, width: int | None = None) -> Tracer:
    """Return exp(-|x|) I_n(x) with the precision of its element type, or of one with `width`
    bytes.
    """
    size, width = complex_parts.abs(x), width or x.dtype.itemsize
    ends = INTERVAL_ENDS[width]
    beyond = [size > end for end in ends]

    def select_by_interval(numbers: tuple[float, ...]) -> Tracer:
        result = constant_like(size, numbers[0])
        for test, number in zip(beyond, numbers[1:], strict=True):
            result = selection.where(test, constant_like(size, number), result)
        return result

    middles = [(low + high) / 2 for low, high in pairwise(ends)]
    inverse_offset = 2 * ends[-1] / selection.maximum(size, ends[-1]) - 1
    offset = selection.where(
        beyond[-1], inverse_offset, size - select_by_interval((0.0, *middles, 0.0))
    )
    # The coefficients are in the order of use, because f64 has more steps than one kernel takes.
    first, *middle, last, correction = _coefficient_table(order, width)
    total = select_by_interval(last)
    for numbers in reversed(middle):
        total = total * offset + select_by_interval(numbers)
    value = select_by_interval(first) + (total * offset + select_by_interval(correction))
    value = value / selection.where(beyond[-1], math_functions.sqrt(size), constant_like(size, 1))
    return value * selection.where(beyond[0], complex_parts.sign(x), x) if order else value


def _bessel(order: int, x: Tracer) -> Tracer:
    """Return I_n(x); narrower floats are computed in f64, as the rounded product would be off by 3
    ulps.
    """
    return compute_in_double(partial(_bessel_of_width, order, 8 if x.dtype.itemsize == 8 else 4))(x)


def _bessel_of_width(order: int, width: int, x: ArrayLike) -> Tracer:
    """Return I_n(x).

    The decreasing factor at infinity would be 0 times infinity, so that the argument is clipped.
    """
    size = complex_parts.abs(x)
    large = size > EXP_OVERFLOW_ARGUMENT
    scale = selection.where(
        large,
        constant_like(size, float(np.exp(np.longdouble(EXP_ARGUMENT_SHIFT)))),
        constant_like(size, 1),
    )
    rise = math_functions.exp(selection.where(large, size - EXP_ARGUMENT_SHIFT, size))
    return (
        rise
        * _scaled_bessel(order, selection.clip(x, -MAX_FINITE_ARGUMENT, MAX_FINITE_ARGUMENT), width)
        * scale
    )


@custom_jvp
def _i0e(x: Tracer) -> Tracer:
    return compute_in_single(partial(_scaled_bessel, 0))(x)


@custom_jvp
def _i1e(x: Tracer) -> Tracer:
    return compute_in_single(partial(_scaled_bessel, 1))(x)


@_i0e.defjvp
def _i0e_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    (x,) = primals
    value = _i0e(x)
    return value, (_i1e(x) - complex_parts.sign(x) * value) * tangents[0]


@_i1e.defjvp
def _i1e_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    (x,) = primals
    value = _i1e(x)
    safe = selection.where(x == 0, filling.ones_like(x), x)
    derivative = _i0e(x) - value * (complex_parts.sign(x) + 1 / safe)
    return value, selection.where(x == 0, filling.full_like(x, 0.5), derivative) * tangents[0]


@custom_jvp
def _i0(x: Tracer) -> Tracer:
    return _bessel(0, x)


@_i0.defjvp
def _i0_rule(primals: PyTree, tangents: PyTree) -> tuple[Tracer, ...]:
    (x,) = primals
    return _i0(x), _i1(x) * tangents[0]


@custom_jvp
def _i1(x: Tracer) -> Tracer:
    return _bessel(1, x)


@_i1.defjvp
def _i1_rule(primals: PyTree, tangents: PyTree) -> tuple[Tracer, ...]:
    (x,) = primals
    value = _i1(x)
    safe = selection.where(x == 0, filling.ones_like(x), x)
    derivative = selection.where(x == 0, filling.full_like(x, 0.5), _i0(x) - value / safe)
    return value, derivative * tangents[0]


@public()
def i0e(x: ArrayLike) -> Tracer:
    """Return exp(-|x|) times the modified Bessel function of order 0, elementwise."""
    return _i0e(*promote_args_inexact(*require_real("i0e", x)))


@public()
def i1e(x: ArrayLike) -> Tracer:
    """Return exp(-|x|) times the modified Bessel function of order 1, elementwise."""
    return _i1e(*promote_args_inexact(*require_real("i1e", x)))


@public()
def i0(x: ArrayLike) -> Tracer:
    """Return the modified Bessel function of order 0, elementwise."""
    return _i0(*promote_args_inexact(*require_real("i0", x)))


@public()
def i1(x: ArrayLike) -> Tracer:
    """Return the modified Bessel function of order 1, elementwise."""
    return _i1(*promote_args_inexact(*require_real("i1", x)))


SMALL_ARGUMENT = 1e-3
"""Arguments of J_n below it use two terms of the power series (DLMF 10.2.2)."""


def _bessel_jn_of_double(z: Tracer, last: int, rounds: int) -> Tracer:
    """Return J_0 to J_last by J. Miller's backward recurrence, which begins at order `rounds`.

    The values are scaled so that J_0 + 2 J_2 + 2 J_4 + ... is 1 (DLMF 10.12.4).
    """
    size = selection.maximum(complex_parts.abs(z), SMALL_ARGUMENT)

    def step(number: Tracer, state: PyTree) -> tuple[Tracer, ...]:
        order = (rounds - number).astype(np.float64)
        above, here, total = state
        below = 2 * order / size * here - above
        is_even_order = (rounds - number) % 2 == 1
        return (
            here,
            below,
            total + selection.where(is_even_order, 2 * below, constant_like(size, 0)),
        )

    zero = constant_like(size, 0)
    state = (zero, constant_like(size, 1e-290), zero)
    above, here, total = fori_loop(0, rounds - last, step, state)
    orders = [here]
    for order in range(last, 0, -1):
        above, here = here, 2 * order / size * here - above
        total = total + 2 * here if order % 2 == 1 else total
        orders.append(here)
    total = total - here
    quarter = z * z / 4
    values = []
    for order, value in enumerate(reversed(orders)):
        sign = complex_parts.sign(z) if order % 2 else 1.0
        leading = (z / 2) ** order / factorial(order) * (1 - quarter / (order + 1))
        is_small = complex_parts.abs(z) < SMALL_ARGUMENT
        values.append(selection.where(is_small, leading, sign * value / total))
    return concatenation.stack(values)


def _bessel_jn(z: Tracer, last: int, rounds: int) -> Tracer:
    @custom_jvp
    def values(z: Tracer) -> Tracer:
        return compute_in_double(partial(_bessel_jn_of_double, last=last, rounds=rounds))(z)

    @values.defjvp
    def rule(primals: PyTree, tangents: PyTree) -> PyTree:
        (z,), (step,) = primals, tangents
        more = _bessel_jn(z, last + 1, max(rounds, last + 1))
        # J_0' is -J_1, the others are half the difference of the adjacent orders.
        slopes = [-more[1], *((more[n - 1] - more[n + 1]) / 2 for n in range(1, last + 1))]
        return more[: last + 1], concatenation.stack(slopes) * step

    return values(z)


@public(static=("v", "n_iter"))
def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Tracer:
    """Return the Bessel functions J_0 to J_v at real z, stacked along a new first dimension.

    `n_iter` is the order at which the recurrence begins; it must exceed |z| and `v` for accurate
    values.
    """
    last = check_integer("v of bessel_jn", v, 0)
    rounds = check_integer("n_iter of bessel_jn", n_iter, 1)
    (z,) = promote_args_inexact(*require_real("bessel_jn", z))
    return _bessel_jn(z, last, max(rounds, last + 1))
