"""The quantile function of the normal distribution, by rational functions.

The intervals are those of M. Wichura (Applied Statistics 37, 1988): q = p - 1/2 near 0, and r =
sqrt(-log p) in the tail, in f64 two intervals. The coefficients are computed by this project for
the remainder after a linear term in q or r, which limits rounding errors: see
tests/frontend/scipy/quantile_coefficients.py. Each element needs one quotient.
"""

from collections.abc import Sequence
from math import inf

from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import complex_parts, math_functions, selection
from shardir.frontend.tracing.tracer import Tracer

RationalCoefficients = tuple[tuple[float, ...], tuple[float, ...]]
"""Numerator and denominator coefficients, each with the constant term first."""
CENTRE_GRADIENT, TAIL_LINE = 2.875, (1.4375, -0.625)
"""The linear terms in q and in r. They have few bits, so that the product with half a float is
exact; the rational functions are small relative to them."""
DEKKER_SPLIT = {4: 2.0**12 + 1, 8: 2.0**27 + 1}
"""The factor of Dekker's split into halves (1971), by element size in bytes."""
TAIL_DERIVATIVE = 1.3
"""The approximate derivative of the quantile in r, which scales the rounding error of the root."""

# fmt: off
CENTRE_F32: RationalCoefficients = (
    (0.5121328561634447, 0.2451748417403954, -75.18774113224597, -248.0286070840278,
    -26.26769438005853),
    (1.0, 20.354793352797817, 111.88325861889366, 146.8719090214771),
)
TAIL_F32: RationalCoefficients = (
    (-0.2515628844972966, 0.004691322939260088, 0.07958936654207634, 0.007726190822730333,
    -0.0006317873725149626),
    (1.0, 1.0556292779564724, 0.32846097180931577, 0.027678744664384927, -1.4428131768898613e-05),
)
CENTRE_F64: RationalCoefficients = (
    (0.5121328727963669, 12.890046947456591, 21.772340541056828, -1872.024714441352,
    -19338.86040861825, -72459.76468308424, -104812.42103856354, -44080.66917976688,
    -574.8610351206603),
    (1.0, 45.04544359085158, 791.9543015510412, 6891.693390216111, 31117.89659582258,
    69917.65360258761, 68039.56585791799, 20001.290132362818),
)
TAIL_F64: RationalCoefficients = (
    (-0.25156288925031633, -0.24690331834333537, 0.009586261100131001, 0.08286097953237793,
    0.031030135994203803, 0.0034488776348147645, -4.229087236833931e-05, -1.2707380648500654e-05),
    (1.0, 2.055756352633514, 1.681141177010064, 0.6929221344498081, 0.1489938826733062,
    0.015294470937409066, 0.0005496346353141787, -6.411345977884174e-08),
)
FAR_TAIL_F64: RationalCoefficients = (
    (0.09540464350110385, 0.08986226824102714, 0.02394466684803486, 0.0020997358038393472,
    -1.5219119707773055e-05, -9.613245712648598e-06, -3.56763820005618e-07,
    -3.2877698845719836e-09),
    (1.0, 0.59958287487561, 0.13679792091895254, 0.014849887579777652, 0.0007846945310778231,
    1.8384541927742904e-05, 1.4124084581731202e-07, -1.2201502668626809e-13),
)
# fmt: on


def normal_quantile(p: Tracer) -> Tracer:
    """Return the x at which the distribution function is p, for f32 or f64; NaN outside of
    [0, 1].
    """
    is_double = p.dtype.itemsize == 8
    q = p - 0.5
    small = selection.minimum(p, 1 - p)
    logarithm = -math_functions.log(small)
    r = math_functions.sqrt(logarithm)
    numerator, denominator = _evaluate_rational(r - 1.6, TAIL_F64 if is_double else TAIL_F32)
    if is_double:
        far_tail = _evaluate_rational(r - 5.0, FAR_TAIL_F64)
        is_near_tail = r <= 5.0
        numerator, denominator = (
            selection.where(is_near_tail, numerator, far_tail[0]),
            selection.where(is_near_tail, denominator, far_tail[1]),
        )
    central = complex_parts.abs(q) <= 0.425
    z = q * q
    inner = _evaluate_rational(0.180625 - z, CENTRE_F64 if is_double else CENTRE_F32)
    ratio = selection.where(central, inner[0], numerator) / selection.where(
        central, inner[1], denominator
    )
    # The halves have exact products; the rounding error of the root is corrected.
    at = selection.where(central, q, r)
    scaled = at * DEKKER_SPLIT[p.dtype.itemsize]
    high = scaled - (scaled - at)
    low = at - high
    root_error = (
        (((logarithm - high * high) - 2 * high * low) - low * low) * (0.5 * TAIL_DERIVATIVE) / r
    )
    gradient, offset = TAIL_LINE
    right = (high * gradient + offset) + (low * gradient + (ratio + root_error))
    right = selection.where(small == 0, filling.full_like(p, inf), right)
    outer = selection.where(q < 0, -right, right)
    # Where 1/2 - p is rounded, the quantile has approximately this derivative.
    rounding_error = (p - (q + 0.5)) * (1.1 + 32.8 * z)
    return selection.where(
        central,
        high * CENTRE_GRADIENT + (low * CENTRE_GRADIENT + (q * ratio + rounding_error)),
        outer,
    )


def _evaluate_rational(x: Tracer, ratio: RationalCoefficients) -> tuple[Tracer, Tracer]:
    return _evaluate_polynomial(x, ratio[0]), _evaluate_polynomial(x, ratio[1])


def _evaluate_polynomial(x: Tracer, coefficients: Sequence[float]) -> Tracer:
    *lower, before, last = coefficients
    total = last * x + before
    for coefficient in reversed(lower):
        total = total * x + coefficient
    return total
