"""Mask compression of arrays without a sharding outside of a trace: `x[mask]`, `compress`,
`nonzero`.

The number of selected elements differs from call to call, so that no program is compiled for them:
native code gathers the elements, or NumPy if native code is not available.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
import numpy.typing as npt

from shardir._imports.lazy_import import lazy_import
from shardir.backends.cpu import is_available
from shardir.backends.storage import Storage
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import Array, default_sharding, from_numpy, signature_of_numpy
from shardir.frontend.arrays.signature import ArraySignature, signature_of
from shardir.frontend.numpy.tracer_helpers.array_annotations import as_result
from shardir.frontend.tracing.trace import current_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import KEYS
from shardir.ir.types import NumpyArray, TensorType

if TYPE_CHECKING:
    from shardir.backends.cpu.dispatch.memory_block import MemoryBlock
    from shardir.backends.cpu.kernels.selection import mask_compaction
else:
    mask_compaction = lazy_import("shardir.backends.cpu.kernels.selection.mask_compaction")

Mask = Array | npt.NDArray[np.bool_]


def is_plain_mask(mask: object) -> TypeGuard[Mask]:
    """Return whether an object is a concrete boolean array without a sharding."""
    if type(mask) is Array:
        return mask.type.dtype == "bool" and mask.signature.sharding is None
    return type(mask) is np.ndarray and mask.dtype == np.bool_


def compress_rows(x: object, mask: object, axis: int | None) -> Tracer | None:
    """Return the rows of `x` where a mask over the dimensions from `axis` on is true.

    Without an axis, both are flattened. Return `None` if the shapes do not match, or if a compiled
    program has to select the elements.
    """
    if type(x) is not Array and type(x) is not np.ndarray:
        return None
    signature = x.signature if type(x) is Array else _borrowed_signature(x)
    if signature is None or current_trace() is not None:
        return None
    if type(mask) is Array:
        choice = _align_mask(signature, mask.signature, axis)
    elif is_plain_mask(mask):
        choice = _align_mask(signature, mask.shape, axis)
    else:
        return None
    if choice is None:
        return None
    if type(x) is not Array:
        storage = Storage.wrap(x)
    else:
        storage = x.buffers if type(x.buffers) is Storage else x.storage
    if choice.find is not None:
        flags, kept = _mask_address(mask)
        count, block = choice.find(flags, storage.address)
        del kept
        result, shape = _result_signature(signature, choice, count)
        held = Storage(block.address, block, shape, storage.dtype)
    else:
        rows = storage.array.reshape(choice.outer, choice.size, *choice.rest)
        rows = rows[:, np.asarray(mask).ravel()]
        result, shape = _result_signature(signature, choice, rows.shape[1])
        held = Storage.of(rows.reshape(shape))
    return as_result(Array(result, default_sharding(), held))


def _borrowed_signature(x: NumpyArray) -> ArraySignature | None:
    """Return the signature of a NumPy array whose memory can be read directly, else `None`."""
    if x.dtype == np.bool_:
        return None
    if not (x.flags.c_contiguous and x.flags.aligned):
        return None
    known = signature_of_numpy(x)
    return known[0] if known is not None and known[1] == x.dtype else None


@dataclass(frozen=True, slots=True, eq=False)
class _MaskAlignment:
    """The alignment of a mask with an array: `outer` times `size` rows.

    The dimensions of one mask are between the dimensions `head` and `rest`. `find` takes the
    addresses of both and returns the number of rows and their memory block; it is `None` if NumPy
    selects them.
    """

    outer: int
    size: int
    head: tuple[int, ...]
    rest: tuple[int, ...]
    find: Callable[[int, int], tuple[int, "MemoryBlock"]] | None


@lru_cache(256)
def _align_mask(
    signature: ArraySignature, marks: ArraySignature | tuple[int, ...], axis: int | None
) -> _MaskAlignment | None:
    """Return `None` if a mask of this shape does not align with the array, or one has a
    sharding.
    """
    if signature.sharding is not None:
        return None
    if isinstance(marks, ArraySignature):
        if marks.sharding is not None or marks.abstract.type.dtype != "bool":
            return None
        marks = marks.abstract.type.shape
    kind = signature.abstract.type
    shape = kind.shape
    if axis is None:
        shape, marks, axis = (prod(shape),), (prod(marks),), 0
    end = axis + len(marks)
    if axis < 0 or not marks or shape[axis:end] != marks or kind.dtype in KEYS:
        return None
    head, rest = shape[:axis], shape[end:]
    outer, size, row = prod(head), prod(marks), prod(rest) * kind.numpy.itemsize
    find = (
        mask_compaction.compile_row_selection(size, row, outer)
        if is_available() and outer * size * row
        else None
    )
    return _MaskAlignment(outer, size, head, rest, find)


@lru_cache(1 << 10)
def _result_signature(
    signature: ArraySignature, choice: _MaskAlignment, count: int
) -> tuple[ArraySignature, tuple[int, ...]]:
    """Return the signature and the shape of `count` selected rows."""
    shape = (*choice.head, count, *choice.rest)
    abstract = signature.abstract
    kind = AbstractValue(TensorType(shape, abstract.type.dtype), abstract.weak)
    return signature_of(kind, None), shape


def true_indices(mask: Mask) -> Storage:
    """Return the flat row-major indices of the true elements of a mask of fewer than 2^31,
    in i32.
    """
    if not is_available() or not mask.size:
        return Storage.of(np.flatnonzero(np.asarray(mask)).astype(np.int32))
    flags, kept = _mask_address(mask)
    count, block = mask_compaction.true_indices(flags, mask.size)
    del kept
    return Storage(block.address, block, (count,), np.dtype(np.int32))


def _mask_address(mask: Mask) -> tuple[int, object]:
    """Return the address of the bytes of a mask in row-major order, and the owner of the memory.

    A NumPy mask that may be written is copied: it is read twice, and must not change in between.
    """
    if type(mask) is np.ndarray and not mask.flags.carray:
        storage = Storage.wrap(mask.copy())
        return storage.address, storage
    own = mask if type(mask) is Array else from_numpy(mask)
    storage = own.buffers if type(own.buffers) is Storage else own.storage
    return storage.address, storage
