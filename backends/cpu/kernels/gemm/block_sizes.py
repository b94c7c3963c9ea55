"""Block sizes of a product, derived from the cache sizes of a machine.

A packed panel of rows fills most of the L1 cache. Some panels of rows and one stripe of packed
columns fill most of the L2 cache.
"""

from typing import NamedTuple

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic
from shardir.backends.cpu.kernels.gemm.microkernel import RegisterTile, tile_for_columns
from shardir.backends.cpu.kernels.gemm.tuning import (
    MAX_BLOCK_LINES,
    MAX_PART_STEPS,
    MAX_TILE_PART_STEPS,
    PACKED_LHS_BYTES,
    PACKED_RHS_BYTES,
    PART_STEP_MULTIPLE,
    STAGING_BYTES,
)


class BlockSizes(NamedTuple):
    """The block sizes for one arithmetic."""

    tile: RegisterTile
    steps: int
    rows: int
    columns: int
    stripe: int
    staged: int

    @staticmethod
    def of(
        arith: Arithmetic, columns: int, machine: HostDescription, rows: int = 1, inner: int = 1
    ) -> "BlockSizes":
        """Return the block sizes: of `steps` K steps, `rows` are packed at a time and multiplied
        with `stripe` columns; a block has at most `columns` columns that it packs itself, or at
        most `staged` elements.

        A result with few `columns` gets narrow tiles. `steps` is chosen so that all `rows` of a
        task (1 if the number is unknown) are packed at a time, unless that leaves too few steps.
        Tile registers add longer parts of the `inner` K steps, because their results take longer
        to write.
        """
        tile = tile_for_columns(arith, machine, columns)
        nearest, second = machine.l1_bytes, machine.l2_bytes
        longest = (
            3
            * nearest
            // 4
            // (tile.height * arith.operand_bytes)
            // PART_STEP_MULTIPLE
            * PART_STEP_MULTIPLE
        )
        if arith.has_tiles:
            steps = MAX_PART_STEPS if inner <= MAX_PART_STEPS else MAX_TILE_PART_STEPS
        else:
            steps = min(MAX_PART_STEPS, max(4 * PART_STEP_MULTIPLE, longest))
        lhs_bytes = min(PACKED_LHS_BYTES, 3 * second // 8)
        line = -(-rows // tile.height) * tile.height * arith.operand_bytes
        if 4 * PART_STEP_MULTIPLE * line <= lhs_bytes:
            steps = min(steps, lhs_bytes // line // PART_STEP_MULTIPLE * PART_STEP_MULTIPLE)
        step = steps * arith.operand_bytes
        row_count = lhs_bytes // step // tile.height * tile.height
        most = min(MAX_BLOCK_LINES, PACKED_RHS_BYTES // step) // tile.columns * tile.columns
        stripe = max(1, second // 4 // step // tile.columns) * tile.columns
        return BlockSizes(
            tile, steps, max(row_count, tile.height), most, stripe, STAGING_BYTES // arith.size
        )

    def with_longer_parts(self, steps: int) -> "BlockSizes":
        """Return the sizes with fewer packed rows, if parts have more K steps than these sizes."""
        if steps <= self.steps:
            return self
        height = self.tile.height
        return self._replace(rows=max(height, self.rows * self.steps // steps // height * height))

    @property
    def name(self) -> str:
        """The part of the kernel's name that depends on the sizes."""
        return f"{self.tile.height}x{self.tile.width}_{self.steps}x{self.rows}x{self.stripe}"


def equal_share_size(count: int, most: int, step: int) -> int:
    """Return the size of equal shares of at most `most`; both are multiples of `step`."""
    number = max(1, -(-count // most))
    return max(1, -(-count // number // step)) * step
