"""The kernel of fused products: it computes the scores of a block of rows, and their sums.

The rows of a block are the lanes of vectors, so that reductions over columns need no operation
between lanes, and all products read both of their matrices in the order of memory, or after copying
the rows of the block only. A task computes all row blocks of one index of the batch loops; if there
are no row sums, it computes one row block.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    OUTLINED_FUNCTION_ATTRIBUTES,
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
    vector_type,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernels.elementwise import accumulators
from shardir.backends.cpu.kernels.elementwise.evaluation import StepValues
from shardir.backends.cpu.kernels.elementwise.loop_axes import BROADCAST, CONTIGUOUS
from shardir.backends.cpu.kernels.elementwise.loop_body import IOTA, REDUCE
from shardir.backends.cpu.kernels.elementwise.math_inlining import MAX_INLINED_FUNCTIONS
from shardir.backends.cpu.kernels.elementwise.phase_record import (
    KERNEL_ATTRIBUTES,
    KERNEL_PARAMS,
)
from shardir.backends.cpu.kernels.elementwise.vector_access import (
    VectorAccess,
    VectorPlace,
    splat_value,
)
from shardir.backends.cpu.kernels.fused_products.score_passes import (
    COLUMN,
    FIRST_BATCH,
    ROW,
    PassPlan,
    ScorePass,
    ScoreSteps,
)
from shardir.backends.cpu.kernels.fused_products.tile_product import TileProduct
from shardir.backends.cpu.kernels.fused_products.visible_columns import VisibleColumns
from shardir.backends.cpu.kernels.math import inline, library, registers
from shardir.backends.cpu.kernels.math.registers import VectorValue

COLUMNS_PER_CHUNK = 64
"""Columns that are computed while their scores are in the first-level cache."""


@dataclass(frozen=True)
class RowBlockShape:
    """The parameters of the text of a kernel.

    `column_sums` states of each sum whether it reduces columns. `dtype` is the type of products and
    sums. `parallel` are the batch loops that tasks are numbered along; a task computes all indices
    of the others.
    """

    steps: ScoreSteps
    plan: PassPlan
    visible: VisibleColumns | None
    column_sums: tuple[bool, ...]
    row_matrix_dtypes: tuple[str, ...]
    sum_dtypes: tuple[str, ...]
    operand_dtypes: tuple[str, ...]
    batch: int
    parallel: tuple[int, ...]
    dtype: str
    rows_per_tile: int
    lanes: int
    slot_bytes: int


@dataclass
class _Words:
    """The words of a record by name."""

    function: LLVMFunction
    record: LLVMValue
    names: tuple[str, ...]

    def __getitem__(self, name: str) -> LLVMValue:
        at = 8 * self.names.index(name)
        return self.function.load(self.function.offset(self.record, at), "i64")


def word_names(shape: RowBlockShape) -> tuple[str, ...]:
    """Return the names of the words of a record, in order."""
    loops = ("row", "column", *(f"batch{i}" for i in range(shape.batch)))
    names = ["rows", "columns", "block", "blocks", "parts", "scratch", "scratch_bytes"]
    names += [f"extent{i}" for i in range(shape.batch)]
    for array in array_names(shape):
        names += [f"{array}.slot", f"{array}.offset", f"{array}.feature", f"{array}.features"]
        names += [f"{array}.{loop}" for loop in loops]
    names += [f"{place}.at" for place in scratch_names(shape)]
    names += [f"slot{i}.at" for i in range(shape.plan.slots)]
    return tuple(names)


def array_names(shape: RowBlockShape) -> list[str]:
    """Return the names of arrays: matrices of products and sums, operands, results."""
    names = []
    for i in range(shape.steps.products):
        names += [f"rows{i}", f"columns{i}"]
    for i, _ in enumerate(shape.column_sums):
        names += [f"matrix{i}", f"sum{i}"]
    names += [f"operand{i}" for i, _ in enumerate(shape.steps.operands)]
    return names + [f"result{i}" for i, _ in enumerate(shape.steps.returns)]


def scratch_names(shape: RowBlockShape) -> list[str]:
    """Return the names of the parts of scratch memory other than slots of scores."""
    names = [f"rows{i}" for i in range(shape.steps.products)]
    names += [f"matrix{i}" for i, is_column in enumerate(shape.column_sums) if not is_column]
    names += [f"sum{i}" for i, is_column in enumerate(shape.column_sums) if is_column]
    names += [f"operand{i}" for i, _ in enumerate(shape.steps.operands)]
    names += [f"reduced{i}" for i in shape.steps.body.reductions]
    return names + [f"result{i}" for i, _ in enumerate(shape.steps.returns)]


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
        self.shape, self.f = shape, f
        self.steps, self.plan = shape.steps, shape.plan
        bases, record, self.task, self.worker = f.params
        self.bases = bases
        self.words = _Words(f, record, word_names(shape))
        self.item = registers.itemsize(shape.dtype)
        self.product = TileProduct(f.module, shape.dtype, shape.rows_per_tile, shape.lanes)
        self.copies: dict[tuple[str, str], str] = {}

    def emit(self) -> None:
        f, w, shape = self.f, self.words, self.shape
        self.rows, self.columns, self.block = w["rows"], w["columns"], w["block"]
        self.row_bytes = self.block * shape.slot_bytes
        """Bytes of the scores of one column."""
        scratch = f.load(f.offset(self.bases, w["scratch"], "ptr"), "ptr")
        scratch = f.offset(scratch, self.worker * w["scratch_bytes"])
        self.scratch = {name: f.offset(scratch, w[f"{name}.at"]) for name in scratch_names(shape)}
        self.slots = [f.offset(scratch, w[f"slot{i}.at"]) for i in range(self.plan.slots)]
        parts = w["parts"]
        outer = self.task // parts
        part = self.task - outer * parts
        self.indices: dict[int, LLVMValue] = {}
        self.decode(outer, shape.parallel)
        self.clear_row_sums()
        others = [loop for loop in range(shape.batch) if loop not in shape.parallel]
        with ExitStack() as stack:
            for loop in others:
                index = stack.enter_context(f.loop(0, w[f"extent{loop}"]))
                self.indices[loop] = index
            number = stack.enter_context(f.loop(part, w["blocks"], parts))
            self.emit_block(number)

    def decode(self, number: LLVMValue, loops: Sequence[int]) -> None:
        """Set the indices of batch loops from a number along all of them."""
        for loop in reversed(loops):
            extent = self.words[f"extent{loop}"]
            rest = number // extent
            self.indices[loop] = number - rest * extent
            number = rest

    def address(self, array: str) -> LLVMValue:
        """Return the address of an array at the indices of the batch loops."""
        f, w = self.f, self.words
        base = f.load(f.offset(self.bases, w[f"{array}.slot"], "ptr"), "ptr")
        at = w[f"{array}.offset"]
        for loop in range(self.shape.batch):
            at = at + self.indices[loop] * w[f"{array}.batch{loop}"]
        return f.offset(base, at)

    def row_sum_address(self, number: int) -> LLVMValue:
        """Return the memory in which the task accumulates a row sum."""
        f, w = self.f, self.words
        name = f"sum{number}"
        base = f.load(f.offset(self.bases, w[f"{name}.slot"], "ptr"), "ptr")
        return f.offset(base, w[f"{name}.offset"] + self.task * self.row_sum_bytes(number))

    def row_sum_bytes(self, number: int) -> LLVMValue:
        return self.columns * self.words[f"sum{number}.column"]

    def clear_row_sums(self) -> None:
        for number, is_column in enumerate(self.shape.column_sums):
            if not is_column:
                self.clear(self.row_sum_address(number), self.row_sum_bytes(number))
                # The product includes the padding, in which old memory may hold slow denormals.
                padded = self.block * self.words[f"sum{number}.column"]
                self.clear(self.scratch[f"matrix{number}"], padded)

    def clear(self, address: LLVMValue, nbytes: LLVMValue) -> None:
        f = self.f
        f.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1 immarg"])
        f.do(f"call void @llvm.memset.p0.i64(ptr {address}, i8 0, i64 {nbytes}, i1 false)")

    # A block of rows.

    def emit_block(self, number: LLVMValue) -> None:
        f = self.f
        self.first = number * self.block
        self.count = f.umin(self.rows - self.first, self.block)
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
        f, w, shape = self.f, self.words, self.shape
        lane = f.value(self.item, "i64")
        for i, dtype in enumerate(shape.row_matrix_dtypes[: self.steps.products]):
            name = f"rows{i}"
            target = (self.scratch[name], lane, self.block * self.item)
            self.copy_rows(name, dtype, shape.dtype, target, w[f"{name}.features"])
        for i, is_column in enumerate(shape.column_sums):
            name = f"matrix{i}"
            if is_column:
                size = w[f"sum{i}.features"] * self.block * self.item
                self.clear(self.scratch[f"sum{i}"], size)
                continue
            dtype = shape.row_matrix_dtypes[self.steps.products + i]
            target = (self.scratch[name], self.feature_row_bytes(w[f"{name}.features"]), lane)
            self.copy_rows(name, dtype, shape.dtype, target, w[f"{name}.features"])
        for i, dtype in enumerate(shape.operand_dtypes):
            if self.operand_loops(i) & {ROW, COLUMN} == {ROW}:
                name = f"operand{i}"
                size = f.value(registers.itemsize(dtype), "i64")
                target = (self.scratch[name], size, size)
                self.copy_rows(name, dtype, dtype, target, f.value(1, "i64"))

    def feature_row_bytes(self, features: LLVMValue) -> LLVMValue:
        """Return the bytes of a row of features that is padded to full vectors."""
        lanes = self.shape.lanes
        return (features + (lanes - 1)) // lanes * (lanes * self.item)

    def operand_loops(self, number: int) -> frozenset[int]:
        return self.steps.loops[self.steps.products + number]

    def copy_rows(
        self,
        array: str,
        source: str,
        target: str,
        to: tuple[LLVMValue, LLVMValue, LLVMValue],
        features: LLVMValue,
    ) -> None:
        """Copy rows to scratch memory; rows after the last one of the array repeat it."""
        w = self.words
        address = self.f.offset(self.address(array), self.first * w[f"{array}.row"])
        strides = w[f"{array}.row"], w[f"{array}.feature"]
        self.copy(source, target, (address, *strides), to, (self.block, features), self.count)

    def copy(
        self,
        source: str,
        target: str,
        from_: tuple[LLVMValue, LLVMValue, LLVMValue],
        to: tuple[LLVMValue, LLVMValue, LLVMValue],
        extents: tuple[LLVMValue, LLVMValue],
        outer_limit: LLVMValue,
    ) -> None:
        """Copy a matrix; indices of outer elements stop at the limit."""
        if (source, target) not in self.copies:
            self.copies[source, target] = _emit_copy(self.f.module, source, target)
        self.f.call(self.copies[source, target], [*from_, *to, *extents, outer_limit])

    def visible_range(self) -> tuple[LLVMValue, LLVMValue]:
        """Return the range of the columns that are visible for some row of the block."""
        f = self.f
        low, high = f.value(0, "i64"), self.columns
        if self.shape.visible is None:
            return low, high
        last = self.first + self.count - 1
        for bound in self.shape.visible.bounds:
            total = f.value(bound.offset, "i64")
            for loop, coefficient in bound.terms:
                if loop == ROW:
                    total = total + (last if coefficient > 0 else self.first) * coefficient
                elif loop != COLUMN:
                    total = total + self.indices[loop - FIRST_BATCH] * coefficient
            if bound.column_coefficient < 0:
                high = self.signed_min(high, total + 1)
            else:
                low = self.signed_max(low, f.value(0, "i64") - total)
        high = self.signed_max(high, f.value(0, "i64"))
        return self.signed_min(low, high), high

    def signed_min(self, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        return self.f.select(a.is_("slt", b), a, b)

    def signed_max(self, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        return self.f.select(a.is_("sgt", b), a, b)

    def include_all_columns_if_needed(
        self, visible: VisibleColumns, again: StackVariable | None
    ) -> None:
        """Include the excluded columns unless all conditions hold; `again` repeats the passes."""
        f = self.f
        held = f.variable("i1", f.value(1, "i1"))
        with f.loop(0, self.block, self.shape.lanes) as lane:
            values = self.row_values(lane)
            for fill, step, limit, sign in visible.conditions:
                value = registers.real_vector(values.computed[step])
                start = f.value(fill, value.type)
                holds = (start + value if sign > 0 else start - value).is_("olt", limit)
                word = holds.to(f"i{self.shape.lanes}", "bitcast")
                held.set(held.get() & word.is_("eq", -1))
        is_part = self.low.get().is_("ne", 0) | self.high.get().is_("ne", self.columns)
        with f.when((held.get() ^ 1) & is_part, seldom=True):
            self.low.set(0)
            self.high.set(self.columns)
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
                with f.loop(0, self.block, self.shape.lanes) as lane:
                    self.emit_scores(each, start, width, lane)
            for number, slot in each.sums:
                if self.shape.column_sums[number]:
                    self.emit_column_sum(number, slot, start, width)
                else:
                    self.emit_row_sum(number, slot, start, width)

    def initialize(self, step: int) -> None:
        f, found = self.f, self.steps.body.steps[step]
        value = accumulators.initial_accumulator(f, found.op, found.dtype, self.shape.lanes)
        with f.loop(0, self.block, self.shape.lanes) as lane:
            registers.store_elements(f, value, self.reduced_place(step, lane), found.dtype)

    def reduced_place(self, step: int, lane: LLVMValue) -> LLVMValue:
        size = registers.itemsize(self.steps.body.steps[step].dtype)
        return self.f.offset(self.scratch[f"reduced{step}"], lane * size)

    def score_address(self, slot: int, column: LLVMValue) -> LLVMValue:
        return self.f.offset(self.slots[slot], column * self.row_bytes)

    def emit_score_product(self, number: int, start: LLVMValue, width: LLVMValue) -> None:
        f, w = self.f, self.words
        name = f"columns{number}"
        matrix = f.offset(self.address(name), start * w[f"{name}.column"])
        result = self.score_address(number, start)
        with f.loop(0, self.block, self.shape.lanes) as lane:
            self.product.call(
                f,
                (matrix, w[f"{name}.column"], w[f"{name}.feature"]),
                (f.offset(self.scratch[f"rows{number}"], lane * self.item), self.block * self.item),
                (f.offset(result, lane * self.item), self.row_bytes),
                width,
                w[f"{name}.features"],
                adds=False,
            )

    def emit_column_sum(self, number: int, slot: int, start: LLVMValue, width: LLVMValue) -> None:
        f, w = self.f, self.words
        name = f"matrix{number}"
        matrix = f.offset(self.address(name), start * w[f"{name}.column"])
        scores = self.score_address(slot, start)
        with f.loop(0, self.block, self.shape.lanes) as lane:
            self.product.call(
                f,
                (matrix, w[f"{name}.feature"], w[f"{name}.column"]),
                (f.offset(scores, lane * self.item), self.row_bytes),
                (f.offset(self.scratch[f"sum{number}"], lane * self.item), self.block * self.item),
                w[f"{name}.features"],
                width,
                adds=True,
            )

    def emit_row_sum(self, number: int, slot: int, start: LLVMValue, width: LLVMValue) -> None:
        f, w = self.f, self.words
        stride = w[f"sum{number}.column"]
        result = f.offset(self.row_sum_address(number), start * stride)
        scores = self.score_address(slot, start)
        with f.loop(0, stride, self.shape.lanes * self.item) as at:
            self.product.call(
                f,
                (scores, self.row_bytes, self.item),
                (f.offset(self.scratch[f"matrix{number}"], at), stride),
                (f.offset(result, at), stride),
                width,
                self.count,
                adds=True,
            )

    def load_tiles(self, each: ScorePass, start: LLVMValue, width: LLVMValue) -> None:
        """Copy operands with a value for each score, so that rows are contiguous."""
        f, w = self.f, self.words
        for i, dtype in enumerate(self.shape.operand_dtypes):
            step = self.steps.products + i
            if not {ROW, COLUMN} <= self.operand_loops(i) or step not in each.steps:
                continue
            name, size = f"operand{i}", registers.itemsize(dtype)
            address = f.offset(self.address(name), self.first * w[f"{name}.row"])
            address = f.offset(address, start * w[f"{name}.column"])
            self.copy(
                dtype,
                dtype,
                (address, w[f"{name}.row"], w[f"{name}.column"]),
                (self.scratch[name], f.value(size, "i64"), self.block * size),
                (self.block, width),
                self.count,
            )

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
        with f.loop(0, width) as offset:
            column = start + offset
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
            for step, slot in each.stores:
                place = f.offset(self.score_address(slot, column), lane * self.item)
                value = registers.real_vector(now.computed[step])
                f.store(value, place, registers.TYPE_BYTES[MEMORY_TYPES["f32"]])
        for step, total in totals.items():
            found, place = body.steps[step], self.reduced_place(step, lane)
            before = registers.load_elements(f, place, found.dtype, shape.lanes)
            combined = accumulators.emit_combine(f, found.op, found.dtype, before, total.get())
            registers.store_elements(f, combined, place, found.dtype)

    def load_score(self, step: int, slot: int, column: LLVMValue, lane: LLVMValue) -> LLVMValue:
        f, dtype = self.f, self.steps.body.steps[step].dtype
        type = registers.register_type(dtype, self.shape.lanes)
        place = f.offset(self.score_address(slot, column), lane * self.item)
        value = f.load(place, type, registers.TYPE_BYTES[MEMORY_TYPES["f32"]])
        is_product = step < self.steps.products
        return registers.round_to_narrow(f, value, dtype) if is_product else value

    def column_place(
        self, number: int, offset: LLVMValue, column: LLVMValue, lane: LLVMValue
    ) -> VectorPlace:
        """Return the place of an operand for a column."""
        f, operand = self.f, number - self.steps.products
        dtype, name = self.shape.operand_dtypes[operand], f"operand{operand}"
        if ROW in self.operand_loops(operand):
            size = registers.itemsize(dtype)
            at = f.offset(self.scratch[name], (offset * self.block + lane) * size)
            return VectorPlace(at, dtype, CONTIGUOUS)
        at = f.offset(self.address(name), column * self.words[f"{name}.column"])
        return VectorPlace(at, dtype, BROADCAST)

    # Values of rows.

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
                place = self.reduced_place(step, lane)
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
        if ROW not in self.operand_loops(operand):
            return VectorPlace(self.address(name), dtype, BROADCAST)
        at = self.f.offset(self.scratch[name], lane * registers.itemsize(dtype))
        return VectorPlace(at, dtype, CONTIGUOUS)

    def row_index(self, loop: int, dtype: str, lane: LLVMValue) -> VectorValue:
        """Return the index of a row for each lane, or that of a batch loop."""
        f, lanes = self.f, self.shape.lanes
        if loop >= FIRST_BATCH:
            return self.splat_index(self.indices[loop - FIRST_BATCH], dtype)
        type = vector_type("i64", lanes)
        numbers = LLVMValue(f"<{', '.join(f'i64 {i}' for i in range(lanes))}>", type, f)
        index = f.splat(self.first + lane, lanes) + numbers
        last = f.splat(self.first + self.count - 1, lanes)
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

    # Results.

    def store_results(self) -> None:
        """Store the column sums and the values of the rows of the block."""
        f, shape = self.f, self.shape
        lane = f.value(self.item, "i64")
        for i, is_column in enumerate(shape.column_sums):
            if is_column:
                source = (self.scratch[f"sum{i}"], lane, self.block * self.item)
                self.store_rows(f"sum{i}", shape.dtype, shape.sum_dtypes[i], source)
        if not self.steps.returns:
            return
        with f.loop(0, self.block, shape.lanes) as at:
            known = self.row_values(at)
            for i, step in enumerate(self.steps.returns):
                dtype = self.steps.body.steps[step].dtype
                place = f.offset(self.scratch[f"result{i}"], at * registers.itemsize(dtype))
                registers.store_elements(f, known.computed[step], place, dtype)
        for i, step in enumerate(self.steps.returns):
            dtype = self.steps.body.steps[step].dtype
            size = f.value(registers.itemsize(dtype), "i64")
            self.store_rows(f"result{i}", dtype, dtype, (self.scratch[f"result{i}"], size, size))

    def store_rows(
        self, array: str, source: str, target: str, from_: tuple[LLVMValue, LLVMValue, LLVMValue]
    ) -> None:
        w = self.words
        address = self.f.offset(self.address(array), self.first * w[f"{array}.row"])
        to = address, w[f"{array}.row"], w[f"{array}.feature"]
        extents = self.count, w[f"{array}.features"]
        self.copy(source, target, from_, to, extents, self.count)


def _emit_copy(module: LLVMModule, source: str, target: str) -> str:
    """Emit a function that copies a strided matrix and converts it between floats; return its
    name."""
    name = f"copy_{source}_{target}"
    params = ["ptr", "i64", "i64", "ptr", "i64", "i64", "i64", "i64", "i64"]
    f = LLVMFunction(module, name, params, "void", OUTLINED_FUNCTION_ATTRIBUTES, internal=True)
    start, outer_step, step, to, to_outer_step, to_step, outer, inner, limit = f.params
    with f.loop(0, outer) as i:
        last = limit - 1
        row = f.select(i.is_("slt", last), i, last)
        here = f.variable("ptr", f.offset(start, row * outer_step))
        there = f.variable("ptr", f.offset(to, i * to_outer_step))
        with f.loop(0, inner):
            value = registers.load_elements(f, here.get(), source, 1)
            registers.store_elements(f, value, there.get(), target)
            here.set(f.offset(here.get(), step))
            there.set(f.offset(there.get(), to_step))
    f.ret()
    return name
