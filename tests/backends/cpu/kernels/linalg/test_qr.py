"""QR by Householder reflections: LAPACK's accuracy and signs."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir.backends.cpu.kernel_api import SCRATCH_BYTES_PER_WORKER
from shardir.backends.cpu.kernels.linalg.qr import MAX_NARROW_ROWS
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.operation import OPS
from shardir.ir.types import NUMPY_DTYPES, TensorType
from tests.backends.cpu.kernels.linalg.test_factorizations import random_matrices
from tests.backends.cpu.phase_runner import lower_and_run, make_op, run_rule

Array = npt.NDArray[Any]
SHAPES = [(1, 1), (1, 6), (6, 1), (7, 7), (8, 8), (9, 9), (17, 5), (5, 17), (2, 3, 33, 20),
          (64, 64), (40, 75), (130, 90)]  # fmt: skip


def qr_factors(x: Array, dtype: str, full: bool = False, workers: int = 2) -> list[Array]:
    op = make_op(OPS["qr"], TensorType(x.shape, dtype), full=full)
    return run_rule(RULES["qr"], op, [x], workers=workers)


def qr_errors(x: Array, q: Array, r: Array) -> tuple[float, float]:
    """Return the error of the product relative to the largest element of each column, and the
    deviation of Q from orthonormality."""
    x, q, r = (each.astype(np.longdouble) for each in (x, q, r))
    largest = np.maximum(np.abs(x).max(-2), 1e-300)
    distance = np.abs(q @ r - x).max(-2) / largest
    return float(distance.max()), float(np.abs(q.swapaxes(-1, -2) @ q - np.eye(q.shape[-1])).max())


@pytest.mark.sample(3)
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_qr_errors_are_close_to_those_of_numpy(
    shape: tuple[int, ...], dtype: str, full: bool
) -> None:
    x, precision = random_matrices(shape, dtype), float(np.finfo(NUMPY_DTYPES[dtype]).eps)
    expected = np.linalg.qr(x, "complete" if full else "reduced")
    for layout in (x, np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)):
        q, r = qr_factors(layout, dtype, full)
        assert (np.tril(r, -1) == 0).all()
        for native_error, numpy_error in zip(
            qr_errors(x, q, r), qr_errors(x, *expected), strict=True
        ):
            assert native_error <= 2 * numpy_error + 4 * precision
    # The first columns are well conditioned: their factors are equal, including signs.
    column_count = min(3, *shape[-2:])
    np.testing.assert_allclose(
        q[..., :column_count], expected[0][..., :column_count], atol=200 * precision
    )


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("number", [0.1, 1.0, 7.7, 3.3e10])
def test_rank_one_matrices_give_orthonormal_factors(number: float, dtype: str) -> None:
    # Each remaining column consists of rounding errors of the previous one.
    x = np.full((150, 150), number, NUMPY_DTYPES[dtype])
    q, r = qr_factors(x, dtype)
    precision = float(np.finfo(x.dtype).eps)
    assert max(qr_errors(x, q, r)) <= 1000 * precision


@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e-160, 1e-70, 1e70, 1e160, 1e290])
def test_norms_do_not_overflow_or_underflow(scale: float) -> None:
    x = random_matrices((20, 12), "f64")
    expected = np.linalg.qr(x)
    q, r = qr_factors(x * scale, "f64")
    tolerance = 1e-3 if scale == 1e-310 else 1e-13
    np.testing.assert_allclose(q, expected[0], atol=tolerance)
    np.testing.assert_allclose(r / scale, expected[1], atol=tolerance * 10)
    x[:, ::2] *= scale
    q, r = qr_factors(x, "f64")
    if scale > 1e-300:
        assert max(qr_errors(x, q, r)) < 1e-14


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_rank_deficient_matrices_are_factored(dtype: str) -> None:
    x = random_matrices((12, 10), dtype)
    x[:, 0] = 0
    x[:, 4] = x[:, 3]
    x[:, 9] = 0
    x[3:, 1] = 0
    q, r = qr_factors(x, dtype)
    assert max(qr_errors(x, q, r)) < 8 * np.finfo(x.dtype).eps
    q, r = qr_factors(np.zeros((4, 4), x.dtype), dtype)
    np.testing.assert_array_equal(q, np.eye(4))
    np.testing.assert_array_equal(r, 0)


@pytest.mark.parametrize("nonfinite", [np.nan, np.inf])
def test_nonfinite_elements_propagate_within_their_matrix(nonfinite: float) -> None:
    x = random_matrices((3, 20, 20), "f32")
    clean = qr_factors(x, "f32")
    x[1, 7, 4] = nonfinite
    found = qr_factors(x, "f32")
    for got, unaffected in zip(found, clean, strict=True):
        np.testing.assert_array_equal(got[::2], unaffected[::2])
    assert np.isnan(found[0][1, :, 4:]).any()
    np.testing.assert_array_equal(found[1][1, :, :4], clean[1][1, :, :4])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_qr_does_not_depend_on_the_worker_count(dtype: str) -> None:
    x = random_matrices((9, 12, 12), dtype)
    for one, other in zip(qr_factors(x, dtype), qr_factors(x, dtype, workers=7), strict=True):
        np.testing.assert_array_equal(one, other)


LARGE = int((SCRATCH_BYTES_PER_WORKER / 16) ** 0.5)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((6, 6), "c64"), ((LARGE, LARGE), "f64"), ((MAX_NARROW_ROWS + 1, 5), "f64")],
)
def test_complex_large_and_narrow_matrices_are_left_to_lapack(
    shape: tuple[int, int], dtype: str
) -> None:
    x = random_matrices(shape, dtype)
    op = make_op(OPS["qr"], TensorType(x.shape, dtype), full=False)
    outs = [np.zeros(v.type.shape, v.type.numpy) for v in op.results]
    phases = lower_and_run(RULES["qr"], op, [x], outs)
    assert phases is not None
    assert phases[0].kernel.imports
    for got, want in zip(outs, np.linalg.qr(x), strict=True):
        np.testing.assert_array_equal(got, want)
