"""The memory pool: reuse, size classes, views, limits, trimming, threads."""

import gc
import subprocess
import sys
import threading
import time
from itertools import pairwise

import numpy as np
import pytest

from shardir.backends.cpu.dispatch.memory_block import MemoryBlock
from shardir.backends.cpu.errors import OutOfMemoryError
from shardir.backends.cpu.threads.memory_pool import (
    SEGMENT_BYTES,
    MemoryPool,
    PoolStatistics,
    size_class,
)
from shardir.errors import ShardirError
from tests.native_tier import needs_native

MIB = 1 << 20


@pytest.mark.parametrize("nbytes", [0, 1, 64, 1000, 4097, MIB, 5 * MIB, 64 * MIB + 1])
def test_blocks_are_aligned_and_writable_to_their_end(nbytes: int) -> None:
    pool = MemoryPool(1 << 30)
    block = pool.allocate(nbytes)
    assert block.address % 64 == 0
    assert block.nbytes == nbytes
    whole = np.asarray(block)
    assert (whole.shape, whole.itemsize) == ((nbytes,), 1)
    whole[-1:] = 7
    assert (whole[-1:] == 7).all()


@pytest.mark.parametrize("nbytes", [100, 4096, 3 * MIB, 9 * MIB])
def test_an_unreferenced_block_is_reused(nbytes: int) -> None:
    pool = MemoryPool(1 << 30)
    first = pool.allocate(nbytes)
    address = first.address
    other = pool.allocate(nbytes)
    assert other.address != address
    del first
    assert pool.allocate(nbytes).address == address
    # A slightly smaller size reuses the block too.
    assert pool.allocate(nbytes - 1).address == address


def test_views_keep_a_block_alive() -> None:
    pool = MemoryPool(1 << 30)
    view = np.asarray(pool.allocate(8 * 100)).view(np.float64).reshape(10, 10)[2:4].T
    view[...] = 1.5
    others = [pool.allocate(800) for _ in range(10)]
    for other in others:
        np.asarray(other)[...] = 0xFF
    assert (view == 1.5).all()
    assert pool.statistics().idle == 0
    del view
    assert pool.statistics().idle == size_class(800)


def test_blocks_do_not_overlap() -> None:
    pool = MemoryPool(1 << 30)
    sizes = [1, 64, 65, 1000, 1025, 5000, 100_000, MIB, 3 * MIB, 5 * MIB] * 3
    blocks = [pool.allocate(size) for size in sizes]
    spans = sorted((block.address, block.address + block.nbytes) for block in blocks)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_size_classes_waste_at_most_an_eighth() -> None:
    for nbytes in [*range(5000), *range(MIB - 50, MIB + 50), 3 * MIB + 5]:
        size = size_class(nbytes)
        assert size % 64 == 0
        assert max(nbytes, 1) <= size
        assert size <= max(nbytes * 9 / 8 + 64, 64)
    assert size_class(4 * MIB + 1) == 6 * MIB
    assert size_class(64 * MIB) == 64 * MIB


def test_statistics_are_consistent() -> None:
    pool = MemoryPool(1 << 30)
    assert pool.statistics() == PoolStatistics(0, 0, 0, 0)
    small, large = pool.allocate(1000), pool.allocate(64 * MIB)
    mapped = SEGMENT_BYTES + 64 * MIB
    assert pool.statistics() == PoolStatistics(1024 + 64 * MIB, 0, mapped, mapped)
    del large
    assert pool.statistics() == PoolStatistics(1024, 64 * MIB, mapped, mapped)
    assert pool.trim() == 64 * MIB
    remaining_bytes = SEGMENT_BYTES
    assert pool.statistics() == PoolStatistics(1024, 0, remaining_bytes, mapped)
    del small
    assert pool.statistics() == PoolStatistics(0, 1024, remaining_bytes, mapped)


def test_an_out_of_memory_error_leaves_the_pool_unchanged() -> None:
    pool = MemoryPool(100 * MIB)
    allocated = pool.allocate(40 * MIB)
    np.asarray(allocated)[...] = 3
    with pytest.raises(OutOfMemoryError) as caught:
        pool.allocate(80 * MIB)
    assert str(caught.value) == (
        "no memory for 80.0 MiB: 40.0 MiB are in use, the pool holds 40.0 MiB of at most 100.0 "
        "MiB; drop arrays that are not needed any more, donate arguments (donate_argnums), or "
        "spread the program over more machines"
    )
    assert isinstance(caught.value, ShardirError)
    assert isinstance(caught.value, MemoryError)
    assert (np.asarray(allocated) == 3).all()
    assert pool.allocate(40 * MIB).address != allocated.address


def test_a_failed_mapping_is_an_out_of_memory_error() -> None:
    pool = MemoryPool(1 << 62)
    with pytest.raises(OutOfMemoryError, match=r"^no memory for 1000.0 TiB: 0 B are in us"):
        pool.allocate(1000 << 40)
    assert pool.statistics().mapped == 0


def test_idle_memory_is_released_for_larger_blocks() -> None:
    pool = MemoryPool(100 * MIB)
    first = [pool.allocate(20 * MIB) for _ in range(4)]
    first.clear()
    assert pool.allocate(90 * MIB).nbytes == 90 * MIB


def test_blocks_in_reference_cycles_are_released() -> None:
    pool = MemoryPool(100 * MIB)
    gc.disable()
    try:
        cycle: list[object] = [pool.allocate(80 * MIB)]
        cycle.append(cycle)
        del cycle
        assert pool.allocate(90 * MIB).nbytes == 90 * MIB
    finally:
        gc.enable()


def test_the_pool_does_not_grow_with_unrepeated_sizes() -> None:
    pool = MemoryPool(400 * MIB)
    for _ in range(50):
        pool.allocate(64 * MIB)
    assert pool.statistics().mapped == 64 * MIB
    for size in range(64, 200, 10):
        pool.allocate(size * MIB)
        assert pool.statistics().mapped <= 1.25 * 200 * MIB


def test_a_loop_maps_no_memory_after_its_first_iteration() -> None:
    pool = MemoryPool(1 << 40)
    mapped = set()
    for _ in range(5):
        for size in (64, 90, 200, 90):
            pool.allocate(size * MIB)
        mapped.add(pool.statistics().mapped)
    assert mapped == {(64 + 96 + 208) * MIB}


def test_trim_keeps_recently_used_blocks() -> None:
    pool = MemoryPool(1 << 40)
    old = pool.allocate(10 * MIB)
    del old
    time.sleep(0.05)
    recent = pool.allocate(20 * MIB)
    del recent
    assert pool.trim(idle_seconds=0.04) == 10 * MIB
    assert pool.trim(idle_seconds=100) == 0
    assert pool.trim() == 20 * MIB


def test_threads_may_use_a_pool_concurrently() -> None:
    pool = MemoryPool(1 << 40)
    mismatch_counts: list[int] = []
    sizes = [100, 200, 5000, 2 * MIB, 5 * MIB]

    def allocate_and_check(mark: int) -> None:
        for turn in range(300):
            blocks: list[MemoryBlock] = [pool.allocate(sizes[(turn + k) % 5]) for k in range(4)]
            for block in blocks:
                np.asarray(block)[:50] = mark
            if turn % 50 == 0:
                pool.trim()
            mismatch_counts.extend(int((np.asarray(block)[:50] != mark).sum()) for block in blocks)

    threads = [threading.Thread(target=allocate_and_check, args=(mark,)) for mark in range(6)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert set(mismatch_counts) == {0}
    assert pool.statistics().in_use == 0


@needs_native
def test_segments_of_idle_blocks_are_released_at_the_limit() -> None:
    """Run this in its own process, because other tests keep small blocks."""
    program = """
import numpy as np
import shardir.numpy as snp
from shardir.backends.cpu.threads import memory
mb = 1 << 20
with memory.limit_memory(320 * mb):
    for _ in range(2):
        kept = snp.arange(1000.0) + 1
        many = [snp.arange(1000.0 * (k + 1)) + k for k in range(150)] + [
            make for k in range(30) for make in (snp.zeros(mb - k), snp.full(mb - k, 2.0) + k)
        ]
        assert memory.statistics().mapped > 200 * mb
        del many
        large = snp.full(55 * mb, 3.0)
        found = memory.statistics()
        assert found.mapped <= 320 * mb and found.in_use + found.idle <= found.mapped, found
        assert (np.asarray(kept) == np.arange(1000) + 1).all() and float(large[-1]) == 3
        del large
    assert not np.asarray(snp.zeros(mb)).any()
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
