"""Records of the actions that pipelines run: times, and the bytes that they send."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from shardir.passes.pipeline_parallelism.actions import Action
from shardir.passes.pipeline_parallelism.progress import RECEIVE_OF


@dataclass(frozen=True)
class PipelineEvent:
    """One action that a rank ran."""

    rank: int
    """The row of devices."""
    action: Action
    """The action."""
    start: float
    """The start in seconds of `time.perf_counter`."""
    end: float
    """The end in seconds of `time.perf_counter`."""
    nbytes: int = 0
    """The bytes that a send sent."""


@dataclass
class PipelineRecord:
    """The actions that pipelines ran, in the order of their ends."""

    events: list[PipelineEvent] = field(default_factory=list)
    """The actions."""

    @property
    def sends(self) -> list[PipelineEvent]:
        """The sends between rows."""
        return [event for event in self.events if event.action.kind in RECEIVE_OF]

    def seconds(self, rank: int) -> float:
        """Return the time in which a rank ran actions."""
        return sum(event.end - event.start for event in self.events if event.rank == rank)


_records: list[PipelineRecord] = []


def record_event(event: PipelineEvent) -> None:
    """Add an action to the open records."""
    for record in _records:
        record.events.append(event)


@contextmanager
def record_pipelines() -> Iterator[PipelineRecord]:
    """Record the actions that pipelines run inside the `with` block."""
    record = PipelineRecord()
    _records.append(record)
    try:
        yield record
    finally:
        _records.remove(record)
