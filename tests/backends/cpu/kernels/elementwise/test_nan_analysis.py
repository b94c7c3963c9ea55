"""NaN analysis: loop steps that cannot be NaN, and extrema of data with NaN."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir.backends.cpu.kernels.elementwise.loop_body import (
    APPLY,
    ARRAY,
    CONSTANT,
    IOTA,
    REDUCE,
    LoopBody,
    LoopStep,
)
from shardir.backends.cpu.kernels.elementwise.nan_analysis import is_never_nan


def _apply_step(op: str, *operands: int, dtype: str = "f32") -> LoopStep:
    return LoopStep(APPLY, dtype, op, operands=operands)


X = LoopStep(ARRAY, "f32", number=0)
INF = LoopStep(CONSTANT, "f32", attrs=(("value", float("inf")),))
NAN = LoopStep(CONSTANT, "f32", attrs=(("value", float("nan")),))
NE, EQ = (_apply_step(op, 0, 0, dtype="bool") for op in ("ne", "eq"))
NOT = _apply_step("not", 2, dtype="bool")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((X,), False),
        ((INF,), True),
        ((NAN,), False),
        ((LoopStep(IOTA, "f32", number=0),), True),
        ((LoopStep(ARRAY, "i32", number=0), _apply_step("convert", 0)), True),
        ((LoopStep(ARRAY, "c64", number=0), _apply_step("abs", 0)), False),
        ((X, _apply_step("neg", 0)), False),
        ((X, INF, EQ, _apply_step("select", 2, 0, 1)), True),
        ((X, INF, EQ, _apply_step("select", 2, 1, 0)), False),
        ((X, INF, NE, _apply_step("select", 2, 1, 0)), True),
        ((X, INF, NE, NOT, _apply_step("select", 3, 0, 1)), True),
        ((X, NAN, NE, NOT, _apply_step("select", 3, 0, 1)), False),
        ((X, INF, _apply_step("is_finite", 0, dtype="bool"), _apply_step("select", 2, 0, 1)), True),
        (
            (X, INF, _apply_step("is_finite", 0, dtype="bool"), _apply_step("select", 2, 1, 0)),
            False,
        ),
        (
            (X, INF, EQ, LoopStep(ARRAY, "bool", number=1), _apply_step("and", 2, 3, dtype="bool"),
             _apply_step("select", 4, 0, 1)),
            True,
        ),
        (
            (X, INF, EQ, LoopStep(ARRAY, "bool", number=1), _apply_step("or", 2, 3, dtype="bool"),
             _apply_step("select", 4, 0, 1)),
            False,
        ),
        ((X, LoopStep(ARRAY, "f32", number=1), EQ, _apply_step("select", 2, 1, 0)), False),
        ((X, INF, EQ, _apply_step("select", 2, 0, 1), _apply_step("sub", 3, 3)), False),
        ((X, LoopStep(REDUCE, "f32", "max", operands=(0,))), False),
    ],
)  # fmt: skip
def test_steps_that_cannot_be_nan_are_found(steps: tuple[LoopStep, ...], expected: bool) -> None:
    assert is_never_nan(LoopBody(steps, (len(steps) - 1,)), len(steps) - 1) is expected


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("shape", [(3, 70), (40, 70), (300, 33)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("operation", "numpy_function"),
    [(jnp.min, np.min), (jnp.max, np.max), (jnp.nanmin, np.nanmin), (jnp.nanmax, np.nanmax)],
)
def test_extrema_of_data_with_nan_match_numpy(
    operation: Callable[..., Any], numpy_function: Callable[..., Any], axis: int,
    shape: tuple[int, int], dtype: str,
) -> None:  # fmt: skip
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    x[::3, 1::5] = np.nan
    x[:, 2] = np.inf
    x[1] = -np.inf
    expected = numpy_function(x, axis=axis)
    with sd.enable_x64():
        found = np.asarray(operation(jnp.asarray(x), axis=axis))
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("axis", [0, 1])
def test_extrema_of_only_nan_are_nan(axis: int) -> None:
    x = np.ones((40, 40), np.float32)
    x[:, 3], x[5, :] = np.nan, np.nan
    np.testing.assert_array_equal(
        np.asarray(jnp.nanmin(jnp.asarray(x), axis=axis)), np.nanmin(x, axis=axis)
    )


@pytest.mark.parametrize("rows", [2, 5, 40])
@pytest.mark.parametrize("name", ["min", "max", "nanmin", "nanmax"])
def test_extrema_order_negative_zero_below_positive_zero(name: str, rows: int) -> None:
    x = np.zeros((rows, 40), np.float32)
    x[0, ::2] = -0.0
    x[1, 1::2] = -0.0
    found = np.asarray(getattr(jnp, name)(jnp.asarray(x), axis=0))
    assert np.signbit(found).all() == name.endswith("min")
