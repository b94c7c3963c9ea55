"""List scheduling of a block: the start of every operation, on one stream per resource.

Whenever streams are free, the operation with the longest remaining path begins among those whose
operands are available and whose streams are all free. Ties are broken by the longest path before
the operation, and then by a fingerprint of the computation; the position in the program decides
only between equal computations. The schedule thus does not depend on the order of operations that
commute: neither the order of independent computations nor the place of a `done`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING
from zlib import crc32

from shardir.cost.memory import used_by
from shardir.ir.module import Block, Op, Value
from shardir.passes.rewriting import has_nested_effect

if TYPE_CHECKING:
    from shardir.passes.simulation.work import Work


@dataclass(frozen=True, slots=True)
class Event:
    """One operation in a schedule; the times are picoseconds from the begin of its block."""

    op: Op
    work: "Work"
    start: int

    @property
    def end(self) -> int:
        return self.start + self.work.duration


def schedule_block(block: Block, works: Sequence["Work"]) -> list[Event]:
    """Return the events of a block, whose operations have the given work, by their start."""
    starts = _ListScheduler(block, works).run()
    events = [Event(*each) for each in zip(block.ops, works, starts, strict=True)]
    order = sorted(range(len(events)), key=lambda i: (starts[i], i))
    return [events[i] for i in order]


@dataclass(slots=True)
class _ListScheduler:
    """Scheduler of one block. Operations are identified by their index in the block."""

    block: Block
    works: Sequence["Work"]
    users: list[list[int]] = field(default_factory=list)
    dependences: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        definitions: dict[Value, int] = {}
        last = -1
        self.users = [[] for _ in self.block.ops]
        for i, op in enumerate(self.block.ops):
            needs = {definitions[value]: None for value in used_by(op) if value in definitions}
            if has_nested_effect(op):
                # Effects do not commute.
                if last >= 0:
                    needs[last] = None
                last = i
            self.dependences.append(list(needs))
            for j in needs:
                self.users[j].append(i)
            definitions.update(dict.fromkeys(op.results, i))

    def run(self) -> list[int]:
        """Return the start of each operation."""
        works, users = self.works, self.users
        ranks = self.ranks()
        by_rank = sorted(range(len(works)), key=ranks.__getitem__)
        unmet = [len(each) for each in self.dependences]
        starts = [0] * len(works)
        ready: dict[tuple[str, ...], list[int]] = {}
        busy: set[str] = set()
        running: list[tuple[int, int]] = []
        now = 0
        for i, count in enumerate(unmet):
            if not count:
                heappush(ready.setdefault(works[i].streams, []), ranks[i])

        def release_users(i: int) -> None:
            for user in users[i]:
                unmet[user] -= 1
                if not unmet[user]:
                    heappush(ready.setdefault(works[user].streams, []), ranks[user])

        while True:
            instant = ready.setdefault((), [])
            while instant:
                i = by_rank[heappop(instant)]
                starts[i] = now
                release_users(i)
            startable = [
                (heap[0], streams)
                for streams, heap in ready.items()
                if heap and busy.isdisjoint(streams)
            ]
            if startable:
                rank, streams = min(startable)
                heappop(ready[streams])
                i = by_rank[rank]
                starts[i] = now
                busy.update(streams)
                heappush(running, (now + works[i].duration, rank))
            elif running:
                now = running[0][0]
                while running and running[0][0] == now:
                    i = by_rank[heappop(running)[1]]
                    busy.difference_update(works[i].streams)
                    release_users(i)
            else:
                return starts

    def ranks(self) -> list[int]:
        """Return the position of each operation in the order of priorities."""
        works, count = self.works, len(self.works)
        remaining = [0] * count
        for i in reversed(range(count)):
            longest = max((remaining[user] for user in self.users[i]), default=0)
            remaining[i] = works[i].duration + longest
        before = [0] * count
        fingerprints = [0] * count
        prints = {value: i for i, value in enumerate(self.block.params)}
        for i, op in enumerate(self.block.ops):
            before[i] = max((before[j] + works[j].duration for j in self.dependences[i]), default=0)
            types = ",".join(map(str, (value.type for value in op.results)))
            operands = ",".join(str(prints.get(value, "")) for value in op.operands)
            fingerprints[i] = crc32(f"{op.name}:{types}:{operands}".encode())
            prints.update((value, fingerprints[i] + k) for k, value in enumerate(op.results))
        order = sorted(range(count), key=lambda i: (-remaining[i], before[i], fingerprints[i], i))
        ranks = [0] * count
        for rank, i in enumerate(order):
            ranks[i] = rank
        return ranks
