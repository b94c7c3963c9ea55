"""`accuracy=` of elementary functions."""

import re
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import lax
from shardir.frontend.errors import ArgumentError, NumberRangeError
from shardir.frontend.lax.result_accuracy import ERROR_BOUNDS_ULP
from tests.backends.cpu.kernels.math.accuracy import F32_BOUNDS_ULP, F64_BOUNDS_ULP

X = np.array([0.5, 1.25], "float32")


def refusal(run: Any) -> str:
    with pytest.raises((ArgumentError, NumberRangeError)) as caught:
        run()
    return str(caught.value).partition("\n")[0]


def test_the_bounds_are_those_that_the_kernels_are_tested_with() -> None:
    for name, bounds in ERROR_BOUNDS_ULP.items():
        assert bounds == (F32_BOUNDS_ULP[name], F64_BOUNDS_ULP[name])


@pytest.mark.parametrize("name", ERROR_BOUNDS_ULP)
def test_modes_and_sufficient_tolerances_change_nothing(name: str) -> None:
    function = getattr(lax, name)
    expected = np.asarray(function(X))
    for accuracy in (
        None, lax.AccuracyMode.HIGHEST, lax.AccuracyMode.DEFAULT,
        lax.Tolerance(ulps=4), lax.Tolerance(rtol=1e-6),
    ):  # fmt: skip
        np.testing.assert_array_equal(np.asarray(function(X, accuracy=accuracy)), expected)
        traced = sd.jit(lambda x, accuracy=accuracy: function(x, accuracy))(X)
        np.testing.assert_array_equal(np.asarray(traced), expected)


@pytest.mark.parametrize(
    ("name", "dtype", "tolerance", "bound", "type"),
    [
        ("tan", "float32", {"ulps": 3}, "3.05", "f32[2]"),
        ("tanh", "float32", {"ulps": 1}, "2.0", "f32[2]"),
        ("tanh", "float32", {"rtol": 2.3e-7}, "2.0", "f32[2]"),
        ("exp", "float32", {"atol": 0.1}, "1.0", "f32[2]"),
        ("sin", "float32", {"atol": 1.8e-7}, "1.6", "f32[2]"),
        ("exp", "float16", {"rtol": 4e-4}, "0.51", "f16[2]"),
    ],
)
def test_a_smaller_tolerance_is_refused(
    name: str, dtype: str, tolerance: dict[str, Any], bound: str, type: str
) -> None:
    accuracy = lax.Tolerance(**tolerance)
    assert refusal(lambda: getattr(lax, name)(X.astype(dtype), accuracy=accuracy)) == (
        f"{name} of {type} has errors of up to {bound} units in the last place (ulp), and "
        f"{accuracy} permits less; permit more, or convert the operand to a wider type first "
        "(.astype)"
    )


def test_tolerances_depend_on_the_element_type() -> None:
    with sd.config(enable_x64=True):
        lax.tan(X.astype("float64"), accuracy=lax.Tolerance(ulps=2))
    lax.exp(X.astype("float16"), accuracy=lax.Tolerance(rtol=6e-4))
    lax.sin(X, accuracy=lax.Tolerance(atol=2e-7))


def test_invalid_accuracies() -> None:
    assert refusal(lambda: lax.exp(X, accuracy="high")) == (
        "accuracy of exp is 'high' of type str; pass lax.AccuracyMode.HIGHEST or DEFAULT, or "
        "lax.Tolerance(ulps=...)"
    )
    accuracy = lax.Tolerance(ulps=9)
    assert refusal(lambda: lax.exp(X.astype("complex64"), accuracy=accuracy)) == (
        "exp of complex numbers has no error bound to compare with Tolerance(atol=0.0, rtol=0.0, "
        "ulps=9); leave accuracy out"
    )
    assert refusal(lambda: lax.Tolerance()) == (
        "Tolerance(atol=0.0, rtol=0.0, ulps=0) permits no error; set one of atol, rtol and ulps"
    )
    for wrong in ({"atol": -1.0}, {"rtol": float("nan")}, {"ulps": "2"}):
        assert refusal(lambda wrong=wrong: lax.Tolerance(**wrong)).endswith(
            "must be numbers from 0 on"
        )
    with pytest.raises(NumberRangeError) as caught:
        lax.Tolerance(-1)
    # Not the line of the method that `dataclass` generates.
    assert re.search(r"--> .*test_result_accuracy\.py:\d+:9$", str(caught.value), re.M)


def test_from_jax_applies_the_tolerance() -> None:
    jax = pytest.importorskip("jax")
    from_jax = pytest.importorskip("shardir.interop.jax").from_jax

    def tangent(ulps: int) -> Any:
        return from_jax(lambda x: jax.lax.tan(x, accuracy=jax.lax.Tolerance(ulps=ulps)))

    np.testing.assert_array_equal(np.asarray(tangent(4)(X)), np.asarray(lax.tan(X)))
    assert "tan of f32[2] has errors of up to 3.05" in refusal(lambda: tangent(1)(X))
    highest = from_jax(lambda x: jax.lax.tan(x, accuracy=jax.lax.AccuracyMode.HIGHEST))
    np.testing.assert_array_equal(np.asarray(highest(X)), np.asarray(lax.tan(X)))
