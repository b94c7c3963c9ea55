"""Batching rules of control flow.

The body of a loop is processed repeatedly until the set of batched carried values is a fixed point.
A scan remains a scan. A `while` with a batched condition runs as long as the condition holds for
any element, and finished elements keep their values; the conditions are carried along. A case with
a batched index becomes all its branches and a selection between their results; `branch_masks` keeps
derivatives of a branch out of the elements that take another one.
"""

from collections.abc import Sequence
from functools import reduce

from shardir.ir.builder import as_values
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import TensorType
from shardir.op_rules.batching import broadcast_batch_scalars
from shardir.ops.control_flow.control_flow import case, scan, while_
from shardir.passes.batching.batcher import Batcher, Handler
from shardir.passes.batching.branch_masks import communicates, mask_derivative


def _swap_leading_dims(outer: Batcher, x: Value, why: str) -> Value:
    """Return the value with its first two dimensions transposed."""
    before, outer.b.why = outer.b.why, why
    result: Value = outer.b.transpose(x, perm=(1, 0, *range(2, x.type.rank)))
    outer.b.why = before
    return result


def _batch_scan(outer: Batcher, op: Op) -> Sequence[Value]:
    (body,) = op.blocks
    n = op.attrs["carries"]
    carried = [outer.is_batched(value) for value in op.operands[:n]]
    sliced = [outer.is_batched(value) for value in op.operands[n:]]
    while True:
        inner = outer.inner(has_mask=True)
        flags = zip(body.params, (*carried, *sliced), strict=True)
        params = [inner.param(value, flag) for value, flag in flags]
        inner.run(body.ops)
        grown = _batched_carries(inner, carried, body.returns[:n])
        if grown == carried:
            break
        carried = grown
    returns = _batch_where(inner, body.returns[:n], carried)
    slices = [inner.get(value) for value in body.returns[n:]]
    inits = _batch_where(outer, op.operands[:n], carried)
    stacks = [
        _swap_leading_dims(outer, outer.get(x), "a scan slices its first dimension") if flag else
        outer.get(x) for x, flag in zip(op.operands[n:], sliced, strict=True)
    ]  # fmt: skip
    block = inner.b.block(params, [*returns, *slices])
    results = as_values(outer.b.emit(scan, *inits, *stacks, blocks=(block,), **op.attrs))
    stacked = [
        _swap_leading_dims(outer, y, "a scan stacks along its first dimension")
        if inner.is_batched(value)
        else y
        for y, value in zip(results[n:], body.returns[n:], strict=True)
    ]
    return (*results[:n], *stacked)


def _batched_carries(
    inner: Batcher, carried: Sequence[bool], returns: Sequence[Value]
) -> list[bool]:
    """Return which carried values are batched after one more iteration."""
    return [flag or inner.is_batched(value) for flag, value in zip(carried, returns, strict=True)]


def _batch_where(batcher: Batcher, values: Sequence[Value], flags: Sequence[bool]) -> list[Value]:
    """Return the replacements of the values, batched where the flags say so."""
    pairs = zip(values, flags, strict=True)
    return [batcher.get_batched(value) if flag else batcher.get(value) for value, flag in pairs]


def _batch_while(outer: Batcher, op: Op) -> Sequence[Value]:
    condition, body = op.blocks
    carried = [outer.is_batched(value) for value in op.operands]
    while True:
        test, step = outer.inner(has_mask=True), outer.inner(has_mask=True)
        tested = _make_params(test, condition, carried)
        test.run(condition.ops)
        stepped = _make_params(step, body, carried)
        step.run(body.ops)
        differs = test.is_batched(condition.returns[0])
        grown = _batched_carries(step, carried, body.returns)
        if differs:
            # The elements end in different iterations, so every value that changes between
            # iterations is batched.
            pairs = zip(grown, body.returns, body.params, strict=True)
            grown = [flag or after is not before for flag, after, before in pairs]
        if grown == carried:
            break
        carried = grown
    inits = _batch_where(outer, op.operands, carried)
    if differs:
        return _masked_while(outer, op, inits, carried)
    blocks = (
        test.b.block(tested, [test.get(condition.returns[0])]),
        step.b.block(stepped, _batch_where(step, body.returns, carried)),
    )
    return as_values(outer.b.emit(while_, *inits, blocks=blocks))


def _make_params(batcher: Batcher, block: Block, flags: Sequence[bool]) -> list[Value]:
    return [batcher.param(value, flag) for value, flag in zip(block.params, flags, strict=True)]


def _masked_while(
    outer: Batcher, op: Op, inits: Sequence[Value], carried: Sequence[bool]
) -> Sequence[Value]:
    """Return the results of a loop that also carries which elements continue."""
    condition, body = op.blocks
    flags = TensorType((outer.size,), "bool")

    test = outer.inner(has_mask=True)
    going = test.b.param(flags, f"{condition.returns[0].name}.per_batch")
    rest = [test.b.param(value.type, value.name) for value in inits]
    test.b.why = "as long as any goes on"
    any_going = test.b.any(going, dims=(0,))
    tested = test.b.block([going, *rest], [any_going])

    step = outer.inner(has_mask=True)
    going = step.b.param(flags, f"{condition.returns[0].name}.per_batch")
    params = _make_params(step, body, carried)
    step.run(body.ops)
    step.b.why = "those that are done keep what they have"
    news = _batch_where(step, body.returns, carried)
    selected = [
        step.b.select(broadcast_batch_scalars(step.b, going, new.type), new, old)
        if new is not old
        else old
        for new, old in zip(news, params, strict=True)
    ]
    further = _condition(step, condition, selected)
    stepped = step.b.block([going, *params], [further, *selected])

    first = _condition(outer, condition, inits)
    results = as_values(outer.b.emit(while_, first, *inits, blocks=(tested, stepped)))
    return results[1:]


def _condition(batcher: Batcher, condition: Block, carried: Sequence[Value]) -> Value:
    """Return for which elements the condition holds."""
    batcher.replacement.update(zip(condition.params, carried, strict=True))
    batcher.run(condition.ops)
    return batcher.get_batched(condition.returns[0])


def _batch_case(outer: Batcher, op: Op) -> Sequence[Value]:
    (index,) = op.operands
    if outer.is_batched(index):
        return _select_branches(outer, op)
    inners = []
    for branch in op.blocks:
        inner = outer.inner(has_mask=True)
        inner.run(branch.ops)
        inners.append((inner, branch))
    flags = [
        any(inner.is_batched(branch.returns[i]) for inner, branch in inners)
        for i in range(len(op.results))
    ]
    blocks = tuple(
        inner.b.block([], _batch_where(inner, branch.returns, flags)) for inner, branch in inners
    )
    return as_values(outer.b.emit(case, outer.get(index), blocks=blocks))


def _select_branches(outer: Batcher, op: Op) -> Sequence[Value]:
    """Compute all branches and select the result of each element."""
    b, index = outer.b, outer.get(op.operands[0])
    b.why = "each has its own branch"
    picks = [b.eq(index, b.full(n, index.type)) for n in range(len(op.blocks) - 1)]
    masks = [*picks, b.not_(reduce(b.or_, picks))] if picks else [None]
    offered = [
        _batch_branch(outer, branch, mask) for branch, mask in zip(op.blocks, masks, strict=True)
    ]
    results = []
    for column in zip(*offered, strict=True):
        chosen = column[-1]
        for pick, other in zip(picks, column[:-1], strict=True):
            chosen = b.select(broadcast_batch_scalars(b, pick, other.type), other, chosen)
        results.append(chosen)
    b.why = op.why
    return results


def _batch_branch(outer: Batcher, branch: Block, mask: Value | None) -> list[Value]:
    """Return the results of a branch for all elements; the derivatives of its values are zero for
    elements outside of `mask`, except where a collective needs them."""
    if mask is None:
        outer.run(branch.ops)
        return [outer.get_batched(value) for value in branch.returns]
    needed = _find_communicated_ops(branch)
    outer.run([op for op in branch.ops if id(op) in needed])
    b, why = outer.b, outer.b.why
    b.why = "no derivative for those with another branch"
    inner = outer.with_mask(mask)
    shared = [value for op in branch.ops if id(op) in needed for value in op.results]
    shared = [value for value in (*branch.captures(), *shared) if outer.is_batched(value)]
    old = [outer.get(value) for value in shared]
    for value, x in zip(shared, old, strict=True):
        outer.replacement[value] = mask_derivative(b, mask, x)
    inner.run([op for op in branch.ops if id(op) not in needed])
    returns = [inner.get_batched(value) for value in branch.returns]
    outer.replacement.update(zip(shared, old, strict=True))
    b.why = why
    return returns


def _find_communicated_ops(branch: Block) -> set[int]:
    """Return the identities of the collectives of a branch, and of the operations that compute
    their operands."""
    needed: set[int] = set()
    values: set[Value] = set()
    for op in reversed(branch.ops):
        if communicates(op) or not values.isdisjoint(op.results):
            needed.add(id(op))
            values.update(op.operands)
            values.update(value for block in op.blocks for value in block.captures())
    return needed


HANDLERS: dict[str, Handler] = {"while": _batch_while, "scan": _batch_scan, "case": _batch_case}
