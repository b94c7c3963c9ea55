"""What masks choose is what NumPy chooses, of any number of elements and bytes."""

import numpy as np
import pytest

from shardir.backends.cpu.kernels.selection import mask_compaction
from shardir.backends.cpu.kernels.selection.mask_compaction import (
    compile_row_selection,
    true_indices,
)

SIZES = (1, 5, 63, 64, 65, 1000, 3001)
PARTS = (0.0, 0.01, 0.5, 0.99, 1.0)


def mask_of(size: int, part: float) -> np.ndarray:
    return np.random.default_rng(size).uniform(size=size) < part


def start(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def pieces_are(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(mask_compaction, "MIN_CHUNK_ELEMENTS", size)
    mask_compaction._programs.cache_clear()
    monkeypatch.setattr(mask_compaction, "_programs", mask_compaction._programs.__wrapped__)


def check(size: int, part: float) -> None:
    mask = mask_of(size, part)
    count, block = true_indices(start(mask), size)
    found = np.asarray(block)[: 4 * count].view(np.int32)
    np.testing.assert_array_equal(found, np.flatnonzero(mask))
    for dtype in ("u1", "u2", "f4", "f8", "c16"):
        x = np.arange(size).astype(dtype)
        count, block = compile_row_selection(size, x.itemsize)(start(mask), start(x))
        np.testing.assert_array_equal(
            np.asarray(block)[: count * x.itemsize].view(dtype), x[mask], dtype
        )


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("size", SIZES)
def test_elements_and_places(size: int, part: float) -> None:
    check(size, part)


@pytest.mark.parametrize("part", PARTS)
def test_pieces_of_masks_write_side_by_side(monkeypatch: pytest.MonkeyPatch, part: float) -> None:
    pieces_are(monkeypatch, 64)
    check(3001, part)


@pytest.mark.parametrize("width", [3, 12, 24, 100, 128, 200])
@pytest.mark.parametrize("outer", [1, 3, 70])
def test_rows_of_any_number_of_bytes(
    monkeypatch: pytest.MonkeyPatch, outer: int, width: int
) -> None:
    pieces_are(monkeypatch, 64)
    x = np.random.default_rng(width).integers(0, 256, (outer, 150, width)).astype(np.uint8)
    mask = mask_of(150, 0.4)
    count, block = compile_row_selection(150, width, outer)(start(mask), start(x))
    found = np.asarray(block)[: outer * count * width].reshape(outer, count, width)
    np.testing.assert_array_equal(found, x[:, mask])
