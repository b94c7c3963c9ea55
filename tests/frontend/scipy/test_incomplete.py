"""The incomplete gamma functions beside mpmath's numbers: large and small a, far tails, slopes."""

import mpmath as mp
import numpy as np
import pytest

from shardir import enable_x64, grad
from shardir.frontend.scipy import special
from shardir.frontend.scipy.large_gamma import NEAR, START

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
def test_both_are_right_in_proportion_to_themselves(a: float, x: float) -> None:
    """To 1 in 10^13 of f64 and 10^5 of f32: what is far below 1 is not 1 less the other."""
    wanted = exact(a, x)
    with enable_x64():
        got = special.gammainc(a, x), special.gammaincc(a, x)
        np.testing.assert_allclose(got, wanted, rtol=1e-13)
    a, x = float(np.float32(a)), float(np.float32(x))
    got = special.gammainc(a, x), special.gammaincc(a, x)
    assert got[0].dtype == np.float32
    np.testing.assert_allclose(got, exact(a, x), rtol=2e-5, atol=1e-37)


@pytest.mark.parametrize("a", [1e8, 1e12])
def test_huge_arguments_do_not_run_out_of_rounds(a: float) -> None:
    """At x = a the lower function is 1/2 + 1 / (3 sqrt(2 pi a)), nearly."""
    with enable_x64():
        wanted = 0.5 + 1 / (3 * np.sqrt(2 * np.pi * a))
        np.testing.assert_allclose(special.gammainc(a, a), wanted, rtol=1e-12)
    single = np.float32(9.11e7)
    below = special.gammainc(single, single)
    np.testing.assert_allclose(below, 0.5 + 1 / (3 * np.sqrt(2 * np.pi * 9.11e7)), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_expansion_meets_what_is_beside_it(dtype: type) -> None:
    """Across each of its edges both ways are right."""
    start = START[np.dtype(dtype).itemsize]
    places = [
        (start, start * 1.1),
        (2 * start, 2 * start * (1 - NEAR)),
        (start, start * (1 + NEAR)),
    ]
    for a, x in places:
        for turn in (1 - 1e-3, 1 + 1e-3):
            given = float(dtype(a * turn)), float(dtype(x / turn))
            with enable_x64(dtype is np.float64):
                got = [special.gammainc(*given), special.gammaincc(*given)]
            np.testing.assert_allclose(got, exact(*given), 1e-13 if dtype is np.float64 else 1e-5)


@pytest.mark.parametrize(("a", "x"), [(1000.0, 1000.0), (500.0, 520.0), (1e-3, 0.5), (3.0, 2.0)])
def test_slopes(a: float, x: float) -> None:
    with enable_x64(), mp.workdps(40):
        slope = mp.diff(lambda a: mp.gammainc(a, x, mp.inf, regularized=True), mp.mpf(a))
        np.testing.assert_allclose(grad(special.gammaincc)(a, x), float(slope), rtol=1e-11)
        density = mp.exp((a - 1) * mp.log(x) - x - mp.loggamma(a))
        np.testing.assert_allclose(grad(special.gammainc, 1)(a, x), float(density), rtol=1e-11)
