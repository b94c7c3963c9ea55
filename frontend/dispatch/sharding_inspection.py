"""Callbacks of `debug.inspect_array_sharding`, which run when a program is compiled.

The function leaves an operation in the program. After propagation and resharding the callback
receives the sharding of its operand.
"""

from shardir.frontend.dispatch.lowering import LoweredProgram
from shardir.ir.host_function import host_function_of
from shardir.ir.module import Module
from shardir.ops.control_flow.host_callbacks import inspect_sharding
from shardir.passes.pipeline import Pass, PassObserver

INSPECTED_PASS = "partition"
"""The pass before which all shardings are final and still attached to values."""


def sharding_observer(plan: LoweredProgram) -> PassObserver | None:
    """Return an observer that runs the callbacks of a program; `None` if it has none."""
    if not any(op.spec is inspect_sharding for op in plan.module.main.body.walk()):
        return None

    def run_callbacks(step: Pass, before: Module, after: Module, seconds: float) -> None:
        if step.name != INSPECTED_PASS:
            return
        for op in before.main.body.walk():
            callback = (
                host_function_of(op.attrs["function"]) if op.spec is inspect_sharding else None
            )
            if callback is not None:
                (value,) = op.operands
                callback(plan.to_user_sharding(value.sharding, value.type.rank))

    return run_callbacks
