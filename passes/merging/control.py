"""Control flow of all devices in one program.

The body of a loop is processed repeatedly until the sub-axes along which carried values differ are
a fixed point. Loops and branches with uniform decisions stay as they are. A `while` with a
divergent condition runs as long as the condition holds on any device, and finished devices keep
their values; a case with a divergent index becomes all its branches and a selection between their
results.
"""

from collections.abc import Sequence

from shardir.build import inline
from shardir.ir import Block, Op, Value
from shardir.ops.control import case, scan, while_
from shardir.passes.merging.host import check_no_callback
from shardir.passes.merging.merger import Merger, Rule, Spread
from shardir.placement import Axes
from shardir.types import TensorType


def _results(made: Value | tuple[Value, ...]) -> tuple[Value, ...]:
    return made if isinstance(made, tuple) else (made,)


def _along(merger: Merger, values: Sequence[Value]) -> list[Axes]:
    return [merger.along.get(value, ()) for value in values]


def _grown(merger: Merger, carried: Sequence[Axes], values: Sequence[Value]) -> list[Axes]:
    """Return the sub-axes of carried values after one more iteration."""
    pairs = zip(carried, _along(merger, values), strict=True)
    return [merger.atoms.union(before, after) for before, after in pairs]


def _fitted(merger: Merger, values: Sequence[Value], wanted: Sequence[Axes]) -> list[Value]:
    """Return the replacements of the values with the wanted sub-axes."""
    return [merger.whole(value, atoms) for value, atoms in zip(values, wanted, strict=True)]


def _params(merger: Merger, block: Block, wanted: Sequence[Axes]) -> list[Value]:
    pairs = zip(block.params, wanted, strict=True)
    return [merger.param(value, atoms) for value, atoms in pairs]


def _scan(merger: Merger, op: Op) -> Sequence[Spread]:
    (body,) = op.blocks
    n = op.attrs["carries"]
    carried, sliced = _along(merger, op.operands[:n]), _along(merger, op.operands[n:])
    while True:
        inner = merger.inner()
        params = _params(inner, body, [*carried, *sliced])
        inner.run(body.ops)
        grown = _grown(inner, carried, body.returns[:n])
        if grown == carried:
            break
        carried = grown
    made = _along(inner, body.returns[n:])
    returns = _fitted(inner, body.returns, [*carried, *made])
    inits = _fitted(merger, op.operands[:n], carried)
    stacks = [_first(merger, *merger.get(value)) for value in op.operands[n:]]
    block = inner.b.block(params, returns)
    results = _results(merger.b.emit(scan, *inits, *stacks, blocks=(block,), **op.attrs))
    stacked = [_behind(merger, y, atoms) for y, atoms in zip(results[n:], made, strict=True)]
    return [*map(Spread, results[:n], carried), *stacked]


def _first(merger: Merger, x: Value, atoms: Axes) -> Value:
    """Return a stacked operand with the sliced dimension in front of those of its sub-axes."""
    count = len(atoms)
    if not count:
        return x
    perm = (count, *range(count), *range(count + 1, x.type.rank))
    made: Value = merger.b.transpose(x, perm=perm)
    return made


def _behind(merger: Merger, y: Value, atoms: Axes) -> Spread:
    """Return the inverse of `_first`."""
    count = len(atoms)
    if not count:
        return Spread(y, atoms)
    perm = (*range(1, count + 1), 0, *range(count + 1, y.type.rank))
    return Spread(merger.b.transpose(y, perm=perm), atoms)


def _while(merger: Merger, op: Op) -> Sequence[Spread]:
    condition, body = op.blocks
    carried = _along(merger, op.operands)
    while True:
        test, step = merger.inner(), merger.inner()
        tested = _params(test, condition, carried)
        test.run(condition.ops)
        stepped = _params(step, body, carried)
        differs = test.along.get(condition.returns[0], ())
        step.run(body.ops)
        grown = _grown(step, carried, body.returns)
        if differs:
            # The devices end in different iterations, so every value that changes between
            # iterations differs.
            changed = zip(grown, body.returns, body.params, strict=True)
            grown = [
                atoms if after is before else merger.atoms.union(atoms, differs)
                for atoms, after, before in changed
            ]
        if grown == carried:
            break
        carried = grown
    inits = _fitted(merger, op.operands, carried)
    if differs:
        made = _masked(merger, op, inits, carried, differs)
    else:
        blocks = (
            test.b.block(tested, [test.get(condition.returns[0]).value]),
            step.b.block(stepped, _fitted(step, body.returns, carried)),
        )
        made = _results(merger.b.emit(while_, *inits, blocks=blocks))
    return list(map(Spread, made, carried))


def _masked(
    merger: Merger, op: Op, inits: Sequence[Value], carried: Sequence[Axes], differs: Axes
) -> Sequence[Value]:
    """Return the results of a loop that also carries which devices continue."""
    check_no_callback(op.blocks)
    condition, body = op.blocks
    flags = merger.type(TensorType((), "bool"), differs)
    name = f"{condition.returns[0].name}.each"

    test = merger.inner()
    going = test.b.param(flags, name)
    rest = [test.b.param(value.type, value.name) for value in inits]
    test.b.why = "as long as any device goes on"
    any_going = test.b.any(going, dims=tuple(range(flags.rank)))
    tested = test.b.block([going, *rest], [any_going])

    step = merger.inner()
    going = step.b.param(flags, name)
    params = _params(step, body, carried)
    step.run(body.ops)
    step.b.why = "devices that are done keep what they have"
    kept = []
    pairs = zip(_fitted(step, body.returns, carried), params, carried, strict=True)
    for new, old, atoms in pairs:
        kept.append(new if new is old else _chosen(step, Spread(going, differs), new, old, atoms))
    further = _held(step, _copy(merger, condition), kept, carried, differs)
    stepped = step.b.block([going, *params], [further, *kept])

    first = _held(merger, condition, inits, carried, differs)
    return _results(merger.b.emit(while_, first, *inits, blocks=(tested, stepped)))[1:]


def _copy(merger: Merger, block: Block) -> Block:
    """Return a copy of a block that defines new values."""
    b = merger.b.inner()
    params = [b.param(param.type, param.name) for param in block.params]
    returns = inline(b, block, params)
    return b.block(params, returns)


def _chosen(merger: Merger, flag: Spread, yes: Value, no: Value, atoms: Axes) -> Value:
    """Return one of two values, which have `atoms`, by each device's flag."""
    b = merger.b
    if not flag.atoms:
        made: Value = b.select(b.broadcast(flag.value, dims=(), result=_flags(yes)), yes, no)
        return made
    dims = tuple(map(atoms.index, flag.atoms))
    flags = flag.value
    if flags.type.shape != yes.type.shape:
        flags = b.broadcast(flags, dims=dims, result=_flags(yes))
    made = b.select(flags, yes, no)
    return made


def _flags(value: Value) -> TensorType:
    return value.type.with_dtype("bool")


def _held(
    merger: Merger,
    condition: Block,
    values: Sequence[Value],
    carried: Sequence[Axes],
    differs: Axes,
) -> Value:
    """Return on which devices the condition holds."""
    for param, value, atoms in zip(condition.params, values, carried, strict=True):
        merger.stand(param, Spread(value, atoms))
    merger.run(condition.ops)
    return merger.whole(condition.returns[0], differs)


def _case(merger: Merger, op: Op) -> Sequence[Spread]:
    index = merger.get(op.operands[0])
    if index.atoms:
        return _each_its_own(merger, op, index)
    inners: list[Merger] = []
    for branch in op.blocks:
        inners.append(merger.inner())
        inners[-1].run(branch.ops)
    wanted = [
        merger.union([branch.returns[i] for branch in op.blocks]) for i in range(len(op.results))
    ]
    blocks = tuple(
        inner.b.block([], _fitted(inner, branch.returns, wanted))
        for inner, branch in zip(inners, op.blocks, strict=True)
    )
    made = _results(merger.b.emit(case, index.value, blocks=blocks))
    return list(map(Spread, made, wanted))


def _each_its_own(merger: Merger, op: Op, index: Spread) -> Sequence[Spread]:
    """Append all branches, and select the result of each device."""
    check_no_callback(op.blocks)
    b = merger.b
    for branch in op.blocks:
        merger.run(branch.ops)
    b.loc, b.why = op.loc, "each device has its own branch"
    picks = [b.eq(index.value, b.full(n, index.value.type)) for n in range(len(op.blocks) - 1)]
    made = []
    for column in zip(*(branch.returns for branch in op.blocks), strict=True):
        atoms = merger.atoms.union(index.atoms, merger.union(column))
        *others, chosen = [merger.whole(value, atoms) for value in column]
        for pick, other in zip(picks, others, strict=True):
            chosen = _chosen(merger, Spread(pick, index.atoms), other, chosen, atoms)
        made.append(Spread(chosen, atoms))
    b.why = op.why
    return made


RULES: dict[str, Rule] = {"while": _while, "scan": _scan, "case": _case}
