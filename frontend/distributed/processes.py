"""Processes of a distributed program, and the devices that each owns.

There is one process until `shardir.distributed.initialize` connects to others. The devices are then
distributed in order of their ids: process 0 owns the first, the last process the last.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from shardir.backends.base import ProcessLink
from shardir.frontend.call_signatures import with_signature_errors


@dataclass(frozen=True)
class ProcessGroup:
    """All processes; `index` is this process, `devices` the number of devices of each."""

    index: int = 0
    devices: tuple[int, ...] = (0,)
    link: ProcessLink | None = None

    @property
    def count(self) -> int:
        return len(self.devices)

    @cached_property
    def _device_id_ends(self) -> tuple[int, ...]:
        return tuple(accumulate(self.devices))

    @property
    def device_count(self) -> int:
        return self._device_id_ends[-1]

    def owner_of(self, device: int) -> int:
        """Return the process that owns a device id. The last process owns all virtual devices
        beyond."""
        return min(bisect_right(self._device_id_ends, device), self.count - 1)

    def device_ids(self, process: int) -> range:
        """Return the ids of the devices of one process."""
        end = self._device_id_ends[process]
        return range(end - self.devices[process], end)


SINGLE_PROCESS = ProcessGroup()
"""A single process, which owns every device."""

_current_group = [SINGLE_PROCESS]


def process_group() -> ProcessGroup:
    """Return the current process group."""
    return _current_group[0]


def set_process_group(processes: ProcessGroup) -> None:
    """Set the process group, once in each process."""
    _current_group[0] = processes


@with_signature_errors
def process_index(backend: str | None = None) -> int:
    """Return the index of this process, from 0."""
    return process_group().index


@with_signature_errors
def process_count(backend: str | None = None) -> int:
    """Return the number of processes that run this program."""
    return process_group().count


@with_signature_errors
def process_indices(backend: str | None = None) -> list[int]:
    """Return the indices of all processes that run this program."""
    return list(range(process_group().count))
