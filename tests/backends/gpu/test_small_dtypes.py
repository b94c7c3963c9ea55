"""Small dtypes in GPU programs: 8-bit floats as bytes; smaller elements are refused by name."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.base import BACKENDS
from shardir.backends.emission import EmissionError
from shardir.backends.gpu import backend as gpu
from tests.backends.gpu.device import DEVICE


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(BACKENDS, "gpu", gpu.GPUBackend(DEVICE))
    with sd.config(num_gpu_devices=1):
        yield


@pytest.mark.usefixtures("one_gpu")
def test_floats_of_8_bits_have_the_results_of_the_cpu() -> None:
    def program(x: Any) -> Any:
        y = x * 1.5
        return y, snp.concatenate([x, y]), (x @ y).astype("float32"), y.astype("float8_e5m2")

    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).reshape(16, 16)
    expected, found = sd.jit(program)(codes), sd.jit(program, backend="gpu")(codes)

    for one, other in zip(expected, found, strict=True):
        a, b = np.asarray(one), np.asarray(other)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a.astype(np.float32), b.astype(np.float32))


@pytest.mark.usefixtures("one_gpu")
def test_elements_of_less_than_a_byte_are_refused() -> None:
    with pytest.raises(EmissionError, match="GPU programs have no elements of less than 8 bits"):
        sd.jit(lambda x: x + x, backend="gpu")(snp.ones(4, "int4"))
