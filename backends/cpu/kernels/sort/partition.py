"""Partitions keys by a bound with compress instructions.

A range of keys that belongs to a target range is stored there or on a stack. Partitioning leaves
the keys of the left side in the target and moves the others to the stack, so that no unread key is
overwritten, and both sides are written forwards in full vectors without branches. (B. Bramas, A
novel hybrid Quicksort algorithm vectorized using AVX-512, 2017, compresses vectors and partitions
in place.)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
)
from shardir.backends.cpu.kernels.data_movement.element_cast import fits_before
from shardir.backends.cpu.kernels.sort.sort_keys import SortKeys

VECTORS_PER_ITERATION = 8
"""Vectors that are partitioned per iteration."""


class RangeStack:
    """A stack of ranges that are left to sort or partition; each is a row of words."""

    def __init__(self, f: LLVMFunction, words: int, most: int) -> None:
        self._f, self._words = f, words
        self._entries = f.variable(f"[{most * words} x i64]").address
        self._number = f.variable("i64", 0)

    def push(self, *words: LLVMValue | int) -> None:
        """Push a range, which is the next to be popped."""
        f, entry = self._f, self._top()
        for i, word in enumerate(words):
            f.store(f.value(word, "i64"), f.offset(entry, i, "i64"))
        self._number.set(self._number.get() + 1)

    @contextmanager
    def pop_each(self) -> Iterator[Sequence[LLVMValue]]:
        """Emit the body in a loop that pops ranges until the stack is empty."""
        f = self._f
        with f.while_(lambda: self._number.get().is_("sgt", 0)):
            self._number.set(self._number.get() - 1)
            entry = self._top()
            yield [f.load(f.offset(entry, i, "i64"), "i64") for i in range(self._words)]

    def _top(self) -> LLVMValue:
        return self._f.offset(self._entries, self._number.get() * self._words, "i64")


def emit_partition(module: LLVMModule, keys: SortKeys) -> str:
    """Emit a function that partitions keys and return its name. Its parameters are (source, count,
    left, right, bound).

    Keys above the bound are written to the right, the others to the left. Either may overwrite keys
    that have been read; up to one vector may be written past the end on the right. The function
    returns the number of keys on the left.
    """
    name = f"part_{keys.type}"
    f = add_outlined_function(module, name, ("ptr", "i64", "ptr", "ptr", keys.type), "i64")
    source, count, left, right, bound = f.params
    bounds = f.splat(bound, keys.lanes)
    # Use indices of read and written keys: LLVM takes long to analyze differences of addresses.
    at, left_count, right_count = (f.variable("i64", 0) for _ in range(3))

    def part(vector_count: int) -> None:
        begin = at.get()
        values = [keys.load(f, source, begin + i * keys.lanes) for i in range(vector_count)]
        for value in values:
            flags = value.is_("sle", bounds)
            keys.store(f, keys.compress(f, value, flags), left, left_count.get())
            keys.store(f, keys.compress(f, value, ~flags), right, right_count.get())
            count_left = keys.count_set(f, flags)
            left_count.set(left_count.get() + count_left)
            right_count.set(right_count.get() + (keys.lanes - count_left))
        at.set(begin + vector_count * keys.lanes)

    for vector_count in (VECTORS_PER_ITERATION, 1):
        with f.while_(partial(fits_before, at, count, vector_count * keys.lanes)):
            part(vector_count)
    begin, here = at.get(), left_count.get()
    there = keys.first_lanes(f, count - begin)
    value = keys.masked_load(f, source, begin, there)
    low = value.is_("sle", bounds)
    count_left = keys.count_set(f, low & there)
    keys.masked_store(
        f, keys.compress(f, value, low & there), left, here, keys.first_lanes(f, count_left)
    )
    keys.store(f, keys.compress(f, value, ~low & there), right, right_count.get())
    f.ret(here + count_left)
    return name
