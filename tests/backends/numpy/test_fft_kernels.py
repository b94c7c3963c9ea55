"""Fourier transforms of parts of a batch: what the reference gives, bit by bit."""

import tracemalloc

import numpy as np
import pytest

from shardir.backends.numpy import fft_kernels, threads
from shardir.backends.numpy.kernel_table import kernel_of
from shardir.ir.operation import OPS, Symbol
from shardir.ir.types import TensorType
from tests.backends.cpu.phase_runner import op_on


@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize(
    ("shape", "rank"), [((7, 5), 1), ((2, 9, 6), 1), ((6, 2, 4), 2), ((3, 2), 1), ((0, 4), 1)]
)
def test_as_the_reference(
    kind: str, shape: tuple[int, ...], rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fft_kernels, "MAX_CHUNK_ELEMENTS", 8)
    draw = np.random.default_rng(0).standard_normal
    real = kind == "rfft"
    x = draw(shape).astype("f4") if real else (draw(shape) + 1j * draw(shape)).astype("c8")
    spec = OPS["fft"]
    op = op_on(spec, TensorType(shape, "f32" if real else "c64"), kind=Symbol(kind), rank=rank)
    assert spec.reference is not None
    want = spec.reference(x, kind=kind, rank=rank, result=op.results[0].type)
    got = kernel_of(op)(x)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_little_more_memory_than_the_result_has() -> None:
    x = np.ones((256, 1 << 12), np.complex64)
    op = op_on(OPS["fft"], TensorType(x.shape, "c64"), kind=Symbol("fft"), rank=1)
    compute = kernel_of(op)
    tracemalloc.start()
    try:
        compute(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.7 * x.nbytes


@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize(
    ("shape", "rank"), [((9,), 1), ((1, 8), 1), ((7, 5), 2), ((1, 4, 3, 6), 3), ((1, 2), 2)]
)
def test_one_transform_is_shared_dimension_by_dimension(
    kind: str, shape: tuple[int, ...], rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fft_kernels, "MAX_CHUNK_ELEMENTS", 8)
    draw = np.random.default_rng(0).standard_normal
    real = kind == "rfft"
    x = draw(shape) if real else draw(shape) + 1j * draw(shape)
    spec = OPS["fft"]
    op = op_on(spec, TensorType(shape, "f64" if real else "c128"), kind=Symbol(kind), rank=rank)
    assert spec.reference is not None
    want = spec.reference(x, kind=kind, rank=rank, result=op.results[0].type)
    np.testing.assert_allclose(kernel_of(op)(x), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shape", [(3, 8), (3, 7), (4, 1), (2, 2), (1, 6), (6,)])
def test_the_spectrum_of_what_is_real_is_a_mirror(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.complex128)
    for numbers in (x, np.where(np.arange(shape[-1]) == 0, np.nan, x)):
        op = op_on(OPS["fft"], TensorType(shape, "c128"), kind=Symbol("fft"), rank=1)
        with np.errstate(all="ignore"):
            wanted = np.fft.fft(numbers)
        np.testing.assert_allclose(kernel_of(op)(numbers), wanted, rtol=1e-12, atol=1e-14)


def test_the_same_bits_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((64, 1 << 10)).astype(np.complex64)
    x[5] += 1j
    monkeypatch.setattr(fft_kernels, "MIN_PARALLEL_ELEMENTS", 0)
    op = op_on(OPS["fft"], TensorType(x.shape, "c64"), kind=Symbol("fft"), rank=1)
    found = []
    for count in (1, 2, 5):
        monkeypatch.setattr(threads, "thread_count", lambda count=count: count)
        found.append(kernel_of(op)(x))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
