"""Zeroed blocks: reused without clearing unless they may have been written."""

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from shardir.backends.cpu.threads.memory_mapping import CAN_RESET_PAGES
from shardir.backends.cpu.threads.memory_pool import SEGMENT_BYTES, MemoryPool, size_class
from shardir.backends.cpu.threads.zeroed_memory import MIN_ZEROED_BLOCK_BYTES
from shardir.backends.native import native

MIB = 1 << 20
SIZES = (MIN_ZEROED_BLOCK_BYTES + 100, MIB, 4 * MIB, 9 * MIB)
"""Blocks in segments, and blocks with their own pages."""

pytestmark = pytest.mark.skipif(
    native is None or not CAN_RESET_PAGES,
    reason="blocks of zeros need Linux and the C extension",
)


@pytest.fixture
def pool() -> Iterator[MemoryPool]:
    made = MemoryPool(1 << 30, uses_native_blocks=True)
    yield made
    made.trim()


def allocate_zeroed(pool: MemoryPool, nbytes: int) -> Any:
    block = pool.allocate_zeros(nbytes)
    assert block is not None
    return block


def write_and_free(pool: MemoryPool, nbytes: int, number: int = 7) -> int:
    """Return the address of an idle zeroed block that was written."""
    block = allocate_zeroed(pool, nbytes)
    np.asarray(block)[:] = number
    address: int = block.address
    return address


@pytest.mark.parametrize("nbytes", SIZES)
def test_unwritten_zeroed_blocks_are_reused(pool: MemoryPool, nbytes: int) -> None:
    block = allocate_zeroed(pool, nbytes)
    address = block.address
    assert pool.statistics().in_use == size_class(nbytes)
    del block
    assert pool.statistics().idle == size_class(nbytes)
    block = allocate_zeroed(pool, nbytes - 5)
    assert (block.address, block.nbytes) == (address, nbytes - 5)
    assert not np.asarray(block).any()


@pytest.mark.parametrize("nbytes", SIZES)
def test_written_blocks_are_zeroed_again(pool: MemoryPool, nbytes: int) -> None:
    address = write_and_free(pool, nbytes)
    for number in range(3):
        block = allocate_zeroed(pool, nbytes)
        assert block.address == address
        assert not np.asarray(block).any()
        np.asarray(block)[:] = number
        del block
    assert pool.statistics().mapped <= SEGMENT_BYTES


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_block_exposed_for_writing_is_zeroed_again(pool: MemoryPool, nbytes: int) -> None:
    block = allocate_zeroed(pool, nbytes)
    address = block.address
    del block
    block = allocate_zeroed(pool, nbytes)
    assert pool.may_be_written(block)
    ctypes.memset(address, 3, nbytes)
    del block
    assert not np.asarray(allocate_zeroed(pool, nbytes)).any()


def test_ordinary_allocations_use_small_zeroed_blocks_only(pool: MemoryPool) -> None:
    small, large = write_and_free(pool, MIB), allocate_zeroed(pool, 9 * MIB).address
    other = pool.allocate(MIB)
    assert other.address == small
    untouched = allocate_zeroed(pool, 2 * MIB)
    address = untouched.address
    del untouched
    assert pool.allocate(2 * MIB).address == address
    # An ordinary allocation takes pages that are already resident.
    assert pool.allocate(9 * MIB).address != large


def test_trimmed_pages_are_mapped_again(pool: MemoryPool) -> None:
    referenced = allocate_zeroed(pool, 16 * MIB)
    for _ in range(3):
        blocks = [allocate_zeroed(pool, 9 * MIB) for _ in range(4)]
        np.asarray(blocks[0])[:] = 1
        assert len({block.address for block in blocks}) == 4
        del blocks
        assert pool.trim() == 4 * size_class(9 * MIB)
        assert pool.statistics().mapped == 16 * MIB
    assert not np.asarray(referenced).any()


def test_idle_zeroed_blocks_are_released_at_the_limit(pool: MemoryPool) -> None:
    with_limit = pool.limit
    pool.limit = 100 * MIB
    blocks = [allocate_zeroed(pool, 30 * MIB) for _ in range(3)]
    del blocks
    assert pool.allocate(64 * MIB).nbytes == 64 * MIB
    pool.limit = with_limit


def test_small_zeroed_blocks_are_not_pooled(pool: MemoryPool) -> None:
    assert pool.allocate_zeros(MIN_ZEROED_BLOCK_BYTES - 1) is None
    assert pool.zeros_free_list_address(MIN_ZEROED_BLOCK_BYTES - 1) == 0
    assert (
        MemoryPool(1 << 30).allocate_zeros(MIB) is None
    )  # This pool has no type for blocks of native code.
