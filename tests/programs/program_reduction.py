"""Reduction of a failing program to a smaller one with the same failure."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from shardir.ir.builder import substitute
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.sharding import Sharding
from tests.shardy.random_programs.regions import without_dead


def smallest(module: Module, fails: Callable[[Module], bool]) -> Module:
    """Return a part of a failing program that still fails, and of which no smaller part fails."""
    while True:
        found = next(filter(fails, smaller(module)), None)
        if found is None:
            return module
        module = found


def smaller(module: Module) -> Iterator[Module]:
    """Yield programs with one result, one operation or one sharding less.

    A result may be replaced by an operand of its operation. In called functions, which keep their
    types, the result of an operation may be replaced by another value of the same type.
    """
    function = module.main
    body = function.body
    for i in range(len(body.returns)):
        if len(body.returns) > 1:
            returns = body.returns[:i] + body.returns[i + 1 :]
            results = function.result_shardings[:i] + function.result_shardings[i + 1 :]
            yield _tidy(module, replace(body, returns=returns), results)
    makers = {value: op for op in body.ops for value in op.results}
    for i, value in enumerate(body.returns):
        for before in makers[value].operands if value in makers else ():
            returns = (*body.returns[:i], before, *body.returns[i + 1 :])
            results = (*function.result_shardings[:i], None, *function.result_shardings[i + 1 :])
            yield _tidy(module, replace(body, returns=returns), results)
    for i, op in enumerate(body.ops):
        ops = body.ops[:i] + body.ops[i + 1 :]
        params = body.params + op.results
        yield _tidy(module, Block(params, ops, body.returns), function.result_shardings)
    for i, sharding in enumerate(function.result_shardings):
        if sharding is not None:
            results = (*function.result_shardings[:i], None, *function.result_shardings[i + 1 :])
            yield _tidy(module, body, results)
    moved = {op.result for op in body.ops if op.name in ("reshard", "sharding_constraint")}
    for value in body.values():
        if value.sharding is not None and value not in moved:
            yield _tidy(module, _plain(body, value), function.result_shardings)
    for callee in module.functions:
        if callee is not function:
            for simpler in _simpler(callee):
                functions = tuple(simpler if f is callee else f for f in module.functions)
                yield replace(module, functions=functions)


def _simpler(function: Function) -> Iterator[Function]:
    """Yield simpler forms of a called function, with the same type."""
    body = function.body
    known = list(body.params)
    for op in body.ops:
        fitting = [[v for v in known if v.type == result.type] for result in op.results]
        if all(fitting):
            taken = {r: values[0] for r, values in zip(op.results, fitting, strict=True)}
            ops = tuple(each for each in body.ops if each is not op)
            short = substitute(Block(body.params, ops, body.returns), taken)
            yield replace(function, body=without_dead(short))
        known += op.results
    for i, sharding in enumerate(function.result_shardings):
        if sharding is not None:
            results = (*function.result_shardings[:i], None, *function.result_shardings[i + 1 :])
            yield replace(function, result_shardings=results)
    moved = {op.result for op in body.ops if op.name in ("reshard", "sharding_constraint")}
    for value in body.values():
        if value.sharding is not None and value not in moved:
            yield replace(function, body=_plain(body, value))


def _plain(body: Block, value: Value) -> Block:
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


def _tidy(module: Module, body: Block, results: tuple[Sharding | None, ...]) -> Module:
    """Remove dead operations, unused parameters, and functions that are not called."""
    body = without_dead(body)
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
    """Return the functions that an operation calls; the operation is opaque text."""
    head = op.attrs.get("head", "")
    return re.findall(r"func\.call @([\w.]+)", head) if isinstance(head, str) else []
