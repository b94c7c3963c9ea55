"""Import of elements from other libraries into memory that arrays own.

Arrays are immutable, so memory that other code may write into is copied, into blocks that the
backend reuses. Immutable memory is used without a copy.
"""

from functools import cache
from gc import get_referents
from typing import TYPE_CHECKING

import numpy as np

from shardir._imports.lazy_import import lazy_import
from shardir.backends.cpu import is_available
from shardir.backends.storage import Storage, is_storage
from shardir.frontend.arrays.dlpack import read_dlpack
from shardir.frontend.arrays.numpy_conversion import to_numpy
from shardir.frontend.dispatch.programs.compilation import prepare_backend
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.source_locations import with_location
from shardir.ir.dtypes import NumpyArray
from shardir.ir.types import NumpyDType

if TYPE_CHECKING:
    from shardir.backends.cpu.threads import memory
else:
    memory = lazy_import("shardir.backends.cpu.threads.memory")

MIN_POOLED_BYTES = 1 << 12
"""Minimum size of a copy in pooled memory; NumPy allocates smaller ones faster."""


def import_numpy(numbers: NumpyArray) -> Storage:
    """Return the elements of a NumPy array in row-major memory that is not written into."""
    if is_immutable_memory(numbers) and numbers.flags.c_contiguous:
        return Storage.of(numbers)
    return copy_numpy(numbers, numbers.dtype)


def copy_numpy(numbers: NumpyArray, kind: NumpyDType) -> Storage:
    """Return a copy of the elements of a NumPy array, converted to an element type."""
    _prepare_cpu_backend()
    nbytes = numbers.size * kind.itemsize
    if nbytes < MIN_POOLED_BYTES or not is_available():
        with np.errstate(all="ignore"):
            # The result of `astype` of a NumPy scalar does not own memory.
            return Storage.wrap(np.array(numbers, kind, order="C"))
    block = memory.copy_to_pool(numbers, kind)
    return Storage(block.address, block, numbers.shape, kind)


@cache
def _prepare_cpu_backend() -> None:
    """Start the initialization of the CPU backend, because a program is likely to follow."""
    prepare_backend("cpu")


def is_immutable_memory(numbers: NumpyArray) -> bool:
    """Return whether the memory of an array is immutable: that of `bytes`, or of a `Storage`."""
    base: object = numbers
    while isinstance(base, np.ndarray | memoryview):
        if isinstance(base, memoryview):
            if not base.readonly:
                return False
            base = _exporter_of(base)
        else:
            if base.flags.writeable:
                return False
            base = base.base
    return isinstance(base, bytes) or is_storage(base)


def _exporter_of(view: memoryview) -> object:
    """Return the object whose memory a view shows.

    For an object with `__buffer__`, this is the view that the method returned; Python 3.12 and
    later refer to it through an object without attributes.
    """
    exporter = view.obj
    if type(exporter).__name__ != "_buffer_wrapper":
        return exporter
    returned = (each for each in get_referents(exporter) if isinstance(each, memoryview))
    return next(returned, exporter)


def import_dlpack(x: object, copy: bool | None) -> Storage:
    """Return the elements of another library's array, exported by DLPack.

    Read-only memory is used without a copy, other memory is copied. With `copy=False` memory is
    never copied, and must not be written into afterwards. Raises `ArgumentError` where a copy is
    required, and `NotAnArrayError` for objects without DLPack export.
    """
    if not hasattr(x, "__dlpack__"):
        kind = type(x).__name__
        raise NotAnArrayError(
            with_location(f"from_dlpack takes an array that has __dlpack__, not one of type {kind}")
        )
    try:
        given = read_dlpack(x)
    except (RuntimeError, BufferError) as error:
        raise NotAnArrayError(
            with_location(f"from_dlpack cannot take this array of type {type(x).__name__}: {error}")
        ) from None
    numbers = to_numpy(given)
    same = numbers is given and given.flags.c_contiguous
    if copy is False and not same:
        if numbers is given:
            why = "is not in row-major order"
        elif given.dtype == numbers.dtype:
            why = "has boolean bytes other than 0 and 1"
        else:
            why = f"has elements of type {given.dtype}, which become {numbers.dtype}"
        raise ArgumentError(
            with_location(
                f"the array given to from_dlpack {why}, which copy=False does not allow; omit copy"
            )
        )
    # The base of a read-only NumPy view may still be writable.
    stays = is_immutable_memory(x) if isinstance(x, np.ndarray) else not given.flags.writeable
    if same and not copy and (copy is False or stays):
        return Storage.of(given)
    return import_numpy(numbers)
