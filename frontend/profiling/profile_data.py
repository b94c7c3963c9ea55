"""The result of `profile`: runs, their activities, and a row for each operation."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from shardir.backends.numpy.profiling import Span
from shardir.frontend.profiling.activity_names import covered_nanoseconds
from shardir.frontend.profiling.table import format_table
from shardir.frontend.profiling.trace_events import trace_events


@dataclass(frozen=True)
class ProfiledRun:
    """One call: its begin and end (`time.monotonic_ns`) and the activities in between.

    The first `lost` activities are missing where there were too many.
    """

    begin: int
    end: int
    spans: tuple[Span, ...]
    lost: int = 0

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


@dataclass(frozen=True)
class Profile:
    """The result of `profile`. `str` of it is a table; `save` writes a trace file.

    `first` is the time of the first call in seconds, including tracing and compilation. `workers`,
    `bandwidth` (bytes per second, of a copy) and `flops` (float32 operations per second) describe
    the machine; all are `None` where no native code runs.
    """

    name: str
    first: float
    runs: tuple[ProfiledRun, ...]
    workers: int | None
    bandwidth: float | None
    flops: float | None
    rows: tuple[OperationProfile, ...] = ()

    @property
    def seconds(self) -> float:
        """The median time of a call in seconds."""
        return median(run.seconds for run in self.runs)

    @property
    def outside(self) -> float:
        """Seconds of a call in which no operation ran: Python code and dispatch."""
        return median(run.seconds - covered_nanoseconds(run.spans) / 1e9 for run in self.runs)

    def save(self, path: str | Path) -> None:
        """Write the last run as a trace file for Perfetto (ui.perfetto.dev) or chrome://tracing."""
        Path(path).write_text(json.dumps({"traceEvents": trace_events(self)}), "utf-8")

    def __str__(self) -> str:
        return format_table(self)
