"""Fold transposes into the contractions that make their operands.

before: `%0 = dot(%x, %y, dims="bi,ih->bh") : f32[8, 4]`, `%1 = transpose(%0, perm=[1, 0])`
after:  `%1 = dot(%x, %y, dims="bi,ih->hb") : f32[4, 8]`

The pass applies where the transpose is the only use of the contraction.
"""

from dataclasses import dataclass, replace

from shardir import ops as specs
from shardir.ir.module import Block, Function, Module, Op
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import use_counts


@dataclass(frozen=True)
class FoldTransposes(Pass, name="fold-transposes"):
    """Make contractions write the transposed result directly."""

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(_fold_function, module.functions)))


def _fold_function(function: Function) -> Function:
    uses = use_counts(function.body)

    def block(old: Block) -> Block:
        turned: dict[Op, Op] = {}
        dots = {op.result: op for op in old.ops if op.spec is specs.dot and uses[op.result] == 1}
        for op in old.ops:
            if op.spec is specs.transpose and op.operands[0] in dots:
                turned[dots[op.operands[0]]] = op
        gone = set(turned.values())
        ops = []
        for op in old.ops:
            if op in turned:
                op = _fold_transpose(op, turned[op])
            elif op in gone:
                continue
            elif op.blocks:
                op = replace(op, blocks=tuple(map(block, op.blocks)))
            ops.append(op)
        return replace(old, ops=tuple(ops))

    return replace(function, body=block(function.body))


def _fold_transpose(dot: Op, transpose: Op) -> Op:
    inputs, _, output = dot.attrs["dims"].partition("->")
    order = "".join(output[d] for d in transpose.attrs["perm"])
    attrs = {**dot.attrs, "dims": f"{inputs}->{order}"}
    return replace(dot, results=transpose.results, attrs=attrs)
