"""Flops of matrix products and convolutions, and the utilization of a machine.

Model flops are those that a program needs: recomputed operations do not count. Executed flops
include them, and what several devices compute alike.
"""

from shardir import ops
from shardir.cost.op_cost import flops_of
from shardir.cost.trip_counts import Definitions, find_definitions, trip_count
from shardir.ir.module import Block, Module
from shardir.passes.autodiff.phases import is_recomputed
from shardir.passes.simulation.machine_model import Flops, MachineModel


def executed_flops(module: Module) -> Flops:
    """Return the flops of one run of the module's first function."""
    return flops_of_block(module.main.body, recomputed=True)


def model_flops(module: Module) -> Flops:
    """Return the flops of one run without recomputed operations."""
    return flops_of_block(module.main.body, recomputed=False)


def flops_of_block(block: Block, *, recomputed: bool) -> Flops:
    """Return the flops of one run of a block, with recomputed operations or without them."""
    return _flops_of_block(block, find_definitions(block), recomputed)


def add_flops(*some: Flops) -> Flops:
    """Return the sum of flops by dtype."""
    total: dict[str, int] = {}
    for flops in some:
        for dtype, count in flops.items():
            total[dtype] = total.get(dtype, 0) + count
    return total


def utilization(flops: Flops, machine: MachineModel, device_seconds: float) -> float:
    """Return the fraction of a machine's peak rate at which devices process flops."""
    at_peak = sum(count / machine.peak_flops(dtype) for dtype, count in flops.items())
    return at_peak / device_seconds if device_seconds else 0.0


def _flops_of_block(block: Block, definitions: Definitions, recomputed: bool) -> dict[str, int]:
    result: dict[str, int] = {}
    for op in block.ops:
        if not recomputed and is_recomputed(op):
            continue
        if op.spec in (ops.dot, ops.convolution):
            dtype = op.operands[0].type.dtype
            result[dtype] = result.get(dtype, 0) + flops_of(op)
        elif op.blocks:
            found = [_flops_of_block(each, definitions, recomputed) for each in op.blocks]
            if op.spec is ops.while_:
                inner = found[1]
            elif op.spec is ops.case:
                inner = max(found, key=lambda each: sum(each.values()))
            else:
                inner = found[0]
            times = trip_count(op, definitions)
            for dtype, count in inner.items():
                result[dtype] = result.get(dtype, 0) + count * (1 if times is None else times)
    return result
