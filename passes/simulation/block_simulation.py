"""Simulation of a block with its nested blocks: loops are multiplied out.

The body of a loop is simulated once; it begins when the iteration before has ended. A `case` takes
the time of its slowest branch. Devices are alike, so that one of them stands for all.
"""

from dataclasses import dataclass, field

from shardir import ops
from shardir.cost.trip_counts import Definitions, find_definitions, trip_count
from shardir.ir.module import Block, Loc, Module, Op
from shardir.passes.simulation.breakdown import Breakdown, break_down
from shardir.passes.simulation.host_calls import CallCosts, HostCallCost, cost_of_call
from shardir.passes.simulation.list_scheduler import Event, schedule_block
from shardir.passes.simulation.machine_model import MachineModel
from shardir.passes.simulation.work import COMPUTE_STREAM, Work, WorkModel, find_views


@dataclass(frozen=True, slots=True)
class BlockSimulation:
    """The events of a block by their start, and the parts of its time.

    `inner` has the simulated blocks of operations, with the number of their executions, and
    `calls` the parts of the time of host functions whose cost is stated.
    """

    events: tuple[Event, ...]
    breakdown: Breakdown
    inner: dict[Op, tuple[tuple["BlockSimulation", int], ...]]
    streams: frozenset[str]
    calls: dict[Op, HostCallCost] = field(default_factory=dict)


class BlockSimulator:
    """Simulates the blocks of one module. `unknown` collects the locations of loops whose trip
    count is not a constant; their blocks count once.
    """

    def __init__(
        self, module: Module, machine: MachineModel, calls: CallCosts | None = None
    ) -> None:
        self.call_costs: CallCosts = calls or {}
        axes = dict.fromkeys(name for mesh in module.meshes for name in mesh.sizes)
        self.all_streams = (COMPUTE_STREAM, *axes)
        self.work_model = WorkModel(machine, module.meshes)
        self.definitions: Definitions = find_definitions(module.main.body)
        self.unknown: list[tuple[str, Loc | None]] = []

    def simulate(self, block: Block) -> BlockSimulation:
        """Return the simulation of one execution of a block."""
        inner: dict[Op, tuple[tuple[BlockSimulation, int], ...]] = {}
        calls: dict[Op, HostCallCost] = {}
        works: list[Work] = []
        views = find_views(block, self.work_model.machine)
        for op in block.ops:
            if op in views:
                works.append(Work("", (), 0))
            elif op.blocks and not op.spec.is_loop_nest:
                inner[op] = self._blocks_of(op)
                works.append(_nested_work(op, inner[op]))
            elif (cost := cost_of_call(op, self.call_costs)) is not None:
                # The programs that it runs use all streams of the devices.
                calls[op] = cost
                works.append(Work(op.name, self.all_streams, cost.breakdown.duration))
            else:
                works.append(self.work_model.work_of(op))
        events = tuple(schedule_block(block, works))
        nested = {event: _sum(inner[event.op]) for event in events if event.op in inner}
        nested |= {event: calls[event.op].breakdown for event in events if event.op in calls}
        return BlockSimulation(
            events,
            break_down(events, nested),
            inner,
            frozenset(stream for work in works for stream in work.streams),
            calls,
        )

    def _blocks_of(self, op: Op) -> tuple[tuple[BlockSimulation, int], ...]:
        """Return the simulated blocks of an operation, with the number of their executions."""
        if op.spec is ops.case:
            branches = [self.simulate(block) for block in op.blocks]
            return ((max(branches, key=lambda each: each.breakdown.duration), 1),)
        if op.spec not in (ops.scan, ops.while_):
            # The first block is the computation, the others are rules for its derivatives.
            return ((self.simulate(op.blocks[0]), 1),)
        count = trip_count(op, self.definitions)
        if count is None:
            self.unknown.append((op.results[0].name if op.results else "", op.loc))
            count = 1
        *conditions, body = op.blocks
        # The condition of a loop runs once more than its body.
        return (
            *((self.simulate(block), count + 1) for block in conditions),
            (self.simulate(body), count),
        )


def _sum(blocks: tuple[tuple[BlockSimulation, int], ...]) -> Breakdown:
    return sum((each.breakdown * times for each, times in blocks), Breakdown())


def _nested_work(op: Op, blocks: tuple[tuple[BlockSimulation, int], ...]) -> Work:
    """Return the work of an operation with blocks, which occupies all of their streams."""
    duration = _sum(blocks).duration
    used = dict.fromkeys(stream for each, _ in blocks for stream in sorted(each.streams))
    streams = tuple(dict.fromkeys((COMPUTE_STREAM, *used))) if duration else ()
    return Work(op.name, streams, duration)
