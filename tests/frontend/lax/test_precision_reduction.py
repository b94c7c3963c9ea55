"""`reduce_precision` against narrow dtypes, and reductions by arbitrary functions."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
from shardir import lax
from shardir.errors import OperationTypeError
from tests.namespace import close

GENERATOR = np.random.default_rng(5)
SPREAD = (GENERATOR.normal(size=500) * 2.0 ** GENERATOR.integers(-20, 20, 500)).astype("f")
X = GENERATOR.normal(size=(3, 5, 4)).astype("f")


@pytest.mark.parametrize(
    ("exponent", "mantissa", "dtype"), [(8, 7, ml_dtypes.bfloat16), (5, 10, np.float16)]
)
def test_reduce_precision_rounds_as_the_narrow_dtype(
    exponent: int, mantissa: int, dtype: Any
) -> None:
    with np.errstate(over="ignore"):
        expected = SPREAD.astype(dtype).astype("f")
    found = np.asarray(lax.reduce_precision(SPREAD, exponent, mantissa))
    normal = np.abs(found) >= float(sd.numpy.finfo(dtype).smallest_normal)
    np.testing.assert_array_equal(found[normal], expected[normal])
    assert not found[~normal].any()


def test_infinities_are_kept_and_derivatives_are_one() -> None:
    odd = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], "f")
    np.testing.assert_array_equal(np.asarray(lax.reduce_precision(odd, 4, 3)), odd)
    assert sd.grad(lambda x: lax.reduce_precision(x, 5, 2))(1.3) == 1
    assert sd.jit(sd.vmap(lambda x: lax.reduce_precision(x, 8, 0)))(np.array([1.6], "f"))[0] == 2


def test_operands_that_are_not_floats_are_errors() -> None:
    with pytest.raises(OperationTypeError, match="takes floating-point numbers, got i32"):
        lax.reduce_precision(np.arange(3), 5, 2)
    with pytest.raises(OperationTypeError, match="mantissa, got 0 and 2"):
        lax.reduce_precision(X, 0, 2)


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_reductions_of_several_arrays(dims: tuple[int, ...]) -> None:
    def combine(a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] * b[1]

    both = lax.reduce((X, X), (np.float32(0), np.float32(1)), combine, dims)
    close(np.asarray(both[0]), X.sum(dims), 1e-5)
    close(np.asarray(both[1]), X.prod(dims), 1e-5)


def test_reductions_by_user_functions() -> None:
    def farther(a: Any, b: Any) -> Any:
        return sd.numpy.where(abs(a) > abs(b), a, b)

    found = np.asarray(sd.jit(lambda x: lax.reduce(x, 0.0, farther, (1,)))(X))
    expected = np.take_along_axis(X, np.abs(X).argmax(1, keepdims=True), 1)[:, 0]
    np.testing.assert_array_equal(found, expected)
    assert np.asarray(lax.reduce(X[:, :0], 7.0, farther, (1,))).tolist() == [[7.0] * 4] * 3


def test_stacks_and_shapes() -> None:
    parts = lax.unstack(X, 1)
    assert [part.shape for part in parts] == [(3, 4)] * 5
    np.testing.assert_array_equal(np.asarray(lax.stack(parts, 1)), X)
    assert lax.broadcast_shapes((3, 1), (4,)) == (3, 4)
    with pytest.raises(OperationTypeError, match=r"are not negative, got \(-1,\)"):
        lax.broadcast_shapes((-1,))
    with pytest.raises(OperationTypeError, match="a shape is a tuple of sizes, got 'hello'"):
        lax.broadcast_shapes("hello")  # type: ignore[arg-type]
