"""The schedule of a report in Chrome's trace format, which Perfetto (ui.perfetto.dev) shows.

The process is one device, its threads are the lanes, and a counter shows the memory. Times are
microseconds.
"""

import json
from collections.abc import Iterator

from shardir.frontend.report.records import ReportData
from shardir.frontend.report.text import format_location

NANOSECONDS_PER_MICROSECOND = 1000


def to_trace_events(data: ReportData) -> str:
    """Return the estimated schedule as JSON."""
    whole = {"displayTimeUnit": "ns", "traceEvents": list(_events(data))}
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=True) + "\n"


def _events(data: ReportData) -> Iterator[dict[str, object]]:
    schedule = data.schedule
    yield {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": f"@{data.name}"}}
    for lane, name in enumerate(schedule.lanes):
        yield {"name": "thread_name", "ph": "M", "pid": 0, "tid": lane, "args": {"name": name}}
        yield {
            "name": "thread_sort_index", "ph": "M", "pid": 0, "tid": lane,
            "args": {"sort_index": lane},
        }  # fmt: skip
    collectives = {row.value: row for row in data.collectives}
    definitions = {row.name: row for row in data.definitions if row.function == data.name}
    for box in schedule.boxes:
        begin = box.start / NANOSECONDS_PER_MICROSECOND
        args: dict[str, object] = {"value": box.name}
        definition = definitions.get(box.name)
        if definition is not None and definition.location is not None:
            args["line"] = format_location(data, definition.location)
        if definition is not None and definition.why:
            args["why"] = definition.why
        if box.name in collectives:
            args["bytes sent"] = collectives[box.name].sent
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
