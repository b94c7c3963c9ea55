"""The state of a task of the packed GEMM kernel: scratch memory, offset tables, packed operands."""

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES
from shardir.backends.cpu.kernel_api import SCRATCH_BYTES_PER_WORKER
from shardir.backends.cpu.kernels.conv.line_copy import LAYOUT_FUNCTION
from shardir.backends.cpu.kernels.conv.patch_access import PatchAccess
from shardir.backends.cpu.kernels.gemm.amx.amx_packing import FILL_FUNCTION
from shardir.backends.cpu.kernels.gemm.block_sizes import BlockSizes
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic
from shardir.backends.cpu.kernels.gemm.offset_tables import OFFSETS_FUNCTION
from shardir.backends.cpu.kernels.gemm.packing import SEGMENT_ENTRY_BYTES, panels_per_cache_line
from shardir.backends.cpu.kernels.gemm.prefetch_stream import PrefetchStream
from shardir.backends.cpu.kernels.gemm.product_record import OutputBlock, RecordReader
from shardir.backends.cpu.kernels.gemm.tuning import (
    MAX_BLOCK_LINES,
    PACKED_LHS_BYTES,
    PACKED_RHS_BYTES,
    STAGING_BYTES,
)
from shardir.ir.types import NUMPY_DTYPES

LINE_TABLES = {"lhs": "rows_lhs", "rhs": "columns_rhs"}
"""The offset table of the lines of each operand."""


class ProductTask:
    """A task in the function `f`; the operands have the element types `dtypes`."""

    def __init__(
        self, f: LLVMFunction, dtypes: dict[str, str], sizes: BlockSizes, arith: Arithmetic,
        checked: PatchAccess,
    ) -> None:  # fmt: skip
        self.f, self.sizes, self.arith, self.checked = f, sizes, arith, checked
        self.dtypes = dtypes
        self.bases, self.words, task, worker = f.params
        self.record = RecordReader(f, self.words)
        self.block = OutputBlock(f, self.record, task)
        at = f.offset(f.load(self.bases, "ptr"), worker * SCRATCH_BYTES_PER_WORKER)
        table = 8 * MAX_BLOCK_LINES
        segments = (SEGMENT_ENTRY_BYTES + 8 * checked.dims) * sizes.steps
        selected_tables = [
            ("selected_rows_lhs", table),
            ("selected_rows_staged", table),
            ("selected_positions", table * checked.dims),
            ("outside_sums", MAX_BLOCK_LINES * arith.size),
        ] * checked.selects_rows
        self.places = {}
        for name, size in (
            ("rows_lhs", table),
            ("rows_staged", table),
            ("rows_out", table),
            ("columns_rhs", table),
            ("columns_out", table),
            ("lhs_segments", segments),
            ("rhs_segments", segments),
            ("lhs", PACKED_LHS_BYTES + 4096),
            ("rhs", PACKED_RHS_BYTES),
            ("stage", STAGING_BYTES),
            ("positions", table * checked.dims),
            *selected_tables,
        ):
            self.places[name] = at
            at = f.offset(at, size)

    def fill_line_tables(self, name: str, first: LLVMValue, count: LLVMValue) -> LLVMValue:
        """Fill the table of line offsets; for patches, also the tables of their positions."""
        f, lists = self.f, {name: self.places[name]}
        for d in range(self.checked.checked_dims_of(name.rpartition("_")[2])):
            lists[f"positions_{d}"] = f.offset(self.places["positions"], d * 8 * MAX_BLOCK_LINES)
        for each, table in lists.items():
            f.call(
                OFFSETS_FUNCTION, [self.words, self.record.list_header(each), table, first, count]
            )
        return self.places[name]

    def line_table(self, name: str) -> LLVMValue:
        """Return a table of the rows that are multiplied in a part of the K steps, or of all
        columns."""
        selected = f"selected_{name}"
        return self.places[selected if selected in self.places else name]

    def pack(
        self,
        side: str,
        base: LLVMValue,
        skipped: LLVMValue,
        lines: LLVMValue,
        first: LLVMValue,
        steps: LLVMValue,
        to: LLVMValue,
    ) -> LLVMValue:
        """Pack `lines` lines of an operand after the first `skipped` lines, for `steps` K steps
        from `first`, or record their addresses if the operand is read in place. Return the number
        of segments."""
        f, dims, tile = self.f, self.checked.checked_dims_of(side), self.sizes.tile
        if self.checked.position_pitch and side == "rhs":
            words, table = self.record.loops("image_layout")[0], self.places["rhs_segments"]
            column = self.block.first_column + skipped
            f.call(LAYOUT_FUNCTION, [to, base, words, table, first, steps, column, lines])
            return f.value(0, "i64")
        if self.arith.has_packed_groups(self.dtypes[side]):
            first, steps = first // 2, steps // 2
        name, segments = f"inner_{side}", self.places[f"{side}_segments"]
        args = [self.words, self.record.list_header(name), segments, first, steps]
        parts = f.call(f"segments_{dims}", args, "i64")
        table = f.offset(self.line_table(LINE_TABLES[side]), skipped, "i64")
        args = [to, base, table, lines, segments, parts]
        if self.arith.has_tiles and side == "lhs":
            positions = f.offset(self.places["positions"], skipped, "i64")
            bounds = self.record.loops("bounds")[0]
            f.call("pack_lines", [*args, self.panel_steps(steps), positions, bounds])
            return parts
        if self.arith.interleaves(self.dtypes[side]):
            f.call("pack_rows", [*args, self.panel_steps(steps), self.stride(name)])
            self._finish_panels(side, to, lines, steps)
            return parts
        straight = self.checked.is_in_place and side == self.checked.side
        if not straight:
            args += [self.panel_steps(steps), self.stride(name)]
        if self.checked.is_patches(side):
            args.append(f.offset(self.line_table("positions"), skipped, "i64"))
            args.append(self.record.loops("bounds")[0])
            f.call(f"starts_{side}" if straight else f"pack_{side}", args)
            self._finish_panels(side, to, lines, steps)
            return parts
        dtype, high = self.dtypes[side], tile.height if side == "lhs" else tile.columns
        several = panels_per_cache_line(high * NUMPY_DTYPES[dtype].itemsize)
        args += [
            f.value(high, "i64"),
            f.value(several, "i64"),
            LLVMValue(f"@pack_contiguous_{side}", "ptr", f),
        ]
        f.call(f"pack_{dtype}", args)
        self._finish_panels(side, to, lines, steps)
        return parts

    def panel_steps(self, steps: LLVMValue) -> LLVMValue:
        """Return the steps of packed panels, which are whole blocks for tile registers."""
        several = self.arith.block_steps
        return steps if several == 1 else (steps + (several - 1)) // several * several

    def _finish_panels(self, side: str, to: LLVMValue, lines: LLVMValue, steps: LLVMValue) -> None:
        """Make groups of the K steps of packed panels, if packing does, and fill whole blocks of
        steps."""
        if self.arith.has_tiles:
            self.f.call(FILL_FUNCTION, [to, lines, steps, self.panel_steps(steps)])
            steps = self.panel_steps(steps)
        tile = self.sizes.tile
        high = tile.height if side == "lhs" else tile.columns
        has_groups = self.arith.has_packed_groups(self.dtypes[side]) or (
            self.checked.is_patches(side) and self.checked.has_pairs
        )
        if self.arith.packs_groups and not has_groups:
            panels = (lines + (high - 1)) // high
            self.f.call(f"interleave_{side}", [to, panels * steps])

    def point_prefetch(
        self,
        stream: PrefetchStream,
        side: str,
        base: LLVMValue,
        line: LLVMValue,
        step_count: LLVMValue,
    ) -> None:
        """Point the prefetch stream at line `line` of an operand, `step_count` steps after the
        steps that were packed last."""
        f, item = self.f, NUMPY_DTYPES[self.dtypes[side]].itemsize
        start = f.load(f.offset(self.line_table(LINE_TABLES[side]), line, "i64"), "i64")
        first = f.load(self.places[f"{side}_segments"], "i64")
        step = self.stride(f"inner_{side}")
        if self.arith.has_packed_groups(self.dtypes[side]):
            step_count = step_count // 2
        at = f.offset(f.offset(base, start), first + step_count * step)
        stream.follow_operand(
            at, step, self.stride(LINE_TABLES[side]), item, self.arith.operand_bytes
        )

    def stride(self, name: str) -> LLVMValue:
        """Return the stride in bytes of the innermost loop of a list."""
        return self.f.load(self.f.offset(self.record.loops(name)[0], 8), "i64")

    def prefetch_tiles_of(self, columns: LLVMValue) -> LLVMValue:
        """Return how many tiles it takes to prefetch `columns` packed columns."""
        return columns * self.arith.operand_bytes // CACHE_LINE_BYTES
