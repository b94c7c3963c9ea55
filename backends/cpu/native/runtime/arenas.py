"""Arenas: memory out of which small blocks are cut, which may go back when all of them are idle."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import final


@final
class Arenas:
    """Where arenas begin, and how many bytes of each were cut out of it."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._cut: dict[int, int] = {}
        self._free, self._end = 0, 0

    @property
    def mapped(self) -> int:
        """Bytes of all of them."""
        return len(self._cut) * self.nbytes

    @property
    def cut(self) -> int:
        """Bytes that were cut out of them."""
        return sum(self._cut.values())

    def has(self, size: int) -> bool:
        """Whether so much can be cut out of the latest."""
        return self._end - self._free >= size

    def add(self, start: int) -> None:
        """Cut out of new memory from now on."""
        self._cut[start] = 0
        self._free, self._end = start, start + self.nbytes

    def take(self, size: int) -> int:
        """Cut so much out of the latest, which has it."""
        address = self._free
        self._free += size
        self._cut[self._end - self.nbytes] += size
        return address

    def unused(self, idle: Iterable[tuple[int, int]]) -> list[range]:
        """The arenas all of whose blocks are among those at (address, of so many bytes); the
        latest is none of them, so that few bytes never need a whole one again."""
        starts = sorted(self._cut)
        found: Counter[int] = Counter()
        for address, size in idle:
            found[starts[bisect_right(starts, address) - 1]] += size
        latest = self._end - self.nbytes
        return [
            range(start, start + self.nbytes)
            for start in starts
            if found[start] == self._cut[start] and start != latest
        ]

    def forget(self, arena: range) -> None:
        """Know nothing of an arena any more."""
        del self._cut[arena.start]
