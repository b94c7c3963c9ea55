"""The quantile of the normal distribution, by rational functions.

On the intervals of M. Wichura (Applied Statistics 37, 1988): of q = p - 1/2 near 0, and of
r = sqrt(-log p) to the left, in f64 two of those. The coefficients are our own, and are what is
left of q sqrt(2 pi) and of r, so that their errors are seen little: see
tests/frontend/scipy/quantile_coefficients.py. Each lane has the one quotient that it needs.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

from shardir.frontend import numpy as snp

Ratio = tuple[tuple[float, ...], tuple[float, ...]]
"""Two polynomials, of each the constant term first."""
SLOPE = (2.5066282746310007, -1.8328579980459167e-16)
SLOPE_SINGLE = (2.5066282749176025, -2.866020366467347e-10)
"""sqrt(2 pi) in two parts, of f64 and of f32."""

# fmt: off
CENTRE_SINGLE: Ratio = (
    (4.874765836453846, 69.70699829227473, 197.49697565644217, 25.885480357273114),
    (1.0, 20.32385027306303, 111.45645371066004, 145.80363073141922),
)
TAIL_SINGLE: Ratio = (
    (-0.17656288454865743, 0.521194571312667, 0.5665825506043813, 0.1539720446229534,
    0.011582531643042718),
    (1.0, 1.0565861589552001, 0.32934683148581567, 0.027910956317072824, 8.030528218747147e-07),
)
CENTRE: Ratio = (
    (4.874765941399952, 190.1275232365081, 2785.804099541642, 19096.13966932236,
    62140.337417333765, 86063.74955431059, 36620.18934999963, 570.364710270465),
    (1.0, 45.02670799325154, 791.2293941822446, 6881.218346368199, 31047.687153885698,
    69697.0989506377, 67750.68199271016, 19890.148314629358),
)
TAIL: Ratio = (
    (-0.17656288925031632, 0.34478649357610464, 1.0350397847248716, 0.870302273432809,
    0.34537306891699393, 0.06980238233759183, 0.006697289227377196, 0.00022857475323966172),
    (1.0, 2.0557105589111706, 1.6811018623000407, 0.6929501236970055, 0.14903427914936418,
    0.015309058299625821, 0.0005515124899840946, 3.5878860647198755e-09),
)
FAR: Ratio = (
    (1.6579046435011038, 1.4642133809211135, 0.500011392872035, 0.08515258689915779,
    0.007707823285391199, 0.00036242756112595567, 7.907635922218334e-06, 5.851387639031998e-08),
    (1.0, 0.5995846063907228, 0.1367989178050937, 0.014850103333296153, 0.0007847163297406545,
    1.8385582409549354e-05, 1.4126185014986104e-07, 6.85848388811201e-15),
)
# fmt: on


def normal_quantile(p: Any) -> Any:
    """Where the distribution function is p, an array of f32 or f64; NaN outside of 0 to 1."""
    wide = p.dtype.itemsize == 8
    q = p - 0.5
    z = q * q
    small = snp.minimum(p, 1 - p)
    r = snp.sqrt(-snp.log(small))
    above, below = _parts(r - 1.6, TAIL if wide else TAIL_SINGLE)
    if wide:
        further = _parts(r - 5.0, FAR)
        near = r <= 5.0
        above, below = snp.where(near, above, further[0]), snp.where(near, below, further[1])
    central = snp.abs(q) <= 0.425
    inner = _parts(0.180625 - z, CENTRE if wide else CENTRE_SINGLE)
    ratio = snp.where(central, inner[0], above) / snp.where(central, inner[1], below)
    slope, rest = SLOPE if wide else SLOPE_SINGLE
    right = snp.where(small == 0, snp.full_like(p, inf), r + ratio)
    outer = snp.where(q < 0, -right, right)
    return snp.where(central, q * slope + q * (z * ratio + rest), outer)


def _parts(x: Any, ratio: Ratio) -> tuple[Any, Any]:
    return _polynomial(x, ratio[0]), _polynomial(x, ratio[1])


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    *lower, last = coefficients
    total = last
    for coefficient in reversed(lower):
        total = total * x + coefficient
    return total
