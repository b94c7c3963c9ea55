"""Operations that update a part of their first operand, in place if no other operation reads it.

Otherwise a loop that fills an array element by element would copy all of it in each iteration.
"""

from collections.abc import Sequence

from shardir.backends.cpu.schedule.buffer_views import is_view_op
from shardir.ir.module import Block, Op, Value
from shardir.ops.control_flow.fused import fused

IN_PLACE_OPS = frozenset({"dynamic_update_slice", "scatter"})
"""Operations that keep most of their first operand, and can update it in place."""


def find_in_place_chain(block: Block, param: Value, last_value: Value) -> Sequence[Value] | None:
    """Return the values from `param` (exclusive) to `last_value` that can share one buffer.

    Each must be an in-place update of the one before, and no operation may read the earlier value
    or an alias of it after the update. Returns `None` otherwise.
    """
    makers = {result: op for op in block.ops for result in op.results}
    chain: list[Value] = []
    value = last_value
    while value is not param:
        op = makers.get(value)
        if op is None or op.name not in IN_PLACE_OPS:
            return None
        chain.insert(0, value)
        value = op.operands[0]
    age = {param: 0} | {value: i + 1 for i, value in enumerate(chain)}
    written = 0
    for op in block.ops:
        used = [age[value] for value in op.uses() if value in age]
        if min(used, default=written) < written:
            return None
        if op.results and op.results[0] in chain:
            if any(value in age for value in op.operands[1:]):
                return None
            written += 1
        elif used and _may_alias(op):
            age.update((result, min(used)) for result in op.results)
    if any(value in age and value is not last_value for value in block.returns):
        return None
    return chain if list(block.returns).count(last_value) == 1 else None


def _may_alias(op: Op) -> bool:
    """Return whether results may alias operands: those of view operations and of control flow."""
    return is_view_op(op) or (bool(op.blocks) and op.spec is not fused)
