"""Simulations as records of a report, and in Chrome's trace format.

The trace has one lane for the computation and one for each mesh axis. A loop is one box, which
contains the boxes of its first iteration.
"""

from collections.abc import Iterator, Sequence

from shardir.frontend.report.records import BoxRecord, SimulationRecord, TableRecord
from shardir.frontend.report.trace_events import write_trace_events
from shardir.ir.module import Op
from shardir.passes.simulation import Simulation, table
from shardir.passes.simulation.block_simulation import BlockSimulation
from shardir.passes.simulation.work import COMPUTE_STREAM
from shardir.text.literals import format_name

PICOSECONDS_PER_NANOSECOND = 1000


def simulation_record(simulation: Simulation) -> SimulationRecord:
    """Return the record of a simulation."""
    tables = (*table.time_tables(simulation), *table.memory_tables(simulation))
    tables += tuple(table.remedy_tables(simulation))
    sentences = (
        *table.utilization_lines(simulation),
        table.memory_title(simulation),
        *table.fit_lines(simulation),
        *simulation.notes,
    )
    return SimulationRecord(
        table.title_of(simulation),
        tuple(TableRecord(each.head, tuple(_words(each.rows))) for each in tables),
        tuple(sentence for sentence in sentences if sentence),
        simulation.lanes,
    )


def _words(rows: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Yield the words of the rows of a table; rows that are parts of others stay indented."""
    margin = min((len(row[0]) - len(row[0].lstrip()) for row in rows), default=0)
    for name, *words in rows:
        yield name[margin:].rstrip(), *map(str.strip, words)


def simulation_trace_events(simulation: Simulation) -> str:
    """Return the events of a simulation as JSON."""
    axes = sorted(simulation.schedule.streams - {COMPUTE_STREAM})
    lanes = {name: number for number, name in enumerate((COMPUTE_STREAM, *axes))}
    operations: dict[BoxRecord, tuple[Op, int]] = {}

    def describe(box: BoxRecord) -> dict[str, object]:
        op, times = operations[box]
        args: dict[str, object] = {}
        if op.loc is not None:
            args["line"] = str(op.loc)
        if op.why:
            args["why"] = op.why
        if times > 1:
            args["executions"] = times
        return args

    def boxes(
        block: BlockSimulation, begin: int, alive: int | None
    ) -> Iterator[tuple[BoxRecord, Op, int]]:
        for event in block.events:
            op, work = event.op, event.work
            if not work.streams:
                continue
            start = begin + event.start
            bytes_alive = simulation.memory.alive[op] if alive is None else alive
            inner = block.inner.get(op, ())
            used = (COMPUTE_STREAM,) if not work.is_transfer else work.streams
            for stream in used:
                if stream == COMPUTE_STREAM and work.is_transfer:
                    continue
                # Rounded ends instead of durations: parts of an operation end before it does.
                first = start // PICOSECONDS_PER_NANOSECOND
                end = (start + work.duration) // PICOSECONDS_PER_NANOSECOND
                box = BoxRecord(
                    ", ".join(f"%{format_name(value.name)}" for value in op.results) or op.name,
                    op.name,
                    lanes[stream],
                    first,
                    end - first,
                    0,
                    bytes_alive,
                )
                yield box, op, max((times for _, times in inner), default=1)
            for each, times in inner:
                if times:
                    yield from boxes(each, start, bytes_alive)
                    start += each.breakdown.duration

    made = []
    for box, op, times in boxes(simulation.schedule, 0, None):
        operations[box] = op, times
        made.append(box)
    return write_trace_events(simulation.name, tuple(lanes), made, describe)
