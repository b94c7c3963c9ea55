"""The memory pool of the process: temporary limits, and forks."""

import gc
import subprocess
import sys

import pytest

from shardir.backends.cpu.errors import OutOfMemoryError
from shardir.backends.cpu.threads import memory

MIB = 1 << 20


def test_a_limit_applies_within_its_context() -> None:
    before = memory.MEMORY_POOL.limit
    with (
        memory.limit_memory(10 * MIB),
        pytest.raises(OutOfMemoryError, match=r"of at most 10\.0 MiB; drop arrays"),
    ):
        memory.allocate(6 << 40)
    assert memory.MEMORY_POOL.limit == before


def test_a_limit_includes_reused_idle_blocks() -> None:
    first = memory.allocate(48 * MIB)
    del first
    gc.collect()
    with (
        memory.limit_memory(memory.MEMORY_POOL.statistics().in_use + 40 * MIB),
        pytest.raises(OutOfMemoryError, match=r"no memory for 48\.0 MiB"),
    ):
        memory.allocate(48 * MIB)


def test_a_forked_child_uses_the_pool_of_its_parent() -> None:
    """Run this in its own process, because other tests load libraries that do not support a
    fork."""
    program = """
import os
import numpy as np
from shardir.backends.cpu.threads import memory
block = memory.allocate(5 << 20)
np.asarray(block)[...] = 9
child = os.fork()
if child == 0:
    other = memory.allocate(5 << 20)
    np.asarray(other)[...] = 1
    os._exit(0 if other.address != block.address else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (np.asarray(block) == 9).all())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0 True\n", "")
