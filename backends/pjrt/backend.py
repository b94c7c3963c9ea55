"""Run partitioned programs on devices of PJRT: CPUs, GPUs, TPUs, and those of other plug-ins.

XLA compiles the program of each device at its first run, since only then is it known which
arguments results may overwrite.
"""

from collections.abc import Mapping, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any, final

from shardir.backends.base import Array, Shards
from shardir.backends.device_shards import DeviceBackend, DeviceExecutable, DeviceShards
from shardir.backends.key_words import view_as_elements, view_as_words
from shardir.backends.pjrt.program_text import PIPELINE, write_program
from shardir.backends.pjrt.runtime import (
    LoadedProgram,
    choose_devices,
    copy_shards,
    fetch_shard,
    how_to_add_devices,
    list_devices,
    put_shards,
    wait_for_array,
)
from shardir.cost.memory import MemoryEstimate
from shardir.ir.module import Module
from shardir.ir.types import NumpyDType, TensorType

if TYPE_CHECKING:
    import jax


@final
class PJRTBackend(DeviceBackend):
    """Runs programs on the devices of JAX's default platform."""

    name = "pjrt"
    pipeline = PIPELINE

    def device_count(self) -> int:
        """Return the number of devices; raise `PJRTError` without jaxlib."""
        return len(list_devices())

    def device_kind(self, id: int) -> str:
        return str(choose_devices([id])[0].device_kind)

    def how_to_add_devices(self, count: int) -> str:
        return how_to_add_devices(count)

    def compile_for(
        self, module: Module, ids: Sequence[int], results: Sequence[TensorType] | None = None
    ) -> "PJRTProgram":
        return PJRTProgram(module, ids, results)


BACKEND = PJRTBackend()

SOLE_REFERENCES = 3
"""The references to shards that one array and a list of arguments hold, in a call of
`getrefcount`."""


@final
class PJRTShards(DeviceShards):
    """The shards of one tensor in device memory, as one array of JAX."""

    def __init__(
        self,
        array: "jax.Array",
        devices: "tuple[jax.Device, ...]",
        dtype: NumpyDType,
        host: Sequence[Array | None] | None = None,
    ) -> None:
        """Keep the shards of `devices`; `host` are copies in host memory."""
        self.array, self.devices, self._dtype = array, devices, dtype
        self._host: list[Array | None] = [None] * len(devices) if host is None else list(host)

    def wait(self) -> None:
        wait_for_array(self.array)

    def __len__(self) -> int:
        return len(self.devices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if self._host[index] is None:
            elements = fetch_shard(self.array, self.devices[index])
            self._host[index] = view_as_elements(elements, self._dtype)
        return self._host[index]


@final
class PJRTProgram(DeviceExecutable):
    """The program of each of the devices `ids`."""

    def __init__(
        self, module: Module, ids: Sequence[int], results: Sequence[TensorType] | None = None
    ) -> None:
        self._module, self._devices = module, tuple(choose_devices(ids))
        self._params = [param.type for param in module.main.body.params]
        self._results = [value.type for value in module.main.body.returns]
        self._host_results = self._results if results is None else list(results)
        self._overwritten: dict[int, int] = {}
        """The result that overwrites each donated argument."""
        self._text = write_program(module, {})
        self._loaded: LoadedProgram | None = None

    def _load(self) -> LoadedProgram:
        """Return the compiled program."""
        if self._loaded is None:
            name = self._module.main.name
            self._loaded = LoadedProgram(name, self._text, self._devices, self._results)
        return self._loaded

    def donate(self, donated: Sequence[int]) -> None:
        """Assign to each argument the first free result of its type."""
        self._overwritten = {}
        for number in donated:
            for result, type in enumerate(self._results):
                if type == self._params[number] and result not in self._overwritten.values():
                    self._overwritten[number] = result
                    break
        self._text, self._loaded = write_program(self._module, self._overwritten), None

    def overwritten_results(self, donated: Sequence[int]) -> Mapping[int, int]:
        return {
            result: len(self._devices) * self._results[result].nbytes
            for number, result in self._overwritten.items()
            if number in donated
        }

    def to_device(self, shards: Shards) -> DeviceShards:
        if isinstance(shards, PJRTShards) and shards.devices == self._devices:
            return shards
        host = list(shards)
        array = put_shards([view_as_words(each) for each in host], self._devices)
        return PJRTShards(array, self._devices, host[0].dtype, host)

    def run(self, args: Sequence[DeviceShards]) -> list[DeviceShards]:
        arrays = [self._argument(args, number) for number in range(len(args))]
        return [
            PJRTShards(array, self._devices, type.numpy)
            for array, type in zip(self._load().run(arrays), self._host_results, strict=True)
        ]

    def _argument(self, args: Sequence[DeviceShards], number: int) -> "jax.Array":
        """Return an argument, or a copy if a result overwrites it and other arrays share it."""
        is_shared = getrefcount(args[number]) > SOLE_REFERENCES
        shards = args[number]
        assert isinstance(shards, PJRTShards)
        if number in self._overwritten and is_shared:
            return copy_shards(shards.array, self._devices)
        return shards.array

    def memory(self) -> MemoryEstimate:
        arguments, results, temporaries = (
            len(self._devices) * count for count in self._load().memory_bytes()
        )
        peak = arguments + results + temporaries
        return MemoryEstimate(arguments, results, temporaries, peak)

    def describe(self) -> str:
        """Return the HLO text of XLA, in the order in which it runs."""
        return self._load().hlo_text()
