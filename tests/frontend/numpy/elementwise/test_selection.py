"""Selections and comparisons against NumPy."""

from typing import Any

import numpy as np
import pytest

from shardir import grad
from shardir.errors import OperationTypeError
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy import api as snp
from shardir.ir.types import dtype_name
from tests.namespace import check, close, ops, run

GENERATOR = np.random.default_rng(13)
X = GENERATOR.normal(size=(3, 4)).astype("f")
Y = GENERATOR.normal(size=(3, 4)).astype("f")
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0, 1.00001, 2.0], "f")
WHOLE = np.array([[-7, 0, 3], [5, 2**31 - 1, -(2**31)]], "i4")
PLANE = (X + 1j * Y).astype("c8")


@pytest.mark.parametrize("condition", [X > 0, X, X[0] > 0, np.array(True), WHOLE[:, :1] > 9],
                         ids=["whole", "numbers", "row", "scalar", "column"])  # fmt: skip
def test_where(condition: Any) -> None:
    x, y = (X[:2], Y[:2]) if condition.shape == (2, 1) else (X, Y)
    check("where", condition, x, y)
    check("where", condition, x, 0.0)
    check("where", condition, 1, y)
    check("where", condition, x[0], y[:, :1].copy())


def test_where_of_python_scalars() -> None:
    assert run(snp.where, X > 0, 1, 2).dtype == np.int32
    assert dtype_name(run(lambda c: snp.where(c, 1, 2.5), X > 0).dtype) == "f32"
    assert run(snp.where, True, X, 0).tolist() == X.tolist()


def test_where_keeps_a_scalar_condition_scalar() -> None:
    assert ops(snp.where, np.array(True), X, Y) == ["select"]
    assert ops(lambda c, x: snp.where(c, x, 0), X > 0, X) == ["constant", "select"]


def test_where_takes_one_argument_or_three() -> None:
    with pytest.raises(ArgumentError, match=r"^where takes a condition, or a condition and two"):
        run(snp.where, X > 0, X)


BOUNDS: list[tuple[Any, Any]] = [
    (-0.5, 0.5),
    (None, 0.2),
    (-0.1, None),
    (0.5, -0.5),
    (X[0] - 1, 0.3),
    (Y - 1, Y + 0.1),
    (Y[:, :1] - 1, X[0]),
]


@pytest.mark.parametrize(("low", "high"), BOUNDS, ids=str)
def test_clip(low: Any, high: Any) -> None:
    check("clip", X, low, high)


def test_clip_promotes_its_bounds() -> None:
    check("clip", WHOLE, -3, 4)
    check("clip", ODD, -1, 1.5)
    assert run(snp.clip, WHOLE, 0.5, 2.0).dtype == np.float32
    assert run(lambda x: x.clip(max=2), WHOLE).tolist() == np.minimum(WHOLE, 2).tolist()
    check("clip", X, reference=lambda x: x)
    assert ops(snp.clip, X, 0, 1) == ["constant", "maximum", "constant", "minimum"]
    with pytest.raises(OperationTypeError, match="clip takes no complex numbers"):
        run(snp.clip, PLANE, 0, 1)


def test_gradients_at_the_bounds_and_at_zero_are_those_of_jax() -> None:
    x = np.array([-1, 0, 0.5, 1], np.float32)
    assert grad(lambda x: snp.clip(x, 0, 1).sum())(x).tolist() == [0, 0.5, 1, 0.5]
    assert grad(lambda x: snp.abs(x).sum())(x).tolist() == [-1, 1, 1, 1]
    assert grad(lambda x: snp.logaddexp(x, 0 * x).sum())(x)[1] == 0.5
    assert grad(lambda x: snp.logaddexp2(x, 0 * x).sum())(x)[1] == 0.5


def test_select_takes_the_first_true_condition() -> None:
    check("select", [X > 1, X > 0], [X, Y], 5.0)
    check("select", [X[0] > 0, Y > 0, X < 9], [Y, X, X[:, :1]])
    check("select", [X > 0], [WHOLE[0, 1]])
    with pytest.raises(ArgumentError, match="got 1 conditions and 2 choices"):
        run(snp.select, [X > 0], [X, Y])


def test_piecewise() -> None:
    check("piecewise", X, [X < 0, X > 1], [lambda x: -x, lambda x: x * x])
    check("piecewise", X, [X < 0, X > 1], [-1, lambda x: x, 7])
    check("piecewise", X, [X < 0.5, X > 0], [1, 2])
    check("piecewise", X, [X > 0], [lambda x, a, b: x * a + b], 3, b=2)
    with pytest.raises(ArgumentError, match="function for each of 1 conditions, and maybe one mo"):
        run(snp.piecewise, X, [X > 0], [1, 2, 3])


@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize("rtol", [1e-5, 1e-3, 0.0])
def test_isclose_and_allclose(rtol: float, equal_nan: bool) -> None:
    check("isclose", ODD[:, None].copy(), ODD, rtol=None, equal_nan=equal_nan)
    mine = run(snp.isclose, ODD[:, None].copy(), ODD, rtol, 1e-8, equal_nan)
    close(mine, np.isclose(ODD[:, None], ODD, rtol, 1e-8, equal_nan))
    for other in (X + np.float32(1e-7), X + np.float32(0.1)):
        check("allclose", X, other, equal_nan=equal_nan)
    check("allclose", ODD, ODD, equal_nan=equal_nan)
    check("isclose", WHOLE, WHOLE + 1)
    check("isclose", PLANE, PLANE * (1 + 1e-7))


@pytest.mark.parametrize("equal_nan", [False, True])
def test_equality_of_arrays(equal_nan: bool) -> None:
    for x, y in ((X, X), (X, Y), (X, X[0]), (ODD, ODD), (WHOLE[:1], WHOLE[:1].astype("f"))):
        assert run(snp.array_equal, x, y, equal_nan) == np.array_equal(x, y, equal_nan)


def test_equivalence_of_arrays() -> None:
    for x, y in ((X, X), (X[:1], X[0]), (X, X[0]), (X, X[:, :2]), (np.ones((2, 1)), np.ones(3))):
        assert run(snp.array_equiv, x, y) == np.array_equiv(x, y)
