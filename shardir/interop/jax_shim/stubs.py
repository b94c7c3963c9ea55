"""Stubs of JAX functions that shardir does not need itself."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import numpy.typing as npt

from shardir import lax, numpy
from shardir.frontend.arrays.array import Array, ShapeDtypeStruct
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.distributed.processes import process_count, process_index
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.axis_type import AxisType
from shardir.frontend.shardings.devices import (
    TPU_RING_ORDER,
    Device,
    default_backend,
    device_count,
    devices,
    local_device_count,
    local_devices,
)
from shardir.frontend.shardings.mesh import (
    DeviceArray,
    Mesh,
    create_device_mesh,
    make_mesh as make_shardir_mesh,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.promotion import user_dtype
from shardir.frontend.tracing.trace import current_trace

ArrayLike = Array | npt.ArrayLike
DTypeLike = npt.DTypeLike


def do_nothing(*args: object, **keywords: object) -> None:
    """Do nothing, with any arguments."""


def return_function(function: Any = None, **options: object) -> Any:
    """Decorate a function without effect; `options` may precede it."""
    return return_function if function is None else function


class XlaBackend:
    """The result of `xla_bridge.get_backend()`: access to the devices."""

    @property
    def platform(self) -> str:
        return default_backend()

    def devices(self) -> list[Device]:
        return devices()

    def local_devices(self) -> list[Device]:
        return local_devices()

    def device_count(self) -> int:
        return device_count()

    def local_device_count(self) -> int:
        return local_device_count()

    def process_index(self) -> int:
        return process_index()


def get_backend(platform: str | None = None) -> XlaBackend:
    """Return the devices of `platform`; raise an error if it is not the current platform."""
    devices(platform)
    return XlaBackend()


XLA_BRIDGE = {
    "default_backend": default_backend,
    "device_count": device_count,
    "devices": devices,
    "get_backend": get_backend,
    "host_count": process_count,
    "host_id": process_index,
    "local_device_count": local_device_count,
    "local_devices": local_devices,
    "process_count": process_count,
    "process_index": process_index,
}
"""The functions of `jax.lib.xla_bridge`."""


def device_mesh_of_jax(mesh_shape: Any, devices: Any = None, **options: object) -> DeviceArray:
    """Return `create_device_mesh` in JAX's order, in which eight TPU cores follow their ring.

    `options` concern TPU topologies and have no effect.
    """
    device_list = list(all_devices() if devices is None else devices)
    if default_backend() == "tpu" and [device.id for device in device_list] == [*range(8)]:
        device_list = [device_list[position] for position in TPU_RING_ORDER]
    return create_device_mesh(mesh_shape, device_list)


def make_mesh(
    axis_shapes: int | Sequence[int],
    axis_names: str | Sequence[str],
    axis_types: AxisType | Sequence[AxisType] | None = None,
    *,
    devices: Sequence[Device] | None = None,
) -> Mesh:
    """Return a mesh as `shardir.make_mesh` does; as in JAX, its axes are Explicit by default."""
    kinds = AxisType.Explicit if axis_types is None else axis_types
    return make_shardir_mesh(axis_shapes, axis_names, kinds, devices=devices)


all_devices = devices


def typeof(x: Any) -> ShapeDtypeStruct:
    """Return the shape, dtype and sharding of an array."""
    abstract = abstract_of(x)
    sharding = getattr(x, "sharding", None)
    return ShapeDtypeStruct(
        abstract.type.shape,
        user_dtype(abstract.type.dtype),
        sharding=sharding,
        weak_type=abstract.weak,
    )


@final
class OpaqueTraceState:
    """The function that is traced; equal states belong to the same trace."""

    def __init__(self, trace: object) -> None:
        self._trace = trace

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueTraceState) and self._trace is other._trace

    def __hash__(self) -> int:
        return hash((OpaqueTraceState, id(self._trace)))


def get_opaque_trace_state(convention: str = "") -> OpaqueTraceState:
    """Return the current trace as an object that supports equality alone."""
    return OpaqueTraceState(current_trace())


def trace_state_clean() -> bool:
    """Return whether no function is traced."""
    return current_trace() is None


def scan(*args: Any, _split_transpose: bool = False, **options: Any) -> Any:
    """Return `lax.scan(...)`; `_split_transpose` concerns the speed of XLA, and has no effect."""
    return lax.scan(*args, **options)


def einsum(*args: Any, _dot_general: object = None, **options: Any) -> Any:
    """Return `numpy.einsum(...)`; raise `ArgumentError` for any other product of arrays."""
    if _dot_general not in (None, lax.dot_general):
        raise ArgumentError(
            with_location(
                f"einsum multiplies with lax.dot_general, got _dot_general={brief(_dot_general)}; "
                "call this function instead of einsum"
            )
        )
    return numpy.einsum(*args, **options)


class PytreeRegistry:
    """JAX's table of the classes of containers, as far as membership."""

    def __contains__(self, kind: type) -> bool:
        return tree.is_registered(kind)


PYTREE_REGISTRY = PytreeRegistry()


def safe_zip(*sequences: object) -> list[object]:
    """Return tuples of corresponding elements of sequences of equal length."""
    return list(zip(*sequences, strict=True))


def safe_map(function: Callable[..., object], *sequences: object) -> list[object]:
    """Return the results of `function` for corresponding elements of sequences of equal length."""
    return [function(*each) for each in zip(*sequences, strict=True)]


def unzip2(pairs: Iterable[tuple[Any, Any]]) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Return the first elements and the second elements of pairs."""
    pair_list = list(pairs)
    return tuple(one for one, _ in pair_list), tuple(other for _, other in pair_list)
