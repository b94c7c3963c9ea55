"""The gamma function and its quotients against mpmath: errors, integers, poles, derivatives."""

from collections.abc import Callable
from math import factorial
from typing import Any

import mpmath as mp
import numpy as np
import numpy.typing as npt
import pytest

from shardir import enable_x64, grad, jit
from shardir.frontend.scipy import special
from shardir.frontend.scipy.special_functions import gamma_function
from tests.backends.cpu.kernels.math.fit_coefficients import Grid, remez
from tests.backends.cpu.kernels.math.fit_targets import Target
from tests.frontend.scipy.accuracy import BOUNDS, cases, ulps

pytestmark = pytest.mark.sample(4)

Array = npt.NDArray[np.float64]


def _arguments(name: str, rng: Any) -> list[Array]:
    count = 250
    if name in ("gamma", "factorial"):
        places = [rng.uniform(0, 12, count), rng.uniform(0, 171, count), np.arange(0, 60) / 4]
        if name == "gamma":
            poles = -np.round(rng.uniform(1, 150, count))
            places += [rng.uniform(-170, 0, count), poles + rng.choice([-1, 1], count) / 1024]
            places += [10 ** rng.uniform(-300, 0, count)]
        return [np.concatenate(places)]
    first = [rng.uniform(0, 20, count), 10 ** rng.uniform(-3, 4, count), rng.integers(1, 30, count)]
    if name == "poch":
        first[0] = first[0] + 3
        return [np.concatenate(first), np.tile(rng.uniform(-0.0009, 9, count), 3)]
    second = [rng.uniform(0, 20, count), 10 ** rng.uniform(-3, 4, count), np.arange(count) / 8 + 1]
    return [np.concatenate(first), np.concatenate(second)]


EXACT: dict[str, Callable[..., Any]] = {
    "gamma": mp.gamma,
    "factorial": lambda x: mp.gamma(x + 1),
    "beta": mp.beta,
    "poch": mp.rf,
}


@pytest.mark.parametrize(("name", "dtype"), cases(*EXACT))
def test_errors_are_within_bounds(name: str, dtype: str) -> None:
    type = np.float32 if dtype == "f32" else np.float64
    arguments = [x.astype(type) for x in _arguments(name, np.random.default_rng(8))]
    with enable_x64(dtype == "f64"), mp.workdps(50):
        got = np.asarray(getattr(special, name)(*arguments))
        assert got.dtype == type
        for *place, value in zip(*(x.tolist() for x in arguments), got.tolist(), strict=True):
            if place[0] == 0 and name == "gamma":
                assert value == np.inf
                continue
            expected = EXACT[name](*map(mp.mpf, place))
            assert ulps(value, expected, type) <= BOUNDS[name][dtype], place


def test_results_at_integers_are_correctly_rounded() -> None:
    n = np.arange(171)
    expected = np.array([float(factorial(k)) for k in n])
    with enable_x64():
        np.testing.assert_array_equal(special.factorial(n.astype(float)), expected)
        np.testing.assert_array_equal(special.gamma(n + 1.0), expected)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(special.factorial(n), expected.astype(np.float32))


def test_the_coefficients_are_reproducible() -> None:
    with mp.workdps(50):
        target = Target(
            lambda t: (mp.gamma(2 + t) - 1) / t, (mp.mpf(10) ** -25, 1), lambda t: t, 58, "f64"
        )
        degree = len(gamma_function.GAMMA_COEFFICIENTS_NEAR_TWO) - 1
        fit = remez(Grid(target, 16 * (degree + 2)), (), degree)
        assert fit.error <= mp.mpf(2) ** -58
    np.testing.assert_allclose(
        gamma_function.GAMMA_COEFFICIENTS_NEAR_TWO,
        [float(c) for c in fit.coefficients],
        rtol=0.5,
        atol=1e-9,
    )


@pytest.mark.parametrize("wide", [False, True])
def test_limits(wide: bool) -> None:
    x = np.array([0.0, -0.0, -1.0, -3.0, -np.inf, np.inf, np.nan, 1e4, -200.5, 1e-310])
    with enable_x64(wide):
        got = np.asarray(special.gamma(x))
    expected = [np.inf, -np.inf, np.nan, np.nan, np.nan, np.inf, np.nan, np.inf, 0, np.inf]
    np.testing.assert_array_equal(got, expected)
    with enable_x64(wide):
        np.testing.assert_array_equal(special.factorial([-0.5, 0.0, 3.0]), [0, 1, 6])
        np.testing.assert_array_equal(special.beta([0.0, 1e-310], [2.0, 3.0]), [np.inf] * 2)


def test_reflection_does_not_overflow_early() -> None:
    """Subnormal results have an error of at most two units in the last place."""
    x = [-170.5, -171.5, -172.25, -175.625, -177.5]
    with enable_x64():
        got = np.asarray(special.gamma(x))
    expected = [float(mp.gamma(mp.mpf(v))) for v in x]
    np.testing.assert_allclose(got, expected, rtol=1e-15, atol=1e-323)


def test_beta_of_huge_arguments() -> None:
    """The logarithm is used, and cases where one argument dominates the sum."""
    with enable_x64(), mp.workdps(340):
        for a, b in [(1e-3, 1e300), (2.5, 1e100), (1e-200, 1e-250), (15.0, 1e19), (0.5, 1e15)]:
            expected = float(mp.exp(mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(mp.mpf(a) + b)))
            np.testing.assert_allclose(special.beta(a, b), expected, rtol=1e-13)


def test_derivatives() -> None:
    with enable_x64():
        first, second = jit(grad(special.gamma)), jit(grad(grad(special.gamma)))
        for x in (0.3, 3.0, 4.7, 25.5, -1.6):
            np.testing.assert_allclose(first(x), float(mp.diff(mp.gamma, x)), rtol=1e-13)
            np.testing.assert_allclose(second(x), float(mp.diff(mp.gamma, x, 2)), rtol=1e-12)
        for name in ("beta", "poch"):
            slopes = jit(grad(getattr(special, name), (0, 1)))
            for z, m in ((2.5, 3.0), (0.4, 12.0), (30.0, 15.5)):
                expected = [float(mp.diff(EXACT[name], (z, m), (1 - at, at))) for at in (0, 1)]
                np.testing.assert_allclose(slopes(z, m), expected, rtol=1e-12)
        np.testing.assert_allclose(grad(special.factorial)(4.0), 24 * special.digamma(5.0))
    assert grad(special.gamma)(np.float32(3.0)).dtype == np.float32


@pytest.mark.parametrize("name", ["gamma", "factorial"])
def test_16_bit_floats_are_rounded_once(name: str) -> None:
    x = np.arange(0, 0x4900, 3, dtype=np.uint16).view(np.float16)
    got = np.asarray(getattr(special, name)(x))
    assert got.dtype == np.float16
    with enable_x64(), np.errstate(over="ignore"):
        wide = np.asarray(getattr(special, name)(x.astype(np.float64)))
        np.testing.assert_array_equal(got, wide.astype(np.float16))
