"""Blocks of zeros that nobody writes again and again.

Arrays never change, so a block of zeros that nobody refers to any longer still holds zeros, unless
it was *shown*: to NumPy, through which other libraries may write, or to a program that writes over
what is donated. Blocks of zeros have homes of their own therefore, from where machine code takes
them as they are. One that was shown goes elsewhere when it is dropped: if it was cut out of an
arena to the other blocks of its size, if it has pages of its own to a home from where it comes
back when the system has taken its pages.

A block whose pages were given back leaves its object behind, in the home `spent`, for another one.
"""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, final

from shardir.backends.cpu.native.runtime.blocks import ADDRESS, COUNT, HOME
from shardir.backends.cpu.native.runtime.mapping import forget

LEAST_BYTES = 64 << 10
"""Fewer zeros are written in no time."""

Home = ctypes.Array[ctypes.c_int64]

_elsewhere: dict[int, tuple[Home, Home]] = {}
"""By the address of a home of blocks that were not shown: that home, and the one of those that
were. Neither goes, so that nothing else is ever at its address."""


def show(block: object) -> None:
    """Say that somebody may write into a block of machine code from now on."""
    home = _word(block, HOME)
    if home.value in _elsewhere:
        home.value = ctypes.addressof(_elsewhere[home.value][1])


def new_home() -> Home:
    """A list of blocks of machine code: its first one, and how many there are."""
    return (ctypes.c_int64 * 2)()


@final
class Zeros:
    """The blocks of zeros of a pool, by the sizes of blocks."""

    def __init__(self) -> None:
        self._kind: type
        self._hand: Callable[..., Any]
        self._homes: dict[int, Home] = {}
        self._shown: dict[int, Home] = {}
        self._cut: set[int] = set()
        self._spent = new_home()

    def adopt(self, kind: type, hand: Callable[..., Any]) -> None:
        """Make blocks of a type of machine code, by `blocks.hand`."""
        self._kind, self._hand = kind, hand

    def home(self, size: int, others: Home | None) -> int:
        """Where machine code finds blocks of zeros; `others` is the home of other blocks that are
        cut out of arenas as those are."""
        if size not in self._homes:
            if others is not None:
                self._cut.add(size)
            self._shown[size] = shown = new_home() if others is None else others
            self._homes[size] = made = new_home()
            _elsewhere[ctypes.addressof(made)] = made, shown
        return ctypes.addressof(self._homes[size])

    def idle(self, size: int, nbytes: int) -> Any:
        """A block of zeros that there is; `None`: there is none."""
        return self._from(self._homes[size], nbytes)

    def renewed(self, size: int, nbytes: int) -> Any:
        """A block that held something else, of zeros now; `None`: there is none."""
        block = self._from(self._shown[size], nbytes)
        if block is not None:
            if size in self._cut:
                ctypes.memset(block.address, 0, size)
            else:
                forget(block.address, size)
            _word(block, HOME).value = ctypes.addressof(self._homes[size])
        return block

    def for_others(self, size: int, nbytes: int) -> Any:
        """A block of zeros for somebody who writes into it; `None`: there is none."""
        block = self.idle(size, nbytes) if size in self._homes else None
        if block is not None:
            show(block)
        return block

    def made(self, size: int, nbytes: int, address: int) -> Any:
        """A block for zeros at an address."""
        home = ctypes.addressof(self._homes[size])
        block = self._from(self._spent, nbytes)
        if block is None:
            return self._hand(self._kind, home, nbytes, address)
        for place, value in ((ADDRESS, address), (HOME, home)):
            _word(block, place).value = value
        return block

    def given_up(self) -> Iterator[tuple[int, int]]:
        """Let go of idle blocks with pages of their own; yields (address, size) of each."""
        for size, home in self._with_pages():
            while (block := self._from(home, 0)) is not None:
                self.spend(block)
                yield block.address, size

    def idle_and_cut(self) -> Iterator[tuple[Any, int]]:
        """Idle blocks cut out of arenas, and their sizes; dropped, they are idle again."""
        for size in self._cut:
            while (block := self.idle(size, 0)) is not None:
                yield block, size

    def spend(self, block: object) -> None:
        """Have nothing but the object of a block stay when it is dropped."""
        _word(block, HOME).value = ctypes.addressof(self._spent)

    def idle_bytes(self) -> int:
        """How much of their memory nobody uses."""
        cut = [(size, self._homes[size]) for size in self._cut]
        return sum(size * home[COUNT // 8] for size, home in (*cut, *self._with_pages()))

    def _with_pages(self) -> list[tuple[int, Home]]:
        homes = (*self._homes.items(), *self._shown.items())
        return [(size, home) for size, home in homes if size not in self._cut]

    def _from(self, home: Home, nbytes: int) -> Any:
        # Most homes are empty, which a word says.
        return self._hand(self._kind, ctypes.addressof(home), nbytes, 0) if home[0] else None


def _word(block: object, place: int) -> ctypes.c_uint64:
    return ctypes.c_uint64.from_address(id(block) + place)
