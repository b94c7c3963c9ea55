"""Gamma functions of large arguments against mpmath and SciPy 1.17, without cancellation errors."""

from typing import Any

import numpy as np
import pytest

from shardir import enable_x64, grad
from shardir.frontend.numpy import api as snp
from shardir.frontend.scipy import special, stats

pytestmark = pytest.mark.sample(4)

VALUES: list[tuple[str, tuple[float, ...], float]] = [
    ("betaln", (2.0, 1000000.0), -27.631022115928047),
    ("betaln", (3.0, 1000000000000.0), -82.1999161672287),
    ("betaln", (1024.0, 4096.0), -2564.495548660244),
    ("betaln", (0.25, 16.0), 0.600764503637029),
    ("betaln", (-1.5, 1e10), 35.39882341009966),
    ("betaln", (-5.25, 3000000.0), 74.57083896520567),
    ("beta", (3.0, 1048576.0), 1.7347185129041758e-18),
    ("beta", (10000000000.0, -1.5), 2363271800764241.2),
    ("betainc", (1024.0, 1024.0, 0.5), 0.5),
    ("betainc", (100.0, 131072.0, 0.0009765625), 0.9955585615620978),
    ("betainc", (3.0, 1000000000.0, 1.862645149230957e-09), 0.2862061249785228),
    ("gammainc", (1000000.0, 1000500.0), 0.6915504757714972),
    ("gammaincc", (10000.0, 10000.0), 0.4986701916600448),
    ("gammaincc", (64.0, 48.0), 0.9843633485075901),
    ("poch", (1000000.0, 0.5), 999.9998750000078),
    ("poch", (100.0, -3.0), 1.0625931097212393e-06),
    ("zeta", (50.0, 5.0), 1.1260236818234626e-35),
    ("poisson.logpmf", (100000.0, 100200.0), -6.875135831717518),
    ("poisson.pmf", (10.0, 7.0), 0.07098326865041374),
    ("gamma.logpdf", (100200.0, 100000.0), -6.877133834380191),
    ("chi2.logpdf", (10000.0, 10000.0), -5.870698976139381),
    ("t.logpdf", (3.0, 1048576.0), -5.418923751344854),
]


def function_of(name: str) -> Any:
    family, _, of = name.rpartition(".")
    return getattr(getattr(stats, family), of) if family else getattr(special, name)


@pytest.mark.parametrize(("name", "args", "expected"), VALUES)
def test_values(name: str, args: tuple[float, ...], expected: float) -> None:
    function = function_of(name)
    made = function(*(snp.float32(x) for x in args))
    assert made.dtype == np.float32
    np.testing.assert_allclose(np.asarray(made), expected, rtol=2e-5)
    with enable_x64():
        np.testing.assert_allclose(
            np.asarray(function(*map(snp.float64, args))), expected, rtol=1e-9
        )


def test_derivatives_of_betaln() -> None:
    with enable_x64():
        a, b = (x.ravel() for x in snp.meshgrid([0.25, 3.0, 12.0, 1e3], [5.0, 12.0, 30.0, 1e4]))
        made = grad(lambda a, b: special.betaln(a, b).sum(), argnums=(0, 1))(a, b)
        for slope, x in zip(made, (a, b), strict=True):
            expected = special.digamma(x) - special.digamma(a + b)
            np.testing.assert_allclose(slope, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("n", [0.0, 1.0, 40.0])
def test_the_density_at_zero(n: float) -> None:
    found = stats.gamma.logpdf(snp.array([0.0, n]), n + 1)
    assert float(found[0]) == (-np.inf if n else 0)
    assert np.isfinite(float(found[1]))
    assert float(stats.poisson.pmf(n, 0.0)) == (0 if n else 1)


LIMITS: list[tuple[str, tuple[float, ...], float]] = [
    ("gammainc", (np.inf, 1e-45), 0.0),
    ("gammaincc", (np.inf, 2.0), 1.0),
    ("gammainc", (2.0, np.inf), 1.0),
    ("gammainc", (np.inf, np.inf), np.nan),
    ("poch", (1.0, 3e38), np.inf),
    ("poch", (20.0, 3e38), np.inf),
    ("zeta", (1e10, 1e-38), np.inf),
    ("beta", (3e38, 2.5), 0.0),
]


@pytest.mark.parametrize(("name", "args", "expected"), LIMITS)
@pytest.mark.parametrize("wide", [False, True])
def test_limits(name: str, args: tuple[float, ...], expected: float, wide: bool) -> None:
    with enable_x64(wide):
        kind = snp.float64 if wide else snp.float32
        found = getattr(special, name)(*map(kind, args))
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-90)
