"""Sizes of the tiles of fused products.

A program holds the matrices of its outer side and a few tiles of the inner side in shared memory,
and its sums in registers.
"""

from dataclasses import dataclass

from shardir.backends.gpu.kernels.fused_products.products_group import (
    MIN_PRODUCT_EXTENT,
    ProductsGroup,
)
from shardir.backends.gpu.kernels.tile_sizes import TileSizes, next_power_of_two
from shardir.ir.module import Op, Value
from shardir.ir.types import NUMPY_DTYPES

MAX_SHARED_BYTES = 98 * 1024
"""Maximum shared memory of a program, so that two programs share a multiprocessor of 228 KiB
(sm_90)."""
MAX_SPLIT_SHARED_BYTES = 160 * 1024
"""Maximum shared memory of a program that multiplies f32: sm_80 has 163 KiB."""
MAX_STAGES = 3
"""Maximum tiles of the inner side that are loaded ahead."""
MAX_ELEMENTS_OF_FOUR_WARPS = 24 * 1024
"""Maximum elements of sums and scores in the registers of four warps."""
MAX_SPLIT_ELEMENTS = 4096
"""Maximum elements of a matrix of the inner side in a program that multiplies f32.

The sizes are those of the fastest kernels of 64 and 128 features on an NVIDIA H200.
"""
SPLIT_ITEM_BYTES = 6
"""Bytes in shared memory of an f32, which three bf16 represent (`input_precision="bf16x6"`)."""


@dataclass(frozen=True, slots=True)
class ProductTile:
    """The lengths of a tile, and the options of its kernel."""

    outer: int
    inner: int
    warps: int
    stages: int


def choose_tile(
    group: ProductsGroup, sums: tuple[Op, ...], by_rows: bool, precision: str, sizes: TileSizes
) -> ProductTile | None:
    """Return the tile of the kernel of rows or of columns; `None` if none fits shared memory."""
    nest = group.nest
    loops = (nest.row_loop, nest.column_loop) if by_rows else (nest.column_loop, nest.row_loop)
    item_bytes = _matrix_item_bytes(group, sums, precision)
    item = max(item_bytes.values())
    is_split = item == SPLIT_ITEM_BYTES
    outer_row, inner_row = (
        [
            group.padded_features(value) * size
            for value, size in item_bytes.items()
            if loop in nest.mappings[value]
        ]
        for loop in loops
    )
    outer, inner = (
        max(min(sizes.score_tile_length, next_power_of_two(nest.extents[loop])), MIN_PRODUCT_EXTENT)
        for loop in loops
    )
    programs = nest.extents[loops[0]] * _parallel_size(group, by_rows)
    while outer > 2 * MIN_PRODUCT_EXTENT and 2 * programs // outer < sizes.min_programs:
        outer //= 2
    while is_split and inner > MIN_PRODUCT_EXTENT:
        if inner * max(inner_row) <= MAX_SPLIT_ELEMENTS * SPLIT_ITEM_BYTES:
            break
        inner //= 2
    limit = MAX_SPLIT_SHARED_BYTES if is_split else MAX_SHARED_BYTES

    def count_shared_bytes(stages: int) -> int:
        # Split matrices of the inner side use the same memory one after the other.
        inner_bytes = max(inner_row) if is_split else stages * sum(inner_row)
        return outer * sum(outer_row) + inner * inner_bytes

    while count_shared_bytes(1) > limit:
        if max(outer, inner) == MIN_PRODUCT_EXTENT:
            return None
        if inner >= outer:
            inner //= 2
        else:
            outer //= 2
    stages = 1
    while not is_split and stages < MAX_STAGES and count_shared_bytes(stages + 1) <= limit:
        stages += 1
    features = sum(group.padded_features(nest.scores_and_matrix(op)[1]) for op in sums)
    elements = outer * (features + 2 * inner)
    warps = 4 if elements <= MAX_ELEMENTS_OF_FOUR_WARPS else 8
    return ProductTile(outer, inner, warps, stages)


def _matrix_item_bytes(
    group: ProductsGroup, sums: tuple[Op, ...], precision: str
) -> dict[Value, int]:
    """Return the bytes in shared memory of an element of each matrix."""
    found: dict[Value, int] = {}
    matrices = [value for op in group.nest.score_products for value in op.operands]
    matrices += [group.nest.scores_and_matrix(op)[1] for op in sums]
    for value in matrices:
        stored = group.stored_matrix(value)
        dtype = value.type.dtype if stored.type.dtype == "f16" else stored.type.dtype
        is_split = dtype == "f32" and precision == "ieee"
        item = SPLIT_ITEM_BYTES if is_split else NUMPY_DTYPES[dtype].itemsize
        found[stored] = max(item, found.get(stored, 0))
    return found


def _parallel_size(group: ProductsGroup, by_rows: bool) -> int:
    """Return the number of indices of the batch loops that programs do not loop over."""
    size = 1
    for loop in group.nest.batch_loops if by_rows else group.parallel_loops:
        size *= group.nest.extents[loop]
    return size
