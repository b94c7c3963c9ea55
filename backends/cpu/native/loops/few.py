"""Reductions of few rows across the vector axis: the accumulators of a vector of columns stay in
registers while all of its rows are read."""

from collections.abc import Sequence
from functools import cache, partial
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.native.data import Context, Kernel, Phase
from shardir.backends.cpu.native.llvm.hints import fence
from shardir.backends.cpu.native.llvm.text import Function, Module, Value
from shardir.backends.cpu.native.loops.access import Vectors
from shardir.backends.cpu.native.loops.along import Along
from shardir.backends.cpu.native.loops.body import APPLY
from shardir.backends.cpu.native.loops.columns import LIGHT, each_block
from shardir.backends.cpu.native.loops.evaluation import Values
from shardir.backends.cpu.native.loops.layout import Layout
from shardir.backends.cpu.native.loops.maps import TASK_NANOSECONDS
from shardir.backends.cpu.native.loops.numbers import never_nan
from shardir.backends.cpu.native.loops.prices import nanoseconds
from shardir.backends.cpu.native.loops.record import (
    ATTRIBUTES,
    PARAMS,
    Reader,
    Record,
    further,
)
from shardir.backends.cpu.native.loops.reducing import combined, converted, start, wide_of
from shardir.backends.cpu.native.loops.stages import Stages
from shardir.backends.cpu.native.loops.streaming import are_aligned, layout_streams
from shardir.backends.cpu.native.loops.writing import written

MOST_ROWS = 16
COLUMNS = 1 << 14
"""Upper limit of the columns of a block: a few pages of every row."""
FEWEST = 128
"""Lower limit of the columns of a block, if there are as many."""
BLOCKS = 32
"""The least number of blocks, if there are enough columns."""


class FewShape(NamedTuple):
    """The parameters of the text of a kernel for few rows; `streaming` results are stored past the
    caches."""

    stages: Stages
    kinds: tuple[tuple[str, str], ...]
    counted: int
    lanes: int
    whole: bool
    rows: int
    streaming: bool


def few_rows(layout: Layout, stages: Stages) -> int:
    """Return the number of rows to reduce in registers; 0 selects another strategy."""
    rows = [axis.extent for axis in layout.reduced]
    if layout.column.reduced or stages.passes > 1 or stages.results(0):
        return 0
    if len(rows) != 1 or rows[0] > MOST_ROWS:
        return 0
    steps = [k for k in stages.steps(0) if stages.body.steps[k].kind == APPLY]
    return rows[0] if len(steps) <= LIGHT else 0


def few_phase(layout: Layout, stages: Stages, context: Context, label: str) -> Phase:
    """Return the phase of a reduction of few rows."""
    extent, (row,) = layout.column.extent, layout.reduced
    batch_size = prod(axis.extent for axis in layout.kept)
    column_target = min(max(FEWEST, min(COLUMNS, extent * batch_size // BLOCKS)), extent)
    cut = -(-column_target // layout.lanes) * layout.lanes
    shape = FewShape(
        stages, layout.kinds, layout.counted, layout.lanes, layout.whole, row.extent,
        layout_streams(layout, stages, context.machine),
    )  # fmt: skip
    cost = nanoseconds(stages.body, layout.size, layout.arrays, layout.column.strides)
    column_blocks = -(-extent // cut)
    blocks = column_blocks * batch_size
    tasks = max(1, min(blocks, 4 * context.workers, int(cost / TASK_NANOSECONDS)))
    each = -(-blocks // tasks)
    record = Record()
    record.add(blocks, each, extent, cut, column_blocks)
    record.arrays(layout.arrays)
    record.add(*layout.column.strides)
    record.add(*row.strides)
    record.table(layout.kept)
    return Phase(few_kernel(shape), tuple(record.words), -(-blocks // each), cost, label)


@cache
def few_kernel(shape: FewShape) -> Kernel:
    """Return the kernel for few rows; equal shapes share one kernel."""
    return written("few", shape, lambda shape, name: _Few(shape, name).module)


class _Few:
    """Writes the kernel."""

    def __init__(self, shape: FewShape, name: str) -> None:
        self.shape, self.stages, self.body = shape, shape.stages, shape.stages.body
        self.module = Module()
        self.f = f = Function(self.module, name, PARAMS, attributes=ATTRIBUTES)
        bases, words, task, _ = f.params
        count = len(shape.kinds)
        reader = Reader(f, bases, words)
        blocks, columns = reader.words(2), reader.words(3)
        starts = reader.arrays(count - shape.counted, shape.counted)
        self.arrays = Along(
            f, shape.kinds, len(self.body.results), shape.counted, shape.lanes, reader.words(count)
        )
        self.row_strides = reader.words(count)
        table = reader.table()
        with each_block(f, task, blocks, columns, self.arrays, starts, table) as block:
            begins = block.begins
            walk = partial(self.walk, begins, block.width)
            if shape.streaming:
                results = [self.arrays.result(k, begins, None) for k in self.stages.ends()]
                aligned = are_aligned(f, results, shape.lanes)
                f.choose(aligned, partial(walk, True), partial(walk, False))
            else:
                walk(False)
        if shape.streaming:
            fence(f)
        f.leave()

    def walk(self, begins: Sequence[Value], width: Value, streaming: bool) -> None:
        """Emit a loop over vectors of columns, each with all of its rows."""
        f, shape, stages = self.f, self.shape, self.stages
        with f.loop(0, width, shape.lanes) as i:
            vectors = Vectors(f, shape.lanes, None if shape.whole else width - i, streaming)

            def evaluate(now: Values, needed: Sequence[int], at: Sequence[Value]) -> None:
                now.evaluate(
                    needed,
                    vectors,
                    lambda n: self.arrays.place(n, at, i),
                    lambda n: self.arrays.index(n, at, i),
                )

            known = Values(f, self.body, shape.lanes)
            evaluate(known, stages.between_after(-1), begins)
            rows, at = [], list(begins)
            for _ in range(shape.rows):
                rows.append(known.inner())
                evaluate(rows[-1], stages.steps(0), at)
                at = [further(f, a, down) for a, down in zip(at, self.row_strides, strict=True)]
            for k in stages.reductions(0):
                step, x = self.body.steps[k], self.body.steps[self.body.steps[k].operands[0]]
                wide = wide_of(step.op, x.dtype)
                total = start(f, step.op, wide, shape.lanes)
                no_nan = never_nan(self.body, step.operands[0])
                for row in rows:
                    one = converted(f, row.held[step.operands[0]], x.dtype, wide)
                    total = combined(f, step.op, wide, total, one, no_nan)
                known.held[k] = converted(f, total, wide, step.dtype)
            evaluate(known, stages.between_after(0), begins)
            for k in stages.ends():
                vectors.store(known.held[self.body.results[k]], self.arrays.result(k, begins, i))
