"""Arrays: elements of one global shape, in shards that are on devices.

An array stores all of its elements in one allocation (`Storage`), and the shards are views of it.
Where programs run shard by shard it holds one NumPy array for each device instead, in the device
order of its sharding; devices with the same shard share it. Neither is ever written into. An array
is committed to its devices if the user placed it there; otherwise a computation may move it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
import numpy.typing as npt

from shardir.backends.device_shards import wait_for
from shardir.backends.storage import Storage
from shardir.errors import counted
from shardir.frontend.buffers import (
    Buffer,
    cut,
    full_shape,
    held,
    joined,
    padded,
    windows,
    words_of,
)
from shardir.frontend.config import config
from shardir.frontend.conversions import Convertible
from shardir.frontend.devices import Device
from shardir.frontend.entering import entered
from shardir.frontend.errors import (
    ArgumentError,
    DeletedArrayError,
)
from shardir.frontend.gathering import gathered, is_gathered, read, readable
from shardir.frontend.locations import point
from shardir.frontend.operands import plain_truths, to_numpy
from shardir.frontend.promotion import Abstract, DType, canonical, user_dtype
from shardir.frontend.running import uncommitted_device
from shardir.frontend.shardings import Index, Sharding, SingleDeviceSharding
from shardir.frontend.signature import (
    ShapeDtypeStruct as ShapeDtypeStruct,
    Signature,
    signature_of,
)
from shardir.frontend.taking import copied, taken
from shardir.types import TensorType, dtype_name


@dataclass(frozen=True, slots=True)
class Shard:
    """The shard of one device: `data`, which is `index` of the global array.

    `replica_id` counts the preceding devices that hold the same shard. `data` is an `Array`, or
    `None` on a device of another process.
    """

    device: Device
    index: Index
    replica_id: int
    data: Any


@final
class Array(Convertible):
    """An array on one or more devices. Make one with `device_put` or `shardir.numpy`.

    `held` is its allocation, or its shards; `None` once the array is deleted or
    donated.
    """

    __slots__ = ("__weakref__", "_gone", "_parts", "_whole", "held", "sharding", "signature")

    def __init__(
        self, signature: Signature, sharding: Sharding, held: Storage | Sequence[Buffer]
    ) -> None:
        self.signature, self.sharding = signature, sharding
        self.held: Storage | Sequence[Buffer] | None = held
        self._parts: Sequence[Buffer] | None = None
        self._whole: Buffer | None = None
        self._gone = ""

    @property
    def abstract(self) -> Abstract:
        return self.signature.abstract

    @property
    def type(self) -> TensorType:
        return self.signature.abstract.type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.signature.abstract.type.shape

    @property
    def dtype(self) -> DType:
        return user_dtype(self.signature.abstract.type.dtype)

    @property
    def weak_type(self) -> bool:
        """True if the array is computed from Python numbers alone, so that its type is weak."""
        return self.signature.abstract.weak

    @property
    def committed(self) -> bool:
        """True if the user placed the array on its devices."""
        return self.signature.sharding is not None

    @property
    def parts(self) -> Sequence[Buffer]:
        """The buffer of each device, in device order; they must not be written into."""
        held = self.contents()
        if not isinstance(held, Storage):
            return held
        if self._parts is None:
            self._parts = windows(held.array, self.sharding, self.shape)
        return self._parts

    @property
    def storage(self) -> Storage:
        """All elements in one allocation, padded where the sharding does not divide the shape."""
        held = self.contents()
        if not isinstance(held, Storage):
            whole = joined(held, self.sharding, self.type)
            held = self.held = Storage.of(padded(whole, self.sharding))
            self._parts = None
        return held

    def contents(self) -> Storage | Sequence[Buffer]:
        """Return the allocation or the shards; raises `DeletedArrayError` after deletion."""
        if self.held is None:
            raise DeletedArrayError(point(f"this array of type {self.type} {self._gone}"))
        return self.held

    # Devices and shards

    def devices(self) -> set[Device]:
        return set(self.sharding.device_set)

    @property
    def device(self) -> Device | Sharding:
        """The only device, or the sharding when there are several devices."""
        assigned = self.sharding.device_assignment
        return assigned[0] if len(assigned) == 1 else self.sharding

    @property
    def is_fully_replicated(self) -> bool:
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
        parts = dict(zip(self.sharding.local_places, self.parts, strict=True))
        for at, (device, index) in enumerate(where):
            shape = tuple(len(range(*s.indices(n))) for s, n in zip(index, self.shape, strict=True))
            abstract = Abstract(TensorType(shape, self.type.dtype), self.weak_type)
            place = tuple((s.start, s.stop) for s in index)
            replica = seen.get(place, 0)
            seen[place] = replica + 1
            if at not in parts:
                shards.append(Shard(device, index, replica, None))
                continue
            sharding = SingleDeviceSharding(device)
            stays = sharding if self.committed else None
            data = Array(signature_of(abstract, stays), sharding, [held(parts[at], shape)])
            data.whole()  # Cached, so that reading this shard needs no communication.
            shards.append(Shard(device, index, replica, data))
        return shards

    @property
    def device_buffers(self) -> list["Array"]:
        """The shards of the devices of this process, as arrays on these devices."""
        return [shard.data for shard in self.addressable_shards]

    def addressable_data(self, index: int) -> "Array":
        """Return the shard of the device at `index`, as an array on that device."""
        found: Array = self.addressable_shards[index].data
        return found

    # Elements

    def whole(self) -> Buffer:
        """Return all elements in one read-only NumPy array. Keys are 64-bit words.

        Raises `NotAddressableError` when shards are on devices of other processes only.
        """
        own = self.contents()
        if self._whole is None:
            if isinstance(own, Storage):
                self._whole = held(own.array, self.shape)
            elif self.is_fully_addressable:
                self._whole = joined(own, self.sharding, self.type)
            else:
                self._whole = read(own, self.sharding, self.type)
            self._whole.flags.writeable = False
        return self._whole

    def read(self) -> Buffer:
        """Return `to_numpy_view()` after fetching shards of other processes if the setting `gather`
        is on.
        """
        gathers = self._whole is None and config.gather and self.committed
        if gathers and is_gathered(self.sharding, self.type):
            self._whole = gathered(self.parts, self.sharding, self.type)
            self._whole.flags.writeable = False
        return self.whole()

    def __iter__(self) -> "Iterator[Any]":
        if not self.shape:
            raise ArgumentError(point("an array of rank 0 cannot be iterated over"))
        if self.sharding.num_devices > 1 or not self.is_fully_addressable:
            return (self[i] for i in range(self.shape[0]))
        (part,) = self.parts
        rows = Abstract(TensorType(self.shape[1:], self.type.dtype), self.weak_type)
        signature = signature_of(rows, self.signature.sharding)
        return (Array(signature, self.sharding, Storage.of(np.asarray(row))) for row in part)

    # Lifetime

    def block_until_ready(self) -> "Array":
        """Return this array once its elements are computed. Computations on CPUs return when they
        are done.
        """
        wait_for(self.contents())
        return self

    def is_ready(self) -> bool:
        """Wait for the elements on a GPU and return True. Elements on CPUs are always ready."""
        self.block_until_ready()
        return True

    def copy_to_host_async(self) -> None:
        """Do nothing, because elements of CPUs are in host memory."""

    def is_deleted(self) -> bool:
        return self.held is None

    def delete(self) -> None:
        """Release the elements. A later use of the array raises `DeletedArrayError`."""
        self.give_up("has been deleted")

    def give_up(self, reason: str) -> None:
        """Release the elements; `reason` follows the array in the error of a later use."""
        if self.held is not None:
            self.held, self._parts, self._whole, self._gone = None, None, None, reason

    def __copy__(self) -> "Array":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Array":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return from_numpy, (self.whole(), self.weak_type, self.type.dtype)

    def __str__(self) -> str:
        if self.type.dtype == "key" or not readable(self.sharding, self.type):
            return repr(self)
        return str(np.asarray(self))

    def __format__(self, spec: str) -> str:
        """Format an array of rank 0 as NumPy formats its scalar, all others as their text."""
        if self.shape or self.type.dtype == "key" or not readable(self.sharding, self.type):
            return format(str(self), spec)
        return format(np.asarray(self)[()], spec)

    def __repr__(self) -> str:
        if self.is_deleted():
            return f"Array({self.type} that {self._gone})"
        if self._whole is None and not readable(self.sharding, self.type):
            owners = {device.process_index for device in self.sharding.device_set}
            whose = "several processes" if len(owners) > 1 else f"process {min(owners)}"
            return (
                f"Array({self.type} on {counted(self.sharding.num_devices, 'device')} of {whose})"
            )
        if self.type.dtype == "key":
            return f"Array({self.shape}, dtype={self.dtype}) of words\n{words_of(self.read())}"
        width = np.get_printoptions()["linewidth"]
        text = np.array2string(
            np.asarray(self), prefix="Array(", suffix=",", separator=", ", max_line_width=width
        )
        ending = f"dtype={self.dtype.name}{', weak_type=True' if self.weak_type else ''})"
        if not self.size:
            text, ending = "[]", f"shape={self.shape}, {ending}"
        last = len(text) - text.rfind("\n") - 1 + len("Array(" if "\n" not in text else "")
        space = " " if last + len(ending) + 2 <= width else "\n" + " " * len("Array(")
        return f"Array({text},{space}{ending}"


def from_numpy(array: npt.ArrayLike, weak: bool = False, dtype: str = "") -> Array:
    """Return an uncommitted array on the default device with the elements of `array`.

    They are copied unless the memory is immutable. 64-bit element types are narrowed unless
    `enable_x64` is set. `dtype` overrides the element type.
    """
    if type(array) is np.ndarray and not weak and not dtype:
        known, on = signature_of_numpy(array), usual_sharding()
        if known is not None and array.flags.carray:
            made: Array | None = entered(array, known[0], on)
            if made is not None:
                return made
        if known is not None and becomes(array, known[1]):
            storage = (
                taken(plain_truths(array)) if known[1] is array.dtype else copied(array, known[1])
            )
            return Array(known[0], on, storage)
    numbers = np.asarray(array) if dtype == "key" else to_numpy(array)
    name = dtype or dtype_name(numbers.dtype)
    abstract = Abstract(TensorType(numbers.shape, name), weak)
    return uncommitted(taken(numbers), abstract)


def signature_of_numpy(array: npt.NDArray[Any]) -> tuple[Signature, np.dtype[Any]] | None:
    """Return the signature and element type of the array made from a NumPy array.

    Return `None` if shardir has no such element type.
    """
    return _signature_of_numpy(array.shape, array.dtype, config.enable_x64)


def becomes(array: npt.NDArray[Any], kind: np.dtype[Any]) -> bool:
    """Return whether all elements fit into `kind`, the element type of `array` or a narrower
    one."""
    if array.dtype is kind or array.dtype.kind not in "iu" or not array.size:
        return True
    bounds = np.iinfo(kind)
    return bool(array.min() >= bounds.min and array.max() <= bounds.max)


@lru_cache(1 << 12)
def _signature_of_numpy(
    shape: tuple[int, ...], dtype: np.dtype[Any], wide: bool
) -> tuple[Signature, np.dtype[Any]] | None:
    try:
        name = canonical(dtype_name(dtype))
    except TypeError:
        return None
    type = TensorType(shape, name)
    return signature_of(Abstract(type), None), type.numpy


def usual_sharding() -> Sharding:
    """Return the sharding of uncommitted arrays: the default device."""
    return _on(uncommitted_device())


@lru_cache(1 << 8)
def _on(device: Device) -> Sharding:
    return SingleDeviceSharding(device)


def uncommitted(numbers: Storage, abstract: Abstract) -> Array:
    """Return an uncommitted array on the default device that owns `numbers`."""
    return Array(signature_of(abstract, None), usual_sharding(), numbers)


def placed(numbers: Storage, abstract: Abstract, sharding: Sharding) -> Array:
    """Return an array committed to `sharding` that owns `numbers`."""
    kept: Storage | Sequence[Buffer] = numbers
    if not sharding.is_fully_addressable:
        kept = cut(numbers.array, sharding)
    elif full_shape(numbers.shape, sharding) != numbers.shape:
        kept = Storage.of(padded(numbers.array, sharding))
    return Array(signature_of(abstract, sharding), sharding, kept)
