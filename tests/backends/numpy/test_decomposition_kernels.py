"""Decompositions of batches that threads share equal the reference bit by bit."""

from typing import Any

import numpy as np
import pytest

from shardir.backends.numpy import decomposition_kernels, threads
from shardir.backends.numpy.kernel_table import kernel_of
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType, dtype_name
from tests.backends.cpu.phase_runner import make_op
from tests.op_evaluation import apply_reference

CASES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("cholesky", (2, 5, 3, 3), {}),
    ("qr", (9, 5, 3), {"full": False}),
    ("qr", (9, 5, 3), {"full": True}),
    ("svd", (9, 3, 5), {"full": False, "vectors": True}),
    ("svd", (3, 3, 5, 2), {"full": False, "vectors": False}),
    ("eigh", (9, 4, 4), {"vectors": True}),
    ("eig", (9, 4, 4), {"vectors": True}),
    ("eig", (9, 4, 4), {"vectors": False}),
    ("pinv", (3, 3, 4, 2), {}),
    ("least_squares", (3, 3, 4, 2), {}),
    ("svd", (0, 3, 2), {"full": False, "vectors": False}),
    ("qr", (1, 3, 2), {"full": False}),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["f32", "c128"])
@pytest.mark.parametrize(("name", "shape", "attrs"), CASES)
def test_decompositions_on_threads_equal_the_reference(
    name: str, shape: tuple[int, ...], attrs: dict[str, Any], dtype: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(decomposition_kernels, "MIN_PARALLEL_NANOSECONDS", 0)
    monkeypatch.setattr(threads, "thread_count", lambda: 2)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype[0] == "c" else 0)
    if name == "cholesky":
        x = x @ x.conj().swapaxes(-1, -2)
        x[1, 2] = -x[1, 2]  # not positive definite: has no factor
    arrays = [x.astype(TensorType((), dtype).numpy)]
    if name == "least_squares":
        arrays.append(arrays[0][..., ::-1].copy())
    if name in ("pinv", "least_squares"):
        arrays.append(np.full(shape[:-2], 1e-3, arrays[0].real.dtype))
    types = [TensorType(arrays[0].shape, dtype)]
    types += [TensorType(each.shape, dtype_name(each.dtype)) for each in arrays[1:]]
    op = make_op(OPS[name], *types, **attrs)
    results = tuple(value.type for value in op.results)
    result = results if len(results) > 1 else results[0]
    expected = apply_reference(op.spec, *arrays, result=result, **attrs)
    actual = kernel_of(op)(*arrays)
    pairs = zip(actual, expected, strict=True) if len(results) > 1 else [(actual, expected)]
    for got, want in pairs:
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_array_equal(got, want)


def test_an_exception_of_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: 3)

    def work(piece: slice) -> None:
        if piece.start == 4:
            raise ValueError("no fifth")

    with pytest.raises(ValueError, match="no fifth"):
        threads.run_on_threads(work, list(threads.split_range(9, 1)))
