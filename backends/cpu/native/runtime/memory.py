"""The memory pool of this process, from which all results and temporaries are allocated."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from shardir.backends.cpu.native.runtime.amounts import memory_of_machine
from shardir.backends.cpu.native.runtime.pool import Pool

POOL = Pool(memory_of_machine())

allocate = POOL.allocate
may_be_written = POOL.may_be_written
zeroed = POOL.zeroed
trim = POOL.trim
statistics = POOL.statistics


@contextmanager
def limited(nbytes: int) -> Iterator[None]:
    """Limit the memory that the pool takes from the system to `nbytes` inside of the block.

    Idle blocks are released first, so that they count when they are used again.
    """
    before, POOL.limit = POOL.limit, nbytes
    if POOL.statistics().mapped > nbytes:
        POOL.trim()
    try:
        yield
    finally:
        POOL.limit = before


os.register_at_fork(after_in_child=POOL.reset_in_child)
