"""Add backward fragments to the stages of a pipeline.

before: `%loss, %v.grad, %w.grad = pipeline(%v, %w, %x, ...`
after:  `%loss, %v.grad, %w.grad = staged-pipeline(%v, %w, %x, ... fragments=["0F", "0B", "0I",
        "0W", "1F", "1B", "1I", "1W"], ... backward=[["h"]]) ...`

The backward pass of a stage takes the residuals of its forward pass and the cotangents of the
values that the stage sends. It is one fragment B, or two: I computes the cotangents of the values
that the stage receives, and W the gradients of the weights. Dead code elimination on the two halves
separates them; W takes the intermediate values that both need from I. A schedule may use both
forms; the pass `schedule-pipelines` removes fragments that it does not use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from shardir.ir.builder import Builder, UniqueNames, copy_op, substitute
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.types import INEXACT
from shardir.ops import convert, reshape, slice_, transpose
from shardir.ops.control_flow.pipeline_slots import (
    LOSS,
    given_cotangent,
    gradient_slot,
    kept_value,
    received_cotangent,
    saved_residual,
    slot_number,
)
from shardir.ops.control_flow.pipelines import staged_pipeline
from shardir.passes.autodiff.residuals import eliminate_dead_operations
from shardir.passes.autodiff.vjp import linearize
from shardir.passes.pipeline import Pass
from shardir.passes.pipeline_parallelism.actions import ActionKind
from shardir.passes.pipeline_parallelism.program import (
    Fragment,
    FragmentKey,
    StagedPipeline,
    copy_of,
    rewrite_pipelines,
)
from shardir.passes.rewriting import all_values
from shardir.passes.simplify.inline import inline_regions

F, B = ActionKind.FORWARD, ActionKind.BACKWARD
I, W = ActionKind.INPUT_GRADIENT, ActionKind.WEIGHT_GRADIENT  # noqa: E741

VIEWS = (reshape, slice_, transpose, convert)
"""Operations that a backward pass repeats on arguments instead of keeping their results."""


@dataclass(frozen=True)
class SplitBackward(Pass, name="split-backward"):
    """Add backward fragments to each `staged-pipeline` that returns gradients.

    `form=whole` adds only B, `form=halves` only I and W.
    """

    form: str = "both"
    choices: ClassVar[dict[str, Sequence[str]]] = {"form": ("whole", "halves", "both")}

    def __call__(self, module: Module) -> Module:
        def rewritten(op: Op, function: Function) -> Op:
            return add_backward(StagedPipeline.of(op), self.form).to_op()

        return rewrite_pipelines(module, staged_pipeline, rewritten)


def add_backward(pipeline: StagedPipeline, form: str) -> StagedPipeline:
    """Return a pipeline with fragments of its gradients; see `SplitBackward`."""
    wrt = set(pipeline.wrt)
    if any(kind is not F for _, kind in pipeline.fragments):
        return pipeline
    if not wrt:
        inlined = {key: _inline_fragment(each) for key, each in pipeline.fragments.items()}
        return replace(pipeline, fragments=inlined)
    fragments: dict[FragmentKey, Fragment] = {}
    backward: list[tuple[str, ...]] = []
    differentiated: set[str] = set()
    for stage in range(pipeline.stage_count):
        forward = pipeline.fragments[stage, F]
        received = pipeline.forward[stage - 1] if stage else ()
        moving = [
            i
            for i, (slot, value) in enumerate(zip(forward.takes, forward.block.params, strict=True))
            if slot_number(slot, "argument") in wrt or slot in differentiated
        ]
        backward += [tuple(name for name in received if name in differentiated)] if stage else []
        split = _StageGradient(forward, moving, pipeline.loss_scale)
        fragments[stage, F] = split.forward
        if form != "halves":
            fragments[stage, B] = split.backward
        if form != "whole":
            fragments[stage, I], fragments[stage, W] = split.halves()
        differentiated = split.active
    return replace(pipeline, fragments=fragments, backward=tuple(backward))


def _inline_fragment(fragment: Fragment) -> Fragment:
    """Return the fragment without regions, which only a differentiation needs."""
    block = fragment.block
    function = Function("stage", block, (None,) * len(block.returns))
    return replace(fragment, block=inline_regions(function).body)


class _StageGradient:
    """The forward fragment of one stage with residuals, and its backward fragment.

    `moving` are the parameters to differentiate with respect to; `active` the names of the values
    that the stage gives and that depend on them.
    """

    def __init__(self, stage: Fragment, moving: Sequence[int], loss_scale: float) -> None:
        params, returns = stage.block.params, stage.block.returns
        function = Function("stage", stage.block, (None,) * len(returns))
        reached = _dependent_values(stage.block, [params[i] for i in moving])
        of = [
            i
            for i, (value, slot) in enumerate(zip(returns, stage.gives, strict=True))
            if value in reached and slot_number(slot, "auxiliary") is None
        ]
        self.active = {stage.gives[i] for i in of}
        both = linearize(function, moving, of)
        count = len(returns)
        forward = inline_regions(both.forward).body
        slot_of = dict(zip(forward.params, stage.takes, strict=True))
        given = [
            (value, slot)
            for value, slot in zip(forward.returns[:count], stage.gives, strict=True)
            if slot_number(slot, "auxiliary") is None
        ]
        slot_of.update(given)
        residuals = []
        for value in forward.returns[count:]:
            slot_of.setdefault(value, saved_residual(value.name))
            residuals.append(slot_of[value])
        pullback, residuals = _recompute_views(
            forward, forward.returns[count:], residuals, inline_regions(both.pullback).body, slot_of
        )
        known = {*forward.params, *(value for value, _ in given)}
        taken = set(residuals)
        saved = [
            value
            for value in dict.fromkeys(forward.returns[count:])
            if value not in known and slot_of[value] in taken
        ]
        self.forward = Fragment(
            replace(forward, returns=(*forward.returns[:count], *saved)),
            stage.takes,
            (*stage.gives, *(slot_of[value] for value in saved)),
        )
        takes = (*residuals, *(_cotangent_slot(stage.gives[i]) for i in of))
        gives = tuple(
            given_cotangent(slot) if slot_number(slot, "argument") is None else gradient_slot(slot)
            for slot in (stage.takes[i] for i in moving)
        )
        self.backward = _with_loss_cotangent(Fragment(pullback, takes, gives), loss_scale)

    def halves(self) -> tuple[Fragment, Fragment]:
        """Return the gradients of the inputs and the gradients of the weights as two fragments."""
        block, takes, gives = self.backward.block, self.backward.takes, self.backward.gives
        returned = list(zip(gives, block.returns, strict=True))
        inputs = [pair for pair in returned if slot_number(pair[0], "gradient") is None]
        weights = [pair for pair in returned if slot_number(pair[0], "gradient") is not None]
        first = eliminate_dead_operations(block.ops, [value for _, value in inputs])
        done = {value for op in first for value in op.results}
        rest = [op for op in block.ops if op not in set(first)]
        second = eliminate_dead_operations(rest, [value for _, value in weights])
        used = dict.fromkeys(value for op in second for value in op.uses())
        used.update(dict.fromkeys(value for _, value in weights))
        shared = [value for value in used if value in done]
        slots = dict(zip(block.params, takes, strict=True))
        slots.update({value: kept_value(value.name) for value in shared})
        kept = [(slots[value], value) for value in shared]
        return (
            _fragment(block.params, takes, first, [*inputs, *kept]),
            _fragment((*block.params, *shared), [*takes, *(s for s, _ in kept)], second, weights),
        )


def _recompute_views(
    forward: Block,
    values: Sequence[Value],
    slots: Sequence[str],
    pullback: Block,
    slot_of: Mapping[Value, str],
) -> tuple[Block, list[str]]:
    """Return the pullback, and the slots of its residuals, without residuals that are views of
    arguments.

    The pullback takes the arguments instead, so that no microbatch keeps a copy of its weights.
    """
    makers = {value: op for op in forward.ops for value in op.results}
    arguments = {x for x in forward.params if slot_number(slot_of[x], "argument") is not None}
    names = UniqueNames([value.name for value in all_values(pullback)])
    taken: dict[str, Value] = {}
    new: dict[Value, Value] = {}
    ops: list[Op] = []

    def compute(value: Value) -> Value:
        if value in arguments:
            new[value] = taken.setdefault(slot_of[value], copy_of(value))
        elif value not in new:
            for operand in makers[value].operands:
                compute(operand)
            ops.append(copy_op(makers[value], new, names))
        return new[value]

    def is_view(value: Value) -> bool:
        if value in arguments:
            return True
        op = makers.get(value)
        return op is not None and op.spec in VIEWS and all(map(is_view, op.operands))

    params = pullback.params[: len(slots)]
    views: dict[Value, Value] = {}
    for value, slot, param in zip(values, slots, params, strict=True):
        if not is_view(value):
            taken.setdefault(slot, param)
        elif value in arguments:
            taken[slot] = param
    for value, slot, param in zip(values, slots, params, strict=True):
        found = compute(value) if is_view(value) else taken[slot]
        if found is not param:
            views[param] = found
    rest = pullback.params[len(slots) :]
    whole = Block((*taken.values(), *rest), (*ops, *pullback.ops), pullback.returns)
    return replace(substitute(whole, views), params=whole.params), list(taken)


def _cotangent_slot(name: str) -> str:
    return received_cotangent(name)


def _fragment(
    params: Sequence[Value],
    takes: Sequence[str],
    ops: Sequence[Op],
    returned: Sequence[tuple[str, Value]],
) -> Fragment:
    """Return a fragment with copies of all values and with the parameters that it uses."""
    used = {value for op in ops for value in op.uses()} | {value for _, value in returned}
    chosen = [(x, slot) for x, slot in zip(params, takes, strict=True) if x in used]
    new = {x: replace(x) for x, _ in chosen}
    inner_params = tuple(new.values())
    names = UniqueNames([x.name for x in inner_params])
    copies = tuple(copy_op(op, new, names) for op in ops)
    returns = tuple(new[value] for _, value in returned)
    block = Block(inner_params, copies, returns)
    return Fragment(block, tuple(s for _, s in chosen), tuple(s for s, _ in returned))


def _dependent_values(block: Block, chosen: Sequence[Value]) -> set[Value]:
    """Return the floating-point values of a block that depend on the chosen ones."""
    reached = set(chosen)
    for op in block.ops:
        if any(value in reached for value in op.uses()):
            reached.update(op.results)
    return {value for value in reached if value.type.dtype in INEXACT}


def _with_loss_cotangent(backward: Fragment, loss_scale: float) -> Fragment:
    """Replace the cotangent of the loss by the factor of a microbatch in the loss."""
    slot = received_cotangent(LOSS)
    if slot not in backward.takes:
        return backward
    at = backward.takes.index(slot)
    block = backward.block
    b = Builder(UniqueNames([value.name for value in all_values(block)]))
    b.why = "the factor of a microbatch in the loss"
    factor = b.full(loss_scale, block.params[at].type)
    params = (*block.params[:at], *block.params[at + 1 :])
    whole = Block(params, (*b.ops, *block.ops), block.returns)
    takes = (*backward.takes[:at], *backward.takes[at + 1 :])
    return replace(backward, block=substitute(whole, {block.params[at]: factor}), takes=takes)
