"""Derivatives of piecewise computed functions at the boundaries of the pieces.

The functions and all of their derivatives are smooth there; the expected numbers are from mpmath.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardir import grad, hessian, nn, numpy as snp
from shardir.scipy import special


@pytest.mark.parametrize("at", [-2.0, 0.0, 1.0, 1e4])
def test_second_derivative_of_logaddexp_at_equal_arguments(at: float) -> None:
    bend = np.array([[0.25, -0.25], [-0.25, 0.25]])
    log2 = float(np.log(2))
    pair = snp.array([at, at])
    np.testing.assert_allclose(grad(lambda p: snp.logaddexp(p[0], p[1]))(pair), [0.5, 0.5])
    np.testing.assert_allclose(hessian(lambda p: snp.logaddexp(p[0], p[1]))(pair), bend)
    np.testing.assert_allclose(
        hessian(lambda p: snp.logaddexp2(p[0], p[1]))(pair), bend * log2, rtol=1e-6
    )


def test_newton_steps_of_a_logistic_regression_from_zero() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 5)).astype("float32")
    signs = np.sign(x.sum(1)).astype("float32")

    def loss(w: Any) -> Any:
        return snp.logaddexp(0, -signs * (x @ w)).mean()

    np.testing.assert_allclose(hessian(loss)(snp.zeros(5)), x.T @ x / 64 / 4, rtol=1e-4, atol=1e-6)
    same = hessian(lambda w: nn.softplus(-signs * (x @ w)).mean())(snp.zeros(5))
    np.testing.assert_allclose(hessian(loss)(snp.zeros(5)), same, rtol=1e-4, atol=1e-6)


def test_derivatives_of_powers_at_exponent_zero() -> None:
    def power(x: Any, y: Any) -> Any:
        return x**y

    np.testing.assert_allclose(grad(grad(power), 1)(2.0, 0.0), 0.5)
    np.testing.assert_allclose(grad(grad(grad(lambda x: x**x)))(1.0), 3.0, rtol=1e-6)
    assert [float(each) for each in grad(power, (0, 1))(0.0, 0.0)] == [0, 0]


@pytest.mark.parametrize(
    ("function", "slope", "slope_at_minus_one"),
    [(special.xlogy, 0.6931472, np.nan), (special.xlog1py, 1.0986123, -np.inf)],
    ids=["xlogy", "xlog1py"],
)
def test_derivatives_of_xlogy(
    function: Callable[..., Any], slope: float, slope_at_minus_one: float
) -> None:
    """The derivative with respect to x is the logarithm, also at x = 0, as in JAX."""
    np.testing.assert_allclose(grad(function)(0.0, 2.0), slope, rtol=1e-6)
    np.testing.assert_equal(float(grad(function)(0.0, -1.0)), slope_at_minus_one)
    assert float(function(0.0, np.inf)) == 0


@pytest.mark.parametrize(("at", "bend"), [(1.0, -2.4041138), (2.0, -0.4041138), (0.3, -75.272514)])
def test_derivatives_of_digamma_at_integers(at: float, bend: float) -> None:
    np.testing.assert_allclose(grad(grad(special.digamma))(at), bend, rtol=1e-5)


def test_derivatives_of_the_spectrum_of_zeros_are_finite() -> None:
    def power(x: Any) -> Any:
        return (snp.abs(snp.fft.rfft(x)) ** 2)[1]

    assert np.isfinite(hessian(power)(snp.zeros(3))).all()
    np.testing.assert_allclose(grad(power)(snp.zeros(3)), 0)
