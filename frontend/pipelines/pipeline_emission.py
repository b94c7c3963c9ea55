"""Pipelines of programs for emission: the passes of stages as the programs of devices.

Each pass takes values with the shardings that the devices of its row hold: it takes its part of
shards of operands, and begins and ends with the collectives that change shardings.
"""

from collections import defaultdict
from dataclasses import replace
from typing import final

from shardir.backends.emission import EmissionError
from shardir.backends.pipeline_programs import (
    CombinedValue,
    EmittablePipeline,
    GradientTerm,
    PipelineGradient,
    PipelineProgram,
    SentValue,
    StagePass,
)
from shardir.frontend.pipelines.inspection import (
    InspectedPipeline,
    PipelineCall,
    replace_pipelines,
)
from shardir.frontend.pipelines.wiring import is_auxiliary, is_summed
from shardir.ir.builder import Builder, inline
from shardir.ir.module import (
    Block,
    Function,
    GlobalTensor,
    Module,
    SpmdInterface,
    Value,
)
from shardir.ir.operation import Symbol
from shardir.ir.sharding import Axes, Sharding, count_positions
from shardir.ir.types import NumpyArray, TensorType
from shardir.ops.control_flow.manual_computation import ManualDimAxes
from shardir.ops.control_flow.pipeline_slots import (
    Window,
    given_cotangent,
    received_cotangent,
    slot_number,
    slot_window,
)
from shardir.ops.control_flow.pipelines import (
    has_pipelines,
    microbatch_type,
    stacked_type,
)
from shardir.passes.pipeline import Pipeline
from shardir.passes.pipeline_parallelism.actions import ActionKind, PipelineScheduleError
from shardir.passes.pipeline_parallelism.argument_windows import slice_window
from shardir.passes.pipeline_parallelism.program import FragmentKey
from shardir.passes.pipeline_parallelism.progress import SendMode, verify_schedule

F = ActionKind.FORWARD


def prepare_pipelines(module: Module, target_passes: str) -> Module:
    """Return a traced program in which calls of emittable pipelines stand for pipelines.

    `target_passes` are the passes of the target.
    """
    if not has_pipelines(module):
        return module
    return replace_pipelines(module, lambda found: EmittedPipeline(found, target_passes))


@final
class EmittedPipeline(PipelineCall, EmittablePipeline):
    """Stands for a pipeline in a program for emission."""

    def __init__(self, inspected: InspectedPipeline, target_passes: str) -> None:
        super().__init__(inspected)
        self._passes = Pipeline.parse(target_passes)
        self._program: PipelineProgram | None = None

    def __call__(self, *arrays: NumpyArray) -> list[NumpyArray]:
        raise AssertionError("a program for emission does not run in this process")

    def emitted_program(self) -> PipelineProgram:
        if self._program is None:
            self._program = _ProgramBuilder(self.inspected, self._passes).program()
        return self._program


class _ProgramBuilder:
    """Builds the program of one pipeline."""

    def __init__(self, inspected: InspectedPipeline, target_passes: Pipeline) -> None:
        self.inspected, self.target_passes = inspected, target_passes
        self.staged, self.schedule = inspected.staged, inspected.schedule
        self.placement, self.fragments = inspected.placement, inspected.fragments
        self.op = self.staged.op
        self.held: dict[tuple[int, str], tuple[ManualDimAxes, TensorType]] = {}
        """The axes and the global types of the values of the stages, by stage and name."""
        self.combined: list[CombinedValue] = []
        self._cut_dims = self._find_cut_dims()

    def program(self) -> PipelineProgram:
        """Return the program of the pipeline in each device."""
        try:
            verify_schedule(self.schedule, SendMode.RENDEZVOUS)
        except PipelineScheduleError as error:
            raise EmissionError.of(
                self.op,
                f"on GPUs, a send may wait for its receive, and {error}",
                "change the order of the transfers",
            ) from None
        # A microbatch passes the fragments in this order.
        passes = tuple([self._stage_pass(key) for key in self.fragments])
        rows = self.schedule.to_csv().splitlines()
        return PipelineProgram(
            self.placement.axis,
            self.staged.microbatches,
            self.staged.batched_operands,
            tuple(",".join(cell for cell in row.split(",") if cell) for row in rows),
            passes,
            tuple(
                tuple(self._sent(stage, name, name) for name in names)
                for stage, names in enumerate(self.staged.forward)
            ),
            tuple(
                tuple(
                    self._sent(stage, given_cotangent(name), received_cotangent(name))
                    for name in names
                )
                for stage, names in enumerate(self.staged.backward, 1)
            ),
            tuple(self.combined),
            self.staged.loss_scale,
            tuple(map(self._gradient, range(len(self.staged.wrt)))),
        )

    def _find_cut_dims(self) -> dict[int, set[int]]:
        """Return the dimensions of operands of which stages use parts, by number of the operand."""
        found: dict[int, set[int]] = defaultdict(set)
        for fragment in self.staged.fragments.values():
            for slot in fragment.takes:
                number = slot_number(slot, "argument")
                if number is not None:
                    found[number].update(range(len(slot_window(slot))))
        return found

    def _row_axes(self, axes: ManualDimAxes) -> ManualDimAxes:
        """Return the axes without that of the pipeline."""
        name = self.placement.axis
        return tuple(tuple(axis for axis in dim if axis.name != name) for dim in axes)

    def _stage_pass(self, key: FragmentKey) -> StagePass:
        """Return the program of a fragment, and record the values that it gives."""
        stage, kind = key
        fragment, module = self.staged.fragments[key], self.fragments[key].module
        spmd, block = module.main.spmd, fragment.block
        b = Builder()
        params, args, ins, outs, returned = [], [], [], [], []
        for i, (slot, param) in enumerate(zip(fragment.takes, block.params, strict=True)):
            taken = _axes_of(None if spmd is None else spmd.params[i].sharding, param.type)
            axes, type, name = self._find_held(stage, slot)
            made = b.param(_shard_type(type, axes), name)
            params.append(made)
            args.append(self._take(b, made, axes, (stage, slot), taken))
            ins.append((type, axes))
        results = inline(b, module.main.body, args)
        for i, (slot, value) in enumerate(zip(fragment.gives, block.returns, strict=True)):
            sharding = None if spmd is None else spmd.results[i].sharding
            axes, given = self._give(b, (stage, slot), results[i], value.type, sharding)
            returned.append(given)
            outs.append((value.type, axes))
        body = Block(tuple(params), tuple(b.ops), tuple(returned))
        interface = None
        if spmd is not None:
            (mesh,) = module.meshes
            ins_, outs_ = (
                tuple(GlobalTensor(type, Sharding.of(mesh.name, axes)) for type, axes in values)
                for values in (ins, outs)
            )
            interface = SpmdInterface(ins_, outs_)
        main = Function(f"stage_{stage}{kind}", body, (None,) * len(returned), interface)
        made_module = self.target_passes(replace(module, functions=(main, *module.functions[1:])))
        takes = tuple(
            slot if (number := slot_number(slot, "argument")) is None else f"argument {number}"
            for slot in fragment.takes
        )
        return StagePass(f"{stage}{kind}", made_module, takes, fragment.gives)

    def _find_held(self, stage: int, slot: str) -> tuple[ManualDimAxes, TensorType, str]:
        """Return the axes, the global type and the name of a value that a row holds."""
        number = slot_number(slot, "argument")
        if number is None:
            return *self.held[stage, slot], slot
        axes = self._row_axes(self.placement.in_axes(number))
        type = self.placement.block_type(number)
        if number in self.staged.batched_operands:
            axes, type = axes[1:], microbatch_type(type, self.staged.microbatches)
        return axes, type, self.op.operands[number].name

    def _take(
        self,
        b: Builder,
        held: Value,
        axes: ManualDimAxes,
        place: tuple[int, str],
        needed_axes: ManualDimAxes,
    ) -> Value:
        """Return the shard that a fragment takes of a value that a row holds."""
        stage, slot = place
        number = slot_number(slot, "argument")
        window = () if number is None else self._local_window(number, slot, stage)
        whole = tuple(() if dim < len(window) else each for dim, each in enumerate(axes))
        value = slice_window(b, _change_axes(b, held, axes, whole), window)
        return _change_axes(b, value, whole, needed_axes)

    def _local_window(self, number: int, slot: str, stage: int) -> Window:
        """Return the part of the block of a row that a slot names."""
        window = slot_window(slot)
        dim = self.placement.block_dims.get(number)
        if dim is None or not window:
            return window
        start = self.schedule.rank_of_stage[stage] * self.placement.block_type(number).shape[dim]
        own = slice(window[dim].start - start, window[dim].stop - start)
        return (*window[:dim], own, *window[dim + 1 :])

    def _give(
        self,
        b: Builder,
        place: tuple[int, str],
        value: Value,
        type: TensorType,
        sharding: Sharding | None,
    ) -> tuple[ManualDimAxes, Value]:
        """Return a value that a fragment gives as other actions take it, with its axes."""
        stage, slot = place
        axes = _axes_of(sharding, type)
        if sharding is not None and sharding.unreduced:
            value = b.all_reduce(value, axes=sharding.unreduced, op=Symbol(sharding.reduction))
        if not (is_summed(slot) or is_auxiliary(slot)):
            self._hold(stage, slot, axes, type)
            return axes, value
        needed_axes = self._combined_axes(slot, type)
        self._append_combined(stage, slot, _shard_type(type, needed_axes))
        return needed_axes, _change_axes(b, value, axes, needed_axes)

    def _hold(self, stage: int, name: str, axes: ManualDimAxes, type: TensorType) -> None:
        """Record the axes of a value, also for the stages that receive it."""
        self.held[stage, name] = axes, type
        staged = self.staged
        if stage + 1 < staged.stage_count and name in staged.forward[stage]:
            self._hold(stage + 1, name, axes, type)
        if stage and staged.backward:
            for sent in staged.backward[stage - 1]:
                if name == given_cotangent(sent):
                    self._hold(stage - 1, received_cotangent(sent), axes, type)

    def _append_combined(self, stage: int, slot: str, type: TensorType) -> None:
        if is_auxiliary(slot):
            type = stacked_type(type, self.staged.microbatches)
        is_shared = not self.placement.is_in_blocks(slot)
        if any((each.stage, each.name) == (stage, slot) for each in self.combined):
            return
        self.combined.append(CombinedValue(stage, slot, type, is_shared))

    def _combined_axes(self, slot: str, type: TensorType) -> ManualDimAxes:
        """Return the axes with which devices hold a value that is combined from microbatches."""
        number = slot_number(slot, "auxiliary")
        if number is not None:
            return self._row_axes(self.placement.auxiliary_axes(number, self.fragments))[1:]
        number = slot_number(slot, "gradient")
        if number is None:
            return ((),) * type.rank
        axes = self._row_axes(self.placement.out_axes(number, self.fragments))
        cut = self._cut_dims[number]
        return tuple(() if dim in cut else each for dim, each in enumerate(axes))

    def _sent(self, stage: int, given: str, taken: str) -> SentValue:
        axes, type = self.held[stage, given]
        return SentValue(given, taken, _shard_type(type, axes))

    def _gradient(self, position: int) -> PipelineGradient:
        """Return a gradient as the sum of the terms of the stages."""
        number = self.staged.wrt[position]
        axes = self._row_axes(self.placement.out_axes(number, self.fragments))
        cut = self._cut_dims[number]
        kept = tuple(() if dim in cut else each for dim, each in enumerate(axes))
        terms = tuple(
            GradientTerm(
                each.stage,
                each.name,
                tuple(
                    (part.start, part.stop)
                    for part in self._local_window(number, each.name, each.stage)
                ),
            )
            for each in sorted(self.combined, key=lambda each: (each.stage, each.name))
            if slot_number(each.name, "gradient") == number
        )
        slices = tuple((dim, axes[dim]) for dim in sorted(cut) if axes[dim])
        return PipelineGradient(_shard_type(self.placement.block_type(number), kept), terms, slices)


def _axes_of(sharding: Sharding | None, type: TensorType) -> ManualDimAxes:
    if sharding is None:
        return ((),) * type.rank
    for dim, size in zip(sharding.dims, type.shape, strict=True):
        if size % dim.num_shards:
            raise EmissionError(
                f"a stage of a pipeline divides {type} unevenly over {dim.num_shards} devices; "
                "make the dimension a multiple of it"
            )
    return tuple(dim.axes for dim in sharding.dims)


def _shard_type(type: TensorType, axes: ManualDimAxes) -> TensorType:
    return type.with_shape(
        [size // count_positions(dim) for size, dim in zip(type.shape, axes, strict=True)]
    )


def _change_axes(b: Builder, x: Value, given: ManualDimAxes, needed_axes: ManualDimAxes) -> Value:
    """Append the collectives that change the axes that shard a value."""
    rests: list[tuple[int, Axes]] = []
    for dim, (old, new) in enumerate(zip(given, needed_axes, strict=True)):
        common = 0
        while common < min(len(old), len(new)) and old[common] == new[common]:
            common += 1
        if old[common:]:
            x = b.all_gather(x, dim=dim, axes=old[common:])
        if new[common:]:
            rests.append((dim, new[common:]))
    for dim, axes in rests:
        x = b.all_slice(x, dim=dim, axes=axes)
    return x
