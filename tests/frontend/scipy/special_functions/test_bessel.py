"""Modified Bessel functions against mpmath: errors, limits, and 16-bit floats."""

from typing import Any

import mpmath as mp
import numpy as np
import pytest

from shardir import enable_x64, grad
from shardir.frontend.scipy import special
from tests.frontend.scipy.accuracy import BOUNDS, cases

pytestmark = pytest.mark.sample(4)

END = {"f32": 91.9, "f64": 713.9}
"""Where I_0 and I_1 are finite, while exp is not."""
NAMES = ["i0", "i1", "i0e", "i1e"]


def exact(name: str, x: float) -> Any:
    value = mp.besseli(int(name[1]), mp.mpf(x))
    return value * mp.exp(-abs(mp.mpf(x))) if name.endswith("e") else value


@pytest.mark.parametrize(("name", "dtype"), cases(*NAMES))
def test_errors_are_within_bounds(name: str, dtype: str) -> None:
    rng, count = np.random.default_rng(2), 150
    places = [
        rng.uniform(-8, 8, count),
        rng.uniform(8, 85, count),
        10 ** rng.uniform(-9, 1.9, count),
        10 ** rng.uniform(1.9, 5, count) if name.endswith("e") else END[dtype] - np.arange(30) / 4,
    ]
    type = np.float32 if dtype == "f32" else np.float64
    x = np.concatenate(places).astype(type)
    with enable_x64(dtype == "f64"), mp.workdps(40):
        got = np.asarray(getattr(special, name)(x))
        assert got.dtype == type
        for place, value in zip(x.tolist(), got, strict=True):
            apart = abs(exact(name, place) - float(value)) / float(np.spacing(abs(value)))
            assert apart <= BOUNDS[name][dtype], place


@pytest.mark.parametrize("name", NAMES)
def test_16_bit_floats_are_rounded_once(name: str) -> None:
    x = np.arange(0, 0x4900, dtype=np.uint16).view(np.float16)
    got = np.asarray(getattr(special, name)(x))
    assert got.dtype == np.float16
    with enable_x64():
        expected = np.asarray(getattr(special, name)(x.astype(np.float64)))
    apart = np.abs(got - expected) / np.spacing(np.abs(got)).astype(np.float64)
    assert apart.max() <= 0.5002


@pytest.mark.parametrize("wide", [False, True])
def test_limits(wide: bool) -> None:
    x = np.array([0.0, np.inf, -np.inf, np.nan])
    with enable_x64(wide):
        got = [np.asarray(getattr(special, name)(x)) for name in NAMES]
    inf, nan = np.inf, np.nan
    expected = [[1, inf, inf, nan], [0, inf, -inf, nan], [1, 0, 0, nan], [0, 0, 0, nan]]
    np.testing.assert_array_equal(got, expected)


def test_second_derivatives() -> None:
    """I0'' = (I0 + I2) / 2, and I1'' = (I3 + 3 I1) / 4."""
    with enable_x64():
        for x in (0.7, 9.3):
            second = float(grad(grad(special.i0))(x))
            expected = float((mp.besseli(0, x) + mp.besseli(2, x)) / 2)
            np.testing.assert_allclose(second, expected, rtol=1e-12)
            second = float(grad(grad(special.i1))(x))
            expected = float((mp.besseli(3, x) + 3 * mp.besseli(1, x)) / 4)
            np.testing.assert_allclose(second, expected, rtol=1e-11)
