"""What a known mask chooses of an array that nobody has placed: `x[mask]`, `compress`, `nonzero`.

How many elements there are differs from call to call, so no program is made for them: machine code
puts them together, and NumPy where there is none.
"""

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.native import available
from shardir.backends.storage import Storage
from shardir.frontend.array import Array, uncommitted
from shardir.frontend.promotion import Abstract
from shardir.frontend.trace import current
from shardir.types import TensorType

Mask = Array | npt.NDArray[np.bool_]


def is_plain_mask(mask: Any) -> bool:
    """Whether something is a boolean array that is known and nobody has placed."""
    if type(mask) is Array:
        return mask.type.dtype == "bool" and mask.signature.sharding is None
    return type(mask) is np.ndarray and mask.dtype == np.bool_


def chosen(x: Any, mask: Any, axis: int | None) -> Array | None:
    """The rows of `x` where a mask of the dimensions from `axis` on is true, without an axis the
    elements of the flat array; `None` where a program has to find them, or they do not fit."""
    if type(x) is not Array or x.signature.sharding is not None or not is_plain_mask(mask):
        return None
    if current() is not None:
        return None
    abstract = x.signature.abstract
    shape, marks = abstract.type.shape, mask.shape
    if axis is None:
        shape, marks, axis = (prod(shape),), (prod(marks),), 0
    end = axis + len(marks)
    if axis < 0 or not marks or shape[axis:end] != marks or abstract.type.dtype == "key":
        return None
    outer, size, rest = prod(shape[:axis]), prod(marks), shape[end:]
    row = prod(rest) * abstract.type.numpy.itemsize
    if available() and outer * size * row:
        storage = x.storage
        flags, kept = _flags(mask)
        count, block = _masks().chosen(flags, size, storage.address, row, outer)
        del kept
        held = Storage(block.address, block, (*shape[:axis], count, *rest), storage.dtype)
    else:
        lines = x.storage.array.reshape(outer, size, *rest)[:, np.asarray(mask).reshape(-1)]
        held = Storage.of(lines.reshape(*shape[:axis], lines.shape[1], *rest))
    return uncommitted(held, Abstract(TensorType(held.shape, abstract.type.dtype), abstract.weak))


def true_places(mask: Mask) -> Storage:
    """Where a mask of fewer than 2^31 elements is true in row-major order, in i32."""
    if not available() or not mask.size:
        return Storage.of(np.flatnonzero(np.asarray(mask)).astype(np.int32))
    flags, kept = _flags(mask)
    count, block = _masks().places(flags, mask.size)
    del kept
    return Storage(block.address, block, (count,), np.dtype(np.int32))


def _flags(mask: Mask) -> tuple[int, object]:
    """The address of a mask's bytes in row-major order, and what has to live as long."""
    if isinstance(mask, Array):
        storage = mask.storage
        return storage.address, storage
    whole = np.ascontiguousarray(mask)
    return whole.__array_interface__["data"][0], whole


def _masks() -> Any:
    from shardir.backends.cpu.native.moves import masks

    return masks
