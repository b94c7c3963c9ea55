"""Numbers that come from elsewhere, in memory that arrays can keep.

Arrays never change, so memory that somebody may still write into is copied, into memory that the
backend uses again and again. What nobody can write into is taken as it is.
"""

from ctypes import memmove
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.native import available
from shardir.backends.storage import Storage, is_storage
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.exchanging import taken_in
from shardir.frontend.executing import prepare
from shardir.frontend.locations import point
from shardir.frontend.operands import to_numpy

POOLED_BYTES = 1 << 12
"""Fewer are NumPy's, which takes less time for them."""

Numbers = npt.NDArray[Any]


def taken(numbers: Numbers) -> Storage:
    """The numbers of a NumPy array in row-major memory that stays as it is."""
    if is_lasting(numbers) and numbers.flags.c_contiguous:
        return Storage.of(numbers)
    return copied(numbers, numbers.dtype)


def copied(numbers: Numbers, kind: np.dtype[Any]) -> Storage:
    """A copy of the numbers of a NumPy array, of an element type that they convert to."""
    nbytes = numbers.size * kind.itemsize
    if nbytes < POOLED_BYTES or not available():
        with np.errstate(all="ignore"):
            # What `astype` gives for a number of NumPy has no memory of its own.
            return Storage.around(np.array(numbers, kind, order="C"))
    _prepare()
    from shardir.backends.cpu.native.llvm.hints import goes_past_caches
    from shardir.backends.cpu.native.llvm.target import host
    from shardir.backends.cpu.native.runtime.memory import allocate

    block = allocate(nbytes)
    if numbers.dtype is kind and numbers.flags.c_contiguous:
        given = numbers.__array_interface__["data"][0]
        if goes_past_caches(nbytes, nbytes, host()):
            from shardir.backends.cpu.native.runtime.bulk import bulk_copy

            bulk_copy(nbytes)(given, block.address)
        else:
            memmove(block.address, given, nbytes)
    else:
        target = np.asarray(block)[:nbytes].view(kind).reshape(numbers.shape)
        with np.errstate(all="ignore"):
            np.copyto(target, numbers, casting="unsafe")
    return Storage(block.address, block, numbers.shape, kind)


@cache
def _prepare() -> None:
    """Who has an array will call a function of it: what that needs begins with the first."""
    prepare("cpu")


def is_lasting(numbers: Numbers) -> bool:
    """Whether nobody can write into the memory of an array: it is that of `bytes`, or our own."""
    base: Any = numbers
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return isinstance(base, bytes) or is_storage(base)


def exchanged(x: Any, copy: bool | None) -> Storage:
    """The numbers of another library's array, which it hands out by DLPack.

    Memory that it says not to write into is taken as it is, other memory copied; with `copy=False`
    all is taken as it is, and not to be written into by anybody from then on. Raises
    `ArgumentError` where that cannot be, and `NotAnArrayError` for what hands out no such numbers.
    """
    if not hasattr(x, "__dlpack__"):
        kind = type(x).__name__
        raise NotAnArrayError(
            point(f"from_dlpack takes an array that has __dlpack__, not one of type {kind}")
        )
    try:
        given = taken_in(x)
    except (RuntimeError, BufferError) as error:
        raise NotAnArrayError(
            point(f"from_dlpack cannot take this array of type {type(x).__name__}: {error}")
        ) from None
    numbers = to_numpy(given)
    same = numbers is given and given.flags.c_contiguous
    if copy is False and not same:
        if numbers is given:
            why = "does not lie in row-major order"
        elif given.dtype == numbers.dtype:
            why = "has truth values of other bytes than 0 and 1"
        else:
            why = f"has elements of type {given.dtype}, which become {numbers.dtype}"
        raise ArgumentError(
            point(
                f"the array given to from_dlpack {why}, which copy=False does not allow; "
                "leave copy away"
            )
        )
    # Who has a view of NumPy's that is not to be written into may write into what it is a view of.
    stays = is_lasting(x) if isinstance(x, np.ndarray) else not given.flags.writeable
    if same and not copy and (copy is False or stays):
        return Storage.of(given)
    return taken(numbers)
