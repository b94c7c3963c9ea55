"""Block sizes of a product, derived from the cache sizes of a machine.

A packed panel of rows fills most of the L1 cache. Some panels of rows and one stripe of packed
columns fill most of the L2 cache.
"""

from typing import NamedTuple

from shardir.backends.cpu.native.contraction.elements import Arithmetic
from shardir.backends.cpu.native.contraction.tile import Tile, fitting
from shardir.backends.cpu.native.llvm.target import Machine

LINES = 2048
"""Maximum rows, and maximum columns, of a block."""
STEPS = 512
"""Maximum K steps of a part; larger parts would not reduce the traffic of results."""
WHOLE = 64
"""K steps of a part are a multiple of this, except in the last part."""
LEFT, RIGHT, STAGE = 384 << 10, 2 << 20, 1 << 20
"""Scratch bytes for packed rows, for packed columns, and for staged results."""


class Sizes(NamedTuple):
    """The block sizes for one arithmetic."""

    tile: Tile
    steps: int
    rows: int
    columns: int
    stripe: int
    staged: int

    @staticmethod
    def of(arith: Arithmetic, columns: int, machine: Machine, rows: int = 1) -> "Sizes":
        """Return the block sizes: of `steps` K steps, `rows` are packed at a time and multiplied
        with `stripe` columns; a block has at most `columns` columns that it packs itself, or at
        most `staged` elements.

        A result with few `columns` gets narrow tiles. `steps` is chosen so that all `rows` of a
        task (1 if the number is unknown) are packed at a time, unless that leaves too few steps.
        """
        tile = fitting(arith, machine, columns <= fitting(arith, machine).lanes)
        nearest, second = machine.l1_bytes, machine.l2_bytes
        longest = 3 * nearest // 4 // (tile.height * arith.size) // WHOLE * WHOLE
        steps = min(STEPS, max(4 * WHOLE, longest))
        lhs_bytes = min(LEFT, 3 * second // 8)
        line = -(-rows // tile.height) * tile.height * arith.size
        if 4 * WHOLE * line <= lhs_bytes:
            steps = min(steps, lhs_bytes // line // WHOLE * WHOLE)
        step = steps * arith.size
        row_count = lhs_bytes // step // tile.height * tile.height
        most = min(LINES, RIGHT // step) // tile.columns * tile.columns
        stripe = max(1, second // 4 // step // tile.columns) * tile.columns
        return Sizes(tile, steps, max(row_count, tile.height), most, stripe, STAGE // arith.size)

    @property
    def name(self) -> str:
        """The part of the kernel's name that depends on the sizes."""
        return f"{self.tile.height}x{self.tile.width}_{self.steps}x{self.rows}x{self.stripe}"


def shares(count: int, most: int, step: int) -> int:
    """Return the size of equal shares of at most `most`; both are multiples of `step`."""
    number = max(1, -(-count // most))
    return max(1, -(-count // number // step)) * step
