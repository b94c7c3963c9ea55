"""Patches, local convolutions, high halves of products and derivatives of the gamma function."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import lax
from shardir.errors import OperationTypeError
from tests.optional_dependencies import require

RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize("dims", [None, ("NHWC", "HWIO", "NHWC"), ("NWHC", "OIWH", "CNWH")])
def test_patches_are_those_of_jax(dims: Any) -> None:
    require("jax")
    from jax import lax as jax_lax

    x = RANDOM.standard_normal((2, 5, 6, 3)).astype("f")
    options: Any = {"rhs_dilation": (1, 2), "dimension_numbers": dims}
    args = x, (2, 2), (1, 2), ((1, 0), (0, 1))
    got = lax.conv_general_dilated_patches(*args, **options)
    expected = jax_lax.conv_general_dilated_patches(*args, **options)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("dims", [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NHWC")])
def test_local_convolutions_are_those_of_jax(dims: Any) -> None:
    require("jax")
    from jax import lax as jax_lax

    spatial, channels = (5, 6), 3
    order = {"N": 2, "C": channels, "H": spatial[0], "W": spatial[1]}
    x = RANDOM.standard_normal([order[c] for c in dims[0]]).astype("f")
    inner = {"H": 4, "W": 5, "I": channels * 4, "O": 2}
    filters = RANDOM.standard_normal([inner[c] for c in dims[1]]).astype("f")
    args = x, filters, (1, 1), "VALID", (2, 2)
    got = lax.conv_general_dilated_local(*args, dimension_numbers=dims)
    expected = jax_lax.conv_general_dilated_local(*args, dimension_numbers=dims)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint32", "int64", "uint64"])
def test_high_halves_of_products_are_exact(dtype: str) -> None:
    about = np.iinfo(dtype)
    numbers = RANDOM.integers(about.min, about.max, 40, dtype=dtype, endpoint=True)
    x = np.concatenate([numbers, np.array([about.min, about.max, about.min, 1], dtype)])
    y = np.concatenate([numbers[::-1], np.array([about.min, about.max, about.max, 0], dtype)])
    bits = about.bits
    expected = [int(a) * int(b) >> bits for a, b in zip(x, y, strict=True)]
    with sd.enable_x64():
        got = sd.jit(lax.mulhi)(x, y)
    assert got.dtype == dtype
    assert np.asarray(got).tolist() == expected


def test_high_halves_are_of_integers() -> None:
    with pytest.raises(OperationTypeError, match=r"lax\.mulhi takes integers, got float32"):
        lax.mulhi(1.0, 2.0)


def test_derivatives_of_the_incomplete_gamma_function_are_those_of_jax() -> None:
    require("jax")
    from jax import lax as jax_lax

    a, x = np.array([0.5, 2, 7], "f"), np.array([0.3, 2.5, 6], "f")
    for name in ("igamma_grad_a", "random_gamma_grad"):
        got, expected = getattr(lax, name)(a, x), getattr(jax_lax, name)(a, x)
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_stage_returns_an_array() -> None:
    assert isinstance(lax.stage(2.0), sd.Array)
