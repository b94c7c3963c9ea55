"""Entropy functions and logarithms of quotients close to 1: small results are accurate."""

import mpmath as mp
import numpy as np
import pytest

from shardir import enable_x64, grad
from shardir.frontend.scipy import special
from tests.frontend.scipy.accuracy import BOUNDS, cases, ulps


def exact(name: str, p: float, q: float) -> mp.mpf:
    p, q = mp.mpf(p), mp.mpf(q)
    if name == "logit":
        return mp.log(p / (1 - p))
    made = p * mp.log(p / q)
    return made if name == "rel_entr" else made - p + q


@pytest.mark.parametrize(("name", "dtype"), cases("logit", "rel_entr", "kl_div"))
def test_errors_are_within_bounds(name: str, dtype: str) -> None:
    rng, count = np.random.default_rng(4), 300
    p = np.concatenate([rng.uniform(0, 1, count), 0.5 + rng.normal(0, 1, count) * 1e-4])
    q = p * (1 + rng.normal(0, 1, 2 * count) * 10 ** rng.uniform(-6, 1, 2 * count))
    type = np.float32 if dtype == "f32" else np.float64
    p, q = p.astype(type), np.abs(q).astype(type)
    with enable_x64(dtype == "f64"), mp.workdps(60):
        function = getattr(special, name)
        got = np.asarray(function(p) if name == "logit" else function(p, q))
        for a, b, value in zip(p.tolist(), q.tolist(), got.tolist(), strict=True):
            expected = exact(name, a, b)
            assert ulps(value, expected, type) <= BOUNDS[name][dtype], (a, b)


@pytest.mark.parametrize("wide", [False, True])
def test_quotients_that_overflow_or_underflow(wide: bool) -> None:
    p, q = ([1e-300, 1e200], [1e300, 1e-300]) if wide else ([1e-29, 1e30], [1e28, 1e-20])
    with enable_x64(wide), mp.workdps(40):
        for name in ("rel_entr", "kl_div"):
            got = np.asarray(getattr(special, name)(p, q))
            given = np.array([p, q], got.dtype).astype(float).T
            expected = [float(exact(name, *pair)) for pair in given]
            np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(got.dtype).eps)


def test_limits() -> None:
    x = np.array([0.0, 1.0, 0.5, -1.0, 2.0, np.nan], np.float32)
    np.testing.assert_array_equal(special.logit(x), [-np.inf, np.inf, 0, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(special.kl_div([0.0, 1.0, 1.0, -1.0], [2.0, 0.0, 1.0, 1.0]),
                                  [2, np.inf, 0, np.inf])  # fmt: skip


def test_logit_of_small_numbers() -> None:
    """The reciprocals of the arguments overflow."""
    x = np.array([1e-45, 1e-40, 1e-38, 1e-30, 1e-5], np.float32)
    np.testing.assert_allclose(special.logit(x), np.log(x.astype(np.float64)), rtol=1e-6)
    half = np.array([6e-8, 1e-4, 0.499, 0.75], np.float16)
    expected = np.log(half.astype(np.float64) / (1 - half.astype(np.float64)))
    np.testing.assert_allclose(np.asarray(special.logit(half), np.float64), expected, rtol=5e-4)
    with enable_x64():
        np.testing.assert_allclose(special.logit(5e-324), np.log(5e-324), rtol=1e-15)


def test_derivatives() -> None:
    with enable_x64():
        for p in (0.1, 0.3, 0.5, 0.74, 0.76):
            np.testing.assert_allclose(grad(special.logit)(p), 1 / (p * (1 - p)), rtol=1e-14)
            for q in (0.2, 0.5, 0.71):
                slopes = grad(special.kl_div, (0, 1))(p, q)
                np.testing.assert_allclose(
                    slopes, [np.log(p / q), 1 - p / q], rtol=1e-12, atol=1e-15
                )
