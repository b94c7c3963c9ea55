"""Initializers draw the numbers of JAX, with the stated variance and orthogonality."""

import pickle
from typing import Any

import numpy as np
import pytest

import shardir
from shardir import random
from shardir.nn import initializers

pytestmark = pytest.mark.sample(4)

SCALED = [
    "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "kaiming_normal",
    "kaiming_uniform", "lecun_normal", "lecun_uniform", "xavier_normal", "xavier_uniform",
]  # fmt: skip
MADE: list[tuple[str, tuple[Any, ...]]] = [
    *((name, ()) for name in SCALED),
    ("normal", (0.5,)),
    ("uniform", (0.5,)),
    ("truncated_normal", (0.5,)),
    ("constant", (3.0,)),
    ("orthogonal", ()),
    ("variance_scaling", (2.0, "fan_out", "normal")),
    ("variance_scaling", (2.0, "fan_geo_avg", "uniform")),
]


@pytest.mark.parametrize("shape", [(3, 4), (5, 2, 8)])
@pytest.mark.parametrize(("name", "args"), MADE, ids=lambda x: x if isinstance(x, str) else None)
def test_numbers_agree_with_jax(name: str, args: tuple[Any, ...], shape: Any) -> None:
    jax = pytest.importorskip("jax")
    got = getattr(initializers, name)(*args)(random.key(3), shape)
    made = jax.jit(getattr(jax.nn.initializers, name)(*args), static_argnums=1)
    want = made(jax.random.key(3), shape)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-6, atol=2e-6)
    assert got.dtype == want.dtype


@pytest.mark.parametrize("name", SCALED)
def test_the_variance_follows_the_fan(name: str) -> None:
    drawn = np.asarray(getattr(initializers, name)()(random.key(0), (200, 300)))
    scale = 2 if name.startswith(("he", "kaiming")) else 1
    fan = 250 if name.startswith(("glorot", "xavier")) else 200
    assert drawn.var() == pytest.approx(scale / fan, rel=0.05)


def test_zeros_and_ones_ignore_the_key() -> None:
    assert initializers.zeros(None, (2,)).tolist() == [0, 0]
    assert initializers.ones(None, (2,), "int32").dtype == np.int32


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (2, 3, 4)])
@pytest.mark.parametrize("column_axis", [0, -1])
def test_orthogonal_matrices_are_orthogonal(shape: tuple[int, ...], column_axis: int) -> None:
    drawn = initializers.orthogonal(2.0, column_axis)(random.key(1), shape)
    matrix = np.moveaxis(np.asarray(drawn), column_axis, -1).reshape(-1, shape[column_axis])
    small = matrix.T if matrix.shape[0] < matrix.shape[1] else matrix
    np.testing.assert_allclose(small.T @ small, 4 * np.eye(small.shape[1]), atol=1e-5)


def test_delta_orthogonal_is_zero_except_in_the_center() -> None:
    drawn = np.asarray(initializers.delta_orthogonal()(random.key(1), (3, 5, 2, 4)))
    middle = drawn[1, 2]
    np.testing.assert_allclose(middle @ middle.T, np.eye(2), atol=1e-5)
    rest = drawn.copy()
    rest[1, 2] = 0
    assert not rest.any()


def test_initializers_are_found_by_name() -> None:
    assert initializers.he_normal.__name__ == "he_normal"
    assert pickle.loads(pickle.dumps(initializers.glorot_uniform)) is initializers.glorot_uniform


def test_initializers_work_inside_jit() -> None:
    init = initializers.he_normal()
    inside = shardir.jit(lambda key: init(key, (4, 4)))(random.key(0))
    np.testing.assert_allclose(np.asarray(inside), np.asarray(init(random.key(0), (4, 4))))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: initializers.variance_scaling(1.0, "fan", "normal"),
            "mode of variance_scaling is one of fan_in, fan_out, fan_avg, fan_geo_avg, got 'fan'",
        ),
        (
            lambda: initializers.variance_scaling(1.0, "fan_in", "cauchy"),
            "distribution of variance_scaling is one of normal, truncated_normal, uniform, got "
            "'cauchy'",
        ),
        (
            lambda: initializers.he_normal()(random.key(0), (3,)),
            "an initializer that scales with the layer needs a shape of two dimensions or more, "
            "got (3,); use normal or uniform for biases, or name in_axis",
        ),
        (
            lambda: initializers.he_normal(in_axis=5)(random.key(0), (4, 4)),
            "an initializer has the axis 5, which is out of range for the shape (4, 4)",
        ),
        (
            lambda: initializers.orthogonal()(random.key(0), (3,)),
            "orthogonal needs a shape of two dimensions or more, got (3,)",
        ),
        (
            lambda: initializers.delta_orthogonal()(random.key(0), (3, 4, 2)),
            "delta_orthogonal needs a shape (window..., inputs, outputs) of three to five "
            "dimensions with no fewer outputs than inputs, got (3, 4, 2)",
        ),
    ],
)
def test_invalid_arguments_are_errors(call: Any, message: str) -> None:
    with pytest.raises(shardir.ShardirError) as error:
        call()
    assert str(error.value).splitlines()[0] == message


@pytest.mark.parametrize("distribution", ["normal", "truncated_normal", "uniform"])
def test_complex_numbers_have_the_requested_variance(distribution: str) -> None:
    init = initializers.variance_scaling(2.0, "fan_in", distribution, dtype="complex64")
    drawn = np.asarray(init(random.key(3), (50, 400)))
    assert drawn.dtype == np.complex64
    assert abs(drawn.mean()) < 5e-3
    assert np.mean(np.abs(drawn) ** 2) == pytest.approx(2 / 50, rel=0.03)
    assert initializers.variance_scaling(1.0, "fan_in", "normal", in_axis=[], out_axis=[])(
        random.key(0), ()
    ).shape == ()  # fmt: skip
