"""Unpacked GEMM: small and skinny products that read both operands in place.

If few rows share a column, or the right operand stays in the L1 cache, packing would cost more than
it saves. The columns of the right operand and of the result must be contiguous; the left operand
may have any strides. A task computes a block of rows and columns, or of many small products.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
)
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES, HostDescription
from shardir.backends.cpu.kernel_api import Kernel
from shardir.backends.cpu.kernels.gemm.product_record import OutputBlock, RecordReader
from shardir.backends.cpu.kernels.gemm.tuning import RHS_PREFETCH_STEPS
from shardir.backends.cpu.kernels.gemm.vector_arithmetic import VectorArithmetic


@cache
def unpacked_gemm_kernel(
    kind: VectorArithmetic, height: int, width: int, ahead: bool = False, last: int = 0
) -> Kernel:
    """Return the kernel for tiles of `height` rows and `width` vectors of columns, and `last`
    vectors (0: `width`) in the last tile.

    `ahead`: prefetch the next rows of the left operand, whose K steps must be contiguous.
    """
    last = last or width
    name = f"unpacked_gemm_{kind.name}_{height}x{width}" + "_ahead" * ahead
    name += f"_last{last}" * (last < width)
    return Kernel(name, lambda machine: _text(machine, name, kind, height, width, ahead, last))


def _text(
    machine: HostDescription,
    name: str,
    kind: VectorArithmetic,
    height: int,
    width: int,
    ahead: bool,
    last: int,
) -> str:
    module = LLVMModule(machine)
    low = max(1, height // 4)
    for each in {height: 0, low: 0}:
        for wide in {width: 0, last: 0}:
            _Strip(module, kind, each, wide, ahead).emit()
    f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    r = RecordReader(f, record)
    block = OutputBlock(f, r, task)
    row_in, row_out = (
        f.load(f.offset(r.loops(name)[0], 8), "i64") for name in ("rows_lhs", "rows_out")
    )
    step_in, step_rhs = (
        f.load(f.offset(r.loops(name)[0], 8), "i64") for name in ("inner_lhs", "inner_rhs")
    )
    inner = r["inner"]
    columns, item = width * kind.lanes, kind.item
    # Rows that fit the L2 cache are multiplied with all columns before the next rows.
    held = f.value(f.machine.l2_bytes // 4, "i64") // (inner * item + 1) // height * height
    some = f.select(held.is_("sgt", height), held, height)
    with (
        block.products(bases) as (lhs, rhs, out, _),
        f.loop(0, block.rows, some) as begin,
        f.loop(0, block.columns, columns) as j,
    ):
        right = f.offset(rhs, (block.first_column + j) * item)
        top, end = f.variable("i64", begin), f.umin(block.rows, begin + some)
        few = (block.columns - j).is_("sle", last * kind.lanes)

        def strip(high: int) -> None:
            left, first = end - top.get(), block.first_row + top.get()
            start = f.offset(lhs, first * row_in)
            to = f.offset(
                f.offset(out, first * row_out), (block.first_column + j) * kind.result_item
            )
            rest = block.columns - j
            args = [inner, start, row_in, step_in, right, step_rhs, to, row_out, rest, left]
            whole, thin = (LLVMValue(f"@strip{high}x{wide}", "ptr", f) for wide in (width, last))
            f.call(str(f.select(few, thin, whole)), args)
            top.set(top.get() + high)

        # Few remaining rows use lower tiles.
        with f.while_(lambda: (end - top.get()).is_("sgt", height // 2)):
            strip(height)
        with f.while_(lambda: top.get().is_("slt", end)):
            strip(low)
    f.ret()
    return module.text()


@dataclass
class _Strip:
    """Emits `strip{height}x{width}(inner, lhs, row, step, rhs, rhs_step, out, out_row, columns,
    rows)`.

    Missing rows repeat the last row and are not stored.
    """

    module: LLVMModule
    kind: VectorArithmetic
    height: int
    width: int
    ahead: bool

    def emit(self) -> None:
        """Emit the function."""
        params = ["i64", "ptr readonly", "i64", "i64", "ptr readonly", "i64", "ptr noalias",
                  "i64", "i64", "i64"]  # fmt: skip
        name = f"strip{self.height}x{self.width}"
        f = add_outlined_function(self.module, name, params)
        columns, lanes = f.params[8], self.kind.lanes
        masks = [self.kind.mask(f, columns - j * lanes) for j in range(self.width)]
        if f.machine.vector_bytes == 64:
            self._sweep(f, masks)
        else:
            whole = columns.is_("uge", lanes * self.width)
            f.if_else(
                whole, lambda: self._sweep(f, [None] * self.width), lambda: self._sweep(f, masks)
            )
        f.ret()

    def _sweep(self, f: LLVMFunction, masks: Sequence[LLVMValue | None]) -> None:
        """Emit all K steps; a mask selects the existing columns, None means all columns exist."""
        inner, lhs, row, step, rhs, rhs_step, out, out_row, _, count = f.params
        kind, lanes = self.kind, self.kind.lanes
        sums = [[kind.new_accumulators(f) for _ in range(self.width)] for _ in range(self.height)]
        rows = [
            f.variable("ptr", f.offset(lhs, row * f.umin(count - 1, i))) for i in range(self.height)
        ]
        right = f.variable("ptr", rhs)

        def one(k: LLVMValue) -> None:
            if self.ahead:
                self._prefetch_next_rows(f, k)
            here = right.get()
            if self.height > 1 and self.width > 2:
                for distance in range(0, lanes * kind.item * self.width, CACHE_LINE_BYTES):
                    prefetch(f, f.offset(f.offset(here, rhs_step * RHS_PREFETCH_STEPS), distance))
            b = [
                kind.read(f, f.offset(here, j * lanes * kind.item), mask)
                for j, mask in enumerate(masks)
            ]
            right.set(f.offset(here, rhs_step))
            for each, places in zip(rows, sums, strict=True):
                where = each.get()
                a = kind.broadcast_element(f, where)
                each.set(f.offset(where, step))
                for column, place in zip(b, places, strict=True):
                    kind.add(f, place, a, [column] * kind.planes)

        # Each of the first steps prefetches one row of the result.
        prefetched_rows = f.umin(inner, self.height)
        with f.loop(0, prefetched_rows) as k:
            start = f.offset(out, out_row * k)
            nbytes = lanes * kind.result_item * self.width
            for distance in (*range(0, nbytes, CACHE_LINE_BYTES), nbytes - 1):
                prefetch(f, f.offset(start, distance), writing=True)
            one(k)
        with f.loop(prefetched_rows, inner) as k:
            one(k)
        for i, places in enumerate(sums):
            with f.when(count.is_("sgt", i)):
                start = f.offset(out, out_row * i)
                for j, (mask, place) in enumerate(zip(masks, places, strict=True)):
                    at = f.offset(start, j * lanes * kind.result_item)
                    kind.write(f, kind.combine_accumulators(f, place), at, mask)

    def _prefetch_next_rows(self, f: LLVMFunction, k: LLVMValue) -> None:
        """Emit a prefetch of one cache line of the rows below per step."""
        lhs, row = f.params[1], f.params[2]
        steps = CACHE_LINE_BYTES // self.kind.item
        below = f.offset(lhs, row * (k % self.height + self.height))
        prefetch(f, f.offset(below, k // steps * CACHE_LINE_BYTES))
