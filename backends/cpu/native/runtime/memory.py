"""Blocks of memory that are used again and again.

Memory that is fresh from the system costs more to touch first than most kernels take to fill it.
A block that nobody refers to any longer therefore waits in a list of its size for the next one who
asks. Small blocks are cut out of arenas, which stay. A large one has pages of its own, which go
back to the system by `trim`, or when new memory is needed and they were idle for long, or half of
what the pool may have would be taken and more lies idle than the most that was ever in use
explains. A loop that uses the same sizes again therefore maps no memory after its first round.

Lists lose and gain their last element in one step, so that neither making a block nor dropping it
takes a lock; blocks may be dropped by any thread, at any time.
"""

import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, final

from shardir.backends.cpu.native.runtime.amounts import in_units, memory_of_machine
from shardir.backends.cpu.native.runtime.errors import OutOfMemoryError
from shardir.backends.cpu.native.runtime.mapping import (
    FORGETS,
    map_memory,
    unmap_memory,
    whole_pages,
)
from shardir.backends.cpu.native.runtime.zeroing import LEAST_BYTES, Home, Zeros, new_home, show

ALIGNMENT = 64
ARENA_BYTES = 32 << 20
SMALL_BYTES = 4 << 20
"""Up to this size blocks are cut out of arenas."""
MEMO_SIZES = 4096
"""How many sizes that were asked for are remembered with their lists."""
IDLE_SECONDS = 20.0
"""Large blocks that were idle for so long go back when new memory is needed."""
SLACK = 1.25
"""Beyond half its limit, the pool keeps this many times what was in use at most. Blocks that are
this many times larger than asked for are good enough."""


@final
class Block:
    """`nbytes` of memory at `address`, 64-byte aligned, for as long as somebody refers to it.

    What it holds at first is not defined. `np.asarray(block)` are its bytes, and keep it alive.
    """

    __slots__ = ("_home", "address", "nbytes")

    def __init__(self, address: int, nbytes: int, home: list[int]) -> None:
        self.address, self.nbytes, self._home = address, nbytes, home

    def __del__(self) -> None:
        self._home.append(self.address)

    def __reduce__(self) -> str:
        """A second object for the same memory would give it back while the first is in use."""
        return _refuse_copies(self)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return _bytes(self)


def _bytes(block: Block) -> dict[str, Any]:
    return {
        "data": (block.address, False),
        "shape": (block.nbytes,),
        "typestr": "|u1",
        "version": 3,
    }


def _shown_bytes(block: Block) -> dict[str, Any]:
    """The bytes of a block of machine code, for who may write into them."""
    show(block)
    return _bytes(block)


def _refuse_copies(_: object) -> str:
    raise TypeError("a block is memory of one owner; copy what it holds")


class Statistics(NamedTuple):
    """Bytes: `in_use` by blocks, `idle` in lists, `mapped` from the system, and the most of it."""

    in_use: int
    idle: int
    mapped: int
    peak: int


class _Large(list[int]):
    """Idle blocks of a size that have pages of their own, and since when they are idle."""

    def __init__(self) -> None:
        super().__init__()
        self.since: dict[int, float] = {}

    # The clock is a default because modules are emptied before the last blocks go.
    def append(self, address: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.since[address] = clock()
        super().append(address)


@final
class Pool:
    """Blocks of all sizes; at most `limit` bytes are taken from the system."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.RLock()
        self._memo: dict[int, list[int]] = {}
        self._small: dict[int, list[int]] = {}
        self._large: dict[int, _Large] = {}
        self._kind: type | None = None
        self._hand: Callable[..., Any]
        self._homes: dict[int, Home] = {}
        self._places: dict[int, int] = {}
        self._zeros = Zeros()
        self._free, self._end = 0, 0
        self._cut = self._mapped = self._peak = self._used_at_most = 0

    def allocate(self, nbytes: int) -> Block:
        """A block, used before or new. Raises `OutOfMemoryError`, and then nothing was changed."""
        home = self._memo.get(nbytes)
        if home:
            try:
                return Block(home.pop(), nbytes, home)
            except IndexError:  # Another thread was faster.
                pass
        place = self._places.get(nbytes)
        if place is not None:
            made: Block | None = self._hand(self._kind, place, nbytes, 0)
            if made is not None:
                return made
        return self._allocate_slowly(nbytes)

    def adopt(self, kind: type, hand: Callable[..., Any]) -> None:
        """Let small blocks be objects of a type of machine code from now on, which `hand` makes.

        They have what a `Block` has.
        """
        with self._lock:
            if self._kind is None:
                kind.__array_interface__ = property(_shown_bytes)  # type: ignore[attr-defined]
                kind.show = show  # type: ignore[attr-defined]
                kind.__reduce__ = _refuse_copies  # type: ignore[assignment]
                self._kind, self._hand = kind, hand
                self._zeros.adopt(kind, hand)
                self._memo.clear()

    def may_be_written(self, thing: object) -> bool:
        """Whether something is a block, of either kind, into which the caller will write."""
        if self._kind is None or type(thing) is not self._kind:
            return type(thing) is Block
        show(thing)
        return True

    def home(self, nbytes: int) -> int:
        """Where the list of blocks of machine code is that are large enough; 0: there is none."""
        if self._kind is None or nbytes > SMALL_BYTES:
            return 0
        with self._lock:
            if nbytes not in self._places:
                if len(self._places) >= MEMO_SIZES:
                    self._places.clear()
                made = self._homes.setdefault(size_class(nbytes), new_home())
                self._places[nbytes] = ctypes.addressof(made)
            return self._places[nbytes]

    def home_of_zeros(self, nbytes: int) -> int:
        """Where the list of blocks of zeros of machine code is that are large enough; 0: there is
        none, as for few zeros, or where the system has no such thing."""
        size = size_class(nbytes)
        if self._kind is None or nbytes < LEAST_BYTES or not FORGETS:
            return 0
        with self._lock:
            others = self._homes.setdefault(size, new_home()) if size <= SMALL_BYTES else None
            return self._zeros.home(size, others)

    def zeroed(self, nbytes: int) -> Block | None:
        """A block of zeros, which takes no memory before it is read if it has pages of its own;
        `None` where there is no `home_of_zeros`. Raises as `allocate`."""
        if not self.home_of_zeros(nbytes):
            return None
        size = size_class(nbytes)
        with self._lock:
            made: Block | None = self._zeros.idle(size, nbytes) or self._zeros.renewed(size, nbytes)
            if made is not None:
                return made
            new = self._map if size > SMALL_BYTES else self._cut_small
            made = self._zeros.made(size, nbytes, new(size, nbytes))
            return made

    def trim(self, idle_seconds: float = 0.0) -> int:
        """Give large blocks back that were idle for so long; returns how many bytes."""
        with self._lock:
            before = self._mapped
            latest = time.monotonic() - idle_seconds
            for since, address, size, home in self._idle():
                if since <= latest:
                    self._give_back(address, size, home)
            if idle_seconds <= 0:
                self._give_zeros_back()
            self._used_at_most = self._mapped - self._idle_bytes()
            return before - self._mapped

    def statistics(self) -> Statistics:
        """How much memory there is, and what for."""
        with self._lock:
            idle = self._idle_bytes()
            large = self._mapped - self._arena_bytes
            return Statistics(self._cut + large - idle, idle, self._mapped, self._peak)

    def reset_in_child(self) -> None:
        """A fork may have happened while another thread held the lock."""
        self._lock = threading.RLock()

    # What is below happens rarely.

    _arena_bytes = 0

    def _allocate_slowly(self, nbytes: int) -> Block:
        size = size_class(nbytes)
        with self._lock:
            if size <= SMALL_BYTES:
                home = self._small.setdefault(size, [])
                if self._kind is not None:
                    place = self.home(nbytes)
                    made: Block | None = self._hand(self._kind, place, nbytes, 0)
                    if made is None:
                        made = self._zeros.for_others(size, nbytes)
                    if made is None:
                        try:
                            address = home.pop()
                        except IndexError:
                            address = self._cut_small(size, nbytes)
                        made = self._hand(self._kind, place, nbytes, address)
                        assert made is not None
                    return made
            else:
                home = self._large_home(size)
            self._remember(nbytes, home)
            try:
                return Block(home.pop(), nbytes, home)
            except IndexError:
                pass
            if size <= SMALL_BYTES:
                return Block(self._cut_small(size, nbytes), nbytes, home)
            return Block(self._map(size, nbytes), nbytes, home)

    def _remember(self, nbytes: int, home: list[int]) -> None:
        if len(self._memo) >= MEMO_SIZES:
            self._memo.clear()
        self._memo[nbytes] = home

    def _large_home(self, size: int) -> _Large:
        """The list of a size; one of a slightly greater size if only that has an idle block."""
        home = self._large.setdefault(size, _Large())
        if home:
            return home
        for other, blocks in self._large.items():
            if size < other <= size * SLACK and blocks:
                return blocks
        return home

    def _cut_small(self, size: int, nbytes: int) -> int:
        if self._end - self._free < size:
            self._free = self._map(ARENA_BYTES, nbytes)
            self._end = self._free + ARENA_BYTES
            self._arena_bytes += ARENA_BYTES
        address = self._free
        self._free += size
        self._cut += size
        return address

    def _map(self, size: int, asked: int) -> int:
        """New memory, when idle blocks that are not needed have gone."""
        self._make_room(size)
        address = self._take(size)
        if address is None:
            # What only cycles hold comes free, and then all that is idle goes back.
            gc.collect()
            self.trim()
            address = self._take(size)
        if address is None:
            now = self.statistics()
            raise OutOfMemoryError(
                f"no memory for {in_units(asked)}: {in_units(now.in_use)} are in use, "
                f"the pool holds {in_units(now.mapped)} of at most {in_units(self.limit)}; "
                "drop arrays that are not needed any more, donate arguments (donate_argnums), "
                "or spread the program over more machines"
            )
        self._mapped += size
        self._peak = max(self._peak, self._mapped)
        return address

    def _take(self, size: int) -> int | None:
        return map_memory(size) if self._mapped + size <= self.limit else None

    def _make_room(self, size: int) -> None:
        """Give idle blocks back, those that were idle longest first."""
        latest = time.monotonic() - IDLE_SECONDS
        used = self._mapped - self._idle_bytes() + size
        self._used_at_most = max(self._used_at_most, used)
        wanted = max(self._used_at_most * SLACK, self.limit / 2)
        if self._mapped + size > wanted:
            self._give_zeros_back()
        for since, address, idle, home in sorted(self._idle()):
            if since <= latest or self._mapped + size > wanted:
                self._give_back(address, idle, home)

    def _idle(self) -> list[tuple[float, int, int, _Large]]:
        """(since when, address, size, list) of all large blocks that are idle."""
        return [
            (home.since.get(address, 0.0), address, size, home)
            for size, home in self._large.items()
            for address in home.copy()
        ]

    def _give_back(self, address: int, size: int, home: _Large) -> None:
        try:
            home.remove(address)
        except ValueError:  # Somebody uses it again.
            return
        home.since.pop(address, None)
        unmap_memory(address, size)
        self._mapped -= size

    def _give_zeros_back(self) -> None:
        for address, size in self._zeros.given_up():
            unmap_memory(address, size)
            self._mapped -= size

    def _idle_bytes(self) -> int:
        homes = [*self._small.items(), *self._large.items()]
        lists = sum(size * len(home) for size, home in homes) + self._zeros.idle_bytes()
        return lists + sum(size * home[1] for size, home in self._homes.items())


def size_class(nbytes: int) -> int:
    """The size of the block for so many bytes: at most an eighth more, beyond the smallest."""
    if nbytes <= 1024:
        return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
    step = 1 << (nbytes - 1).bit_length() - 4
    size = -(-nbytes // step) * step
    return size if size <= SMALL_BYTES else whole_pages(size)


POOL = Pool(memory_of_machine())
"""The memory of this process."""

allocate = POOL.allocate
may_be_written = POOL.may_be_written
zeroed = POOL.zeroed
trim = POOL.trim
statistics = POOL.statistics


@contextmanager
def limited(nbytes: int) -> Iterator[None]:
    """Let the pool take at most so much memory from the system while in the block.

    What is idle goes back first, so that it counts when it is used again.
    """
    before, POOL.limit = POOL.limit, nbytes
    if POOL.statistics().mapped > nbytes:
        POOL.trim()
    try:
        yield
    finally:
        POOL.limit = before


os.register_at_fork(after_in_child=POOL.reset_in_child)
