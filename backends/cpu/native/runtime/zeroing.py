"""Blocks of zeros that are reused without zeroing them again.

Arrays are immutable, so a dropped block of zeros still holds zeros, unless it was *shown*: to
NumPy, through which other libraries may write, or to a program that overwrites a donated argument.
Blocks of zeros therefore have free lists of their own, from which native code pops them unchanged.
A block that was shown goes to another list when it is dropped: one in an arena to the normal blocks
of its size, one with pages of its own to a list whose blocks are reused after the system reset
their pages.

A block whose pages were unmapped leaves its Python object in the list `spent`, for a later block.
"""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, final

from shardir.backends.cpu.native.runtime.blocks import ADDRESS, COUNT, HOME
from shardir.backends.cpu.native.runtime.mapping import forget

LEAST_BYTES = 64 << 10
"""Smaller blocks are zeroed in negligible time."""

Home = ctypes.Array[ctypes.c_int64]

_elsewhere: dict[int, tuple[Home, Home]] = {}
"""By the address of a free list of unwritten blocks: that list, and the list of written ones. Both
live forever, so that their addresses stay unique."""


def show(block: object) -> None:
    """Record that other code may write to a native block from now on."""
    home = _word(block, HOME)
    if home.value in _elsewhere:
        home.value = ctypes.addressof(_elsewhere[home.value][1])


def new_home() -> Home:
    """Return a free list of native blocks: its first block, and its length."""
    return (ctypes.c_int64 * 2)()


@final
class Zeros:
    """The zeroed blocks of a pool, by size."""

    def __init__(self) -> None:
        self._kind: type
        self._hand: Callable[..., Any]
        self._homes: dict[int, Home] = {}
        self._shown: dict[int, Home] = {}
        self._cut: set[int] = set()
        self._spent = new_home()

    def adopt(self, kind: type, hand: Callable[..., Any]) -> None:
        """Use a native type for blocks, which `small_blocks.hand` allocates."""
        self._kind, self._hand = kind, hand

    def home(self, size: int, others: Home | None) -> int:
        """Return the address of the free list of zeroed blocks of a size.

        `others` is the list of normal blocks in arenas of that size.
        """
        if size not in self._homes:
            if others is not None:
                self._cut.add(size)
            self._shown[size] = shown = new_home() if others is None else others
            self._homes[size] = result = new_home()
            _elsewhere[ctypes.addressof(result)] = result, shown
        return ctypes.addressof(self._homes[size])

    def idle(self, size: int, nbytes: int) -> Any:
        """Return an idle block of zeros, `None` if there is none."""
        return self._from(self._homes[size], nbytes)

    def renewed(self, size: int, nbytes: int) -> Any:
        """Return a written block, zeroed again, `None` if there is none."""
        block = self._from(self._shown[size], nbytes)
        if block is not None:
            if size in self._cut:
                ctypes.memset(block.address, 0, size)
            else:
                forget(block.address, size)
            _word(block, HOME).value = ctypes.addressof(self._homes[size])
        return block

    def for_others(self, size: int, nbytes: int) -> Any:
        """Return a block of zeros to a caller that writes to it, `None` if there is none."""
        block = self.idle(size, nbytes) if size in self._homes else None
        if block is not None:
            show(block)
        return block

    def made(self, size: int, nbytes: int, address: int) -> Any:
        """Return a block for zeroed memory at an address."""
        home = ctypes.addressof(self._homes[size])
        block = self._from(self._spent, nbytes)
        if block is None:
            return self._hand(self._kind, home, nbytes, address)
        for place, value in ((ADDRESS, address), (HOME, home)):
            _word(block, place).value = value
        return block

    def given_up(self) -> Iterator[tuple[int, int]]:
        """Release idle blocks with pages of their own; yield (address, size) of each."""
        for size, home in self._with_pages():
            while (block := self._from(home, 0)) is not None:
                self.spend(block)
                yield block.address, size

    def idle_and_cut(self) -> Iterator[tuple[Any, int]]:
        """Yield idle blocks in arenas with their sizes; dropping them makes them idle again."""
        for size in self._cut:
            while (block := self.idle(size, 0)) is not None:
                yield block, size

    def spend(self, block: object) -> None:
        """Let a dropped block keep only its Python object."""
        _word(block, HOME).value = ctypes.addressof(self._spent)

    def idle_bytes(self) -> int:
        """Return the bytes of idle blocks."""
        cut = [(size, self._homes[size]) for size in self._cut]
        return sum(size * home[COUNT // 8] for size, home in (*cut, *self._with_pages()))

    def _with_pages(self) -> list[tuple[int, Home]]:
        homes = (*self._homes.items(), *self._shown.items())
        return [(size, home) for size, home in homes if size not in self._cut]

    def _from(self, home: Home, nbytes: int) -> Any:
        # Most lists are empty, which one word tells.
        return self._hand(self._kind, ctypes.addressof(home), nbytes, 0) if home[0] else None


def _word(block: object, place: int) -> ctypes.c_uint64:
    return ctypes.c_uint64.from_address(id(block) + place)
