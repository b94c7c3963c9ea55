"""Control flow of all devices in one program.

The body of a loop is processed repeatedly until the sub-axes along which carried values differ are
a fixed point. Loops and branches with uniform decisions stay as they are. A `while` with a
divergent condition runs as long as the condition holds on any device, and finished devices keep
their values; a case with a divergent index becomes all its branches and a selection between their
results.
"""

from collections.abc import Sequence

from shardir.ir.builder import inline
from shardir.ir.module import Block, Op, Value
from shardir.ir.sharding import Axes
from shardir.ir.types import TensorType
from shardir.ops.control_flow.control_flow import case, scan, while_
from shardir.passes.whole_program.callbacks import check_no_callback
from shardir.passes.whole_program.merger import BatchedValue, DeviceMerger, MergeRule


def _as_tuple(results: Value | tuple[Value, ...]) -> tuple[Value, ...]:
    return results if isinstance(results, tuple) else (results,)


def _differing_axes(merger: DeviceMerger, values: Sequence[Value]) -> list[Axes]:
    return [merger.sub_axes_of.get(value, ()) for value in values]


def _carried_axes(
    merger: DeviceMerger, carried: Sequence[Axes], values: Sequence[Value]
) -> list[Axes]:
    """Return the sub-axes of carried values after one more iteration."""
    pairs = zip(carried, _differing_axes(merger, values), strict=True)
    return [merger.sub_axes.union(before, after) for before, after in pairs]


def _with_sub_axes(
    merger: DeviceMerger, values: Sequence[Value], value_axes: Sequence[Axes]
) -> list[Value]:
    """Return the replacements of the values with the given sub-axes."""
    return [
        merger.broadcast_to(value, sub_axes)
        for value, sub_axes in zip(values, value_axes, strict=True)
    ]


def _make_params(merger: DeviceMerger, block: Block, value_axes: Sequence[Axes]) -> list[Value]:
    pairs = zip(block.params, value_axes, strict=True)
    return [merger.param(value, sub_axes) for value, sub_axes in pairs]


def _merge_scan(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    (body,) = op.blocks
    n = op.attrs["carries"]
    carried, sliced = (
        _differing_axes(merger, op.operands[:n]),
        _differing_axes(merger, op.operands[n:]),
    )
    while True:
        inner = merger.inner()
        params = _make_params(inner, body, [*carried, *sliced])
        inner.run(body.ops)
        grown = _carried_axes(inner, carried, body.returns[:n])
        if grown == carried:
            break
        carried = grown
    stacked_sub_axes = _differing_axes(inner, body.returns[n:])
    returns = _with_sub_axes(inner, body.returns, [*carried, *stacked_sub_axes])
    inits = _with_sub_axes(merger, op.operands[:n], carried)
    stacks = [_move_slices_first(merger, *merger.get(value)) for value in op.operands[n:]]
    block = inner.b.block(params, returns)
    results = _as_tuple(merger.b.emit(scan, *inits, *stacks, blocks=(block,), **op.attrs))
    stacked = [
        _move_slices_behind(merger, y, sub_axes)
        for y, sub_axes in zip(results[n:], stacked_sub_axes, strict=True)
    ]
    return [*map(BatchedValue, results[:n], carried), *stacked]


def _move_slices_first(merger: DeviceMerger, x: Value, sub_axes: Axes) -> Value:
    """Return a stacked operand with the sliced dimension in front of those of its sub-axes."""
    count = len(sub_axes)
    if not count:
        return x
    perm = (count, *range(count), *range(count + 1, x.type.rank))
    result: Value = merger.b.transpose(x, perm=perm)
    return result


def _move_slices_behind(merger: DeviceMerger, y: Value, sub_axes: Axes) -> BatchedValue:
    """Return the inverse of `_move_slices_first`."""
    count = len(sub_axes)
    if not count:
        return BatchedValue(y, sub_axes)
    perm = (*range(1, count + 1), 0, *range(count + 1, y.type.rank))
    return BatchedValue(merger.b.transpose(y, perm=perm), sub_axes)


def _merge_while(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    condition, body = op.blocks
    carried = _differing_axes(merger, op.operands)
    while True:
        test, step = merger.inner(), merger.inner()
        tested = _make_params(test, condition, carried)
        test.run(condition.ops)
        stepped = _make_params(step, body, carried)
        differs = test.sub_axes_of.get(condition.returns[0], ())
        step.run(body.ops)
        grown = _carried_axes(step, carried, body.returns)
        if differs:
            # The devices end in different iterations, so every value that changes between
            # iterations differs.
            changed = zip(grown, body.returns, body.params, strict=True)
            grown = [
                sub_axes if after is before else merger.sub_axes.union(sub_axes, differs)
                for sub_axes, after, before in changed
            ]
        if grown == carried:
            break
        carried = grown
    inits = _with_sub_axes(merger, op.operands, carried)
    if differs:
        results = _masked_while(merger, op, inits, carried, differs)
    else:
        blocks = (
            test.b.block(tested, [test.get(condition.returns[0]).value]),
            step.b.block(stepped, _with_sub_axes(step, body.returns, carried)),
        )
        results = _as_tuple(merger.b.emit(while_, *inits, blocks=blocks))
    return list(map(BatchedValue, results, carried))


def _masked_while(
    merger: DeviceMerger, op: Op, inits: Sequence[Value], carried: Sequence[Axes], differs: Axes
) -> Sequence[Value]:
    """Return the results of a loop that also carries which devices continue."""
    check_no_callback(op.blocks)
    condition, body = op.blocks
    flags = merger.type(TensorType((), "bool"), differs)
    name = f"{condition.returns[0].name}.per_device"

    test = merger.inner()
    going = test.b.param(flags, name)
    rest = [test.b.param(value.type, value.name) for value in inits]
    test.b.why = "as long as any device goes on"
    any_going = test.b.any(going, dims=tuple(range(flags.rank)))
    tested = test.b.block([going, *rest], [any_going])

    step = merger.inner()
    going = step.b.param(flags, name)
    params = _make_params(step, body, carried)
    step.run(body.ops)
    step.b.why = "devices that are done keep what they have"
    selected = []
    pairs = zip(_with_sub_axes(step, body.returns, carried), params, carried, strict=True)
    for new, old, sub_axes in pairs:
        selected.append(
            new
            if new is old
            else _select_by_flag(step, BatchedValue(going, differs), new, old, sub_axes)
        )
    further = _evaluate_condition(step, _copy_block(merger, condition), selected, carried, differs)
    stepped = step.b.block([going, *params], [further, *selected])

    first = _evaluate_condition(merger, condition, inits, carried, differs)
    return _as_tuple(merger.b.emit(while_, first, *inits, blocks=(tested, stepped)))[1:]


def _copy_block(merger: DeviceMerger, block: Block) -> Block:
    """Return a copy of a block that defines new values."""
    b = merger.b.inner()
    params = [b.param(param.type, param.name) for param in block.params]
    returns = inline(b, block, params)
    return b.block(params, returns)


def _select_by_flag(
    merger: DeviceMerger, flag: BatchedValue, yes: Value, no: Value, sub_axes: Axes
) -> Value:
    """Return one of two values, which have `sub_axes`, by each device's flag."""
    b = merger.b
    dims = tuple(map(sub_axes.index, flag.sub_axes))
    flags = flag.value
    if flags.type.shape != yes.type.shape:
        flags = b.broadcast(flags, dims=dims, result=_flag_type(yes))
    result: Value = b.select(flags, yes, no)
    return result


def _flag_type(value: Value) -> TensorType:
    return value.type.with_dtype("bool")


def _evaluate_condition(
    merger: DeviceMerger,
    condition: Block,
    values: Sequence[Value],
    carried: Sequence[Axes],
    differs: Axes,
) -> Value:
    """Return on which devices the condition holds."""
    for param, value, sub_axes in zip(condition.params, values, carried, strict=True):
        merger.bind(param, BatchedValue(value, sub_axes))
    merger.run(condition.ops)
    return merger.broadcast_to(condition.returns[0], differs)


def _merge_case(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    index = merger.get(op.operands[0])
    if index.sub_axes:
        return _select_branches(merger, op, index)
    inners: list[DeviceMerger] = []
    for branch in op.blocks:
        inners.append(merger.inner())
        inners[-1].run(branch.ops)
    value_axes = [
        merger.union([branch.returns[i] for branch in op.blocks]) for i in range(len(op.results))
    ]
    blocks = tuple(
        inner.b.block([], _with_sub_axes(inner, branch.returns, value_axes))
        for inner, branch in zip(inners, op.blocks, strict=True)
    )
    results = _as_tuple(merger.b.emit(case, index.value, blocks=blocks))
    return list(map(BatchedValue, results, value_axes))


def _select_branches(merger: DeviceMerger, op: Op, index: BatchedValue) -> Sequence[BatchedValue]:
    """Append all branches, and select the result of each device."""
    check_no_callback(op.blocks)
    b = merger.b
    for branch in op.blocks:
        merger.run(branch.ops)
    b.loc, b.why = op.loc, "each device has its own branch"
    picks = [b.eq(index.value, b.full(n, index.value.type)) for n in range(len(op.blocks) - 1)]
    result = []
    for column in zip(*(branch.returns for branch in op.blocks), strict=True):
        sub_axes = merger.sub_axes.union(index.sub_axes, merger.union(column))
        *others, chosen = [merger.broadcast_to(value, sub_axes) for value in column]
        for pick, other in zip(picks, others, strict=True):
            chosen = _select_by_flag(
                merger, BatchedValue(pick, index.sub_axes), other, chosen, sub_axes
            )
        result.append(BatchedValue(chosen, sub_axes))
    b.why = op.why
    return result


def _inline_call(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    """Append the operations of the called function."""
    (body,) = op.blocks
    for param, operand in zip(body.params, op.operands, strict=True):
        merger.bind(param, merger.get(operand))
    merger.run(body.ops)
    return list(map(merger.get, body.returns))


CONTROL_FLOW_RULES: dict[str, MergeRule] = {
    "while": _merge_while,
    "scan": _merge_scan,
    "case": _merge_case,
    "call": _inline_call,
}
