"""Blocks of memory of any size, copied from any place, and nothing beside them."""

import numpy as np
import pytest

import shardir as sd
from shardir.backends.cpu.threads.bulk_copy import BYTES_PER_TASK, CACHE_LINE_BYTES, bulk_copy
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


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shift", [0, 1, 60])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_bytes_are_copied_and_no_others(size: int, shift: int, count: int) -> None:
    given = np.random.default_rng(size).integers(1, 256, size + shift, np.uint8)
    made = np.zeros(size + 3 * CACHE_LINE_BYTES, np.uint8)
    begin = -made.ctypes.data % CACHE_LINE_BYTES
    with workers(count):
        bulk_copy(size)(given.ctypes.data + shift, made.ctypes.data + begin)
    np.testing.assert_array_equal(made[begin : begin + size], given[shift:])
    assert not made[:begin].any()
    assert not made[begin + size :].any()


def test_large_arrays_of_numpy_are_copied() -> None:
    given = np.random.default_rng(0).standard_normal(9_000_001, np.float32)[1:]
    placed = sd.device_put(given)
    kept = given.copy()
    given[:] = 0
    np.testing.assert_array_equal(placed, kept)
