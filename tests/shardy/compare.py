"""Whether we and Shardy decide alike, and the smallest program on which we do not."""

from collections.abc import Iterator
from dataclasses import replace

from shardir.ir import Block, Function, Module, Op, Value
from shardir.passes import Propagate
from shardir.placement import Sharding
from tests.shardy import oracle
from tests.shardy.oracle import Decisions, numbered, ours, shardy
from tests.shardy.programs import without_dead


def disagreements(module: Module, level: str) -> list[str]:
    """What we decide otherwise than Shardy, before dimensions are closed; empty if nothing.

    Open and closed dimensions, priorities that are left and explicit replication count too.
    """
    module = numbered(module)
    want = shardy(module, level, close=False)
    got = ours(Propagate(level=level, keep_open=True)(module))
    return list(_differences(got, want))


def closed_disagreements(module: Module) -> list[str]:
    """The same for what is written down in the end."""
    module = numbered(module)
    want = oracle.whole_is_nothing(shardy(module, "user-priority", close=True))
    got = oracle.whole_is_nothing(ours(Propagate()(module)))
    return list(_differences(got, want))


def _differences(got: Decisions, want: Decisions) -> Iterator[str]:
    if got.params != want.params:
        yield f"parameters: {got.params}, Shardy has {want.params}"
    if got.results != want.results:
        yield f"results: {got.results}, Shardy has {want.results}"
    for number in sorted(got.ops.keys() | want.ops.keys()):
        mine, theirs = got.ops.get(number), want.ops.get(number)
        if mine != theirs:
            yield f"operation {number}: {mine}, Shardy has {theirs}"


def smallest(module: Module, level: str) -> Module:
    """A part of a program on which we disagree, on which we still do."""
    while True:
        for smaller in _smaller(module):
            if _disagree(smaller, level):
                module = smaller
                break
        else:
            return module


def _disagree(module: Module, level: str) -> bool:
    try:
        return bool(disagreements(module, level))
    except Exception:
        return False


def _smaller(module: Module) -> Iterator[Module]:
    """Programs with one result, one operation or one sharding less."""
    function = module.main
    body = function.body
    for i in range(len(body.returns)):
        if len(body.returns) > 1:
            returns = body.returns[:i] + body.returns[i + 1 :]
            results = function.results[:i] + function.results[i + 1 :]
            yield _tidy(module, replace(body, returns=returns), results)
    for i, op in enumerate(body.ops):
        ops = body.ops[:i] + body.ops[i + 1 :]
        params = body.params + op.results
        yield _tidy(module, Block(params, ops, body.returns), function.results)
    for i, sharding in enumerate(function.results):
        if sharding is not None:
            results = (*function.results[:i], None, *function.results[i + 1 :])
            yield _tidy(module, body, results)
    for value in body.values():
        if value.sharding is not None:
            yield _tidy(module, _plain(body, value), function.results)


def _plain(body: Block, value: Value) -> Block:
    """The body without the sharding of one value."""
    plain = replace(value, sharding=None)

    def swap(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(plain if v is value else v for v in values)

    def block(old: Block) -> Block:
        return Block(swap(old.params), tuple(map(op, old.ops)), swap(old.returns))

    def op(old: Op) -> Op:
        blocks = tuple(map(block, old.blocks))
        return replace(old, operands=swap(old.operands), results=swap(old.results), blocks=blocks)

    return block(body)


def _tidy(module: Module, body: Block, results: tuple[Sharding | None, ...]) -> Module:
    """Without dead operations and unused parameters."""
    body = without_dead(body)
    used = {v for op in body.ops for v in op.uses()} | set(body.returns)
    params = tuple(p for p in body.params if p in used)
    function = Function("main", replace(body, params=params), results)
    return replace(module, functions=(function,))
