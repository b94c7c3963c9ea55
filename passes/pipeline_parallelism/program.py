"""A staged pipeline as Python objects: the view of a `staged-pipeline` operation that passes edit.

The blocks of the operation are fragments: one pass of one stage over one microbatch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from shardir.ir.builder import UniqueNames, copy_op
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.operation import OpSpec
from shardir.ops.control_flow.pipelines import (
    PipelineAttributes,
    pipeline_attributes,
    staged_pipeline,
)
from shardir.passes.pipeline_parallelism.actions import ActionKind, parse_action
from shardir.passes.rewriting import all_values

FragmentKey = tuple[int, ActionKind]
"""The stage and the kind of a fragment."""


@dataclass(frozen=True)
class Fragment:
    """One pass of one stage over one microbatch."""

    block: Block
    """The operations."""
    takes: tuple[str, ...]
    """The name of each parameter of the block."""
    gives: tuple[str, ...]
    """The name of each returned value."""


@dataclass(frozen=True)
class StagedPipeline:
    """The fragments of a pipeline, the values that stages send, and the schedule."""

    op: Op
    """The operation with the operands, the results and the options of the pipeline."""
    fragments: dict[FragmentKey, Fragment]
    """The fragments by stage and kind."""
    forward: tuple[tuple[str, ...], ...]
    """The values that each stage but the last sends to the next one."""
    backward: tuple[tuple[str, ...], ...] = ()
    """The values whose cotangents each stage but the first sends to the one before it."""
    schedule: str = ""
    """The name of the schedule, or its text."""

    @staticmethod
    def of(op: Op) -> "StagedPipeline":
        """Return the view of a `staged-pipeline` operation."""
        fragments = {}
        for name, block, takes, gives in zip(
            op.attrs["fragments"], op.blocks, op.attrs["takes"], op.attrs["gives"], strict=True
        ):
            # The name of a fragment is that of an action without its microbatch.
            action = parse_action(f"{name}0")
            fragments[action.stage, action.kind] = Fragment(block, tuple(takes), tuple(gives))
        return StagedPipeline(
            op,
            fragments,
            tuple(map(tuple, op.attrs.get("forward", ()))),
            tuple(map(tuple, op.attrs.get("backward", ()))),
            op.attrs["schedule"],
        )

    def to_op(self) -> Op:
        """Return the operation."""
        keys = sorted(self.fragments, key=lambda key: (key[0], _ORDER.index(key[1])))
        chosen = [self.fragments[key] for key in keys]
        attrs: dict[str, Any] = {
            **self.op.attrs,
            "schedule": self.schedule,
            "fragments": tuple(f"{stage}{kind}" for stage, kind in keys),
            "takes": tuple(fragment.takes for fragment in chosen),
            "gives": tuple(fragment.gives for fragment in chosen),
            "forward": self.forward,
            "backward": self.backward,
        }
        blocks = tuple(fragment.block for fragment in chosen)
        return replace(self.op, spec=staged_pipeline, attrs=attrs, blocks=blocks)

    @property
    def stage_count(self) -> int:
        """The number of stages."""
        return 1 + max(stage for stage, _ in self.fragments)

    @property
    def attributes(self) -> PipelineAttributes:
        """The attributes of the operation."""
        return pipeline_attributes(self.op)

    @property
    def wrt(self) -> tuple[int, ...]:
        """The operands whose gradients the pipeline returns."""
        return self.attributes.wrt

    @property
    def batched_operands(self) -> tuple[int, ...]:
        """The operands that are divided into microbatches."""
        return self.attributes.batched

    @property
    def microbatches(self) -> int:
        """The number of microbatches."""
        return self.attributes.microbatches

    @property
    def loss_scale(self) -> float:
        """The factor of the loss of each microbatch in the loss of the pipeline."""
        return self.attributes.loss_scale


_ORDER = (
    ActionKind.FORWARD,
    ActionKind.BACKWARD,
    ActionKind.INPUT_GRADIENT,
    ActionKind.WEIGHT_GRADIENT,
)


def rewrite_pipelines(
    module: Module, spec: OpSpec, rewritten: Callable[[Op, Function], Op]
) -> Module:
    """Return the module with `rewritten(op, function)` for each operation `spec`.

    The values in the blocks of the new operation get names that are unique in the function.
    """

    def function(old: Function) -> Function:
        if not any(op.spec is spec for op in old.body.ops):
            return old
        names = UniqueNames(
            [value.name for value in old.body.values()]
            + [v.name for op in old.body.ops if op.spec is not spec
               for block in op.blocks for v in all_values(block)]
        )  # fmt: skip
        ops = []
        for op in old.body.ops:
            if op.spec is spec:
                op = rewritten(op, old)
                op = replace(op, blocks=tuple(_copy_block(block, names) for block in op.blocks))
            ops.append(op)
        return replace(old, body=replace(old.body, ops=tuple(ops)))

    return replace(module, functions=tuple(map(function, module.functions)))


def _copy_block(block: Block, names: UniqueNames) -> Block:
    new = {value: replace(value, name=names.fresh(value.name)) for value in block.params}
    params = tuple(new.values())
    ops = tuple([copy_op(op, new, names) for op in block.ops])
    return Block(params, ops, tuple([new[value] for value in block.returns]))


def staged_pipelines(module: Module) -> Iterator[StagedPipeline]:
    """Yield the staged pipelines of the entry point of a module."""
    for op in module.main.body.ops:
        if op.spec is staged_pipeline:
            yield StagedPipeline.of(op)


def copy_of(value: Value) -> Value:
    """Return another value with the type, the name and the sharding of `value`."""
    return replace(value)
