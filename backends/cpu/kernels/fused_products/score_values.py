"""The values of scores and of rows that a kernel of fused products computes in registers."""

from collections.abc import Mapping
from functools import partial

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMValue,
    StackVariable,
    lane_count,
    vector_type,
)
from shardir.backends.cpu.kernels.elementwise import accumulators
from shardir.backends.cpu.kernels.elementwise.evaluation import StepValues
from shardir.backends.cpu.kernels.elementwise.loop_axes import BROADCAST, CONTIGUOUS
from shardir.backends.cpu.kernels.elementwise.loop_body import IOTA, REDUCE
from shardir.backends.cpu.kernels.elementwise.vector_access import (
    VectorAccess,
    VectorPlace,
    splat_value,
)
from shardir.backends.cpu.kernels.fused_products.row_block import RowBlock
from shardir.backends.cpu.kernels.fused_products.score_passes import FIRST_BATCH, ROW, ScorePass
from shardir.backends.cpu.kernels.math import inline, registers
from shardir.backends.cpu.kernels.math.registers import VectorValue


class ScoreValues:
    """Emits the steps of scores for a vector of rows of a block."""

    def __init__(self, block: RowBlock) -> None:
        self.block, self.f, self.shape, self.steps = block, block.f, block.shape, block.shape.steps

    def emit_scores(
        self, each: ScorePass, start: LLVMValue, width: LLVMValue, lane: LLVMValue
    ) -> None:
        """Emit the steps of a pass for the columns of a chunk and the rows of a vector."""
        f, shape, body = self.f, self.shape, self.steps.body
        known = self.row_values(lane)
        totals = {
            step: f.variable(
                registers.register_type(body.steps[step].dtype, shape.lanes),
                registers.real_vector(
                    accumulators.initial_accumulator(
                        f, body.steps[step].op, body.steps[step].dtype, shape.lanes
                    )
                ),
            )
            for step in each.reductions
        }
        has_pairs = any(step in shape.paired_steps for step, _ in each.stores)
        whole = width & -2 if has_pairs else width
        with f.loop(0, whole, 2 if has_pairs else 1) as offset:
            column = start + offset
            stored = self.emit_column(each, known, totals, offset, column, lane)
            if has_pairs:
                later = self.emit_column(each, known, totals, offset + 1, column + 1, lane)
                self.store_pairs(each, stored, later, column, lane)
        if has_pairs and shape.has_tiles:  # Otherwise, the number of columns is even.
            with f.when(whole.is_("ne", width)):
                column = start + whole
                stored = self.emit_column(each, known, totals, whole, column, lane)
                self.store_pairs(each, stored, None, column, lane)
        for step, total in totals.items():
            found, place = body.steps[step], self.block.reduced_place(step, lane)
            before = registers.load_elements(f, place, found.dtype, shape.lanes)
            combined = accumulators.emit_combine(f, found.op, found.dtype, before, total.get())
            registers.store_elements(f, combined, place, found.dtype)

    def emit_column(
        self,
        each: ScorePass,
        known: StepValues,
        totals: Mapping[int, StackVariable],
        offset: LLVMValue,
        column: LLVMValue,
        lane: LLVMValue,
    ) -> dict[int, LLVMValue]:
        """Emit the steps of a pass for a column, and store its scores that are not in pairs; return
        the others."""
        f, shape, body = self.f, self.shape, self.steps.body
        now = known.copy_for_inner_loop()
        for step, slot in each.loads:
            now.computed[step] = self.load_score(step, slot, column, lane)
        for step in each.steps:
            if body.steps[step].kind == IOTA:
                now.computed[step] = self.splat_index(column, body.steps[step].dtype)
        now.evaluate(
            each.steps,
            VectorAccess(f, shape.lanes),
            lambda number: self.column_place(number, offset, column, lane),
            self.no_index,
        )
        for step, total in totals.items():
            found = body.steps[step]
            value = now.computed[found.operands[0]]
            combined = accumulators.emit_combine(f, found.op, found.dtype, total.get(), value)
            total.set(registers.real_vector(combined))
        left = {}
        for step, slot in each.stores:
            value = registers.real_vector(now.computed[step])
            if step in shape.paired_steps:
                left[step] = value
            elif step in shape.narrow_steps:
                self.store_narrow(value, self.block.score_address(slot, column), lane)
            else:
                self.store(value, self.block.score_address(slot, column), lane)
        return left

    def store_pairs(
        self,
        each: ScorePass,
        first: Mapping[int, LLVMValue],
        second: Mapping[int, LLVMValue] | None,
        column: LLVMValue,
        lane: LLVMValue,
    ) -> None:
        """Store the scores of a pair of columns, of which the second may be missing."""
        for step, slot in each.stores:
            if step in self.shape.paired_steps:
                other = None if second is None else second[step]
                pair = self.block.pair_address(slot, column)
                self.store(_pair_bits(first[step], other), pair, lane)

    def store_narrow(self, value: LLVMValue, scores: LLVMValue, lane: LLVMValue) -> None:
        """Store the scores of a vector of rows as bf16; those after the last row are zero."""
        f, lanes = self.f, self.shape.lanes
        type = vector_type("i64", lanes)
        numbers = LLVMValue(f"<{', '.join(f'i64 {i}' for i in range(lanes))}>", type, f)
        exists = numbers.is_("slt", f.splat(self.block.count - lane, lanes))
        bits = (value.to(vector_type("i32", lanes), "bitcast") >> 16).to(
            vector_type("i16", lanes), "trunc"
        )
        item = registers.itemsize("bf16")
        f.store(f.select(exists, bits, 0), f.offset(scores, lane * item), item)

    def store(self, value: LLVMValue, scores: LLVMValue, lane: LLVMValue) -> None:
        """Store the scores of a vector of rows."""
        place = self.f.offset(scores, lane * self.block.item)
        self.f.store(value, place, registers.TYPE_BYTES[MEMORY_TYPES["f32"]])

    def load_score(self, step: int, slot: int, column: LLVMValue, lane: LLVMValue) -> LLVMValue:
        f, dtype = self.f, self.steps.body.steps[step].dtype
        type = registers.register_type(dtype, self.shape.lanes)
        place = f.offset(self.block.score_address(slot, column), lane * self.block.item)
        value = f.load(place, type, registers.TYPE_BYTES[MEMORY_TYPES["f32"]])
        is_product = step < self.steps.products
        return registers.round_to_narrow(f, value, dtype) if is_product else value

    def column_place(
        self, number: int, offset: LLVMValue, column: LLVMValue, lane: LLVMValue
    ) -> VectorPlace:
        """Return the place of an operand for a column."""
        f, operand = self.f, number - self.steps.products
        dtype, name = self.shape.operand_dtypes[operand], f"operand{operand}"
        if ROW in self.block.operand_loops(operand):
            size = registers.itemsize(dtype)
            at = f.offset(self.block.scratch[name], (offset * self.block.size + lane) * size)
            return VectorPlace(at, dtype, CONTIGUOUS)
        at = f.offset(self.block.address(name), column * self.block.words[f"{name}.column"])
        return VectorPlace(at, dtype, BROADCAST)

    def row_values(self, lane: LLVMValue) -> StepValues:
        """Return the values that are the same for all columns, for the rows of a vector.

        Those that depend on reductions are evaluated from the reductions so far.
        """
        f, shape, body = self.f, self.shape, self.steps.body
        known = StepValues(f, body, shape.lanes)
        order = []
        for step, found in enumerate(body.steps):
            if self.steps.varies(step):
                continue
            if found.kind == REDUCE:
                place = self.block.reduced_place(step, lane)
                known.computed[step] = registers.load_elements(f, place, found.dtype, shape.lanes)
            elif found.kind == IOTA:
                known.computed[step] = self.row_index(found.number, found.dtype, lane)
            order.append(step)
        known.evaluate(
            order, VectorAccess(f, shape.lanes), partial(self.row_place, lane), self.no_index
        )
        known.precompute_divisors()
        return known

    def row_place(self, lane: LLVMValue, number: int) -> VectorPlace:
        operand = number - self.steps.products
        dtype, name = self.shape.operand_dtypes[operand], f"operand{operand}"
        if ROW not in self.block.operand_loops(operand):
            return VectorPlace(self.block.address(name), dtype, BROADCAST)
        at = self.f.offset(self.block.scratch[name], lane * registers.itemsize(dtype))
        return VectorPlace(at, dtype, CONTIGUOUS)

    def row_index(self, loop: int, dtype: str, lane: LLVMValue) -> VectorValue:
        """Return the index of a row for each lane, or that of a batch loop."""
        f, lanes = self.f, self.shape.lanes
        if loop >= FIRST_BATCH:
            return self.splat_index(self.block.indices[loop - FIRST_BATCH], dtype)
        type = vector_type("i64", lanes)
        numbers = LLVMValue(f"<{', '.join(f'i64 {i}' for i in range(lanes))}>", type, f)
        index = f.splat(self.block.first + lane, lanes) + numbers
        last = f.splat(self.block.first + self.block.count - 1, lanes)
        index = f.select(index.is_("slt", last), index, last)
        made = inline.emit_elementwise(f, "convert", {}, [index], ["i64"], dtype)
        assert made is not None
        return made

    def splat_index(self, index: LLVMValue, dtype: str) -> VectorValue:
        made = inline.emit_elementwise(self.f, "convert", {}, [index], ["i64"], dtype)
        assert made is not None
        return splat_value(self.f, made, self.shape.lanes)

    @staticmethod
    def no_index(number: int) -> VectorValue:
        raise AssertionError(f"index {number} is computed before")


def _pair_bits(first: LLVMValue, second: LLVMValue | None) -> LLVMValue:
    """Return pairs of bf16, of which the second may be missing; the lower halves of their f32 are
    zero."""
    type = vector_type("i32", lane_count(first.type))
    low = first.to(type, "bitcast") >> 16
    return low if second is None else low | second.to(type, "bitcast")
