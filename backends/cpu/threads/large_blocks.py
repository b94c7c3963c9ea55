"""Free lists of large blocks, which have pages of their own, and the order of their eviction."""

import time
from collections.abc import Callable, Iterator
from typing import final

MAX_SIZE_RATIO = 1.25
"""A block may be larger than requested by this ratio."""


class IdleBlocks(list[int]):
    """The addresses of idle blocks of a size, and the times since when they are idle."""

    def __init__(self) -> None:
        super().__init__()
        self.idle_since: dict[int, float] = {}

    # The clock is a default argument because Python empties modules before it drops the last
    # blocks.
    def append(self, address: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.idle_since[address] = clock()
        super().append(address)


@final
class LargeBlocks:
    """The free lists of a pool, by block size."""

    def __init__(self) -> None:
        self._free_lists: dict[int, IdleBlocks] = {}

    def free_list(self, size: int) -> IdleBlocks:
        """Return the free list of a size, or that of a slightly larger size if only that one has a
        block."""
        home = self._free_lists.setdefault(size, IdleBlocks())
        if home:
            return home
        for other, blocks in self._free_lists.items():
            if size < other <= size * MAX_SIZE_RATIO and blocks:
                return blocks
        return home

    def evict(
        self, seconds: float, too_many: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[int, int]]:
        """Remove blocks that were idle for `seconds`, and others as long as there are too many.

        Blocks that were idle longest come first. Yields (address, size) of each.
        """
        latest = time.monotonic() - seconds
        for since, address, size in sorted(self._idle_blocks()):
            if (since <= latest or too_many()) and self._remove(address, size):
                yield address, size

    def idle_bytes(self) -> int:
        """Return the bytes of idle blocks."""
        return sum(size * len(home) for size, home in self._free_lists.items())

    def _idle_blocks(self) -> list[tuple[float, int, int]]:
        return [
            (home.idle_since.get(address, 0.0), address, size)
            for size, home in self._free_lists.items()
            for address in home.copy()
        ]

    def _remove(self, address: int, size: int) -> bool:
        home = self._free_lists[size]
        try:
            home.remove(address)
        except ValueError:  # Another thread uses the block again.
            return False
        home.idle_since.pop(address, None)
        return True
