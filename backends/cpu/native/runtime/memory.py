"""The memory of this process: one pool, of which all results and temporaries are blocks."""

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
    """Let the pool take at most so much memory from the system while in the block.

    What is idle goes back first, so that it counts when it is used again.
    """
    before, POOL.limit = POOL.limit, nbytes
    if POOL.statistics().mapped > nbytes:
        POOL.trim()
    try:
        yield
    finally:
        POOL.limit = before


os.register_at_fork(after_in_child=POOL.reset_in_child)
