"""Text form of a report: all of its numbers, without paths and folding."""

from collections.abc import Iterable, Iterator, Sequence

from shardir.display.byte_sizes import show_bytes
from shardir.display.text_tables import align_columns
from shardir.errors import count_noun
from shardir.frontend.report.records import (
    CollectiveRecord,
    ConflictRecord,
    Location,
    PlanningRecord,
    PlanRecord,
    ReportData,
    RunRecord,
    SimulationRecord,
    StageRecord,
    TotalRecord,
)

Row = Sequence[str]


def format_report(data: ReportData) -> str:
    """Return all numbers of a report as text."""
    sections = (
        _heading(data),
        _stages(data),
        _communication(data),
        _conflicts(data),
        _coverage(data),
        _source(data),
        _memory(data),
        _schedule(data),
        *([] if data.run is None else [_run(data.run)]),
        *([] if data.simulation is None else [_simulation(data.simulation)]),
        *([] if data.planning is None else [_planning(data.planning)]),
        _values(data),
    )
    return "\n\n".join("\n".join(section) for section in sections)


def format_time(nanoseconds: int) -> str:
    """Return a time as text: `120 ns`, `1.5 us`, `2.0 ms`, `1.3 s`."""
    if nanoseconds < 1000:
        return f"{nanoseconds} ns"
    time = nanoseconds / 1000
    for unit in ("us", "ms"):
        if time < 1000:
            return f"{time:.1f} {unit}"
        time /= 1000
    return f"{time:.1f} s"


def format_flops(flops: int) -> str:
    """Return a number of operations as text: `512`, `4.1 K`, `1.0 G`, `2.5 T`."""
    if flops < 1000:
        return str(flops)
    count = flops / 1000
    for unit in ("K", "M", "G", "T"):
        if count < 1000:
            return f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} P"


def format_location(data: ReportData, location: Location | None) -> str:
    """Return `file:line`, empty for no location."""
    return "" if location is None else f"{data.files[location[0]].name}:{location[1]}"


def _heading(data: ReportData) -> Iterator[str]:
    yield f"report of @{data.name}"
    for mesh in data.meshes:
        axes = ", ".join(f"{name}={size}" for name, size in mesh.axes)
        yield f"mesh @{mesh.name} of {count_noun(mesh.devices, 'device')}: {axes}"
    yield f"passes {data.pipeline}"
    yield f"{data.sharded} of {count_noun(data.tensors, 'tensor')} sharded"
    yield f"{format_flops(data.flops)} flops on each device"
    yield f"{show_bytes(data.memory)} of operands and results on each device"
    yield from data.notes


def _stages(data: ReportData) -> Iterator[str]:
    yield from align_columns(
        [
            (
                stage.name,
                str(stage.operations),
                str(len(stage.lines)),
                str(stage.added),
                str(stage.removed),
                str(stage.changed),
                ", ".join(_folds(stage)),
            )
            for stage in data.stages
        ],
        ("stage", "operations", "lines", "added", "removed", "changed", "repeated"),
    )


def _folds(stage: StageRecord) -> Iterator[str]:
    for fold in stage.folds:
        exceptions = [f"{count} from line {start + 1}" for start, count in fold.exceptions]
        but = f" except {', '.join(exceptions)}" if exceptions else ""
        yield f"{count_noun(fold.unit, 'line')} from line {fold.start + 1} x {fold.count}{but}"


def _communication(data: ReportData) -> Iterator[str]:
    if not data.collectives:
        yield "no communication"
        return
    total = data.total
    yield f"{count_noun(total.count, 'collective')}, {show_bytes(total.sent)} sent by each device"
    groups = (("by kind", data.by_kind), ("over", data.by_axes), ("by line", data.by_line))
    for title, totals in groups:
        yield ""
        yield from _totals(title, totals)
    yield ""
    yield from align_columns(
        [_collective(data, row) for row in data.collectives],
        ("value", "kind", "over", "devices", "result", "sent", "runs", "line", "why"),
    )
    for row in data.collectives:
        if row.chosen is None:
            continue
        yield ""
        yield f"{row.value} is part of the reshard of {row.move}"
        yield from _plans(data, row)


def _totals(title: str, totals: Iterable[TotalRecord]) -> Iterator[str]:
    rows = [
        (
            total.word or "(no line)",
            str(total.count),
            str(total.executions),
            show_bytes(total.nbytes),
            show_bytes(total.sent),
        )
        for total in totals
    ]
    yield from align_columns(rows, (title, "count", "runs", "result", "sent"))


def _collective(data: ReportData, row: CollectiveRecord) -> Row:
    return (
        row.value,
        row.kind,
        row.axes,
        str(row.group_size),
        show_bytes(row.nbytes),
        show_bytes(row.sent),
        "in a while" if row.executions < 0 else str(row.executions),
        format_location(data, row.location),
        row.why,
    )


def _plans(data: ReportData, row: CollectiveRecord) -> Iterator[str]:
    if row.chosen is not None:
        yield f"  chosen: {_plan(row.chosen)}"
    for plan in row.rejected:
        yield f"  more expensive: {_plan(plan)}"
    yield from _annotation_lines(data, row.annotations)


def _plan(plan: PlanRecord) -> str:
    middle = f" via {plan.middle}" if plan.middle else ""
    return f"{', '.join(plan.steps)}, {show_bytes(plan.nbytes)} received{middle}"


def _annotation_lines(data: ReportData, numbers: Iterable[int]) -> Iterator[str]:
    for number in numbers:
        annotation = data.annotations[number]
        line = format_location(data, annotation.location)
        yield f"  because of {annotation}" + (f"  {line}" if line else "")


def _conflicts(data: ReportData) -> Iterator[str]:
    yield count_noun(len(data.conflicts), "conflict")
    for row in data.conflicts:
        yield ""
        yield from _conflict(data, row)


def _conflict(data: ReportData, row: ConflictRecord) -> Iterator[str]:
    line = format_location(data, row.location)
    yield row.op + (f"  {line}" if line else "")
    for word, request in (("kept", row.kept), ("given up", row.given_up)):
        yield f"  {word}: {request.value} {request.axes} along {request.loop}"
        yield from _annotation_lines(data, request.annotations)
    yield f"  {row.verdict}" + (f": {row.detail}" if row.detail else "")
    yield f"  {' + '.join(row.reshard) or 'nothing'}, {show_bytes(row.nbytes)} received"


def _coverage(data: ReportData) -> Iterator[str]:
    yield f"{count_noun(len(data.unruled), 'operation')} without a factor rule"
    for row in data.unruled:
        line = format_location(data, row.location)
        yield f"  {row.op} stops {', '.join(row.axes) or 'nothing'}  {line}".rstrip()
    yield f"{count_noun(len(data.unsharded), 'dimension')} unsharded although an axis is free"
    yield from align_columns(
        [
            (w.value, str(w.dim), str(w.size), " or ".join(w.axes), show_bytes(w.nbytes))
            for w in data.unsharded
        ],
        ("value", "dimension", "size", "free", "bytes"),
    )
    yield f"{count_noun(len(data.idle), 'annotation')} without effect"
    yield from _annotation_lines(data, data.idle)
    yield f"{count_noun(len(data.dependences), 'value')} sharded differently in another order"
    for each in data.dependences:
        yield f"  {each.value}: {each.lifo} or {each.fifo}"
        yield from _annotation_lines(data, each.annotations)


def _source(data: ReportData) -> Iterator[str]:
    yield from align_columns(
        [
            (
                format_location(data, (row.file, row.line, 1)) if row.line else "(no line)",
                format_flops(row.flops),
                show_bytes(row.memory),
                show_bytes(row.sent),
                show_bytes(row.peak),
            )
            for row in data.source
        ],
        ("line", "flops", "bytes", "sent", "at the peak"),
    )


def _memory(data: ReportData) -> Iterator[str]:
    schedule = data.schedule
    box = schedule.boxes[schedule.peak_box].name if schedule.boxes else "the arguments"
    yield (
        f"peak memory {show_bytes(schedule.peak)} at {box}: {show_bytes(schedule.arguments)} of "
        f"arguments, {show_bytes(schedule.results)} of results, "
        f"{show_bytes(schedule.temporaries)} of temporaries"
    )
    rows = [
        (
            row.name,
            row.type,
            show_bytes(row.nbytes),
            row.role,
            format_location(data, row.location),
        )
        for row in schedule.alive_at_peak
    ]
    yield from align_columns(rows, ("alive at the peak", "type", "bytes", "role", "line"))


def _schedule(data: ReportData) -> Iterator[str]:
    schedule = data.schedule
    machine = ", ".join(f"{value:g} {name}" for name, value in schedule.machine)
    yield (
        f"estimated schedule of {format_time(schedule.total)}, of which computation waits "
        f"{format_time(schedule.waiting)}, with {machine}"
    )
    yield from align_columns(
        [
            (
                box.name,
                box.op,
                schedule.lanes[box.lane],
                format_time(box.start),
                format_time(box.duration),
                format_time(box.waits),
                show_bytes(box.alive),
            )
            for box in schedule.boxes
        ],
        ("value", "operation", "lane", "start", "duration", "after waiting", "alive"),
    )


def _simulation(simulation: SimulationRecord) -> Iterator[str]:
    yield simulation.title
    for table in simulation.tables:
        yield from align_columns(table.rows, table.head)
    yield from simulation.sentences
    for lanes in simulation.lanes:
        yield from lanes.splitlines()


def _planning(planning: PlanningRecord) -> Iterator[str]:
    yield planning.title
    for table in planning.tables:
        yield from align_columns(table.rows, table.head)
    yield from planning.sentences


def _run(run: RunRecord) -> Iterator[str]:
    threads = count_noun(len(run.lanes), "thread")
    yield f"measured run of {format_time(run.total)} on {threads}"
    if run.lost:
        yield f"{count_noun(run.lost, 'task')} at the beginning were not recorded"
    yield from align_columns(
        [
            (name, str(count), format_time(busy), f"{100 * busy / max(run.total, 1):.1f}%")
            for name, (count, busy) in zip(run.lanes, run.busy, strict=True)
        ],
        ("thread", "tasks", "busy", "of the run"),
    )
    rows = []
    for task in run.tasks:
        activity = run.activities[task.activity]
        start, duration = format_time(task.start), format_time(task.duration)
        thread = run.lanes[task.lane]
        rows.append((activity.name, activity.kernel, thread, start, duration, activity.where))
    yield from align_columns(rows, ("operation", "kernel", "thread", "start", "duration", "line"))


def _values(data: ReportData) -> Iterator[str]:
    yield from align_columns(
        [
            (
                value.name,
                value.type,
                show_bytes(value.nbytes),
                show_bytes(value.total_nbytes),
                " x ".join(map(str, value.shards)) or "1",
                str(value.copies),
                format_location(data, value.location),
            )
            for value in data.values
        ],
        ("value", "type", "on a device", "in total", "shards", "copies", "line"),
    )
