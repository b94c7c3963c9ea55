"""The error function, the logarithm of the gamma function, and related functions.

All are computed in f64 and rounded once, except `erf_inv_xla` of f32. Polynomials are Chebyshev
series, interpolated at 80 points with 50 digits; comments state the function and interval. Tests
check the error bounds against values of 30 digits.
"""

from math import pi, sqrt

import numpy as np

from shardir.ir.types import NumpyArray
from shardir.ops.elementwise.term import Term

Array = NumpyArray

# erf(sqrt(u)) / sqrt(u), 0 <= u <= 1
_ERF = (
    0.9754769393826541, -0.14226120510371365, 0.010035582187599796, -0.0005768764699767485,
    2.741993125219606e-05, -1.1043175507344507e-06, 3.8488755420345036e-08,
    -1.1808582533875466e-09, 3.2334215826050907e-11, -7.991015947004549e-13,
    1.7990725113961456e-14, -3.718635487818693e-16,
)  # fmt: skip

# (1 + 2x) exp(x^2) erfc(x) over t = (x - 3) / (x + 3), 1/2 <= x; the substitution is from M. M.
# Shepherd and J. G. Laframboise, Math. Comp. 36 (1981)
_ERFC = (
    1.2131177209271748, -0.07225473646563542, -0.02632189276459184, 0.019186588533428105,
    -0.006682350310928109, 0.0015522847050575515, -0.00023571658348154882,
    1.5690562205135226e-05, 2.153875719667181e-06, -6.012574627859283e-07,
    1.3854950323746626e-08, 1.3575814484993745e-08, -1.3070972098097831e-09,
    -3.06373327557849e-10, 5.062873791614194e-11, 8.050230187118965e-12, -1.74987484220058e-12,
    -2.6365750400882025e-13, 5.909950702659242e-14, 1.0548914766564293e-14,
    -1.9235530211488676e-15, -4.764157943707682e-16, 5.502036001020429e-17,
    2.2407847347890268e-17,
)  # fmt: skip

# lgamma(x) / ((x - 1) (x - 2)), 1 <= x <= 3
_LGAMMA = (
    0.44148902545501423, -0.11119580321752523, 0.01951044826068884, -0.003922461463025264,
    0.0008478989895953857, -0.00019153855341365593, 4.454470184975607e-05,
    -1.05728743735943e-05, 2.5474336873408417e-06, -6.208535880776316e-07,
    1.5268677399071546e-07, -3.782637660291326e-08, 9.428100823624284e-09,
    -2.361999702184645e-09, 5.943541905817546e-10, -1.501312977072867e-10,
    3.8050196458110534e-11, -9.672485299656325e-12, 2.465348198355661e-12,
    -6.298868140791711e-13, 1.6128460030283787e-13, -4.137949206814042e-14,
    1.0635701227757898e-14, -2.7382420786652826e-15, 7.060670507214892e-16,
    -1.8232177141662118e-16, 4.714169006756272e-17, -1.2204107319639856e-17,
)  # fmt: skip

# digamma(x) / (x - root), 1 <= x <= 3
_DIGAMMA = (
    0.8508141002274594, -0.30691795316595705, 0.06960086856205178, -0.01712297234345182,
    0.004374961886424303, -0.0011401796377915106, 0.00030046127392236794,
    -7.969172661686522e-05, 2.1218853925722328e-05, -5.6631596935365925e-06,
    1.5136717505341737e-06, -4.0495026233355134e-07, 1.083979923064392e-07,
    -2.9026750711369042e-08, 7.774554697983642e-09, -2.082649195692377e-09,
    5.579524084715322e-10, -1.4948718863979587e-10, 4.005228073341035e-11,
    -1.0731515178725395e-11, 2.8754217843517632e-12, -7.704533926086572e-13,
    2.0644004026236004e-13, -5.53150434659318e-14, 1.482155285389004e-14,
    -3.971411389284323e-15, 1.0641344625722717e-15, -2.8513362471718133e-16,
    7.640126526131413e-17, -2.047164716811876e-17,
)  # fmt: skip
_DIGAMMA_ROOT = (1.4616321449683622, 9.549995429965697e-17)
"""The positive root as an f64 and its rounding error."""

# M. Giles, "Approximating the erfinv function", GPU Computing Gems Jade (2012), table 5
GILES_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
GILES_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def erf(x: Array) -> Array:
    """Return 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x; relative error below 1e-15."""
    x = x.astype(np.float64)
    size = np.abs(x)
    value, near, far = np.array(size), size < 1, size >= 1
    inner = size[near]
    value[near] = inner * _chebyshev(2 * inner * inner - 1, _ERF)
    value[far] = 1 - _erfc_from_half(size[far])
    signed: Array = np.copysign(value, x)
    return signed


def erfc(x: Array) -> Array:
    """Return 1 - erf(x) without cancellation; relative error below 2e-15 for normal results."""
    x = x.astype(np.float64)
    value, right, left = np.array(x), x > 0.5, x <= 0.5
    value[right] = _erfc_from_half(x[right])
    value[left] = 1 - erf(x[left])
    return value


def _erfc_from_half(x: Array) -> Array:
    """Return `erfc` for x >= 1/2. x^2 is split because `exp` magnifies rounding errors."""
    x = np.minimum(x, 40)
    short = x.astype(np.float32).astype(np.float64)
    bell = np.exp(-short * short) * np.exp((short - x) * (short + x))
    value: Array = (
        bell * _chebyshev(_map_to_unit_interval((x - 3) / (x + 3), -5 / 7, 1), _ERFC) / (1 + 2 * x)
    )
    return value


def _chebyshev(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Return a sum of Chebyshev polynomials, by Clenshaw's recurrence."""
    twice, last, before, spare = 2 * x, np.zeros_like(x), np.zeros_like(x), np.empty_like(x)
    for coefficient in reversed(coefficients[1:]):
        np.multiply(twice, last, out=spare)
        spare -= before
        spare += coefficient
        last, before, spare = spare, last, before
    value: Array = x * last - before + coefficients[0]
    return value


def _map_to_unit_interval(x: Array, low: float, high: float) -> Array:
    """Map the interval from low to high onto -1 to 1."""
    return (2 * x - (low + high)) / (high - low)


def erf_inv(x: Array) -> Array:
    """Return the number whose `erf` is `x`; NaN outside of -1 to 1. Relative error below 2e-15.

    The method is Newton iteration from Giles' approximation: on `erf`, and on log(`erfc`) from 1/2
    on.
    """
    x = x.astype(np.float64)
    guess = _erf_inv_giles(x)
    inner = np.isfinite(guess) & (x != 0)
    goal, size = np.abs(x), np.where(inner, np.minimum(np.abs(guess), 6), 1)
    for _ in range(4):
        inverse_derivative = sqrt(pi) / 2 * np.exp(size * size)
        tail = erfc(size)
        beyond = tail * np.log1p((tail - (1 - goal)) / (1 - goal))
        size = size + inverse_derivative * np.where(goal < 0.5, goal - erf(size), beyond)
    return np.where(inner, np.copysign(size, x), guess)


def erf_inv_xla(x: Array) -> Array:
    """Return `erf_inv` as XLA computes it: for f32, Giles' polynomials in f32."""
    return erf_inv(x) if x.dtype == np.float64 else _erf_inv_giles(x)


def _erf_inv_giles(x: Array) -> Array:
    number = x.dtype.type
    w = -np.log1p(-x * x)
    centre = w < 5
    w = np.where(centre, w - number(2.5), np.sqrt(w) - number(3))
    value: Array = np.zeros_like(w)
    for near, far in zip(GILES_CENTRE, GILES_TAIL, strict=True):
        value = value * w + np.where(centre, number(near), number(far))
    return np.where(np.abs(x) == 1, np.copysign(number(np.inf), x), value * x)


def lgamma(x: Array) -> Array:
    """Return log |gamma(x)|; infinite at the poles 0, -1, -2, ... and -infinity.

    The relative error is below 2e-15; for negative numbers relative to max(1, |lgamma|), because of
    the zeros between the poles.
    """
    x = x.astype(np.float64)
    value = _lgamma_positive(np.where(x > 0, x, 1 - x))
    sine = np.abs(np.sin(pi * (x - np.round(x))))
    value = np.where(x > 0, value, np.log(pi) - np.log(sine) - value)
    pole = (x <= 0) & ((x == np.floor(x)) | np.isinf(x))
    return np.where(pole, np.inf, value)


def _lgamma_positive(x: Array) -> Array:
    """Return `lgamma` for x > 0: a series on [1, 3], the recurrence, or Stirling from 10."""
    small, z, factor = x < 1, np.where(x < 1, x + 1, np.minimum(x, 10)), np.ones_like(x)
    for _ in range(7):
        large = z > 3
        z = np.where(large, z - 1, z)
        factor = np.where(large, factor * z, factor)
    past_one, past_two = (np.where(small, x - n, z - 1 - n) for n in (0, 1))
    extra = np.where(small, -np.log(x), np.log(factor))
    near = _chebyshev(past_two, _LGAMMA) * past_one * past_two + extra
    w = np.maximum(x, 10)
    far = (w - 0.5) * (np.log(w) - 1) + (np.log(2 * pi) - 1) / 2 + _odd_polynomial(
        1 / w, (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
    )  # fmt: skip
    return np.where(x < 10, near, far)


def digamma(x: Array) -> Array:
    """Return the derivative of `lgamma`; NaN at the poles.

    The relative error is below 2e-15; for negative numbers relative to max(1, |digamma|).
    """
    x = x.astype(np.float64)
    value = _digamma_positive(np.where(x > 0, x, 1 - x))
    value = np.where(x > 0, value, value - pi / np.tan(pi * (x - np.round(x))))
    pole = (x <= 0) & ((x == np.floor(x)) | np.isinf(x))
    return np.where(pole, np.nan, value)


def _digamma_positive(x: Array) -> Array:
    small, z, sums = x < 1, np.where(x < 1, x + 1, np.minimum(x, 10)), np.zeros_like(x)
    for _ in range(7):
        large = z > 3
        z = np.where(large, z - 1, z)
        sums = np.where(large, sums + 1 / z, sums)
    root, rest = _DIGAMMA_ROOT
    near = _chebyshev(z - 2, _DIGAMMA) * ((z - root) - rest) + np.where(small, -1 / x, sums)
    w = np.maximum(x, 10)
    far = np.log(w) - 0.5 / w - _odd_polynomial(
        1 / w, (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
    ) / w  # fmt: skip
    return np.where(x < 10, near, far)


def _odd_polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Return an odd polynomial, with coefficients from the highest power down."""
    value: Array = np.zeros_like(x)
    for coefficient in coefficients:
        value = value * x * x + coefficient
    return value * x


def erf_derivative(x: Term) -> Term:
    """Return the derivative of `erf`."""
    return (-(x * x)).exp() * (2 / sqrt(pi))


def trigamma(x: Term) -> Term:
    """Return the derivative of `digamma` as IR operations, so that it is differentiable.

    The method is eight steps of the recurrence and the asymptotic series, with reflection left of
    1/2 (Abramowitz and Stegun 6.4.6, 6.4.12, 6.4.7); relative error below 1e-12.
    """
    reflected = x.lt(0.5)
    z = (1 - x).where(reflected, x)
    total = z.full(0)
    for _ in range(8):
        total = total + 1 / (z * z)
        z = z + 1
    inverse = 1 / z
    square = inverse * inverse
    series = square * (5 / 66)
    for coefficient in (-1 / 30, 1 / 42, -1 / 30, 1 / 6):
        series = (series + coefficient) * square
    value = total + inverse * (1 + inverse * 0.5 + series)
    # The argument is 1 where nothing is reflected: 0 would give a derivative of 0 times infinity.
    sine = ((x - x.round()) * pi).where(reflected, 1).sin()
    return (pi**2 / (sine * sine) - value).where(reflected, value)
