"""Pipelines in programs for emission: the passes of their stages, the schedule and the results.

A target that emits pipelines (`Target.emits_pipelines`) receives programs in which the function of
each `pipeline-call` is an `EmittablePipeline`. Types are those of the shards of one device.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from shardir.ir.host_function import host_function_of
from shardir.ir.module import Block, Module, Op
from shardir.ir.sharding import Axes
from shardir.ir.types import TensorType
from shardir.ops.control_flow.pipelines import pipeline_call


@dataclass(frozen=True)
class StagePass:
    """One pass of one stage over one microbatch, as the program of each device of a row."""

    name: str
    """The action without its microbatch, such as `2F`."""
    module: Module
    """The program, after the passes of the target."""
    takes: tuple[str, ...]
    """The names of its operands; `argument 3` is an operand of the pipeline."""
    gives: tuple[str, ...]
    """The names of its results; `loss`, `gradient ...` and `auxiliary ...` are combined from all
    microbatches."""


@dataclass(frozen=True)
class SentValue:
    """A value that a stage sends for each microbatch."""

    given: str
    """The name of the value in the stage that sends it."""
    taken: str
    """The name of the value in the stage that receives it."""
    type: TensorType


@dataclass(frozen=True)
class CombinedValue:
    """A sum or a stack of the values of all microbatches."""

    stage: int
    name: str
    type: TensorType
    is_shared: bool
    """True if the devices of all rows receive it."""


@dataclass(frozen=True)
class GradientTerm:
    """The combined value that a stage adds to a part of a gradient."""

    stage: int
    name: str
    window: tuple[tuple[int, int], ...]
    """The start and the end of the part along each of the first dimensions; empty: all."""


@dataclass(frozen=True)
class PipelineGradient:
    """A gradient: the sum of its terms, in their order. A row without terms has zeros.

    `slices` are the dimensions, and the axes, of which a device keeps its part of the sum.
    """

    type: TensorType
    """The type of the sum, before `slices`."""
    terms: tuple[GradientTerm, ...]
    slices: tuple[tuple[int, Axes], ...]


@dataclass(frozen=True)
class PipelineProgram:
    """A pipeline in the program of each device."""

    axis: str
    """The mesh axis of the rows of devices."""
    microbatches: int
    batched: tuple[int, ...]
    """The operands whose first dimension is that of the microbatches."""
    schedule: tuple[str, ...]
    """The actions of each row, in the notation of torch, separated by commas."""
    passes: tuple[StagePass, ...]
    forward: tuple[tuple[SentValue, ...], ...]
    """The values that each stage but the last sends to the next one."""
    backward: tuple[tuple[SentValue, ...], ...]
    """The values that each stage but the first sends to the one before it; empty without
    gradients."""
    combined: tuple[CombinedValue, ...]
    loss_scale: float
    """The factor of the sum of the losses."""
    gradients: tuple[PipelineGradient, ...]


class EmittablePipeline(ABC):
    """The function of a `pipeline-call` in a program for emission."""

    @abstractmethod
    def emitted_program(self) -> PipelineProgram:
        """Return the pipeline in the program of each device."""


def emitted_pipeline(op: Op) -> PipelineProgram | None:
    """Return the program of a `pipeline-call`; `None` if it cannot be emitted."""
    if op.spec is not pipeline_call:
        return None
    function: object = host_function_of(op.attrs["function"])
    return function.emitted_program() if isinstance(function, EmittablePipeline) else None


def program_blocks(module: Module) -> Iterator[Block]:
    """Yield the body of the entry point of a module, and those of the passes of its pipelines."""
    yield module.main.body
    for op in module.main.body.walk():
        program = emitted_pipeline(op)
        for each in program.passes if program is not None else ():
            yield each.module.main.body
