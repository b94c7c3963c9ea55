"""Reduction of a failing program to a smaller one with the same failure."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from shardir import ops as specs
from shardir.ir.builder import substitute
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.sharding import Sharding


def smallest_failure(module: Module, fails: Callable[[Module], bool]) -> Module:
    """Return a part of a failing program that fails, no reduction of which fails."""
    while True:
        found = next(filter(fails, _reduced_programs(module)), None)
        if found is None:
            return module
        module = found


def _reduced_programs(module: Module) -> Iterator[Module]:
    """Yield the program without one result, one operation or one sharding.

    An operand may replace a result. In called functions, whose types stay, another value of the
    same type may replace the result of an operation.
    """
    function = module.main
    body = function.body
    for i in range(len(body.returns)):
        if len(body.returns) > 1:
            returns = body.returns[:i] + body.returns[i + 1 :]
            results = function.result_shardings[:i] + function.result_shardings[i + 1 :]
            yield _without_unused(module, replace(body, returns=returns), results)
    makers = {value: op for op in body.ops for value in op.results}
    for i, value in enumerate(body.returns):
        for before in makers[value].operands if value in makers else ():
            returns = (*body.returns[:i], before, *body.returns[i + 1 :])
            results = (*function.result_shardings[:i], None, *function.result_shardings[i + 1 :])
            yield _without_unused(module, replace(body, returns=returns), results)
    for i, op in enumerate(body.ops):
        ops = body.ops[:i] + body.ops[i + 1 :]
        params = body.params + op.results
        yield _without_unused(module, Block(params, ops, body.returns), function.result_shardings)
    for i, sharding in enumerate(function.result_shardings):
        if sharding is not None:
            results = (*function.result_shardings[:i], None, *function.result_shardings[i + 1 :])
            yield _without_unused(module, body, results)
    moved = {op.result for op in body.ops if op.spec in (specs.reshard, specs.sharding_constraint)}
    for value in body.values():
        if value.sharding is not None and value not in moved:
            yield _without_unused(module, _without_sharding(body, value), function.result_shardings)
    for callee in module.functions:
        if callee is not function:
            for simpler in _reduced_functions(callee):
                functions = tuple(simpler if f is callee else f for f in module.functions)
                yield replace(module, functions=functions)


def _reduced_functions(function: Function) -> Iterator[Function]:
    """Yield reductions of a called function with the same type."""
    body = function.body
    known = list(body.params)
    for op in body.ops:
        fitting = [[v for v in known if v.type == result.type] for result in op.results]
        if all(fitting):
            taken = {r: values[0] for r, values in zip(op.results, fitting, strict=True)}
            ops = tuple(each for each in body.ops if each is not op)
            short = substitute(Block(body.params, ops, body.returns), taken)
            yield replace(function, body=remove_dead_operations(short))
        known += op.results
    for i, sharding in enumerate(function.result_shardings):
        if sharding is not None:
            results = (*function.result_shardings[:i], None, *function.result_shardings[i + 1 :])
            yield replace(function, result_shardings=results)
    moved = {op.result for op in body.ops if op.spec in (specs.reshard, specs.sharding_constraint)}
    for value in body.values():
        if value.sharding is not None and value not in moved:
            yield replace(function, body=_without_sharding(body, value))


def _without_sharding(body: Block, value: Value) -> Block:
    """Return the body without the sharding of one value."""
    plain = replace(value, sharding=None)

    def swap(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(plain if v is value else v for v in values)

    def block(old: Block) -> Block:
        return Block(swap(old.params), tuple(map(op, old.ops)), swap(old.returns))

    def op(old: Op) -> Op:
        blocks = tuple(map(block, old.blocks))
        return replace(old, operands=swap(old.operands), results=swap(old.results), blocks=blocks)

    return block(body)


def _without_unused(module: Module, body: Block, results: tuple[Sharding | None, ...]) -> Module:
    """Return the module without dead operations, unused parameters and uncalled functions."""
    body = remove_dead_operations(body)
    used = {v for op in body.ops for v in op.uses()} | set(body.returns)
    params = tuple(p for p in body.params if p in used)
    function = Function("main", replace(body, params=params), results)
    called, waiting = {"main"}, [function]
    while waiting:
        found = {name for op in waiting.pop().body.walk() for name in _callees(op)} - called
        called |= found
        waiting += (f for f in module.functions if f.name in found)
    functions = (function, *(f for f in module.functions if f is not module.main))
    return replace(module, functions=tuple(f for f in functions if f.name in called))


def _callees(op: Op) -> list[str]:
    """Return the functions that an opaque operation calls."""
    head = op.attrs.get("head", "")
    return re.findall(r"func\.call @([\w.]+)", head) if isinstance(head, str) else []


def remove_dead_operations(block: Block, needed: Iterable[Value] = ()) -> Block:
    """Return the block without operations whose results nothing uses.

    Sharding constraints stay, and so do sharding groups of parameters and of used values.
    """
    live = {*needed, *block.returns, *block.params}
    kept: list[Op] = []
    for op in reversed(block.ops):
        if op.spec is specs.sharding_group:
            if op.operands[0] in live:
                kept.append(op)
            continue
        if op.spec is not specs.sharding_constraint and not live.intersection(op.results):
            continue
        blocks = tuple(remove_dead_operations(inner, live) for inner in op.blocks)
        op = replace(op, blocks=blocks)
        kept.append(op)
        live.update(op.uses())
    return Block(block.params, tuple(reversed(kept)), block.returns)
