"""Shards in the memory of devices, which the host reads only when it has to.

Programs on such devices take the shards of arrays where they are, and leave those of their results
there. To everybody else they are NumPy arrays, one a device, that are fetched when first looked at.
"""

from abc import abstractmethod
from collections.abc import Sequence

from shardir.backends.base import Array, Backend, Executable, Shards, get_backend


class DeviceShards(Sequence[Array]):
    """What each device holds of one tensor."""

    @abstractmethod
    def wait(self) -> None:
        """Return once the numbers are there."""


def wait_for(held: object) -> None:
    """Return once what an array holds is there."""
    if isinstance(held, DeviceShards):
        held.wait()


class DeviceExecutable(Executable):
    """A program that takes its arguments, and leaves its results, in the memory of devices.

    It returns before they are computed. Results never share memory with arrays of the host.
    """

    @abstractmethod
    def keep(self, shards: Shards) -> DeviceShards:
        """Shards in the memory of the devices, the very same ones if they are there already."""

    @abstractmethod
    def run(self, args: Sequence[DeviceShards]) -> list[DeviceShards]:
        """Run on all devices: for each parameter its shards in, for each result its shards out."""

    def __call__(self, args: Sequence[Shards]) -> list[list[Array]]:
        """Run on shards that may be anywhere; the results are fetched."""
        return [list(result) for result in self.run([self.keep(shards) for shards in args])]


class DeviceBackend(Backend):
    """A backend whose devices are hardware."""

    @abstractmethod
    def device_count(self) -> int:
        """How many of them there are; raises a `ShardirError` where there are none."""

    @abstractmethod
    def device_kind(self, id: int) -> str:
        """What the maker calls a device."""


def get_device_backend(name: str) -> DeviceBackend:
    """The backend called `name`, which has devices of its own."""
    backend = get_backend(name)
    assert isinstance(backend, DeviceBackend)
    return backend
