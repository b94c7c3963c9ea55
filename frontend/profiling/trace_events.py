"""Profiles in Chrome's trace format, which Perfetto (ui.perfetto.dev) and chrome://tracing show."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shardir.backends.numpy.profiling import PYTHON_THREAD, Activity, Span
from shardir.frontend.profiling.activity_names import (
    activity_name,
    format_locations,
    is_collective_activity,
)

if TYPE_CHECKING:
    from shardir.frontend.profiling.profile_data import Profile


def trace_events(profile: "Profile") -> list[dict[str, Any]]:
    """Return the last run as events of Chrome's trace format."""
    run = profile.runs[-1]
    threads = sorted({span.thread for span in run.spans})
    tracks = {"calls": 0, "operations": 1} | {_track_name(t): 2 + i for i, t in enumerate(threads)}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": f"shardir {profile.name}"}}
    ]
    for name, number in tracks.items():
        named = {"ph": "M", "pid": 0, "tid": number, "args": {"name": name}}
        events += [
            {**named, "name": "thread_name"},
            {**named, "name": "thread_sort_index", "args": {"sort_index": number}},
        ]

    def add(name: str, track: str, begin: int, end: int, category: str = "", **args: Any) -> None:
        events.append(
            {
                "ph": "X",
                "pid": 0,
                "tid": tracks[track],
                "name": name,
                "cat": category or track,
                "ts": (begin - run.begin) / 1e3,
                "dur": (end - begin) / 1e3,
                "args": args,
            }
        )

    add(profile.name, "calls", run.begin, run.end)
    for spans in _group_by_execution(run.spans):
        activity = spans[0].activity
        begin, end = spans[0].begin, max(span.end for span in spans)
        args: dict[str, Any] = {"where": format_locations(activity.op)}
        if activity.memory:
            args["GB/s"] = round(activity.memory / max(end - begin, 1), 3)
        if activity.flops:
            args["Gflop/s"] = round(activity.flops / max(end - begin, 1), 3)
        category = "collective" if is_collective_activity(activity) else "operation"
        add(activity_name(activity), "operations", begin, end, category, **args)
    for span in run.spans:
        where = format_locations(span.activity.op)
        args = {"operation": activity_name(span.activity), "task": span.task, "where": where}
        add(span.label, _track_name(span.thread), span.begin, span.end, "task", **args)
    return events


def _group_by_execution(spans: Sequence[Span]) -> list[list[Span]]:
    """Return the spans of each execution of an operation, which are adjacent."""
    made: list[list[Span]] = []
    last: Activity | None = None
    for span in spans:
        if span.activity != last or (
            span.starts_activity and len(made[-1]) > 1 and made[-1][0].task == 0
        ):
            made.append([])
        made[-1].append(span)
        last = span.activity
    return made


def _track_name(thread: int) -> str:
    if thread == PYTHON_THREAD:
        return "numpy"
    if thread >= 1000:
        return f"other caller {thread - 999}"
    return f"worker {thread}" if thread else "worker 0 (caller)"
