"""Conversions of a concrete array to Python numbers, NumPy arrays and arrays of other libraries."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from shardir.frontend.argument_checks import is_one_of
from shardir.frontend.arrays.dlpack import export_dlpack
from shardir.frontend.arrays.operators import Operators
from shardir.frontend.call_signatures import with_signature_errors
from shardir.frontend.errors import ArgumentError, IndexingError, ShapeError, TracedValueError
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.ir.dtypes import DTYPE_INFO, KEYS
from shardir.ir.types import COMPLEX, INTEGERS, NumpyArray, TensorType

if TYPE_CHECKING:
    from shardir.frontend.arrays.shard_buffers import Buffer


class Convertible(Operators):
    """Operators, and conversions of the NumPy array that `read` returns."""

    __slots__ = ()

    @property
    @abstractmethod
    def type(self) -> TensorType:
        """Element type and shape."""

    @abstractmethod
    def read(self) -> "Buffer":
        """Return all elements in one NumPy array, which must not be written into."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> "Buffer":
        if self.type.dtype in KEYS:
            raise TracedValueError(
                with_location(
                    "random keys are not numbers, so NumPy cannot hold them; "
                    "read their words with shardir.random.key_data"
                )
            )
        whole = self.read()
        if dtype is not None and np.dtype(dtype) != whole.dtype:
            return whole.astype(dtype)
        return whole.copy() if copy else whole

    def __buffer__(self, flags: int, /) -> memoryview:
        """Return the elements as a read-only buffer.

        Python before version 3.12 calls this method only with the native tier; `bytes` calls it
        always. Raises `BufferError` for element types that buffers do not have.
        """
        name = self.type.dtype
        if name in KEYS or DTYPE_INFO[name].is_extension:
            raise BufferError(
                f"a buffer has no elements of type {name}; read the array with np.asarray"
                if name not in KEYS
                else "a buffer has no random keys; read their words with shardir.random.key_data"
            )
        return self.read().data

    def __bytes__(self) -> bytes:
        """Return the bytes of the elements, or n zeros for one integer n, as NumPy does.

        Without this method, Python iterates over an array that has no buffer (see `__buffer__`).
        """
        if not self.shape and self.type.dtype in INTEGERS:
            return bytes(int(self))
        return bytes(self.__buffer__(0))

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:  # fmt: skip
        """Export the elements by DLPack, marked as read-only.

        A consumer of a DLPack version without the read-only flag gets a copy. PyTorch uses the new
        version but lets its users write into the tensor; call `clone` before writing. Raises
        `BufferError` for another device, and where `copy=False` cannot be satisfied.
        """
        numbers = np.asarray(self)
        if max_version is None or max_version < (1, 0):
            if copy is False:
                raise BufferError(
                    "an array is exported without a copy only to a consumer that supports the "
                    f"read-only flag, max_version=(1, 0), not {max_version}; omit copy=False"
                )
            return export_dlpack(numbers.copy(), dl_device=dl_device)
        return export_dlpack(numbers, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return np.asarray(self).__dlpack_device__()

    def item(self, *index: int) -> Any:
        """Return the only element, or the element at `index`, as a Python number."""
        try:
            return np.asarray(self).item(*index)
        except (IndexError, TypeError, ValueError, OverflowError) as error:
            raise IndexingError(with_location(f"item of {self.type} at {index}: {error}")) from None

    @with_signature_errors
    def tobytes(self, order: str = "C") -> bytes:
        """Return the bytes of the elements, the last dimension fastest, or the first ("F")."""
        if not is_one_of(order, ("C", "F", "A")):
            raise ArgumentError(
                with_location(f"order {brief(order)} is unknown; it is 'C', 'F' or 'A'")
            )
        return np.asarray(self).tobytes(order)  # type: ignore[arg-type]

    def tolist(self) -> Any:
        """Return nested lists of Python numbers."""
        return np.asarray(self).tolist()

    def __bool__(self) -> bool:
        if self.size != 1:
            text = f"an array of shape {self.shape} has no single truth value"
            raise ShapeError(with_location(f"{text}; reduce it with .all() or .any()")).repeat(
                ValueError(text)
            )
        return bool(np.asarray(self))

    def _scalar_element(self, kind: str) -> NumpyArray:
        """Return the element of an array of rank 0 that is to be converted to a Python number of
        type `kind`.
        """
        if self.shape:
            raise ArgumentError(
                with_location(
                    f"an array of shape {self.shape} cannot be converted to {kind}; choose one "
                    "element by an index"
                )
            )
        if kind != "complex" and self.type.dtype in COMPLEX:
            raise ArgumentError(
                with_location(
                    f"a complex number cannot be converted to {kind}; take its .real, or abs(x)"
                )
            )
        return np.asarray(self)

    def __int__(self) -> int:
        return int(self._scalar_element("int"))

    def __float__(self) -> float:
        return float(self._scalar_element("float"))

    def __complex__(self) -> complex:
        return complex(self._scalar_element("complex"))

    def __index__(self) -> int:
        if self.type.dtype not in INTEGERS:
            text = f"an array of type {self.type} is not an index"
            raise ArgumentError(with_location(f"{text}; indices are integers")).repeat(
                TypeError(text)
            )
        return self._scalar_element("int").__index__()

    def __len__(self) -> int:
        if not self.shape:
            text = "an array of rank 0 has no len()"
            raise ArgumentError(with_location(text)).repeat(TypeError(text))
        return self.shape[0]
