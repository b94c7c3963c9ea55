"""Storage: all of a tensor in one piece of memory.

What the devices of one process hold are then windows into it, cut where they are wanted: to put an
array elsewhere, to gather it or to hand it to NumPy moves nothing. A dimension that does not
divide is stored as long as its pieces are together; what lies past its end is padding.
"""

from typing import Any, final

import numpy as np
import numpy.typing as npt


@final
class Storage:
    """Row-major memory of `shape` and `dtype` at `address`, kept as long as `owner` is.

    Nobody writes into it once it is handed out, unless nobody else holds its owner.
    """

    __slots__ = ("_array", "address", "dtype", "owner", "shape")

    def __init__(
        self, address: int, owner: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.address, self.owner, self.shape, self.dtype = address, owner, shape, dtype
        self._array: npt.NDArray[Any] | None = None

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> "Storage":
        """The memory of an array, of a copy if its elements do not lie in row-major order."""
        kept = np.ascontiguousarray(array).reshape(array.shape)
        made = cls(kept.__array_interface__["data"][0], kept, kept.shape, kept.dtype)
        made._array = made._bytes_as_numbers()
        return made

    @classmethod
    def around(cls, array: npt.NDArray[Any]) -> "Storage":
        """The memory of an array in one piece, which nobody else has and nobody writes into."""
        return cls(array.__array_interface__["data"][0], array, array.shape, array.dtype)

    @property
    def untouched(self) -> bool:
        """Whether NumPy has never seen it, so that no array can show it."""
        return self._array is None

    @property
    def array(self) -> npt.NDArray[Any]:
        """The elements as NumPy sees them, not to be written into."""
        if self._array is None:
            _show(self.owner)
            self._array = self._bytes_as_numbers()
        return self._array

    def _bytes_as_numbers(self) -> npt.NDArray[Any]:
        """Its memory as an array that nobody can make one to write into, as a view of an array of
        NumPy could be. Types that NumPy has from elsewhere are views of plain bytes."""
        return np.asarray(_Bytes(self)).view(self.dtype).reshape(self.shape)


def _show(owner: Any) -> None:
    """Tell who owns memory, if it wants to know, that others have it now, who might write there."""
    while type(owner) is Storage:
        owner = owner.owner
    show = getattr(owner, "show", None)
    if show is not None:
        show()


def is_storage(base: object) -> bool:
    """Whether the memory of an array with this base is a storage's, so that it stays as it is."""
    return isinstance(base, _Bytes)


@final
class _Bytes:
    """What NumPy makes an array of; the array keeps it, and it keeps the memory."""

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
