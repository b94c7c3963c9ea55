"""Reductions of few rows across the vector axis: the accumulators of a vector of columns stay in
registers while all of its rows are read."""

from collections.abc import Sequence
from functools import cache, partial
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.codegen.memory_hints import store_fence
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import Kernel, LoweringContext, Phase, blocks_per_task
from shardir.backends.cpu.kernels.elementwise.accumulators import (
    accumulator_dtype,
    emit_combine,
    emit_convert,
    initial_accumulator,
)
from shardir.backends.cpu.kernels.elementwise.column_reduction import (
    MAX_UNROLLED_OPERATIONS,
    each_block,
)
from shardir.backends.cpu.kernels.elementwise.cost_model import estimate_nanoseconds
from shardir.backends.cpu.kernels.elementwise.evaluation import StepValues
from shardir.backends.cpu.kernels.elementwise.loop_body import APPLY
from shardir.backends.cpu.kernels.elementwise.nan_analysis import is_never_nan
from shardir.backends.cpu.kernels.elementwise.phase_record import (
    KERNEL_ATTRIBUTES,
    KERNEL_PARAMS,
    PhaseRecord,
    RecordReader,
    advance,
    make_named_kernel,
)
from shardir.backends.cpu.kernels.elementwise.reduction_layout import (
    ReductionLayout,
    VectorAxisArrays,
)
from shardir.backends.cpu.kernels.elementwise.reduction_passes import ReductionPasses
from shardir.backends.cpu.kernels.elementwise.streaming_stores import are_aligned, can_stream_layout
from shardir.backends.cpu.kernels.elementwise.vector_access import VectorAccess

MAX_REGISTER_ROWS = 16
"""Maximum number of rows, all of which are read in one step."""
MAX_BLOCK_COLUMNS = 1 << 14
"""Upper limit of the columns of a block: a few pages of every row."""
MIN_BLOCK_COLUMNS = 128
"""Lower limit of the columns of a block, if there are as many."""
MIN_BLOCK_COUNT = 32
"""The least number of blocks, if there are enough columns."""


class RegisterReductionShape(NamedTuple):
    """The parameters of the text of a kernel for few rows; `streaming` results are stored past the
    caches."""

    stages: ReductionPasses
    kinds: tuple[tuple[str, str], ...]
    counted: int
    lanes: int
    has_full_vectors: bool
    rows: int
    streaming: bool


def register_row_count(layout: ReductionLayout, stages: ReductionPasses) -> int:
    """Return the number of rows to reduce in registers; 0 selects another strategy."""
    rows = [axis.extent for axis in layout.reduced]
    if layout.column.reduced or stages.passes > 1 or stages.results(0):
        return 0
    if len(rows) != 1 or rows[0] > MAX_REGISTER_ROWS:
        return 0
    steps = [k for k in stages.steps(0) if stages.body.steps[k].kind == APPLY]
    return rows[0] if len(steps) <= MAX_UNROLLED_OPERATIONS else 0


def register_reduction_phase(
    layout: ReductionLayout, stages: ReductionPasses, context: LoweringContext, label: str
) -> Phase:
    """Return the phase of a reduction of few rows."""
    extent, (row,) = layout.column.extent, layout.reduced
    batch_size = prod(axis.extent for axis in layout.parallel)
    column_target = min(
        max(MIN_BLOCK_COLUMNS, min(MAX_BLOCK_COLUMNS, extent * batch_size // MIN_BLOCK_COUNT)),
        extent,
    )
    block_columns = -(-column_target // layout.lanes) * layout.lanes
    shape = RegisterReductionShape(
        stages, layout.kinds, layout.counted, layout.lanes, layout.has_full_vectors, row.extent,
        can_stream_layout(layout, stages, context.machine),
    )  # fmt: skip
    cost = estimate_nanoseconds(stages.body, layout.size, layout.arrays, layout.column.strides)
    column_blocks = -(-extent // block_columns)
    blocks = column_blocks * batch_size
    each = blocks_per_task(blocks, cost, context.workers)
    record = PhaseRecord()
    record.add(blocks, each, extent, block_columns, column_blocks)
    record.arrays(layout.arrays)
    record.add(*layout.column.strides)
    record.add(*row.strides)
    record.table(layout.parallel)
    return Phase(
        register_reduction_kernel(shape, context.machine),
        tuple(record.words),
        -(-blocks // each),
        cost,
        label,
    )


@cache
def register_reduction_kernel(shape: RegisterReductionShape, machine: HostDescription) -> Kernel:
    """Return the kernel for few rows; equal shapes share one kernel."""
    return make_named_kernel(
        "few", shape, machine, lambda *given: _RegisterReductionWriter(*given).module
    )


class _RegisterReductionWriter:
    """Writes the kernel."""

    def __init__(self, shape: RegisterReductionShape, name: str, machine: HostDescription) -> None:
        self.shape, self.stages, self.body = shape, shape.stages, shape.stages.body
        self.module = LLVMModule(machine)
        self.f = f = LLVMFunction(self.module, name, KERNEL_PARAMS, attributes=KERNEL_ATTRIBUTES)
        bases, words, task, _ = f.params
        count = len(shape.kinds)
        reader = RecordReader(f, bases, words)
        blocks, columns = reader.words(2), reader.words(3)
        starts = reader.arrays(count - shape.counted, shape.counted)
        self.arrays = VectorAxisArrays(
            f, shape.kinds, len(self.body.results), shape.counted, shape.lanes, reader.words(count)
        )
        self.row_strides = reader.words(count)
        table = reader.table()
        with each_block(f, task, blocks, columns, self.arrays, starts, table) as block:
            begins = block.begins
            walk = partial(self.emit_columns, begins, block.width)
            if shape.streaming:
                results = [
                    self.arrays.result(k, begins, None) for k in self.stages.parallel_results()
                ]
                aligned = are_aligned(f, results, shape.lanes)
                f.if_else(aligned, partial(walk, True), partial(walk, False))
            else:
                walk(False)
        if shape.streaming:
            store_fence(f)
        f.ret()

    def emit_columns(self, begins: Sequence[LLVMValue], width: LLVMValue, streaming: bool) -> None:
        """Emit a loop over vectors of columns, each with all of its rows."""
        f, shape, stages = self.f, self.shape, self.stages
        with f.loop(0, width, shape.lanes) as i:
            vectors = VectorAccess(
                f, shape.lanes, None if shape.has_full_vectors else width - i, streaming
            )

            def evaluate(now: StepValues, needed: Sequence[int], at: Sequence[LLVMValue]) -> None:
                now.evaluate(
                    needed,
                    vectors,
                    lambda n: self.arrays.place(n, at, i),
                    lambda n: self.arrays.index(n, at, i),
                )

            known = StepValues(f, self.body, shape.lanes)
            evaluate(known, stages.parallel_steps_after(-1), begins)
            rows, at = [], list(begins)
            for _ in range(shape.rows):
                rows.append(known.copy_for_inner_loop())
                evaluate(rows[-1], stages.steps(0), at)
                at = [advance(f, a, down) for a, down in zip(at, self.row_strides, strict=True)]
            for k in stages.reductions(0):
                step, x = self.body.steps[k], self.body.steps[self.body.steps[k].operands[0]]
                wide = accumulator_dtype(step.op, x.dtype)
                total = initial_accumulator(f, step.op, wide, shape.lanes)
                no_nan = is_never_nan(self.body, step.operands[0])
                for row in rows:
                    one = emit_convert(f, row.computed[step.operands[0]], x.dtype, wide)
                    total = emit_combine(f, step.op, wide, total, one, no_nan)
                known.computed[k] = emit_convert(f, total, wide, step.dtype)
            evaluate(known, stages.parallel_steps_after(0), begins)
            for k in stages.parallel_results():
                vectors.store(
                    known.computed[self.body.results[k]], self.arrays.result(k, begins, i)
                )
