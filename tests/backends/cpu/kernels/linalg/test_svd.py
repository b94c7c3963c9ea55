"""SVD of f32 matrices, computed with f64 accuracy and rounded once, with LAPACK's signs."""

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


def svd_factors(x: Array, full: bool = False, workers: int = 2) -> list[Array]:
    op = make_op(OPS["svd"], TensorType(x.shape, "f32"), full=full, vectors=True)
    return run_rule(RULES["svd"], op, [x], workers=workers)


def check(x: Array, u: Array, values: Array, vh: Array) -> None:
    wide, left, right = (each.astype(np.float64) for each in (x, u, vh))
    size = max(float(values.max()), 1e-45)
    scaled_left = left[..., : values.shape[-1]] * values.astype(np.float64)[..., None, :]
    assert np.abs(scaled_left @ right - wide).max() <= 3 * EPSILON * size
    for basis in (left, right.swapaxes(-1, -2)):
        unit = basis.swapaxes(-1, -2) @ basis
        assert np.abs(unit - np.eye(unit.shape[-1])).max() <= 3 * EPSILON
    expected = np.linalg.svd(wide, compute_uv=False)
    np.testing.assert_allclose(values, expected, rtol=0, atol=max(EPSILON * size, 1e-45))


@pytest.mark.sample(3)
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(
    "shape",
    [(2, 2), (3, 3), (4, 3), (7, 7), (8, 8), (9, 8), (9, 9), (13, 9), (16, 16), (17, 17), (33, 20),
     (64, 64), (2, 3, 11, 9), (100, 70)],
)  # fmt: skip
def test_factors_of_all_sizes_are_accurate(shape: tuple[int, ...], full: bool) -> None:
    x = random_matrices(shape, "f32")
    for layout in (x, np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)):
        found = svd_factors(layout, full)
        check(x, *found)
        for got, want in zip(found, np.linalg.svd(x, full), strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * max(1, want.max()))


@pytest.mark.sample(3)
@pytest.mark.parametrize("shape", [(8, 8), (16, 16), (27, 27), (44, 36), (60, 60)])
@pytest.mark.parametrize("number", [0.1, 1.0, 7.7, 3.3e10])
def test_rank_one_matrices_give_orthonormal_factors(shape: tuple[int, int], number: float) -> None:
    x = np.full(shape, number, np.float32)
    check(x, *svd_factors(x, full=True))


def test_rank_deficient_matrices_are_factored() -> None:
    x = random_matrices((12, 10), "f32")
    x[:, 0] = 0
    x[:, 4] = x[:, 3]
    x[5] = 0
    bidiagonal = np.diag(np.arange(12, dtype=np.float32)) + np.diag(np.ones(11, np.float32), 1)
    for each in (x, np.zeros((6, 6), np.float32), np.eye(9, dtype=np.float32),
                 np.ones((9, 9), np.float32), bidiagonal):  # fmt: skip
        check(each, *svd_factors(each, full=True))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_factors_of_all_magnitudes_are_accurate(scale: float) -> None:
    x = random_matrices((20, 14), "f32") * np.float32(scale)
    check(x, *svd_factors(x))


@pytest.mark.parametrize("nonfinite", [np.nan, np.inf])
def test_a_nonfinite_matrix_gives_nan_and_leaves_others_unchanged(nonfinite: float) -> None:
    x = random_matrices((3, 9, 9), "f32")
    clean = svd_factors(x)
    x[1, 2, 5] = nonfinite
    for got, unaffected in zip(svd_factors(x), clean, strict=True):
        assert np.isnan(got[1]).all()
        np.testing.assert_array_equal(got[::2], unaffected[::2])


def test_svd_does_not_depend_on_the_worker_count() -> None:
    x = random_matrices((9, 12, 12), "f32")
    for one, other in zip(svd_factors(x), svd_factors(x, workers=7), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", [(2, 2), (9, 9), (13, 9), (2, 3, 20, 17), (64, 64)])
def test_pseudo_inverses_match_f64(shape: tuple[int, ...]) -> None:
    x = random_matrices(shape, "f32")
    x[..., 1] = x[..., 0]  # a singular value below the limit
    limit = np.full(shape[:-2], 1e-4, np.float32)
    op = make_op(OPS["pinv"], TensorType(shape, "f32"), TensorType(limit.shape, "f32"))
    expected = np.linalg.pinv(x.astype(np.float64), 1e-4)
    for layout in (x, np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)):
        (found,) = run_rule(RULES["pinv"], op, [layout, limit])
        np.testing.assert_allclose(found, expected, rtol=0, atol=EPSILON * np.abs(expected).max())
    zero = np.zeros(shape, np.float32)
    (found,) = run_rule(RULES["pinv"], op, [zero, limit])
    np.testing.assert_array_equal(found, np.zeros(expected.shape))
    x[..., 0, 0] = np.nan
    (found,) = run_rule(RULES["pinv"], op, [x, limit])
    assert np.isnan(found).all()
