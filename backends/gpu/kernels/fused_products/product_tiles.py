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

MAX_SHARED_BYTES = 96 * 1024
"""Shared memory of a program, so that two programs share a multiprocessor of 228 KiB (sm_90)."""
MAX_STAGES = 3
"""Maximum tiles of the inner side that are loaded ahead."""
MAX_ELEMENTS_OF_FOUR_WARPS = 16 * 1024
"""Maximum elements of sums and scores in the registers of four warps."""


@dataclass(frozen=True, slots=True)
class ProductTile:
    """The lengths of a tile, and the options of its kernel."""

    outer: int
    inner: int
    warps: int
    stages: int


def choose_tile(
    group: ProductsGroup, sums: tuple[Op, ...], by_rows: bool, sizes: TileSizes
) -> ProductTile | None:
    """Return the tile of the kernel of rows or of columns; `None` if none fits shared memory."""
    nest = group.nest
    loops = (nest.row_loop, nest.column_loop) if by_rows else (nest.column_loop, nest.row_loop)
    matrices = {value for op in nest.score_products for value in op.operands}
    matrices |= {nest.scores_and_matrix(op)[1] for op in sums}
    matrices = {group.first_params[value] for value in matrices}
    outer_bytes, inner_bytes = (_row_bytes(group, matrices, loop) for loop in loops)
    item = max(NUMPY_DTYPES[value.type.dtype].itemsize for value in matrices)
    first = sizes.score_tile_bytes // item
    outer, inner = (
        max(min(first, next_power_of_two(nest.extents[loop])), MIN_PRODUCT_EXTENT) for loop in loops
    )
    programs = nest.extents[loops[0]] * _parallel_size(group, by_rows)
    while outer > 2 * MIN_PRODUCT_EXTENT and 2 * programs // outer < sizes.min_programs:
        outer //= 2

    def count_shared_bytes(stages: int) -> int:
        return outer * outer_bytes + stages * inner * inner_bytes + outer * inner * item

    while count_shared_bytes(1) > MAX_SHARED_BYTES:
        if max(outer, inner) == MIN_PRODUCT_EXTENT:
            return None
        if inner >= outer:
            inner //= 2
        else:
            outer //= 2
    stages = max(
        n for n in range(1, MAX_STAGES + 1) if n == 1 or count_shared_bytes(n) <= MAX_SHARED_BYTES
    )
    features = sum(group.padded_features(nest.scores_and_matrix(op)[1]) for op in sums)
    elements = outer * (features + 2 * inner) * max(item // 4, 1)
    return ProductTile(outer, inner, 4 if elements <= MAX_ELEMENTS_OF_FOUR_WARPS else 8, stages)


def _row_bytes(group: ProductsGroup, matrices: set[Value], loop: int) -> int:
    """Return the bytes of one row of all matrices that lie along a loop."""
    return sum(
        group.padded_features(value) * NUMPY_DTYPES[value.type.dtype].itemsize
        for value in matrices
        if loop in group.nest.mappings[value]
    )


def _parallel_size(group: ProductsGroup, by_rows: bool) -> int:
    """Return the number of indices of the batch loops that programs do not loop over."""
    size = 1
    for loop in group.nest.batch_loops if by_rows else group.parallel_loops:
        size *= group.nest.extents[loop]
    return size
