"""Sizes of the tiles of kernels: a fixed table, so that every run computes the same bits.

The values are for recent GPUs (A100, H100, B200): 108 to 148 multiprocessors with 64 Ki registers,
which load 16 bytes per thread and instruction.
"""

from dataclasses import dataclass

WARP_THREADS = 32


@dataclass(frozen=True, slots=True)
class TileSizes:
    """Parameters that determine the sizes of tiles."""

    flat_elements: int = 1024
    """Elements of 4 bytes in a tile of a kernel without reductions."""
    max_row_elements: int = 16384
    """Maximum elements of a row held in registers, summed over the loaded tensors."""
    row_step_elements: int = 4096
    """Elements of longer rows per loop iteration."""
    max_shared_row_elements: int = 128
    """Maximum length of a row that shares a tile with other rows."""
    short_rows_tile_elements: int = 1024
    """Elements of a tile of short rows."""
    tile_columns: int = 64
    """Columns that a program reduces together."""
    min_column_bytes: int = 64
    """Minimum bytes of the columns of a tile, for coalesced loads."""
    row_step_of_columns: int = 32
    """Rows of a tile of columns per loop iteration."""
    max_column_elements: int = 128
    """Maximum length of a column held in registers."""
    min_programs: int = 264
    """Fewer programs leave multiprocessors idle: long reductions are then split into parts."""
    min_steps_per_part: int = 4
    """Minimum loop iterations per part of a split reduction."""
    max_sequential_elements: int = 1 << 20
    """Maximum elements that a program processes sequentially if there are few programs."""
    score_tile_length: int = 64
    """Maximum length of a side of a tile of scores."""
    min_row_programs: int = 32
    """Fewer programs that compute long rows one after the other are slower than torch."""


def next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least `number`."""
    return 1 << max(number - 1, 0).bit_length()


def ceil_divide(number: int, by: int) -> int:
    return -(-number // by)


def count_warps(elements: int, each: int = 8) -> int:
    """Return the number of warps for a tile with `each` elements per thread."""
    return min(max(elements // (each * WARP_THREADS), 1), 16)
