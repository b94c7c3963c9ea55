"""Samples of distributions agree with `jax.random` 0.10.2 and have the expected moments."""

from typing import Any

import numpy as np
import pytest

from shardir import grad, random, vmap
from shardir.errors import ShardirError
from shardir.frontend.numpy import api as snp
from tests.error_assertions import first_line

pytestmark = pytest.mark.sample(4)

KEY = 7
DRAWN: list[tuple[str, tuple[Any, ...], list[Any]]] = [
    ("gamma", ([0.1, 1.5, 30.0],), [9.3018366e-20, 0.52189547, 26.131989]),
    ("loggamma", ([0.1, 1.5, 30.0],), [-43.821491, -0.65028799, 3.26316]),
    ("beta", ([0.5, 3.0], [2.0, 1.0]), [0.019392489, 0.75771552]),
    ("dirichlet", ([0.5, 2.0, 3.0],), [9.0881113e-05, 0.33588874, 0.66402036]),
    ("chisquare", ([1.0, 5.0],), [0.00046735952, 2.4545977]),
    ("f", ([2.0, 5.0], [3.0, 8.0]), [0.35023135, 1.1066284]),
    ("t", ([2.0, 9.0], (2,)), [3.2520921, 0.1418858]),
    ("generalized_normal", (1.5, (3,)), [-0.11314882, -0.78606486, 0.058673814]),
    ("ball", (3, 2, (1,)), [-0.36388415, 0.3945854, 0.1197582]),
    ("poisson", ([0.0, 3.0, 9.5, 40.0, 10000.0],), [0, 1, 9, 39, 9909]),
    ("geometric", ([0.1, 0.5, 0.9],), [4, 1, 1]),
    ("binomial", ([10.0, 50.0, 1000.0, 1000.0], [0.3, 0.9, 0.01, 0.7]), [5.0, 42.0, 15.0, 672.0]),
    ("maxwell", ((3,),), [2.0702868, 0.71447033, 1.4999796]),
    ("double_sided_maxwell", (1.0, 2.0, (3,)), [-1.477191, -4.1701055, 3.7603445]),
    ("triangular", (-1.0, 0.5, 2.0, (3,)), [0.78896928, 1.6620295, 0.16738856]),
    ("wald", ([0.5, 3.0],), [0.23181117, 3.8317204]),
    ("multivariate_normal", ([1.0, 2.0], [[2.0, 0.3], [0.3, 1.0]]), [1.6381428, 4.004714]),
    ("normal", ((2,), "complex64"), [(0.7877503 + 0.32112089j), (0.10014845 + 0.66408837j)]),
]
"""Function, arguments (lists are arrays of f32), numbers."""


def arguments(args: tuple[Any, ...]) -> list[Any]:
    return [np.array(x, np.float32) if isinstance(x, list) else x for x in args]


@pytest.mark.parametrize(("name", "args", "expected"), DRAWN)
def test_numbers_agree_with_jax(name: str, args: tuple[Any, ...], expected: list[Any]) -> None:
    got = np.ravel(getattr(random, name)(random.key(KEY), *arguments(args)))
    exact = name in ("poisson", "geometric", "binomial")
    np.testing.assert_allclose(got, expected, rtol=0 if exact else 5e-5 if name == "wald" else 2e-6)


@pytest.mark.parametrize(
    ("name", "args", "mean", "variance"),
    [
        ("gamma", (2.5,), 2.5, 2.5),
        ("beta", (2.0, 3.0), 0.4, 0.04),
        ("poisson", (4.0,), 4, 4),
        ("poisson", (20.0,), 20, 20),
        ("binomial", (100, 0.3), 30, 21),
        ("geometric", (0.25,), 4, 12),
        ("wald", (2.0,), 2, 8),
        ("triangular", (0.0, 1.0, 2.0), 1, 1 / 6),
    ],
)
def test_moments(name: str, args: tuple[Any, ...], mean: float, variance: float) -> None:
    drawn = np.asarray(getattr(random, name)(random.key(1), *args, shape=(4000,)), np.float64)
    error = (variance / 4000) ** 0.5
    assert abs(drawn.mean() - mean) < 5 * error
    assert abs(drawn.var() / variance - 1) < 0.3


def test_points_of_ball_are_inside_of_the_ball() -> None:
    points = random.ball(random.key(0), 3, shape=(50,))
    assert points.shape == (50, 3)
    assert float(snp.max(snp.sum(points**2, axis=-1))) <= 1


@pytest.mark.long
def test_gamma_is_differentiable_by_its_shape() -> None:
    key, a = random.key(3), 2.0
    slope = float(grad(lambda a: random.gamma(key, a))(a))
    log_slope = float(grad(lambda a: random.loggamma(key, a))(a))
    np.testing.assert_allclose(log_slope, slope / float(random.gamma(key, a)), rtol=1e-4)
    assert 0 < slope < 2


def test_vmap_over_keys() -> None:
    keys = random.split(random.key(0), 3)
    many = vmap(lambda key: random.gamma(key, 0.5))(keys)
    alone = [float(random.gamma(key, 0.5)) for key in keys]
    np.testing.assert_allclose(many, alone, rtol=1e-6)


def test_invalid_counts_give_nan() -> None:
    assert np.isnan(float(random.binomial(random.key(0), -1.0, 0.5)))
    assert np.isnan(float(random.binomial(random.key(0), 5.0, -0.5)))


def test_invalid_arguments_are_errors() -> None:
    with pytest.raises(ShardirError) as error:
        random.poisson(random.key(0), 1.0, dtype=np.float32)
    assert first_line(error) == "random counts cannot be of type f32"
    with pytest.raises(ShardirError) as error:
        random.multivariate_normal(random.key(0), snp.ones(2), snp.ones((3, 3)))
    assert first_line(error) == (
        "multivariate_normal got a mean of shape (2,) and a covariance of shape (3, 3); they are "
        "(..., n) and (..., n, n)"
    )
    with pytest.raises(ShardirError) as error:
        random.multivariate_normal(random.key(0), snp.ones(1), snp.ones((1, 1)), method="qr")
    assert first_line(error) == (
        "method='qr' of multivariate_normal is none of cholesky, eigh, svd"
    )
