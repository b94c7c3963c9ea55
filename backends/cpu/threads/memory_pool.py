"""A pool of memory blocks that are reused.

The first access to new memory costs more than most kernels take to fill it. A dropped block
therefore enters the free list of its size. Small blocks are allocated in segments; a segment whose
blocks are all idle is returned to the system when memory would be exhausted otherwise. A large
block has separate pages, which are returned to the system by `trim`, or when new memory is needed
and they were idle for long, or when more than half of the limit would be mapped and there are more
idle blocks than the peak use requires. So a loop that reuses the same sizes maps no memory after
its first iteration.

Free lists push and pop their last element atomically, so that neither allocating nor dropping a
block takes a lock; any thread may drop a block at any time.
"""

import ctypes
import gc
import threading
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, final

from shardir.backends.cpu.dispatch.memory_block import MemoryBlock
from shardir.backends.cpu.errors import OutOfMemoryError
from shardir.backends.cpu.threads.large_blocks import LargeBlocks
from shardir.backends.cpu.threads.memory_mapping import (
    CAN_RESET_PAGES,
    map_memory,
    round_to_huge_pages,
    unmap_memory,
)
from shardir.backends.cpu.threads.memory_segments import MemorySegments
from shardir.backends.cpu.threads.zeroed_memory import (
    FREE_LIST_COUNT_WORD,
    MIN_ZEROED_BLOCK_BYTES,
    FreeList,
    ZeroedBlocks,
    make_free_list,
    mark_written,
)
from shardir.backends.native import native
from shardir.display.byte_sizes import show_bytes

BLOCK_ALIGNMENT_BYTES = 64
SEGMENT_BYTES = 32 << 20
MAX_SMALL_BLOCK_BYTES = 4 << 20
"""Blocks up to this size are allocated in segments."""
MAX_MEMOIZED_SIZES = 4096
"""The number of requested sizes that are memoized with their free lists."""
MAX_IDLE_SECONDS = 20.0
"""Large blocks that were idle for longer are released when new memory is needed."""
MAX_MAPPED_TO_PEAK_RATIO = 1.25
"""Beyond half of its limit, the pool maps at most this multiple of the peak use."""


_new_object = object.__new__

Block = Any
"""A `MemoryBlock`, or a `native.SmallBlock`."""


class PoolStatistics(NamedTuple):
    """Sizes in bytes: blocks `in_use`, `idle` blocks, memory `mapped` from the system, and its
    `peak`."""

    in_use: int
    idle: int
    mapped: int
    peak: int


@final
class MemoryPool:
    """Blocks of all sizes; at most `limit` bytes are mapped from the system.

    With `uses_native_blocks` small blocks are of the native tier.
    """

    def __init__(self, limit: int, uses_native_blocks: bool = False) -> None:
        self.limit = limit
        self._native = native if uses_native_blocks else None
        self._lock = threading.RLock()
        self._free_list_by_size: dict[int, list[int]] = {}
        self._small: dict[int, list[int]] = {}
        self._large = LargeBlocks()
        self._native_free_lists: dict[int, FreeList] = {}
        self._free_list_addresses: dict[int, int] = {}
        self._zeros = ZeroedBlocks()
        self._segments = MemorySegments(SEGMENT_BYTES)
        self._mapped = self._peak = self._peak_in_use = 0

    def allocate(self, nbytes: int) -> Block:
        """Return a reused or new block.

        Raises `OutOfMemoryError` without any change of state.
        """
        home = self._free_list_by_size.get(nbytes)
        if home:
            try:
                address = home.pop()
            except IndexError:  # Another thread was faster.
                pass
            else:
                # Setting the fields here takes half of the time of the constructor.
                block = _new_object(MemoryBlock)
                block.address, block.nbytes, block._home = address, nbytes, home
                return block
        place = self._free_list_addresses.get(nbytes)
        if place is not None:
            result: Block | None = native.pop_block(place, nbytes)
            if result is not None:
                return result
        return self._allocate_slow(nbytes)

    def may_be_written(self, block: object) -> bool:
        """Return whether an object is a block that the caller may overwrite, and mark it as
        written."""
        if native is None or type(block) is not native.SmallBlock:
            return type(block) is MemoryBlock
        mark_written(block)
        return True

    def free_list_address(self, nbytes: int) -> int:
        """Return the address of the native free list for a size; 0 if there is none."""
        if self._native is None or nbytes > MAX_SMALL_BLOCK_BYTES:
            return 0
        with self._lock:
            if nbytes not in self._free_list_addresses:
                if len(self._free_list_addresses) >= MAX_MEMOIZED_SIZES:
                    self._free_list_addresses.clear()
                result = self._native_free_lists.setdefault(size_class(nbytes), make_free_list())
                self._free_list_addresses[nbytes] = ctypes.addressof(result)
            return self._free_list_addresses[nbytes]

    def zeros_free_list_address(self, nbytes: int) -> int:
        """Return the address of the native free list of zeroed blocks for a size.

        Returns 0 if there is none, as for small sizes, or on systems that cannot reset pages.
        """
        size = size_class(nbytes)
        if self._native is None or nbytes < MIN_ZEROED_BLOCK_BYTES or not CAN_RESET_PAGES:
            return 0
        with self._lock:
            others = (
                self._native_free_lists.setdefault(size, make_free_list())
                if size <= MAX_SMALL_BLOCK_BYTES
                else None
            )
            return self._zeros.free_list_address(size, others)

    def allocate_zeros(self, nbytes: int) -> Block | None:
        """Return a block of zeros, which takes no physical memory until it is read if it is large.

        Returns `None` if there is no `zeros_free_list_address`. Raises as `allocate` does.
        """
        if not self.zeros_free_list_address(nbytes):
            return None
        size = size_class(nbytes)
        with self._lock:
            result: Block | None = self._zeros.pop_idle(size, nbytes) or self._zeros.pop_and_zero(
                size, nbytes
            )
            if result is not None:
                return result
            new = self._map if size > MAX_SMALL_BLOCK_BYTES else self._allocate_in_segment
            result = self._zeros.make(size, nbytes, new(size, nbytes))
            return result

    def trim(self, idle_seconds: float = 0.0) -> int:
        """Release large blocks that were idle for `idle_seconds`; return the number of bytes."""
        with self._lock:
            before = self._mapped
            self._unmap(self._large.evict(idle_seconds))
            if idle_seconds <= 0:
                self._unmap(self._zeros.evict())
            self._peak_in_use = self._mapped - self._idle_bytes()
            return before - self._mapped

    def statistics(self) -> PoolStatistics:
        """Return the memory use of the pool."""
        with self._lock:
            idle = self._idle_bytes()
            large = self._mapped - self._segments.mapped_bytes
            return PoolStatistics(
                self._segments.allocated_bytes + large - idle, idle, self._mapped, self._peak
            )

    def reset_in_child(self) -> None:
        """Replace the lock after a fork, which another thread may have held."""
        self._lock = threading.RLock()

    # The functions below are called rarely.

    def _allocate_slow(self, nbytes: int) -> Block:
        size = size_class(nbytes)
        small = size <= MAX_SMALL_BLOCK_BYTES
        with self._lock:
            if small and self._native is not None:
                return self._allocate_small(size, nbytes)
            home = self._small.setdefault(size, []) if small else self._large.free_list(size)
            self._memoize(nbytes, home)
            address = _pop_last(home)
            if address is None:
                address = (self._allocate_in_segment if small else self._map)(size, nbytes)
            return MemoryBlock(address, nbytes, home)

    def _allocate_small(self, size: int, nbytes: int) -> Block:
        place = self.free_list_address(nbytes)
        result: Block | None = native.pop_block(place, nbytes)
        if result is None:
            result = self._zeros.pop_for_writing(size, nbytes)
        if result is None:
            result = native.make_block(place, nbytes, self._allocate_in_segment(size, nbytes))
        return result

    def _memoize(self, nbytes: int, home: list[int]) -> None:
        if len(self._free_list_by_size) >= MAX_MEMOIZED_SIZES:
            self._free_list_by_size.clear()
        self._free_list_by_size[nbytes] = home

    def _allocate_in_segment(self, size: int, nbytes: int) -> int:
        if not self._segments.can_allocate(size):
            self._segments.add(self._map(SEGMENT_BYTES, nbytes))
        return self._segments.allocate(size)

    def _map(self, size: int, requested: int) -> int:
        """Map new memory, after idle blocks in excess are released."""
        self._make_room(size)
        address = self._map_within_limit(size)
        if address is None:
            # Collecting cycles frees blocks; then all idle memory is released.
            gc.collect()
            self.trim()
            self._unmap(self._unused_segments())
            address = self._map_within_limit(size)
        if address is None:
            now = self.statistics()
            raise OutOfMemoryError(
                f"no memory for {show_bytes(requested)}: {show_bytes(now.in_use)} are in use, "
                f"the pool holds {show_bytes(now.mapped)} of at most {show_bytes(self.limit)}; "
                "drop arrays that are not needed any more, donate arguments (donate_argnums), "
                "or spread the program over more machines"
            )
        self._mapped += size
        self._peak = max(self._peak, self._mapped)
        return address

    def _map_within_limit(self, size: int) -> int | None:
        return map_memory(size) if self._mapped + size <= self.limit else None

    def _make_room(self, size: int) -> None:
        """Release idle blocks in excess, longest idle first."""
        used = self._mapped - self._idle_bytes() + size
        self._peak_in_use = max(self._peak_in_use, used)
        max_mapped = max(self._peak_in_use * MAX_MAPPED_TO_PEAK_RATIO, self.limit / 2)
        if self._mapped + size > max_mapped:
            self._unmap(self._zeros.evict())
        old = self._large.evict(MAX_IDLE_SECONDS, lambda: self._mapped + size > max_mapped)
        self._unmap(old)

    def _unmap(self, blocks: Iterable[tuple[int, int]]) -> None:
        """Unmap blocks, given as (address, size)."""
        for address, size in blocks:
            unmap_memory(address, size)
            self._mapped -= size

    def _unused_segments(self) -> Iterator[tuple[int, int]]:
        """Remove segments whose blocks are all idle; yield (address, size) of each.

        Meanwhile this generator holds all idle blocks, and an allocation waits for the lock.
        """
        if self._native is None:
            return
        handed = [*self._zeros.drain_segment_blocks()]
        for size, blocks in self._native_free_lists.items():
            while result := self._native.pop_block(ctypes.addressof(blocks), 0):
                handed.append((result, size))
        sizes = [(block.address, size) for block, size in handed]
        for segment in self._segments.find_idle_segments(sizes):
            for block, _ in handed:
                if block.address in segment:
                    self._zeros.retire(block)
            self._segments.remove(segment)
            yield segment.start, len(segment)

    def _idle_bytes(self) -> int:
        """Return the bytes in free lists."""
        small = sum(size * len(home) for size, home in self._small.items())
        handed = sum(
            size * home[FREE_LIST_COUNT_WORD] for size, home in self._native_free_lists.items()
        )
        return small + handed + self._large.idle_bytes() + self._zeros.idle_bytes()


def _pop_last(home: list[int]) -> int | None:
    try:
        return home.pop()
    except IndexError:  # Another thread may be faster at any time.
        return None


def size_class(nbytes: int) -> int:
    """Return the block size for a request: at most an eighth larger, except for the smallest."""
    if nbytes <= 1024:
        return max(1, -(-nbytes // BLOCK_ALIGNMENT_BYTES)) * BLOCK_ALIGNMENT_BYTES
    step = 1 << (nbytes - 1).bit_length() - 4
    size = -(-nbytes // step) * step
    return size if size <= MAX_SMALL_BLOCK_BYTES else round_to_huge_pages(size)
