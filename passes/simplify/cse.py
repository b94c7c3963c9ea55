"""Common subexpression elimination.

before: `%a = exp(%x)`, `%b = exp(%x)`, `%y = add(%a, %b)`
after:  `%a = exp(%x)`, `%y = add(%a, %a)`

Two operations are equal if they apply the same operation with the same attributes to the same
values and define values of the same types and shardings; constants and collectives are included.
Operations before a block are available inside of it. Barriers remain, since nothing is merged
across them, and so do operations with blocks or effects.
"""

import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from shardir import ops as specs
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.operation import Attr
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import KEEP_CHOICES, has_effect, rebuild_functions

ExpressionKey = tuple[Hashable, ...]


@dataclass(frozen=True)
class CommonSubexpressionElimination(Pass, name="cse"):
    """Remove operations that repeat an earlier one; `keep=collectives` keeps all collectives.

    The option is for the program of one process, in which more operations are equal than in those
    of other processes: all processes must execute the same collectives.
    """

    keep: str = ""
    choices: ClassVar[dict[str, Sequence[str]]] = KEEP_CHOICES

    def __call__(self, module: Module) -> Module:
        return rebuild_functions(module, self._function)

    def _function(self, function: Function) -> Function:
        body = _ExpressionMerger(self.keep == "collectives").block(function.body)
        return function if body is function.body else replace(function, body=body)


class _ExpressionMerger:
    """Walks blocks with the operations available so far; `keeps` preserves collectives."""

    def __init__(self, keeps: bool) -> None:
        self.keeps = keeps
        self.available: dict[ExpressionKey, Op] = {}
        self.new: dict[Value, Value] = {}

    def block(self, block: Block) -> Block:
        """Return the block without repeated operations; the block itself if it has none."""
        added: list[ExpressionKey] = []
        ops: list[Op] = []
        for op in block.ops:
            rebuilt = self.substitute_operands(op)
            if op.blocks or op.spec is specs.optimization_barrier or has_effect(op, self.keeps):
                ops.append(rebuilt)
                continue
            key = expression_key(rebuilt)
            first = self.available.get(key)
            if first is None:
                self.available[key] = rebuilt
                added.append(key)
                ops.append(rebuilt)
            else:
                self.new.update(zip(op.results, first.results, strict=True))
        for key in added:
            del self.available[key]
        returns = tuple(self.new.get(v, v) for v in block.returns)
        same = len(ops) == len(block.ops) and returns == block.returns
        if same and all(a is b for a, b in zip(ops, block.ops, strict=True)):
            return block
        return Block(block.params, tuple(ops), returns)

    def substitute_operands(self, op: Op) -> Op:
        new = self.new
        operands = op.operands
        if any(v in new for v in operands):
            operands = tuple(new.get(v, v) for v in operands)
        if op.spec in (specs.manual_computation, specs.call):
            # The body cannot use operations from outside.
            blocks = tuple(_ExpressionMerger(self.keeps).block(block) for block in op.blocks)
        else:
            blocks = tuple(map(self.block, op.blocks))
        if operands is op.operands and all(a is b for a, b in zip(blocks, op.blocks, strict=True)):
            return op
        return Op(op.spec, operands, op.results, op.attrs, blocks, op.loc, op.why)


def expression_key(op: Op) -> ExpressionKey:
    """Return a key that two operations share if and only if they compute the same values."""
    attrs = tuple((name, exact_attribute(attr)) for name, attr in sorted(op.attrs.items()))
    result_types = tuple((value.type, value.sharding) for value in op.results)
    return (op.spec, op.operands, attrs, result_types)


def exact_attribute(attr: Attr) -> Hashable:
    """Return an attribute as a key under which 1, 1.0, true, 0.0 and -0.0 all differ."""
    if isinstance(attr, tuple):
        return tuple(map(exact_attribute, attr))
    if isinstance(attr, float):
        return ("float", struct.pack("<d", attr))
    if isinstance(attr, complex):
        return ("complex", struct.pack("<dd", attr.real, attr.imag))
    return (type(attr).__name__, attr)
