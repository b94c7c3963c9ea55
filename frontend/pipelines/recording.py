"""Records of the actions that pipelines run: times, and the bytes that they send."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from shardir.passes.pipeline_parallelism.actions import Action, ActionKind
from shardir.passes.pipeline_parallelism.progress import RECEIVE_OF
from shardir.passes.pipeline_parallelism.simulation import PassTimes


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

    def pass_times(self) -> tuple[PassTimes, ...]:
        """Return the mean seconds of the passes of each stage."""
        seconds: dict[tuple[int, ActionKind], list[float]] = {}
        for event in self.events:
            key = event.action.stage, event.action.kind
            seconds.setdefault(key, []).append(event.end - event.start)

        def mean(stage: int, kind: ActionKind) -> float:
            found = seconds.get((stage, kind), ())
            return sum(found) / len(found) if found else 0.0

        return tuple(
            PassTimes(
                mean(stage, ActionKind.FORWARD),
                mean(stage, ActionKind.INPUT_GRADIENT) or mean(stage, ActionKind.BACKWARD),
                mean(stage, ActionKind.WEIGHT_GRADIENT),
            )
            for stage in range(1 + max((stage for stage, _ in seconds), default=-1))
        )

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
