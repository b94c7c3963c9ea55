"""The product of two matrices of bf16 with the tile registers of AMX (`tile_instructions`), which
kernels of fused products call.

Rows of the left matrix have 32 contiguous steps each, and rows of the right one hold pairs of
adjacent steps. All extents are rounded up to tiles: matrices continue with zeros along the steps,
and with any values along rows and columns. A block of 32 by 32 sums uses all eight tiles.
"""

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
)
from shardir.backends.cpu.codegen.tile_instructions import (
    TILE_INSTRUCTIONS,
    TILE_ROW_BYTES,
    TILE_ROWS,
    load_tile,
    store_tile,
    zero_tile,
)

BLOCK_TILES = 2
"""Tiles along the rows and along the columns of a block of sums."""
BLOCK_EXTENT = BLOCK_TILES * TILE_ROWS
"""Rows and columns of a block, to which rows, columns and steps are rounded up."""
_NAME = "tile_register_product"


class AmxProduct:
    """The function `left @ right` of a module, for `BLOCK_EXTENT` columns. The configuration of the
    tile registers has to be loaded."""

    def __init__(self, module: LLVMModule) -> None:
        params = ["ptr", "i64", "i64", "ptr", "i64", "i64", "ptr", "i64", "i64", "i64"]
        self.emit(add_outlined_function(module, _NAME, params))

    def call(
        self,
        f: LLVMFunction,
        left: tuple[LLVMValue, LLVMValue | int, LLVMValue | int],
        right: tuple[LLVMValue, LLVMValue | int],
        result: tuple[LLVMValue, LLVMValue | int],
        rows: LLVMValue,
        steps: LLVMValue,
        adds: bool,
    ) -> None:
        """Emit a call, as `TileProduct.call` for pairs. The stride of steps of `left` is that of
        blocks of 16 pairs, divided by 16."""
        given = (*left, *right, steps, *result, rows, int(adds))
        f.call(_NAME, [f.value(each, "i64") for each in given])

    def emit(self, f: LLVMFunction) -> None:
        left, left_row, _, _, _, _, result, result_row, rows, adds = f.params
        tiles = range(BLOCK_TILES)
        sums = [[i * BLOCK_TILES + j for j in tiles] for i in tiles]
        with f.loop(0, rows, BLOCK_EXTENT) as first:
            block = f.offset(result, first * result_row)
            places = [
                (each, f.offset(block, result_row * (i * TILE_ROWS) + j * TILE_ROW_BYTES))
                for i, row in enumerate(sums)
                for j, each in enumerate(row)
            ]

            def load(places: list[tuple[int, LLVMValue]] = places) -> None:
                for each, place in places:
                    load_tile(f, each, place, result_row)

            def zero() -> None:
                for each in range(BLOCK_TILES * BLOCK_TILES):
                    zero_tile(f, each)

            f.if_else(adds.is_("ne", 0), load, zero)
            self.add_products(f, f.offset(left, first * left_row), sums)
            for each, place in places:
                store_tile(f, each, place, result_row)
        f.ret()

    def add_products(self, f: LLVMFunction, left: LLVMValue, sums: list[list[int]]) -> None:
        """Add the products of all steps to the tiles of a block."""
        _, left_row, left_step, right, right_row, steps, *_ = f.params
        first = BLOCK_TILES * BLOCK_TILES
        lefts = range(first, first + BLOCK_TILES)
        rights = range(first + BLOCK_TILES, first + 2 * BLOCK_TILES)
        left_at, right_at = f.variable("ptr", left), f.variable("ptr", right)
        with f.loop(0, steps, TILE_ROWS):
            for j, each in enumerate(rights):
                load_tile(f, each, f.offset(right_at.get(), j * TILE_ROW_BYTES), right_row)
            for i, each in enumerate(lefts):
                load_tile(f, each, f.offset(left_at.get(), left_row * (i * TILE_ROWS)), left_row)
                for j, other in enumerate(rights):
                    TILE_INSTRUCTIONS["bf16"].emit(f, sums[i][j], each, other)
            left_at.set(f.offset(left_at.get(), left_step * TILE_ROWS))
            right_at.set(f.offset(right_at.get(), right_row * TILE_ROWS))
