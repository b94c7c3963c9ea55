"""The memory pool of this process, from which all results and temporaries are allocated."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from shardir.backends.cpu.threads.cgroups import available_memory_bytes
from shardir.backends.cpu.threads.memory_pool import MemoryPool
from shardir.backends.native import native

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


os.register_at_fork(after_in_child=MEMORY_POOL.reset_in_child)
