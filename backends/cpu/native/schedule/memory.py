"""Where the values of a program lie: lives of buffers, and their places in one arena.

A position counts the operations of a program in the order in which they run, those inside loops
included. A buffer is alive from the position that first writes it to the last that reads it; one
that comes into a loop from outside is alive until the loop ends. Buffers that are never alive at
the same time may share their bytes of the arena.
"""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush

ALIGNMENT = 64
"""Every buffer begins at a multiple of this many bytes."""

HUGE = 1 << 62


class Kind(Enum):
    """Whose memory a buffer is."""

    ARGUMENT = "argument"
    RESULT = "result"
    CONSTANT = "constant"
    ARENA = "arena"
    MOVING = "moving"
    """Rows of another buffer, one after the other."""


@dataclass(slots=True)
class Buffer:
    """Memory for one value. `number` says which argument, result or constant it is.

    An arena buffer that is `pinned` has a slot of its own, because its address changes places
    with another one's while the program runs.
    """

    kind: Kind
    nbytes: int
    number: int = 0
    name: str = ""
    first: int = HUGE
    last: int = -1
    pinned: bool = False
    partner: "Buffer | None" = None
    """The one it changes places with, and must live as long as."""
    over: "Buffer | None" = None
    """The one whose bytes it takes over, element by element, when that one ends."""
    offset: int = 0

    def use(self, position: int) -> None:
        """Be alive at a position."""
        self.first = min(self.first, position)
        self.last = max(self.last, position)


def arrange(buffers: Sequence[Buffer]) -> int:
    """Give every buffer its offset in the arena; returns the arena's bytes.

    Buffers come in the order of their lives. Each takes the smallest gap that holds it, and what
    ends gives its bytes back, joined with free neighbours.
    """
    for buffer in buffers:
        if buffer.partner is not None:
            buffer.last = max(buffer.last, buffer.partner.last)
    for buffer in buffers:
        if buffer.over is not None:
            _ground(buffer).last = max(_ground(buffer).last, buffer.last)
    living = [each for each in buffers if each.last >= 0 and each.over is None]
    ending: list[tuple[int, int, Buffer]] = []
    gaps = Gaps()
    for number, buffer in enumerate(sorted(living, key=lambda each: (each.first, -each.nbytes))):
        while ending and ending[0][0] < buffer.first:
            _, _, gone = heappop(ending)
            gaps.give(gone.offset, aligned(gone.nbytes))
        buffer.offset = gaps.take(aligned(buffer.nbytes))
        heappush(ending, (buffer.last, number, buffer))
    for buffer in buffers:
        buffer.offset = _ground(buffer).offset
    return gaps.end


def _ground(buffer: Buffer) -> Buffer:
    """The buffer whose bytes it has in the end."""
    while buffer.over is not None:
        buffer = buffer.over
    return buffer


def take_over(pairs: Sequence[tuple[int, Buffer, Buffer]]) -> list[tuple[int, int]]:
    """Have results take over the bytes of operands that end where the results begin.

    `pairs` are (position, operand, result) in the order of the program, each written element by
    element over what is read. Returns (argument, result) of the program where an argument would
    be taken over, if only the caller gave it away. What is written before, as by another branch,
    needs bytes before the operand has any.
    """
    taken: list[Buffer] = []
    offered = []
    for position, old, new in pairs:
        ends = old.last == position == new.first
        free = ends and not any(old is other for other in taken)
        if not free or old.nbytes != new.nbytes or new.over is not None:
            continue
        if old.kind is Kind.ARENA and new.kind is Kind.ARENA and not (old.pinned or new.pinned):
            new.over = old
            taken.append(old)
        elif old.kind is Kind.ARGUMENT and new.kind is Kind.RESULT:
            offered.append((old.number, new.number))
            taken.append(old)
    return offered


class Gaps:
    """Bytes that are free below `end`, as sorted offsets and sizes."""

    def __init__(self) -> None:
        self.end = 0
        self._starts: list[int] = []
        self._sizes: list[int] = []

    def take(self, size: int) -> int:
        """The offset of so many bytes, in the smallest gap that has them or at the end."""
        if not size:
            return 0
        fitting = [(n, i) for i, n in enumerate(self._sizes) if n >= size]
        if fitting:
            have, i = min(fitting)
            start = self._starts[i]
            if have == size:
                del self._starts[i], self._sizes[i]
            else:
                self._starts[i] += size
                self._sizes[i] -= size
            return start
        if self._starts and self._starts[-1] + self._sizes[-1] == self.end:
            start = self._starts.pop()
            self._sizes.pop()
        else:
            start = self.end
        self.end = start + size
        return start

    def give(self, start: int, size: int) -> None:
        """Free bytes that were taken."""
        if not size:
            return
        i = bisect(self._starts, start)
        self._starts.insert(i, start)
        self._sizes.insert(i, size)
        if i + 1 < len(self._starts) and start + size == self._starts[i + 1]:
            self._sizes[i] += self._sizes[i + 1]
            del self._starts[i + 1], self._sizes[i + 1]
        if i and self._starts[i - 1] + self._sizes[i - 1] == start:
            self._sizes[i - 1] += self._sizes[i]
            del self._starts[i], self._sizes[i]


def aligned(nbytes: int) -> int:
    """So many bytes, rounded up to where the next buffer may begin."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
