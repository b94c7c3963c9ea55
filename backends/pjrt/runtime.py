"""Devices, buffers and programs of PJRT, the device interface of XLA: all uses of jax and jaxlib.

Devices are those of JAX's default platform in this process, so they share their memory with
programs of JAX. A tensor is one array of JAX, whose parts are the shards of the devices: the array
claims that all devices hold the same elements, because replicas have no common shape.

jaxlib has no public function that compiles text; the private names below have changed between
versions. `TESTED_VERSIONS` lists those with which all tests pass.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar, final

import numpy as np
import numpy.typing as npt

from shardir.backends.base import Array
from shardir.errors import ShardirError, count_noun
from shardir.ir.types import TensorType

if TYPE_CHECKING:
    import jax
    from jaxlib import _jax

TESTED_VERSIONS: Final = {
    "0.10.1": ("cpu",),
    "0.10.2": ("cpu",),
    "0.11.2": ("cpu",),
    "0.12.0": ("cpu",),
}
"""The tested versions of jaxlib, and the platforms on which they were tested."""

CPU_OPTIONS: Final = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",
}
"""The options of XLA for programs on CPUs. By default, XLA calls the library YNNPACK for reductions
too, fused with operations that compute their operands; there, maxima and minima ignore NaN, and
conversions to bf16 do not round. With this value, XLA calls it for products only."""

Result = TypeVar("Result")

_CPU_LAUNCH = Lock()
"""Held while a program runs on several devices of a CPU. XLA runs the devices of all programs on
one pool of threads, so the collectives of two programs can wait for each other's threads."""


class PJRTError(ShardirError, RuntimeError):
    """A program that XLA cannot compile or run, or devices that do not exist."""


class PJRTExecutionError(PJRTError):
    """An error of a program that had started."""

    has_started = True


def list_devices() -> "list[jax.Device]":
    """Return the devices of this process; raise `PJRTError` if there are none."""
    return list(_load_devices())


@cache
def _owner_process() -> int:
    """Return the process that has started XLA, which is the first to call this."""
    return os.getpid()


@cache
def _load_devices() -> "tuple[jax.Device, ...]":
    try:
        import jax
    except ModuleNotFoundError as error:
        if error.name not in ("jax", "jaxlib"):
            raise
        raise PJRTError(
            f"devices of kind 'pjrt' need JAX, and {error.name} is not installed; pip install "
            "'shardir[jax]'"
        ) from None
    _owner_process()
    try:
        return tuple(jax.local_devices())
    except RuntimeError as error:
        raise PJRTError(f"JAX has no devices: {error}") from None


def choose_devices(ids: Sequence[int]) -> "list[jax.Device]":
    """Return the devices at these positions of `list_devices`; raise `PJRTError` if one is
    missing."""
    there, needed = list_devices(), max(ids) + 1
    if needed > len(there):
        raise PJRTError(
            f"the program needs {count_noun(needed, 'device')} of kind 'pjrt', and JAX has "
            f"{len(there)} of platform {there[0].platform!r}; "
            f"{how_to_add_devices(needed) or 'use a smaller mesh'}"
        )
    return [there[id] for id in ids]


def how_to_add_devices(count: int) -> str:
    """Return how the platform has `count` devices; only that of CPUs has any number."""
    if list_devices()[0].platform != "cpu":
        return ""
    return (
        f"set XLA_FLAGS=--xla_force_host_platform_device_count={count} in the environment before "
        "the program starts"
    )


def put_shards(
    shards: "Sequence[npt.ArrayLike | jax.Array]", devices: "Sequence[jax.Device]"
) -> "jax.Array":
    """Return a new array of JAX whose part on each device is a copy of a shard."""
    import jax

    # Without 64-bit types, JAX would convert 64-bit elements to 32 bits.
    with _as_own_errors(PJRTError, "the transfer to the devices failed"), jax.enable_x64(True):
        parts = [
            jax.device_put(shard, device, may_alias=False)
            for shard, device in zip(shards, devices, strict=True)
        ]
        jax.block_until_ready(parts)
        return jax.make_array_from_single_device_arrays(
            parts[0].shape, _sharding(tuple(devices)), parts
        )


def copy_shards(array: "jax.Array", devices: "Sequence[jax.Device]") -> "jax.Array":
    """Return a copy of an array of JAX on its devices."""
    parts = {shard.device: shard.data for shard in array.addressable_shards}
    return put_shards([parts[device] for device in devices], devices)


def fetch_shard(array: "jax.Array", device: "jax.Device") -> Array:
    """Return the part of an array of JAX on a device, in host memory."""
    with _as_own_errors(PJRTExecutionError, "the program failed"):
        (part,) = (shard.data for shard in array.addressable_shards if shard.device == device)
        elements: Array = np.asarray(part)
    return elements


def wait_for_array(array: "jax.Array") -> None:
    """Wait until an array of JAX is computed."""
    with _as_own_errors(PJRTExecutionError, "the program failed"):
        array.block_until_ready()


@final
class LoadedProgram:
    """A program that XLA compiled for some devices, as one replica for each."""

    def __init__(
        self, name: str, text: str, devices: "Sequence[jax.Device]", results: Sequence[TensorType]
    ) -> None:
        """Compile StableHLO text; `results` are the types of its results on one device."""
        self.name = name
        self._is_serial = devices[0].platform == "cpu" and len(devices) > 1
        with _as_own_errors(PJRTError, f"XLA cannot compile the program {name}"):
            self._program = _explain_versions(lambda: _compile(text, devices))
            self._handlers = _explain_versions(lambda: _result_handlers(results, devices))

    def run(self, arguments: "Sequence[jax.Array]") -> "list[jax.Array]":
        """Run on arrays of JAX; on several devices of a CPU, wait until the results are
        computed."""
        with _as_own_errors(PJRTExecutionError, f"the program {self.name} failed"):
            if not self._is_serial:
                return self._launch(arguments)
            with _CPU_LAUNCH:
                results = self._launch(arguments)
                for result in results:
                    result.block_until_ready()
            return results

    def _launch(self, arguments: "Sequence[jax.Array]") -> "list[jax.Array]":
        made = self._program.execute_sharded(list(arguments))
        return list(made.consume_with_handlers(self._handlers))

    def hlo_text(self) -> str:
        """Return the program after XLA's optimization, as HLO text."""
        return str(self._program.hlo_modules()[0].to_string())

    def memory_bytes(self) -> tuple[int, int, int]:
        """Return the bytes on one device: arguments, results, and temporaries."""
        stats = self._program.get_compiled_memory_stats()
        return (
            stats.argument_size_in_bytes,
            stats.output_size_in_bytes,
            stats.temp_size_in_bytes,
        )


def _compile(text: str, devices: "Sequence[jax.Device]") -> "_jax.LoadedExecutable":
    from jaxlib import _jax, xla_client

    options = _jax.CompileOptions()
    options.num_replicas, options.num_partitions = len(devices), 1
    grid = np.array([[device.id] for device in devices])
    options.device_assignment = xla_client.DeviceAssignment.create(grid)
    if devices[0].platform == "cpu":
        options.env_option_overrides = list(CPU_OPTIONS.items())
    client = devices[0].client
    return client.compile_and_load(text, _jax.DeviceList(tuple(devices)), options)


def _result_handlers(
    results: Sequence[TensorType], devices: "Sequence[jax.Device]"
) -> "list[_jax.ResultHandler]":
    """Return for each result the function that makes an array of JAX from buffers."""
    from jax.core import ShapedArray
    from jaxlib import xla_client

    # Older handlers check buffers in Python, and refuse those of a single device.
    old = {"_skip_checks": True} if xla_client._version < 489 else {}
    sharding = _sharding(tuple(devices))
    return [
        xla_client.array_result_handler(
            ShapedArray(type.shape, type.numpy), sharding, committed=True, **old
        )
        for type in results
    ]


@cache
def _sharding(devices: "tuple[jax.Device, ...]") -> "jax.sharding.NamedSharding":
    import jax

    mesh = jax.sharding.Mesh(np.array(devices), ("devices",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def _explain_versions(use: Callable[[], Result]) -> Result:
    """Return the result of a use of private names or options, or raise `PJRTError` if jaxlib has
    different ones."""
    import jax
    import jaxlib

    try:
        return use()
    except (AttributeError, ImportError, TypeError, jax.errors.JaxRuntimeError) as error:
        is_of_xla = isinstance(error, jax.errors.JaxRuntimeError)
        if is_of_xla and not any(option in str(error) for option in CPU_OPTIONS):
            raise
        versions = ", ".join(TESTED_VERSIONS)
        raise PJRTError(
            f"jaxlib {jaxlib.__version__} has another interface than the tested versions "
            f"({versions}): {error}; pip install 'shardir[jax]'"
        ) from error


@contextmanager
def _as_own_errors(kind: type[PJRTError], what: str) -> Iterator[None]:
    """Raise errors of XLA as errors of this package; refuse forked processes."""
    import jax

    if _owner_process() != os.getpid():
        raise kind(
            f"{what}: XLA's threads do not exist in a forked process; start it with "
            "multiprocessing.get_context('spawn')"
        )
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        raise kind(f"{what}: {error}") from None
