"""Lists of idle blocks that have pages of their own, and which of them go back first."""

import time
from collections.abc import Callable, Iterator
from typing import final

SLACK = 1.25
"""Blocks that are this many times larger than asked for are good enough."""


class Idle(list[int]):
    """Addresses of idle blocks of a size, and since when they are idle."""

    def __init__(self) -> None:
        super().__init__()
        self.since: dict[int, float] = {}

    # The clock is a default because modules are emptied before the last blocks go.
    def append(self, address: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.since[address] = clock()
        super().append(address)


@final
class LargeBlocks:
    """The lists of a pool, by the sizes of blocks."""

    def __init__(self) -> None:
        self._homes: dict[int, Idle] = {}

    def home(self, size: int) -> Idle:
        """The list of a size; one of a slightly greater size if only that has an idle block."""
        home = self._homes.setdefault(size, Idle())
        if home:
            return home
        for other, blocks in self._homes.items():
            if size < other <= size * SLACK and blocks:
                return blocks
        return home

    def given_up(
        self, seconds: float, too_many: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[int, int]]:
        """Let go of blocks that were idle for so long, and of others as long as there are too many,
        those first that were idle longest; yields (address, size) of each."""
        latest = time.monotonic() - seconds
        for since, address, size in sorted(self._idle()):
            if (since <= latest or too_many()) and self._removed(address, size):
                yield address, size

    def idle_bytes(self) -> int:
        """How much memory nobody uses."""
        return sum(size * len(home) for size, home in self._homes.items())

    def _idle(self) -> list[tuple[float, int, int]]:
        return [
            (home.since.get(address, 0.0), address, size)
            for size, home in self._homes.items()
            for address in home.copy()
        ]

    def _removed(self, address: int, size: int) -> bool:
        home = self._homes[size]
        try:
            home.remove(address)
        except ValueError:  # Somebody uses it again.
            return False
        home.since.pop(address, None)
        return True
