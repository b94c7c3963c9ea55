"""`lax.DotAlgorithm` and its presets as `precision=`."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.frontend.errors import ArgumentError
from shardir.interop.jax import from_jax

PRESETS: Any = lax.DotAlgorithmPreset
SUPPORTED = (
    "DEFAULT", "F16_F16_F16", "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6",
    "F32_F32_F32", "F64_F64_F64",
)  # fmt: skip
PRODUCTS: list[Any] = [
    lambda a, b, p: lax.dot(a, b, precision=p),
    lambda a, b, p: lax.dot_general(a, b, (((0,), (0,)), ((), ())), precision=p),
    lambda a, b, p: snp.einsum("i,i->", a, b, precision=p),
    lambda a, b, p: snp.matmul(a, b, precision=p),
    lambda a, b, p: snp.dot(a, b, precision=p),
    lambda a, b, p: snp.inner(a, b, precision=p),
    lambda a, b, p: snp.tensordot(a, b, 1, precision=p),
    lambda a, b, p: snp.vdot(a, b, precision=p),
    lambda a, b, p: snp.vecdot(a, b, precision=p),
    lambda a, b, p: snp.matvec(a[None], b, precision=p)[0],
    lambda a, b, p: snp.vecmat(a, b[:, None], precision=p)[0],
    lambda a, b, p: snp.dot(a[0], b[0], precision=p),
    lambda a, b, p: lax.ragged_dot(a[None], b[None, :, None], np.array([1], "int32"), p)[0, 0],
]
"""Products of two vectors."""


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_product_computes_in_the_types_of_the_algorithm(product: Any) -> None:
    x, y = np.array([1 + 2**-12], "float32"), np.array([1], "float32")
    expected = {"F16_F16_F16": 1.0}
    for name in SUPPORTED:
        for precision in (name, PRESETS[name]):
            made = product(x, y, precision)
            assert made.dtype == np.float32
            assert float(made) == expected.get(name, 1 + 2**-12)


@pytest.mark.parametrize(
    ("precision", "dtype", "x", "expected"),
    [
        ("F16_F16_F16", "float32", 300.0, np.inf),
        ("BF16_BF16_F32", "float32", 1 + 2**-10, 1 + 2**-9 + 2**-20),
        ("BF16_BF16_F32", "float16", 1 + 2**-10, 1.0),
        ("BF16_BF16_F32", "float64", 1 + 2**-10, 1.0),
        ("F32_F32_F32", "float64", 1 + 2**-30, 1.0),
        ("F32_F32_F32", "int32", 3, 9),
    ],
)
def test_operands_are_converted_to_the_types_of_the_algorithm(
    precision: str, dtype: str, x: float, expected: float
) -> None:
    with sd.enable_x64(True):
        value = np.array([x], dtype)
        made = lax.dot(value, value, precision=precision)
        assert str(made.dtype) == dtype
        assert float(made) == expected


def test_sums_have_the_accumulation_type() -> None:
    x = np.array([2048, 1, 1], "float16")
    made = lax.dot(x, np.ones(3, "float16"), precision="F32_F32_F32")
    assert float(made) == 2050
    wide = lax.dot(
        np.array([300], "float16"), np.array([300], "float16"),
        precision="BF16_BF16_F32", preferred_element_type="float32",
    )  # fmt: skip
    assert (str(wide.dtype), float(wide)) == ("float32", 90000)


def test_operands_of_two_types_of_an_algorithm() -> None:
    x, y = np.array([1 + 2**-10], "float32"), np.array([2], ml_dtypes.bfloat16)
    assert float(lax.dot(x, y, precision="BF16_BF16_F32")) == 2 + 2**-9


@pytest.mark.parametrize("name", sorted(set(PRESETS.__members__) - set(SUPPORTED)))
def test_other_presets_are_refused_by_name(name: str) -> None:
    x = np.ones(2, "float32")
    with pytest.raises(ArgumentError) as caught:
        sd.jit(lambda a: lax.dot(a, a, precision=PRESETS[name]))(x)
    assert str(caught.value).partition("\n")[0] == (
        f"products do not support the algorithm {name}. As in JAX on CPUs, the supported presets "
        f"are {', '.join(SUPPORTED)}. Products have the full precision of their element type: "
        "leave precision out, and state the type of sums as preferred_element_type"
    )


def test_algorithms_that_are_no_presets_are_refused() -> None:
    x = np.ones(2, "float32")
    same = lax.DotAlgorithm(np.float32, np.float32, np.float32)
    with pytest.raises(ArgumentError, match=r"; use DotAlgorithmPreset\.F32_F32_F32\. As in JAX"):
        snp.matmul(x, x, precision=same)
    for other in (same._replace(num_primitive_operations=3), same._replace(
            accumulation_type=np.float64)):  # fmt: skip
        with pytest.raises(ArgumentError, match="products do not support the algorithm DotAlg"):
            snp.matmul(x, x, precision=other)


def test_complex_operands_are_refused() -> None:
    """JAX drops their imaginary parts without an error."""
    x = np.ones(2, "complex64")
    several: tuple[dict[str, Any], ...] = ({}, {"preferred_element_type": "float32"})
    for options in several:
        with pytest.raises(ArgumentError) as caught:
            lax.dot(x, x, precision="F32_F32_F32", **options)
        assert str(caught.value).partition("\n")[0] == (
            "the algorithm of a product multiplies real numbers, not c64; leave it out"
        )


def test_convolutions_ignore_algorithms_as_in_jax() -> None:
    x = np.full((1, 1, 2), 1 + 2**-12, "float32")
    same = lax.conv(x, np.ones((1, 1, 1), "float32"), (1,), "SAME", precision="F16_F16_F16")
    np.testing.assert_array_equal(np.asarray(same), x)


def test_algorithms_have_derivatives_and_batches() -> None:
    x = np.array([[1 + 2**-12, 2]], "float32")

    def f(a: Any) -> Any:
        return lax.dot(a, a, precision="F16_F16_F16")

    np.testing.assert_array_equal(np.asarray(sd.vmap(f)(x)), [5])
    np.testing.assert_array_equal(np.asarray(sd.vmap(sd.grad(f))(x)), [[2, 4]])


def test_programs_of_jax_keep_their_algorithms() -> None:
    jax = pytest.importorskip("jax")
    x = np.linspace(0, 1, 32, dtype="float32").reshape(4, 8)

    def product(precision: Any) -> Any:
        return lambda a, b: jax.lax.dot(a, b, precision=precision)

    for name in ("F16_F16_F16", "BF16_BF16_F32_X3"):
        made, expected = from_jax(product(name))(x, x.T), product(name)(x, x.T)
        np.testing.assert_allclose(np.asarray(made), np.asarray(expected), 1e-3, err_msg=name)
    rounded = np.asarray(from_jax(product("F16_F16_F16"))(x, x.T))
    np.testing.assert_array_equal(rounded, rounded.astype("float16").astype("float32"))
    for refused in ("TF32_TF32_F32", jax.lax.DotAlgorithm(*["float32"] * 3)):
        with pytest.raises(ArgumentError, match="products do not support the algorithm"):
            from_jax(product(refused))(x, x.T)
