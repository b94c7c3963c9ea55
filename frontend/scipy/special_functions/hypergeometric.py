"""The hypergeometric functions 1F1 and 2F1 by their series, after transformations of the argument.

The transformations are those of Kummer (DLMF 13.2.39), the asymptotic series of 1F1 (DLMF 13.7.1),
and those of Pfaff and to 1 - z (DLMF 15.8.1 and 15.8.4).
"""

from collections.abc import Callable

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax.control_flow.loops import while_loop
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.elementwise import (
    arithmetic,
    complex_parts,
    math_functions,
    rounding,
    selection,
)
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    promote_args_inexact,
    require_real,
)
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.scipy.special_functions.continued_fractions import (
    MAX_ITERATIONS,
    partial_derivative,
)
from shardir.frontend.scipy.special_functions.double_double import compute_in_double
from shardir.frontend.scipy.special_functions.gamma_family import gammaln, gammasgn
from shardir.frontend.tracing.operands import align
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.frontend.transforms.custom_jvp import custom_jvp

ASYMPTOTIC_BEGIN = 100.0
"""The argument of 1F1 beyond which the asymptotic series is used."""
ASYMPTOTIC_TERMS = 50
SERIES_END = 0.9
"""The argument of 2F1 beyond which the transformation to 1 - z is used."""


def _series(ratio: Callable[[PyTree], PyTree], like: Tracer) -> Tracer:
    """Return the sum of terms that begin with 1, each `ratio(k)` times the term k before it."""

    def is_unfinished(state: tuple[Tracer, ...]) -> Tracer:
        k, term, total = state
        is_significant = complex_parts.abs(term) > np.finfo(np.float64).eps / 4 * complex_parts.abs(
            total
        )
        return basic_reductions.any(is_significant) & (k < MAX_ITERATIONS)

    def step(state: PyTree) -> PyTree:
        k, term, total = state
        # A term of 0 ends a polynomial; the next ratio may be infinite.
        term = selection.where(term == 0, term, term * ratio(k))
        return k + 1, term, total + term

    one = constant_like(like, 1)
    total: Tracer = while_loop(is_unfinished, step, (np.float64(0), one, one))[2]
    return total


def _is_nonpositive_integer(x: Tracer) -> Tracer:
    return (x <= 0) & (rounding.floor(x) == x)


def _gamma_quotient(tops: tuple[Tracer, ...], bottoms: tuple[Tracer, ...]) -> Tracer:
    """Return a quotient of products of gamma functions; a pole below gives 0."""
    logarithm = sum(map(gammaln, tops[1:]), gammaln(tops[0])) - sum(
        map(gammaln, bottoms[1:]), gammaln(bottoms[0])
    )
    sign: Tracer | float = 1.0
    for each in (*tops, *bottoms):
        sign = sign * gammasgn(each)
    has_pole = _is_nonpositive_integer(bottoms[0])
    for each in bottoms[1:]:
        has_pole = has_pole | _is_nonpositive_integer(each)
    return selection.where(has_pole, 0.0, sign * math_functions.exp(logarithm))


def _hyp1f1_of_double(a: Tracer, b: Tracer, x: Tracer) -> Tracer:
    is_turned = (x < 0) & ~_is_nonpositive_integer(a)
    first = selection.where(is_turned, b - a, a)
    size = selection.where(is_turned, -x, x)
    is_far = (size > ASYMPTOTIC_BEGIN) & ~_is_nonpositive_integer(first)
    near = selection.where(is_far, constant_like(size, 0), size)
    series = _series(lambda k: (first + k) * near / ((b + k) * (k + 1)), near)
    far = selection.where(is_far, size, constant_like(size, ASYMPTOTIC_BEGIN))
    total: Tracer | float = 1.0
    for n in range(ASYMPTOTIC_TERMS - 1, -1, -1):
        total = 1 + (b - first + n) * (1 - first + n) / ((n + 1) * far) * total
    grown = selection.where(is_turned, constant_like(far, 0), far)
    logarithm = grown + (first - b) * math_functions.log(far)
    asymptotic = (
        gammasgn(b) * gammasgn(first) * total
        * math_functions.exp(logarithm + gammaln(b) - gammaln(first))
    )  # fmt: skip
    shrink = math_functions.exp(selection.where(is_turned & ~is_far, x, constant_like(x, 0)))
    result = selection.where(is_far, asymptotic, series * shrink)
    result = selection.where((a == 0) | (x == 0), 1.0, result)
    return selection.where((b == 0) & (a != 0), dtypes.inf, result)


def _hyp2f1_of_double(a: Tracer, b: Tracer, c: Tracer, z: Tracer) -> Tracer:
    is_polynomial = _is_nonpositive_integer(a) | _is_nonpositive_integer(b)
    is_turned = (z < 0) & ~is_polynomial
    safe = selection.where(is_turned, z, constant_like(z, 0))
    second = selection.where(is_turned, c - b, b)
    argument = selection.where(is_turned, safe / (safe - 1), z)
    is_polynomial = is_polynomial | _is_nonpositive_integer(second)
    excess = c - a - second
    can_mirror = rounding.floor(excess) != excess
    is_mirrored = (argument > SERIES_END) & (argument < 1) & can_mirror & ~is_polynomial
    inside = is_polynomial | (argument < 1)
    direct = selection.where(is_mirrored | ~inside, constant_like(z, 0), argument)
    series = _series(lambda k: (a + k) * (second + k) / ((c + k) * (k + 1)) * direct, direct)
    rest = selection.where(is_mirrored, 1 - argument, constant_like(z, 0))
    shifted = selection.where(is_mirrored, excess, constant_like(z, 0.5))
    one = _series(lambda k: (a + k) * (second + k) / ((1 - shifted + k) * (k + 1)) * rest, rest)
    other = _series(
        lambda k: (c - a + k) * (c - second + k) / ((1 + shifted + k) * (k + 1)) * rest, rest
    )
    power = arithmetic.power(selection.where(is_mirrored, rest, constant_like(z, 1)), shifted)
    mirrored = (
        _gamma_quotient((c, shifted), (c - a, c - second)) * one
        + power * _gamma_quotient((c, -shifted), (a, second)) * other
    )
    result = selection.where(is_mirrored, mirrored, series)
    result = result * arithmetic.power(1 - safe, -a)
    at_one = _gamma_quotient((c, selection.where(excess > 0, excess, 1.0)), (c - a, c - second))
    at_one = selection.where(excess > 0, at_one, dtypes.inf)
    result = selection.where(inside, result, selection.where(z == 1, at_one, dtypes.inf))
    result = selection.where(z == 0, 1.0, result)
    return selection.where(z != z, z, result)


@custom_jvp
def _hyp1f1(a: Tracer, b: Tracer, x: Tracer) -> Tracer:
    return compute_in_double(_hyp1f1_of_double)(a, b, x)


@_hyp1f1.defjvp
def _hyp1f1_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    a, b, x = primals
    plain = compute_in_double(_hyp1f1_of_double)
    slopes = (
        *(partial_derivative(plain, primals, at) for at in (0, 1)),
        a / b * _hyp1f1(a + 1, b + 1, x),
    )
    return _hyp1f1(a, b, x), sum(s * t for s, t in zip(slopes, tangents, strict=True))


@custom_jvp
def _hyp2f1(a: Tracer, b: Tracer, c: Tracer, z: Tracer) -> Tracer:
    return compute_in_double(_hyp2f1_of_double)(a, b, c, z)


@_hyp2f1.defjvp
def _hyp2f1_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    a, b, c, z = primals
    plain = compute_in_double(_hyp2f1_of_double)
    slopes = (
        *(partial_derivative(plain, primals, at) for at in range(3)),
        a * b / c * _hyp2f1(a + 1, b + 1, c + 1, z),
    )
    return _hyp2f1(*primals), sum(s * t for s, t in zip(slopes, tangents, strict=True))


@public()
@strip_weak_types
def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the confluent hypergeometric function 1F1(a; b; x), elementwise, for real numbers."""
    return _hyp1f1(*align(*promote_args_inexact(*require_real("hyp1f1", a, b, x))))


@public()
@strip_weak_types
def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the hypergeometric function 2F1(a, b; c; x), elementwise, for real numbers.

    It is infinite for x above 1.
    """
    return _hyp2f1(*align(*promote_args_inexact(*require_real("hyp2f1", a, b, c, x))))
