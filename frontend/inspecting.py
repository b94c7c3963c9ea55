"""Telling the user's functions where the values they ask about are.

`debug.inspect_array_sharding` leaves an operation behind. Once propagation and resharding have
decided, the sharding of its operand is what the user is told.
"""

from shardir.frontend.lowering import Plan
from shardir.hosted import function_of
from shardir.ir import Module
from shardir.ops.host import inspect_sharding
from shardir.passes.pipeline import Pass, Watch

DECIDED = "partition"
"""The pass before which all shardings are known and none is gone."""


def inspector(plan: Plan) -> Watch | None:
    """What tells the functions that a program refers to; `None` if it refers to none."""
    if not any(op.spec is inspect_sharding for op in plan.module.main.body.walk()):
        return None

    def tell(step: Pass, before: Module, after: Module, seconds: float) -> None:
        if step.name != DECIDED:
            return
        for op in before.main.body.walk():
            asked = function_of(op.attrs["function"]) if op.spec is inspect_sharding else None
            if asked is not None:
                (value,) = op.operands
                asked(plan.sharding_of(value.sharding, value.type.rank))

    return tell
