"""Copies of arrays into blocks of the memory pool."""

from ctypes import memmove
from typing import TYPE_CHECKING

import numpy as np

from shardir._imports.lazy_import import lazy_import
from shardir.backends.cpu.codegen.memory_hints import should_stream_stores
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.threads.memory import allocate
from shardir.backends.cpu.threads.memory_pool import Block
from shardir.ir.dtypes import NumpyArray
from shardir.ir.types import NumpyDType

if TYPE_CHECKING:
    from shardir.backends.cpu.threads import bulk_copy
else:
    bulk_copy = lazy_import("shardir.backends.cpu.threads.bulk_copy")


def copy_to_pool(numbers: NumpyArray, kind: NumpyDType) -> Block:
    """Return a new block with the elements of an array, in row-major order, of type `kind`."""
    nbytes = numbers.size * kind.itemsize
    block = allocate(nbytes)
    if numbers.dtype is not kind or not numbers.flags.c_contiguous:
        target = np.asarray(block)[:nbytes].view(kind).reshape(numbers.shape)
        with np.errstate(all="ignore"):
            np.copyto(target, numbers, casting="unsafe")
        return block
    source = numbers.__array_interface__["data"][0]
    # The copy runs at once, in the caches of this host.
    if should_stream_stores(nbytes, nbytes, host_machine()):
        bulk_copy.bulk_copy(nbytes)(source, block.address)
    else:
        memmove(block.address, source, nbytes)
    return block
