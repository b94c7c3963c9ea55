"""The parts of the time of a block: computation, exposed and hidden communication, and bubbles.

At each moment the block computes, or else it waits for transfers (exposed communication), or else
nothing runs (a bubble). The transfers of an axis are hidden while the block computes, and exposed
at all other times. Transfers along two axes may be exposed at the same time; the total counts this
time once, so that computation, total and bubbles add up to the duration.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from shardir.passes.simulation.list_scheduler import Event

Interval = tuple[int, int]
Times = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Times in picoseconds: `compute` by kind, `exposed` and `hidden` communication by axes.

    `collectives` are the times of the collectives by kind.
    """

    duration: int = 0
    compute: Times = field(default_factory=dict)
    exposed: Times = field(default_factory=dict)
    hidden: Times = field(default_factory=dict)
    collectives: Times = field(default_factory=dict)
    exposed_total: int = 0
    bubbles: int = 0

    def __add__(self, other: "Breakdown") -> "Breakdown":
        """Return the parts of two blocks that run after each other."""
        return Breakdown(
            self.duration + other.duration,
            _sum((self.compute, other.compute)),
            _sum((self.exposed, other.exposed)),
            _sum((self.hidden, other.hidden)),
            _sum((self.collectives, other.collectives)),
            self.exposed_total + other.exposed_total,
            self.bubbles + other.bubbles,
        )

    def __mul__(self, times: int) -> "Breakdown":
        """Return the parts of a block that runs several times."""
        return Breakdown(
            self.duration * times,
            _scale(self.compute, times),
            _scale(self.exposed, times),
            _scale(self.hidden, times),
            _scale(self.collectives, times),
            self.exposed_total * times,
            self.bubbles * times,
        )


def break_down(events: Sequence[Event], nested: Mapping[Event, Breakdown]) -> Breakdown:
    """Return the parts of the time of a block.

    `nested` has the parts of events that run blocks; transfers of this block are hidden while such
    an event runs.
    """
    computing: list[Interval] = []
    transfers: list[Event] = []
    compute: dict[str, int] = {}
    for event in events:
        if not event.work.streams:
            continue
        if event.work.is_transfer:
            transfers.append(event)
            continue
        computing.append((event.start, event.end))
        if event not in nested:
            kind = event.work.kind
            compute[kind] = compute.get(kind, 0) + event.work.duration
    covered = _Cover(computing)
    exposed: dict[str, int] = {}
    hidden: dict[str, int] = {}
    collectives: dict[str, int] = {}
    for event in transfers:
        axes, duration = event.work.axes, event.work.duration
        overlap = covered.overlap(event.start, event.end)
        exposed[axes] = exposed.get(axes, 0) + duration - overlap
        hidden[axes] = hidden.get(axes, 0) + overlap
        kind = event.work.kind
        collectives[kind] = collectives.get(kind, 0) + duration
    merged = _merge((event.start, event.end) for event in transfers)
    exposed_total = sum(end - start - covered.overlap(start, end) for start, end in merged)
    duration = max((event.end for event in events), default=0)
    own = Breakdown(
        duration, compute, exposed, hidden, collectives, exposed_total,
        duration - covered.total - exposed_total,
    )  # fmt: skip
    inner = sum(nested.values(), Breakdown())
    both = own + inner
    return Breakdown(
        duration, both.compute, both.exposed, both.hidden, both.collectives,
        both.exposed_total, both.bubbles,
    )  # fmt: skip


class _Cover:
    """Disjoint intervals in increasing order, with the sum of their lengths up to each."""

    def __init__(self, intervals: Sequence[Interval]) -> None:
        self.starts = [start for start, _ in intervals]
        self.ends = [end for _, end in intervals]
        self.sums = [0, *accumulate(end - start for start, end in intervals)]
        self.total = self.sums[-1]

    def overlap(self, start: int, end: int) -> int:
        """Return the length of the intersection with an interval."""
        return self._before(end) - self._before(start)

    def _before(self, time: int) -> int:
        """Return the covered length before a time."""
        count = bisect_right(self.starts, time)
        if not count:
            return 0
        return self.sums[count] - max(self.ends[count - 1] - time, 0)


def _merge(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals as disjoint intervals."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _sum(some: Iterable[Times]) -> dict[str, int]:
    result: dict[str, int] = {}
    for each in some:
        for key, value in each.items():
            result[key] = result.get(key, 0) + value
    return result


def _scale(some: Times, factor: int) -> dict[str, int]:
    return {key: value * factor for key, value in some.items()}
