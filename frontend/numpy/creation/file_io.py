"""Arrays from and to files, buffers and text, by NumPy's functions."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from os import PathLike
from typing import IO, Any

import numpy as np

from shardir.errors import missing_file_reason
from shardir.frontend.argument_checks import check_flag, check_integer
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.abstract_value import AbstractValue, ArrayBase
from shardir.frontend.arrays.array import Array, make_uncommitted_array
from shardir.frontend.arrays.array_import import import_dlpack
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.operators import Operators
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.programs import view_launch
from shardir.frontend.dispatch.recorded_calls import RecordedCall, recorded_calls
from shardir.frontend.errors import ArgumentError, MissingFileError
from shardir.frontend.numpy.creation.array_conversion import asarray
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import NumpyArray
from shardir.ir.npy_types import to_npy
from shardir.ir.types import NUMPY_DTYPES, TensorType, dtype_name

_DTYPE_OF_BYTES = {np.dtype("V2"): NUMPY_DTYPES["bf16"]}
"""The dtypes that NumPy writes to files as elements of a number of bytes, by that type."""

get_printoptions, set_printoptions = np.get_printoptions, np.set_printoptions
printoptions = np.printoptions


@with_argument_errors
def array_repr(
    arr: object,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """Return the text of an array as `repr` does, with options as in NumPy."""
    with _print_options(max_line_width, precision, suppress_small):
        return repr(arr)


@with_argument_errors
def array_str(
    a: object,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """Return the text of an array as `str` does, with options as in NumPy."""
    with _print_options(max_line_width, precision, suppress_small):
        return str(a)


def _print_options(
    width: int | None, precision: int | None, suppress: bool | None
) -> AbstractContextManager[Any]:
    given: dict[str, int] = {}
    if width is not None:
        given["linewidth"] = check_integer("max_line_width", width)
    if precision is not None:
        given["precision"] = check_integer("precision", precision, 0)
    if suppress is not None:
        given["suppress"] = check_flag("suppress_small", suppress)
    options: AbstractContextManager[Any] = printoptions(**given)  # type: ignore[arg-type]
    return options


def _missing_file_error(name: str, path: str) -> MissingFileError:
    return MissingFileError(
        with_location(f"{name} cannot read {path!r}: {missing_file_reason(path)}")
    )


def _record_bytes_view(given: bytes, array: ArrayLike) -> None:
    """Record for an active cache insertion that the array is a view of `given`, if it is."""
    done = recorded_calls.get()
    if done is not None and type(array) is Array and array.size:
        done.append(
            RecordedCall([given], view_launch.bytes_view_launch(given, array), [given], None, array)
        )


@composed_function()
def frombuffer(
    buffer: bytes | bytearray | memoryview | NumpyArray | Operators,
    dtype: DTypeLike = float,
    count: int = -1,
    offset: int = 0,
) -> Tracer:
    """Return an array of the elements in a buffer of bytes, with NumPy's arguments."""
    result = asarray(np.frombuffer(buffer, dtype, count, offset))  # type: ignore[arg-type]
    if type(buffer) is bytes:
        _record_bytes_view(buffer, result)
    return result


@with_argument_errors
def fromfile(
    file: str | PathLike[str] | IO[bytes],
    dtype: DTypeLike = float,
    count: int = -1,
    sep: str = "",
    offset: int = 0,
) -> Tracer:
    """Return an array of the elements in a file of bytes or text, with NumPy's arguments."""
    check_integer("offset of fromfile", offset, 0)
    try:
        return asarray(np.fromfile(file, dtype, count, sep, offset))  # type: ignore[arg-type]
    except FileNotFoundError as error:
        raise _missing_file_error("fromfile", error.filename) from None


@with_argument_errors
def fromiter(iter: Iterable[object], dtype: DTypeLike, count: int = -1) -> Tracer:
    """Return an array of the elements in an iterable, with NumPy's arguments."""
    return asarray(np.fromiter(iter, dtype, count))  # type: ignore[arg-type]


@with_argument_errors
def fromstring(string: str, dtype: DTypeLike = float, count: int = -1, *, sep: str) -> Tracer:
    """Return an array of the elements in a text, with NumPy's arguments."""
    return asarray(np.fromstring(string, dtype, count, sep=sep))  # type: ignore[arg-type]


@with_argument_errors
def from_dlpack(x: object, /, *, device: ShardingRequest = None, copy: bool | None = None) -> Array:
    """Return an array of the elements of another library's array, which supports DLPack.

    Memory that the library marks as read-only is shared, other memory is copied. `copy=True` always
    copies; `copy=False` always shares, and the memory must then not be written any more. `device`
    is a device or a sharding on which to place the array.

    Raise `ArgumentError` if `copy=False` is not possible: the element type is converted, or the
    elements are not contiguous in row-major order. Raise `NotAnArrayError` for an object without
    elements.
    """
    if isinstance(x, Array):
        return x if device is None else device_put(x, device)
    numbers = import_dlpack(x, copy)
    abstract = AbstractValue(TensorType(numbers.shape, dtype_name(numbers.dtype)))
    result = make_uncommitted_array(numbers, abstract)
    return result if device is None else device_put(result, device)


@with_argument_errors
def save(file: str | PathLike[str] | IO[bytes], arr: ArrayLike, allow_pickle: bool = True) -> None:
    """Write an array to a `.npy` file; raise `ArgumentError` unless `file` is a path or an open
    file.

    `allow_pickle` has no effect, because arrays contain no objects.
    """
    _check_file("save", "writes to", "write", file)
    np.save(file, to_npy(np.asarray(arr)))


@with_argument_errors
def savez(
    file: str | PathLike[str] | IO[bytes],
    *args: PyTree,
    allow_pickle: bool = True,
    **kwds: ArrayLike,
) -> None:
    """Write arrays to a `.npz` file; keyword arguments are stored with their names.

    `allow_pickle` has no effect, because arrays contain no objects.
    Raise `ArgumentError` unless `file` is a path or an open file.
    """
    _check_file("savez", "writes to", "write", file)
    named: dict[str, Any] = {name: to_npy(np.asarray(x)) for name, x in kwds.items()}
    np.savez(file, *(to_npy(np.asarray(x)) for x in args), **named)


@with_argument_errors
def load(file: str | PathLike[str] | IO[bytes], **options: PyTree) -> PyTree:
    """Return the array of a `.npy` file, or a dict of the arrays of a `.npz` file.

    Raise `MissingFileError` if the file does not exist, and `ArgumentError` if it is not such a
    file, or has elements of at most 8 bits that are not of one of NumPy's own types: the format
    does not name their type.
    """
    _check_file("load", "reads from", "read", file)
    try:
        found = np.load(file, **options)
    except FileNotFoundError:
        raise _missing_file_error("load", str(file)) from None
    except (TypeError, ValueError, IsADirectoryError) as error:
        raise ArgumentError(with_location(f"load cannot read {file!r}: {error}")) from None
    if isinstance(found, np.ndarray):
        return _restore_dtype(found, file)
    with found:
        return {name: _restore_dtype(found[name], file) for name in found}


def _check_file(name: str, action: str, method: str, file: object) -> None:
    is_open = hasattr(file, method) and not isinstance(file, (ArrayBase, type))
    if not isinstance(file, (str, PathLike)) and not is_open:
        raise ArgumentError(
            with_location(f"{name} {action} a path or an open file, got {brief_with_type(file)}")
        )


def _restore_dtype(x: NumpyArray, file: object) -> Tracer:
    if x.dtype == np.dtype("V1"):
        raise ArgumentError(
            with_location(
                f"the elements in {file!r} have 8 bits and no type, as those of float8 and int4; "
                "name it: shardir.numpy.asarray(numpy.load(file).view(dtype))"
            )
        )
    return asarray(x.view(_DTYPE_OF_BYTES.get(x.dtype, x.dtype)))
