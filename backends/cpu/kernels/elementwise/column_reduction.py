"""Reductions across the vector axis: each lane is a column of its own.

A block of columns is processed row by row. Its accumulators, one for each column, are in scratch
memory, as are the values computed of them between passes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
)
from shardir.backends.cpu.codegen.memory_hints import is_prefetch_useful
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import SCRATCH_BYTES_PER_WORKER, Kernel
from shardir.backends.cpu.kernels.elementwise.accumulators import (
    accumulator_dtype,
    emit_combine,
    emit_convert,
    initial_accumulator,
)
from shardir.backends.cpu.kernels.elementwise.evaluation import StepValues
from shardir.backends.cpu.kernels.elementwise.loop_body import APPLY, ARRAY, CONSTANT, IOTA, REDUCE
from shardir.backends.cpu.kernels.elementwise.math_inlining import is_math_function
from shardir.backends.cpu.kernels.elementwise.nan_analysis import is_never_nan
from shardir.backends.cpu.kernels.elementwise.phase_record import (
    KERNEL_ATTRIBUTES,
    KERNEL_PARAMS,
    RecordReader,
    advance,
    locate_block,
    make_named_kernel,
    start_variable,
)
from shardir.backends.cpu.kernels.elementwise.reduction_layout import VectorAxisArrays
from shardir.backends.cpu.kernels.elementwise.reduction_passes import ReductionPasses
from shardir.backends.cpu.kernels.elementwise.vector_access import VectorAccess
from shardir.backends.cpu.kernels.math import registers
from shardir.backends.cpu.kernels.math.registers import VectorValue, itemsize

ROWS_PER_STEP = 4
"""Rows that are processed in one step if there is little computation for each. A step loads and
stores the accumulators once."""
ROWS_PER_STEP_WITHOUT_OPERATIONS = 8
"""Rows of a step if their elements are only added or compared. On one core of a Zen 4, the sums of
columns of 64 MiB of f32 read 29 GB/s with 8 rows in a step, and 23 GB/s with 4 (in the caches 42
and 41 GB/s). The code of 8 rows takes longer to compile."""
PREFETCHED_ROWS = 2
"""Rows ahead that a step prefetches. Rows are often a multiple of 4 KiB apart, so that their
elements are in the same set of the first-level cache, which contains 8 or 12 cache lines."""
ROWS_PER_PREFETCHING_STEP = 2
"""Rows of a step that prefetches later rows, if the last-level cache contains them; otherwise a
step has one row, since memory is read faster in the order of addresses. On one core of a Zen 5, the
sums of columns of 4, 32 and 64 MiB of f32 take 40, 808 and 1936 microseconds with two rows, 50, 657
and 1641 with one, and 64, 1090 and 2338 with eight rows that prefetch the next eight."""
MAX_UNROLLED_OPERATIONS = 6
"""The most elementwise operations that count as little computation."""


class ColumnShape(NamedTuple):
    """The parameters of the text of a column kernel."""

    stages: ReductionPasses
    kinds: tuple[tuple[str, str], ...]
    counted: int
    lanes: int
    has_full_vectors: bool
    is_streaming: bool = False
    """True if the operands are larger than half of the last-level cache."""

    def scratch_regions(self) -> list[tuple[int, str, bool]]:
        """Return the contents of scratch memory: a step, its element type, and whether it is stored
        for each row rather than only for each column."""
        steps = self.stages.body.steps
        regions: list[tuple[int, str, bool]] = []
        for i in self.stages.body.reductions:
            wide = accumulator_dtype(steps[i].op, steps[steps[i].operands[0]].dtype)
            regions.append((i, wide, False))
        for i in self.stages.parallel_steps:
            if steps[i].kind not in (ARRAY, CONSTANT, IOTA):
                regions.append((i, steps[i].dtype, False))
        return regions + [(i, steps[i].dtype, True) for i in sorted(self.stages.stored_steps)]


class ColumnBlock(NamedTuple):
    """The columns of one block: where its arrays begin, the end of the table of parallel axes, the
    width."""

    begins: Sequence[LLVMValue]
    rest: LLVMValue
    width: LLVMValue


@contextmanager
def each_block(
    f: LLVMFunction,
    task: LLVMValue,
    blocks: Sequence[LLVMValue],
    columns: Sequence[LLVMValue],
    arrays: VectorAxisArrays,
    starts: Sequence[LLVMValue],
    table: LLVMValue,
) -> Iterator[ColumnBlock]:
    """Emit a loop over the blocks of a task.

    `blocks` are the number of blocks and the blocks of a task; `columns` are the number of columns,
    the columns of a block, and the blocks of a row.
    """
    (count, each), (extent, block_columns, column_count) = blocks, columns
    first = task * each
    with f.loop(first, f.umin(first + each, count)) as block:
        batch_block = block // column_count
        column_at = (block - batch_block * column_count) * block_columns
        begins, rest = locate_block(f, table, batch_block, starts)
        begins = [
            advance(f, begin, column_at * along)
            for begin, along in zip(begins, arrays.strides, strict=True)
        ]
        yield ColumnBlock(begins, rest, f.umin(extent - column_at, block_columns))


@cache
def column_kernel(shape: ColumnShape, machine: HostDescription) -> Kernel:
    """Return the kernel for columns; equal shapes share one kernel.

    Its record: blocks, blocks of a task; columns, columns of a block, blocks of a row; rows,
    repetitions of them; the scratch offset of each region; arrays; strides along the columns and
    along the rows; the table of the other parallel axes, and that of reduced ones.
    """
    return make_named_kernel(
        "columns", shape, machine, lambda *given: _ColumnKernelWriter(*given).module
    )


class _ColumnKernelWriter:
    """Writes the kernel."""

    def __init__(self, shape: ColumnShape, name: str, machine: HostDescription) -> None:
        self.shape, self.stages, self.body = shape, shape.stages, shape.stages.body
        self.module = LLVMModule(machine)
        self.f = f = LLVMFunction(self.module, name, KERNEL_PARAMS, attributes=KERNEL_ATTRIBUTES)
        bases, words, task, worker = f.params
        count = len(shape.kinds)
        reader = RecordReader(f, bases, words)
        blocks = reader.words(2)
        columns = reader.words(3)
        self.block_columns = columns[1]
        self.rows, self.repeats = reader.words(2)
        scratch = f.offset(f.load(bases, "ptr"), worker * SCRATCH_BYTES_PER_WORKER)
        self.sums: dict[int, LLVMValue] = {}
        self.between_regions: dict[int, LLVMValue] = {}
        self.stored: dict[int, LLVMValue] = {}
        accumulators = set(self.body.reductions)
        for i, _, by_row in shape.scratch_regions():
            home = self.stored if by_row else self.sums if i in accumulators else None
            if home is self.sums:
                accumulators.discard(i)
            (self.between_regions if home is None else home)[i] = f.offset(scratch, reader.word())
        starts = reader.arrays(count - shape.counted, shape.counted)
        self.arrays = VectorAxisArrays(
            f, shape.kinds, len(self.body.results), shape.counted, shape.lanes, reader.words(count)
        )
        self.row_strides = reader.words(count)
        table = reader.table()
        with each_block(f, task, blocks, columns, self.arrays, starts, table) as block:
            begins, self.rest, self.width = block
            self.emit_parallel_steps(-1, begins)
            for number in range(self.stages.passes):
                self.emit_pass(number, begins)
                self.emit_parallel_steps(number, begins)
        f.ret()

    def emit_parallel_steps(self, number: int, at: Sequence[LLVMValue]) -> None:
        """Emit the steps that vary along parallel axes only, for each column."""
        f, shape, steps = self.f, self.shape, self.body.steps
        new = self.stages.parallel_steps_after(number)
        ends = [
            i
            for i in self.stages.parallel_results()
            if self.stages.stage[self.body.results[i]] == number + 1
        ]
        kept = [i for i in new if i in self.between_regions]
        if not kept and not ends:
            return
        with f.loop(0, self.width, shape.lanes) as i:
            vectors = VectorAccess(
                f, shape.lanes, None if shape.has_full_vectors else self.width - i
            )
            now = StepValues(f, self.body, shape.lanes)
            needed = self._needed_steps([*kept, *(self.body.results[k] for k in ends)], new)
            for k in needed:
                if steps[k].kind == REDUCE and k in new:
                    wide = accumulator_dtype(steps[k].op, steps[steps[k].operands[0]].dtype)
                    address = f.offset(self.sums[k], i * itemsize(wide))
                    held = registers.load_elements(f, address, wide, shape.lanes)
                    now.computed[k] = emit_convert(f, held, wide, steps[k].dtype)
                elif k in self.between_regions and k not in new:
                    now.computed[k] = self.load_parallel_value(k, i)
            now.evaluate(
                needed,
                vectors,
                lambda n: self.arrays.place(n, at, i),
                lambda n: self.arrays.index(n, at, i),
            )
            for k in kept:
                address = f.offset(self.between_regions[k], i * itemsize(steps[k].dtype))
                registers.store_elements(f, now.computed[k], address, steps[k].dtype)
            for k in ends:
                value = now.computed[self.body.results[k]]
                vectors.store(value, self.arrays.result(k, at, i))

    def _needed_steps(self, targets: Sequence[int], new: Sequence[int]) -> list[int]:
        """Return the steps to compute or load for some values, in order."""
        return self.body.required_steps(
            targets,
            lambda k: (
                self.body.steps[k].kind == REDUCE or (k in self.between_regions and k not in new)
            ),
        )

    def load_parallel_value(self, k: int, i: LLVMValue) -> VectorValue:
        dtype = self.body.steps[k].dtype
        address = self.f.offset(self.between_regions[k], i * itemsize(dtype))
        return registers.load_elements(self.f, address, dtype, self.shape.lanes)

    def emit_pass(self, number: int, begins: Sequence[LLVMValue]) -> None:
        """Emit one pass over all rows of the block."""
        f, shape, steps = self.f, self.shape, self.body.steps
        for k in self.stages.reductions(number):
            wide = accumulator_dtype(steps[k].op, steps[steps[k].operands[0]].dtype)
            with f.loop(0, self.width, shape.lanes) as i:
                none = initial_accumulator(f, steps[k].op, wide, shape.lanes)
                registers.store_elements(f, none, f.offset(self.sums[k], i * itemsize(wide)), wide)
        if not self.stages.targets(number):
            return
        with f.loop(0, self.repeats) as repeat:
            places, _ = locate_block(f, self.rest, repeat, begins)
            at = [start_variable(f, place) for place in places]
            done = f.value(0, "i64")
            together = self.rows_per_step(number)
            if together > 1:
                done = self.rows - self.rows % together
                self.emit_rows(number, at, f.value(0, "i64"), done, together)
            self.emit_rows(number, at, done, self.rows, 1, repeat)

    def rows_per_step(self, number: int) -> int:
        """Return the rows of a step: several if loads and stores of accumulators dominate."""
        if not self.has_little_computation(number):
            return 1
        has_functions = any(is_math_function(self.body.steps[k]) for k in self.stages.steps(number))
        if is_prefetch_useful(self.f.machine) and not has_functions:
            return 1 if self.shape.is_streaming else ROWS_PER_PREFETCHING_STEP
        has_operations = self.count_operations(number) > 0
        return ROWS_PER_STEP if has_operations else ROWS_PER_STEP_WITHOUT_OPERATIONS

    def has_little_computation(self, number: int) -> bool:
        """Return whether a pass stores no values of rows, and computes few."""
        if self.stages.stored_steps:  # They are stored for one row at a time.
            return False
        return self.count_operations(number) <= MAX_UNROLLED_OPERATIONS

    def count_operations(self, number: int) -> int:
        """Return the number of elementwise operations of a pass."""
        return sum(self.body.steps[k].kind == APPLY for k in self.stages.steps(number))

    def emit_rows(
        self,
        number: int,
        at: Sequence[StackVariable],
        first: LLVMValue,
        last: LLVMValue,
        together: int,
        repeat: LLVMValue | None = None,
    ) -> None:
        """Emit a loop over rows, `together` per step, which update the accumulators once per
        step."""
        f, shape = self.f, self.shape
        with f.loop(first, last, together) as row:
            places = []
            for _ in range(together):
                places.append([each.get() for each in at])
                for each, down in zip(at, self.row_strides, strict=True):
                    each.set(advance(f, each.get(), down))
            prefetches = is_prefetch_useful(f.machine)
            before = row if repeat is None else (repeat * self.rows + row) * self.block_columns
            with f.loop(0, self.width, shape.lanes) as i:
                sums = {
                    k: registers.load_elements(f, address, wide, shape.lanes)
                    for k, address, wide in self.accumulators(number, i)
                }
                for place in places:
                    self.emit_vector(number, place, before, i, sums)
                    if prefetches:
                        distance = max(together, PREFETCHED_ROWS)
                        self.arrays.prefetch(self.advance_rows(place, distance), i)
                for k, address, wide in self.accumulators(number, i):
                    registers.store_elements(f, sums[k], address, wide)

    def advance_rows(self, at: Sequence[LLVMValue], count: int) -> list[LLVMValue]:
        """Return the places of arrays `count` rows later."""
        return [
            advance(self.f, each, down * count)
            for each, down in zip(at, self.row_strides, strict=True)
        ]

    def accumulators(self, number: int, i: LLVMValue) -> list[tuple[int, LLVMValue, str]]:
        """Return the reductions of a pass with the addresses and types of their accumulators."""
        result = []
        for k in self.stages.reductions(number):
            step = self.body.steps[k]
            wide = accumulator_dtype(step.op, self.body.steps[step.operands[0]].dtype)
            result.append((k, self.f.offset(self.sums[k], i * itemsize(wide)), wide))
        return result

    def emit_vector(
        self,
        number: int,
        at: Sequence[LLVMValue],
        before: LLVMValue,
        i: LLVMValue,
        sums: dict[int, VectorValue],
    ) -> None:
        """Emit one vector of a row in a pass."""
        f, shape, steps = self.f, self.shape, self.body.steps
        vectors = VectorAccess(f, shape.lanes, None if shape.has_full_vectors else self.width - i)
        now = StepValues(f, self.body, shape.lanes)
        saved = self.stages.steps_to_store(number)
        needed = self._steps_of_pass(number)
        for k in needed:
            if k in self.stored and k not in saved:
                address = f.offset(self.stored[k], (before + i) * itemsize(steps[k].dtype))
                now.computed[k] = registers.load_elements(f, address, steps[k].dtype, shape.lanes)
            elif k in self.between_regions:
                now.computed[k] = self.load_parallel_value(k, i)
        now.evaluate(
            needed,
            vectors,
            lambda n: self.arrays.place(n, at, i),
            lambda n: self.arrays.index(n, at, i),
        )
        for k in saved:
            address = f.offset(self.stored[k], (before + i) * itemsize(steps[k].dtype))
            registers.store_elements(f, now.computed[k], address, steps[k].dtype)
        for k in sums:
            step, x = steps[k], steps[k].operands[0]
            wide = accumulator_dtype(step.op, steps[x].dtype)
            one = emit_convert(f, now.computed[x], steps[x].dtype, wide)
            sums[k] = emit_combine(f, step.op, wide, sums[k], one, is_never_nan(self.body, x))
        for k in self.stages.results(number):
            vectors.store(now.computed[self.body.results[k]], self.arrays.result(k, at, i))

    def _steps_of_pass(self, number: int) -> list[int]:
        """Return the steps of a pass, and the parallel steps that it reads."""
        steps = self.stages.steps(number)
        return self.body.required_steps(
            steps,
            lambda k: k in self.between_regions or (k in steps and not self.stages.is_parallel[k]),
        )
