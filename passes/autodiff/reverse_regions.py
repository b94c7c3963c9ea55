"""Reverse-mode rules of regions.

A checkpoint saves its operands and the values that its policy selects; the backward computation
recomputes the others behind a barrier, so that no pass merges them with the forward computation. A
custom_vjp runs its forward rule instead of its block, and its backward rule for the gradient. The
rule of a custom_jvp is linear in the tangents, so it is pulled back through.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from shardir import ops as specs
from shardir.ir.builder import UniqueNames, copy_op, inline, substitute
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import INEXACT
from shardir.passes.autodiff.activity import active_values
from shardir.passes.autodiff.checkpoint_policies import is_saved, saves_everything
from shardir.passes.autodiff.phases import RECOMPUTED_WHY
from shardir.passes.autodiff.pullback import Cotangents, Handler, Pullback
from shardir.passes.autodiff.regions import (
    check_closed,
    inline_block,
    inline_region,
    instantiate_rule,
    split_by_dependence,
)
from shardir.passes.autodiff.residuals import eliminate_dead_operations
from shardir.passes.autodiff.saved_values import reuse_saved_values
from shardir.passes.rewriting import has_nested_effect


def _pull_checkpoint(outer: Pullback, op: Op, cotangents: Cotangents) -> tuple[Op, ...]:
    (body,) = op.blocks
    save = op.attrs.get("save", ())
    forward, places = _inline_checkpoint(op)
    if saves_everything(save):
        for result, cotangent in zip(op.results, cotangents, strict=True):
            outer.accumulate(result, cotangent)
        return outer.run(forward)

    b = outer.b
    b.why = f"{RECOMPUTED_WHY} %{op.results[0].name}"
    inputs = list(dict.fromkeys((*op.operands, *body.captures())))
    barrier_results = _behind_barrier(
        outer, op, [*inputs, *(g for g in cotangents if g is not None)]
    )
    seen = dict(zip(inputs, barrier_results, strict=False))
    given_back = iter(barrier_results[len(inputs) :])

    new = {**seen, **{p: seen[x] for p, x in zip(body.params, op.operands, strict=True)}}
    again = [replace(copy_op(inner, new, b.names), why=b.why) for inner in body.ops]
    pullback = outer.inner()
    active_inputs = [seen[x] for x in inputs if x in outer.active]
    pullback.active = active_values(Block((), tuple(again), ()), active_inputs)
    for value, cotangent in zip(body.returns, cotangents, strict=True):
        pullback.accumulate(new.get(value, value), None if cotangent is None else next(given_back))
    rerun = pullback.run(again)
    gradients = [(x, pullback.pop_cotangent(seen[x])) for x in inputs]
    originals = {copy: value for value, copy in [*new.items(), *seen.items()]}
    primal_of = {copy: value for value, copy in new.items()}
    unchanged = set(again)
    if any(_has_custom_derivative(inner) for inner in body.ops) or any(
        inner not in unchanged and is_saved(save, inner) for inner in rerun
    ):
        body, primal_of = _run_forward_rules(body, again, rerun, originals, b.names)
        forward, places = _inline_checkpoint(replace(op, blocks=(body,)))
    primal_of = {copy: _find_place(value, places) for copy, value in primal_of.items()}
    saved = reuse_saved_values(forward, rerun, primal_of, save, b.names)
    block = substitute(Block((), tuple(pullback.b.ops), ()), saved.reused)
    all_ops = (*saved.again, *block.ops)
    value_cotangents = [(x, saved.reused.get(g, g)) for x, g in gradients if g is not None]
    again_ops = eliminate_dead_operations(all_ops, [g for _, g in value_cotangents])
    if op.attrs.get("barrier", True):
        b.ops[-1:] = _restrict_barrier(b.ops[-1], again_ops, [g for _, g in value_cotangents])
    b.ops.extend(again_ops)
    for cotangent, value in pullback.primal_of_cotangent.items():
        pullback.primal_of_cotangent[cotangent] = originals.get(value, value)
    for x, cotangent in value_cotangents:
        outer.accumulate(x, cotangent)
    return saved.forward


def _inline_checkpoint(op: Op) -> tuple[tuple[Op, ...], dict[Value, Value]]:
    """Return the operations of a checkpoint, and the replacements of the values of its block.

    They take the place of checkpoints inside of it, too, if these contain effects, whose results
    the recomputation uses.
    """
    (body,) = op.blocks
    places: dict[Value, Value] = {}
    body = _inline_inner_checkpoints(body, places)
    forward, outer_places = inline_block(body, op.operands, op.results, op)
    return forward, places | outer_places


def _inline_inner_checkpoints(block: Block, places: dict[Value, Value]) -> Block:
    """Return the block with checkpoints that contain effects inlined, and add the replacements of
    their values to `places`."""
    ops = list[Op]()
    for op in block.ops:
        if has_nested_effect(op):
            blocks = tuple(_inline_inner_checkpoints(each, places) for each in op.blocks)
            op = replace(op, blocks=blocks)
            if op.spec is specs.checkpoint:
                inlined, new = inline_block(blocks[0], op.operands, op.results, op)
                places.update(new)
                ops += inlined
                continue
        ops.append(op)
    return replace(block, ops=tuple(ops))


def _find_place(value: Value, places: Mapping[Value, Value]) -> Value:
    while value in places:
        value = places[value]
    return value


def _run_forward_rules(
    body: Block,
    again: Sequence[Op],
    rerun: Sequence[Op],
    originals: Mapping[Value, Value],
    names: UniqueNames,
) -> tuple[Block, dict[Value, Value]]:
    """Return the body of a checkpoint with the forward rules of custom derivatives, and the blocks
    of checkpoints, in place of their operations: the policy can save values inside of them, and
    the next derivative is that of the forward rules, as without a checkpoint.

    `again` are copies of the operations of the body, `rerun` what the pullback runs instead of
    them; `originals` maps the values of the copies to those of the body. The second result does
    this for all values of `rerun`.
    """
    makers = {value: inner for inner in body.ops for value in inner.results}
    unchanged = dict(zip(again, body.ops, strict=True))
    copies = dict(originals)
    ops: list[Op] = []
    for op in rerun:
        maker = next((makers.get(originals[x]) for x in op.results if x in originals), None)
        if op in unchanged:
            ops.append(unchanged[op])
        elif maker and maker.name not in HANDLERS and not _has_custom_derivative(maker):
            # A loop or a branch that was extended by the residuals of its derivative.
            ops.append(maker)
        else:
            ops.append(copy_op(op, copies, names))
    own = {copies[copy]: value for copy, value in originals.items()}
    ops_of_body = substitute(Block((), tuple(ops), ()), own).ops
    primal_of = {copy: own.get(value, value) for copy, value in copies.items()}
    return replace(body, ops=ops_of_body), primal_of


def _has_custom_derivative(op: Op) -> bool:
    """Return whether the operation has a custom derivative, or contains one that has."""
    return op.spec in (specs.custom_vjp, specs.custom_jvp) or any(
        _has_custom_derivative(inner) for block in op.blocks for inner in block.ops
    )


def _restrict_barrier(barrier: Op, ops: Sequence[Op], returns: Sequence[Value]) -> list[Op]:
    """Return the barrier restricted to the values that are used behind it."""
    used = set(returns).union(*(op.uses() for op in ops))
    pairs = zip(barrier.operands, barrier.results, strict=True)
    used_pairs = [(operand, result) for operand, result in pairs if result in used]
    if not used_pairs:
        return []
    operands, results = zip(*used_pairs, strict=True)
    return [replace(barrier, operands=operands, results=results)]


def _behind_barrier(outer: Pullback, op: Op, values: Sequence[Value]) -> list[Value]:
    if not op.attrs.get("barrier", True):
        return list(values)
    result = outer.b.optimization_barrier(*values)
    return list(result) if isinstance(result, tuple) else [result]


def _pull_custom_vjp(outer: Pullback, op: Op, cotangents: Cotangents) -> tuple[Op, ...]:
    active = [value in outer.active for value in op.operands]
    check_closed(op, active)
    ahead, back = instantiate_rule(op, outer.b, active)
    forward, places = inline_block(ahead, op.operands, op.results, op)
    residuals = [places.get(value, value) for value in ahead.returns[len(op.results) :]]
    count = len(op.operands) - op.attrs.get("closed", 0)
    result_cotangents = list(_materialize_cotangents(outer, op, cotangents))
    gradients = inline(outer.b, back, [*residuals, *result_cotangents, *op.operands[count:]])
    inexact = [x for x in op.operands[:count] if x.type.dtype in INEXACT]
    for x, gradient in zip(inexact, gradients, strict=True):
        outer.accumulate(x, gradient)
    return forward


def _materialize_cotangents(outer: Pullback, op: Op, cotangents: Cotangents) -> Iterator[Value]:
    """Yield the cotangents of the differentiable results, with zeros materialized."""
    for result, cotangent in zip(op.results, cotangents, strict=True):
        if result.type.dtype in INEXACT:
            yield outer.b.full(0, result.type) if cotangent is None else cotangent


def _pull_custom_jvp(outer: Pullback, op: Op, cotangents: Cotangents) -> tuple[Op, ...]:
    active = [value in outer.active for value in op.operands]
    check_closed(op, active)
    (rule,) = instantiate_rule(op, outer.b, active)
    b, count, num_results = outer.b, len(op.operands), len(op.results)
    tangents, tangent_results = rule.params[count:], rule.returns[num_results:]
    primal_ops, tangent_ops = split_by_dependence(rule.ops, tangents)
    tangent_ops = _inline_custom_jvps(
        tangent_ops, active_values(Block((), tuple(tangent_ops), ()), tangents)
    )

    pullback = outer.inner()
    pullback.active = active_values(Block((), tuple(tangent_ops), ()), tangents)
    inexact_cotangents = [
        g for y, g in zip(op.results, cotangents, strict=True) if y.type.dtype in INEXACT
    ]
    for tangent_result, cotangent in zip(tangent_results, inexact_cotangents, strict=True):
        pullback.accumulate(tangent_result, cotangent)
    rerun = pullback.run(tangent_ops)
    gradients = [pullback.pop_cotangent(tangent) for tangent in tangents]

    # The operations that depend on tangents are linear in them: zero tangents give the primal
    # results.
    zero = b.inner()
    nothing = {tangent: zero.full(0, tangent.type) for tangent in tangents}
    returns = rule.returns[:num_results]
    used = Block((), tuple(pullback.b.ops), ()).captures()
    live_ops = eliminate_dead_operations(rerun, [*returns, *used])
    block = substitute(
        Block(rule.params[:count], (*zero.ops, *primal_ops, *live_ops), returns), nothing
    )
    forward, places = inline_block(block, op.operands, op.results, op)
    new = {**dict(zip(rule.params[:count], op.operands, strict=True)), **places, **nothing}
    back = substitute(Block((), tuple(pullback.b.ops), ()), new)
    b.ops.extend(back.ops)
    owners = [x for x in op.operands[: count - op.attrs.get("closed", 0)]]
    movable = [x for x in owners if x.type.dtype in INEXACT]
    for x, gradient in zip(movable, gradients, strict=True):
        if gradient is not None:
            outer.accumulate(x, new.get(gradient, gradient))
    return forward


def _inline_custom_jvps(ops: Sequence[Op], active: set[Value]) -> list[Op]:
    """Return the operations with each custom_jvp that depends on a tangent inlined.

    A rule is linear in the tangents. A rule that calls its own function on tangents would otherwise
    instantiate itself without end.
    """
    new_ops: list[Op] = []
    for op in ops:
        if op.spec is specs.custom_jvp and any(value in active for value in op.operands):
            inner = inline_region(op)
            active |= active_values(Block((), inner, ()), [x for x in op.operands if x in active])
            new_ops += _inline_custom_jvps(inner, active)
        elif op.blocks and op.spec is not specs.custom_jvp:
            blocks = tuple(
                replace(block, ops=tuple(_inline_custom_jvps(block.ops, active)))
                for block in op.blocks
            )
            new_ops.append(replace(op, blocks=blocks))
        else:
            new_ops.append(op)
    return new_ops


HANDLERS: dict[str, Handler] = {
    "checkpoint": _pull_checkpoint,
    "custom-vjp": _pull_custom_vjp,
    "custom-jvp": _pull_custom_jvp,
}
