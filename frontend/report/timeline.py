"""The estimated schedule of one device, its memory, and the costs of source lines."""

from collections.abc import Iterator, Mapping

from shardir.cost.memory import MemoryTimeline, estimate_memory, memory_timeline
from shardir.cost.op_cost import Cost, mesh_axes_of
from shardir.cost.source_lines import cost_by_line
from shardir.frontend.report.records import (
    AliveRecord,
    BoxRecord,
    ScheduleRecord,
    SourceLineRecord,
)
from shardir.frontend.report.tables import ReportTables
from shardir.ir.module import Loc, Module, Op, Value
from shardir.ops.communication.async_collectives import done, is_started
from shardir.passes.collectives.overlap import Overlap
from shardir.passes.explain.peak_memory import live_values, location_of_op, name_of_op

Places = Mapping[tuple[str, str], Loc]
COMPUTE_LANE = "compute"
NANOSECONDS = 1e9


class Timeline:
    """The schedule and memory of the first function of a per-device program.

    Operations run in program order. A transfer occupies the lane of its mesh axes; computation
    waits for it unless it was started before (`all-reduce-start`), until its `done`. The transfers
    in the blocks of an operation, such as a loop, are part of its computation. Times follow from
    the machine that the pass `overlap` assumes; only their ratios are meaningful.
    """

    def __init__(self, module: Module, places: Places, tables: ReportTables) -> None:
        self.module, self.places, self.tables = module, places, tables
        self.machine = Overlap()
        self.memory: MemoryTimeline = memory_timeline(module)
        self.lanes: dict[str, int] = {COMPUTE_LANE: 0}

    def location(self, op: Op) -> Loc | None:
        """Return the source line of an operation, or of the value that it was made for."""
        return location_of_op(op, self.module.main.name, self.places)

    def schedule(self) -> ScheduleRecord:
        """Return the schedule with the memory while each operation runs."""
        boxes = list(self._boxes())
        estimate = estimate_memory(self.module)
        machine = self.machine
        end = max((box.start + box.duration for box in boxes), default=0)
        return ScheduleRecord(
            (
                ("flops per second", machine.flops),
                ("bytes of memory per second", machine.memory),
                ("bytes sent per second", machine.network),
                ("seconds of latency", machine.latency),
            ),
            tuple(self.lanes),
            tuple(boxes),
            end,
            sum(box.waits for box in boxes),
            estimate.arguments,
            estimate.results,
            estimate.temporaries,
            estimate.peak,
            self.memory.position,
            tuple(self._alive_at_peak()),
        )

    def _boxes(self) -> Iterator[BoxRecord]:
        now = 0
        idle_since = 0
        free: dict[int, int] = {}
        arrival: dict[Value, int] = {}
        for op, alive in zip(self.module.main.body.ops, self.memory.alive, strict=True):
            lane = self._lane(op)
            duration = round(self.machine.seconds(op) * NANOSECONDS)
            start, waits = now, 0
            if op.spec is done:
                now = start = max(now, arrival.get(op.operands[0], now))
                duration = 0
            elif lane:
                start = max(now, free.get(lane, 0))
                free[lane] = start + duration
                if is_started(op):
                    arrival[op.results[0]] = free[lane]
                else:
                    now = free[lane]
            else:
                waits, idle_since = now - idle_since, now + duration
                now = idle_since
            yield BoxRecord(
                name_of_op(op), op.name, lane, start, duration, waits,
                self.memory.arguments + alive,
            )  # fmt: skip

    def _lane(self, op: Op) -> int:
        """Return the lane of an operation: the axes of a transfer, or computation."""
        if not op.spec.collective:
            return 0
        name = ", ".join(dict.fromkeys(axis.name for axis in mesh_axes_of(op))) or "transfers"
        return self.lanes.setdefault(name, len(self.lanes))

    def _alive_at_peak(self) -> Iterator[AliveRecord]:
        """Yield the values that are alive at the peak, the largest first."""
        for row in live_values(self.module, self.memory, self.places):
            yield AliveRecord(
                row.name, row.type, row.nbytes, row.role, self.tables.location(row.loc)
            )

    def source_lines(self, schedule: ScheduleRecord) -> Iterator[SourceLineRecord]:
        """Yield the costs of the lines of the user's program, in the order of files and lines."""
        costs = cost_by_line(self.module.main.body, self.location)
        found = {}
        for line, cost in costs.items():
            place = self.tables.location(None if line is None else Loc(*line, 1))
            found[place[:2] if place else (0, 0)] = cost
        peaks: dict[tuple[int, int], int] = {}
        for row in schedule.alive_at_peak:
            key = row.location[:2] if row.location else (0, 0)
            peaks[key] = peaks.get(key, 0) + row.nbytes
        for key in sorted({**found, **peaks}):
            sums = found.get(key, Cost())
            peak = peaks.get(key, 0)
            yield SourceLineRecord(*key, sums.flops, sums.memory, sums.sent, peak)
