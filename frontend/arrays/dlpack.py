"""DLPack export and import of dtypes that NumPy does not support, as integers of their width.

A capsule holds a description of memory, in which one byte is the type code of the elements. This
module rewrites that byte.
"""

import ctypes
from typing import Any, final

import numpy as np

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import DTypeLike
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.types import NUMPY_DTYPES, NumpyArray, NumpyDType

UINT_TYPE_CODE = 1
"""DLPack's type code of unsigned integers."""
TYPE_CODES = {
    NUMPY_DTYPES[dtype]: code
    for dtype, code in {
        "bf16": 4,
        "f8e3m4": 7,
        "f8e4m3": 8,
        "f8e4m3b11fnuz": 9,
        "f8e4m3fn": 10,
        "f8e4m3fnuz": 11,
        "f8e5m2": 12,
        "f8e5m2fnuz": 13,
        "f8e8m0fnu": 14,
    }.items()
}
"""DLPack's type codes of dtypes that NumPy does not export. DLPack packs dtypes of less than a
byte, which an array stores in a byte each; they are refused."""
_DTYPES = {(code, dtype.itemsize * 8): dtype for dtype, code in TYPE_CODES.items()}
_UNPACKED_DTYPES = [info.numpy for info in DTYPE_INFO.values() if info.bits < info.memory_bits]
NUMPY_EXPORTED = frozenset(
    dtype
    for dtype in NUMPY_DTYPES.values()
    if dtype.kind in "biufc" and dtype not in (*TYPE_CODES, *_UNPACKED_DTYPES)
)
"""The dtypes that NumPy exports."""
TYPE_CODE_OFFSETS_BYTES = {b"dltensor": 20, b"dltensor_versioned": 52}
"""Byte offset of the type code in the structure of a capsule, by capsule name (dlpack.h)."""

_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype, _capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = (
    ctypes.c_void_p,
    [ctypes.py_object, ctypes.c_char_p],
)


def _element_type(capsule: Any) -> ctypes.Array[ctypes.c_uint8]:
    """Return the type code and the bit width in an unconsumed capsule; raises `BufferError`
    otherwise."""
    name = _capsule_name(capsule) if type(capsule).__name__ == "PyCapsule" else None
    if name not in TYPE_CODE_OFFSETS_BYTES:
        what = f"of type {type(capsule).__name__}" if name is None else f"named {name.decode()}"
        raise BufferError(
            f"__dlpack__ returned an object {what}, which is not an unconsumed capsule"
        )
    return (ctypes.c_uint8 * 2).from_address(
        _capsule_pointer(capsule, name) + TYPE_CODE_OFFSETS_BYTES[name]
    )


@with_argument_errors
def is_supported_dtype(dtype: DTypeLike) -> bool:
    """Return whether arrays of an element type can be exchanged with other libraries."""
    found: np.dtype[Any] = np.dtype(dtype)  # type: ignore[arg-type]
    return found in TYPE_CODES or found in NUMPY_EXPORTED


def export_dlpack(numbers: NumpyArray, **options: Any) -> Any:
    """Return a capsule with the elements of an array."""
    code = TYPE_CODES.get(numbers.dtype)
    if code is None and numbers.dtype in _UNPACKED_DTYPES:
        raise BufferError(
            f"DLPack packs several elements of {numbers.dtype} into a byte, which arrays do not; "
            "export x.astype('int8') or x.astype('float32')"
        )
    if code is None:
        return numbers.__dlpack__(**options)
    capsule = numbers.view(f"u{numbers.itemsize}").__dlpack__(**options)
    _element_type(capsule)[0] = code
    return capsule


def read_dlpack(x: Any) -> NumpyArray:
    """Return another library's array as a NumPy array, of any dtype of the IR."""
    given = _WordExporter(x)
    numbers: NumpyArray = np.from_dlpack(given)
    return numbers if given.dtype is None else numbers.view(given.dtype)


@final
class _WordExporter:
    """Wrapper of another library's array that exports dtypes that NumPy lacks as integers."""

    def __init__(self, x: Any) -> None:
        self._x = x
        self.dtype: NumpyDType | None = None
        """The dtype of elements that are exported as integers."""

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._x.__dlpack__(**options)
        found = _element_type(capsule)
        code, bits = found
        self.dtype = _DTYPES.get((code, bits))
        if self.dtype is not None:
            found[0] = UINT_TYPE_CODE
        return capsule

    def __dlpack_device__(self) -> Any:
        return self._x.__dlpack_device__()
