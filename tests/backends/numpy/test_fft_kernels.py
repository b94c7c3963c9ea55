"""Fourier transforms of parts of a batch equal the reference bit by bit."""

import tracemalloc

import numpy as np
import pytest

from shardir.backends.numpy import fft_kernels, threads
from shardir.backends.numpy.kernel_table import kernel_of
from shardir.ir.operation import OPS, Symbol
from shardir.ir.types import TensorType
from tests.backends.cpu.phase_runner import make_op
from tests.op_evaluation import apply_reference


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize(
    ("shape", "rank"), [((7, 5), 1), ((2, 9, 6), 1), ((6, 2, 4), 2), ((3, 2), 1), ((0, 4), 1)]
)
def test_transforms_in_chunks_equal_the_reference(
    kind: str, shape: tuple[int, ...], rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fft_kernels, "MAX_CHUNK_ELEMENTS", 8)
    draw = np.random.default_rng(0).standard_normal
    real = kind == "rfft"
    x = draw(shape).astype("f4") if real else (draw(shape) + 1j * draw(shape)).astype("c8")
    spec = OPS["fft"]
    op = make_op(spec, TensorType(shape, "f32" if real else "c64"), kind=Symbol(kind), rank=rank)
    want = apply_reference(spec, x, kind=kind, rank=rank, result=op.results[0].type)
    got = kernel_of(op)(x)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_peak_memory_is_close_to_the_result_size() -> None:
    x = np.ones((256, 1 << 12), np.complex64)
    op = make_op(OPS["fft"], TensorType(x.shape, "c64"), kind=Symbol("fft"), rank=1)
    compute = kernel_of(op)
    tracemalloc.start()
    try:
        compute(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.7 * x.nbytes


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize(
    ("shape", "rank"), [((9,), 1), ((1, 8), 1), ((7, 5), 2), ((1, 4, 3, 6), 3), ((1, 2), 2)]
)
def test_one_transform_is_divided_by_dimensions(
    kind: str, shape: tuple[int, ...], rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fft_kernels, "MAX_CHUNK_ELEMENTS", 8)
    draw = np.random.default_rng(0).standard_normal
    real = kind == "rfft"
    x = draw(shape) if real else draw(shape) + 1j * draw(shape)
    spec = OPS["fft"]
    op = make_op(spec, TensorType(shape, "f64" if real else "c128"), kind=Symbol(kind), rank=rank)
    want = apply_reference(spec, x, kind=kind, rank=rank, result=op.results[0].type)
    np.testing.assert_allclose(kernel_of(op)(x), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shape", [(3, 8), (3, 7), (4, 1), (2, 2), (1, 6), (6,)])
def test_complex_transforms_of_real_data_are_conjugate_symmetric(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.complex128)
    for numbers in (x, np.where(np.arange(shape[-1]) == 0, np.nan, x)):
        op = make_op(OPS["fft"], TensorType(shape, "c128"), kind=Symbol("fft"), rank=1)
        with np.errstate(all="ignore"):
            expected = np.fft.fft(numbers)
        np.testing.assert_allclose(kernel_of(op)(numbers), expected, rtol=1e-12, atol=1e-14)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((64, 1 << 10)).astype(np.complex64)
    x[5] += 1j
    monkeypatch.setattr(fft_kernels, "MIN_PARALLEL_ELEMENTS", 0)
    op = make_op(OPS["fft"], TensorType(x.shape, "c64"), kind=Symbol("fft"), rank=1)
    transformed = []
    for count in (1, 2, 5):
        monkeypatch.setattr(threads, "thread_count", lambda count=count: count)
        transformed.append(kernel_of(op)(x))
    np.testing.assert_array_equal(transformed[0], transformed[1])
    np.testing.assert_array_equal(transformed[0], transformed[2])
