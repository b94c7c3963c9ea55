"""Prefetching by tiles: each tile step prefetches one cache line that is packed or read next.

Packing stalls on cache misses; issuing one prefetch per tile step hides the memory latency.
"""

from typing import final

from shardir.backends.cpu.native.contraction.tile import LINE
from shardir.backends.cpu.native.llvm.text import Function, Number, Value


@final
class Soon:
    """A stream of cache lines that a sequence of tiles prefetches.

    The first tile begins at `start` and advances `line_stride` bytes per step. With each share of
    steps it begins again, `share_stride` bytes further on per step. The next tile begins `jump`
    bytes further on.
    """

    def __init__(self, f: Function, start: Value) -> None:
        self._f = f
        self._start = f.variable("ptr", start)
        self._pace, self._each, self._jump = (f.variable("i64", 0) for _ in range(3))

    def packed(self, start: Value, steps: Value) -> None:
        """Prefetch a packed operand: `steps` cache lines for each tile."""
        self._set(start, LINE, LINE, steps * LINE)

    def lying(self, start: Value, step: Value, line: Value, item: int, size: int) -> None:
        """Prefetch lines of an operand with elements of `item` bytes, from the address of the first
        line. Steps are `step` bytes apart and lines `line` bytes; packed elements have `size`
        bytes.

        If steps are contiguous, each share of steps prefetches one cache line of each line of the
        operand; if lines are contiguous, each step prefetches one cache line that covers all of
        them.
        """
        along, f = step.is_("eq", item), self._f
        line_stride = f.select(along, line, step)
        self._set(start, line_stride, step, f.select(along, line * (LINE // size), LINE))

    def _set(self, start: Value, line_stride: Number, share_stride: Number, jump: Number) -> None:
        self._start.set(start)
        for place, value in (
            (self._pace, line_stride),
            (self._each, share_stride),
            (self._jump, jump),
        ):
            place.set(value)

    def of(self, number: Value) -> tuple[Value, Value, Value]:
        """Return the start address of a tile, its line stride, and its share stride."""
        start = self._f.offset(self._start.get(), number * self._jump.get())
        return start, self._pace.get(), self._each.get()
