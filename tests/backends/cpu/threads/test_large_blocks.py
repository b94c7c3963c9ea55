"""Idle blocks with pages of their own: which is used again, and which goes first."""

import time

from shardir.backends.cpu.threads.large_blocks import LargeBlocks

MIB = 1 << 20


def filled(*sizes: int) -> LargeBlocks:
    """One idle block of each size, the first idle for longest, at addresses 1, 2, ..."""
    made = LargeBlocks()
    for address, size in enumerate(sizes, 1):
        made.free_list(size).append(address)
        time.sleep(0.002)
    return made


def test_what_is_idle_longest_goes_first_and_no_more_than_needed() -> None:
    blocks = filled(30 * MIB, 10 * MIB, 20 * MIB)
    gone: list[tuple[int, int]] = []
    gone.extend(blocks.evict(100.0))
    assert gone == []
    for block in blocks.evict(100.0, lambda: len(gone) < 2):
        gone.append(block)
    assert gone == [(1, 30 * MIB), (2, 10 * MIB)]
    assert blocks.idle_bytes() == 20 * MIB
    assert list(blocks.evict(0.0)) == [(3, 20 * MIB)]
    assert blocks.idle_bytes() == 0


def test_a_block_that_is_slightly_greater_serves_where_there_is_no_other() -> None:
    blocks = filled(40 * MIB, 21 * MIB)
    assert blocks.free_list(21 * MIB) == [2]
    assert blocks.free_list(20 * MIB) == [2]
    assert blocks.free_list(16 * MIB) == []
    assert blocks.free_list(32 * MIB) == [1]
    assert blocks.free_list(41 * MIB) == []


def test_a_block_that_somebody_took_meanwhile_stays() -> None:
    blocks = filled(10 * MIB, 20 * MIB)
    gone = blocks.evict(0.0)
    assert next(gone) == (1, 10 * MIB)
    assert blocks.free_list(20 * MIB).pop() == 2
    assert list(gone) == []
