"""Memory planning: live ranges of buffers, and their offsets in one arena.

A position counts the operations of a program in execution order, those inside of loops included. A
buffer is live from the position that first writes it to the position that last reads it; a buffer
from outside of a loop that the loop reads is live until the loop ends. Buffers whose live ranges do
not overlap may share bytes of the arena.
"""

from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush

BUFFER_ALIGNMENT_BYTES = 64
"""Every buffer begins at a multiple of this many bytes."""

NEVER_USED_POSITION = 1 << 62


class BufferKind(Enum):
    """The owner of a buffer's memory."""

    ARGUMENT = "argument"
    RESULT = "result"
    CONSTANT = "constant"
    ARENA = "arena"
    MOVING = "moving"
    """A pointer to successive rows of another buffer."""


@dataclass(slots=True)
class PlannedBuffer:
    """Memory for one value. `number` is the index of the argument, result or constant.

    A `pinned` arena buffer has a slot of its own, because it swaps addresses with another one while
    the program runs.
    """

    kind: BufferKind
    nbytes: int
    number: int = 0
    name: str = ""
    first: int = NEVER_USED_POSITION
    last: int = -1
    pinned: bool = False
    swap_partner: "PlannedBuffer | None" = None
    """The buffer that this one swaps addresses with; both have the same live range."""
    reused_buffer: "PlannedBuffer | None" = None
    """The buffer whose bytes this one reuses, element by element, at the end of its live range."""
    offset: int = 0

    def extend_live_range(self, position: int) -> None:
        """Extend the live range to a position."""
        self.first = min(self.first, position)
        self.last = max(self.last, position)


def assign_offsets(buffers: Sequence[PlannedBuffer]) -> int:
    """Assign every buffer its offset in the arena; return the size of the arena in bytes.

    Buffers are processed in the order of their live ranges. Each takes the smallest gap that holds
    it; at its end its bytes are freed and merged with adjacent gaps. Empty buffers are at 0.
    """
    for buffer in buffers:
        if buffer.swap_partner is not None:
            buffer.last = max(buffer.last, buffer.swap_partner.last)
    for buffer in buffers:
        if buffer.reused_buffer is not None:
            _reused_root(buffer).last = max(_reused_root(buffer).last, buffer.last)
    used = [each for each in buffers if each.last >= 0 and each.nbytes]
    living = [each for each in used if each.reused_buffer is None]
    ending: list[tuple[int, int, PlannedBuffer]] = []
    gaps = FreeList()
    for number, buffer in enumerate(sorted(living, key=lambda each: (each.first, -each.nbytes))):
        while ending and ending[0][0] < buffer.first:
            _, _, ended = heappop(ending)
            gaps.free(ended.offset, align_up(ended.nbytes))
        buffer.offset = gaps.allocate(align_up(buffer.nbytes))
        heappush(ending, (buffer.last, number, buffer))
    for buffer in buffers:
        buffer.offset = _reused_root(buffer).offset
    return gaps.end


def _reused_root(buffer: PlannedBuffer) -> PlannedBuffer:
    """Return the buffer at the end of the chain of reused buffers."""
    while buffer.reused_buffer is not None:
        buffer = buffer.reused_buffer
    return buffer


def reuse_operands(
    pairs: Sequence[tuple[int, PlannedBuffer, PlannedBuffer]],
) -> list[tuple[int, int]]:
    """Let results reuse the bytes of operands whose live ranges end where the results begin.

    `pairs` are (position, operand, result) in program order; each result is written element by
    element over the operand. Returns all (argument, result) pairs that could share memory if the
    caller donates the argument; an argument or a result may occur in several of them. A result that
    is written earlier, as by another branch, cannot reuse the operand.
    """
    taken: list[PlannedBuffer] = []
    offered = []
    for position, old, new in pairs:
        is_last_use = old.last == position == new.first
        is_available = is_last_use and not any(old is other for other in taken)
        if not is_available or old.nbytes != new.nbytes or new.reused_buffer is not None:
            continue
        if (
            old.kind is BufferKind.ARENA
            and new.kind is BufferKind.ARENA
            and not (old.pinned or new.pinned)
        ):
            new.reused_buffer = old
            taken.append(old)
        elif old.kind is BufferKind.ARGUMENT and new.kind is BufferKind.RESULT:
            offered.append((old.number, new.number))
    return offered


def match_pairs(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the argument of each result, from (argument, result) pairs, the preferred ones first.

    Each argument and each result occurs once.
    """
    matched: dict[int, int] = {}
    taken: set[int] = set()
    for argument, result in pairs:
        if argument not in taken and result not in matched:
            matched[result] = argument
            taken.add(argument)
    return matched


class FreeList:
    """Free bytes below `end`, as sorted offsets and sizes."""

    def __init__(self) -> None:
        self.end = 0
        self._starts: list[int] = []
        self._sizes: list[int] = []

    def allocate(self, size: int) -> int:
        """Allocate `size` bytes in the smallest gap that holds them, or at the end; return the
        offset."""
        fitting = [(n, i) for i, n in enumerate(self._sizes) if n >= size]
        if fitting:
            available, i = min(fitting)
            start = self._starts[i]
            if available == size:
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

    def free(self, start: int, size: int) -> None:
        """Free bytes that were allocated."""
        i = bisect(self._starts, start)
        self._starts.insert(i, start)
        self._sizes.insert(i, size)
        if i + 1 < len(self._starts) and start + size == self._starts[i + 1]:
            self._sizes[i] += self._sizes[i + 1]
            del self._starts[i + 1], self._sizes[i + 1]
        if i and self._starts[i - 1] + self._sizes[i - 1] == start:
            self._sizes[i - 1] += self._sizes[i]
            del self._starts[i], self._sizes[i]


def align_up(nbytes: int) -> int:
    """Round a size up to the alignment of buffers."""
    return -(-nbytes // BUFFER_ALIGNMENT_BYTES) * BUFFER_ALIGNMENT_BYTES
