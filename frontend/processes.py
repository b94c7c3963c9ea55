"""Processes: which of them this one is, and whose the devices are.

There is one process until `shardir.distributed.initialize` finds others. The devices are then
dealt out in order of their ids: process 0 has the first, the last process the last.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from shardir.backends.base import Link


@dataclass(frozen=True)
class Processes:
    """All processes, seen from the one at `index`; `devices` counts those of each."""

    index: int = 0
    devices: tuple[int, ...] = (0,)
    link: Link | None = None

    @property
    def count(self) -> int:
        return len(self.devices)

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        return tuple(accumulate(self.devices))

    @property
    def device_count(self) -> int:
        return self._ends[-1]

    def owner(self, device: int) -> int:
        """The process that has the device of this id; virtual ones beyond the last are its."""
        return min(bisect_right(self._ends, device), self.count - 1)

    def ids(self, process: int) -> range:
        """The ids of the devices of one process."""
        end = self._ends[process]
        return range(end - self.devices[process], end)


ALONE = Processes()
"""One process, which has every device there is."""

_here = [ALONE]


def here() -> Processes:
    """The processes that there are."""
    return _here[0]


def join(processes: Processes) -> None:
    """From now on there are these; once for each process."""
    _here[0] = processes


def process_index() -> int:
    """Which of the processes this is, counted from 0."""
    return here().index


def process_count() -> int:
    """How many processes run this program."""
    return here().count
