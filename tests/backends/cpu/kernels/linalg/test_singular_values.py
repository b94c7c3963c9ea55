"""Singular values of f32 matrices, computed with f64 accuracy and rounded once."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType
from tests.backends.cpu.kernels.linalg.test_factorizations import random_matrices
from tests.backends.cpu.phase_runner import make_op, run_rule

Array = npt.NDArray[Any]
EPSILON = float(np.finfo(np.float32).eps)


def singular_values(x: Array, workers: int = 2) -> Array:
    op = make_op(OPS["svd"], TensorType(x.shape, "f32"), full=False, vectors=False)
    (found,) = run_rule(RULES["svd"], op, [x], workers=workers)
    return found


def check(x: Array, found: Array) -> None:
    expected = np.linalg.svd(x.astype(np.float64), compute_uv=False)
    error = max(EPSILON * float(expected.max()), 1e-45)
    np.testing.assert_allclose(found, expected, rtol=0, atol=error)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "shape",
    [(1, 1), (1, 2), (2, 1), (2, 2), (3, 5), (7, 7), (8, 8), (9, 8), (8, 9), (9, 9), (16, 17),
     (17, 16), (33, 20), (64, 64), (50, 90), (2, 3, 11, 7), (130, 130)],
)  # fmt: skip
def test_singular_values_of_all_sizes_match_f64(shape: tuple[int, ...]) -> None:
    x = random_matrices(shape, "f32")
    check(x, singular_values(x))
    check(x, singular_values(np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)))


def test_a_matrix_and_its_transpose_have_equal_singular_values() -> None:
    x = random_matrices((20, 13), "f32")
    transposed = singular_values(np.ascontiguousarray(x.T))
    np.testing.assert_allclose(singular_values(x), transposed, rtol=EPSILON)


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e30])
def test_singular_values_of_all_magnitudes_match_f64(scale: float) -> None:
    x = (random_matrices((20, 14), "f32").astype(np.float64) * scale).astype(np.float32)
    check(x, singular_values(x))


def test_singular_values_of_rank_deficient_matrices_match_f64() -> None:
    x = random_matrices((12, 10), "f32")
    x[:, 0] = 0
    x[:, 4] = x[:, 3]
    x[5] = 0
    for each in (x, x.T.copy(), np.zeros((6, 6), np.float32), np.eye(9, dtype=np.float32),
                 np.ones((9, 9), np.float32)):  # fmt: skip
        check(each, singular_values(each))


@pytest.mark.parametrize("nonfinite", [np.nan, np.inf])
def test_a_nonfinite_matrix_gives_nan_and_leaves_others_unchanged(nonfinite: float) -> None:
    x = random_matrices((3, 9, 9), "f32")
    clean = singular_values(x)
    x[1, 2, 5] = nonfinite
    found = singular_values(x)
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[::2], clean[::2])


def test_singular_values_do_not_depend_on_the_worker_count() -> None:
    x = random_matrices((9, 12, 12), "f32")
    np.testing.assert_array_equal(singular_values(x), singular_values(x, workers=7))
