"""Split the loss of a pipeline into one forward fragment for each stage.

before: `%loss = pipeline(%v, %w, %x, ...`
after:  `%loss = staged-pipeline(%v, %w, %x, ... fragments=["0F", "1F"], ... forward=[["h"]], ...`

A value that a later stage uses is sent from stage to stage up to that one. Each stage can use all
arguments; operations that depend on arguments only are repeated in the stages that use them. A
stage that uses only slices of an argument, such as its layer of stacked weights, takes this part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardir.errors import count_noun
from shardir.ir.builder import UniqueNames, copy_op, substitute
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.sharding import Axis
from shardir.ops.control_flow.manual_computation import manual_computation
from shardir.ops.control_flow.pipeline_slots import LOSS, argument_slot, auxiliary_slot
from shardir.ops.control_flow.pipelines import PipelineAttributes, pipeline, pipeline_stage
from shardir.passes.autodiff.residuals import eliminate_dead_operations
from shardir.passes.pipeline import Pass
from shardir.passes.pipeline_parallelism.actions import ActionKind
from shardir.passes.pipeline_parallelism.argument_windows import take_window
from shardir.passes.pipeline_parallelism.balanced_stages import balance_stages
from shardir.passes.pipeline_parallelism.program import (
    Fragment,
    StagedPipeline,
    copy_of,
    rewrite_pipelines,
)
from shardir.passes.pipeline_parallelism.stage_assignment import (
    assign_stages,
    count_stages,
    stage_error,
    stage_of_values,
)


@dataclass(frozen=True)
class SplitStages(Pass, name="split-stages"):
    """Replace each `pipeline` by a `staged-pipeline` with a forward fragment for each stage."""

    def __call__(self, module: Module) -> Module:
        for function in module.functions:
            for op in function.body.ops:
                _check_nesting(op)
        return rewrite_pipelines(module, pipeline, _split)


def _check_nesting(op: Op) -> None:
    """Raise `PipelineStageError` if a block of an operation has a pipeline."""
    for block in op.blocks:
        for nested in block.walk():
            if nested.spec is pipeline:
                raise stage_error(
                    f"a pipeline inside of {op.name} cannot run; call it outside of loops, "
                    "branches and other pipelines",
                    nested,
                )


def _split(op: Op, function: Function) -> Op:
    (block,) = op.blocks
    block = _name_marked_values(block)
    _check_shardings(block, op.attrs["axis"])
    block = _leave_axis(block, op.attrs["axis"])
    loss, *auxiliary = block.returns
    block = replace(block, ops=tuple(eliminate_dead_operations(block.ops, block.returns)))
    stages, count = _choose_stages(block, op)
    stage_of = stage_of_values(block, stages)
    if stage_of.get(loss) != count - 1:
        raise stage_error(
            f"the loss %{loss.name} does not depend on stage {count - 1}; compute it in the last "
            "stage",
            op,
        )
    values = _without_marks(block)
    sent = _sent_values(block, stages, values, count)
    fragments = {}
    for stage in range(count):
        received = sent[stage - 1] if stage else ()
        gives = [(value.name, value) for value in (sent[stage] if stage < count - 1 else ())]
        if stage == count - 1:
            gives.append((LOSS, values.get(loss, loss)))
        for number, value in enumerate(auxiliary):
            # The last stage returns values that depend on arguments only.
            owner = stage_of.get(value)
            if stage == (count - 1 if owner is None else owner):
                gives.append((auxiliary_slot(number), values.get(value, value)))
        builder = _StageBuilder(block, stages, values, PipelineAttributes.of(op).batched)
        fragment = builder.build(stage, received, gives)
        fragments[stage, ActionKind.FORWARD] = fragment
    names = tuple(tuple(value.name for value in each) for each in sent)
    return StagedPipeline(op, fragments, names, (), op.attrs["schedule"]).to_op()


def _name_marked_values(block: Block) -> Block:
    """Return the block in which values without a name have that of the result of their mark."""
    names: dict[Value, str] = {}
    for op in reversed(block.ops):
        if op.spec is pipeline_stage:
            (value,), name = op.operands, names.get(op.result, op.result.name)
            if value.name.isdigit():
                names[value] = name
    return substitute(block, {value: replace(value, name=name) for value, name in names.items()})


def _check_shardings(block: Block, axis: str) -> None:
    """Raise `PipelineStageError` if a value of a stage is sharded over the axis of the pipeline."""
    for op in block.walk():
        for value in op.results:
            sharding = value.sharding
            if sharding is not None and any(used.name == axis for used in sharding.used_axes()):
                raise stage_error(
                    f"%{value.name} is sharded over {axis!r}, along which the stages of the "
                    "pipeline run; shard it over other axes of the mesh",
                    op,
                )


def _leave_axis(block: Block, axis: str) -> Block:
    """Return the block whose manual computations run on the devices of one row.

    Raises `PipelineStageError` if one uses the axis of the pipeline.
    """
    ops = []
    for op in block.ops:
        if op.spec is manual_computation and _mentions(op.attrs["axes"], axis):
            inner = [attrs for each in op.blocks[0].walk() for attrs in each.attrs.values()]
            if _mentions((op.attrs["in_axes"], op.attrs["out_axes"], *inner), axis):
                raise stage_error(
                    f"a shard_map in a stage uses {axis!r}, along which the stages of the pipeline "
                    "run; use other axes of the mesh",
                    op,
                )
            kept = tuple(each for each in op.attrs["axes"] if each.name != axis)
            op = replace(op, attrs={**op.attrs, "axes": kept})
        elif op.blocks:
            op = replace(op, blocks=tuple(_leave_axis(inner, axis) for inner in op.blocks))
        ops.append(op)
    return replace(block, ops=tuple(ops))


def _mentions(attribute: object, axis: str) -> bool:
    """Return whether an attribute contains an axis of this name."""
    if isinstance(attribute, tuple):
        return any(_mentions(each, axis) for each in attribute)
    return isinstance(attribute, Axis) and attribute.name == axis


def _choose_stages(block: Block, op: Op) -> tuple[dict[Op, int | None], int]:
    """Return the stage of each operation and the number of stages."""
    attributes = PipelineAttributes.of(op)
    stage_count = attributes.stages
    if not stage_count:
        stages = assign_stages(block)
        return stages, count_stages(block, op)
    marked = next((o for o in block.ops if o.spec is pipeline_stage), None)
    if marked is not None:
        raise stage_error(
            f"stage {marked.attrs['stage']} is marked, and stages={stage_count} divides the loss "
            "without marks; leave one of them out",
            marked,
        )
    batched = [block.params[i] for i in attributes.batched]
    stages = balance_stages(block, batched, stage_count)
    count = len({stage for stage in stages.values() if stage is not None})
    if count < stage_count:
        raise stage_error(
            f"the loss has too few operations for {count_noun(stage_count, 'stage')}; state at "
            f"most {count}",
            op,
        )
    return stages, count


def _without_marks(block: Block) -> dict[Value, Value]:
    """Return the value that each result of a mark is equal to."""
    same: dict[Value, Value] = {}
    for op in block.ops:
        if op.spec is pipeline_stage:
            same[op.result] = same.get(op.operands[0], op.operands[0])
    return same


def _sent_values(
    block: Block, stages: dict[Op, int | None], values: dict[Value, Value], count: int
) -> list[tuple[Value, ...]]:
    """Return the values that each stage but the last sends, in the order of their definitions."""
    last: dict[Value, int] = {}
    for op in block.ops:
        stage = stages[op]
        if stage is None:
            continue
        # A mark of another stage than that of its operand is a use in this stage, which may return
        # its result.
        for value in op.uses():
            last[values.get(value, value)] = max(stage, last.get(values.get(value, value), 0))
    loss = values.get(block.returns[0], block.returns[0])
    last[loss] = count - 1
    sent: list[tuple[Value, ...]] = [() for _ in range(count - 1)]
    for op in block.ops:
        stage = stages[op]
        if stage is None:
            continue
        for value in op.results:
            for boundary in range(stage, last.get(value, stage)):
                sent[boundary] = (*sent[boundary], value)
    return sent


class _StageBuilder:
    """Collects the operations of one stage."""

    def __init__(
        self,
        block: Block,
        stages: dict[Op, int | None],
        values: dict[Value, Value],
        batched: Sequence[int],
    ) -> None:
        self.block, self.stages, self.values, self.batched = block, stages, values, batched

    def build(
        self, stage: int, received: Sequence[Value], gives: Sequence[tuple[str, Value]]
    ) -> Fragment:
        own = [
            op
            for op in self.block.ops
            if op.spec is not pipeline_stage and self.stages[op] in (stage, None)
        ]
        names = UniqueNames([value.name for value in received])
        new: dict[Value, Value] = {value: copy_of(value) for value in received}
        received_copies = [new[value] for value in received]
        arguments = {param: copy_of(param) for param in self.block.params}
        new.update(arguments)
        ops = []
        for op in own:
            for x in dict.fromkeys(op.uses()):
                if (same := self.values.get(x)) is not None:
                    new[x] = new[same]
            ops.append(copy_op(op, new, names))
        returns = [new[value] for _, value in gives]
        ops = list(eliminate_dead_operations(ops, returns))
        used = {value for op in ops for value in op.uses()} | set(returns)
        params, takes = [], []
        for i, param in enumerate(self.block.params):
            if (argument := arguments[param]) in used:
                taken = take_window(argument, ops, returns) if i not in self.batched else None
                window, part, ops, returns = taken or ((), argument, ops, returns)
                params.append(part)
                takes.append(argument_slot(i, window))
        names_received = [value.name for value in received]
        given = tuple(name for name, _ in gives)
        block = Block((*params, *received_copies), tuple(ops), tuple(returns))
        return Fragment(block, (*takes, *names_received), given)
