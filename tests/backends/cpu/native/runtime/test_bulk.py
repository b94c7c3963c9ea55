"""Blocks of memory of any size, copied from any place, and nothing beside them."""

import numpy as np
import pytest

import shardir as sd
from shardir.backends.cpu.native.runtime.bulk import EACH, LINE, bulk_copy
from shardir.backends.cpu.native.runtime.workers import workers

SIZES = 1, LINE - 1, LINE, LINE + 1, 1000, EACH - 1, EACH, EACH + 1, 3 * EACH + 77


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shift", [0, 1, 60])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_bytes_are_copied_and_no_others(size: int, shift: int, count: int) -> None:
    given = np.random.default_rng(size).integers(1, 256, size + shift, np.uint8)
    made = np.zeros(size + 3 * LINE, np.uint8)
    begin = -made.ctypes.data % LINE
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
