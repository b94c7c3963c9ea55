"""What `profile` found: runs, what happened in them, and a row for each operation."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from shardir.backends.cpu.profiling import Span
from shardir.frontend.profile_names import covered
from shardir.frontend.profile_table import table_of
from shardir.frontend.profile_trace import events_of


@dataclass(frozen=True)
class Run:
    """One call: when it began and ended (`time.monotonic_ns`), and what happened in between, but
    for its first `lost` tasks, where it had too many."""

    begin: int
    end: int
    spans: tuple[Span, ...]
    lost: int = 0

    @property
    def seconds(self) -> float:
        return (self.end - self.begin) / 1e9


@dataclass(frozen=True)
class Row:
    """What one operation of the program took: medians over the runs.

    `seconds` from its begins to its ends, `executions` in a run (more than one in loops), `memory`
    and `flops` all of them together. `busy` is the part of that time that workers worked, on
    average; `reached` the least time that this machine needs for the bytes or the arithmetic by
    the time it took (above 1: from caches), `None` where that is not known.
    """

    name: str
    where: str
    seconds: float
    executions: int
    memory: int
    flops: int
    busy: float
    reached: float | None


@dataclass(frozen=True)
class Profile:
    """What `profile` found. `str` of it is the table; `save` writes the trace.

    `first` is how many seconds the first call took, with tracing and compiling. `workers`,
    `bandwidth` (bytes per second, of a copy) and `flops` (float32 operations per second) are the
    machine's, all `None` where no machine code runs.
    """

    name: str
    first: float
    runs: tuple[Run, ...]
    workers: int | None
    bandwidth: float | None
    flops: float | None
    rows: tuple[Row, ...] = ()

    @property
    def seconds(self) -> float:
        """The median time of a call."""
        return median(run.seconds for run in self.runs)

    @property
    def outside(self) -> float:
        """Seconds of a call in which no operation ran: Python, and handing over."""
        return median(run.seconds - covered(run.spans) / 1e9 for run in self.runs)

    def save(self, path: str | Path) -> None:
        """Write the last run as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing."""
        Path(path).write_text(json.dumps({"traceEvents": events_of(self)}), "utf-8")

    def __str__(self) -> str:
        return table_of(self)
