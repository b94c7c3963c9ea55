"""Reductions split into phases that write partial results and combine them.

This serves loop nests of which no task can process a whole row or column: there are too few of
them, or the values between passes do not fit into scratch memory. Every pass becomes a phase (or
two: the last block may be shorter), whose blocks are one more parallel axis; a small phase combines
the blocks and computes the steps along parallel axes. Values for later phases are in temporary
buffers.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.elementwise.accumulators import accumulator_dtype
from shardir.backends.cpu.kernels.elementwise.elementwise_loops import elementwise_phases
from shardir.backends.cpu.kernels.elementwise.loop_axes import LoopArray, LoopAxis, order_axes
from shardir.backends.cpu.kernels.elementwise.loop_body import (
    APPLY,
    ARRAY,
    IOTA,
    REDUCE,
    LoopBody,
    LoopStep,
)
from shardir.backends.cpu.kernels.elementwise.reduction_passes import ReductionPasses
from shardir.ir.types import NUMPY_DTYPES

BLOCK_ELEMENTS = 1 << 16
"""Approximate elements of a block."""
MAX_BLOCKS = 64
"""Upper limit of the number of blocks, because combining them is a reduction, too."""

ReductionPhase = Callable[
    [Sequence[LoopAxis], ReductionPasses, Sequence[LoopArray], int, LoweringContext, str], Phase
]
"""Makes the single phase of a reduction that is not split."""


class ReductionSplit(NamedTuple):
    """The index of the reduced axis that is split, and the number and extent of its blocks.

    `remainder` elements remain for one more block.
    """

    axis: int
    blocks: int
    extent: int
    remainder: int

    @property
    def partial_count(self) -> int:
        return self.blocks + (self.remainder > 0)


def choose_split(axes: Sequence[LoopAxis], lanes: int) -> ReductionSplit:
    """Choose the split of a loop nest: along its longest reduced axis."""
    number = max((i for i, a in enumerate(axes) if a.reduced), key=lambda i: axes[i].extent)
    extent = axes[number].extent
    size = prod(axis.extent for axis in axes)
    block_count = max(1, min(size // BLOCK_ELEMENTS, MAX_BLOCKS, extent))
    block_extent = -(-extent // block_count)
    if block_extent > 4 * lanes:
        block_extent = -(-block_extent // lanes) * lanes
    return ReductionSplit(number, extent // block_extent, block_extent, extent % block_extent)


class SplitReduction:
    """Makes the phases; `strides` has the strides of each array, temporaries included, along the
    axes, and `blocks` those along the blocks."""

    def __init__(
        self,
        axes: Sequence[LoopAxis],
        stages: ReductionPasses,
        arrays: Sequence[LoopArray],
        counted: int,
        context: LoweringContext,
        label: str,
        lanes: int,
        walk: ReductionPhase,
    ) -> None:
        axes = order_axes(axes, arrays)
        self.axes, self.stages, self.body = axes, stages, stages.body
        self.context, self.label, self.walk = context, label, walk
        self.split = choose_split(axes, lanes)
        self.arrays = list(arrays)
        self.strides = [tuple(axis.strides[i] for axis in axes) for i in range(len(arrays))]
        self.blocks = [each[self.split.axis] * self.split.extent for each in self.strides]
        self.operands = len(arrays) - counted - len(self.body.results)
        self.array_of_step: dict[int, int] = {}
        """The array that holds the value of a step."""

    def phases(self) -> list[Phase]:
        """Return all phases, pass by pass."""
        result = self.combine_phases(-1, {})
        for number in range(self.stages.passes):
            partials = {i: self.partial_result_array(i) for i in self.stages.reductions(number)}
            outputs = [
                (self.body.results[i], self.operands + i) for i in self.stages.results(number)
            ]
            for i in self.stages.steps_to_store(number):
                self.array_of_step.pop(i, None)
                outputs.append((i, self.temporary(self.body.steps[i].dtype, True, False)))
            if partials:
                result += self.reduction_pass_phases(partials, outputs)
            elif outputs:
                result += self.elementwise_pass_phases(outputs)
            self.array_of_step.update((i, k) for i, k in outputs if i in self.stages.stored_steps)
            result += self.combine_phases(number, partials)
        return result

    def temporary(self, dtype: str, reduced: bool, blocked: bool) -> int:
        """Add a buffer along the parallel axes, and along reduced axes and blocks on request."""
        item = NUMPY_DTYPES[dtype].itemsize
        step, strides = item, [0] * len(self.axes)
        for i in reversed(range(len(self.axes))):
            if reduced or not self.axes[i].reduced:
                strides[i] = step
                step *= self.axes[i].extent
        count = step // item * (self.split.partial_count if blocked else 1)
        slot = self.context.temporary(max(count * item, 64))
        self.arrays.append(LoopArray(BufferView(slot, 0, (count,), (item,), dtype), dtype))
        self.strides.append(tuple(strides))
        self.blocks.append(step if blocked else strides[self.split.axis] * self.split.extent)
        return len(self.arrays) - 1

    def partial_result_array(self, i: int) -> int:
        """Add an array for the partial results of a reduction."""
        step = self.body.steps[i]
        wide = accumulator_dtype(step.op, self.body.steps[step.operands[0]].dtype)
        return self.temporary(wide, False, True)

    def reduction_pass_phases(
        self, partials: dict[int, int], outputs: list[tuple[int, int]]
    ) -> list[Phase]:
        """Return the phases of a pass with reductions: all full blocks, and the remainder."""
        part = _BodySubset(self.body, self.array_of_step, set(partials))
        targets = [*partials.items(), *outputs]
        body = part.body([i for i, _ in targets])
        split, result = self.split, []
        chosen = [*part.arrays, *(k for _, k in targets)]
        for first, count, extent in (
            (0, split.blocks, split.extent),
            (split.blocks, int(split.remainder > 0), split.remainder),
        ):
            if not count:
                continue
            arrays, axes = self.select_arrays(chosen, part.counted)
            arrays = [
                self.advance_array(a, first * self.blocks[k])
                for a, k in zip(arrays, [*chosen, *self.indices(part.counted)], strict=True)
            ]
            axes[split.axis] = axes[split.axis]._replace(extent=extent)
            along = tuple(self.blocks[k] for k in [*chosen, *self.indices(part.counted)])
            axes.append(LoopAxis(count, along))
            kept = [i in partials for i, _ in targets]
            stages = ReductionPasses(
                body, part.parallel_flags(self.stages), tuple(kept), can_store=False
            )
            result.append(
                self.walk(axes, stages, arrays, len(part.counted), self.context, self.label)
            )
        return result

    def elementwise_pass_phases(self, outputs: list[tuple[int, int]]) -> list[Phase]:
        """Return the phases of a pass without reductions."""
        part = _BodySubset(self.body, self.array_of_step, set())
        body = part.body([i for i, _ in outputs])
        arrays, axes = self.select_arrays([*part.arrays, *(k for _, k in outputs)], part.counted)
        axes = [axis._replace(reduced=False) for axis in axes]
        counted = len(part.counted)
        return elementwise_phases(axes, body, arrays, counted, self.context, self.label)

    def combine_phases(self, number: int, partials: dict[int, int]) -> list[Phase]:
        """Return the phases that combine the blocks of a pass, and compute steps along parallel
        axes."""
        stage = self.stages.stage
        outputs = [
            (self.body.results[i], self.operands + i)
            for i in self.stages.parallel_results()
            if stage[self.body.results[i]] == number + 1
        ]
        used = [i for i in self.stages.parallel_steps_after(number) if self.is_used(i)]
        later = {i: self.temporary(self.body.steps[i].dtype, False, False) for i in used}
        outputs += later.items()
        if not outputs:
            return []
        part = _BodySubset(self.body, {**self.array_of_step, **partials}, set(partials), again=True)
        body = part.body([i for i, _ in outputs])
        chosen = [*part.arrays, *(k for _, k in outputs)]
        arrays, axes = self.select_arrays(chosen, part.counted)
        axes = [axis for axis in axes if not axis.reduced]
        self.array_of_step.update(later)
        counted = len(part.counted)
        if not partials:
            return elementwise_phases(axes, body, arrays, counted, self.context, self.label)
        own = set(partials.values())
        along = tuple(
            self.blocks[k] if k in own else 0 for k in [*chosen, *self.indices(part.counted)]
        )
        axes.append(LoopAxis(self.split.partial_count, along, True))
        kept = tuple(
            step.kind != ARRAY or part.arrays[step.number] not in own for step in body.steps
        )
        stages = ReductionPasses(body, kept, (True,) * len(outputs))
        return [self.walk(axes, stages, arrays, counted, self.context, self.label)]

    def is_used(self, i: int) -> bool:
        """Return whether a value along parallel axes is needed after the phase that computes it."""
        stage, kept = self.stages.stage, self.stages.is_parallel
        if stage[i] == 0 or self.body.steps[i].kind not in (APPLY, REDUCE):
            return False
        users = (
            k
            for k, step in enumerate(self.body.steps)
            if i in step.operands and (not kept[k] or stage[k] > stage[i])
        )
        whole = (
            value == i and not end
            for value, end in zip(self.body.results, self.stages.is_parallel_result, strict=True)
        )
        return any(True for _ in users) or any(whole)

    def indices(self, counted: Sequence[int]) -> list[int]:
        """Return the indices of the arrays of iota indices."""
        return [self.operands + len(self.body.results) + i for i in counted]

    def select_arrays(
        self, chosen: Sequence[int], counted: Sequence[int]
    ) -> tuple[list[LoopArray], list[LoopAxis]]:
        """Return some arrays and indices, and the axes with their strides."""
        every = [*chosen, *self.indices(counted)]
        axes = [
            LoopAxis(axis.extent, tuple(self.strides[k][i] for k in every), axis.reduced)
            for i, axis in enumerate(self.axes)
        ]
        return [self.arrays[k] for k in every], axes

    @staticmethod
    def advance_array(array: LoopArray, distance: int) -> LoopArray:
        if array.view is None:
            return array._replace(begin=array.begin + distance)
        return array._replace(view=array.view._replace(offset=array.view.offset + distance))


class _BodySubset:
    """The steps of a body that some values need, given values that are already known.

    The reductions in `reduced` compute partial results, or combine them if `again` is set.
    """

    def __init__(
        self, body: LoopBody, known: dict[int, int], reduced: set[int], again: bool = False
    ) -> None:
        self.full_body, self.known, self.reduced, self.combines = body, known, reduced, again
        self.arrays: list[int] = []
        self.counted: list[int] = []
        self.steps: list[LoopStep] = []
        self.sources: list[int] = []
        """The step of the full body that each step corresponds to."""
        self.numbers: dict[int, int] = {}

    def body(self, results: Sequence[int]) -> LoopBody:
        numbers = [self.step(i) for i in results]
        return LoopBody(tuple(self.steps), tuple(numbers))

    def parallel_flags(self, stages: ReductionPasses) -> tuple[bool, ...]:
        return tuple(stages.is_parallel[i] for i in self.sources)

    def step(self, i: int) -> int:
        if i in self.numbers:
            return self.numbers[i]
        step = self.full_body.steps[i]
        if i in self.reduced and self.combines:
            wide = accumulator_dtype(step.op, self.full_body.steps[step.operands[0]].dtype)
            partial = self.add(i, LoopStep(ARRAY, wide, number=self.array(self.known[i])))
            result = LoopStep(REDUCE, step.dtype, step.op, (partial,))
        elif i in self.reduced:
            wide = accumulator_dtype(step.op, self.full_body.steps[step.operands[0]].dtype)
            result = LoopStep(REDUCE, wide, step.op, (self.step(step.operands[0]),))
        elif i in self.known:
            result = LoopStep(ARRAY, step.dtype, number=self.array(self.known[i]))
        elif step.kind == ARRAY:
            result = step._replace(number=self.array(step.number))
        elif step.kind == IOTA:
            self.counted.append(step.number)
            result = step._replace(number=len(self.counted) - 1)
        else:
            result = step._replace(operands=tuple(self.step(k) for k in step.operands))
        self.numbers[i] = self.add(i, result)
        return self.numbers[i]

    def add(self, i: int, step: LoopStep) -> int:
        self.steps.append(step)
        self.sources.append(i)
        return len(self.steps) - 1

    def array(self, number: int) -> int:
        if number not in self.arrays:
            self.arrays.append(number)
        return self.arrays.index(number)
