"""Blocks as objects of Python."""

import copy
import pickle
from collections.abc import Callable

import pytest

from shardir.backends.cpu.threads import memory
from shardir.backends.cpu.threads.memory_pool import MAX_SMALL_BLOCK_BYTES


@pytest.mark.parametrize("nbytes", [10, MAX_SMALL_BLOCK_BYTES + 1])
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_blocks_have_one_owner(how: Callable[[object], object], nbytes: int) -> None:
    with pytest.raises(
        TypeError, match=r"^a memory block cannot be copied; copy its contents instead$"
    ):
        how(memory.allocate(nbytes))
