"""Programs that are smaller than another one: to show a fault without what has no part in it."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from shardir.ir import Block, Function, Module, Op, Value
from shardir.placement import Sharding
from tests.shardy.regions import without_dead


def smallest(module: Module, fails: Callable[[Module], bool]) -> Module:
    """A part of a program that fails which still does, and of which no smaller part does."""
    while True:
        found = next(filter(fails, smaller(module)), None)
        if found is None:
            return module
        module = found


def smaller(module: Module) -> Iterator[Module]:
    """Programs with one result, one operation or one sharding less.

    A result may give way to what it is made of.
    """
    function = module.main
    body = function.body
    for i in range(len(body.returns)):
        if len(body.returns) > 1:
            returns = body.returns[:i] + body.returns[i + 1 :]
            results = function.results[:i] + function.results[i + 1 :]
            yield _tidy(module, replace(body, returns=returns), results)
    makers = {value: op for op in body.ops for value in op.results}
    for i, value in enumerate(body.returns):
        for before in makers[value].operands if value in makers else ():
            returns = (*body.returns[:i], before, *body.returns[i + 1 :])
            results = (*function.results[:i], None, *function.results[i + 1 :])
            yield _tidy(module, replace(body, returns=returns), results)
    for i, op in enumerate(body.ops):
        ops = body.ops[:i] + body.ops[i + 1 :]
        params = body.params + op.results
        yield _tidy(module, Block(params, ops, body.returns), function.results)
    for i, sharding in enumerate(function.results):
        if sharding is not None:
            results = (*function.results[:i], None, *function.results[i + 1 :])
            yield _tidy(module, body, results)
    moved = {op.result for op in body.ops if op.name in ("reshard", "sharding_constraint")}
    for value in body.values():
        if value.sharding is not None and value not in moved:
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
