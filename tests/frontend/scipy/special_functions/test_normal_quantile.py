"""The normal quantile: coefficients, errors, and limits."""

import mpmath as mp
import numpy as np
import numpy.typing as npt
import pytest

from shardir import enable_x64
from shardir.frontend.numpy import api as snp
from shardir.frontend.scipy import special
from shardir.frontend.scipy.special_functions import normal_quantile
from tests.frontend.scipy.accuracy import BOUNDS
from tests.frontend.scipy.quantile_coefficients import TARGETS, error_of, fit_coefficients


@pytest.mark.parametrize("name", TARGETS)
def test_coefficients_have_the_accuracy_of_their_targets(name: str) -> None:
    ratio = getattr(normal_quantile, name)
    assert error_of(TARGETS[name], ratio, 40) <= mp.mpf(2) ** -TARGETS[name].bits


def test_the_coefficients_are_reproducible() -> None:
    assert fit_coefficients(TARGETS["CENTRE_F32"]) == tuple(map(list, normal_quantile.CENTRE_F32))


def sampled(count: int) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(5)
    small = np.exp(rng.uniform(-700, 0, count))
    return np.concatenate([rng.uniform(0, 1, count), 1 - rng.uniform(0, 0.1, count), small])


def exact(p: float, near: float) -> mp.mpf:
    """Return the quantile in 40 digits, by Newton's method on the logarithm of the distribution."""
    with mp.workdps(40):
        small = min(mp.mpf(p), 1 - mp.mpf(p))
        x = abs(mp.mpf(near))
        for _ in range(4):
            below = mp.erfc(x / mp.sqrt(2)) / 2
            slope = mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi) / below
            x += (mp.log(below) - mp.log(small)) / slope
        return x if p > 0.5 else -x


def test_f64_errors_are_within_the_bound() -> None:
    p = sampled(250)
    with enable_x64():
        got = np.asarray(special.ndtri(p))
    for place, value in zip(p.tolist(), got.tolist(), strict=True):
        apart = abs(exact(place, value) - value) / float(np.spacing(abs(value)))
        assert apart <= BOUNDS["ndtri"]["f64"], (place, value)


def test_f32_errors_are_within_the_bound() -> None:
    p = sampled(40000).astype(np.float32)
    p = p[(p > 0) & (p < 1)]
    got = np.asarray(special.ndtri(p)).astype(np.float64)
    with enable_x64():
        expected = np.asarray(special.ndtri(p.astype(np.float64)))
    apart = np.abs(got - expected) / np.spacing(np.abs(expected).astype(np.float32))
    assert apart.max() <= BOUNDS["ndtri"]["f32"], p[apart.argmax()]


def test_16_bit_floats_are_rounded_once() -> None:
    p = np.arange(1, 0x3C00, dtype=np.uint16).view(np.float16)
    got = np.asarray(special.ndtri(p))
    assert got.dtype == np.float16
    expected = np.asarray(special.ndtri(p.astype(np.float32))).astype(np.float16)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("wide", [False, True])
def test_limits(wide: bool) -> None:
    p = [0.0, -0.0, 1.0, 0.5, -1e-30, 1.0001, np.nan, np.inf, -np.inf]
    with enable_x64(wide):
        got = np.asarray(special.ndtri(snp.asarray(p)))
    np.testing.assert_array_equal(got, [-np.inf, -np.inf, np.inf, 0, *[np.nan] * 5])
