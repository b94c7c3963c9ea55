"""Calls of functions.

A call has the body of the called function as its block, so that each call has shardings of its
own, and passes treat the block like that of other operations. Text in StableHLO contains each
function once: `shardir.stablehlo.writing.functions` merges the calls whose functions are equal.
"""

from dataclasses import dataclass

from shardir.ir.attributes import Attributes
from shardir.ir.module import Block
from shardir.ir.operation import define_op
from shardir.ir.types import TensorType
from shardir.ops.control_flow.block_types import Types, check_types, only_block, types_of
from shardir.ops.control_flow.derivative_regions import block_edges


@dataclass(frozen=True, slots=True)
class CallAttributes(Attributes):
    """The attributes of a call: the name of the called function, without `@`."""

    callee: str


def _call_type(
    *operands: TensorType, result: object, blocks: tuple[Block, ...], attributes: CallAttributes
) -> Types:
    body = only_block(blocks)
    if not attributes.callee:
        raise TypeError('names the called function, got callee=""')
    check_types("its function takes", body.params, operands)
    return types_of(body.returns)


call = define_op(
    "call",
    attributes=CallAttributes,
    type=_call_type,
    edges=block_edges,
    blocks=1,
    inlined_by="inline-calls",
)
"""The results of the function `callee`, whose body is the block.

The block uses no values of the blocks around it. Shardings propagate through calls along data flow
edges, from operands to parameters and from returned values to results; two calls of one function
may be sharded differently.
"""
