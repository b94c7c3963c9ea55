"""Plans for row exchange: rounds in which every device sends and receives at most once.

The functions only plan: they work on positions along the axes that shard a dimension, and on row
indices.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class RowRun(NamedTuple):
    """`length` global rows from `start` on, stored from `offset` on in a device's rows."""

    offset: int
    start: int
    length: int

    def is_continued_by(self, offset: int, start: int) -> bool:
        """Return whether a run with this offset and start continues this one."""
        return (offset, start) == (self.offset + self.length, self.start + self.length)


RowRuns = Sequence[Sequence[RowRun]]
"""The runs of every device, by its position along the axes."""


class RowTransfer(NamedTuple):
    """A transfer of `length` rows from `source` in the sender to `target` in the receiver."""

    sender: int
    receiver: int
    source: int
    target: int
    length: int


@dataclass(frozen=True)
class ExchangeRound:
    """Transfers in which every device sends and receives at most one block of `length` rows.

    The block contains the rows of the transfer, and adjacent rows that are ignored.
    """

    transfers: tuple[RowTransfer, ...]
    sources: tuple[int, ...]
    """The start of the block in the sender's rows, for each transfer."""
    length: int

    @property
    def targets(self) -> tuple[int, ...]:
        """The start of the block in the receiver's rows, which may be out of bounds."""
        return tuple(
            edge.target - edge.source + source
            for edge, source in zip(self.transfers, self.sources, strict=True)
        )

    @property
    def is_local(self) -> bool:
        return all(edge.sender == edge.receiver for edge in self.transfers)

    @property
    def is_static(self) -> bool:
        """Return whether the block has the same position on all devices."""
        return len(set(self.sources)) == 1 and len(set(self.targets)) == 1


def block_runs(size: int, block: int, count: int) -> list[list[RowRun]]:
    """Return the rows of each of `count` devices that hold `size` rows in blocks; the last may be
    short.
    """
    return [
        [RowRun(0, i * block, rows)] if (rows := min(block, size - i * block)) > 0 else []
        for i in range(count)
    ]


def plan_transfers(
    owned_rows: RowRuns, needed_rows: RowRuns, *, local: bool = False
) -> Iterator[RowTransfer]:
    """Yield a transfer for each needed row that a device owns.

    With `local`, all devices have the rows `owned_rows[0]`.
    """
    owners = sorted((run.start, j, run) for j, runs in enumerate(owned_rows) for run in runs)
    starts = [start for start, _, _ in owners]
    for i, runs in enumerate(needed_rows):
        for run in runs:
            end = run.start + run.length
            for start, j, own in owners[max(bisect_right(starts, run.start) - 1, 0) :]:
                if start >= end:
                    break
                first, last = max(start, run.start), min(start + own.length, end)
                if first < last:
                    source = own.offset + first - start
                    target = run.offset + first - run.start
                    yield RowTransfer(i if local else j, i, source, target, last - first)


def plan_rounds(edges: Sequence[RowTransfer], rows: int) -> list[ExchangeRound]:
    """Return the transfers in rounds; the better of two groupings by the total number of rows."""
    if not edges:
        return []
    return min(
        (_group_by_shift(edges), _group_first_fit(edges, rows)),
        key=lambda rounds: (sum(step.length for step in rounds), len(rounds)),
    )


class _TransferGroup:
    """Transfers in which every device sends at most once and receives at most once."""

    def __init__(self) -> None:
        self.edges: list[RowTransfer] = []
        self.senders: set[int] = set()
        self.receivers: set[int] = set()

    def try_add(self, edge: RowTransfer) -> bool:
        """Add the transfer if its sender and receiver are free; return whether it was added."""
        if edge.sender in self.senders or edge.receiver in self.receivers:
            return False
        self.edges.append(edge)
        self.senders.add(edge.sender)
        self.receivers.add(edge.receiver)
        return True


def _add_to_groups(edge: RowTransfer, groups: list[_TransferGroup]) -> None:
    if not any(group.try_add(edge) for group in groups):
        groups.append(_TransferGroup())
        groups[-1].try_add(edge)


def _group_by_shift(edges: Sequence[RowTransfer]) -> list[ExchangeRound]:
    """Group transfers by their shift; the block spans the rows of all transfers."""
    classes: dict[int, list[_TransferGroup]] = {}
    for edge in edges:
        _add_to_groups(edge, classes.setdefault(edge.target - edge.source, []))
    rounds = []
    for group in (group for groups in classes.values() for group in groups):
        start = min(edge.source for edge in group.edges)
        stop = max(edge.source + edge.length for edge in group.edges)
        rounds.append(ExchangeRound(tuple(group.edges), (start,) * len(group.edges), stop - start))
    return rounds


def _group_first_fit(edges: Sequence[RowTransfer], rows: int) -> list[ExchangeRound]:
    """Put long transfers first, each into the first round in which both devices are free."""
    groups: list[_TransferGroup] = []
    for edge in sorted(edges, key=lambda edge: -edge.length):
        _add_to_groups(edge, groups)
    rounds = []
    for group in groups:
        length = max(edge.length for edge in group.edges)
        sources = tuple(min(edge.source, rows - length) for edge in group.edges)
        rounds.append(ExchangeRound(tuple(group.edges), sources, length))
    return rounds


def merge_local(local: list[ExchangeRound], remote: list[ExchangeRound]) -> list[ExchangeRound]:
    """Merge local rows into the only remote permute if they form one block with it."""
    if len(local) == len(remote) == 1 and local[0].length == remote[0].length:
        edges = (*local[0].transfers, *remote[0].transfers)
        both = ExchangeRound(edges, (*local[0].sources, *remote[0].sources), local[0].length)
        once = all(len({edge[end] for edge in edges}) == len(edges) for end in (0, 1))
        if once and both.is_static:
            return [both]
    return [*local, *remote]


def are_disjoint(steps: Sequence[ExchangeRound], size: int) -> bool:
    """Return whether blocks in ascending order fit into `size` rows without overlapping."""
    at = 0
    for step in steps:
        if step.targets[0] < at:
            return False
        at = step.targets[0] + step.length
    return at <= size


def is_zero_elsewhere(steps: Sequence[ExchangeRound], needed_rows: RowRuns) -> bool:
    """Return whether missing rows are zero without masking: no received block covers them."""
    for step in steps:
        edges = {edge.receiver: edge for edge in step.transfers}
        start, stop = step.targets[0], step.targets[0] + step.length
        for i, runs in enumerate(needed_rows):
            edge = edges.get(i)
            if edge is None and not step.is_local:
                continue  # A device that receives nothing in a collective-permute gets zeros.
            for run in runs:
                low, high = max(start, run.offset), min(stop, run.offset + run.length)
                if edge is None:
                    if low < high:
                        return False
                elif low < high and (low < edge.target or high > edge.target + edge.length):
                    return False
    return True
