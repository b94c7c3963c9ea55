"""Schedules in Chrome's trace format, which Perfetto (ui.perfetto.dev) shows.

The process is one device, its threads are the lanes, and a counter shows the memory. Times are
microseconds.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from shardir.frontend.report.records import BoxRecord, ReportData
from shardir.frontend.report.text import format_location

NANOSECONDS_PER_MICROSECOND = 1000


def to_trace_events(data: ReportData) -> str:
    """Return the estimated schedule of a report as JSON."""
    collectives = {row.value: row for row in data.collectives}
    definitions = {row.name: row for row in data.definitions if row.function == data.name}

    def describe(box: BoxRecord) -> dict[str, object]:
        args: dict[str, object] = {}
        definition = definitions.get(box.name)
        if definition is not None and definition.location is not None:
            args["line"] = format_location(data, definition.location)
        if definition is not None and definition.why:
            args["why"] = definition.why
        if box.name in collectives:
            args["bytes sent"] = collectives[box.name].sent
        return args

    return write_trace_events(data.name, data.schedule.lanes, data.schedule.boxes, describe)


def write_trace_events(
    program: str,
    lanes: Sequence[str],
    boxes: Iterable[BoxRecord],
    describe: Callable[[BoxRecord], dict[str, object]],
) -> str:
    """Return a schedule as JSON; `describe` returns more arguments of a box."""
    events = [*_lane_events(program, lanes)]
    for box in boxes:
        events += _box_events(box, {"value": box.name, **describe(box)})
    whole = {"displayTimeUnit": "ns", "traceEvents": events}
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=True) + "\n"


def _lane_events(program: str, lanes: Sequence[str]) -> Iterator[dict[str, object]]:
    yield {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": f"@{program}"}}
    for lane, name in enumerate(lanes):
        yield {"name": "thread_name", "ph": "M", "pid": 0, "tid": lane, "args": {"name": name}}
        yield {
            "name": "thread_sort_index", "ph": "M", "pid": 0, "tid": lane,
            "args": {"sort_index": lane},
        }  # fmt: skip


def _box_events(box: BoxRecord, args: dict[str, object]) -> Iterator[dict[str, object]]:
    begin = box.start / NANOSECONDS_PER_MICROSECOND
    yield {
        "name": f"{box.op} {box.name}",
        "ph": "X",
        "pid": 0,
        "tid": box.lane,
        "ts": begin,
        "dur": box.duration / NANOSECONDS_PER_MICROSECOND,
        "args": args,
    }
    yield {"name": "memory", "ph": "C", "pid": 0, "ts": begin, "args": {"bytes": box.alive}}
