"""Incomplete gamma and beta functions against mpmath: small and large a, tails, derivatives."""

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from shardir import enable_x64, grad, jit
from shardir.frontend.scipy import special
from shardir.frontend.scipy.special_functions.temme_expansion import (
    EXPANSION_MAX_RATIO,
    EXPANSION_MIN_A,
)
from tests.frontend.scipy.accuracy import BOUNDS, cases, ulps

pytestmark = pytest.mark.sample(5)

CLOSE = [
    (30.5, 31.0),
    (300.5, 390.0),
    (500.0, 350.5),
    (1e3, 1e3),
    (1e4, 9.9e3),
    (941467.75, 936930.5),
]
SMALL = [(1e-10, 0.659), (1e-10, 1.2), (1e-3, 0.02), (0.0189, 0.794), (0.3, 1.05), (1e-30, 1e-5)]
TAILS = [(86.8, 0.017), (13.2, 0.0196), (136.0, 191.0), (4.0, 94.0), (11.0, 3.0)]


def exact(a: float, x: float) -> tuple[float, float]:
    with mp.workdps(60):
        a, x = mp.mpf(a), mp.mpf(x)
        below = mp.gammainc(a, 0, x, regularized=True)
        return float(below), float(mp.gammainc(a, x, mp.inf, regularized=True))


@pytest.mark.parametrize(("a", "x"), CLOSE + SMALL + TAILS)
def test_both_functions_have_small_relative_errors(a: float, x: float) -> None:
    """The bounds are 1e-13 for f64 and 1e-5 for f32; a result far below 1 is not computed as 1
    minus the other.
    """
    expected = exact(a, x)
    with enable_x64():
        got = special.gammainc(a, x), special.gammaincc(a, x)
        np.testing.assert_allclose(got, expected, rtol=1e-13)
    a, x = float(np.float32(a)), float(np.float32(x))
    got = special.gammainc(a, x), special.gammaincc(a, x)
    assert got[0].dtype == np.float32
    np.testing.assert_allclose(got, exact(a, x), rtol=2e-5, atol=1e-37)


def sample_points(name: str, count: int) -> list[Any]:
    """Return points around the mean, in the tails and for large arguments, the given number of
    each.
    """
    rng = np.random.default_rng(9)
    uniform, wide = rng.uniform, 10 ** rng.uniform(-2, 2, (2, count))
    if name == "betainc":
        a = np.concatenate([wide[0], uniform(0.01, 20, count), 10 ** uniform(1, 4, count)])
        b = np.concatenate([wide[1], uniform(0.01, 20, count), 10 ** uniform(1, 4, count)])
        x = uniform(0, 0.99, 3 * count)
        x[2 * count :] = (a / (a + b) * uniform(0.9, 1.1, 3 * count))[2 * count :]
        return [a, b, np.minimum(x, 0.99)]
    a = np.concatenate([wide[0], uniform(0, 40, count), 10 ** uniform(1, 6, count)])
    x = np.concatenate([wide[1], uniform(0, 60, count), np.ones(count)])
    x[2 * count :] = (a + np.sqrt(a) * rng.normal(0, 3, 3 * count))[2 * count :]
    return [a, np.abs(x)]


def beta_below(a: mp.mpf, b: mp.mpf, x: mp.mpf) -> mp.mpf:
    """Return the function by a series of positive terms (Abramowitz and Stegun 26.5.4)."""
    if x > a / (a + b):
        return 1 - beta_below(b, a, 1 - x)
    total, term, n = mp.mpf(0), mp.mpf(1), 0
    while term > total * mp.mpf(10) ** -38:
        total += term
        n += 1
        term *= (a + b + n - 1) / (a + n) * x
    return total * x**a * (1 - x) ** b / (a * mp.beta(a, b))


EXACT: dict[str, Callable[..., Any]] = {
    "gammainc": lambda a, x: mp.gammainc(a, 0, x, regularized=True),
    "gammaincc": lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True),
    "betainc": beta_below,
}


@pytest.mark.parametrize(("name", "dtype"), cases(*EXACT))
def test_errors_are_within_bounds(name: str, dtype: str, request: pytest.FixtureRequest) -> None:
    type = np.float32 if dtype == "f32" else np.float64
    count = 120 if request.config.getoption("--long") else 40
    arguments = [x.astype(type) for x in sample_points(name, count)]
    with enable_x64(dtype == "f64"), mp.workdps(40):
        got = np.asarray(getattr(special, name)(*arguments))
        assert got.dtype == type
        for *place, value in zip(*(x.tolist() for x in arguments), got.tolist(), strict=True):
            expected = EXACT[name](*map(mp.mpf, place))
            if expected > 1e-30:
                assert ulps(value, expected, type) <= BOUNDS[name][dtype], place


FAR_TAILS = [
    (1812.0, 799.6), (4404.6, 7225.9), (12099.5, 8881.3), (900.0, 300.0), (1666.0, 3506.0),
    (8312.0, 6214.0), (63970.0, 71060.0), (4320.0, 3137.0), (7.5, 720.0), (56.48, 802.2),
]  # fmt: skip
"""Results from 1e-305 to 1e-30, of powers that are no numbers, by each way that there is."""


@pytest.mark.parametrize(("a", "x"), FAR_TAILS)
def test_tails_have_small_relative_errors(a: float, x: float) -> None:
    expected = exact(a, x)
    with enable_x64():
        np.testing.assert_allclose(special.gammainc(a, x), expected[0], rtol=1e-13)
        np.testing.assert_allclose(special.gammaincc(a, x), expected[1], rtol=1e-13)


def test_results_that_underflow_are_zero() -> None:
    """The test includes factors that are infinite or subnormal."""
    a = np.array([1.63, 5.0, 1e-3, 40.0, 1e5, 9.0, 1e5, 0.5])
    x = np.array([1.25e-318, 5e-324, 1e4, 1e-320, 10.0, 1e200, 1e260, 5000.0])
    with enable_x64():
        below, above = np.asarray(special.gammainc(a, x)), np.asarray(special.gammaincc(a, x))
        np.testing.assert_array_equal(below, [0, 0, 1, 0, 0, 1, 1, 1])
        np.testing.assert_array_equal(above, [1, 1, 0, 1, 1, 0, 0, 0])


@pytest.mark.long
def test_derivatives_of_betainc() -> None:
    """The test includes integers, whose continued fraction terminates, and numbers close to
    them.
    """
    with enable_x64(), mp.workdps(40):
        slopes = jit(grad(special.betainc, (0, 1, 2)))
        for place in [(2.0, 3.0, 0.4), (1.0, 1.0, 0.3), (5.0, 2.5, 0.9)]:
            orders = np.eye(3, dtype=int).tolist()
            expected = [float(mp.diff(EXACT["betainc"], place, tuple(each))) for each in orders]
            np.testing.assert_allclose(slopes(*place), expected, 1e-11, err_msg=str(place))


def test_small_results_of_betainc() -> None:
    """The results are small to the right of the mean."""
    with enable_x64(), mp.workdps(40):
        for a, b, x in [(3.6, 0.03, 0.83), (586.8, 1e-3, 0.98), (1e-3, 2e-3, 0.9)]:
            expected = float(EXACT["betainc"](*map(mp.mpf, (a, b, x))))
            np.testing.assert_allclose(special.betainc(a, b, x), expected, rtol=4e-15)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_16_bit_floats_are_rounded_once(name: str) -> None:
    a = np.array([0.3, 1.5, 7.0, 40.0, 500.0], np.float16)
    x = np.array([0.2, 2.5, 9.0, 45.0, 470.0], np.float16)
    got = np.asarray(getattr(special, name)(a, x))
    assert got.dtype == np.float16
    with enable_x64():
        expected = getattr(special, name)(a.astype(np.float64), x.astype(np.float64))
    np.testing.assert_array_equal(got, np.asarray(expected).astype(np.float16))


@pytest.mark.parametrize("a", [1e8, 1e12])
def test_iterations_suffice_for_huge_arguments(a: float) -> None:
    """At x = a the lower function is approximately 1/2 + 1 / (3 sqrt(2 pi a))."""
    with enable_x64():
        expected = 0.5 + 1 / (3 * np.sqrt(2 * np.pi * a))
        np.testing.assert_allclose(special.gammainc(a, a), expected, rtol=1e-12)
    single = np.float32(9.11e7)
    below = special.gammainc(single, single)
    np.testing.assert_allclose(below, 0.5 + 1 / (3 * np.sqrt(2 * np.pi * 9.11e7)), rtol=1e-6)


def test_the_largest_numbers_give_step_functions() -> None:
    with enable_x64():
        a = np.array([1e300, 1e300, 1e300, 2.0, 1e-5])
        x = np.array([9e299, 1.1e300, 1.0, 1e300, 1e300])
        np.testing.assert_array_equal(special.gammainc(a, x), [0, 1, 0, 1, 1])
        np.testing.assert_array_equal(special.gammaincc(a, x), [1, 0, 1, 0, 0])
        a, b = np.array([1e300, 2.0, 1e300]), np.array([2.0, 1e300, 1e300])
        np.testing.assert_array_equal(special.betainc(a, b, 0.25), [0, 1, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_expansion_agrees_with_adjacent_methods(dtype: type) -> None:
    """At each boundary of the expansion, both methods are accurate."""
    start = EXPANSION_MIN_A[np.dtype(dtype).itemsize]
    places = [
        (start, start * 1.1),
        (2 * start, 2 * start * (1 - EXPANSION_MAX_RATIO)),
        (start, start * (1 + EXPANSION_MAX_RATIO)),
    ]
    for a, x in places:
        for turn in (1 - 1e-3, 1 + 1e-3):
            given = float(dtype(a * turn)), float(dtype(x / turn))
            with enable_x64(dtype is np.float64):
                got = [special.gammainc(*given), special.gammaincc(*given)]
            np.testing.assert_allclose(got, exact(*given), 1e-13 if dtype is np.float64 else 1e-5)


def test_derivatives() -> None:
    with enable_x64(), mp.workdps(40):
        by_a, by_x = jit(grad(special.gammaincc)), jit(grad(special.gammainc, 1))
        for a, x in [(1000.0, 1000.0), (500.0, 520.0), (1e-3, 0.5), (3.0, 2.0)]:
            slope = mp.diff(lambda a, x=x: mp.gammainc(a, x, mp.inf, regularized=True), mp.mpf(a))
            np.testing.assert_allclose(by_a(a, x), float(slope), rtol=1e-11, err_msg=f"{a}, {x}")
            density = mp.exp((a - 1) * mp.log(x) - x - mp.loggamma(a))
            np.testing.assert_allclose(by_x(a, x), float(density), rtol=1e-11, err_msg=f"{a}, {x}")
