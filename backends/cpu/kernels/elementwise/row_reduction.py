"""Reductions along the vector axis: one row after the other, each in as many passes as it needs.

A row is processed while it is in the caches; accumulators stay in registers, and expensive values
that are needed again are stored in scratch memory.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.codegen.memory_hints import store_fence
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import SCRATCH_BYTES_PER_WORKER, Kernel
from shardir.backends.cpu.kernels.elementwise.accumulators import (
    VectorAccumulator,
    accumulator_dtype,
    emit_convert,
    emit_lane_reduction,
    extract_first_lane,
    initial_accumulator,
    select_present,
    splat_to_lanes,
)
from shardir.backends.cpu.kernels.elementwise.evaluation import StepValues, invariant_steps
from shardir.backends.cpu.kernels.elementwise.math_inlining import is_inlined
from shardir.backends.cpu.kernels.elementwise.nan_analysis import is_never_nan
from shardir.backends.cpu.kernels.elementwise.phase_record import (
    KERNEL_ATTRIBUTES,
    KERNEL_PARAMS,
    RecordReader,
    locate_block,
    make_named_kernel,
)
from shardir.backends.cpu.kernels.elementwise.reduction_layout import VectorAxisArrays
from shardir.backends.cpu.kernels.elementwise.reduction_passes import ReductionPasses
from shardir.backends.cpu.kernels.elementwise.streaming_stores import are_aligned
from shardir.backends.cpu.kernels.elementwise.vector_access import VectorAccess
from shardir.backends.cpu.kernels.math import registers
from shardir.backends.cpu.kernels.math.registers import itemsize

VECTORS_PER_PARTIAL_SUM = 64
"""Vectors that one accumulator sums before it is added to another, which limits the rounding error
of sums of many f64 elements."""
STREAM_PREFETCH_BYTES = 4096
"""Prefetch distance in bytes of operands that are read from memory. Prefetchers of processors stop
at the end of a page. On one core of a Xeon (AVX-512, 2 MiB of second-level cache), the sum of 32
MiB of f32 takes 3.2 ms without prefetches, 2.3 ms with a distance of 2 KiB, and 2.2 ms with 4 to
16 KiB."""


class RowShape(NamedTuple):
    """The parameters of the text of a row kernel.

    `nested`: rows span several axes; `streaming`: results along rows are stored past the caches;
    `prefetches_next_row`: a row is prefetched during the second pass of the row before it;
    `prefetches_stream`: the first pass prefetches operands at a constant distance.
    """

    stages: ReductionPasses
    kinds: tuple[tuple[str, str], ...]
    counted: int
    lanes: int
    has_full_vectors: bool
    nested: bool
    streaming: bool
    prefetches_next_row: bool
    prefetches_stream: bool


@cache
def row_kernel(shape: RowShape, machine: HostDescription) -> Kernel:
    """Return the kernel for rows; equal shapes share one kernel.

    Its record: rows, rows of a task; columns, the row length padded to full vectors; repetitions of
    the columns; the scratch offset of each stored value; arrays; strides along the columns; the
    table of parallel axes, and that of the other reduced ones.
    """
    return make_named_kernel("rows", shape, machine, lambda *given: _RowKernelWriter(*given).module)


class _RowKernelWriter:
    """Writes the kernel."""

    def __init__(self, shape: RowShape, name: str, machine: HostDescription) -> None:
        self.shape, self.stages, self.body = shape, shape.stages, shape.stages.body
        self.module = LLVMModule(machine, inlined=is_inlined(self.body))
        self.f = f = LLVMFunction(self.module, name, KERNEL_PARAMS, attributes=KERNEL_ATTRIBUTES)
        bases, words, task, worker = f.params
        count = len(shape.kinds)
        reader = RecordReader(f, bases, words)
        rows, each = reader.words(2)
        self.columns, self.padded, self.repeats = reader.words(3)
        scratch = f.offset(f.load(bases, "ptr"), worker * SCRATCH_BYTES_PER_WORKER)
        self.stored = {
            i: f.offset(scratch, reader.word()) for i in sorted(self.stages.stored_steps)
        }
        starts = reader.arrays(count - shape.counted, shape.counted)
        self.arrays = VectorAxisArrays(
            f, shape.kinds, len(self.body.results), shape.counted, shape.lanes, reader.words(count)
        )
        table = reader.table()
        first = task * each
        with f.loop(first, f.umin(first + each, rows)) as row:
            begins, self.rest = locate_block(f, table, row, starts)
            if shape.prefetches_next_row:
                self.next_row, _ = locate_block(f, table, f.umin(row + 1, rows - 1), starts)
            self.emit_row(begins)
        if shape.streaming:
            store_fence(f)
        f.ret()

    def emit_row(self, begins: Sequence[LLVMValue]) -> None:
        """Emit all passes over one row."""
        shape = self.shape
        known = StepValues(self.f, self.body, shape.lanes)
        self.emit_parallel_steps(-1, known, begins)
        for number in range(self.stages.passes):
            self.emit_pass(number, known, begins)
            self.emit_parallel_steps(number, known, begins)

    def emit_parallel_steps(self, number: int, known: StepValues, at: Sequence[LLVMValue]) -> None:
        """Emit the steps that vary along parallel axes only, and results of that kind; all lanes
        are equal."""
        steps = self.stages.parallel_steps_after(number)
        vectors = VectorAccess(self.f, self.shape.lanes)
        known.evaluate(
            steps,
            vectors,
            lambda n: self.arrays.place(n, at, None),
            lambda n: self.arrays.index(n, at, None),
        )
        for i in self.stages.parallel_results():
            value = self.body.results[i]
            if self.stages.stage[value] == number + 1:
                place = self.arrays.result(i, at, None)
                one = extract_first_lane(self.f, known.computed[value])
                registers.store_elements(self.f, one, place.address, place.dtype)

    def emit_pass(self, number: int, known: StepValues, begins: Sequence[LLVMValue]) -> None:
        """Emit one pass over the row."""
        f, shape, steps = self.f, self.shape, self.body.steps
        sums = {}
        for i in self.stages.reductions(number):
            step = steps[i]
            wide = accumulator_dtype(step.op, steps[step.operands[0]].dtype)
            no_nan = is_never_nan(self.body, step.operands[0])
            sums[i] = VectorAccumulator(f, step.op, wide, shape.lanes, no_nan)
            sums[i].clear()
        if shape.nested:
            with f.loop(0, self.repeats) as repeat:
                at, _ = locate_block(f, self.rest, repeat, begins)
                self.emit_columns(number, known, at, repeat * self.padded, sums)
        else:
            self.emit_columns(number, known, begins, f.value(0, "i64"), sums)
        for i, total in sums.items():
            one = emit_lane_reduction(f, total.op, total.dtype, total.get())
            one = emit_convert(f, one, total.dtype, steps[i].dtype)
            known.computed[i] = splat_to_lanes(f, one, shape.lanes)

    def emit_columns(
        self,
        number: int,
        known: StepValues,
        at: Sequence[LLVMValue],
        before: LLVMValue,
        sums: dict[int, VectorAccumulator],
    ) -> None:
        """Emit one loop along the columns."""
        f, shape = self.f, self.shape
        here = known.copy_for_inner_loop()
        steps = self.stages.steps(number)
        loaded = [
            i for i in steps if i in self.stored and i not in self.stages.steps_to_store(number)
        ]
        same = set(invariant_steps(self.body, shape.kinds, shape.counted))
        here.evaluate(
            [i for i in steps if i in same and i not in loaded],
            VectorAccess(f, shape.lanes),
            lambda n: self.arrays.place(n, at, None),
            lambda n: self.arrays.index(n, at, None),
        )

        def vector(
            i: LLVMValue, into: dict[int, VectorAccumulator] = sums, streaming: bool = False
        ) -> None:
            self.emit_vector(number, here.copy_for_inner_loop(), at, before, i, into, streaming)

        partial_sums = {
            i: VectorAccumulator(f, total.op, total.dtype, shape.lanes)
            for i, total in sums.items()
            if total.op == "sum" and self.body.steps[i].dtype in ("f64", "c128")
        }
        results = [self.arrays.result(k, at, None) for k in self.stages.results(number)]

        def walk(streaming: bool) -> None:
            with f.loop(0, self.columns, shape.lanes) as i:
                vector(i, streaming=streaming)

        if shape.streaming and results and not partial_sums:
            aligned = are_aligned(f, results, shape.lanes)
            f.if_else(aligned, partial(walk, True), partial(walk, False))
            return
        if not partial_sums:
            walk(False)
            return
        length = VECTORS_PER_PARTIAL_SUM * shape.lanes
        with f.loop(0, self.columns, length) as begin:
            for one in partial_sums.values():
                one.clear()
            with f.loop(begin, f.umin(begin + length, self.columns), shape.lanes) as i:
                vector(i, {**sums, **partial_sums})
            for number_of, one in partial_sums.items():
                sums[number_of].add(one.get())

    def emit_vector(
        self,
        number: int,
        now: StepValues,
        at: Sequence[LLVMValue],
        before: LLVMValue,
        i: LLVMValue,
        sums: dict[int, VectorAccumulator],
        streaming: bool,
    ) -> None:
        """Emit one vector of a row in a pass."""
        f, shape, steps = self.f, self.shape, self.body.steps
        vectors = VectorAccess(
            f, shape.lanes, None if shape.has_full_vectors else self.columns - i, streaming
        )
        if shape.prefetches_next_row and number == 1:
            # The next row comes from memory, while this one is computed.
            self.arrays.prefetch(self.next_row, i)
        if shape.prefetches_stream and number == 0:
            self.arrays.prefetch(at, i, STREAM_PREFETCH_BYTES)
        saved = self.stages.steps_to_store(number)
        for k in self.stages.steps(number):
            if k in self.stored and k not in saved:
                address = self.scratch(k, before + i)
                now.computed[k] = registers.load_elements(f, address, steps[k].dtype, shape.lanes)
        now.evaluate(
            self.stages.steps(number),
            vectors,
            lambda n: self.arrays.place(n, at, i),
            lambda n: self.arrays.index(n, at, i),
        )
        for k in saved:
            registers.store_elements(
                f, now.computed[k], self.scratch(k, before + i), steps[k].dtype
            )
        for k, total in sums.items():
            x = steps[k].operands[0]
            held = emit_convert(f, now.computed[x], steps[x].dtype, total.dtype)
            none = initial_accumulator(f, total.op, total.dtype, shape.lanes)
            total.add(select_present(f, held, vectors.present_mask(), none))
        for k in self.stages.results(number):
            vectors.store(now.computed[self.body.results[k]], self.arrays.result(k, at, i))

    def scratch(self, k: int, index: LLVMValue) -> LLVMValue:
        return self.f.offset(self.stored[k], index * itemsize(self.body.steps[k].dtype))
