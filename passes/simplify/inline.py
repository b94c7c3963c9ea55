"""Inline regions: custom derivative rules, checkpoints and fused operations.

before: `%y = fused(%x) : ... { (%a: f32[4]) => %b = sin(%a) ... %c = mul(%b, %a) ... yield %c }`
after:  `%b = sin(%x)`, `%y = mul(%b, %x)`

Derivative rules, checkpoints and checkpoint names have no meaning in a program that is not
differentiated any more. Fused operations are inlined too. Marks of stages have a meaning only
inside of a pipeline, which is differentiated later.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardir.ir.builder import substitute
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ops.communication.annotations import checkpoint_name
from shardir.ops.control_flow.derivative_regions import REGIONS as DERIVED
from shardir.ops.control_flow.fused import fused
from shardir.ops.control_flow.fused_products import fused_products
from shardir.ops.control_flow.pipelines import pipeline, pipeline_stage
from shardir.passes.autodiff.regions import inline_region
from shardir.passes.pipeline import Pass

INLINED_REGIONS = (*DERIVED, fused, fused_products)
_MARKS = (checkpoint_name, pipeline_stage)


class Inline(Pass, name="inline"):
    """Replace each region by its first block."""

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(inline_regions, module.functions)))


def inline_regions(function: Function) -> Function:
    """Return the function without regions and without checkpoint names."""
    if not any(op.spec in INLINED_REGIONS or op.spec in _MARKS for op in function.body.walk()):
        return function
    new: dict[Value, Value] = {}
    body = replace(function.body, ops=_inline_operations(function.body.ops, new))
    return replace(function, body=substitute(body, new))


def _inline_operations(ops: Sequence[Op], new: dict[Value, Value]) -> tuple[Op, ...]:
    new_ops: list[Op] = []
    for op in ops:
        if op.spec in INLINED_REGIONS:
            new_ops += _inline_operations(inline_region(op), new)
        elif op.spec is pipeline:
            new_ops.append(op)
        elif op.spec in _MARKS:
            new[op.result] = new.get(op.operands[0], op.operands[0])
        elif op.blocks:
            blocks = tuple(_inline_block(block, new) for block in op.blocks)
            new_ops.append(replace(op, blocks=blocks))
        else:
            new_ops.append(op)
    return tuple(new_ops)


def _inline_block(block: Block, new: dict[Value, Value]) -> Block:
    return replace(block, ops=_inline_operations(block.ops, new))
