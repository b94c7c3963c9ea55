"""What a known mask chooses of an array that nobody has placed: `x[mask]`, `compress`, `nonzero`.

How many elements there are differs from call to call, so no program is made for them: machine code
puts them together, and NumPy where there is none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.native import available
from shardir.backends.storage import Storage
from shardir.frontend.array import Array, from_numpy, signature_of_numpy, usual_sharding
from shardir.frontend.promotion import Abstract
from shardir.frontend.signature import Signature, signature_of
from shardir.frontend.trace import current
from shardir.types import TensorType

if TYPE_CHECKING:
    from shardir.backends.cpu.native.runtime.python_blocks import Block

Mask = Array | npt.NDArray[np.bool_]


def is_plain_mask(mask: Any) -> bool:
    """Whether something is a boolean array that is known and nobody has placed."""
    if type(mask) is Array:
        return mask.type.dtype == "bool" and mask.signature.sharding is None
    return type(mask) is np.ndarray and mask.dtype == np.bool_


def chosen(x: Any, mask: Any, axis: int | None) -> Array | None:
    """The rows of `x` where a mask of the dimensions from `axis` on is true, without an axis the
    elements of the flat array; `None` where a program has to find them, or they do not fit."""
    signature = x.signature if type(x) is Array else _signature_in_place(x)
    if signature is None or current() is not None:
        return None
    if type(mask) is Array:
        choice = _choice(signature, mask.signature, axis)
    else:
        choice = _choice(signature, mask.shape, axis) if is_plain_mask(mask) else None
    if choice is None:
        return None
    if type(x) is not Array:
        storage = Storage.around(x)
    else:
        storage = x.held if type(x.held) is Storage else x.storage
    if choice.find is not None:
        flags, kept = _flags(mask)
        count, block = choice.find(flags, storage.address)
        del kept
        made, shape = _made(signature, choice, count)
        held = Storage(block.address, block, shape, storage.dtype)
    else:
        lines = storage.array.reshape(choice.outer, choice.size, *choice.rest)
        lines = lines[:, np.asarray(mask).ravel()]
        made, shape = _made(signature, choice, lines.shape[1])
        held = Storage.of(lines.reshape(shape))
    return Array(made, usual_sharding(), held)


def _signature_in_place(x: Any) -> Signature | None:
    """That of an array of NumPy whose elements are read where they lie; `None`: they cannot be."""
    if type(x) is not np.ndarray or x.dtype == np.bool_:
        return None
    if not (x.flags.c_contiguous and x.flags.aligned):
        return None
    known = signature_of_numpy(x)
    return known[0] if known is not None and known[1] == x.dtype else None


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """How a mask lies on an array: `outer` times `size` rows, those of one mask between the
    dimensions `head` and `rest`.

    `find` takes the addresses of both and says how many rows there are, and which; `None` where
    NumPy does that.
    """

    outer: int
    size: int
    head: tuple[int, ...]
    rest: tuple[int, ...]
    find: Callable[[int, int], tuple[int, "Block"]] | None


@lru_cache(256)
def _choice(
    signature: Signature, marks: Signature | tuple[int, ...], axis: int | None
) -> _Choice | None:
    """`None` where a mask of this shape does not lie on such an array, or one was placed."""
    if signature.sharding is not None:
        return None
    if isinstance(marks, Signature):
        if marks.sharding is not None or marks.abstract.type.dtype != "bool":
            return None
        marks = marks.abstract.type.shape
    kind = signature.abstract.type
    shape = kind.shape
    if axis is None:
        shape, marks, axis = (prod(shape),), (prod(marks),), 0
    end = axis + len(marks)
    if axis < 0 or not marks or shape[axis:end] != marks or kind.dtype == "key":
        return None
    head, rest = shape[:axis], shape[end:]
    outer, size, row = prod(head), prod(marks), prod(rest) * kind.numpy.itemsize
    find = _masks().chooser(size, row, outer) if available() and outer * size * row else None
    return _Choice(outer, size, head, rest, find)


@lru_cache(1 << 10)
def _made(signature: Signature, choice: _Choice, count: int) -> tuple[Signature, tuple[int, ...]]:
    """What so many chosen rows are."""
    shape = (*choice.head, count, *choice.rest)
    abstract = signature.abstract
    kind = Abstract(TensorType(shape, abstract.type.dtype), abstract.weak)
    return signature_of(kind, None), shape


def true_places(mask: Mask) -> Storage:
    """Where a mask of fewer than 2^31 elements is true in row-major order, in i32."""
    if not available() or not mask.size:
        return Storage.of(np.flatnonzero(np.asarray(mask)).astype(np.int32))
    flags, kept = _flags(mask)
    count, block = _masks().places(flags, mask.size)
    del kept
    return Storage(block.address, block, (count,), np.dtype(np.int32))


def _flags(mask: Mask) -> tuple[int, object]:
    """The address of a mask's bytes in row-major order, and what has to live as long.

    One of NumPy is copied: it is read twice, and somebody might write into it between.
    """
    if type(mask) is np.ndarray and not mask.flags.carray:
        storage = Storage.around(mask.copy())
        return storage.address, storage
    own = mask if type(mask) is Array else from_numpy(mask)
    storage = own.held if type(own.held) is Storage else own.storage
    return storage.address, storage


@cache
def _masks() -> Any:
    from shardir.backends.cpu.native.moves import masks

    return masks
