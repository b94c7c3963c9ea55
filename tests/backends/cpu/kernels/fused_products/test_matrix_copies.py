"""Copies of the matrices of fused products."""

import numpy as np
import pytest

from shardir.backends.cpu.kernels.fused_products.matrix_copies import MatrixCopies
from shardir.ir.types import NUMPY_DTYPES
from tests.backends.cpu.kernels.random_layouts import Array
from tests.backends.cpu.phase_runner import RuleHarness

MATRIX = np.arange(6 * 8, dtype=np.float32).reshape(1, 6, 8)


def dense_copy(x: Array, dtype: str, multiples: tuple[int, int]) -> tuple[Array, bool]:
    """Return a dense matrix as an array, and whether it is a copy of `x`."""
    harness = RuleHarness(1)
    view = harness.view(x)
    copies = MatrixCopies(harness)
    dense = copies.dense(view, (1, 2), dtype, multiples)
    harness.run(copies.phases)
    flat = harness.buffers[dense.slot - 1].reshape(-1).view(NUMPY_DTYPES[dtype])
    return flat[: np.prod(dense.shape)].reshape(dense.shape), dense.slot != view.slot


def test_dense_matrices_are_not_copied() -> None:
    """A matrix is read in place, and one whose rows are contiguous but have gaps if its rows are
    sufficient."""
    got, is_copied = dense_copy(MATRIX, "f32", (2, 4))
    assert not is_copied
    np.testing.assert_array_equal(got, MATRIX)
    harness = RuleHarness(1)
    view = harness.view(np.zeros((1, 6, 16), np.float32)[..., :8])
    copies = MatrixCopies(harness)
    assert copies.with_contiguous_rows(view, (1, 2), 4) == view
    assert copies.phases == []


@pytest.mark.parametrize(
    ("x", "dtype", "multiples"),
    [
        (np.ascontiguousarray(MATRIX.swapaxes(1, 2)).swapaxes(1, 2), "f32", (1, 1)),
        (np.repeat(MATRIX, 2, axis=2)[..., ::2][..., :4], "f32", (1, 1)),
        (np.broadcast_to(MATRIX[..., :1], MATRIX.shape), "f32", (1, 1)),
        (MATRIX[..., :5], "f32", (1, 1)),
        (MATRIX.astype(np.int32), "f32", (1, 1)),
        (MATRIX, "bf16", (1, 1)),
        (MATRIX, "f32", (4, 16)),
    ],
)
def test_other_matrices_are_copied(x: Array, dtype: str, multiples: tuple[int, int]) -> None:
    """Columns or rows have gaps, the elements of a row are one element, the type differs, or zeros
    extend the matrix."""
    got, is_copied = dense_copy(x, dtype, multiples)
    assert is_copied
    _, rows, columns = x.shape
    np.testing.assert_array_equal(got[:, :rows, :columns], x.astype(got.dtype))
    assert not got[:, rows:].any()
    assert not got[:, :, columns:].any()
