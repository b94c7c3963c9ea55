"""Rewrites of the calls of functions with a custom partitioning, before a program is partitioned.

before: `%y = custom-partitioning(%x, function="my_fft", partition="p", factor_rule="")`
after:  `%y = fft(%x) : c64[8]`
"""

from collections.abc import Callable
from dataclasses import replace

from shardir.ir.builder import Builder, inline, substitute
from shardir.ir.module import Block, Function, Op, Value
from shardir.ops.control_flow.custom_partitioning import body_of, custom_partitioning
from shardir.passes.rewriting import used_names
from shardir.passes.simplify.inline import inline_regions


def has_custom_partitioning(function: Function) -> bool:
    """Return whether a function contains a call of a partitioned function."""
    return any(op.spec is custom_partitioning for op in function.body.walk())


def rewrite_custom_partitionings(function: Function, rewritten: Callable[[Op], Op]) -> Function:
    """Return the function with each call of a partitioned function rewritten."""

    def rewrite(block: Block) -> Block:
        return replace(block, ops=tuple(map(rewrite_op, block.ops)))

    def rewrite_op(op: Op) -> Op:
        if op.spec is custom_partitioning:
            return rewritten(op)
        return replace(op, blocks=tuple(map(rewrite, op.blocks))) if op.blocks else op

    return replace(function, body=rewrite(function.body))


def inline_custom_partitionings(function: Function) -> Function:
    """Return the function with the bodies of partitioned functions in place of their calls."""
    if not has_custom_partitioning(function):
        return function
    names, new = used_names(function), dict[Value, Value]()

    def rebuild(block: Block) -> Block:
        b = Builder(names)
        for op in block.ops:
            if op.spec is custom_partitioning:
                operands = [new.get(value, value) for value in op.operands]
                new.update(zip(op.results, inline(b, body_of(op), operands), strict=True))
            else:
                b.append(replace(op, blocks=tuple(map(rebuild, op.blocks))))
        return replace(block, ops=tuple(b.ops))

    body = rebuild(function.body)
    return inline_regions(replace(function, body=substitute(body, new)))
