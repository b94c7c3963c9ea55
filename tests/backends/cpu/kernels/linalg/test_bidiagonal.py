"""Singular values of f32 matrices: of f64's accuracy, rounded once."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir.backends.cpu.kernels.linalg import RULES
from shardir.backends.cpu.kernels.linalg.bidiagonal import MAX_ASPECT_RATIO, MAX_BIDIAGONAL_EXTENT
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType
from tests.backends.cpu.kernels.linalg.test_factorizations import drawn
from tests.backends.cpu.phase_runner import lower_and_run, make_op, run_rule

Array = npt.NDArray[Any]
EPSILON = float(np.finfo(np.float32).eps)


def singular(x: Array, workers: int = 2) -> Array:
    op = make_op(OPS["svd"], TensorType(x.shape, "f32"), full=False, vectors=False)
    (found,) = run_rule(RULES["svd"], op, [x], workers=workers)
    return found


def check(x: Array, found: Array) -> None:
    wanted = np.linalg.svd(x.astype(np.float64), compute_uv=False)
    error = max(EPSILON * float(wanted.max()), 1e-45)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=error)


@pytest.mark.parametrize(
    "shape",
    [(1, 1), (1, 2), (2, 1), (2, 2), (3, 5), (7, 7), (8, 8), (9, 8), (8, 9), (9, 9), (16, 17),
     (17, 16), (33, 20), (64, 64), (50, 90), (2, 3, 11, 7), (130, 130)],
)  # fmt: skip
def test_values_of_all_sizes(shape: tuple[int, ...]) -> None:
    x = drawn(shape, "f32")
    check(x, singular(x))
    check(x, singular(np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)))


def test_a_matrix_and_its_transpose_have_the_same_bits() -> None:
    x = drawn((20, 13), "f32")
    np.testing.assert_array_equal(singular(x), singular(np.ascontiguousarray(x.T)))


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e30])
def test_numbers_of_every_size(scale: float) -> None:
    x = (drawn((20, 14), "f32").astype(np.float64) * scale).astype(np.float32)
    check(x, singular(x))


def test_ranks_that_are_not_full() -> None:
    x = drawn((12, 10), "f32")
    x[:, 0] = 0
    x[:, 4] = x[:, 3]
    x[5] = 0
    for each in (x, x.T.copy(), np.zeros((6, 6), np.float32), np.eye(9, dtype=np.float32),
                 np.ones((9, 9), np.float32)):  # fmt: skip
        check(each, singular(each))


@pytest.mark.parametrize("what", [np.nan, np.inf])
def test_what_is_not_finite_makes_one_matrix_nan(what: float) -> None:
    x = drawn((3, 9, 9), "f32")
    clean = singular(x)
    x[1, 2, 5] = what
    found = singular(x)
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[::2], clean[::2])


def test_the_same_bits_for_any_number_of_workers() -> None:
    x = drawn((9, 12, 12), "f32")
    np.testing.assert_array_equal(singular(x), singular(x, workers=7))


@pytest.mark.parametrize(
    "shape",
    [(MAX_BIDIAGONAL_EXTENT + 1, MAX_BIDIAGONAL_EXTENT + 1), (MAX_ASPECT_RATIO * 10 + 1, 10)],
)
def test_large_and_slender_matrices_are_left_to_lapack(shape: tuple[int, int]) -> None:
    x = np.zeros(shape, np.float32)
    op = make_op(OPS["svd"], TensorType(shape, "f32"), full=False, vectors=False)
    phases = lower_and_run(RULES["svd"], op, [x], [np.zeros(min(shape), np.float32)])
    assert phases is not None
    assert phases[0].kernel.imports == ("lapack_dgesdd",)
