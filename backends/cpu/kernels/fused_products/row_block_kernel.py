"""The kernel of fused products: it computes the scores of a block of rows, and their sums.

The rows of a block are the lanes of vectors, so that reductions over columns need no operation
between lanes, and all products read both of their matrices in the order of memory, or after copying
the rows of the block only. A task computes all row blocks of one index of the batch loops; if there
are no row sums, it computes one row block.
"""

from contextlib import ExitStack

from shardir.backends.cpu.codegen.dot_product_instructions import BF16_PAIRS
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.codegen.tile_instructions import configure_tiles, release_tiles
from shardir.backends.cpu.kernels.elementwise import accumulators
from shardir.backends.cpu.kernels.elementwise.math_inlining import MAX_INLINED_FUNCTIONS
from shardir.backends.cpu.kernels.elementwise.phase_record import (
    KERNEL_ATTRIBUTES,
    KERNEL_PARAMS,
)
from shardir.backends.cpu.kernels.fused_products.amx_product import BLOCK_EXTENT, AmxProduct
from shardir.backends.cpu.kernels.fused_products.row_block import MatrixPlace, RowBlock
from shardir.backends.cpu.kernels.fused_products.row_block_record import RowBlockShape
from shardir.backends.cpu.kernels.fused_products.score_passes import (
    COLUMN,
    FIRST_BATCH,
    ROW,
    ScorePass,
)
from shardir.backends.cpu.kernels.fused_products.score_values import ScoreValues
from shardir.backends.cpu.kernels.fused_products.tile_product import TileProduct
from shardir.backends.cpu.kernels.fused_products.visible_columns import VisibleColumns
from shardir.backends.cpu.kernels.math import library, registers

PAIR = "u32"
"""The type of elements as which pairs of bf16 are copied."""
COLUMNS_PER_CHUNK = 64
"""Columns that are computed while their scores are in the first-level cache."""


def emit_row_block_kernel(shape: RowBlockShape, name: str, machine: HostDescription) -> LLVMModule:
    """Return the module of a kernel."""
    functions = sum(
        library.symbol_of_op(step.op, "f32") is not None for step in shape.steps.body.steps
    )
    module = LLVMModule(machine, inlined=functions <= MAX_INLINED_FUNCTIONS)
    f = LLVMFunction(module, name, KERNEL_PARAMS, attributes=KERNEL_ATTRIBUTES)
    _RowBlockEmitter(shape, f).emit()
    f.ret()
    return module


class _RowBlockEmitter:
    """Emits the kernel of one shape."""

    def __init__(self, shape: RowBlockShape, f: LLVMFunction) -> None:
        self.shape, self.f, self.steps, self.plan = shape, f, shape.steps, shape.plan
        self.block = RowBlock(shape, f)
        self.values = ScoreValues(self.block)
        self.products = {
            is_paired: self.add_product(is_paired)
            for is_paired in sorted({*shape.paired_products, *shape.paired_sums})
        }

    def add_product(self, is_paired: bool) -> TileProduct | AmxProduct:
        """Add the function of products of elements or of pairs to the module."""
        shape, module = self.shape, self.f.module
        if is_paired and shape.has_tiles:
            return AmxProduct(module)
        pairs = BF16_PAIRS if is_paired else None
        return TileProduct(module, shape.dtype, shape.rows_per_tile, shape.lanes, pairs)

    def emit(self) -> None:
        f = self.f
        if self.shape.has_tiles:
            configure_tiles(f)
        self.emit_task()
        if self.shape.has_tiles:
            release_tiles(f)

    def emit_task(self) -> None:
        f, shape, block = self.f, self.shape, self.block
        parts, blocks = block.words["parts"], block.words["blocks"]
        outer = block.task // parts
        part = block.task - outer * parts
        block.set_indices(outer, shape.parallel)
        self.clear_row_sums()
        others = [loop for loop in range(shape.batch) if loop not in shape.parallel]
        with ExitStack() as stack:
            for loop in others:
                index = stack.enter_context(f.loop(0, block.words[f"extent{loop}"]))
                block.indices[loop] = index
            number = stack.enter_context(f.loop(part, blocks, parts))
            block.begin(number)
            self.emit_block()

    def clear_row_sums(self) -> None:
        block = self.block
        for number, is_column in enumerate(self.shape.column_sums):
            if not is_column:
                block.clear(block.row_sum_address(number), block.row_sum_bytes(number))
                if self.shape.paired_sums[number]:
                    continue
                # The product includes the padding, in which old memory may hold slow denormals.
                padded = block.size * block.words[f"sum{number}.column"]
                block.clear(block.scratch[f"matrix{number}"], padded)

    # A block of rows.

    def emit_block(self) -> None:
        f = self.f
        self.load_rows()
        low, high = self.visible_range()
        self.low, self.high = f.variable("i64", low), f.variable("i64", high)
        visible, passes = self.shape.visible, self.plan.passes
        checked = 0 if visible is None else visible.passes
        if visible is not None:
            again = f.variable("i64", 1)
            with f.while_(lambda: again.get().is_("ne", 0)):
                again.set(0)
                for each in passes[:checked]:
                    self.emit_pass(each)
                self.include_all_columns_if_needed(visible, again if checked else None)
        for each in passes[checked:]:
            self.emit_pass(each)
        self.store_results()

    def load_rows(self) -> None:
        """Copy the rows of matrices and of operands, and clear the sums of the block."""
        f, shape, block = self.f, self.shape, self.block
        w, scratch, lane = block.words, block.scratch, f.value(block.item, "i64")
        for i, dtype in enumerate(shape.row_matrix_dtypes[: self.steps.products]):
            name = f"rows{i}"
            target = (scratch[name], lane, block.row_bytes)
            types = (PAIR, PAIR) if shape.paired_products[i] else (dtype, shape.dtype)
            block.load_rows(name, *types, target, w[f"{name}.features"])
        for i, is_column in enumerate(shape.column_sums):
            name = f"matrix{i}"
            if is_column:
                block.clear(scratch[f"sum{i}"], w[f"sum{i}.features"] * block.row_bytes)
            if is_column or shape.paired_sums[i]:
                continue
            dtype = shape.row_matrix_dtypes[self.steps.products + i]
            target = (scratch[name], block.feature_row_bytes(w[f"{name}.features"]), lane)
            block.load_rows(name, dtype, shape.dtype, target, w[f"{name}.features"])
        for i, dtype in enumerate(shape.operand_dtypes):
            if block.operand_loops(i) & {ROW, COLUMN} == {ROW}:
                name = f"operand{i}"
                size = f.value(registers.itemsize(dtype), "i64")
                target = (scratch[name], size, size)
                block.load_rows(name, dtype, dtype, target, f.value(1, "i64"))

    def visible_range(self) -> tuple[LLVMValue, LLVMValue]:
        """Return the range of the columns that are visible for some row of the block."""
        f, block = self.f, self.block
        low, high = f.value(0, "i64"), block.columns
        if self.shape.visible is None:
            return low, high
        last = block.first + block.count - 1
        for bound in self.shape.visible.bounds:
            total = f.value(bound.offset, "i64")
            for loop, coefficient in bound.terms:
                if loop == ROW:
                    total = total + (last if coefficient > 0 else block.first) * coefficient
                elif loop != COLUMN:
                    total = total + block.indices[loop - FIRST_BATCH] * coefficient
            if bound.column_coefficient < 0:
                high = self.signed_min(high, total + 1)
            else:
                low = self.signed_max(low, f.value(0, "i64") - total)
        high = self.signed_max(high, f.value(0, "i64"))
        low = self.signed_min(low, high)
        multiple = self.shape.column_multiple
        if multiple > 1:
            low = low & -multiple
        if multiple == 2:  # The number of columns is even.
            high = (high + 1) & -2
        return low, high

    def signed_min(self, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        return self.f.select(a.is_("slt", b), a, b)

    def signed_max(self, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        return self.f.select(a.is_("sgt", b), a, b)

    def include_all_columns_if_needed(
        self, visible: VisibleColumns, again: StackVariable | None
    ) -> None:
        """Include the excluded columns unless all conditions hold; `again` repeats the passes."""
        f, block = self.f, self.block
        held = f.variable("i1", f.value(1, "i1"))
        with f.loop(0, block.size, self.shape.lanes) as lane:
            values = self.values.row_values(lane)
            for fill, step, limit, sign in visible.conditions:
                value = registers.real_vector(values.computed[step])
                start = f.value(fill, value.type)
                holds = (start + value if sign > 0 else start - value).is_("olt", limit)
                word = holds.to(f"i{self.shape.lanes}", "bitcast")
                held.set(held.get() & word.is_("eq", -1))
        is_part = self.low.get().is_("ne", 0) | self.high.get().is_("ne", block.columns)
        with f.when((held.get() ^ 1) & is_part, seldom=True):
            self.low.set(0)
            self.high.set(block.columns)
            if again is not None:
                again.set(1)

    # Passes over columns.

    def emit_pass(self, each: ScorePass) -> None:
        f = self.f
        is_first = each is self.plan.passes[0]
        for step in each.reductions:
            self.initialize(step)
        low, high = self.low.get(), self.high.get()
        with f.loop(low, high, COLUMNS_PER_CHUNK) as start:
            width = f.umin(high - start, COLUMNS_PER_CHUNK)
            if is_first:
                for number in range(self.steps.products):
                    self.emit_score_product(number, start, width)
            self.load_tiles(each, start, width)
            if each.steps or each.reductions:
                with f.loop(0, self.block.size, self.shape.lanes) as lane:
                    self.values.emit_scores(each, start, width, lane)
            self.clear_scores_after(each, start, width)
            for number, slot in each.sums:
                if self.shape.column_sums[number]:
                    self.emit_column_sum(number, slot, start, width)
                else:
                    self.emit_row_sum(number, slot, start, width)

    def clear_scores_after(self, each: ScorePass, start: LLVMValue, width: LLVMValue) -> None:
        """Set the scores of pairs after those of a chunk to zero, up to the end of a tile."""
        if not self.shape.has_tiles:
            return
        block = self.block
        padded = (width + (BLOCK_EXTENT - 1)) & -BLOCK_EXTENT
        pairs, narrow = self.shape.paired_steps, self.shape.narrow_steps
        for step, slot in each.stores:
            if step in pairs:
                place, first, end = block.pair_address(slot, start), (width + 1) // 2, padded // 2
            elif step in narrow:
                place, first, end = block.score_address(slot, start), width, padded
            else:
                continue
            size = block.row_bytes
            block.clear(self.f.offset(place, first * size), (end - first) * size)

    def initialize(self, step: int) -> None:
        f, found = self.f, self.steps.body.steps[step]
        value = accumulators.initial_accumulator(f, found.op, found.dtype, self.shape.lanes)
        with f.loop(0, self.block.size, self.shape.lanes) as lane:
            registers.store_elements(f, value, self.block.reduced_place(step, lane), found.dtype)

    def emit_score_product(self, number: int, start: LLVMValue, width: LLVMValue) -> None:
        block, w, name = self.block, self.block.words, f"columns{number}"
        matrix = self.f.offset(block.address(name), start * w[f"{name}.column"])
        self.multiply(
            (matrix, w[f"{name}.column"], w[f"{name}.feature"]),
            (block.scratch[f"rows{number}"], block.row_bytes),
            (block.score_address(number, start), block.row_bytes),
            (width, w[f"{name}.features"]),
            self.shape.paired_products[number],
            adds=False,
        )

    def emit_column_sum(self, number: int, slot: int, start: LLVMValue, width: LLVMValue) -> None:
        block, w, name = self.block, self.block.words, f"matrix{number}"
        is_paired = self.shape.paired_sums[number]
        scores = (block.pair_address if is_paired else block.score_address)(slot, start)
        steps = (width + 1) // 2 if is_paired else width
        matrix = self.f.offset(block.address(name), start * w[f"{name}.column"])
        self.multiply(
            (matrix, w[f"{name}.feature"], w[f"{name}.column"] * (2 if is_paired else 1)),
            (scores, block.row_bytes),
            (block.scratch[f"sum{number}"], block.row_bytes),
            (w[f"{name}.features"], steps),
            is_paired,
            adds=True,
        )

    def emit_row_sum(self, number: int, slot: int, start: LLVMValue, width: LLVMValue) -> None:
        block, name = self.block, f"matrix{number}"
        stride = block.words[f"sum{number}.column"]
        scores = block.score_address(slot, start)
        is_paired = self.shape.paired_sums[number]
        matrix = block.first_row_address(name) if is_paired else block.scratch[name]
        self.multiply(
            (scores, block.row_bytes, self.f.value(block.item, "i64")),
            (matrix, stride),
            (self.f.offset(block.row_sum_address(number), start * stride), stride),
            (width, (block.count + 1) // 2 if is_paired else block.count),
            is_paired,
            adds=True,
        )

    def multiply(
        self,
        left: MatrixPlace,
        right: tuple[LLVMValue, LLVMValue],
        result: tuple[LLVMValue, LLVMValue],
        extents: tuple[LLVMValue, LLVMValue],
        is_paired: bool,
        adds: bool,
    ) -> None:
        """Multiply matrices, one vector of columns at a time; `extents` are the rows and the steps,
        of pairs if `is_paired`.

        `right` and `result` are addresses and the bytes of a row, which is contiguous.
        """
        f = self.f
        with f.loop(0, right[1], self.shape.lanes * self.block.item) as at:
            vectors, sums = ((f.offset(start, at), row) for start, row in (right, result))
            self.products[is_paired].call(f, left, vectors, sums, *extents, adds)

    def load_tiles(self, each: ScorePass, start: LLVMValue, width: LLVMValue) -> None:
        """Copy operands with a value for each score, so that rows are contiguous."""
        f, block = self.f, self.block
        for i, dtype in enumerate(self.shape.operand_dtypes):
            step = self.steps.products + i
            if {ROW, COLUMN} <= block.operand_loops(i) and step in each.steps:
                name, size = f"operand{i}", registers.itemsize(dtype)
                target = (block.scratch[name], f.value(size, "i64"), block.size * size)
                block.load_tile(name, dtype, start, width, target)

    # Results.

    def store_results(self) -> None:
        """Store the column sums and the values of the rows of the block."""
        f, shape, block = self.f, self.shape, self.block
        lane = f.value(block.item, "i64")
        for i, is_column in enumerate(shape.column_sums):
            if is_column:
                source = (block.scratch[f"sum{i}"], lane, block.row_bytes)
                block.store_rows(f"sum{i}", shape.dtype, shape.sum_dtypes[i], source)
        if not self.steps.returns:
            return
        dtypes = [self.steps.body.steps[step].dtype for step in self.steps.returns]
        with f.loop(0, block.size, shape.lanes) as at:
            known = self.values.row_values(at)
            for i, (step, dtype) in enumerate(zip(self.steps.returns, dtypes, strict=True)):
                place = f.offset(block.scratch[f"result{i}"], at * registers.itemsize(dtype))
                registers.store_elements(f, known.computed[step], place, dtype)
        for i, dtype in enumerate(dtypes):
            size = f.value(registers.itemsize(dtype), "i64")
            block.store_rows(f"result{i}", dtype, dtype, (block.scratch[f"result{i}"], size, size))
