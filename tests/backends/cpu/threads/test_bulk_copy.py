"""Copies of memory blocks of any size and alignment, which change no other bytes."""

import numpy as np
import pytest

import shardir as sd
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES
from shardir.backends.cpu.threads.bulk_copy import BYTES_PER_TASK, bulk_copy
from shardir.backends.cpu.threads.workers import workers

SIZES = (
    1,
    CACHE_LINE_BYTES - 1,
    CACHE_LINE_BYTES,
    CACHE_LINE_BYTES + 1,
    1000,
    BYTES_PER_TASK - 1,
    BYTES_PER_TASK,
    BYTES_PER_TASK + 1,
    3 * BYTES_PER_TASK + 77,
)


@pytest.mark.sample(3)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shift", [0, 1, 60])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_bulk_copy_writes_exactly_the_target_bytes(size: int, shift: int, count: int) -> None:
    source = np.random.default_rng(size).integers(1, 256, size + shift, np.uint8)
    target = np.zeros(size + 3 * CACHE_LINE_BYTES, np.uint8)
    begin = -target.ctypes.data % CACHE_LINE_BYTES
    with workers(count):
        bulk_copy(size)(source.ctypes.data + shift, target.ctypes.data + begin)
    np.testing.assert_array_equal(target[begin : begin + size], source[shift:])
    assert not target[:begin].any()
    assert not target[begin + size :].any()


def test_device_put_copies_large_numpy_arrays() -> None:
    source = np.random.default_rng(0).standard_normal(9_000_001, np.float32)[1:]
    placed = sd.device_put(source)
    expected = source.copy()
    source[:] = 0
    np.testing.assert_array_equal(placed, expected)
