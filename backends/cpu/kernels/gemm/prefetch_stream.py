"""Prefetching by tiles: each tile step prefetches one cache line that is packed or read next.

Packing stalls on cache misses; issuing one prefetch per tile step hides the memory latency.
"""

from typing import final

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, Operand
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES


@final
class PrefetchStream:
    """A stream of cache lines that a sequence of tiles prefetches.

    The first tile begins at `start` and advances `line_stride` bytes per step. With each share of
    steps it begins again, `share_stride` bytes further on per step. The next tile begins `jump`
    bytes further on.
    """

    def __init__(self, f: LLVMFunction, start: LLVMValue) -> None:
        self._f = f
        self._start = f.variable("ptr", start)
        self._pace, self._each, self._jump = (f.variable("i64", 0) for _ in range(3))

    def follow_packed(self, start: LLVMValue, steps: LLVMValue) -> None:
        """Prefetch a packed operand: `steps` cache lines for each tile."""
        self._set(start, CACHE_LINE_BYTES, CACHE_LINE_BYTES, steps * CACHE_LINE_BYTES)

    def follow_operand(
        self, start: LLVMValue, step: LLVMValue, line: LLVMValue, item: int, size: int
    ) -> None:
        """Prefetch lines of an operand with elements of `item` bytes, from the address of the first
        line. Steps are `step` bytes apart and lines `line` bytes; packed elements have `size`
        bytes.

        If steps are contiguous, each share of steps prefetches one cache line of each line of the
        operand; if lines are contiguous, each step prefetches one cache line that covers all of
        them.
        """
        along, f = step.is_("eq", item), self._f
        line_stride = f.select(along, line, step)
        self._set(
            start,
            line_stride,
            step,
            f.select(along, line * (CACHE_LINE_BYTES // size), CACHE_LINE_BYTES),
        )

    def _set(
        self, start: LLVMValue, line_stride: Operand, share_stride: Operand, jump: Operand
    ) -> None:
        self._start.set(start)
        for place, value in (
            (self._pace, line_stride),
            (self._each, share_stride),
            (self._jump, jump),
        ):
            place.set(value)

    def arguments_of_tile(self, number: LLVMValue) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
        """Return the start address of a tile, its line stride, and its share stride."""
        start = self._f.offset(self._start.get(), number * self._jump.get())
        return start, self._pace.get(), self._each.get()
