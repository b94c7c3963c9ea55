"""Logarithms of quotients near 1: what is small is as accurate as what is not."""

import mpmath as mp
import numpy as np
import pytest

from shardir import enable_x64, grad
from shardir.frontend.scipy import special

BOUNDS = {"logit": 3.5, "rel_entr": 3.5, "kl_div": 6.0}
"""The largest errors, in ulp."""


def exact(name: str, p: float, q: float) -> mp.mpf:
    p, q = mp.mpf(p), mp.mpf(q)
    if name == "logit":
        return mp.log(p / (1 - p))
    made = p * mp.log(p / q)
    return made if name == "rel_entr" else made - p + q


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(name: str, dtype: type) -> None:
    rng, count = np.random.default_rng(4), 300
    p = np.concatenate([rng.uniform(0, 1, count), 0.5 + rng.normal(0, 1, count) * 1e-4])
    q = p * (1 + rng.normal(0, 1, 2 * count) * 10 ** rng.uniform(-6, -1, 2 * count))
    p, q = p.astype(dtype), np.abs(q).astype(dtype)
    with enable_x64(dtype is np.float64), mp.workdps(60):
        function = getattr(special, name)
        got = np.asarray(function(p) if name == "logit" else function(p, q))
        for a, b, value in zip(p.tolist(), q.tolist(), got.tolist(), strict=True):
            wanted = exact(name, a, b)
            apart = abs(mp.mpf(value) - wanted) / float(np.spacing(dtype(abs(wanted)) or dtype(1)))
            assert apart <= BOUNDS[name], (a, b)


def test_ends() -> None:
    x = np.array([0.0, 1.0, 0.5, -1.0, 2.0, np.nan], np.float32)
    np.testing.assert_array_equal(special.logit(x), [-np.inf, np.inf, 0, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(special.kl_div([0.0, 1.0, 1.0, -1.0], [2.0, 0.0, 1.0, 1.0]),
                                  [2, np.inf, 0, np.inf])  # fmt: skip


def test_odds_of_small_numbers() -> None:
    """Whose inverses are no numbers."""
    x = np.array([1e-45, 1e-40, 1e-38, 1e-30, 1e-5], np.float32)
    np.testing.assert_allclose(special.logit(x), np.log(x.astype(np.float64)), rtol=1e-6)
    half = np.array([6e-8, 1e-4, 0.499, 0.75], np.float16)
    wanted = np.log(half.astype(np.float64) / (1 - half.astype(np.float64)))
    np.testing.assert_allclose(np.asarray(special.logit(half), np.float64), wanted, rtol=5e-4)
    with enable_x64():
        np.testing.assert_allclose(special.logit(5e-324), np.log(5e-324), rtol=1e-15)


def test_slopes() -> None:
    with enable_x64():
        for p in (0.1, 0.3, 0.5, 0.74, 0.76):
            np.testing.assert_allclose(grad(special.logit)(p), 1 / (p * (1 - p)), rtol=1e-14)
            for q in (0.2, 0.5, 0.71):
                slopes = grad(special.kl_div, (0, 1))(p, q)
                np.testing.assert_allclose(
                    slopes, [np.log(p / q), 1 - p / q], rtol=1e-12, atol=1e-15
                )
