"""Blocks of zeros that are reused without zeroing them again.

Arrays are immutable, so a dropped block of zeros still holds zeros, unless it was *shown*: to
NumPy, through which other libraries may write, or to a program that overwrites a donated argument.
Blocks of zeros therefore have free lists of their own, from which native code pops them unchanged.
A block that was shown enters another list when it is dropped: a block in a segment enters the
normal free list of its size, and a block with separate pages enters a list whose blocks are reused
after the system reset their pages.

A block whose pages were unmapped leaves its Python object in `_spent_blocks`, for a later block.
"""

import ctypes
from collections.abc import Iterator
from typing import Any, final

from shardir.backends.cpu.threads.memory_mapping import reset_pages
from shardir.backends.native import native

MIN_ZEROED_BLOCK_BYTES = 64 << 10
"""Smaller blocks are zeroed in negligible time."""

FreeList = ctypes.Array[ctypes.c_int64]
FREE_LIST_COUNT_WORD = 1
"""The word of a free list that is its length; the first word is the address of its first block."""

_live_free_lists: list[FreeList] = []
_free_lists_by_address: dict[int, tuple[FreeList, FreeList]] = {}
"""By the address of a free list of unwritten blocks: that list, and the list of written ones. Both
live forever, so that their addresses stay unique."""


def mark_written(block: Any) -> None:
    """Record that other code may write to a native block from now on."""
    lists = _free_lists_by_address.get(block.free_list)
    if lists is not None:
        block.free_list = ctypes.addressof(lists[1])


def make_free_list() -> FreeList:
    """Return a free list of native blocks: its first block, and its length.

    It lives forever, because a block may be dropped after its pool.
    """
    result = (ctypes.c_int64 * 2)()
    _live_free_lists.append(result)
    return result


@final
class ZeroedBlocks:
    """The zeroed blocks of a pool, by size."""

    def __init__(self) -> None:
        self._free_lists: dict[int, FreeList] = {}
        self._written_free_lists: dict[int, FreeList] = {}
        self._segment_sizes: set[int] = set()
        self._spent_blocks = make_free_list()

    def free_list_address(self, size: int, others: FreeList | None) -> int:
        """Return the address of the free list of zeroed blocks of a size.

        `others` is the list of normal blocks in segments of that size.
        """
        if size not in self._free_lists:
            if others is not None:
                self._segment_sizes.add(size)
            self._written_free_lists[size] = shown = make_free_list() if others is None else others
            self._free_lists[size] = result = make_free_list()
            _free_lists_by_address[ctypes.addressof(result)] = result, shown
        return ctypes.addressof(self._free_lists[size])

    def pop_idle(self, size: int, nbytes: int) -> Any:
        """Return an idle block of zeros, `None` if there is none."""
        return self._pop(self._free_lists[size], nbytes)

    def pop_and_zero(self, size: int, nbytes: int) -> Any:
        """Return a written block, zeroed again, `None` if there is none."""
        block = self._pop(self._written_free_lists[size], nbytes)
        if block is not None:
            if size in self._segment_sizes:
                ctypes.memset(block.address, 0, size)
            else:
                reset_pages(block.address, size)
            block.free_list = ctypes.addressof(self._free_lists[size])
        return block

    def pop_for_writing(self, size: int, nbytes: int) -> Any:
        """Return a block of zeros to a caller that writes to it, `None` if there is none."""
        block = self.pop_idle(size, nbytes) if size in self._free_lists else None
        if block is not None:
            mark_written(block)
        return block

    def make(self, size: int, nbytes: int, address: int) -> Any:
        """Return a block for zeroed memory at an address."""
        home = ctypes.addressof(self._free_lists[size])
        block = self._pop(self._spent_blocks, nbytes)
        if block is None:
            return native.make_block(home, nbytes, address)
        block.address, block.free_list = address, home
        return block

    def evict(self) -> Iterator[tuple[int, int]]:
        """Release idle blocks with pages of their own; yield (address, size) of each."""
        for size, home in self._large_free_lists():
            while (block := self._pop(home, 0)) is not None:
                self.retire(block)
                yield block.address, size

    def drain_segment_blocks(self) -> Iterator[tuple[Any, int]]:
        """Yield idle blocks in segments with their sizes; dropping them makes them idle again."""
        for size in self._segment_sizes:
            while (block := self.pop_idle(size, 0)) is not None:
                yield block, size

    def retire(self, block: Any) -> None:
        """Let a dropped block keep only its Python object."""
        block.free_list = ctypes.addressof(self._spent_blocks)

    def idle_bytes(self) -> int:
        """Return the bytes of idle blocks."""
        segment_lists = [(size, self._free_lists[size]) for size in self._segment_sizes]
        return sum(
            size * home[FREE_LIST_COUNT_WORD]
            for size, home in (*segment_lists, *self._large_free_lists())
        )

    def _large_free_lists(self) -> list[tuple[int, FreeList]]:
        homes = (*self._free_lists.items(), *self._written_free_lists.items())
        return [(size, home) for size, home in homes if size not in self._segment_sizes]

    def _pop(self, home: FreeList, nbytes: int) -> Any:
        # Most lists are empty, which one word states.
        return native.pop_block(ctypes.addressof(home), nbytes) if home[0] else None
