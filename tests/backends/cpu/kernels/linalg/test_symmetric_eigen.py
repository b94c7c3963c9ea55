"""Eigenvalues of symmetric f32 matrices, computed with f64 accuracy and rounded once."""

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


def eigen_factors(x: Array, vectors: bool = True, workers: int = 2) -> list[Array]:
    op = make_op(OPS["eigh"], TensorType(x.shape, "f32"), vectors=vectors)
    return run_rule(RULES["eigh"], op, [x], workers=workers)


def check(x: Array, values: Array, vectors: Array) -> None:
    """Check against the lower triangle of `x`, within the rounding to f32."""
    full = (np.tril(x) + np.tril(x, -1).swapaxes(-1, -2)).astype(np.float64)
    size = max(float(np.abs(values).max()), 1e-30)
    wide = vectors.astype(np.float64)
    residual = full @ wide - wide * values[..., None, :]
    assert np.abs(residual).max() <= 3 * EPSILON * size
    unit = wide.swapaxes(-1, -2) @ wide
    assert np.abs(unit - np.eye(x.shape[-1])).max() <= 3 * EPSILON
    np.testing.assert_allclose(values, np.linalg.eigvalsh(full), rtol=0, atol=EPSILON * size)


@pytest.mark.sample(3)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 9, 10, 16, 17, 31, 33, 64, 130])
def test_eigenvectors_of_all_sizes_are_accurate(rows: int) -> None:
    x = random_matrices((rows, rows), "f32")
    for layout in (x, np.ascontiguousarray(x.T).T):
        check(x, *eigen_factors(layout))
        np.testing.assert_allclose(
            eigen_factors(layout, vectors=False)[0], eigen_factors(layout)[0],
            rtol=0, atol=EPSILON * np.abs(x).max() * rows,
        )  # fmt: skip


def test_batches_do_not_depend_on_the_worker_count() -> None:
    x = random_matrices((3, 5, 11, 11), "f32")
    found = eigen_factors(x)
    check(x, *found)
    for one, other in zip(found, eigen_factors(x, workers=7), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1.0, 1e30])
def test_eigenvalues_of_all_magnitudes_match_f64(scale: float) -> None:
    x = (random_matrices((20, 20), "f32").astype(np.float64) * scale).astype(np.float32)
    values, vectors = eigen_factors(x)
    full = (np.tril(x) + np.tril(x, -1).T).astype(np.float64)
    expected = np.linalg.eigvalsh(full)
    error = max(EPSILON * np.abs(expected).max(), 1e-45)
    np.testing.assert_allclose(values, expected, rtol=0, atol=error)
    assert np.abs(vectors.T.astype(np.float64) @ vectors - np.eye(20)).max() < 3 * EPSILON


@pytest.mark.sample(3)
@pytest.mark.parametrize("rows", [13, 14, 26, 47, 200])
@pytest.mark.parametrize("number", [0.1, 1.0, 7.7, 3.3e10])
def test_rank_one_matrices_give_orthonormal_eigenvectors(rows: int, number: float) -> None:
    x = np.full((rows, rows), number, np.float32)
    _, vectors = eigen_factors(x)
    unit = vectors.T.astype(np.float64) @ vectors
    assert np.abs(unit - np.eye(rows)).max() <= 3 * EPSILON


def test_repeated_eigenvalues_and_tridiagonal_matrices() -> None:
    tridiagonal = np.diag(np.arange(12, dtype=np.float32)) + np.diag(np.ones(11, np.float32), -1)
    for x in (np.zeros((9, 9), np.float32), np.eye(9, dtype=np.float32), tridiagonal,
              np.ones((10, 10), np.float32)):  # fmt: skip
        check(x, *eigen_factors(x))


@pytest.mark.parametrize("nonfinite", [np.nan, np.inf])
@pytest.mark.parametrize("vectors", [True, False])
def test_a_nonfinite_matrix_gives_nan_and_leaves_others_unchanged(
    nonfinite: float, vectors: bool
) -> None:
    x = random_matrices((3, 9, 9), "f32")
    clean = eigen_factors(x, vectors)
    x[1, 5, 2] = nonfinite
    for got, unaffected in zip(eigen_factors(x, vectors), clean, strict=True):
        assert np.isnan(got[1]).all()
        np.testing.assert_array_equal(got[::2], unaffected[::2])
