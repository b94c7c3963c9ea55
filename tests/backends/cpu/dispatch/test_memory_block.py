"""Memory blocks as Python objects."""

import copy
import pickle
from collections.abc import Callable

import pytest

from shardir.backends.cpu.threads import memory
from shardir.backends.cpu.threads.memory_pool import MAX_SMALL_BLOCK_BYTES


@pytest.mark.parametrize("nbytes", [10, MAX_SMALL_BLOCK_BYTES + 1])
@pytest.mark.parametrize("copy_function", [copy.copy, copy.deepcopy, pickle.dumps])
def test_memory_blocks_cannot_be_copied(
    copy_function: Callable[[object], object], nbytes: int
) -> None:
    with pytest.raises(
        TypeError, match=r"^a memory block cannot be copied; copy its contents instead$"
    ):
        copy_function(memory.allocate(nbytes))
