"""Derivatives of functions that are computed in pieces, where the pieces meet.

The functions are smooth there, and so are all of their derivatives; numbers of mpmath.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardir import grad, hessian, nn, numpy as snp
from shardir.scipy import special


@pytest.mark.parametrize("at", [-2.0, 0.0, 1.0, 1e4])
def test_logaddexp_bends_where_its_arguments_are_equal(at: float) -> None:
    bend = np.array([[0.25, -0.25], [-0.25, 0.25]])
    log2 = float(np.log(2))
    pair = snp.array([at, at])
    np.testing.assert_allclose(grad(lambda p: snp.logaddexp(p[0], p[1]))(pair), [0.5, 0.5])
    np.testing.assert_allclose(hessian(lambda p: snp.logaddexp(p[0], p[1]))(pair), bend)
    np.testing.assert_allclose(
        hessian(lambda p: snp.logaddexp2(p[0], p[1]))(pair), bend * log2, rtol=1e-6
    )


def test_newton_steps_of_a_logistic_regression_begin_at_zero() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 5)).astype("float32")
    signs = np.sign(x.sum(1)).astype("float32")

    def loss(w: Any) -> Any:
        return snp.logaddexp(0, -signs * (x @ w)).mean()

    np.testing.assert_allclose(hessian(loss)(snp.zeros(5)), x.T @ x / 64 / 4, rtol=1e-4, atol=1e-6)
    same = hessian(lambda w: nn.softplus(-signs * (x @ w)).mean())(snp.zeros(5))
    np.testing.assert_allclose(hessian(loss)(snp.zeros(5)), same, rtol=1e-4, atol=1e-6)


def test_powers_depend_on_both_sides_where_the_exponent_is_0() -> None:
    def power(x: Any, y: Any) -> Any:
        return x**y

    np.testing.assert_allclose(grad(grad(power), 1)(2.0, 0.0), 0.5)
    np.testing.assert_allclose(grad(grad(grad(lambda x: x**x)))(1.0), 3.0, rtol=1e-6)
    assert [float(each) for each in grad(power, (0, 1))(0.0, 0.0)] == [0, 0]


@pytest.mark.parametrize(
    ("function", "slope"),
    [(special.xlogy, 0.6931472), (special.xlog1py, 1.0986123)],
    ids=["xlogy", "xlog1py"],
)
def test_a_logarithm_is_the_slope_of_what_it_is_multiplied_with(
    function: Callable[..., Any], slope: float
) -> None:
    np.testing.assert_allclose(grad(function)(0.0, 2.0), slope, rtol=1e-6)
    assert float(grad(function)(0.0, -1.0)) == 0
    assert float(function(0.0, np.inf)) == 0


@pytest.mark.parametrize(("at", "bend"), [(1.0, -2.4041138), (2.0, -0.4041138), (0.3, -75.272514)])
def test_digamma_bends_at_whole_numbers(at: float, bend: float) -> None:
    np.testing.assert_allclose(grad(grad(special.digamma))(at), bend, rtol=1e-5)


def test_spectra_of_silence_have_finite_derivatives() -> None:
    def power(x: Any) -> Any:
        return (snp.abs(snp.fft.rfft(x)) ** 2)[1]

    assert np.isfinite(hessian(power)(snp.zeros(3))).all()
    np.testing.assert_allclose(grad(power)(snp.zeros(3)), 0)
