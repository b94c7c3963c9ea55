"""Special functions against values of 30 digits (mpmath) and XLA's f32 (tests/data)."""

import json
from pathlib import Path

import numpy as np
import pytest

from shardir import ops
from shardir.interpret.interpreter import evaluate
from shardir.ir.builder import Builder
from shardir.ir.module import Function
from shardir.ir.operation import OPS
from shardir.ops.elementwise import special
from shardir.ops.elementwise.term import Term
from tests.op_evaluation import Array, apply_op
from tests.op_sample import t

DATA = json.loads((Path(__file__).parents[2] / "data" / "special.json").read_text("utf-8"))


def _points(name: str) -> tuple[Array, Array]:
    points = np.array(DATA[name])
    return points[:, 0], points[:, 1]


@pytest.mark.parametrize(
    ("name", "bound"),
    [("erf", 1e-15), ("erfc", 2e-15), ("erf_inv", 2e-15), ("lgamma", 2e-15), ("digamma", 2e-15)],
)
def test_f64_is_within_its_bound(name: str, bound: float) -> None:
    x, expected = _points(name)
    np.testing.assert_allclose(apply_op(OPS[name], x), expected, rtol=bound)


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_f64_of_negative_arguments_is_within_its_bound(name: str) -> None:
    x, expected = _points(f"{name}_left")
    error = np.abs(apply_op(OPS[name], x) - expected) / np.maximum(1, np.abs(expected))
    assert error.max() < 2e-15


@pytest.mark.parametrize("name", ["erf", "erfc", "erf_inv", "lgamma", "digamma"])
def test_f32_is_rounded_once(name: str) -> None:
    x = _points(name)[0].astype(np.float32)
    exact = apply_op(OPS[name], x.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(apply_op(OPS[name], x), exact)


def test_f32_erf_inv_agrees_with_xla_to_three_ulp() -> None:
    x, expected = _points("erf_inv_f32_xla")
    made = apply_op(ops.erf_inv, x.astype(np.float32), as_xla=True)
    np.testing.assert_array_max_ulp(made, expected.astype(np.float32), 3)


def test_trigamma_is_a_composition() -> None:
    x, expected = _points("trigamma")
    b = Builder()
    param = b.param(t("f64", len(x)))
    result = special.trigamma(Term(b, param)).value
    (made,) = evaluate(Function("f", b.block([param], [result]), (None,)), [x])
    np.testing.assert_allclose(made, expected, rtol=1e-12)


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("erf", [INF, -INF, NAN, 0.0, -0.0], [1, -1, NAN, 0.0, -0.0]),
        ("erfc", [INF, -INF, NAN, 0.0], [0, 2, NAN, 1]),
        ("erf_inv", [1, -1, 0.0, -0.0, 1.5, NAN], [INF, -INF, 0.0, -0.0, NAN, NAN]),
        ("lgamma", [INF, -INF, 0.0, -1, 1, 2, NAN], [INF, INF, INF, INF, 0, 0, NAN]),
        ("digamma", [INF, -INF, 0.0, -1, NAN], [INF, NAN, NAN, NAN, NAN]),
    ],
)
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_special_values(name: str, x: list[float], expected: list[float], dtype: str) -> None:
    made = apply_op(OPS[name], np.array(x, dtype))
    np.testing.assert_array_equal(made, np.array(expected, dtype))
    np.testing.assert_array_equal(np.signbit(made), np.signbit(np.array(expected, dtype)))
