"""Replace pipelines by ordinary operations, which define their meaning.

before: `%loss, %v.grad, %w.grad = pipeline(%v, %w, %x, microbatches=2, ...`
after:  `%x.3 = slice(%x, starts=[0, 0], ...`, `%x.4 = slice(%x, starts=[8, 0], ...`,
        `%20 = mul(%16, %19)`, `return %20, %17, %18`

The block or the fragments are repeated for each microbatch, in order. The result runs on any
backend, without stages that run at the same time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from shardir.interpret.expansions import register_expansion
from shardir.ir.builder import Builder, UniqueNames, inline, substitute
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ops.control_flow.pipeline_slots import (
    LOSS,
    argument_slot,
    auxiliary_slot,
    given_cotangent,
    gradient_slot,
    received_cotangent,
    slot_number,
    slot_window,
)
from shardir.ops.control_flow.pipelines import (
    gradient_results,
    microbatch_type,
    pipeline,
    pipeline_attributes,
    pipeline_stage,
    staged_pipeline,
)
from shardir.passes.autodiff.vjp import vjp
from shardir.passes.pipeline import Pass
from shardir.passes.pipeline_parallelism.actions import ActionKind
from shardir.passes.pipeline_parallelism.argument_windows import pad_window, slice_window
from shardir.passes.pipeline_parallelism.program import StagedPipeline
from shardir.passes.pipeline_parallelism.split_backward import add_backward
from shardir.passes.rewriting import used_names
from shardir.passes.simplify.inline import inline_regions

BACKWARD = (ActionKind.BACKWARD, ActionKind.INPUT_GRADIENT, ActionKind.WEIGHT_GRADIENT)


@dataclass(frozen=True)
class InlinePipelines(Pass, name="inline-pipelines"):
    """Replace each `pipeline` and each `staged-pipeline` by the operations of all microbatches."""

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(_inline_pipelines, module.functions)))


def _inline_pipelines(function: Function) -> Function:
    if not any(op.spec in (pipeline, staged_pipeline) for op in function.body.ops):
        return function
    b = Builder(used_names(function))
    new: dict[Value, Value] = {}
    for op in function.body.ops:
        if op.spec in (pipeline, staged_pipeline):
            b.loc = op.loc
            new.update(zip(op.results, _Inliner(b, op).results(), strict=True))
        else:
            b.append(op)
    body = substitute(Block((), tuple(b.ops), function.body.returns), new)
    return replace(function, body=replace(body, params=function.body.params))


def _expand(op: Op) -> Block:
    """Return the operations of all microbatches of a pipeline, with its operands as parameters."""
    params = tuple(Value(x.type, f"operand.{i}", x.sharding) for i, x in enumerate(op.operands))
    names = UniqueNames([value.name for value in params])
    b = Builder(names)
    b.loc = op.loc
    results = _Inliner(b, replace(op, operands=params)).results()
    return Block(params, tuple(b.ops), tuple(results))


register_expansion(pipeline, _expand)
register_expansion(staged_pipeline, _expand)


class _Inliner:
    """Emits the operations of one pipeline."""

    def __init__(self, b: Builder, op: Op) -> None:
        self.b, self.op = b, op
        self.attributes = pipeline_attributes(op)
        self.sums: dict[str, Value] = {}
        self.stacks: dict[str, list[Value]] = {}

    def results(self) -> list[Value]:
        """Emit all microbatches; return the loss, auxiliary results and the gradients."""
        b = self.b
        for number in range(self.attributes.microbatches):
            operands = [self._part(i, number) for i in range(len(self.op.operands))]
            terms = (
                self._whole(operands)
                if self.op.spec is pipeline
                else self._inline_staged(StagedPipeline.of(self.op), operands)
            )
            for name, term in terms:
                if slot_number(name, "auxiliary") is not None:
                    row = term.type.with_shape((1, *term.type.shape))
                    self.stacks.setdefault(name, []).append(b.reshape(term, result=row))
                    continue
                known = self.sums.get(name)
                self.sums[name] = term if known is None else b.add(known, term)
        scale = self.attributes.loss_scale
        loss = b.mul(self.sums[LOSS], b.full(scale, self.sums[LOSS].type))
        gradients = []
        for i, result in zip(self.attributes.wrt, gradient_results(self.op), strict=True):
            slots = [slot for slot in self.sums if slot_number(slot, "gradient") == i]
            parts = [pad_window(b, self.sums[slot], slot_window(slot), result.type)
                     for slot in slots]  # fmt: skip
            gradients.append(reduce(b.add, parts) if parts else b.full(0, result.type))
        stacked = [self.stacks[auxiliary_slot(i)] for i in range(len(self.stacks))]
        return [loss, *(b.concatenate(*rows, dim=0) for rows in stacked), *gradients]

    def _part(self, number: int, microbatch: int) -> Value:
        value = self.op.operands[number]
        if number not in self.attributes.batched:
            return value
        type = microbatch_type(value.type, self.attributes.microbatches)
        part: Value = self.b.slice(
            value,
            result=type,
            starts=(microbatch * type.shape[0], *(0,) * (type.rank - 1)),
            strides=(1,) * type.rank,
            name=value.name,
        )
        return part

    def _whole(self, operands: Sequence[Value]) -> list[tuple[str, Value]]:
        """Return the terms of one microbatch of a `pipeline`."""
        (block,) = self.op.blocks
        block = _without_marks(block)
        function = Function("loss", block, (None,) * len(block.returns))
        names = [LOSS, *map(auxiliary_slot, range(len(block.returns) - 1))]
        args = list(operands)
        if self.attributes.wrt:
            function = vjp(function, self.attributes.wrt, [0])
            args.append(self.b.full(self.attributes.loss_scale, block.returns[0].type))
            names += [gradient_slot(argument_slot(i)) for i in self.attributes.wrt]
        return list(zip(names, inline(self.b, inline_regions(function).body, args), strict=True))

    def _inline_staged(self, staged: StagedPipeline, operands: Sequence[Value]
                ) -> list[tuple[str, Value]]:  # fmt: skip
        """Return the terms of one microbatch of a `staged-pipeline`."""
        if self.attributes.wrt:
            staged = add_backward(staged, "whole")
        values: list[dict[str, Value]] = [{} for _ in range(staged.stage_count)]
        terms: list[tuple[str, Value]] = []
        for stage in range(staged.stage_count):
            terms += self._fragment(staged, stage, ActionKind.FORWARD, values[stage], operands)
            if stage + 1 < staged.stage_count:
                for name in staged.forward[stage]:
                    values[stage + 1][name] = values[stage][name]
        for stage in reversed(range(staged.stage_count)):
            kinds = [kind for kind in BACKWARD if (stage, kind) in staged.fragments]
            for kind in kinds[:1] if ActionKind.BACKWARD in kinds else kinds:
                terms += self._fragment(staged, stage, kind, values[stage], operands)
            for name in staged.backward[stage - 1] if stage and staged.backward else ():
                sent = values[stage][given_cotangent(name)]
                values[stage - 1][received_cotangent(name)] = sent
        return terms

    def _fragment(
        self,
        staged: StagedPipeline,
        stage: int,
        kind: ActionKind,
        values: dict[str, Value],
        operands: Sequence[Value],
    ) -> list[tuple[str, Value]]:
        """Emit a fragment; return its terms and add its other results to `values`."""
        fragment = staged.fragments[stage, kind]
        args = [
            values[name]
            if (number := slot_number(name, "argument")) is None
            else slice_window(self.b, operands[number], slot_window(name))
            for name in fragment.takes
        ]
        terms = []
        made = inline(self.b, fragment.block, args)
        for name, value in zip(fragment.gives, made, strict=True):
            if name == LOSS or any(
                slot_number(name, word) is not None for word in ("gradient", "auxiliary")
            ):
                terms.append((name, value))
            else:
                values[name] = value
        return terms


def _without_marks(block: Block) -> Block:
    new: dict[Value, Value] = {}
    ops = []
    for op in block.ops:
        if op.spec is pipeline_stage:
            new[op.result] = new.get(op.operands[0], op.operands[0])
        else:
            ops.append(op)
    return substitute(replace(block, ops=tuple(ops)), new)
