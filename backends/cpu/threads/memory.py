"""The memory pool of this process: results, temporaries, and copies of arrays."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import memmove
from typing import TYPE_CHECKING

import numpy as np

from shardir._imports.lazy_import import lazy_import
from shardir.backends.cpu.codegen.memory_hints import should_stream_stores
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.threads.cgroups import available_memory_bytes
from shardir.backends.cpu.threads.memory_pool import Block, MemoryPool
from shardir.backends.native import native
from shardir.ir.dtypes import NumpyArray
from shardir.ir.types import NumpyDType

if TYPE_CHECKING:
    from shardir.backends.cpu.threads import bulk_copy
else:
    bulk_copy = lazy_import("shardir.backends.cpu.threads.bulk_copy")

MEMORY_POOL = MemoryPool(available_memory_bytes(), uses_native_blocks=native is not None)

allocate = MEMORY_POOL.allocate
may_be_written = MEMORY_POOL.may_be_written
allocate_zeros = MEMORY_POOL.allocate_zeros
trim = MEMORY_POOL.trim
statistics = MEMORY_POOL.statistics


@contextmanager
def limit_memory(nbytes: int) -> Iterator[None]:
    """Limit the memory that the pool takes from the system to `nbytes` inside of the block.

    Idle blocks are released first, so that they count when they are used again.
    """
    before, MEMORY_POOL.limit = MEMORY_POOL.limit, nbytes
    if MEMORY_POOL.statistics().mapped > nbytes:
        MEMORY_POOL.trim()
    try:
        yield
    finally:
        MEMORY_POOL.limit = before


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


os.register_at_fork(after_in_child=MEMORY_POOL.reset_in_child)
