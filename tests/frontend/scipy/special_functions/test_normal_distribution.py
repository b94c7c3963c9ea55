"""The normal distribution function and its logarithm: errors, limits, derivatives."""

from typing import Any

import mpmath as mp
import numpy as np
import pytest

from shardir import enable_x64, grad
from shardir.frontend.scipy import special
from tests.frontend.scipy.accuracy import BOUNDS, cases


def exact(name: str, x: float) -> Any:
    below, above = (mp.erfc(sign * mp.mpf(x) / mp.sqrt(2)) / 2 for sign in (-1, 1))
    if name == "ndtr":
        return below
    return mp.log(below) if x < 1 else mp.log1p(-above)


@pytest.mark.parametrize(("name", "dtype"), cases("ndtr", "log_ndtr"))
def test_errors_are_within_bounds(name: str, dtype: str) -> None:
    rng, count = np.random.default_rng(6), 300
    type, far = (np.float32, 12.5) if dtype == "f32" else (np.float64, 37.0)
    x = np.concatenate([rng.normal(0, 2, count), rng.uniform(-far, far, count)]).astype(type)
    if name == "log_ndtr":
        edges = [0.3033049, 0.35883564, 0.7499999, 0.75, 0.79836047, 1e-30, 5e-324]
        x = np.concatenate([x, edges, -(10 ** rng.uniform(0, 6, count))]).astype(type)
    with enable_x64(dtype == "f64"), mp.workdps(40):
        got = np.asarray(getattr(special, name)(x))
        assert got.dtype == type
        for place, value in zip(x.tolist(), got, strict=True):
            expected = exact(name, place)
            apart = abs(expected - float(value)) / float(np.spacing(abs(value)))
            assert apart <= BOUNDS[name][dtype], place


@pytest.mark.parametrize("name", ["ndtr", "log_ndtr"])
def test_16_bit_floats_are_rounded_once(name: str) -> None:
    x = np.arange(0, 1 << 16, 7, dtype=np.uint16).view(np.float16)
    got = np.asarray(getattr(special, name)(x))
    assert got.dtype == np.float16
    with np.errstate(over="ignore"):
        expected = np.asarray(getattr(special, name)(x.astype(np.float32))).astype(np.float16)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("wide", [False, True])
def test_limits(wide: bool) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, 1e30, -1e30, np.nan])
    with enable_x64(wide):
        below = np.asarray(special.ndtr(x))
        logarithm = np.asarray(special.log_ndtr(x))
    np.testing.assert_array_equal(below, [0.5, 0.5, 1, 0, 1, 0, np.nan])
    np.testing.assert_array_equal(logarithm[[2, 3, 4, 6]], [0, -np.inf, 0, np.nan])


def test_the_derivative_is_the_density() -> None:
    with enable_x64():
        for x in (-9.0, -1.0, 0.0, 0.3, 5.0):
            bell = np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
            np.testing.assert_allclose(grad(special.ndtr)(x), bell, rtol=1e-14)
            np.testing.assert_allclose(grad(grad(special.ndtr))(x), -x * bell, rtol=1e-14)
