"""Observers of the passes of a program: dumps, numeric checks, progress, inspected shardings."""

from itertools import count
from typing import TYPE_CHECKING

from shardir._imports.lazy_import import lazy_import
from shardir.display.compilation_progress import has_listener, report
from shardir.frontend.config import config
from shardir.frontend.distributed.processes import process_index
from shardir.ir.host_function import host_function_of
from shardir.ir.module import Module
from shardir.ops.control_flow.host_callbacks import inspect_sharding
from shardir.passes.dump import warning_dump
from shardir.passes.pipeline import Pass, PassObserver, Pipeline, combine_observers

if TYPE_CHECKING:
    from shardir.frontend.dispatch.programs.lowering import LoweredProgram
    from shardir.passes import numerics_check
else:
    numerics_check = lazy_import("shardir.passes.numerics_check")

INSPECTED_PASS = "partition"
"""The pass before which all shardings are final and still attached to values."""


def settings_observer(name: str) -> PassObserver | None:
    """Return the observer that the settings request for the passes of the program `name`."""
    chosen: list[PassObserver] = []
    if config.dump_dir is not None and process_index() == 0:
        chosen.append(warning_dump(config.dump_dir, name))
    if config.verify:
        chosen.append(numerics_check.NumericsCheck())
    return combine_observers(*chosen)


def progress_observer(steps: Pipeline) -> PassObserver | None:
    """Return an observer that reports progress, or `None` if no callback is registered."""
    if not has_listener():
        return None
    numbers = count(1)

    def report_pass(step: Pass, before: Module, after: Module, seconds: float) -> None:
        report(step.name, next(numbers), len(steps.passes))

    return report_pass


def sharding_observer(plan: "LoweredProgram") -> PassObserver | None:
    """Return an observer that calls the callbacks of `debug.inspect_array_sharding` in a program.

    The function leaves an operation in the program. After propagation and resharding the callback
    receives the sharding of its operand. Return `None` if the program has no such operation.
    """
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
