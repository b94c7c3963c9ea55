"""Activations and their derivatives against jax.nn."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.frontend.errors import ShapeError
from shardir.frontend.nn import api as nn
from tests.namespace import close, ops, run
from tests.optional_dependencies import require

DATA: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "activations.json").read_text("utf-8")
)
X = np.array(DATA["x"], "f")
NAMES = [name for name in DATA if name not in ("source", "x")]


def activation(name: str) -> Any:
    if name == "gelu exact":
        return partial(nn.gelu, approximate=False)
    return getattr(nn, name)


@pytest.mark.parametrize("name", NAMES)
def test_values_agree_with_jax(name: str) -> None:
    close(run(activation(name), X), np.array(DATA[name][0]))


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_agree_with_jax(name: str) -> None:
    slopes = sd.grad(lambda x: activation(name)(x).sum())(X)
    close(np.asarray(slopes), np.array(DATA[name][1]), 1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_nan_propagates(name: str) -> None:
    assert np.isnan(run(activation(name), np.array([np.nan], "f"))).all()


@pytest.mark.parametrize("name", NAMES)
def test_dtypes_are_kept(name: str) -> None:
    assert run(activation(name), X.astype(np.float16)).dtype == np.float16
    whole = run(activation(name), np.array([-2, 0, 3], "i4"))
    assert whole.dtype == (np.int32 if name in ("relu", "hard_tanh") else np.float32)


def test_aliases_and_negative_slopes() -> None:
    assert nn.swish is nn.silu
    assert nn.hard_swish is nn.hard_silu
    assert run(nn.identity, X).tolist() == X.tolist()
    assert run(nn.leaky_relu, X, 0.5)[0] == -15
    close(run(nn.elu, X, 2.0), np.where(X > 0, X, 2 * np.expm1(np.minimum(X, 0))))


def test_emitted_operations() -> None:
    assert ops(nn.relu, X) == ["constant", "le", "select"]
    assert ops(nn.sigmoid, X) == ["logistic"]
    assert ops(nn.silu, X) == ["logistic", "mul"]


def test_glu() -> None:
    x = np.arange(24, dtype="f").reshape(2, 6, 2) / 10
    expected = x[:, :3] / (1 + np.exp(-x[:, 3:]))
    close(run(nn.glu, x, axis=1), expected)
    with pytest.raises(ShapeError, match="glu halves axis 0, whose size 3 is odd"):
        run(nn.glu, x[0, :3], axis=0)


def test_sparse_plus_and_its_derivative() -> None:
    x = np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 89.0], "f")
    expected = np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4))
    close(run(nn.sparse_plus, x), expected)
    slopes = sd.vmap(sd.grad(nn.sparse_plus))(x)
    close(np.asarray(slopes), run(nn.sparse_sigmoid, x))


def test_log1mexp_is_accurate_with_finite_derivatives() -> None:
    x = np.array([1e-8, 1e-3, 0.5, 0.7, 2.0, 30.0], "f")
    close(run(nn.log1mexp, x), np.log(-np.expm1(-x.astype("f8"))), 1e-6)
    slopes = np.asarray(sd.vmap(sd.grad(nn.log1mexp))(x))
    close(slopes, 1 / np.expm1(x.astype("f8")), 1e-5)


def test_squareplus_promotes_both_operands() -> None:
    found = nn.squareplus(np.array([True]), np.float16(4))
    assert found.dtype == np.float16
    assert float(nn.squareplus(np.array([100], np.int8))[0]) == pytest.approx(100.01)


@pytest.mark.parametrize("name", ["softplus", "mish"])
def test_activations_of_complex_numbers_are_those_of_jax(name: str) -> None:
    require("jax")
    import jax

    x = np.array([0.5 + 0.25j, -1.0 - 2.0j, 3.0j], np.complex64)
    np.testing.assert_allclose(
        np.asarray(getattr(nn, name)(x)), np.asarray(getattr(jax.nn, name)(x)), rtol=1e-5
    )


@pytest.mark.parametrize("name", ["relu", "relu6", "hard_sigmoid", "hard_silu"])
@pytest.mark.parametrize("cotangent", [1.0, np.nan])
def test_derivatives_at_bounds_agree_with_jax(name: str, cotangent: float) -> None:
    require("jax")
    import jax

    x = np.array([-3, -1, 0, 1, 3, 6, 7, np.inf, -np.inf], np.float32)
    seed = np.full(x.shape, cotangent, np.float32)
    packages: list[Any] = [sd, jax]
    by_vjp, by_jvp = [], []
    for package, namespace in zip(packages, (nn, jax.nn), strict=True):
        function = getattr(namespace, name)
        by_vjp.append(package.vjp(function, x)[1](seed)[0])
        by_jvp.append(package.jvp(function, (x,), (seed,))[1])
    np.testing.assert_array_equal(*by_vjp)
    np.testing.assert_array_equal(*by_jvp)


POINTS = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 3, -3, 6, -6, 0.5, 100, -100, 1e30, -1e30], "f"
)
"""Bounds, zeros, infinities, NaN, and numbers whose exponentials overflow."""
DIFFERENCES: dict[tuple[str, int], tuple[float, ...]] = {
    ("relu", 1): (np.nan,),
    ("relu6", 1): (np.nan,),
    ("hard_sigmoid", 1): (np.nan,),
    ("hard_silu", 2): (np.nan,),
    ("celu", 2): (0.0, -0.0),
    ("log1mexp", 1): (-np.inf, -100, -1e30),
    ("log1mexp", 2): (-0.0, np.inf, -np.inf, 100, -100, 1e30, -1e30),
}
"""The points at which the derivative of an order is not that of JAX; `docs/numerics.md` states
these differences."""
ACTIVATIONS = (*NAMES, "log1mexp", "sparse_plus", "sparse_sigmoid", "tanh")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_derivatives_at_special_points_agree_with_jax(name: str) -> None:
    require("jax")
    import jax

    exact = partial(jax.nn.gelu, approximate=False)
    theirs = exact if name == "gelu exact" else getattr(jax.nn, name)
    for order in (0, 1, 2):
        found = derivatives_at_points(sd, activation(name), order)
        expected = derivatives_at_points(jax, theirs, order)
        differs = ~np.isclose(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True).all(0)
        known = np.array(DIFFERENCES.get((name, order), ()), "f")
        assert POINTS[differs].tobytes() == known.tobytes(), (order, POINTS[differs])


def derivatives_at_points(package: Any, function: Any, order: int) -> list[Any]:
    """Return the derivatives of an order at the points in reverse and in forward mode, the second
    ones over reverse mode."""
    if order == 0:
        return [np.asarray(function(POINTS))] * 2
    if order == 2:
        function = package.grad(function)
    forward = package.jvp(package.vmap(function), (POINTS,), (np.ones_like(POINTS),))[1]
    return [np.asarray(package.vmap(package.grad(function))(POINTS)), np.asarray(forward)]


@pytest.mark.parametrize(("name", "slope"), [("relu", 1), ("relu6", 1), ("hard_sigmoid", 1 / 6)])
def test_derivatives_at_nan_are_those_of_positive_numbers(name: str, slope: float) -> None:
    """The mask of the derivative is that of the value, so that programs save one mask."""
    found = sd.grad(getattr(nn, name))(np.float32(np.nan))
    np.testing.assert_allclose(found, slope, rtol=1e-6)
