"""Fourier transforms of parts of a batch: what the reference gives, bit by bit."""

import tracemalloc

import numpy as np
import pytest

from shardir.backends.cpu import transforms
from shardir.backends.cpu.kernels import kernel_of
from shardir.opset import OPS, Symbol
from shardir.types import TensorType
from tests.backends.cpu.native.running import op_on


@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize(
    ("shape", "rank"), [((7, 5), 1), ((2, 9, 6), 1), ((6, 2, 4), 2), ((3, 2), 1), ((0, 4), 1)]
)
def test_as_the_reference(
    kind: str, shape: tuple[int, ...], rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transforms, "CHUNK", 8)
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
