"""Arrays: elements of one global shape, in shards that are on devices.

An array stores all of its elements in one allocation (`Storage`), and the shards are views of it.
Where programs run shard by shard it holds one NumPy array for each device instead, in the device
order of its sharding; devices with the same shard share it. Neither is ever written into. An array
is committed to its devices if the user placed it there; otherwise a computation may move it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, final

import numpy as np
import numpy.typing as npt

from shardir.backends.device_shards import wait_for
from shardir.backends.native import ArrayFields, native
from shardir.backends.storage import Storage
from shardir.errors import count_noun
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array_import import copy_numpy, import_numpy
from shardir.frontend.arrays.conversions import Convertible
from shardir.frontend.arrays.native_import import import_natively
from shardir.frontend.arrays.numpy_conversion import normalize_bools, to_numpy
from shardir.frontend.arrays.shard_buffers import (
    Buffer,
    assemble_shards,
    pad_to_shards,
    padded_shape,
    shard_views,
    split_into_shards,
    without_padding,
)
from shardir.frontend.arrays.signature import (
    ArraySignature,
    ShapeDtypeStruct as ShapeDtypeStruct,
    signature_of,
)
from shardir.frontend.call_signatures import with_signature_errors
from shardir.frontend.config import config
from shardir.frontend.dispatch.execution_context import default_array_device
from shardir.frontend.distributed.shard_exchange import (
    gather_elements,
    is_readable,
    needs_gather,
    read_elements,
)
from shardir.frontend.errors import (
    ArgumentError,
    DeletedArrayError,
    IndexingError,
    ShardingError,
)
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.sharding import Index, Sharding, SingleDeviceSharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.promotion import DType, canonical_dtype, user_dtype
from shardir.ir.dtypes import KEYS
from shardir.ir.key_implementations import split_keys
from shardir.ir.types import NumpyArray, NumpyDType, TensorType, dtype_name


@dataclass(frozen=True, slots=True)
class Shard:
    """The shard of one device: `data`, which is `index` of the global array.

    `replica_id` counts the preceding devices that hold the same shard. `data` is an `Array`, or
    `None` on a device of another process.
    """

    device: Device
    """The device that holds the shard."""
    index: Index
    """The slices of the global array that the shard is."""
    replica_id: int
    """The number of preceding devices that hold the same shard."""
    data: Any
    """The shard as an `Array`; `None` on a device of another process."""


@final
class Array(ArrayFields, Convertible):
    """An array on one or more devices. Make one with `device_put` or `shardir.numpy`.

    `buffers` is the allocation of all elements, or the buffer of each device; `None` once the array
    is deleted or donated.
    """

    __slots__ = ()

    signature: ArraySignature
    """The abstract value with the sharding, by which compiled programs are found."""
    sharding: Sharding
    """The sharding: the devices of the array, and the shard on each of them."""
    buffers: Storage | Sequence[Buffer] | None
    """The allocation of all elements, or the buffer of each device; `None` once the array is
    deleted or donated."""
    _parts: Sequence[Buffer] | None
    _whole: Buffer | None
    _gone: str

    def __init__(
        self, signature: ArraySignature, sharding: Sharding, buffers: Storage | Sequence[Buffer]
    ) -> None:
        self.signature, self.sharding = signature, sharding
        self.buffers = buffers
        self._parts = self._whole = None
        self._gone = ""

    @property
    def abstract(self) -> AbstractValue:
        """The abstract value: shape, element type and weakness."""
        return self.signature.abstract

    @property
    def type(self) -> TensorType:
        return self.signature.abstract.type

    @property
    def shape(self) -> tuple[int, ...]:
        """The global size of each dimension."""
        return self.signature.abstract.type.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return user_dtype(self.signature.abstract.type.dtype)

    @property
    def aval(self) -> ShapeDtypeStruct:
        """The abstract value: shape, element type, weakness."""
        return ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak_type)

    @property
    def weak_type(self) -> bool:
        """True if the array is computed from Python numbers alone, so that its type is weak."""
        return self.signature.abstract.weak

    @property
    def committed(self) -> bool:
        """True if the user placed the array on its devices."""
        return self.signature.sharding is not None

    @property
    def device_shards(self) -> Sequence[Buffer]:
        """The buffer of each device, in device order; they must not be written into."""
        buffers = self.checked_storage()
        if not isinstance(buffers, Storage):
            return buffers
        if self._parts is None:
            self._parts = shard_views(buffers.array, self.sharding, self.shape)
        return self._parts

    @property
    def storage(self) -> Storage:
        """All elements in one allocation, padded where the sharding does not divide the shape.

        Raises `ShardingError` when the devices hold partial sums.
        """
        self._check_has_elements()
        return self.total_storage

    @property
    def total_storage(self) -> Storage:
        """The same as `storage`, or the total where the devices hold partial sums."""
        buffers = self.checked_storage()
        if not isinstance(buffers, Storage):
            whole = assemble_shards(buffers, self.sharding, self.type)
            buffers = self.buffers = Storage.of(pad_to_shards(whole, self.sharding))
            self._parts = None
        return buffers

    def _check_has_elements(self) -> None:
        """Raise `ShardingError` when the devices hold partial sums of the elements."""
        if self.sharding.has_partial_sums:
            raise ShardingError(
                with_location(
                    f"the devices hold partial sums of this array of type {self.type}, with "
                    f"{self.sharding}; add them with sharding.reshard before its elements are read"
                )
            )

    def checked_storage(self) -> Storage | Sequence[Buffer]:
        """Return `buffers`; raises `DeletedArrayError` after deletion."""
        if self.buffers is None:
            raise DeletedArrayError(with_location(f"this array of type {self.type} {self._gone}"))
        return self.buffers

    # Devices and shards

    def devices(self) -> set[Device]:
        """Return the set of devices that hold a shard of the array, of all processes."""
        return set(self.sharding.device_set)

    @property
    def device(self) -> Device | Sharding:
        """The only device, or the sharding when there are several devices."""
        assigned = self.sharding.device_assignment
        return assigned[0] if len(assigned) == 1 else self.sharding

    @property
    def is_fully_replicated(self) -> bool:
        """True if every device holds the whole array."""
        return self.sharding.is_fully_replicated

    @property
    def is_fully_addressable(self) -> bool:
        """True if all shards are on devices of this process."""
        return self.sharding.is_fully_addressable

    @property
    def addressable_shards(self) -> list[Shard]:
        """The shard of each device of this process, in device order.

        Where the sharding does not divide a dimension, the last shards are shorter than the others,
        or empty.
        """
        return [shard for shard in self.global_shards if shard.data is not None]

    @property
    def global_shards(self) -> list[Shard]:
        """The shard of each device of all processes; shards of other processes have no data."""
        seen: dict[tuple[tuple[int | None, int | None], ...], int] = {}
        shards = []
        where = list(self.sharding.stored_indices_map(self.shape).items())
        parts = dict(zip(self.sharding.local_positions, self.device_shards, strict=True))
        for at, (device, index) in enumerate(where):
            shape = tuple(len(range(*s.indices(n))) for s, n in zip(index, self.shape, strict=True))
            abstract = AbstractValue(TensorType(shape, self.type.dtype), self.weak_type)
            place = tuple((s.start, s.stop) for s in index)
            replica = seen.get(place, 0)
            seen[place] = replica + 1
            if at not in parts:
                shards.append(Shard(device, index, replica, None))
                continue
            sharding = SingleDeviceSharding(device)
            stays = sharding if self.committed else None
            data = Array(
                signature_of(abstract, stays), sharding, [without_padding(parts[at], shape)]
            )
            data.to_numpy_view()  # Cached, so that reading this shard needs no communication.
            shards.append(Shard(device, index, replica, data))
        return shards

    @property
    def device_buffers(self) -> list["Array"]:
        """The shards of the devices of this process, as arrays on these devices."""
        return [shard.data for shard in self.addressable_shards]

    @with_signature_errors
    def addressable_data(self, index: int) -> "Array":
        """Return the shard of the device at `index`, as an array on that device.

        The index counts the devices of this process. Raises `IndexingError` if it has no such one.
        """
        shards = self.addressable_shards
        try:
            result: Array = shards[index].data
        except (IndexError, TypeError):
            held = count_noun(len(shards), "shard") if shards else "no shard"
            raise IndexingError(
                with_location(
                    f"this process has {held} of the array of type {self.type}, and none at "
                    f"{brief(index)}; addressable_shards lists them"
                )
            ) from None
        return result

    # Elements

    def to_numpy_view(self) -> Buffer:
        """Return all elements in one read-only NumPy array. Keys are 64-bit words.

        Raises `NotAddressableError` when shards are on devices of other processes only, and
        `ShardingError` when the devices hold partial sums.
        """
        own = self.checked_storage()
        self._check_has_elements()
        if self._whole is None:
            if isinstance(own, Storage):
                self._whole = without_padding(own.array, self.shape)
            elif self.is_fully_addressable:
                self._whole = assemble_shards(own, self.sharding, self.type)
            else:
                self._whole = read_elements(own, self.sharding, self.type)
            self._whole.flags.writeable = False
        return self._whole

    def read(self) -> Buffer:
        """Return `to_numpy_view()` after fetching shards of other processes if the setting `gather`
        is on.
        """
        gathers = self._whole is None and config.gather and self.committed
        if gathers and needs_gather(self.sharding, self.type):
            self._whole = gather_elements(self.device_shards, self.sharding, self.type)
            self._whole.flags.writeable = False
        return self.to_numpy_view()

    def read_total(self) -> Buffer:
        """Return `read()`, or the total where the devices hold partial sums."""
        if self.sharding.has_partial_sums:
            return without_padding(self.total_storage.array, self.shape)
        return self.read()

    def __iter__(self) -> "Iterator[Array]":
        if not self.shape:
            raise ArgumentError(with_location("an array of rank 0 cannot be iterated over"))
        if self.sharding.num_devices > 1 or not self.is_fully_addressable:
            return (self[i] for i in range(self.shape[0]))
        (part,) = self.device_shards
        rows = AbstractValue(TensorType(self.shape[1:], self.type.dtype), self.weak_type)
        signature = signature_of(rows, self.signature.sharding)
        return (Array(signature, self.sharding, Storage.of(np.asarray(row))) for row in part)

    # Lifetime

    def block_until_ready(self) -> "Array":
        """Return this array once its elements are computed. Computations on CPUs return when they
        are done.
        """
        wait_for(self.checked_storage())
        return self

    def is_ready(self) -> bool:
        """Wait for the elements on a GPU and return True. Elements on CPUs are always ready."""
        self.block_until_ready()
        return True

    def copy_to_host_async(self) -> None:
        """Do nothing, because elements of CPUs are in host memory."""

    def is_deleted(self) -> bool:
        """Return whether the array is deleted or donated."""
        return self.buffers is None

    def delete(self) -> None:
        """Release the elements. A later use of the array raises `DeletedArrayError`."""
        self.release("has been deleted")

    def release(self, reason: str) -> None:
        """Release the elements; `reason` follows the array in the error of a later use."""
        if self.buffers is not None:
            self.buffers, self._parts, self._whole, self._gone = None, None, None, reason

    def __copy__(self) -> "Array":
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> "Array":
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return from_numpy, (self.to_numpy_view(), self.weak_type, self.type.dtype)

    def __str__(self) -> str:
        if self.type.dtype in KEYS or not is_readable(self.sharding, self.type):
            return repr(self)
        return str(np.asarray(self))

    def __format__(self, spec: str) -> str:
        """Format an array of rank 0 as NumPy formats its scalar, all others as their text."""
        if self.shape or self.type.dtype in KEYS or not is_readable(self.sharding, self.type):
            try:
                return format(str(self), spec)
            except ValueError:
                raise ArgumentError(
                    with_location(
                        f"an array of type {self.type} has no format {spec!r}, which is one of "
                        "numbers; format its elements, or print it under numpy.printoptions"
                    )
                ) from None
        return format(np.asarray(self)[()], spec)

    def _repr_html_(self) -> str | None:
        """Return the picture of the shards and the elements; `None` for an array on one device."""
        if self.sharding.num_devices == 1 or self.is_deleted():
            return None
        # Imported late for start-up time, and because the module imports shardings.
        views = import_module("shardir.frontend.sharding_html")
        return str(views.array_html(str(self.type), self.shape, self.sharding, repr(self)))

    def __repr__(self) -> str:
        if self.is_deleted():
            return f"Array({self.type} that {self._gone})"
        weak = ", weak_type=True" if self.weak_type else ""
        if self.sharding.has_partial_sums:
            return f"Array(shape={self.shape}, dtype={self.dtype}{weak}, sharding={self.sharding})"
        if self._whole is None and not is_readable(self.sharding, self.type):
            owners = {device.process_index for device in self.sharding.device_set}
            whose = "several processes" if len(owners) > 1 else f"process {min(owners)}"
            devices = count_noun(self.sharding.num_devices, "device")
            return f"Array({self.type} on {devices} of {whose})"
        if self.type.dtype in KEYS:
            words = split_keys(self.read(), self.type.dtype)
            return f"Array({self.shape}, dtype={self.dtype}) overlaying:\n{words}"
        width = np.get_printoptions()["linewidth"]
        text = np.array2string(
            np.asarray(self), prefix="Array(", suffix=",", separator=", ", max_line_width=width
        )
        ending = f"dtype={self.dtype.name}{weak})"
        if not self.size:
            text, ending = "[]", f"shape={self.shape}, {ending}"
        last = len(text) - text.rfind("\n") - 1 + len("Array(" if "\n" not in text else "")
        space = " " if last + len(ending) + 2 <= width else "\n" + " " * len("Array(")
        return f"Array({text},{space}{ending}"


if native is not None:
    native.set_array_class(Array)


def from_numpy(array: npt.ArrayLike, weak: bool = False, dtype: str = "") -> Array:
    """Return an uncommitted array on the default device with the elements of `array`.

    They are copied unless the memory is immutable. 64-bit element types are narrowed unless
    `enable_x64` is set. `dtype` overrides the element type.
    """
    if type(array) is np.ndarray and not weak and not dtype:
        known, on = signature_of_numpy(array), default_sharding()
        if known is not None and array.flags.carray:
            result: Array | None = import_natively(array, known[0], on, Array)
            if result is not None:
                return result
        if known is not None and fits_dtype(array, known[1]):
            storage = (
                import_numpy(normalize_bools(array))
                if known[1] is array.dtype
                else copy_numpy(array, known[1])
            )
            return Array(known[0], on, storage)
    numbers = np.asarray(array) if dtype in KEYS else to_numpy(array)
    name = dtype or dtype_name(numbers.dtype)
    abstract = AbstractValue(TensorType(numbers.shape, name), weak)
    return make_uncommitted_array(import_numpy(numbers), abstract)


def signature_of_numpy(array: NumpyArray) -> tuple[ArraySignature, NumpyDType] | None:
    """Return the signature and element type of the array made from a NumPy array.

    Return `None` if shardir has no such element type.
    """
    return _signature_of_numpy(array.shape, array.dtype, config.enable_x64)


def fits_dtype(array: NumpyArray, kind: NumpyDType) -> bool:
    """Return whether all elements fit into `kind`, the element type of `array` or a narrower
    one."""
    if array.dtype is kind or array.dtype.kind not in "iu" or not array.size:
        return True
    bounds = np.iinfo(kind)
    return bool(array.min() >= bounds.min and array.max() <= bounds.max)


@lru_cache(1 << 12)
def _signature_of_numpy(
    shape: tuple[int, ...], dtype: NumpyDType, wide: bool
) -> tuple[ArraySignature, NumpyDType] | None:
    try:
        name = canonical_dtype(dtype_name(dtype))
    except TypeError:
        return None
    type = TensorType(shape, name)
    return signature_of(AbstractValue(type), None), type.numpy


def default_sharding() -> Sharding:
    """Return the sharding of uncommitted arrays: the default device."""
    return _single_device_sharding(default_array_device())


@lru_cache(1 << 8)
def _single_device_sharding(device: Device) -> Sharding:
    return SingleDeviceSharding(device)


def make_uncommitted_array(numbers: Storage, abstract: AbstractValue) -> Array:
    """Return an uncommitted array on the default device that owns the memory of `numbers`."""
    return Array(signature_of(abstract, None), default_sharding(), numbers)


def make_committed_array(numbers: Storage, abstract: AbstractValue, sharding: Sharding) -> Array:
    """Return an array committed to `sharding` that owns the memory of `numbers`."""
    kept: Storage | Sequence[Buffer] = numbers
    if not sharding.is_fully_addressable:
        kept = split_into_shards(numbers.array, sharding)
    elif padded_shape(numbers.shape, sharding) != numbers.shape:
        kept = Storage.of(pad_to_shards(numbers.array, sharding))
    return Array(signature_of(abstract, sharding), sharding, kept)
