"""Arrays from and to files, buffers and text: NumPy's functions, with arrays of this package."""

from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np

from shardir.frontend import viewing
from shardir.frontend.array import Array, uncommitted
from shardir.frontend.composing import Did, composed, watched
from shardir.frontend.errors import ArgumentError, MissingFileError
from shardir.frontend.locations import point
from shardir.frontend.numpy.creation import asarray
from shardir.frontend.placing import device_put
from shardir.frontend.promotion import Abstract
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.refusals import FOREIGN, refuse
from shardir.frontend.taking import exchanged
from shardir.types import NUMPY_DTYPES, TensorType, dtype_name

get_printoptions, set_printoptions = np.get_printoptions, np.set_printoptions
printoptions = np.printoptions
array_repr, array_str = repr, str


def _reading(name: str, what: str) -> Callable[..., Any]:
    def function(*args: Any, **options: Any) -> Any:
        try:
            found = getattr(np, name)(*args, **options)
        except FileNotFoundError as error:
            raise MissingFileError(point(f"there is no file {error.filename!r} to read")) from None
        except FOREIGN as error:
            refuse(function, name, args, options, error)
            raise
        made = asarray(found)
        if args and type(args[0]) is bytes:
            _note(args[0], made)
        return made

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"An array of the numbers in {what}, with NumPy's arguments."
    return function


def _note(given: bytes, made: Any) -> None:
    """Tell who wants to know that an array is a part of some bytes, if it is."""
    done = watched.get()
    if done is not None and type(made) is Array and made.size:
        done.append(Did([given], viewing.launcher_of_bytes(given, made), [given], None, made))


frombuffer = composed()(_reading("frombuffer", "a buffer of bytes"))
fromfile = _reading("fromfile", "a file of bytes or text")
fromiter = _reading("fromiter", "something that is iterated over")
fromstring = _reading("fromstring", "a text")


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array of the numbers of another library's, which hands them out by DLPack.

    Memory that the library says not to write into is shared, other memory copied. `copy=True`
    copies it in any case; `copy=False` shares it in any case, and then nobody may write into it any
    more. `device` is a device or a sharding to place the array on.

    Raises `ArgumentError` where `copy=False` asks for what cannot be: for elements of a type that
    becomes another, and for those that do not lie in row-major order. Raises `NotAnArrayError` for
    what has no numbers that can be taken.
    """
    if isinstance(x, Array):
        return x if device is None else device_put(x, device)
    numbers = exchanged(x, copy)
    abstract = Abstract(TensorType(numbers.shape, dtype_name(numbers.dtype)))
    made = uncommitted(numbers, abstract)
    return made if device is None else device_put(made, device)


def save(file: Any, arr: Any) -> None:
    """Write an array to a `.npy` file; raises `ArgumentError` for what is neither path nor file."""
    _check_target("save", file)
    np.save(file, np.asarray(arr))


def savez(file: Any, *args: Any, **kwds: Any) -> None:
    """Write arrays to a `.npz` file, those given by name under their names.

    Raises `ArgumentError` for what is neither path nor file.
    """
    _check_target("savez", file)
    named: dict[str, Any] = {name: np.asarray(x) for name, x in kwds.items()}
    np.savez(file, *map(np.asarray, args), **named)


def load(file: Any, **options: Any) -> Any:
    """The array of a `.npy` file, or the arrays of a `.npz` file by name.

    Raises `MissingFileError` when there is none, `ArgumentError` for what is no such file.
    """
    try:
        found = np.load(file, **options)
    except FileNotFoundError:
        raise MissingFileError(point(f"there is no file {str(file)!r} to load")) from None
    except (TypeError, ValueError, IsADirectoryError) as error:
        raise ArgumentError(point(f"load cannot read {file!r}: {error}")) from None
    if isinstance(found, np.ndarray):
        return _read(found)
    with found:
        return {name: _read(found[name]) for name in found}


def _check_target(name: str, file: Any) -> None:
    if not isinstance(file, (str, PathLike)) and not hasattr(file, "write"):
        raise ArgumentError(
            point(f"{name} writes to a path or an open file, got {brief_with_type(file)}")
        )


def _read(x: np.ndarray[Any, Any]) -> Any:
    # NumPy's files know bfloat16 as two bytes of anything.
    return asarray(x.view(NUMPY_DTYPES["bf16"]) if x.dtype == "V2" else x)
