"""Idle large blocks, which have their own pages: reuse and eviction order."""

import time

from shardir.backends.cpu.threads.large_blocks import LargeBlocks

MIB = 1 << 20


def idle_blocks(*sizes: int) -> LargeBlocks:
    """Return idle blocks of these sizes at addresses 1, 2, ...; the first is idle for the longest
    time."""
    idle = LargeBlocks()
    for address, size in enumerate(sizes, 1):
        idle.free_list(size).append(address)
        time.sleep(0.002)
    return idle


def test_the_longest_idle_blocks_are_evicted_first() -> None:
    blocks = idle_blocks(30 * MIB, 10 * MIB, 20 * MIB)
    evicted: list[tuple[int, int]] = []
    evicted.extend(blocks.evict(100.0))
    assert evicted == []
    for block in blocks.evict(100.0, lambda: len(evicted) < 2):
        evicted.append(block)
    assert evicted == [(1, 30 * MIB), (2, 10 * MIB)]
    assert blocks.idle_bytes() == 20 * MIB
    assert list(blocks.evict(0.0)) == [(3, 20 * MIB)]
    assert blocks.idle_bytes() == 0


def test_a_slightly_larger_block_is_reused() -> None:
    blocks = idle_blocks(40 * MIB, 21 * MIB)
    assert blocks.free_list(21 * MIB) == [2]
    assert blocks.free_list(20 * MIB) == [2]
    assert blocks.free_list(16 * MIB) == []
    assert blocks.free_list(32 * MIB) == [1]
    assert blocks.free_list(41 * MIB) == []


def test_a_block_reused_during_eviction_is_kept() -> None:
    blocks = idle_blocks(10 * MIB, 20 * MIB)
    evicted = blocks.evict(0.0)
    assert next(evicted) == (1, 10 * MIB)
    assert blocks.free_list(20 * MIB).pop() == 2
    assert list(evicted) == []
