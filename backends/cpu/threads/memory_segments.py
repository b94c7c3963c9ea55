"""Memory segments: regions for small blocks, returned to the system when all blocks are idle."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import final


@final
class MemorySegments:
    """The start addresses of segments, and the number of allocated bytes of each."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._allocated: dict[int, int] = {}
        self._free, self._end = 0, 0

    @property
    def mapped_bytes(self) -> int:
        """The size of all segments in bytes."""
        return len(self._allocated) * self.nbytes

    @property
    def allocated_bytes(self) -> int:
        """The bytes that are allocated in segments."""
        return sum(self._allocated.values())

    def can_allocate(self, size: int) -> bool:
        """Return whether the latest segment has `size` free bytes."""
        return self._end - self._free >= size

    def add(self, start: int) -> None:
        """Add new memory, from which later blocks are allocated."""
        self._allocated[start] = 0
        self._free, self._end = start, start + self.nbytes

    def allocate(self, size: int) -> int:
        """Allocate `size` bytes in the latest segment, which must have them."""
        address = self._free
        self._free += size
        self._allocated[self._end - self.nbytes] += size
        return address

    def find_idle_segments(self, idle: Iterable[tuple[int, int]]) -> list[range]:
        """Return the segments whose blocks are all among `idle`, given as (address, bytes).

        The latest segment is never among them, so that a small allocation does not map a new one.
        """
        starts = sorted(self._allocated)
        found: Counter[int] = Counter()
        for address, size in idle:
            found[starts[bisect_right(starts, address) - 1]] += size
        latest = self._end - self.nbytes
        return [
            range(start, start + self.nbytes)
            for start in starts
            if found[start] == self._allocated[start] and start != latest
        ]

    def remove(self, segment: range) -> None:
        """Remove a segment from the list."""
        del self._allocated[segment.start]
