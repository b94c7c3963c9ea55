"""Functions have the parameters of JAX's, at the same positions, or a table states why not."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import shardir
from shardir.errors import OperationTypeError
from shardir.frontend.errors import ArgumentError, RandomError
from tests.error_assertions import assert_raises_exactly
from tests.jax_parameters import missing_parameters, moved_parameters, reasons
from tests.optional_dependencies import require


@pytest.fixture(scope="module")
def missing() -> set[str]:
    require("jax")
    return missing_parameters()


def test_each_missing_parameter_has_a_reason(missing: set[str]) -> None:
    assert missing - reasons() == set()


def test_no_reason_is_about_a_parameter_that_exists(missing: set[str]) -> None:
    assert reasons() - missing == set()


def test_positional_parameters_have_the_positions_of_jax() -> None:
    require("jax")
    assert moved_parameters() == set()


X = np.arange(12, dtype="f").reshape(3, 4)
SQUARE = np.array([[2, 1, 0], [1, 2, 1], [0, 1, 0.5]], "f")
LIKELY = np.array([0.0, -3, 1], "f")
CASES: dict[str, Callable[[Any], Any]] = {
    "dynamic_slice": lambda j: j.lax.dynamic_slice(
        X, (j.numpy.int32(-1), -2), (1, 2), allow_negative_indices=(False, True)
    ),
    "dynamic_update_slice": lambda j: j.lax.dynamic_update_slice(
        X,
        X[:1, :1] - 1,
        (j.numpy.int32(-1), j.numpy.int32(-1)),
        allow_negative_indices=(True, False),
    ),
    "dynamic_slice_in_dim": lambda j: j.lax.dynamic_slice_in_dim(
        X, j.numpy.int32(-2), 2, 1, allow_negative_indices=False
    ),
    "dynamic_index_in_dim": lambda j: j.lax.dynamic_index_in_dim(
        X, j.numpy.int32(-2), 1, False, allow_negative_indices=False
    ),
    "dynamic_update_index_in_dim": lambda j: j.lax.dynamic_update_index_in_dim(
        X, X[0] - 1, j.numpy.int32(-2), 0, allow_negative_indices=False
    ),
    "dot": lambda j: j.lax.dot(X, X, dimension_numbers=(((1,), (1,)), ((0,), (0,)))),
    "switch": lambda j: j.lax.switch(1, [lambda x: x, lambda x: x + 1], operand=X),
    "stack": lambda j: j.numpy.stack([X, X], 1, None, "int32"),
    "nanvar": lambda j: j.numpy.nanvar(X, 0, None, None, 0, False, None, X[:1]),
    "full_like": lambda j: j.lax.full_like(X, 2.0, None, None, None),
    "reduce_window": lambda j: j.lax.reduce_window(X, 0.0, j.lax.add, (2, 2)),
    "matrix_rank": lambda j: j.numpy.linalg.matrix_rank(SQUARE, hermitian=True),
    "matrix_rank of a triangle": lambda j: j.numpy.linalg.matrix_rank(
        -np.diag(np.array([0.0, 2, 1], "f")), hermitian=True
    ),
    "multi_dot": lambda j: j.numpy.linalg.multi_dot([SQUARE, X], precision="highest"),
    "dft": lambda j: import_module(f"{j.__name__}.scipy.linalg").dft(3, dtype="complex64"),
    "nextafter": lambda j: j.lax.nextafter(x1=X, x2=X + 1),
    "fmax": lambda j: j.numpy.fmax(x1=X, x2=3.0),
    "unstack": lambda j: j.lax.unstack(x=X)[1],
    "bernoulli": lambda j: j.random.bernoulli(j.random.key(3), 0.3, (50,), "high"),
    "gumbel": lambda j: j.random.gumbel(j.random.key(3), (50,), None, "high"),
    "categorical": lambda j: j.random.categorical(
        j.random.key(3), LIKELY, shape=(50,), mode="high"
    ),
    "categorical without replacement": lambda j: j.random.categorical(
        j.random.key(3), LIKELY, shape=(2,), replace=False, mode="high"
    ),
    "device_put": lambda j: j.device_put(X, None, src=j.devices()[0], may_alias=True),
}


@pytest.mark.parametrize("name", CASES)
def test_parameters_have_the_effect_that_they_have_in_jax(name: str) -> None:
    require("jax")
    found, expected = CASES[name](shardir), CASES[name](import_module("jax"))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, 2e-6, 2e-6)


def test_texts_of_arrays_have_the_options_of_numpy() -> None:
    x = shardir.numpy.array([0.123456, 1e-9], "float32")
    options: dict[str, Any] = {"precision": 3, "suppress_small": True}
    assert shardir.numpy.array_str(x, **options) == "[0.123 0.   ]"
    assert shardir.numpy.array_repr(x, **options) == "Array([0.123, 0.   ], dtype=float32)"


def test_a_checkpoint_takes_static_arguments_without_a_hash_by_name() -> None:
    scaled = shardir.checkpoint(lambda x, factors: x * factors[0], static_argnames="factors")
    assert float(scaled(np.float32(2), factors=[3.0])) == 6
    assert float(shardir.grad(lambda x: scaled(x, factors=[3.0]))(np.float32(2))) == 3


def test_values_without_a_meaning_are_refused() -> None:
    key = shardir.random.key(0)
    assert_raises_exactly(
        lambda: shardir.random.gumbel(key, (), None, "middle"),
        RandomError,
        "the mode of gumbel is 'low' or 'high', got 'middle'",
    )
    assert_raises_exactly(
        lambda: shardir.jit(
            lambda x: shardir.lax.dynamic_slice(x, (-1, 0), (1, 2), allow_negative_indices=False)
        )(X),
        OperationTypeError,
        "start -1 of dynamic_slice in dimension 0 is negative, and allow_negative_indices is false",
    )
    assert_raises_exactly(
        lambda: shardir.lax.dynamic_slice(X, (-1, 0), (1, 2), allow_negative_indices=[True]),
        OperationTypeError,
        "allow_negative_indices of dynamic_slice is a bool, or one for each of 2 dimensions, "
        "got [True]",
    )
    assert_raises_exactly(
        lambda: shardir.device_put(X, donate=True, may_alias=True),
        ArgumentError,
        "device_put with donate=True releases x, so may_alias cannot be True",
    )
    assert_raises_exactly(
        lambda: shardir.scipy.linalg.dft(3, dtype="float32"),
        ArgumentError,
        "the element type of dft is complex, got 'float32'",
    )
    assert_raises_exactly(
        lambda: shardir.vmap(lambda x: shardir.lax.all_gather(x, "i", to="reduced"), axis_name="i")(
            X
        ),
        ArgumentError,
        "the result of all_gather is varying; to='reduced' is not supported",
    )
