"""The order in which a transpose computes tiles whose columns and rows conflict.

A tile reads a cache line of some columns of the source, and writes a cache line of some rows of the
target. If these are at distances near a multiple of a power of two, their lines map to the same few
sets of the caches and banks of the memory. The tiles of a strip of columns are therefore computed
together, but each group of them some steps behind the group to its left, so that they read and
write different positions of their columns and rows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue


class SkewedOrder(NamedTuple):
    """The parameters of an order."""

    columns: int
    """Columns of a strip."""
    group: int
    """Adjacent tiles that are in the same rows at the same time."""
    delay: int
    """Tiles along the rows by which a group is behind the one to its left."""


class SkewedTile(NamedTuple):
    """The first row and column of a tile, and the row where it would begin without the overlap of
    the last tile along the rows."""

    row: LLVMValue
    column: LLVMValue
    number: LLVMValue


@contextmanager
def each_skewed_tile(
    f: LLVMFunction,
    order: SkewedOrder,
    shape: tuple[int, int],
    rows: LLVMValue,
    columns: tuple[LLVMValue, LLVMValue],
) -> Iterator[SkewedTile]:
    """Run the block for each tile of `shape` that `rows` and `columns`, from the first to the end,
    contain.

    Tiles at the end of rows or columns overlap those before them. In a strip, the steps of a tile
    are in order, and a step of the next tile is before the next step of this one.
    """
    (side, width), (first_column, end) = shape, columns
    steps = (rows + (side - 1)) // side
    strip = max(order.columns // width, 1) * width
    with f.loop(first_column, end, strip) as start:
        tiles = (f.umin(end - start, strip) + (width - 1)) // width
        last = steps + (tiles - 1) // order.group * order.delay
        with f.loop(0, last) as time, f.loop(0, tiles) as place:
            index = tiles - 1 - place
            step = time - index // order.group * order.delay
            with f.when(step.is_("ult", steps)):
                number = step * side
                column = f.umin(start + index * width, end - width)
                yield SkewedTile(f.umin(number, rows - side), column, number)
