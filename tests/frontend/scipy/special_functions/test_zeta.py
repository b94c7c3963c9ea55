"""The zeta and polygamma functions against mpmath: errors, negative arguments, overflow."""

import mpmath as mp
import numpy as np
import numpy.typing as npt
import pytest

from shardir import enable_x64, grad, jit, vmap
from shardir.frontend.numpy import api as snp
from shardir.frontend.scipy import special
from tests.frontend.scipy.accuracy import BOUNDS, ulps

pytestmark = pytest.mark.sample(4)

Array = npt.NDArray[np.floating]
POWERS = [1.0000001, 1.3, 2.0, 3.0, 7.5, 20.0, 49.3]
PLACES = [1e-5, 0.3, 1.0, 2.5, 9.9, 40.0, 63.7, 1e4]
LEFT = [-0.25, -0.5, -1.75, -8.25, -20.5, -1000.25]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeta_errors_are_within_the_bound(dtype: type) -> None:
    bound = BOUNDS["zeta"]["f32" if dtype is np.float32 else "f64"]
    s: Array = np.repeat(POWERS, len(PLACES)).astype(dtype)
    q: Array = np.tile(PLACES, len(POWERS)).astype(dtype)
    with enable_x64(dtype is np.float64), mp.workdps(250), np.errstate(over="ignore"):
        got = np.asarray(special.zeta(s, q))
        for power, place, value in zip(s.tolist(), q.tolist(), got.tolist(), strict=True):
            expected = mp.zeta(mp.mpf(power), mp.mpf(place))
            if float(np.finfo(dtype).tiny) < expected < float(np.finfo(dtype).max):
                assert ulps(value, expected, dtype) <= bound, (power, place)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_polygamma_errors_are_within_the_bound(dtype: type) -> None:
    """The test includes high orders, whose factorial overflows."""
    bound = BOUNDS["polygamma"]["f32" if dtype is np.float32 else "f64"]
    places: Array = np.array([0.05, 0.7, 1.0, 2.3, 11.42, 18.1, 63.7, 950.3]).astype(dtype)
    with enable_x64(dtype is np.float64), mp.workdps(200):
        for order in (1, 2, 4, 12, 19, 30):
            got = np.asarray(special.polygamma(order, places))
            for place, value in zip(places.tolist(), got.tolist(), strict=True):
                expected = mp.polygamma(order, mp.mpf(place))
                if float(np.finfo(dtype).tiny) < abs(expected) < float(np.finfo(dtype).max):
                    assert ulps(value, expected, dtype) <= bound, (order, place)


@pytest.mark.parametrize("place", LEFT)
@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_negative_arguments(n: int, place: float) -> None:
    """The error is relative to the largest term, for any number of negative terms."""
    with mp.workdps(60):
        expected = float(mp.polygamma(n, mp.mpf(place)))
        size = float(mp.polygamma(n, mp.mpf(0.25))) if n % 2 == 0 else expected
    zeta = expected / float(mp.factorial(n)) * (-1) ** (n + 1)
    with enable_x64():
        atol = 1e-14 * abs(size)
        np.testing.assert_allclose(special.polygamma(float(n), place), expected, 1e-13, atol)
        np.testing.assert_allclose(special.zeta(n + 1.0, place), zeta, 1e-13, atol)
    np.testing.assert_allclose(special.polygamma(float(n), place), expected, 3e-6, 3e-6 * abs(size))


def test_powers_are_integers_for_negative_arguments() -> None:
    assert np.isnan(float(special.zeta(2.5, -0.5)))
    assert float(special.zeta(2.5, -3.0)) == np.inf
    assert float(special.zeta(3.0, 0.0)) == np.inf


@pytest.mark.parametrize(("n", "place"), [(38, 29.9457), (33, 30.0), (60, 50.0), (45, 8.0)])
def test_factorials_that_overflow_f32(n: int, place: float) -> None:
    place = float(np.float32(place))
    with mp.workdps(60):
        expected = float(mp.polygamma(n, mp.mpf(place)))
    np.testing.assert_allclose(special.polygamma(float(n), place), expected, 1e-4)


def test_derivatives_and_vmap_for_both_signs() -> None:
    with enable_x64():
        x = snp.array([-1.75, 0.5, 3.0])
        slope = vmap(grad(lambda x: special.polygamma(1.0, x)))
        for made in (slope(x), jit(slope)(x)):
            np.testing.assert_allclose(made, special.polygamma(2.0, x), rtol=1e-12)
