"""The result of `profile`: runs, their activities, and a row for each operation.

A profile prints as a table, and is saved in Chrome's trace format, which Perfetto (ui.perfetto.dev)
and chrome://tracing show.

The first functions determine names, source locations and time spans of operations.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from shardir import ops
from shardir.backends.numpy.profiling import PYTHON_THREAD, Activity, Span
from shardir.display.html_elements import join, output, table, tag
from shardir.display.representation import abbreviate
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.profiling.trace_file import write_trace
from shardir.frontend.pytree_types import PyTree
from shardir.ir.module import Loc, Op

COLLECTIVE_PREFIXES = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-permute",
    "reduce-scatter",
)
"""Prefixes of the `why` text of operations that implement collectives."""

MAX_FUSED_NAME_CHARACTERS = 40
"""Maximum length of the operation names of a fused group, in characters."""


def covered_nanoseconds(spans: Sequence[Span]) -> int:
    """Return the nanoseconds in which at least one span was active; spans are ordered by begin."""
    total = until = 0
    for span in spans:
        total += max(0, span.end - max(span.begin, until))
        until = max(until, span.end)
    return total


def activity_name(activity: Activity) -> str:
    """Return the display name of an activity."""
    op = activity.op
    if op is None:
        return activity.why
    result = f"%{op.results[0].name} = " if op.results and op.results[0].name else ""
    name = op.name
    if op.spec is ops.fused and not activity.why:
        inner = (each.name for each in op.blocks[0].ops if each.spec is not ops.constant)
        names = ", ".join(dict.fromkeys(inner))
        is_short = len(names) <= MAX_FUSED_NAME_CHARACTERS
        name = f"fused({names if is_short else names[: MAX_FUSED_NAME_CHARACTERS - 3] + '...'})"
    return result + name + (f" ({activity.why})" if activity.why else "")


def is_collective_activity(activity: Activity) -> bool:
    """Return whether the activity belongs, at least in part, to a collective."""
    op = activity.op
    return (op is not None and op.spec.collective) or activity.why.startswith(COLLECTIVE_PREFIXES)


def format_locations(op: Op | None) -> str:
    """Return the source locations of an operation as text, at most three."""
    locs = [] if op is None else _operation_locations(op)
    names = list(dict.fromkeys(f"{Path(loc.file).name}:{loc.line}" for loc in locs))
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _operation_locations(op: Op) -> list[Loc]:
    inner = [loc for block in op.blocks for each in block.ops for loc in _operation_locations(each)]
    return ([op.loc] if op.loc is not None else []) + inner


@dataclass(frozen=True)
class ProfiledRun:
    """One call: its begin and end (`time.monotonic_ns`) and the activities in between.

    The first `lost` activities are missing where there were too many.
    """

    begin: int
    end: int
    spans: tuple[Span, ...]
    lost: int = 0

    def __repr__(self) -> str:
        return f"<ProfiledRun of {self.seconds:.3g} seconds, {len(self.spans):,} spans>"

    @property
    def seconds(self) -> float:
        return (self.end - self.begin) / 1e9


@dataclass(frozen=True)
class OperationProfile:
    """The cost of one operation of the program, as medians over the runs.

    `seconds` is the time from begin to end, `executions` the number in a run (more than one in
    loops); `memory` (bytes) and `flops` are totals over the executions. `busy` is the average
    fraction of that time in which workers were busy. `roofline_fraction` is the minimum time that
    this machine needs for the bytes or the arithmetic divided by the measured time (above 1: data
    came from caches), `None` where it is unknown.
    """

    name: str
    where: str
    seconds: float
    executions: int
    memory: int
    flops: int
    busy: float
    roofline_fraction: float | None


@with_method_errors
@dataclass(frozen=True)
class Profile:
    """The result of `profile`. `str` of it is a table; `save` writes a trace file.

    `first` is the time of the first call in seconds, including tracing and compilation. `workers`,
    `bandwidth` (bytes per second, of a copy) and `flops` (float32 operations per second) describe
    the machine; all are `None` where no native code runs.
    """

    name: str
    """The name of the function."""
    first: float
    """The time of the first call in seconds, including tracing and compilation."""
    runs: tuple[ProfiledRun, ...]
    """The profiled runs, in order."""
    workers: int | None
    """The number of worker threads; `None` where no native code runs."""
    bandwidth: float | None
    """The bytes per second of a copy in memory; `None` where no native code runs."""
    flops: float | None
    """The float32 operations per second of the machine; `None` where no native code runs."""
    rows: tuple[OperationProfile, ...] = ()
    """The cost of each operation of the program."""

    @property
    def seconds(self) -> float:
        """The median time of a call in seconds."""
        return median(run.seconds for run in self.runs)

    @property
    def outside(self) -> float:
        """Seconds of a call in which no operation ran: Python code and dispatch."""
        return median(run.seconds - covered_nanoseconds(run.spans) / 1e9 for run in self.runs)

    def save(self, path: str | Path) -> None:
        """Write the last run as a trace file for Perfetto (ui.perfetto.dev) or chrome://tracing.

        Raises `ProfilerError` if the file cannot be written.
        """
        text = json.dumps({"traceEvents": _trace_events(self)})
        write_trace(Path(path), text.encode())

    def __str__(self) -> str:
        return _format_table(self)

    def __repr__(self) -> str:
        return abbreviate(str(self))

    def _repr_html_(self) -> str:
        head, header, rows = _table_rows(self)
        shown = rows if len(rows) <= MAX_HTML_ROWS else [*rows[: MAX_HTML_ROWS - 1], rows[-1]]
        omitted = len(rows) - len(shown)
        return output(
            [tag("div", line) for line in head],
            table(header, map(_row_html, shown), left=2),
            tag("div", f"{omitted:,} rows omitted; print(x) shows all") if omitted else "",
        )


MAX_HTML_ROWS = 200
"""Maximum number of rows of a profile in HTML."""

Row = tuple[str, ...]


def _format_table(profile: Profile) -> str:
    """Return the operations as a table, the slowest first, below a summary."""
    lines, header, rows = _table_rows(profile)
    return "\n".join([*lines, "", *_align_columns([header, *rows])]) + "\n"


def _row_html(row: Row) -> list[str]:
    """Return the cells of a row; the share of the time is also a bar."""
    time, share, *others = row
    width = min(100.0, float(share.rstrip("%")))
    bar = tag("span", tag("span", style=f"width:{width:.1f}%"), class_="sd-bar")
    return [time, join([share, " ", bar]), *others]


def _table_rows(profile: Profile) -> tuple[list[str], Row, list[Row]]:
    """Return the summary in lines, the header of the table, and its rows."""
    minimum = min(run.seconds for run in profile.runs)
    runs = len(profile.runs)
    lines = [
        f"profile of {profile.name}: {_format_time(profile.seconds)} a call (median of {runs}, "
        f"minimum {_format_time(minimum)}); first call {_format_time(profile.first)}"
    ]
    if profile.workers and profile.bandwidth and profile.flops:
        lines.append(
            f"this machine: {profile.workers} workers, copies {profile.bandwidth / 1e9:.1f} GB/s, "
            f"float32 arithmetic {profile.flops / 1e9:.1f} Gflop/s"
        )
    if lost := max(run.lost for run in profile.runs):
        lines.append(f"a call has too many tasks to record: its first {lost:,} are missing below")
    total = profile.seconds
    header = ("time", "share", "GB/s", "Gflop/s", "of limit", "busy", "operation", "where")
    rows: list[Row] = []
    for row in profile.rows:
        rows.append(
            (
                _format_time(row.seconds),
                f"{row.seconds / total:.1%}",
                _format_rate(row.memory / row.seconds) if row.memory else "",
                _format_rate(row.flops / row.seconds) if row.flops else "",
                "" if row.roofline_fraction is None else f"{row.roofline_fraction:.0%}",
                f"{row.busy:.0%}",
                row.name + (f" x {row.executions}" if row.executions > 1 else ""),
                row.where,
            )
        )
    between = "between operations: Python, dispatch" + (", and missing tasks" if lost else "")
    rest = (
        _format_time(profile.outside),
        f"{profile.outside / total:.1%}",
        "",
        "",
        "",
        "",
        between,
        "",
    )
    return lines, header, [*rows, rest]


def _align_columns(table: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: numbers aligned right, the last two columns left."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for cells in table:
        right = [cell.rjust(width) for cell, width in zip(cells[:-2], widths, strict=False)]
        lines.append("  ".join([*right, cells[-2].ljust(widths[-2]), cells[-1]]).rstrip())
    return lines


def _format_rate(per_second: float) -> str:
    return f"{per_second / 1e9:.3g}"


def _format_time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}" if seconds < 1000 * scale else f"{seconds:.0f} s"
    return f"{seconds / 1e-9:.3g} ns"


def _trace_events(profile: Profile) -> list[dict[str, object]]:
    """Return the last run as events of Chrome's trace format."""
    run = profile.runs[-1]
    return run_events(profile.name, run, {"calls": [NamedSpan(profile.name, run.begin, run.end)]})


@dataclass(frozen=True)
class NamedSpan:
    """A named span of time (of `time.monotonic_ns`) beside the activities, with further facts."""

    name: str
    begin: int
    end: int
    args: Mapping[str, Any] = field(default_factory=dict)


def run_events(
    name: str, run: ProfiledRun, others: Mapping[str, Sequence[NamedSpan]]
) -> list[dict[str, Any]]:
    """Return a run as events of Chrome's trace format; `others` are spans for further tracks."""
    threads = sorted({span.thread for span in run.spans})
    names = [*others, "operations", *map(thread_name, threads)]
    tracks = {track: number for number, track in enumerate(names)}
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": f"shardir {name}"}}
    ]
    for track, number in tracks.items():
        named = {"ph": "M", "pid": 0, "tid": number, "args": {"name": track}}
        events += [
            {**named, "name": "thread_name"},
            {**named, "name": "thread_sort_index", "args": {"sort_index": number}},
        ]

    def add(
        name: str, track: str, begin: int, end: int, category: str, args: Mapping[str, PyTree]
    ) -> None:
        events.append(
            {
                "ph": "X",
                "pid": 0,
                "tid": tracks[track],
                "name": name,
                "cat": category,
                "ts": (begin - run.begin) / 1e3,
                "dur": (end - begin) / 1e3,
                "args": {**args},
            }
        )

    for track, spans_of_track in others.items():
        for each in spans_of_track:
            add(each.name, track, each.begin, each.end, track, each.args)
    for spans in _group_by_execution(run.spans):
        activity = spans[0].activity
        begin, end = spans[0].begin, max(span.end for span in spans)
        args: dict[str, Any] = {"where": format_locations(activity.op)}
        if activity.memory:
            args["GB/s"] = round(activity.memory / max(end - begin, 1), 3)
        if activity.flops:
            args["Gflop/s"] = round(activity.flops / max(end - begin, 1), 3)
        category = "collective" if is_collective_activity(activity) else "operation"
        add(activity_name(activity), "operations", begin, end, category, args)
    for span in run.spans:
        where = format_locations(span.activity.op)
        args = {"operation": activity_name(span.activity), "task": span.task, "where": where}
        add(span.label, thread_name(span.thread), span.begin, span.end, "task", args)
    return events


def _group_by_execution(spans: Sequence[Span]) -> list[list[Span]]:
    """Return the spans of each execution of an operation, which are adjacent."""
    result: list[list[Span]] = []
    last: Activity | None = None
    for span in spans:
        if span.activity != last or (
            span.starts_activity and len(result[-1]) > 1 and result[-1][0].task == 0
        ):
            result.append([])
        result[-1].append(span)
        last = span.activity
    return result


def thread_name(thread: int) -> str:
    """Return the display name of the thread of a span."""
    if thread == PYTHON_THREAD:
        return "numpy"
    if thread >= 1000:
        return f"other caller {thread - 999}"
    return f"worker {thread}" if thread else "worker 0 (caller)"
