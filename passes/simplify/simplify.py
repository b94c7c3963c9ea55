"""Simplify operations where no bit of the result can change.

before: `%a = transpose(%x, perm=[1, 0])`, `%b = transpose(%a, perm=[1, 0])`,
        `%y = add(%b, %zero)`, where `%zero = constant(value=-0.0)`, and `return %y`
after:  `return %x`

`identities` and `own_shard` hold the rules. A value is replaced only by one with
the same sharding; data movement operations are merged only if no sharding has been decided between
them. Unused values remain for `dce`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from shardir.ir.dtypes import DTYPE_INFO, SMALL_FLOATS
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.op_rules.widening import computes_small
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import KEEP_CHOICES, has_effect
from shardir.passes.simplify import own_shard as own_shard  # registers its rules
from shardir.passes.simplify.identities import SIMPLIFICATION_RULES, ValueFacts, fold_constants


@dataclass(frozen=True)
class Simplify(Pass, name="simplify"):
    """Apply algebraic identities that are exact; `keep=collectives` excludes collectives.

    The option is for the program of one process, in which other values are constant than in those
    of other processes: all processes must execute the same collectives.
    """

    keep: str = ""
    choices: ClassVar[dict[str, Sequence[str]]] = KEEP_CHOICES

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(self._function, module.functions)))

    def _function(self, function: Function) -> Function:
        simplifier = _Simplifier(function.body, self.keep == "collectives")
        return replace(function, body=simplifier.block(function.body))


class _Simplifier:
    """Walks blocks with the facts about values so far; `keeps` preserves collectives."""

    def __init__(self, body: Block, keeps: bool) -> None:
        self.keeps = keeps
        self.known = ValueFacts()
        self.new: dict[Value, Value] = {}
        for op in body.walk():
            self.known.count(op.operands)
            for block in op.blocks:
                self.known.count(block.returns)
        self.known.count(body.returns)

    def block(self, block: Block) -> Block:
        ops = []
        for op in block.ops:
            op = self.substitute_operands(op)
            while True:
                simpler = self.simplify(op)
                if not isinstance(simpler, Op):
                    break
                op = simpler
            if simpler is not None:
                self.new[op.result] = simpler
                continue
            self.known.makers.update(dict.fromkeys(op.results, op))
            ops.append(op)
        returns = tuple(self.new.get(v, v) for v in block.returns)
        return Block(block.params, tuple(ops), returns)

    def simplify(self, op: Op) -> Value | Op | None:
        """Return a value that equals the only result, or a simpler operation; `None` if no rule
        applies."""
        simpler = None if has_effect(op, self.keeps) else _apply(op, self.known)
        return None if isinstance(simpler, Op) and has_effect(simpler, self.keeps) else simpler

    def substitute_operands(self, op: Op) -> Op:
        """Return the operation with replaced operands."""
        blocks = tuple(map(self.block, op.blocks))
        if not blocks and not any(v in self.new for v in op.operands):
            return op
        return replace(op, operands=tuple(self.new.get(v, v) for v in op.operands), blocks=blocks)


_DTYPES_WITHOUT_ZERO = tuple(name for name in SMALL_FLOATS if not DTYPE_INFO[name].has_zero)
"""Floats in which a constant 0 is NaN, so that no identity of zero holds."""


def _apply(op: Op, facts: ValueFacts) -> Value | Op | None:
    """Return a value that equals the only result, or a simpler operation; `None` if no rule
    applies."""
    if computes_small(op) and any(value.type.dtype in _DTYPES_WITHOUT_ZERO for value in op.tensors):
        return None
    for rule in SIMPLIFICATION_RULES.get(op.name, ()):
        result = rule(op, facts)
        if isinstance(result, Op):
            return result
        if result is not None and _can_replace(result, op.result):
            return result
    return fold_constants(op, facts)


def _can_replace(value: Value, result: Value) -> bool:
    """Return whether a value can replace another without losing a stated sharding."""
    return value.type == result.type and result.sharding in (None, value.sharding)
