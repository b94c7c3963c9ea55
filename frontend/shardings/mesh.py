"""Meshes: devices arranged along named axes.

mesh = make_mesh((4, 2), ("data", "model"))
with mesh:  # A bare PartitionSpec refers to this mesh.
    ...

An `AbstractMesh` serves to trace, lower and partition programs for devices that this machine lacks:

mesh = AbstractMesh((16, 16, 8), ("data", "model", "pipe"))
x = ShapeDtypeStruct((4096, 4096), "float32", sharding=NamedSharding(mesh, P("data", "model")))
jit(f).lower(x).compile().as_text()

Its devices have no memory. Everything that reads a program works as for any mesh; placing an array
there, or running a program, is an error.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property
from importlib import import_module
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from shardir.display.representation import abbreviate_items
from shardir.errors import count_noun
from shardir.frontend.absent_members import WithAbsentMembers
from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.errors import MeshError
from shardir.frontend.pytree.tree_checks import check_acyclic
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.axis_type import AxisType, check_axis_types
from shardir.frontend.shardings.devices import (
    Device,
    devices as all_devices,
    find_abstract_device,
    how_to_add_devices,
)
from shardir.frontend.source_locations import with_location

DeviceArray = np.ndarray[tuple[int, ...], np.dtype[np.object_]]


def as_device_array(devices: object, what: str) -> DeviceArray:
    """Return a read-only array of distinct devices, from nested sequences or an array of them."""
    if isinstance(devices, (list, tuple)):
        check_acyclic(devices)
    array = np.array(devices, dtype=object)
    for device in array.flat:
        if not isinstance(device, Device):
            raise MeshError(f"{what} needs devices, got {device!r}; take them from devices()")
    if not array.size:
        raise MeshError(f"{what} needs at least one device, got none")
    seen: set[Device] = set()
    for device in array.flat:
        if device in seen:
            raise MeshError(f"{what} has {device} more than once; list every device once")
        seen.add(device)
    array.flags.writeable = False
    return array


_meshes: WeakValueDictionary[tuple[object, ...], "Mesh"] = WeakValueDictionary()


class _InternedMeta(type):
    """Metaclass that returns an existing equal object instead of a new one."""

    def __call__(cls, *args: PyTree, **options: PyTree) -> PyTree:
        result = super().__call__(*args, **options)
        return _meshes.setdefault((cls, *result._key), result)


@with_method_errors
class Mesh(WithAbsentMembers, metaclass=_InternedMeta):
    """Devices along named axes, the last axis fastest.

    Meshes with equal devices, shape, names and axis types are one object.
    """

    devices: DeviceArray
    """The array of devices, with one dimension for each axis."""
    axis_names: tuple[str, ...]
    """The names of the axes."""
    axis_types: tuple[AxisType, ...]
    """The type of each axis."""
    has_explicit_axes: bool
    """True if the type of an axis is `AxisType.Explicit`."""

    @locate_errors
    def __init__(
        self,
        devices: object,
        axis_names: str | Sequence[str],
        axis_types: AxisType | Sequence[AxisType] | None = None,
    ) -> None:
        names = as_axis_names(axis_names)
        nothing = not names and isinstance(devices, np.ndarray) and devices.tolist() is None
        array = np.array(None, dtype=object) if nothing else as_device_array(devices, "a Mesh")
        for name in names:
            if not isinstance(name, str) or not name:
                raise MeshError(f"an axis of a Mesh is named {name!r}; a name is a nonempty string")
        if len(set(names)) != len(names):
            raise MeshError(
                f"the axes of a Mesh are {names}; every name may occur only once; rename one axis"
            )
        if array.ndim != len(names):
            raise MeshError(
                f"the devices of a Mesh are arranged in {count_noun(array.ndim, 'dimension')} "
                f"{array.shape}, and its axes are named {names}; name every dimension"
            )
        types = check_axis_types(axis_types, names)
        # The object is frozen, so this bypasses __setattr__.
        self.__dict__.update(
            devices=array,
            axis_names=names,
            axis_types=types,
            has_explicit_axes=AxisType.Explicit in types,
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise MeshError(f"a Mesh is frozen, and {name!r} cannot be set; make another Mesh")

    @cached_property
    def axis_sizes(self) -> tuple[int, ...]:
        """The number of devices along each axis."""
        return tuple(self.devices.shape)

    @property
    def shape(self) -> dict[str, int]:
        """The size of each axis by name, in order."""
        return dict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def shape_tuple(self) -> tuple[tuple[str, int], ...]:
        """The name and the size of each axis, in order."""
        return tuple(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def size(self) -> int:
        """Number of devices."""
        return len(self.device_assignment)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.devices.ndim

    @property
    def empty(self) -> bool:
        """True if the mesh has no axes."""
        return not self.axis_names

    @property
    def is_scalar(self) -> bool:
        """True if the mesh has one device and no axes."""
        return self.size == 1 and self.empty

    @property
    def abstract_mesh(self) -> "Mesh":
        """The abstract mesh with the same axes."""
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    @locate_errors
    def update(
        self,
        axis_sizes: Sequence[int] | None = None,
        axis_names: str | Sequence[str] | None = None,
        axis_types: AxisType | Sequence[AxisType] | None = None,
    ) -> "Mesh":
        """Return the mesh with other sizes, names or types of axes, and the same devices.

        Raise `MeshError` if the sizes of the axes need another number of devices.
        """
        sizes = self.axis_sizes if axis_sizes is None else check_mesh_shape(axis_sizes)
        names = self.axis_names if axis_names is None else as_axis_names(axis_names)
        types = self.axis_types if axis_types is None else axis_types
        if isinstance(self, AbstractMesh):
            return AbstractMesh(sizes, names, types)
        if prod(sizes) != self.size:
            raise MeshError(
                f"axes of the sizes {sizes} need {count_noun(prod(sizes), 'device')}, and the Mesh "
                f"has {self.size}; make a Mesh of other devices with make_mesh"
            )
        return Mesh(self.devices.reshape(sizes), names, types)

    def update_axis_types(self, types: Mapping[str, AxisType]) -> "Mesh":
        """Return the mesh with other types of the named axes."""
        pairs = zip(self.axis_names, self.axis_types, strict=True)
        return self.update(axis_types=[types.get(name, kind) for name, kind in pairs])

    @property
    def auto_axes(self) -> tuple[str, ...]:
        """The names of the axes of type `AxisType.Auto`."""
        return self._axes_of(AxisType.Auto)

    @property
    def explicit_axes(self) -> tuple[str, ...]:
        """The names of the axes of type `AxisType.Explicit`."""
        return self._axes_of(AxisType.Explicit)

    @property
    def manual_axes(self) -> tuple[str, ...]:
        """The names of the axes of type `AxisType.Manual`."""
        return self._axes_of(AxisType.Manual)

    @property
    def are_all_axes_auto(self) -> bool:
        """True if the type of every axis is `AxisType.Auto`."""
        return all(kind is AxisType.Auto for kind in self.axis_types)

    @property
    def are_all_axes_explicit(self) -> bool:
        """True if the type of every axis is `AxisType.Explicit`."""
        return all(kind is AxisType.Explicit for kind in self.axis_types)

    @property
    def are_all_axes_manual(self) -> bool:
        """True if the type of every axis is `AxisType.Manual`."""
        return all(kind is AxisType.Manual for kind in self.axis_types)

    def check_no_manual_axes(self, use: str) -> None:
        """Raise `MeshError` that begins with `use` if the mesh has devices and Manual axes."""
        if self.manual_axes and not isinstance(self, AbstractMesh):
            raise MeshError(
                f"{use} {self}, which contains manual axes; they are possible inside of shard_map "
                "only; omit axis_types, and map the function with shard_map"
            )

    def _axes_of(self, kind: AxisType) -> tuple[str, ...]:
        pairs = zip(self.axis_names, self.axis_types, strict=True)
        return tuple(name for name, each in pairs if each is kind)

    @cached_property
    def device_assignment(self) -> tuple[Device, ...]:
        """The devices in order, the last axis fastest; empty if the mesh has no devices."""
        return tuple(device for device in self.devices.ravel().tolist() if device is not None)

    @cached_property
    def device_ids(self) -> tuple[int, ...]:
        """The ids of the devices, in the order of `device_assignment`."""
        return tuple(device.id for device in self.device_assignment)

    @property
    def local_devices(self) -> list[Device]:
        """The devices of this process, in the order of `device_assignment`."""
        here = process_group().index
        return [device for device in self.device_assignment if device.process_index == here]

    @property
    def local_mesh(self) -> "Mesh":
        """The part of the mesh with the devices of this process.

        Raises `MeshError` if they are not a contiguous block of the mesh, and for an
        `AbstractMesh`, whose devices belong to no process.
        """
        if isinstance(self, AbstractMesh):
            raise MeshError(
                with_location(
                    f"{self} has no devices of this process; use a Mesh of devices() instead"
                )
            )
        if self.empty:
            return self
        here = process_group().index
        is_local = np.array(
            [device.process_index == here for device in self.device_assignment], bool
        ).reshape(self.axis_sizes)
        places = np.nonzero(is_local)
        block = tuple(slice(place.min(), place.max() + 1) for place in places if place.size)
        if not is_local.any() or not is_local[block].all():
            raise MeshError(
                with_location(
                    f"the devices of process {here} are no contiguous block of {self}; arrange "
                    "the devices of each process next to each other, as make_mesh does"
                )
            )
        return Mesh(self.devices[block], self.axis_names, self.axis_types)

    @property
    def is_multi_process(self) -> bool:
        """True if the devices belong to several processes."""
        return len({device.process_index for device in self.device_assignment}) > 1

    @cached_property
    def strides(self) -> dict[str, int]:
        """The distance in `device_assignment` between consecutive positions along each axis."""
        sizes = self.axis_sizes
        return {name: prod(sizes[i + 1 :]) for i, name in enumerate(self.axis_names)}

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return (self.device_assignment, self.axis_sizes, self.axis_names, self.axis_types)

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mesh):
            return NotImplemented
        return self is other or self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        axes = ", ".join(f"{name!r}: {size}" for name, size in self.shape.items())
        if self.device_ids == tuple(range(self.size)):
            return f"Mesh({axes})"
        return f"Mesh({axes}, device_ids={abbreviate_items(self.device_ids)})"

    def _repr_html_(self) -> str:
        # Imported late for start-up time, and because the module imports this one.
        return str(import_module("shardir.frontend.sharding_html").mesh_html(self))

    def __str__(self) -> str:
        types = ", ".join(map(repr, self.axis_types))
        axes = Mesh.__repr__(self)[:-1] + "()" * self.empty
        return f"{axes}, axis_types=({types}{',' * (self.ndim == 1)}))"

    def __reduce__(self) -> tuple[object, ...]:
        return (Mesh, (np.array(self.devices), self.axis_names, self.axis_types))

    @locate_errors
    def __enter__(self) -> "Mesh":
        self.check_no_manual_axes("`with mesh:` has")
        set_entered_meshes((*_entered_meshes.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        set_entered_meshes(_entered_meshes.get()[:-1])


_entered_meshes: ContextVar[tuple[Mesh, ...]] = ContextVar("shardir_meshes", default=())
_mesh_stacks: dict[tuple[Mesh, ...], tuple[Mesh, ...]] = {}
"""Recently entered stacks of meshes. Equal stacks are one object, which native code compares."""
MAX_CACHED_MESH_STACKS = 64
"""Maximum number of cached stacks."""


def entered_meshes() -> tuple[Mesh, ...]:
    """Return the entered meshes, the innermost last."""
    return _entered_meshes.get()


def set_entered_meshes(meshes: tuple[Mesh, ...]) -> None:
    """Set the stack of entered meshes."""
    if len(_mesh_stacks) >= MAX_CACHED_MESH_STACKS:
        _mesh_stacks.clear()
    _entered_meshes.set(_mesh_stacks.setdefault(meshes, meshes))


def current_mesh() -> Mesh | None:
    """Return the mesh of the innermost `with mesh:` block, or `None`."""
    entered = _entered_meshes.get()
    return entered[-1] if entered else None


@locate_errors
def create_device_mesh(
    mesh_shape: int | Sequence[int],
    devices: Sequence[Device] | None = None,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> DeviceArray:
    """Return all of `devices` arranged in `mesh_shape`, in their own order.

    CPU devices have no topology that would favor another order; therefore, `contiguous_submeshes`
    and `allow_split_physical_axes` have no effect. Raises `MeshError` unless the shape
    has as many positions as there are devices.
    """
    shape = check_mesh_shape(mesh_shape)
    given = list(all_devices() if devices is None else devices)
    if prod(shape) > len(given):
        raise _too_few_devices_error(shape, given, devices is None)
    if prod(shape) < len(given):
        raise MeshError(
            f"a device mesh of shape {shape} has {count_noun(prod(shape), 'position')}, and there "
            f"are {len(given)} devices; pass {prod(shape)} of them, as in "
            f"devices=devices()[:{prod(shape)}]"
        )
    array = np.empty(len(given), dtype=object)
    array[:] = given
    return as_device_array(array.reshape(shape), "a device mesh")


@locate_errors
def make_mesh(
    axis_shapes: int | Sequence[int],
    axis_names: str | Sequence[str],
    axis_types: AxisType | Sequence[AxisType] | None = None,
    *,
    devices: Sequence[Device] | None = None,
) -> Mesh:
    """Return a mesh of the first of `devices` that fill `axis_shapes`; the rest are not used."""
    shape = check_mesh_shape(axis_shapes)
    given = list(all_devices() if devices is None else devices)
    if prod(shape) > len(given):
        raise _too_few_devices_error(shape, given, devices is None)
    return Mesh(create_device_mesh(shape, given[: prod(shape)]), axis_names, axis_types)


def as_axis_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return the axis names of a mesh as a tuple; the function does not check that they are
    strings."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        return (names,)
    return tuple(names)


def check_mesh_shape(shape: Any) -> tuple[int, ...]:
    """Return the sizes of a mesh as a tuple; raises `MeshError` unless all are integers of at least
    1."""
    single = isinstance(shape, str) or not isinstance(shape, Iterable)
    sizes = (shape,) if single else tuple(shape)
    for size in sizes:
        if not isinstance(size, int | np.integer) or size < 1:
            raise MeshError(f"a mesh has shape {sizes}; every size must be an integer above 0")
    return tuple(int(size) for size in sizes)


def _too_few_devices_error(
    shape: tuple[int, ...], given: Sequence[Device], all_of_them: bool
) -> MeshError:
    have, more = len(given), f"pass {count_noun(prod(shape), 'device')}"
    if all_of_them:
        more = (
            f"add devices with set_cpu_devices({prod(shape)}) or SHARDIR_CPU_DEVICES={prod(shape)}"
        )
    elif given and isinstance(given[0], Device) and given[0].backend != "cpu":
        more = how_to_add_devices(given[0].backend, prod(shape)) or more
    return MeshError(
        f"a mesh of shape {shape} needs {count_noun(prod(shape), 'device')}, and there are "
        f"{have}; choose sizes whose product is at most {have}, or {more}"
    )


MAX_ABSTRACT_DEVICES = 1 << 20
"""Maximum number of abstract devices, because each one is a Python object."""
_NO_DEVICES = np.array(None, dtype=object)


class AbstractMesh(Mesh):
    """A mesh given by its sizes and names alone: `AbstractMesh((16, 8), ("data", "model"))`.

    Raises `MeshError` for sizes that are not integers above 0, and if there is not one name per
    size.
    """

    @locate_errors
    def __init__(
        self,
        axis_sizes: int | Sequence[int],
        axis_names: str | Sequence[str] = (),
        axis_types: AxisType | Sequence[AxisType] | None = None,
    ) -> None:
        sizes = check_mesh_shape(axis_sizes)
        names = as_axis_names(axis_names)
        if len(sizes) != len(names):
            raise MeshError(
                f"an AbstractMesh has sizes {sizes} and axes {names}; name every dimension"
            )
        if prod(sizes) > MAX_ABSTRACT_DEVICES:
            raise MeshError(
                f"an AbstractMesh of sizes {sizes} has more than the maximum of "
                f"{MAX_ABSTRACT_DEVICES} "
                "devices"
            )
        devices = np.empty(prod(sizes), dtype=object)
        devices[:] = [find_abstract_device(id) for id in range(devices.size)]
        super().__init__(devices.reshape(sizes) if names else _NO_DEVICES, names, axis_types)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return f"Abstract{super().__str__()}"

    def __reduce__(self) -> tuple[object, ...]:
        return (AbstractMesh, (self.axis_sizes, self.axis_names, self.axis_types))
