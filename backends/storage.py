"""Storage: the memory of a whole tensor.

The shards of one process are windows into it: resharding within a process, gathering, and
conversion to NumPy copy nothing. A dimension that does not divide is padded to the size of all
shards together.
"""

from typing import Any, final

import numpy as np

from shardir.backends.native import StorageFields, native
from shardir.ir.dtypes import NumpyArray, NumpyDType


@final
class Storage(StorageFields):
    """Row-major memory of `shape` and `dtype` at `address`, valid as long as `owner` exists.

    It must not be written to once it is shared, unless there is no other reference to its owner.
    """

    __slots__ = ()

    owner: Any
    shape: tuple[int, ...]
    dtype: NumpyDType
    _array: NumpyArray | None

    def __init__(
        self, address: int, owner: object, shape: tuple[int, ...], dtype: NumpyDType
    ) -> None:
        self.address, self.owner, self.shape, self.dtype = address, owner, shape, dtype
        self._array = None

    @classmethod
    def of(cls, array: NumpyArray) -> "Storage":
        """Return the memory of an array, of a copy if its elements are not in row-major order."""
        kept = np.ascontiguousarray(array).reshape(array.shape)
        made = cls(kept.__array_interface__["data"][0], kept, kept.shape, kept.dtype)
        made._array = made._view_as_array()
        return made

    @classmethod
    def wrap(cls, array: NumpyArray) -> "Storage":
        """Return the memory of a contiguous array that is not referenced or written to
        elsewhere."""
        return cls(array.__array_interface__["data"][0], array, array.shape, array.dtype)

    @property
    def has_no_numpy_array(self) -> bool:
        """True if no NumPy array of this memory was created."""
        return self._array is None

    @property
    def array(self) -> NumpyArray:
        """A read-only NumPy array of the elements."""
        if self._array is None:
            _notify_owner(self.owner)
            self._array = self._view_as_array()
        return self._array

    def _view_as_array(self) -> NumpyArray:
        """Return its memory as a read-only array that cannot be made writable, unlike a view of a
        NumPy array. Types that are not NumPy's own are views of bytes."""
        return np.asarray(_ArrayBase(self)).view(self.dtype).reshape(self.shape)


if native is not None:
    native.set_storage_class(Storage)


def _notify_owner(owner: object) -> None:
    """Notify the owner of memory, if it has a method for it, that a NumPy array may now refer to
    it."""
    while type(owner) is Storage:
        owner = owner.owner
    show = getattr(owner, "show", None)
    if show is not None:
        show()


def is_storage(base: object) -> bool:
    """Return whether the memory of an array with this base is a storage's and is never modified."""
    return isinstance(base, _ArrayBase)


@final
class _ArrayBase:
    """The base of a NumPy array; the array references it, and it references the memory."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, storage: Storage) -> None:
        self.owner = storage.owner
        count = storage.dtype.itemsize
        for size in storage.shape:
            count *= size
        self.__array_interface__ = {
            "data": (storage.address, True),
            "shape": (count,),
            "typestr": "|u1",
            "version": 3,
        }
