"""The costs of host functions that run programs on the devices, such as the runtime of a pipeline.

The simulation cannot see these programs, so its caller states the cost of each function.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shardir.ir.host_function import host_function_of
from shardir.ir.module import Op
from shardir.passes.simulation.argument_kinds import MemoryKind
from shardir.passes.simulation.breakdown import Breakdown
from shardir.passes.simulation.machine_model import Flops


@dataclass(frozen=True, slots=True)
class HostCallCost:
    """The time and memory of one call of a host function."""

    breakdown: Breakdown
    """The parts of the time of the busiest device."""
    memory: Mapping[MemoryKind, int]
    """The bytes at the peak, without the arguments and results, of the device that needs most."""
    needed_flops: Flops
    """The flops of all devices without recomputed ones."""
    executed_flops: Flops
    """The flops of one device, on average."""
    lanes: str = ""
    """The actions of the devices over time, as lines of text."""
    notes: tuple[str, ...] = ()
    """Notes of the simulation."""


CallCosts = Mapping[Callable[..., Any], HostCallCost]
"""The costs of host functions."""


def cost_of_call(op: Op, calls: CallCosts) -> HostCallCost | None:
    """Return the cost of an operation that calls a host function; `None` if none is stated."""
    function = host_function_of(op.attrs.get("function", ""))
    return None if function is None else calls.get(function)
