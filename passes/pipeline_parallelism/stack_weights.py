"""Stack the operands of single rows of a pipeline, so that each row holds its own.

before: `%loss, %v.grad, %w.grad = staged-pipeline(%v, %w, %x, ...`
after:  `%stack = concatenate(%3, %4, dim=0) : f32[2@-, 4@pipe, 4]`,
        `%stack.1 = sharding_constraint(%stack) : f32[2@pipe, 4@-, 4]`,
        `%loss, %stack.grad.1 = staged-pipeline(%x, %stack.1, ...`

Weights in a list, one for each layer, are separate operands. If the axis of the pipeline shards
them, a device holds an equal part of each. A stack of one operand from each row moves them to the
rows that use them by one all-to-all, and its gradient back by another one; otherwise all rows
would gather all of them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardir.ir.builder import Builder, UniqueNames, substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.sharding import REPLICATED_DIM, Axis, DimSharding, Sharding
from shardir.ir.types import TensorType
from shardir.ops.control_flow.pipeline_slots import (
    argument_slot,
    gradient_slot,
    slot_number,
    slot_window,
)
from shardir.ops.control_flow.pipelines import staged_pipeline
from shardir.passes.pipeline import Pass
from shardir.passes.pipeline_parallelism.named_schedules import NAMED_SCHEDULES
from shardir.passes.pipeline_parallelism.program import Fragment, StagedPipeline, copy_of
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule
from shardir.passes.pipeline_parallelism.schedule_pipelines import SEARCH
from shardir.passes.rewriting import used_names


@dataclass(frozen=True)
class StackWeights(Pass, name="stack-weights"):
    """Stack operands of scheduled pipelines that single rows use and that the axis of the pipeline
    shards."""

    def __call__(self, module: Module) -> Module:
        return replace(
            module, functions=tuple(_stack_weights(each, module) for each in module.functions)
        )


def _stack_weights(function: Function, module: Module) -> Function:
    b = Builder(used_names(function))
    new: dict[Value, Value] = {}
    for op in function.body.ops:
        mesh = _mesh_of_rows(op, module)
        pipe = None if mesh is None else Axis.full(op.attrs["axis"], mesh)
        groups = [] if pipe is None else _find_groups(StagedPipeline.of(op), pipe)
        if pipe is None or not groups:
            b.append(op)
            continue
        b.loc = op.loc
        new.update(_append_stacked(b, StagedPipeline.of(op), groups, pipe))
    body = substitute(replace(function.body, ops=tuple(b.ops)), new)
    return replace(function, body=body)


def _mesh_of_rows(op: Op, module: Module) -> Mesh | None:
    """Return the mesh with the axis of a pipeline that has been scheduled; `None` for others."""
    if op.spec is not staged_pipeline or op.attrs["schedule"] in (*NAMED_SCHEDULES, SEARCH):
        return None
    return next((mesh for mesh in module.meshes if op.attrs["axis"] in mesh.sizes), None)


def _find_groups(pipeline: StagedPipeline, pipe: Axis) -> list[tuple[int, ...]]:
    """Return the operands to stack: one of each row, with equal types and shardings."""
    # vmap needs its dimension first.
    if pipeline.attributes.mapped_dims:
        return []
    schedule = PipelineSchedule.parse(pipeline.schedule)
    ranks: dict[int, set[int]] = defaultdict(set)
    for (stage, _), fragment in pipeline.fragments.items():
        for slot in fragment.takes:
            number = slot_number(slot, "argument")
            if number is not None:
                ranks[number].add(schedule.rank_of_stage[stage])
    kinds: dict[object, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, rows in sorted(ranks.items()):
        operand = pipeline.op.operands[number]
        if len(rows) == 1 and number not in pipeline.batched_operands:
            sharding = operand.sharding
            if sharding is not None and _is_divided(operand.type, sharding, pipe):
                kind = operand.type, sharding, number in pipeline.wrt
                kinds[kind][min(rows)].append(number)
    return [
        group
        for found in kinds.values()
        for group in zip(*(found[rank] for rank in range(pipe.size)), strict=False)
    ]


def _is_divided(type: TensorType, sharding: Sharding, pipe: Axis) -> bool:
    """Return whether the axis of the pipeline, and others, shard a type evenly."""
    used = any(axis.name == pipe.name for dim in sharding.dims for axis in dim.axes)
    sizes = zip(sharding.dims, type.shape, strict=True)
    return used and all(size % dim.num_shards == 0 for dim, size in sizes)


def _append_stacked(
    b: Builder, pipeline: StagedPipeline, groups: Sequence[tuple[int, ...]], pipe: Axis
) -> dict[Value, Value]:
    """Append the pipeline with stacks as operands; return what replaces its results."""
    op = pipeline.op
    place = {number: (k, row) for k, group in enumerate(groups) for row, number in enumerate(group)}
    kept = [number for number in range(len(op.operands)) if number not in place]
    numbers = {number: i for i, number in enumerate(kept)}
    numbers.update({number: len(kept) + k for number, (k, _) in place.items()})
    stacks = [_stack(b, [op.operands[number] for number in group], pipe) for group in groups]
    wrt = dict.fromkeys(numbers[number] for number in pipeline.wrt)
    first = len(op.results) - len(pipeline.wrt)
    old = dict(zip(pipeline.wrt, op.results[first:], strict=True))
    made = {
        numbers[number]: Value(stacks[place[number][0]].type, b.names.fresh("stack.grad"))
        if number in place
        else result
        for number, result in reversed(old.items())
    }
    attrs = {
        **op.attrs,
        "wrt": tuple(wrt),
        "batched": tuple(numbers[number] for number in pipeline.batched_operands),
    }
    operands = (*(op.operands[number] for number in kept), *stacks)
    results = (*op.results[:first], *(made[number] for number in wrt))
    rows_of_stacks = {number: row for number, (_, row) in place.items()}
    renumbered = {
        key: _renumber(fragment, numbers, rows_of_stacks, b.names)
        for key, fragment in pipeline.fragments.items()
    }
    stacked = replace(op, operands=operands, results=results, attrs=attrs)
    b.append(replace(pipeline, op=stacked, fragments=renumbered).to_op())
    return {
        old[number]: part
        for group in groups
        if group[0] in old
        for number, part in zip(
            group, _unstack(b, made[numbers[group[0]]], op.operands[group[0]]), strict=True
        )
    }


def _stack(b: Builder, values: Sequence[Value], pipe: Axis) -> Value:
    """Return values stacked along a new dimension that the axis of the pipeline shards."""
    sharding = values[0].sharding
    assert sharding is not None
    held = replace(sharding, dims=(REPLICATED_DIM, *sharding.dims))
    rows = [b.reshape(x, result=_row_type(x.type), sharding=held) for x in values]
    stack = b.concatenate(*rows, dim=0, name="stack", sharding=held)
    b.why = "each row of the pipeline receives the weights of its stages"
    target = _row_sharding(sharding, pipe)
    made: Value = b.sharding_constraint(stack, name="stack", sharding=target)
    b.why = ""
    return made


def _row_sharding(sharding: Sharding, pipe: Axis) -> Sharding:
    """Return the sharding of a stack: `pipe` shards its new dimension instead of others."""
    dims = [
        DimSharding(tuple(axis for axis in dim.axes if axis.name != pipe.name), dim.open)
        for dim in sharding.dims
    ]
    return Sharding(sharding.mesh, (DimSharding((pipe,), open=False), *dims))


def _unstack(b: Builder, gradient: Value, operand: Value) -> list[Value]:
    """Return the parts of the gradient of a stack, sharded as the operands."""
    sharding = operand.sharding
    assert sharding is not None
    dims = (REPLICATED_DIM, *sharding.dims)
    b.why = "each device keeps its part of the gradients of all rows"
    moved = b.sharding_constraint(
        gradient, name="stack.grad", sharding=replace(sharding, dims=dims)
    )
    b.why = ""
    parts: list[Value] = []
    for row in range(gradient.type.shape[0]):
        part = b.slice(
            moved,
            result=gradient.type.with_shape((1, *operand.type.shape)),
            starts=(row, *(0,) * operand.type.rank),
            strides=(1,) * gradient.type.rank,
        )
        parts.append(b.reshape(part, result=operand.type, sharding=sharding))
    return parts


def _renumber(
    fragment: Fragment, numbers: Mapping[int, int], rows: Mapping[int, int], names: UniqueNames
) -> Fragment:
    """Return the fragment with other numbers of operands, and with rows of stacks."""
    b = Builder(names)
    new: dict[Value, Value] = {}
    params = []
    takes = []
    for slot, param in zip(fragment.takes, fragment.block.params, strict=True):
        number = slot_number(slot, "argument")
        takes.append(slot if number is None else _renumbered_slot(slot, number, numbers, rows))
        if number in rows:
            params.append(Value(_row_type(param.type), param.name))
            new[param] = b.reshape(params[-1], result=param.type)
        else:
            params.append(copy_of(param))
            new[param] = params[-1]
    body = substitute(Block((), fragment.block.ops, fragment.block.returns), new)
    for op in body.ops:
        b.append(op)
    gives, returns = [], []
    for slot, value in zip(fragment.gives, body.returns, strict=True):
        number = slot_number(slot, "gradient")
        if number is None:
            gives.append(slot)
            returns.append(value)
            continue
        argument = slot.replace("gradient", "argument", 1)
        gives.append(gradient_slot(_renumbered_slot(argument, number, numbers, rows)))
        is_row = number in rows
        returns.append(b.reshape(value, result=_row_type(value.type)) if is_row else value)
    block = Block(tuple(params), tuple(b.ops), tuple(returns))
    return Fragment(block, tuple(takes), tuple(gives))


def _row_type(type: TensorType) -> TensorType:
    return type.with_shape((1, *type.shape))


def _renumbered_slot(
    slot: str, number: int, numbers: Mapping[int, int], rows: Mapping[int, int]
) -> str:
    window = slot_window(slot)
    if number in rows:
        window = (slice(rows[number], rows[number] + 1), *window)
    return argument_slot(numbers[number], window)
