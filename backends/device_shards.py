"""Shards in device memory, which are copied to the host on demand.

Programs on such devices take the shards of arrays from device memory and leave the shards of their
results there. Other code receives them as NumPy arrays, one per device, that are fetched at the
first access.
"""

from abc import abstractmethod
from collections.abc import Sequence

from shardir.backends.base import Array, Backend, Executable, Shards, get_backend
from shardir.ir.module import Module, spmd_mesh_of
from shardir.ir.types import TensorType


class DeviceShards(Sequence[Array]):
    """The shards of one tensor in device memory."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until the data is computed."""


def wait_for(held: object) -> None:
    """Wait until the data that an array holds is computed."""
    if isinstance(held, DeviceShards):
        held.wait()


class DeviceExecutable(Executable):
    """A program that takes its arguments from, and leaves its results in, device memory.

    It returns before the results are computed. Results never share memory with host arrays.
    """

    @abstractmethod
    def to_device(self, shards: Shards) -> DeviceShards:
        """Return the shards in device memory; the same shards if they are there already."""

    @abstractmethod
    def run(self, args: Sequence[DeviceShards]) -> list[DeviceShards]:
        """Run on all devices; take the shards of each parameter and return the shards of each
        result."""

    def __call__(self, args: Sequence[Shards]) -> list[list[Array]]:
        """Run on shards in any memory; fetch the results."""
        return [list(result) for result in self.run([self.to_device(shards) for shards in args])]


class DeviceBackend(Backend):
    """A backend whose devices are hardware."""

    @abstractmethod
    def device_count(self) -> int:
        """Return the number of devices; raise a `ShardirError` if there are none."""

    @abstractmethod
    def device_kind(self, id: int) -> str:
        """Return the vendor's name of a device."""

    def how_to_add_devices(self, count: int) -> str:
        """Return how to make `count` devices available, for errors; empty if it is unknown."""
        return ""

    @abstractmethod
    def compile_for(
        self, module: Module, ids: Sequence[int], results: Sequence[TensorType] | None = None
    ) -> DeviceExecutable:
        """Compile a module like `compile`, for the devices `ids` in the order of its mesh.

        `results` are the types of the results on the host, if those of the module, which went
        through `pipeline`, differ: random keys of four words are arrays of words there.
        """

    def compile(self, module: Module) -> DeviceExecutable:
        if module.main.spmd is None:
            return self.compile_for(module, (0,))
        mesh = spmd_mesh_of(module)
        return self.compile_for(module, mesh.device_ids or range(mesh.size))


def get_device_backend(name: str) -> DeviceBackend:
    """Return the backend called `name`, which must be a `DeviceBackend`."""
    backend = get_backend(name)
    assert isinstance(backend, DeviceBackend)
    return backend
