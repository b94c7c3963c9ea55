"""The targets of polynomial fits: functions, intervals and accuracies.

The weight of an error is its effect on the result, relative to the result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp

from shardir.backends.cpu.kernels.math.error_function import (
    ERF_PIECE_BASES,
    ERF_PIECE_SCALE,
    ERF_SATURATION_SINGLE,
    ERFC_PIECE_BASES,
    ERFC_PIECE_OFFSET,
    ERFC_UNDERFLOW_SINGLE,
)
from shardir.backends.cpu.kernels.math.exponential import EXP_TABLE_ENTRIES
from shardir.backends.cpu.kernels.math.hyperbolic_tangent import PIECE_BASES, SATURATION_SINGLE

mp.mp.dps = 50
Function = Callable[[Any], Any]
HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.0001")
ROOTS_OF_TWO = (mp.sqrt(mp.mpf(1) / 2) - 1, mp.sqrt(2) - 1)
MIN_ARGUMENT = mp.mpf(10) ** -12


@dataclass(frozen=True)
class Target:
    """A function on an interval; the weighted error must be below 2^-bits."""

    function: Function
    interval: tuple[Any, Any]
    weight: Function
    bits: int
    kind: str
    degree: int = 2


def _avoid_zero(function: Function) -> Function:
    """Return the function with arguments moved away from 0, where it loses digits."""
    return lambda x: function(x if abs(x) > MIN_ARGUMENT else MIN_ARGUMENT)


def _atanh_series(z: Any) -> Any:
    """Return (log((1 + s) / (1 - s)) - 2s) / s^3 for z = s^2."""
    s = mp.sqrt(z)
    return (mp.log((1 + s) / (1 - s)) - 2 * s) / s**3


def _odd(function: Function) -> tuple[Function, Function]:
    """Return (f(x) - x) / x^3 as a function of x^2, and the weight of its errors."""

    def rest(z: Any) -> Any:
        x = mp.sqrt(z)
        return (function(x) - x) / x**3

    return _avoid_zero(rest), lambda z: z


def _difference_quotient(function: Function, base: Any) -> tuple[Function, Function]:
    """Return (f(base + d) - f(base)) / d, and the weight of its errors."""
    apart = _avoid_zero(lambda d: (function(base + d) - function(base)) / d)
    return apart, _avoid_zero(lambda d: d / function(base + d))


def _cosine(z: Any) -> Any:
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def _erf_rest(x: Any) -> Any:
    return mp.erf(x) - x


def _erfc_scaled(t: Any) -> Any:
    """Return (1 + 2x) exp(x^2) erfc(x) for t = (x - 3) / (x + 3)."""
    if 1 - t < MIN_ARGUMENT:
        return 2 / mp.sqrt(mp.pi)
    x = 3 * (1 + t) / (1 - t)
    if x < 10:
        return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)
    term, total = mp.mpf(1), mp.mpf(0)
    for n in range(1, 60):
        total += term
        following = -term * (2 * n - 1) / (2 * x * x)
        if abs(following) >= abs(term) or abs(following) < mp.mpf(10) ** -40:
            break
        term = following
    if x < 20:
        return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)
    return (1 + 2 * x) / (x * mp.sqrt(mp.pi)) * total


def _scaled_erfc(x: Any) -> Any:
    return mp.exp(x * x) * mp.erfc(x)


def _erf_inv(w: Any) -> Any:
    """Return erf_inv(x) / x for w = -log(1 - x^2)."""
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x if x > MIN_ARGUMENT else mp.sqrt(mp.pi) / 2


def _lgamma(x: Any) -> Any:
    return mp.loggamma(x) / ((x - 1) * (x - 2))


ROOT = mp.findroot(mp.digamma, 1.4616)


def _digamma(x: Any) -> Any:
    return mp.digamma(x) / (x - ROOT)


def _constant_one(x: Any) -> Any:
    return mp.mpf(1)


SIN, SIN_WEIGHT = _odd(mp.sin)
ASIN, ASIN_WEIGHT = _odd(mp.asin)
ATAN, ATAN_WEIGHT = _odd(mp.atan)
QUARTER_PI_SQUARED = (mp.pi / 4 * mp.mpf("1.0001")) ** 2
REDUCED_INTERVAL = (mp.mpf("-0.03348"), mp.mpf("0.03223"))
"""The interval of c m - 1 for the inverses c of `logarithm_double`."""
MAX_ATANH_ARGUMENT = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)


def _targets() -> dict[str, Target]:
    made: dict[str, Target] = {}

    def add(
        name: str, function: Function, interval: tuple[Any, Any], weight: Function,
        f32: int = 0, short: int = 0, f64: int = 0, **degrees: int,
    ) -> None:  # fmt: skip
        for kind, bits in (("f32", f32), ("short", short), ("f64", f64)):
            if bits:
                made[f"{name}.{kind}"] = Target(
                    function, interval, weight, bits, kind, degrees.get(f"from_{kind}", 2)
                )

    # exp(r) = 1 + r + r^2 P(r); for expm1 too, so relative to r.
    add("exp", _avoid_zero(lambda r: (mp.exp(r) - 1 - r) / r**2), (-HALF_LN2, HALF_LN2), abs,
        f32=27, short=36, f64=57, from_f64=8)  # fmt: skip
    # The same, relative to the product with e^r.
    add("exp_factor", _avoid_zero(lambda r: (mp.exp(r) - 1 - r) / r**2), (-HALF_LN2, HALF_LN2),
        lambda r: r**2 / mp.exp(r), f32=27)  # fmt: skip
    add("exp_right", _avoid_zero(lambda r: (mp.exp(r) - 1 - r) / r**2), (-0.0067, 0.6868),
        _avoid_zero(lambda r: r**2 / mp.expm1(r)), f64=57, from_f64=8)  # fmt: skip
    add(
        "exp_near",
        _avoid_zero(lambda r: (mp.exp(r) - 1 - r) / r**2),
        (-HALF_LN2 / EXP_TABLE_ENTRIES, HALF_LN2 / EXP_TABLE_ENTRIES),
        lambda r: r**2,
        f32=29,
        from_f32=1,
    )
    # exp2(r) = 1 + r P(r)
    add("exp2", _avoid_zero(lambda r: (mp.power(2, r) - 1) / r), (-0.5001, 0.5001), abs,
        f32=28, short=36, f64=57, from_f64=9)  # fmt: skip
    # log(1 + f) = f + f^2 P(f)
    add("log", _avoid_zero(lambda f: (mp.log(1 + f) - f) / f**2), ROOTS_OF_TWO,
        _avoid_zero(lambda f: f**2 / mp.log(1 + f)), f32=28, from_f32=6)  # fmt: skip
    # The same, and log2(1 + f) = f + f P(f), for m = 1 + f of the same first four bits of
    # fraction, from 3/4 to 3/2.
    for place in range(16):
        ends = (mp.mpf(16 + place) / 16, mp.mpf(17 + place) / 16)
        here = tuple((end / 2 if place >= 8 else end) - 1 for end in ends)
        add(f"log_{place}", _avoid_zero(lambda f: (mp.log(1 + f) - f) / f**2), here,
            _avoid_zero(lambda f: f**2 / mp.log(1 + f)), f32=28, from_f32=3)  # fmt: skip
        add(f"log2_{place}", _avoid_zero(lambda f: mp.log(1 + f, 2) / f - 1), here,
            _avoid_zero(lambda f: f / mp.log(1 + f, 2)), f32=25, from_f32=3)  # fmt: skip
    # log(1 + f) = f - f^2/2 + f^3 P(f)
    near, near_weight = (
        _avoid_zero(lambda f: (mp.log(1 + f) - f + f * f / 2) / f**3),
        _avoid_zero(lambda f: f**3 / mp.log(1 + f)),
    )
    add("log_near", near, (-mp.mpf("0.0227"), mp.mpf("0.0227")), near_weight, f32=34, from_f32=1)
    add("log_near", near, REDUCED_INTERVAL, near_weight, f64=67, from_f64=5)
    # log(1 + f) = f + f^2 P(f), and the same of log2(1 + f)
    add("log_piece", _avoid_zero(lambda f: (mp.log(1 + f) - f) / f**2), REDUCED_INTERVAL,
        _avoid_zero(lambda f: f**2 / mp.log(1 + f)), short=36, f64=58)  # fmt: skip
    add("log2_piece", _avoid_zero(lambda f: (mp.log(1 + f) - f) / f**2 / mp.log(2)),
        REDUCED_INTERVAL, _avoid_zero(lambda f: f**2 / mp.log(1 + f)), f64=57)  # fmt: skip
    # log2(1 + f) = f P(f)
    add("log2", _avoid_zero(lambda f: mp.log(1 + f, 2) / f), ROOTS_OF_TWO,
        _avoid_zero(lambda f: f / mp.log(1 + f, 2)), f32=25, from_f32=9)  # fmt: skip
    # log((1 + s) / (1 - s)) = 2s + s^3 P(s^2)
    add(
        "log_ratio",
        _avoid_zero(_atanh_series),
        (0, MAX_ATANH_ARGUMENT**2),
        lambda z: z / 2,
        short=36,
    )
    # sinh(x) = x + x^3 P(x^2)
    sinh, sinh_weight = _odd(mp.sinh)
    add("sinh", sinh, (0, mp.mpf("1.001")), sinh_weight, f64=57, from_f64=6)
    add("sinh_near", sinh, (0, HALF_LN2**2), sinh_weight, f32=28)
    # cosh(x) = 1 + x^2 P(x^2)
    add("cosh_near", _avoid_zero(lambda z: (mp.cosh(mp.sqrt(z)) - 1) / z), (0, HALF_LN2**2),
        lambda z: z, f32=28)  # fmt: skip
    # tanh(base + d) = tanh(base) + d P(d) from the first to the last number with the same bits up
    # to the first of the fraction, up to 10.
    for place, base in enumerate(map(mp.mpf, PIECE_BASES)):
        steps = (place - 6) % 16
        first, end = ((2 + step % 2) * mp.mpf(2) ** (step // 2 - 5) for step in (steps, steps + 1))
        lie = ((first if steps else 0) - base, min(end, SATURATION_SINGLE) - base)
        apart, weight = _difference_quotient(mp.tanh, base)
        add(f"tanh_{place}", apart, lie, weight, f32=24, from_f32=5)
    add("sin", SIN, (0, QUARTER_PI_SQUARED), SIN_WEIGHT, f32=28, short=36, f64=58)
    # cos(r) = 1 - r^2/2 + r^4 P(r^2)
    add(
        "cos",
        _avoid_zero(_cosine),
        (0, QUARTER_PI_SQUARED),
        lambda z: z * z,
        f32=28,
        short=36,
        f64=58,
    )
    # (1 - s)^(-1/3) = 1 + s P(s)
    add(
        "cbrt",
        _avoid_zero(lambda s: (mp.cbrt(1 / (1 - s)) - 1) / s),
        (-0.1021, 0.1021),
        abs,
        f64=20,
    )
    # tan(x) = x + x^3 P(x^2)
    tan, tan_weight = _odd(mp.tan)
    add("tan", tan, (0, QUARTER_PI_SQUARED), tan_weight, f32=28, f64=57, from_f64=11)
    add("asin", ASIN, (0, mp.mpf("0.2501")), ASIN_WEIGHT, f32=28, short=36, f64=58, from_f64=9)
    add("atan", ATAN, (0, 1), ATAN_WEIGHT, f32=28)
    add("atan", ATAN, (0, mp.mpf("0.1718")), ATAN_WEIGHT, short=36, f64=58, from_f64=8)
    add("atan_near", ATAN, (0, mp.mpf("0.1636") ** 2), ATAN_WEIGHT, f64=58, from_f64=4)
    # erf(x) = x + x P(x^2)
    add("erf", _avoid_zero(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1), (0, mp.mpf("0.8465")),
        lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)) if z > MIN_ARGUMENT else mp.sqrt(mp.pi) / 2,
        f32=28)  # fmt: skip
    add("erf", _avoid_zero(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1), (0, mp.mpf(1)),
        lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)) if z > MIN_ARGUMENT else mp.sqrt(mp.pi) / 2,
        short=36, f64=57, from_f64=9)  # fmt: skip
    # log(erfc(x)) / x
    add("erf_tail", lambda x: mp.log(mp.erfc(x)) / x, (mp.mpf("0.92"), mp.mpf("3.95")),
        lambda x: x * mp.erfc(x) / mp.erf(x), f32=27, from_f32=5)  # fmt: skip
    add("erfc", _erfc_scaled, (mp.mpf(-5) / 7, 1), _constant_one, short=34, f64=56, from_f64=20)
    # erf(x) = W + d P(d) with d = x - base, and x + x P(x) for the piece next to 0, for x with the
    # same leading bits of 1 + x / ERF_PIECE_SCALE.
    for place, base in enumerate(map(mp.mpf, ERF_PIECE_BASES)):
        exponent, fraction = (place // 4 + 1) % 4, place % 4
        borders = (2**exponent * (1 + mp.mpf(fraction + i) / 4) - 1 for i in (0, 1))
        first, end = (border * ERF_PIECE_SCALE for border in borders)
        lie = (first - base, min(end, ERF_SATURATION_SINGLE) - base)
        apart, _ = _difference_quotient(mp.erf if base else _erf_rest, base)
        _, weight = _difference_quotient(mp.erf, base)
        add(f"erf_{place}", apart, lie, weight, f32=28, from_f32=5)
    # exp(x^2) erfc(x) = W + d P(d) with d = x - base, for x with the same leading bits of
    # x + ERFC_PIECE_OFFSET, which is at least 3/4.
    for place, base in enumerate(map(mp.mpf, ERFC_PIECE_BASES)):
        exponent, fraction = (place // 4 + 1) % 4, place % 4
        if exponent == 3 and fraction >= 2:
            exponent = -1
        first, end = (
            mp.mpf(2) ** exponent * (1 + mp.mpf(fraction + i) / 4) - ERFC_PIECE_OFFSET
            for i in (0, 1)
        )
        lie = (first - base, min(end, ERFC_UNDERFLOW_SINGLE) - base)
        apart, weight = _difference_quotient(_scaled_erfc, base)
        add(f"erfc_{place}", apart, lie, weight, f32=27, from_f32=5)
    low, middle, high = (0, mp.mpf("6.26")), (mp.mpf("2.49"), 4), (4, mp.mpf("6.2"))
    add("erf_inv_low", lambda w: _erf_inv(w + mp.mpf("3.125")), (-3.125, 3.135), _constant_one,
        short=34, f64=56, from_f64=18)  # fmt: skip
    add("erf_inv_middle", lambda u: _erf_inv((u + mp.mpf("3.25")) ** 2),
        (middle[0] - mp.mpf("3.25"), middle[1] - mp.mpf("3.25") + mp.mpf("0.1")), _constant_one,
        short=34, f64=56, from_f64=12)  # fmt: skip
    add("erf_inv_high", lambda u: _erf_inv((u + 5) ** 2), (high[0] - 5, high[1] - 5), _constant_one,
        f64=56, from_f64=10)  # fmt: skip
    del low
    add("lgamma", lambda u: _lgamma(2 + u), (-1, 1), lambda u: 1 / _lgamma(2 + u),
        short=34, f64=56, from_short=12, from_f64=22)  # fmt: skip
    add("digamma", lambda u: _digamma(2 + u), (-1, 1), lambda u: 1 / _digamma(2 + u),
        short=34, f64=56, from_short=14, from_f64=26)  # fmt: skip
    return made


TARGETS = _targets()
