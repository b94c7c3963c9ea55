"""Batching rules of regions: their blocks and their derivative rules are batched.

A rule that has not been traced is traced when a derivative needs it, and vectorized then. If any
operand of a region with a rule is batched, all its results are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from shardir.ir.builder import Builder, as_values, inline
from shardir.ir.host_function import HostFunction, host_function_of
from shardir.ir.module import Block, Function, Op, Value
from shardir.ir.types import INEXACT
from shardir.op_rules.batching import broadcast_over_batch
from shardir.ops.control_flow.derivative_regions import derivative_rule_of
from shardir.passes.autodiff.regions import instantiate_rule
from shardir.passes.batching.batcher import Batcher, Handler
from shardir.passes.batching.transform import vectorize_with
from shardir.passes.rewriting import used_names

BlockBatcher = Callable[[Block, Sequence[bool]], Block]
"""Batches a block; the flags state which of its parameters are batched."""


def _batch_checkpoint(outer: Batcher, op: Op) -> Sequence[Value]:
    (body,) = op.blocks
    own = host_function_of(op.attrs.get("batching", ""))
    if own is not None:
        block = own([outer.is_batched(x) for x in op.operands], outer.size)
        return inline(outer.b, block, [*map(outer.get, op.operands)])
    inner = outer.inner(has_mask=True)
    params = [
        inner.param(param, outer.is_batched(x))
        for param, x in zip(body.params, op.operands, strict=True)
    ]
    inner.run(body.ops)
    block = inner.b.block(params, [inner.get(value) for value in body.returns])
    operands = map(outer.get, op.operands)
    return as_values(outer.b.emit(op.spec, *operands, blocks=(block,), **op.attrs))


def _batch_custom_rule(outer: Batcher, op: Op) -> Sequence[Value]:
    flags = [outer.is_batched(value) for value in op.operands]
    inner = outer.inner()
    params = [
        inner.param(param, flag) for param, flag in zip(op.blocks[0].params, flags, strict=True)
    ]
    inner.run(op.blocks[0].ops)
    block = inner.b.block(params, [inner.get_batched(value) for value in op.blocks[0].returns])
    make = _RULES[op.name]
    many = partial(_vectorize_block, outer.handlers, outer.size, outer.axis)
    if len(op.blocks) > 1:
        rule, blocks = op.attrs["rule"], make(op, flags, many, [True] * len(flags))
    else:
        rule, blocks = op.attrs["rule"], ()
        if (named := derivative_rule_of(op)) is not None:
            batched = replace(named, trace=partial(make, op, flags, many))
            rule = HostFunction(rule, batched)
    attrs = {**op.attrs, "rule": rule}
    operands = map(outer.get, op.operands)
    return as_values(outer.b.emit(op.spec, *operands, blocks=(block, *blocks), **attrs))


def _vectorize_block(
    handlers: Mapping[str, Handler],
    size: int,
    axis: str | None,
    block: Block,
    flags: Sequence[bool],
) -> Block:
    function = Function("rule", block, (None,) * len(block.returns))
    return vectorize_with(handlers, function, flags, size, axis=axis).body


def _batch_results(old: Block, new: Block, flags: Sequence[bool | None]) -> Block:
    """Return the block with results batched as `flags`; `None` accepts either."""
    b = Builder(used_names(Function("rule", new, ())))
    returns = []
    size = next(
        (n.type.shape[0] for o, n in zip(old.params, new.params, strict=True) if _is_batched(o, n)),
        0,
    )
    for before, after, flag in zip(old.returns, new.returns, flags, strict=True):
        if flag is None or flag == _is_batched(before, after):
            returns.append(after)
        elif flag:
            returns.append(broadcast_over_batch(b, after, size))
        else:
            b.why = "one gradient for all of the batch"
            returns.append(b.sum(after, dims=(0,)))
    return replace(new, ops=(*new.ops, *b.ops), returns=tuple(returns))


def _is_batched(old: Value, new: Value) -> bool:
    return new.type.rank > old.type.rank


def _batch_jvp_rule(
    op: Op, flags: Sequence[bool], many: BlockBatcher, moves: Sequence[bool]
) -> tuple[Block, ...]:
    (rule,) = instantiate_rule(op, Builder(), moves)
    count = len(op.operands) - op.attrs.get("closed", 0)
    moving = [
        flag for x, flag in zip(op.operands[:count], flags, strict=False) if x.type.dtype in INEXACT
    ]
    return (_batch_results(rule, many(rule, [*flags, *moving]), [True] * len(rule.returns)),)


def _batch_vjp_rule(
    op: Op, flags: Sequence[bool], many: BlockBatcher, moves: Sequence[bool]
) -> tuple[Block, ...]:
    first, last = instantiate_rule(op, Builder(), moves)
    count, num_results = len(op.operands) - op.attrs.get("closed", 0), len(op.results)
    residuals = len(first.returns) - num_results
    ahead = many(first, flags)
    ahead = _batch_results(first, ahead, [*[True] * num_results, *[None] * residuals])
    residual_flags = [_is_batched(o, n) for o, n in zip(first.returns, ahead.returns, strict=True)][
        num_results:
    ]
    moving = [
        flag for x, flag in zip(op.operands[:count], flags, strict=False) if x.type.dtype in INEXACT
    ]
    cotangents = len(last.params) - residuals - (len(op.operands) - count)
    back = many(last, [*residual_flags, *[True] * cotangents, *flags[count:]])
    return ahead, _batch_results(last, back, moving)


_RULES = {"custom-jvp": _batch_jvp_rule, "custom-vjp": _batch_vjp_rule}

HANDLERS: dict[str, Handler] = {
    "checkpoint": _batch_checkpoint,
    "custom-jvp": _batch_custom_rule,
    "custom-vjp": _batch_custom_rule,
}
