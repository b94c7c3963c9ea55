"""How large the blocks of a product are, from the caches of a machine.

A panel of rows, packed, fills most of the nearest cache. Some panels of rows, and a stripe of
packed columns that they meet, fill most of the second one.
"""

from typing import NamedTuple

from shardir.backends.cpu.native.contraction.elements import Arithmetic
from shardir.backends.cpu.native.contraction.tile import Tile, fitting
from shardir.backends.cpu.native.llvm.target import Machine

LINES = 2048
"""Rows, and columns, that a block has at most."""
STEPS = 512
"""Steps of the sum that a part has at most: more would not make results any more seldom read."""
WHOLE = 64
"""Steps that parts are multiples of, but for the last."""
LEFT, RIGHT, STAGE = 384 << 10, 2 << 20, 1 << 20
"""Bytes for packed rows, for packed columns, and for results that are not stored yet."""


class Sizes(NamedTuple):
    """What fits where, for one arithmetic."""

    tile: Tile
    steps: int
    rows: int
    columns: int
    stripe: int
    staged: int

    @staticmethod
    def of(numbers: Arithmetic, columns: int, machine: Machine, rows: int = 1) -> "Sizes":
        """Of `steps` of the sum, `rows` are packed at a time, and meet `stripe` columns; a block
        has at most `columns` that it packs by itself, or `staged` numbers.

        A result of few `columns` has narrow tiles. There are so many steps that all `rows` of a
        task (1: nobody knows) are packed at a time, unless these would be too few.
        """
        tile = fitting(numbers, machine, columns <= fitting(numbers, machine).lanes)
        nearest, second = machine.l1_bytes, machine.l2_bytes
        longest = 3 * nearest // 4 // (tile.height * numbers.size) // WHOLE * WHOLE
        steps = min(STEPS, max(4 * WHOLE, longest))
        kept = min(LEFT, 3 * second // 8)
        line = -(-rows // tile.height) * tile.height * numbers.size
        if 4 * WHOLE * line <= kept:
            steps = min(steps, kept // line // WHOLE * WHOLE)
        step = steps * numbers.size
        held = kept // step // tile.height * tile.height
        most = min(LINES, RIGHT // step) // tile.columns * tile.columns
        stripe = max(1, second // 4 // step // tile.columns) * tile.columns
        return Sizes(tile, steps, max(held, tile.height), most, stripe, STAGE // numbers.size)

    @property
    def name(self) -> str:
        """What of them is a part of the kernel."""
        return f"{self.tile.height}x{self.tile.width}_{self.steps}x{self.rows}x{self.stripe}"


def shares(count: int, most: int, step: int) -> int:
    """The size of equal shares of at most `most`; both are multiples of `step`."""
    number = max(1, -(-count // most))
    return max(1, -(-count // number // step)) * step
