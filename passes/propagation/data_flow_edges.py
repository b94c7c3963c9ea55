"""Remove `data_flow_edge` operations of calls, which only propagation uses.

before: `%a = data_flow_edge(%x) : f32[8@x]`, `%y = sin(%a) : f32[8@x]` with `%x: f32[8@x]`
after:  `%y = sin(%x) : f32[8@x]`

If the two sides of an edge have different shardings, it becomes a constraint. Open and closed
dimensions count as equal unless `exact` is set.
"""

from dataclasses import replace

from shardir import ops as specs
from shardir.ir.module import Block, Function, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Sharding


def remove_data_flow_edges(function: Function, *, exact: bool = False) -> Function:
    """Return the function without `data_flow_edge`; the function itself if it has none.

    With `exact`, the sides of a removed edge are open in the same dimensions.
    """
    if not any(op.spec is specs.data_flow_edge for op in function.body.walk()):
        return function
    sources: dict[Value, Value] = {}

    def block(old: Block) -> Block:
        ops = []
        for op in old.ops:
            operands = tuple(sources.get(value, value) for value in op.operands)
            if op.spec is specs.data_flow_edge and _is_same_sharding(
                operands[0].sharding, op.result.sharding, exact
            ):
                sources[op.result] = operands[0]
                continue
            blocks = tuple(map(block, op.blocks))
            if op.spec is specs.data_flow_edge:
                op = replace(op, spec=OPS["sharding_constraint"], attrs={})
            ops.append(replace(op, operands=operands, blocks=blocks))
        returns = tuple(sources.get(value, value) for value in old.returns)
        return Block(old.params, tuple(ops), returns)

    return replace(function, body=block(function.body))


def _is_same_sharding(one: Sharding | None, other: Sharding | None, exact: bool) -> bool:
    if one is None or other is None or exact:
        return one == other
    return one.close() == other.close()
