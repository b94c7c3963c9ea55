"""The micro-kernel with tile registers (`tile_instructions`)."""

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES
from shardir.backends.cpu.codegen.tile_instructions import (
    TILE_ROW_BYTES,
    TILE_ROWS,
    TileInstruction,
    load_tile,
    store_tile,
    zero_tile,
)
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic, narrow_to_storage
from shardir.backends.cpu.kernels.gemm.microkernel import (
    WRITE_TILE_FUNCTION,
    RegisterTile,
)

ROWS_PER_ITERATION = 4
"""Rows that one iteration of the loop over the rows of the result writes."""
ROWS_PER_BLOCK = 2
"""Rows of the result that are prefetched with each block of K steps."""


def emit_amx_tile(
    module: LLVMModule,
    name: str,
    tile: RegisterTile,
    packed: RegisterTile,
    arith: Arithmetic,
    instruction: TileInstruction,
) -> None:
    """Emit `name(blocks, lhs, rhs, out, offsets, rows, columns, adding)`.

    The function computes a tile as in `emit_tile`, from `blocks` blocks of 16 K groups. The
    configuration of the tile registers has to be loaded.
    """
    params = ["i64", "ptr noalias readonly", "ptr noalias readonly", "ptr noalias",
              "ptr noalias readonly", "i64", "i64", "i1"]  # fmt: skip
    f = add_outlined_function(module, name, params)
    blocks, lhs, rhs, out, offsets, rows, columns, adding = f.params
    high, wide = tile.height // TILE_ROWS, tile.width
    sums = [[i * wide + j for j in range(wide)] for i in range(high)]
    left = [high * wide + i for i in range(high)]
    right = [high * (wide + 1) + j for j in range(wide)]
    row_bytes = packed.columns * arith.size
    for row in sums:
        for each in row:
            zero_tile(f, each)
    line = f.variable("i64", 0)
    with f.loop(0, blocks) as block:
        for i in range(ROWS_PER_BLOCK):
            _prefetch_row(f, out, offsets, line.get() + i, tile.columns * arith.result_bytes)
        line.set(f.umin(line.get() + ROWS_PER_BLOCK, tile.height - ROWS_PER_BLOCK))
        lines = f.offset(lhs, block * (packed.height * TILE_ROW_BYTES))
        groups = f.offset(rhs, block * (TILE_ROWS * row_bytes))
        for j, each in enumerate(right):
            load_tile(f, each, f.offset(groups, j * TILE_ROW_BYTES), row_bytes)
        for i, each in enumerate(left):
            start = f.offset(lines, i * TILE_ROWS * TILE_ROW_BYTES)
            load_tile(f, each, start, TILE_ROW_BYTES)
            for j, other in enumerate(right):
                instruction.emit(f, sums[i][j], each, other)
    buffer = f.variable(f"[{tile.height * row_bytes} x i8]").address
    for i, row in enumerate(sums):
        for j, each in enumerate(row):
            at = i * TILE_ROWS * row_bytes + j * TILE_ROW_BYTES
            store_tile(f, each, f.offset(buffer, at), row_bytes)

    def write_part() -> None:
        some, there = f.umin(rows, tile.height), f.umin(columns, tile.columns)
        f.call(WRITE_TILE_FUNCTION, [buffer, out, offsets, some, there, adding])

    def write_whole(adds: bool) -> None:
        with f.loop(0, tile.height, ROWS_PER_ITERATION) as first:
            for i in range(ROWS_PER_ITERATION):
                row = f.offset(buffer, (first + i) * row_bytes)
                at = f.offset(out, f.load(f.offset(offsets, first + i, "i64"), "i64"))
                _write_row(f, row, at, tile, arith, adds)

    def write_all() -> None:
        if arith.stored:
            write_whole(False)
        else:
            f.if_else(adding, lambda: write_whole(True), lambda: write_whole(False))

    whole = rows.is_("uge", tile.height) & columns.is_("uge", tile.columns)
    f.if_else(whole, write_all, write_part)
    f.ret()


def _prefetch_row(
    f: LLVMFunction, out: LLVMValue, offsets: LLVMValue, row: LLVMValue, nbytes: int
) -> None:
    """Prefetch a row of the result before it is written."""
    start = f.offset(out, f.load(f.offset(offsets, row, "i64"), "i64"))
    for at in range(0, nbytes, CACHE_LINE_BYTES):
        prefetch(f, f.offset(start, at), writing=True)


def _write_row(
    f: LLVMFunction, row: LLVMValue, at: LLVMValue, tile: RegisterTile, arith: Arithmetic,
    adds: bool,
) -> None:  # fmt: skip
    """Write the sums of a row of a tile, or add them to the result."""
    type, nbytes = vector_type(arith.type, tile.columns), tile.columns * arith.size
    sums = f.load(row, type, min(nbytes, CACHE_LINE_BYTES))
    if adds:
        sums = f.load(at, type, arith.size) + sums
    # Tiles have no subnormal sums, which the instruction would flush to zero.
    if arith.stored == "bf16" and f.machine.has("avx512bf16"):
        values = sums.to(vector_type("bfloat", tile.columns), "fptrunc")
        f.store(values, at, arith.result_bytes)
    else:
        f.store(narrow_to_storage(f, sums, arith.stored), at, arith.result_bytes)
