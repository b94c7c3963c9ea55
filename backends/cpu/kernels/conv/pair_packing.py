"""Packs patches of images of 16-bit elements whose K steps are contiguous, as pairs of steps.

The elements of a line are loaded as vectors of pairs, with zeros for those outside of the image,
and squares of lines and pairs are transposed. `im2col` packs elements one by one or as vectors of
lines; its panels have the same order after their steps are interleaved.
"""

from contextlib import nullcontext

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMModule,
    LLVMValue,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES
from shardir.backends.cpu.kernels.gemm.microkernel import masked_load
from shardir.backends.cpu.kernels.gemm.packing import transpose_squares

PACK_PAIRS_FUNCTION = "pack_pairs"
PAIR_BYTES = 4
LINES = CACHE_LINE_BYTES // PAIR_BYTES
"""The lines, and the pairs, of a square."""
STEPS = 2 * LINES


def emit_pack_pairs(module: LLVMModule, lines: int) -> None:
    """Emit `pack_pairs(packed, starts, lows, highs, length)`.

    The function packs `length` steps, an even number, of a panel of `lines` lines. Line i begins at
    `starts[i]`; its elements at steps from `lows[i]` to `highs[i]` (exclusive) are inside the
    image.
    """
    params = ["ptr noalias", "ptr noalias readonly", "ptr noalias readonly", "ptr noalias readonly",
              "i64"]  # fmt: skip
    f = add_outlined_function(module, PACK_PAIRS_FUNCTION, params)
    packed, starts, lows, highs, length = f.params
    many, row = vector_type("i64", LINES), lines * PAIR_BYTES
    masks = f.variable(many)

    def bits_below(table: LLVMValue, k: LLVMValue) -> LLVMValue:
        """Return the bits of the steps, from `k` on, that are before those of a table."""
        count = f.load(table, many, 8) - f.splat(k, LINES)
        count = f.intrinsic("smax", count, f.value(0, many))
        return f.value(1, many) << f.intrinsic("smin", count, f.value(STEPS, many))

    for first in range(0, lines, LINES):
        exist = min(LINES, lines - first)
        some = vector_type("i32", exist)
        with f.loop(0, length, STEPS) as k:
            inside = [f.offset(each, first, "i64") for each in (highs, lows)]
            masks.set(bits_below(inside[0], k) - bits_below(inside[1], k))
            loaded = []
            for i in range(exist):
                start = f.load(f.offset(starts, first + i, "ptr"), "ptr")
                bits = f.load(f.offset(masks.address, i, "i64"), f"i{STEPS}")
                mask = bits.to(vector_type("i1", STEPS), "bitcast")
                type = vector_type("i16", STEPS)
                found = masked_load(f, f.offset(start, k * 2), mask, type, 2)
                loaded.append(found.to(vector_type("i32", LINES), "bitcast"))
            loaded += [f.value(0, vector_type("i32", LINES))] * (LINES - exist)
            at = f.offset(packed, (k >> 1) * row + first * PAIR_BYTES)
            columns = [
                column if exist == LINES else f.shuffle(column, column, range(exist))
                for column in transpose_squares(f, loaded, 1)
            ]
            assert columns[0].type == some

            def store(
                checked: bool,
                columns: list[LLVMValue] = columns,
                at: LLVMValue = at,
                rest: LLVMValue = length - k,
            ) -> None:
                for pair, column in enumerate(columns):
                    with f.when(rest.is_("sgt", 2 * pair)) if checked else nullcontext():
                        f.store(column, f.offset(at, pair * row), PAIR_BYTES)

            whole = (length - k).is_("sge", STEPS)
            f.if_else(whole, lambda: store(False), lambda: store(True))
    f.ret()
