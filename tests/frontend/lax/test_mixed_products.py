"""Products of operands of different element types, and `precision=`."""

from itertools import permutations
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.errors import OperationTypeError
from shardir.frontend.errors import ArgumentError

DTYPES = ("bool", "int8", "uint8", "int32", "float16", "bfloat16")


def numbers(dtype: str) -> Any:
    return np.array([1, 2, 3]).astype(getattr(ml_dtypes, dtype, dtype))


@pytest.mark.parametrize("preferred", [None, "float32"])
def test_products_have_the_types_and_the_numbers_of_jax(preferred: str | None) -> None:
    jax = pytest.importorskip("jax")
    for left, right in permutations(DTYPES, 2):
        options: dict[str, Any] = {"preferred_element_type": preferred}
        made = lax.dot(numbers(left), numbers(right), **options)
        expected = jax.lax.dot(numbers(left), numbers(right), **options)
        assert made.dtype == expected.dtype, (left, right)
        np.testing.assert_array_equal(np.asarray(made), np.asarray(expected), err_msg=left + right)


def test_operands_are_converted_to_the_preferred_type_directly() -> None:
    half = np.array([1 + 2**-10], "float16")
    one = np.array([1], ml_dtypes.bfloat16)
    assert float(lax.dot(half, one)) == 1
    assert float(lax.dot(half, one, preferred_element_type="float32")) == 1 + 2**-10
    made = sd.jit(lambda a, b: lax.dot_general(a, b, (((0,), (0,)), ((), ()))))(half, one)
    assert made.dtype == ml_dtypes.bfloat16


def test_a_preferred_type_that_is_narrower_is_refused() -> None:
    with pytest.raises(OperationTypeError) as caught:
        lax.dot(numbers("int32"), numbers("int8"), preferred_element_type="float16")
    assert str(caught.value).partition("\n")[0] == (
        "preferred_element_type f16 is narrower than i32, the type of the product; convert the "
        "operands, or the result"
    )


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize(
    ("left", "right", "dtype", "preferred", "expected"),
    [
        # The product is computed in the type of the operands, and converted.
        ([70000.0, 2], [0.001, 1], "float32", "float16", 72),
        ([0.5], [0.5], "float32", "bool", True),
        ([0.25, -0.25], [1, 1], "float32", "bool", False),
        ([2.5], [3], "float32", "int32", 7),
        ([1j], [1j], "complex64", "float32", -1),
        ([100] * 40, [100] * 40, "uint8", "int8", -128),
        # The operands are converted to a type with a larger range.
        ([2**30] * 4, [4] * 4, "int32", "float32", 2.0**34),
        ([1 + 2**-10, -1], [1, 1], "float16", "bfloat16", 0),
        ([-1], [1], "int8", "uint32", 2**32 - 1),
        ([3], [5], "int32", "complex64", 15),
        ([True, True], [True, True], "bool", "int8", 2),
    ],
)
def test_products_have_the_preferred_type_and_the_numbers_of_jax(
    left: Any, right: Any, dtype: str, preferred: str, expected: Any
) -> None:
    x, y = (np.array(each, dtype) for each in (left, right))
    products: list[Any] = [
        lambda a, b: lax.dot(a, b, preferred_element_type=preferred),
        lambda a, b: snp.matmul(a, b, preferred_element_type=preferred),
        lambda a, b: snp.einsum("i,i->", a, b, preferred_element_type=preferred),
    ]
    for product in products:
        made = np.asarray(product(x, y))
        assert str(made.dtype) == preferred
        assert made == expected


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_preferred_types_of_jax() -> None:
    """Compare one case of each kind with JAX itself; the test above states the numbers."""
    jax = pytest.importorskip("jax")
    for dtype, preferred in (("int32", "float32"), ("complex64", "float32"), ("float32", "int8")):
        x = np.array([3, 2, 7]).astype(dtype)
        expected = jax.lax.dot(x, x, preferred_element_type=preferred)
        made = lax.dot(x, x, preferred_element_type=preferred)
        assert made.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(made), np.asarray(expected))
    for dtype, preferred in (("int32", "float16"), ("complex64", "bfloat16"), ("int32", "bool")):
        x = np.array([3, 2, 7]).astype(dtype)
        with pytest.raises(TypeError, match="must not be narrower"):
            jax.lax.dot(x, x, preferred_element_type=preferred)
        with pytest.raises(OperationTypeError, match=f"{preferred[0]}.* is narrower than"):
            lax.dot(x, x, preferred_element_type=preferred)


X = np.eye(2, dtype="float32")
IMAGE = np.ones((1, 1, 2, 2), "float32")

PRODUCTS = [
    lambda p: snp.matmul(X, X, precision=p), lambda p: snp.dot(X, X, precision=p),
    lambda p: snp.vdot(X, X, precision=p), lambda p: snp.inner(X, X, precision=p),
    lambda p: snp.tensordot(X, X, precision=p), lambda p: snp.einsum("ij,jk", X, X, precision=p),
    lambda p: snp.vecdot(X, X, precision=p), lambda p: snp.matvec(X, X[0], precision=p),
    lambda p: snp.vecmat(X[0], X, precision=p), lambda p: snp.linalg.multi_dot([X, X], precision=p),
    lambda p: snp.convolve(X[0], X[0], precision=p),
    lambda p: snp.correlate(X[0], X[0], precision=p),
    lambda p: lax.dot(X, X, p), lambda p: lax.batch_matmul(X[None], X[None], p),
    lambda p: lax.ragged_dot(X, X[None], np.array([2], "int32"), p),
    lambda p: lax.conv(IMAGE, IMAGE, (1, 1), "SAME", precision=p),
    lambda p: lax.conv_transpose(IMAGE, IMAGE, (1, 1), "SAME", precision=p),
    lambda p: sd.image.resize(X, (4, 4), "linear", precision=p),
    lambda p: sd.scipy.signal.convolve(X, X, precision=p),
    lambda p: sd.scipy.signal.correlate2d(X, X, precision=p),
]  # fmt: skip


@pytest.mark.parametrize("product", PRODUCTS)
def test_precision_is_checked(product: Any) -> None:
    expected = np.asarray(product(None))
    for precision in ("highest", "bfloat16", lax.Precision.HIGH, ("high", "default")):
        np.testing.assert_array_equal(np.asarray(product(precision)), expected)
    wrong_values = (
        ("hihgest", "'hihgest'"), (3, "3"), (("high",) * 3, "('high', 'high', "),
        (("high",), "('high',)"), (np.ones(2), "float64[2]"),
    )  # fmt: skip
    for wrong, text in wrong_values:
        with pytest.raises(ArgumentError) as caught:
            product(wrong)
        assert f"precision is {text}" in str(caught.value)
        assert (
            "it is None, a lax.Precision, one of highest, float32, high, bfloat16_3x, "
            "tensorfloat32, default, bfloat16, fastest, a pair of these, or a "
            "lax.DotAlgorithmPreset. Products have the full precision of their element type: leave "
            "precision out"
        ) in str(caught.value)


def test_inner_of_scalars_has_the_preferred_type() -> None:
    made = snp.inner(np.float16(300), np.float16(300), preferred_element_type="float32")
    assert made.dtype == np.float32
    assert float(made) == 90000
