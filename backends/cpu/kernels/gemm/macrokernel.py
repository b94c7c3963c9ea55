"""The macro-kernel of the packed GEMM: the loops of a task around the micro-kernel.

Rows are packed one panel at a time, just before the first tile of the panel, and columns in groups,
just before their first tiles. Meanwhile tiles prefetch what is packed next. Sums whose elements are
not contiguous in the result are staged in scratch memory, and `unstage` stores them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMModule,
    LLVMValue,
    StackVariable,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.codegen.tile_instructions import TILE_ROW_BYTES
from shardir.backends.cpu.kernels.conv.implicit_gemm_lhs import starts_per_panel
from shardir.backends.cpu.kernels.conv.row_selection import clear_sums, select_rows
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic, narrow_to_storage
from shardir.backends.cpu.kernels.gemm.microkernel import RegisterTile, tile_variants
from shardir.backends.cpu.kernels.gemm.prefetch_stream import PrefetchStream
from shardir.backends.cpu.kernels.gemm.product_task import ProductTask
from shardir.ir.types import NUMPY_DTYPES

UNSTAGE_FUNCTION = "unstage"


def emit_output_block(task: ProductTask) -> None:
    """Emit the computation of a block of the result; a block without rows packs for later tasks."""
    f, r, block = task.f, task.record, task.block
    staged = r["staged"].is_("ne", 0)
    task.fill_line_tables("rows_lhs", block.first_row, block.rows)
    # Columns that are not staged are contiguous in the result.
    count = f.select(staged, block.columns, 1)
    columns_out = task.fill_line_tables("columns_out", block.first_column, count)
    if not task.checked.position_pitch:
        task.fill_line_tables("columns_rhs", block.first_column, block.columns)
    task.fill_line_tables("rows_staged", block.first_row, block.rows)
    with block.products(task.bases) as (lhs, rhs, out, packed):
        start = f.offset(out, f.load(columns_out, "i64"))
        place = f.select(staged, task.places["stage"], start)
        _OutputBlockEmitter(task, lhs, rhs, packed, place).emit()
        with f.when(staged):
            rows_out = task.fill_line_tables("rows_out", block.first_row, block.rows)
            tables = [rows_out, columns_out, block.rows, block.columns, r["block_columns"]]
            f.call(UNSTAGE_FUNCTION, [out, task.places["stage"], *tables])


class _OutputBlockEmitter:
    """Emits the sums of a block of one product, for given operands and result address."""

    def __init__(
        self, task: ProductTask, lhs: LLVMValue, rhs: LLVMValue, packed: LLVMValue, place: LLVMValue
    ) -> None:
        self.task, self.lhs, self.rhs, self.packed, self.place = task, lhs, rhs, packed, place
        f, r = task.f, task.record
        self.rows = task.block.rows
        """The number of rows that are multiplied in a part of the K steps."""
        self.here = r["packed_slot"].is_("eq", 0)
        self.packs = self.here | r["packing"].is_("ne", 0)
        self.held = r["packed_rows"]
        # Packed columns are kept if further rows are multiplied with them.
        self.kept = ~self.here | task.block.rows.is_("sgt", self.held)
        self.prefetch_streams = {
            side: PrefetchStream(f, task.places["rhs"]) for side in ("lhs", "rhs")
        }
        self.parts = {side: f.variable("i64", 0) for side in ("lhs", "rhs")}
        self.prefetched_tiles, self.tiles_to_prefetch = f.variable("i64"), f.variable("i64")

    def emit(self) -> None:
        """Emit the loop over the parts of the K steps."""
        task, f, r, block = self.task, self.task.f, self.task.record, self.task.block
        if task.checked.selects_rows:
            clear_sums(task, self.place)
        size, inner = task.arith.packing.size, r["inner"]
        # A sum of no steps is zero: the first part runs even if it is empty.
        after, first = f.variable("i64", 0), f.variable("i64", 0)
        with f.while_(lambda: after.get().is_("eq", 0) | first.get().is_("slt", inner)):
            now = first.get()
            steps = f.umin(inner - now, r["steps"])
            taken = block.first_column * task.panel_steps(steps)
            at = (now * r["panel_columns"] + taken) * size
            right = f.select(self.here, task.places["rhs"], f.offset(self.packed, at))
            if task.checked.selects_rows:
                with select_rows(task, now, steps, self.place).passes() as self.rows:
                    self._all_rows(now, steps, right)
            else:
                self._all_rows(now, steps, right)
            after.set(1)
            first.set(now + r["steps"])

    def _all_rows(self, now: LLVMValue, steps: LLVMValue, right: LLVMValue) -> None:
        """Emit the products of all rows of a part of the K steps."""
        # A block without rows still packs its columns.
        rows = self.task.f.select(self.rows.is_("eq", 0), 1, self.rows)
        with self.task.f.loop(0, rows, self.held) as top:
            self._rows(now, steps, right, top)

    def _rows(self, now: LLVMValue, steps: LLVMValue, right: LLVMValue, top: LLVMValue) -> None:
        """Emit the products of some rows, starting at `top`, with each group of columns."""
        task, f, r, block = self.task, self.task.f, self.task.record, self.task.block
        count = f.umin(self.rows - top, self.held)
        packing, last = self.packs & top.is_("eq", 0), count.is_("eq", self.rows - top)
        with f.loop(0, block.columns, r["packed_columns"]) as begin:
            end = f.umin(block.columns, begin + r["packed_columns"])
            taken = begin * task.panel_steps(steps) * task.arith.packing.size
            place = f.select(self.kept, taken, 0)
            group = f.offset(right, place)
            with f.when(packing):
                args = begin, end - begin, now, steps, group
                self.parts["rhs"].set(task.pack("rhs", self.rhs, *args))
            final = end.is_("eq", block.columns)
            self._prefetch_columns(steps, right, end, final, packing & ~final | last & final)
            if task.checked.is_patches("lhs"):
                with f.when(begin.is_("eq", 0)):
                    self._pack_rows(top, count, now, steps, task.places["lhs"])
            self._tiles(now, steps, group, (top, count), (begin, end))

    def _prefetch_columns(
        self,
        steps: LLVMValue,
        right: LLVMValue,
        end: LLVMValue,
        final: LLVMValue,
        source: LLVMValue,
    ) -> None:
        """Set up the prefetch of the columns after `end`, or of the first columns after the last
        group: from the operand if `source` is set, otherwise from the packed copy."""
        task, f = self.task, self.task.f
        column = f.select(final, 0, end)
        some = f.umin(task.block.columns - column, task.record["packed_columns"])
        self.prefetched_tiles.set(0)
        if task.checked.position_pitch:  # The NCHW layout copies all columns together.
            self.tiles_to_prefetch.set(0)
            return
        self.tiles_to_prefetch.set(
            f.select(source & self.packs | self.kept, task.prefetch_tiles_of(some), 0)
        )

        def from_operand() -> None:
            task.point_prefetch(
                self.prefetch_streams["rhs"], "rhs", self.rhs, column, f.select(final, steps, 0)
            )

        def from_packed() -> None:
            length = task.panel_steps(steps)
            at = f.offset(right, column * length * task.arith.packing.size)
            self.prefetch_streams["rhs"].follow_packed(at, length)

        f.if_else(source & self.packs, from_operand, from_packed)

    def _pack_rows(
        self, row: LLVMValue, count: LLVMValue, now: LLVMValue, steps: LLVMValue, to: LLVMValue
    ) -> None:
        self.parts["lhs"].set(self.task.pack("lhs", self.lhs, row, count, now, steps, to))

    def _tiles(
        self, now: LLVMValue, steps: LLVMValue, right: LLVMValue, rows: tuple[LLVMValue, LLVMValue],
        columns: tuple[LLVMValue, LLVMValue],
    ) -> None:  # fmt: skip
        """Emit the tiles of some rows (first, count) and columns (begin, end)."""
        task, f, tile = self.task, self.task.f, self.task.sizes.tile
        size = task.arith.packing.size
        plane = task.arith.operand_bytes // task.arith.planes
        (top, count), (start, stop) = rows, columns
        low, block = tile_variants(tile)[-1].height, task.block
        panel_steps = task.panel_steps(steps)
        # A panel of rows stays in the L1 cache while columns stream from the L2 cache.
        with f.loop(start, stop, task.sizes.stripe) as begin, self._panels(count) as found:
            panel, place, here = found
            left = f.offset(task.places["lhs"], place * panel_steps * size)
            if not task.checked.is_patches("lhs"):
                with f.when(begin.is_("eq", 0)):
                    self._pack_rows(top + panel, here, now, steps, left)
            # Prefetch the next rows: in the first stripe the rows below, afterwards the next block
            # of rows.
            row = f.select(begin.is_("eq", 0), top + panel + here, top + count)
            over = row.is_("sge", self.rows)
            line, step_count = f.select(over, 0, row), f.select(over, steps, 0)
            task.point_prefetch(self.prefetch_streams["lhs"], "lhs", self.lhs, line, step_count)
            high = f.select(here.is_("sgt", low), min(2 * low, tile.height), low)
            high = f.select(here.is_("sgt", 2 * low), tile.height, high)
            end = f.umin(stop, begin + task.sizes.stripe)
            for_rows = begin.is_("eq", 0) | stop.is_("eq", block.columns)
            with f.loop(0, here, high) as row:
                column = f.variable("i64", begin)
                with f.while_(lambda: column.get().is_("slt", end)):
                    j = column.get()
                    rest = block.columns - j
                    called, wide = self._select_tile(high, rest)
                    inside = (j - start) % tile.columns
                    at = (j - start - inside) * panel_steps * size + inside * plane
                    packed = f.offset(right, at)
                    offsets = f.offset(task.line_table("rows_staged"), top + panel + row, "i64")
                    adding = now.is_("ne", 0)
                    if task.checked.selects_rows:
                        adding = f.value(1, "i1")
                    result = f.offset(self.place, j * task.arith.result_bytes)
                    out = [result, offsets, here - row, rest, adding]
                    part = row * (TILE_ROW_BYTES if task.arith.has_tiles else plane)
                    if task.checked.position_pitch:
                        planes = f.offset(right, (j - start) * task.arith.plane_bytes)
                        table = task.places["rhs_segments"]
                        prefetch_args = self._prefetch_arguments(for_rows & j.is_("eq", begin))
                        args = [steps, f.offset(left, part), planes, table, *prefetch_args, *out]
                    elif task.checked.is_indirect:
                        prefetch_args = self._prefetch_arguments(f.value(0, "i1"))
                        line = (panel + row) * task.arith.size
                        args = [steps, task.places["lhs"], line, packed, *prefetch_args, *out]
                    elif task.checked.is_in_place:
                        parts = self.parts["lhs"].get()
                        each = f.value(8 * starts_per_panel(tile.height), "i64") * parts
                        starts = place // tile.height * each + row * 8
                        starts = f.offset(task.places["lhs"], starts)
                        has_next = (panel + here).is_("slt", count)
                        later = f.offset(starts, f.select(has_next, each, 0))
                        args = [parts, task.places["lhs_segments"], starts, later, packed, *out]
                    elif task.arith.has_tiles:
                        blocks = panel_steps // task.arith.block_steps
                        args = [blocks, f.offset(left, part), packed, *out]
                    else:
                        prefetch_args = self._prefetch_arguments(for_rows & j.is_("eq", begin))
                        count = steps // 2 if task.arith.packs_groups else steps
                        args = [count, f.offset(left, part), packed, *prefetch_args, *out]
                    f.call(str(called), args)
                    column.set(j + wide)

    @contextmanager
    def _panels(self, count: LLVMValue) -> Iterator[tuple[LLVMValue, LLVMValue, LLVMValue]]:
        """Emit the body in a loop over panels of `count` rows; yield the first row of the panel,
        its position in packed rows, and its height.

        If a full panel would leave a low remainder, for which the columns would be reread too
        often, the last two panels are balanced.
        """
        f, height = self.task.f, self.task.sizes.tile.height
        some = 2 * tile_variants(self.task.sizes.tile)[-1].height
        row, place = f.variable("i64", 0), f.variable("i64", 0)
        with f.while_(lambda: row.get().is_("slt", count)):
            now = row.get()
            rest = count - now
            here = f.umin(rest, height)
            if not self.task.checked.is_patches("lhs") or self.task.checked.is_indirect:
                two = rest.is_("sgt", height) & rest.is_("sle", 2 * some)
                here = f.select(two, some, here)
            yield now, place.get(), here
            row.set(now + here)
            place.set(place.get() + height)

    def _prefetch_arguments(self, for_rows: LLVMValue) -> list[LLVMValue]:
        """Return the prefetch arguments of a tile: rows, or further columns; pace 0 if none are
        left."""
        f, prefetched_tiles = self.task.f, self.prefetched_tiles.get()
        more = prefetched_tiles.is_("slt", self.tiles_to_prefetch.get())
        of_rows = self.prefetch_streams["lhs"].arguments_of_tile(f.value(0, "i64"))
        if self.task.checked.position_pitch:
            of_columns = of_rows
        else:
            of_columns = self.prefetch_streams["rhs"].arguments_of_tile(
                f.select(more, prefetched_tiles, 0)
            )
        self.prefetched_tiles.set(prefetched_tiles + f.select(for_rows, 0, 1))
        start, *paces = (f.select(for_rows, a, b) for a, b in zip(of_rows, of_columns, strict=True))
        return [start, *(f.select(for_rows | more, pace, 0) for pace in paces)]

    def _select_tile(self, high: LLVMValue, rest: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        """Select the tile function for `high` rows and `rest` remaining columns; return it and its
        width."""
        f, tile = self.task.f, self.task.sizes.tile
        whole, *parts = tile_variants(tile)
        found, wide = (
            LLVMValue(f"@{tile_function_name(whole)}", "ptr", f),
            f.value(whole.columns, "i64"),
        )
        for part in parts:
            fits = high.is_("eq", part.height)
            if part.columns < tile.columns:
                fits = fits & rest.is_("sle", part.columns)
                wide = f.select(fits, part.columns, wide)
            found = f.select(fits, LLVMValue(f"@{tile_function_name(part)}", "ptr", f), found)
        return found, wide


def tile_function_name(part: RegisterTile) -> str:
    """Return the name of the function that computes such a tile."""
    return f"tile{part.height}x{part.columns}"


def emit_unstage(module: LLVMModule, dtype: str, arith: Arithmetic) -> None:
    """Emit `unstage(out, stage, rows, columns, row_count, column_count, width)`: store the sums.

    Columns are stored in runs: columns that are contiguous in the result as vectors if the run is
    long enough, other columns row by row.
    """
    params = ["ptr noalias", "ptr noalias readonly", "ptr noalias readonly",
              "ptr noalias readonly", "i64", "i64", "i64"]  # fmt: skip
    f = add_outlined_function(module, UNSTAGE_FUNCTION, params)
    out, stage, rows, columns, row_count, column_count, width = f.params
    item, lanes = NUMPY_DTYPES[dtype].itemsize, 64 // arith.plane_bytes
    done = f.variable("i64", 0)

    def column_at(j: LLVMValue) -> LLVMValue:
        return f.load(f.offset(columns, j, "i64"), "i64")

    def has_neighbour(j: LLVMValue, end: LLVMValue) -> LLVMValue:
        """Return whether the next column, before the end, is adjacent to this one."""
        return column_at(f.umin(j + 1, end - 1)).is_("eq", column_at(j) + item)

    def number(i: LLVMValue, j: LLVMValue, count: int) -> LLVMValue:
        type = vector_type(arith.type, count * arith.planes)
        return f.load(f.offset(stage, (i * width + j) * arith.size), type, arith.plane_bytes)

    def store(value: LLVMValue, i: LLVMValue, j: LLVMValue) -> None:
        row = f.offset(out, f.load(f.offset(rows, i, "i64"), "i64"))
        at = f.offset(row, column_at(j))
        f.store(narrow_to_storage(f, value, dtype), at, item // arith.planes)

    def run(first: LLVMValue, last: LLVMValue, count: int) -> None:
        with f.loop(0, row_count) as i, f.loop(first, last, count) as next:
            j = next if count == 1 else f.umin(next, last - count)
            store(number(i, j, count), i, j)

    with f.while_(lambda: done.get().is_("slt", column_count)):
        first, end = done.get(), column_count
        joined = has_neighbour(first, end)
        last = f.variable("i64", first + 1)

        def goes_on(
            last: StackVariable = last, end: LLVMValue = end, joined: LLVMValue = joined
        ) -> LLVMValue:
            at = f.umin(last.get() - joined.to("i64", "zext"), end - 1)
            return last.get().is_("slt", end) & has_neighbour(at, end).is_("eq", joined)

        with f.while_(goes_on):
            last.set(last.get() + 1)
        stop = last.get()
        f.if_else(
            joined & (stop - first).is_("sge", lanes),
            lambda: run(first, stop, lanes),
            lambda: run(first, stop, 1),
        )
        done.set(stop)
    f.ret()
