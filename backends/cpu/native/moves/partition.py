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

from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value
from shardir.backends.cpu.native.moves.casting import fits
from shardir.backends.cpu.native.moves.keys import Keys

TOGETHER = 8
"""Vectors that are partitioned per iteration."""


class Waiting:
    """A stack of ranges that are left to sort or partition; each is a row of words."""

    def __init__(self, f: Function, words: int, most: int) -> None:
        self._f, self._words = f, words
        self._entries = f.variable(f"[{most * words} x i64]").address
        self._number = f.variable("i64", 0)

    def push(self, *words: Value | int) -> None:
        """Push a range, which is the next to be popped."""
        f, entry = self._f, self._top()
        for i, word in enumerate(words):
            f.store(f.value(word, "i64"), f.offset(entry, i, "i64"))
        self._number.set(self._number.get() + 1)

    @contextmanager
    def each(self) -> Iterator[Sequence[Value]]:
        """Emit the body in a loop that pops ranges until the stack is empty."""
        f = self._f
        with f.while_(lambda: self._number.get().is_("sgt", 0)):
            self._number.set(self._number.get() - 1)
            entry = self._top()
            yield [f.load(f.offset(entry, i, "i64"), "i64") for i in range(self._words)]

    def _top(self) -> Value:
        return self._f.offset(self._entries, self._number.get() * self._words, "i64")


def parts_keys(module: Module, keys: Keys) -> str:
    """Emit a function that partitions keys and return its name. Its parameters are (source, count,
    left, right, bound).

    Keys above the bound are written to the right, the others to the left. Either may overwrite keys
    that have been read; up to one vector may be written past the end on the right. The function
    returns the number of keys on the left.
    """
    name = f"part_{keys.type}"
    f = Function(module, name, ("ptr", "i64", "ptr", "ptr", keys.type), "i64", APART, True)
    source, count, left, right, bound = f.params
    bounds = f.splat(bound, keys.lanes)
    # Use indices of read and written keys: LLVM takes long to analyze differences of addresses.
    at, left_count, right_count = (f.variable("i64", 0) for _ in range(3))

    def part(vector_count: int) -> None:
        begin = at.get()
        values = [keys.load(f, source, begin + i * keys.lanes) for i in range(vector_count)]
        for value in values:
            flags = value.is_("sle", bounds)
            keys.store(f, keys.packed(f, value, flags), left, left_count.get())
            keys.store(f, keys.packed(f, value, ~flags), right, right_count.get())
            count_left = keys.number_of(f, flags)
            left_count.set(left_count.get() + count_left)
            right_count.set(right_count.get() + (keys.lanes - count_left))
        at.set(begin + vector_count * keys.lanes)

    for vector_count in (TOGETHER, 1):
        with f.while_(partial(fits, at, count, vector_count * keys.lanes)):
            part(vector_count)
    begin, here = at.get(), left_count.get()
    there = keys.first(f, count - begin)
    value = keys.load_some(f, source, begin, there)
    low = value.is_("sle", bounds)
    count_left = keys.number_of(f, low & there)
    keys.store_some(f, keys.packed(f, value, low & there), left, here, keys.first(f, count_left))
    keys.store(f, keys.packed(f, value, ~low & there), right, right_count.get())
    f.leave(here + count_left)
    return name
