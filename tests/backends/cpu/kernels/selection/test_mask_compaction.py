"""Selection by masks equals NumPy's for any number of elements and any element size."""

import numpy as np
import pytest

from shardir.backends.cpu.kernels.selection import mask_compaction
from shardir.backends.cpu.kernels.selection.mask_compaction import (
    compile_row_selection,
    true_indices,
)

SIZES = (1, 5, 63, 64, 65, 1000, 3001)
TRUE_FRACTIONS = (0.0, 0.01, 0.5, 0.99, 1.0)


def random_mask(size: int, part: float) -> np.ndarray:
    return np.random.default_rng(size).uniform(size=size) < part


def start_address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def set_piece_size(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(mask_compaction, "MIN_CHUNK_ELEMENTS", size)
    mask_compaction._programs.cache_clear()
    monkeypatch.setattr(mask_compaction, "_programs", mask_compaction._programs.__wrapped__)


def check(size: int, part: float) -> None:
    mask = random_mask(size, part)
    count, block = true_indices(start_address(mask), size)
    found = np.asarray(block)[: 4 * count].view(np.int32)
    np.testing.assert_array_equal(found, np.flatnonzero(mask))
    for dtype in ("u1", "u2", "f4", "f8", "c16"):
        x = np.arange(size).astype(dtype)
        count, block = compile_row_selection(size, x.itemsize)(
            start_address(mask), start_address(x)
        )
        np.testing.assert_array_equal(
            np.asarray(block)[: count * x.itemsize].view(dtype), x[mask], dtype
        )


@pytest.mark.sample(3)
@pytest.mark.parametrize("part", TRUE_FRACTIONS)
@pytest.mark.parametrize("size", SIZES)
def test_selected_elements_and_positions_match_numpy(size: int, part: float) -> None:
    check(size, part)


@pytest.mark.parametrize("part", TRUE_FRACTIONS)
def test_pieces_of_masks_write_adjacent_results(
    monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    set_piece_size(monkeypatch, 64)
    check(3001, part)


@pytest.mark.sample(3)
@pytest.mark.parametrize("width", [3, 12, 24, 100, 128, 200])
@pytest.mark.parametrize("outer", [1, 3, 70])
def test_selected_rows_of_any_size_match_numpy(
    monkeypatch: pytest.MonkeyPatch, outer: int, width: int
) -> None:
    set_piece_size(monkeypatch, 64)
    x = np.random.default_rng(width).integers(0, 256, (outer, 150, width)).astype(np.uint8)
    mask = random_mask(150, 0.4)
    count, block = compile_row_selection(150, width, outer)(start_address(mask), start_address(x))
    found = np.asarray(block)[: outer * count * width].reshape(outer, count, width)
    np.testing.assert_array_equal(found, x[:, mask])
