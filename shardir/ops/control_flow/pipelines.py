"""Pipeline parallelism: marks of stages, and programs that run in stages over microbatches.

A `pipeline` is the form in which a program is traced: one block, the loss of one microbatch.
Passes turn it into a `staged-pipeline`, which has one block for each pass of each stage
(`shardir.passes.pipeline_parallelism`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from shardir.errors import DifferentiateError, InterpretError, count_noun
from shardir.ir.arithmetic import FIXED_DTYPES
from shardir.ir.attributes import Attributes
from shardir.ir.builder import Builder
from shardir.ir.device_groups import device_positions
from shardir.ir.host_function import absent_function_message, host_function_of
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Module, Op, Value
from shardir.ir.operation import Result, define_op
from shardir.ir.sharding import Axes, count_positions
from shardir.ir.types import INEXACT, NumpyArray, TensorType
from shardir.op_rules.factors import pointwise_rule
from shardir.op_rules.tangents import linear_tangent
from shardir.op_rules.vma import exchange_varying
from shardir.ops.control_flow.block_types import (
    Types,
    check_types,
    format_types,
    only_block,
    types_of,
)
from shardir.ops.control_flow.manual_computation import ManualDimAxes
from shardir.ops.control_flow.pipeline_slots import StageSlots, fragment_place

LOSS_REDUCTIONS = ("mean", "sum")
"""The reductions of the losses of microbatches to one loss."""


def _stage_type(x: TensorType, *, stage: int, result: Result) -> TensorType:
    if stage < 0:
        raise TypeError(f"stage={stage} must be at least 0")
    return x


pipeline_stage = define_op(
    "pipeline-stage",
    type=_stage_type,
    factors=lambda x, *, stage, result: pointwise_rule([x.shape], [x.shape]),
    reference=lambda x, *, stage, result: x,
    vjp=lambda b, g, x, y, *, stage: (g,),
    jvp=linear_tangent,
    elementwise=True,
    arithmetic=None,
)
"""`x` in a stage of a pipeline: the stage computes the result, and operations that use it belong to
this stage or a later one.

Outside of a `pipeline` the mark has no meaning and is removed.
"""


def microbatch_type(x: TensorType, microbatches: int) -> TensorType:
    """Return the type of one microbatch of an operand; raise `TypeError` if it does not divide."""
    if x.rank == 0 or x.shape[0] % microbatches:
        raise TypeError(
            f"divides {x} into {microbatches} microbatches; the first dimension must be a "
            f"multiple of {microbatches}"
        )
    return x.with_shape((x.shape[0] // microbatches, *x.shape[1:]))


def stacked_type(x: TensorType, microbatches: int) -> TensorType:
    """Return the type of the auxiliary results of all microbatches from that of one."""
    return x.with_shape((microbatches, *x.shape))


def _result_types(
    operands: Types, loss: TensorType, auxiliary: Types, attributes: "PipelineAttributes"
) -> Types:
    for i in attributes.wrt:
        if not 0 <= i < len(operands) or operands[i].dtype not in INEXACT:
            raise TypeError(f"wrt contains {i}, which is not a floating-point operand")
    stacked = (stacked_type(x, attributes.microbatches) for x in auxiliary)
    return (loss, *stacked, *(operands[i] for i in attributes.wrt))


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineAttributes(Attributes):
    """The attributes of a pipeline."""

    microbatches: int
    schedule: str
    axis: str
    batched: tuple[int, ...] = ()
    wrt: tuple[int, ...] = ()
    reduction: str = "mean"
    stages: int = 0
    stages_per_rank: int = 0
    memory: int = 0
    schedule_file: str = ""
    mapped_dims: int = 0
    mapped: tuple[int, ...] = ()

    @property
    def loss_scale(self) -> float:
        """The factor of the loss of each microbatch in the loss of the pipeline."""
        return 1.0 if self.reduction == "sum" else 1 / self.microbatches

    def check(self, operands: Types) -> None:
        """Raise `TypeError` if the attributes do not fit the operands."""
        if self.microbatches < 1:
            raise TypeError(f"microbatches={self.microbatches} must be at least 1")
        if self.reduction not in LOSS_REDUCTIONS:
            raise TypeError(
                f"reduction={self.reduction} is not one of {', '.join(LOSS_REDUCTIONS)}"
            )
        for name, numbers in (("batched", self.batched), ("mapped", self.mapped)):
            if any(not 0 <= i < len(operands) for i in numbers):
                raise TypeError(f"{name}={list(numbers)} contains no operand of {len(operands)}")
        repeated = next((i for i in self.wrt if self.wrt.count(i) > 1), None)
        if repeated is not None:
            raise TypeError(f"wrt={list(self.wrt)} contains {repeated} more than once")
        lacking = next((i for i in self.wrt if self.mapped_dims and i not in self.mapped), None)
        if lacking is not None:
            raise TypeError(
                f"wrt contains {lacking}, and mapped={list(self.mapped)} does not; the elements of "
                "the loss have separate gradients"
            )


def block_operand_types(operands: Types, microbatches: int, batched: Sequence[int]) -> Types:
    """Return the types that a pass over one microbatch takes for the operands."""
    return tuple(
        microbatch_type(x, microbatches) if i in batched else x for i, x in enumerate(operands)
    )


def _pipeline_type(
    *operands: TensorType,
    result: Result,
    blocks: tuple[Block, ...],
    attributes: PipelineAttributes,
) -> Types:
    block = only_block(blocks)
    attributes.check(operands)
    expected = block_operand_types(operands, attributes.microbatches, attributes.batched)
    check_types("its block takes", block.params, expected)
    if block.captures():
        raise TypeError(f"its block captures %{block.captures()[0].name}; pass it as an operand")
    returned = types_of(block.returns)
    if not returned or returned[0].rank != attributes.mapped_dims:
        what = (
            f"a loss with {count_noun(attributes.mapped_dims, 'dimension')}"
            if attributes.mapped_dims
            else ("a scalar")
        )
        raise TypeError(f"its block returns ({format_types(returned)}), expected {what} first")
    for i in attributes.mapped:
        if operands[i].shape[: attributes.mapped_dims] != returned[0].shape:
            raise TypeError(
                f"mapped contains {i}, whose type {operands[i]} does not begin with the dimensions "
                f"of the loss {returned[0]}"
            )
    return _result_types(operands, returned[0], returned[1:], attributes)


def _place(op: Op) -> str:
    return f"\n --> {op.loc}" if op.loc else ""


def _refuse_tangents(b: Builder, op: Op, tangents: Sequence[Value | None]) -> NoReturn:
    raise DifferentiateError(
        f"%{op.results[0].name} = pipeline has no forward-mode derivative; use grad or vjp, or "
        f"differentiate the loss without sd.pipeline{_place(op)}"
    )


pipeline = define_op(
    "pipeline",
    attributes=PipelineAttributes,
    type=_pipeline_type,
    blocks=1,
    jvp=_refuse_tangents,
)
"""The loss over all microbatches, auxiliary results, and the gradients of the loss with respect to
the operands `wrt`.

The block computes the loss of one microbatch: of one part of each operand in `batched`, which are
divided along their first dimensions, and of the other operands. `reduction` combines the losses.
Other values that the block returns are auxiliary; those of the microbatches are stacked.
With `mapped_dims`, which `vmap` states, the loss has this number of dimensions. The operands in
`mapped` have them first; an element of the loss depends only on the same elements of these, and
gradients are those of the sum of all elements.
Marks state the stages of the block; with `stages`, the block has no marks and is divided into this
number of stages of about equal cost.
`schedule` is the name of a schedule, its text in torch's notation, or `search`, with the bytes of
activations `memory` that a row may hold; the rows of devices along the mesh axis `axis` compute the
stages. Errors of a schedule that was read from a file name `schedule_file`.
"""

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPipelineAttributes(PipelineAttributes):
    """The attributes of a pipeline whose stages are blocks."""

    fragments: Names
    takes: tuple[Names, ...]
    gives: tuple[Names, ...]
    forward: tuple[Names, ...] = ()
    backward: tuple[Names, ...] = ()


def _staged_type(
    *operands: TensorType,
    result: Result,
    blocks: tuple[Block, ...],
    attributes: StagedPipelineAttributes,
) -> Types:
    attributes.check(operands)
    fragments, takes, gives = attributes.fragments, attributes.takes, attributes.gives
    if not len(blocks) == len(fragments) == len(takes) == len(gives):
        raise TypeError(
            f"has {count_noun(len(blocks), 'block')}, {len(fragments)} fragments, {len(takes)} "
            f"takes and {len(gives)} gives; there is one of each for each block"
        )
    loss: TensorType | None = None
    auxiliary: dict[int, TensorType] = {}
    for name, block, taken, given in zip(fragments, blocks, takes, gives, strict=True):
        if len(block.params) != len(taken) or len(block.returns) != len(given):
            raise TypeError(
                f"fragment {name} takes {count_noun(len(block.params), 'value')} and returns "
                f"{len(block.returns)}, and {len(taken)} and {len(given)} are named"
            )
        if block.captures():
            raise TypeError(f"fragment {name} captures %{block.captures()[0].name}")
        for value, slot in zip(block.returns, given, strict=True):
            word, _, number = slot.partition(" ")
            if slot == "loss":
                loss = value.type
            elif word == "auxiliary" and number.isdigit():
                auxiliary[int(number)] = value.type
    if loss is None:
        raise TypeError('has no fragment that returns the "loss"')
    parts = zip(fragments, blocks, takes, gives, strict=True)
    slots = StageSlots(
        block_operand_types(operands, attributes.microbatches, attributes.batched),
        {fragment_place(part[0]): part for part in parts},
    )
    slots.check(attributes.forward, attributes.backward)
    stated = tuple(auxiliary[number] for number in sorted(auxiliary))
    return _result_types(operands, loss, stated, attributes)


staged_pipeline = define_op(
    "staged-pipeline", attributes=StagedPipelineAttributes, type=_staged_type, blocks=-1
)
"""A `pipeline` whose stages are separate blocks.

`fragments` names the pass of each block: `2F` is the forward pass of stage 2, `2B` the backward
pass, `2I` and `2W` the gradients of its input and of its weights. `takes` and `gives` name the
values that each block takes and returns, of one microbatch: `argument 3` is an operand, `gradient
3` a term of its gradient, `loss` a term of the loss, `auxiliary 0` an auxiliary result. `argument
3[2:4,0:1]` is the part of an operand with these ranges of its first dimensions. All other values
stay in the stage, or are sent: `forward` names the values that each stage sends to the next one,
`backward` those whose cotangents each stage but the first sends to the stage before. The cotangent
of `h` is taken as `cotangent h` and given as `sent cotangent h`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineCallAttributes(Attributes):
    """The attributes of the call of a pipeline by all devices.

    `axes` are all axes of the mesh. `in_axes` and `out_axes` state those that shard each dimension
    of each operand and result.
    """

    function: str
    axes: Axes
    in_axes: tuple[ManualDimAxes, ...]
    out_axes: tuple[ManualDimAxes, ...]


def _call_type(
    *operands: TensorType, result: Result, attributes: PipelineCallAttributes
) -> TensorType | Types:
    types = (result,) if isinstance(result, TensorType) else result
    if types is None:
        raise TypeError("its result types are not determined; state them with result=")
    for word, tensors, sharded in (
        ("in_axes", operands, attributes.in_axes),
        ("out_axes", types, attributes.out_axes),
    ):
        if [x.rank for x in tensors] != [len(dims) for dims in sharded]:
            raise TypeError(f"{word} states one list of mesh axes for each dimension of each value")
    return result if result is not None else types


def _call_together(
    mesh: Mesh,
    shards: Sequence[tuple[NumpyArray, ...]],
    *,
    result: Result,
    attributes: PipelineCallAttributes,
) -> Sequence[NumpyArray] | Sequence[tuple[NumpyArray, ...]]:
    """Call the function once with whole operands; return the shards of its results.

    Devices of other processes have no shards here, and the function does not use theirs.
    """
    function = host_function_of(attributes.function)
    if function is None:
        raise InterpretError(absent_function_message(attributes.function))
    operands = []
    for i, dims in enumerate(attributes.in_axes):
        some = next(parts[i] for parts in shards if parts)
        shape = [n * count_positions(axes) for n, axes in zip(some.shape, dims, strict=True)]
        whole = np.empty(shape, some.dtype)
        for position, parts in zip(_shard_positions(mesh, dims), shards, strict=True):
            if parts:
                whole[_shard_slices(position, some.shape)] = parts[i]
        operands.append(whole)
    types = (result,) if isinstance(result, TensorType) else result
    assert types is not None
    columns = []
    for whole, dims, type in zip(function(*operands), attributes.out_axes, types, strict=True):
        positions = _shard_positions(mesh, dims)
        made = {
            position: np.array(whole[_shard_slices(position, type.shape)])
            for position in dict.fromkeys(positions)
        }
        columns.append([made[position] for position in positions])
    return columns[0] if len(types) == 1 else list(zip(*columns, strict=True))


def _shard_positions(mesh: Mesh, dims: ManualDimAxes) -> list[tuple[int, ...]]:
    """Return the position of the shard of each device along each dimension."""
    along = [device_positions(mesh, axes) for axes in dims]
    return [tuple(int(each[device]) for each in along) for device in range(mesh.size)]


def _shard_slices(position: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(i * n, (i + 1) * n) for i, n in zip(position, shape, strict=True))


pipeline_call = define_op(
    "pipeline-call",
    attributes=PipelineCallAttributes,
    type=_call_type,
    exchange=_call_together,
    vma=exchange_varying,
    spmd=True,
    arithmetic=FIXED_DTYPES,
)
"""Call `function`, which runs the rows of a pipeline on the devices of all rows together.

The operands and the results are shards. Each process calls the function with the parts of the
operands that its devices hold: with all parts along axes inside of the process.
"""


def has_pipelines(module: Module) -> bool:
    """Return whether the entry point of a module has pipelines."""
    return any(op.spec in (pipeline, staged_pipeline) for op in module.main.body.ops)


def auxiliary_results(op: Op) -> tuple[Value, ...]:
    """Return the auxiliary results of a pipeline."""
    return op.results[1 : len(op.results) - len(pipeline_attributes(op).wrt)]


def gradient_results(op: Op) -> tuple[Value, ...]:
    """Return the gradients of a pipeline, one for each of `wrt`."""
    return op.results[len(op.results) - len(pipeline_attributes(op).wrt) :]


def pipeline_attributes(op: Op) -> PipelineAttributes:
    """Return the attributes of a pipeline in either form."""
    return (StagedPipelineAttributes if op.spec is staged_pipeline else PipelineAttributes).of(op)
