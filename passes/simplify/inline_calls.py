"""Inline calls: replace each call by the operations of its function.

before: `%y = call(%x, callee="f") : f32[8@-] { (%a: f32[8@data]) => %b = sin(%a) : f32[8@data]
        yield %b }` with `%x: f32[8@-]`
after:  `%a = sharding_constraint(%x) : f32[8@data]`, `%b = sin(%a) : f32[8@data]`,
        `%y = sharding_constraint(%b) : f32[8@-]`

If a parameter has another sharding than its operand, or a result another one than the returned
value, a constraint is between them. Open and closed dimensions count as equal.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardir import ops
from shardir.ir.builder import substitute
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import rebuild_functions


class InlineCalls(Pass, name="inline-calls"):
    """Replace calls by the operations of their functions."""

    def __call__(self, module: Module) -> Module:
        return inline_calls(module)


def inline_calls(module: Module) -> Module:
    """Return the module without calls; the module itself if it has none."""
    return rebuild_functions(module, inline_calls_in_function)


def inline_calls_in_function(function: Function) -> Function:
    """Return the function without calls; the function itself if it has none."""
    if not any(op.spec is ops.call for op in function.body.walk()):
        return function
    new: dict[Value, Value] = {}
    body = _inline_in_block(function.body, new)
    return replace(function, body=substitute(body, _resolve_replacements(new)))


def _inline_in_block(block: Block, new: dict[Value, Value]) -> Block:
    inlined: list[Op] = []
    for op in block.ops:
        blocks = tuple(_inline_in_block(each, new) for each in op.blocks)
        if op.spec is ops.call:
            inlined += _inline_call(op, blocks[0], new)
        else:
            inlined.append(replace(op, blocks=blocks) if blocks else op)
    return replace(block, ops=tuple(inlined))


def _inline_call(op: Op, body: Block, new: dict[Value, Value]) -> Sequence[Op]:
    """Return the operations that replace a call, and add the values that they replace to `new`."""
    before: list[Op] = []
    for operand, param in zip(op.operands, body.params, strict=True):
        if _has_sharding_of(param, operand):
            new[param] = operand
        else:
            before.append(_constraint(operand, param, op))
    after: list[Op] = []
    for value, result in zip(body.returns, op.results, strict=True):
        if not _has_sharding_of(result, value):
            after.append(_constraint(value, result, op))
        elif value not in new:
            new[value] = replace(value, name=result.name)
            new[result] = new[value]
        else:
            new[result] = value
    return (*before, *body.ops, *after)


def _has_sharding_of(target: Value, source: Value) -> bool:
    """Return whether a value states no other sharding than the value that flows into it."""
    if target.sharding is None or source.sharding is None:
        return target.sharding is None
    return target.sharding.close() == source.sharding.close()


def _constraint(source: Value, target: Value, op: Op) -> Op:
    return Op(ops.sharding_constraint, (source,), (target,), {}, (), op.loc, op.why)


def _resolve_replacements(new: dict[Value, Value]) -> dict[Value, Value]:
    """Return the mapping with replaced values that are replaced themselves resolved."""
    resolved: dict[Value, Value] = {}
    for value in new:
        last = value
        while last in new:
            last = new[last]
        resolved[value] = last
    return resolved
