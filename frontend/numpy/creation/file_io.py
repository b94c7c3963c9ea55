"""Arrays from and to files, buffers and text, by NumPy's functions."""

from contextlib import AbstractContextManager
from os import PathLike
from typing import IO, Any

import numpy as np

from shardir.errors import missing_file_reason
from shardir.frontend.argument_errors import FOREIGN_ERRORS, raise_argument_error
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import Array, make_uncommitted_array
from shardir.frontend.arrays.array_import import import_dlpack
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.programs import view_launch
from shardir.frontend.dispatch.recorded_calls import RecordedCall, recorded_calls
from shardir.frontend.errors import ArgumentError, MissingFileError
from shardir.frontend.numpy.creation.array_conversion import asarray
from shardir.frontend.pytree_types import PyTree, UserFunction
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


def array_repr(
    arr: object,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """Return the text of an array as `repr` does, with options as in NumPy."""
    with _print_options(max_line_width, precision, suppress_small):
        return repr(arr)


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
    given: dict[str, Any] = {"linewidth": width, "precision": precision, "suppress": suppress}
    return printoptions(**{name: value for name, value in given.items() if value is not None})


def _missing_file_error(name: str, path: str) -> MissingFileError:
    return MissingFileError(
        with_location(f"{name} cannot read {path!r}: {missing_file_reason(path)}")
    )


def _define_reader(name: str, what: str) -> UserFunction:
    def function(*args: PyTree, **options: PyTree) -> Tracer:
        try:
            found = getattr(np, name)(*args, **options)
        except FileNotFoundError as error:
            raise _missing_file_error(name, error.filename) from None
        except FOREIGN_ERRORS as error:
            raise_argument_error(function, name, args, options, error)
            raise
        result = asarray(found)
        if args and type(args[0]) is bytes:
            _record_bytes_view(args[0], result)
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return an array of the elements in {what}, with NumPy's arguments."
    return function


def _record_bytes_view(given: bytes, array: ArrayLike) -> None:
    """Record for an active cache insertion that the array is a view of `given`, if it is."""
    done = recorded_calls.get()
    if done is not None and type(array) is Array and array.size:
        done.append(
            RecordedCall([given], view_launch.bytes_view_launch(given, array), [given], None, array)
        )


frombuffer = composed_function()(_define_reader("frombuffer", "a buffer of bytes"))
fromfile = _define_reader("fromfile", "a file of bytes or text")
fromiter = _define_reader("fromiter", "an iterable")
fromstring = _define_reader("fromstring", "a text")


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


def save(file: str | PathLike[str] | IO[bytes], arr: ArrayLike, allow_pickle: bool = True) -> None:
    """Write an array to a `.npy` file; raise `ArgumentError` unless `file` is a path or an open
    file.

    `allow_pickle` has no effect, because arrays contain no objects.
    """
    _check_target("save", file)
    np.save(file, to_npy(np.asarray(arr)))


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
    _check_target("savez", file)
    named: dict[str, Any] = {name: to_npy(np.asarray(x)) for name, x in kwds.items()}
    np.savez(file, *(to_npy(np.asarray(x)) for x in args), **named)


def load(file: str | PathLike[str] | IO[bytes], **options: PyTree) -> PyTree:
    """Return the array of a `.npy` file, or a dict of the arrays of a `.npz` file.

    Raise `MissingFileError` if the file does not exist, and `ArgumentError` if it is not such a
    file, or has elements of at most 8 bits that are not of one of NumPy's own types: the format
    does not name their type.
    """
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


def _check_target(name: str, file: object) -> None:
    if not isinstance(file, (str, PathLike)) and not hasattr(file, "write"):
        raise ArgumentError(
            with_location(f"{name} writes to a path or an open file, got {brief_with_type(file)}")
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
