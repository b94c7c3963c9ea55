"""Keys parted by a bound: those of a vector that go to the left, or to the right, are packed.

A range of keys that belongs to a place of memory lies there or in a second memory, a stack. Parting
it leaves those that go to the left at its place, and the others on the stack. So nothing is written
where keys wait to be read, and both sides are written forwards, whole vectors at a time, without a
branch. (B. Bramas, A novel hybrid Quicksort algorithm vectorized using AVX-512, 2017, packs vectors
and parts in place.)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value
from shardir.backends.cpu.native.moves.casting import fits
from shardir.backends.cpu.native.moves.keys import Keys

TOGETHER = 8
"""Vectors that are parted in one round of the loop."""


class Waiting:
    """A stack of ranges that wait to be sorted or parted, a row of words for each."""

    def __init__(self, f: Function, words: int, most: int) -> None:
        self._f, self._words = f, words
        self._entries = f.variable(f"[{most * words} x i64]").address
        self._number = f.variable("i64", 0)

    def push(self, *words: Value | int) -> None:
        """The next one that is taken."""
        f, entry = self._f, self._top()
        for i, word in enumerate(words):
            f.store(f.value(word, "i64"), f.offset(entry, i, "i64"))
        self._number.set(self._number.get() + 1)

    @contextmanager
    def each(self) -> Iterator[Sequence[Value]]:
        """Take ranges until there are none."""
        f = self._f
        with f.while_(lambda: self._number.get().is_("sgt", 0)):
            self._number.set(self._number.get() - 1)
            entry = self._top()
            yield [f.load(f.offset(entry, i, "i64"), "i64") for i in range(self._words)]

    def _top(self) -> Value:
        return self._f.offset(self._entries, self._number.get() * self._words, "i64")


def parts_keys(module: Module, keys: Keys) -> str:
    """The name of a function in the module that parts keys: (from, count, left, right, bound).

    Those above the bound go to the right, the others to the left; each may overwrite what was
    read, and to the right, as much as a vector may be written behind them. Gives how many went to
    the left.
    """
    name = f"part_{keys.type}"
    f = Function(module, name, ("ptr", "i64", "ptr", "ptr", keys.type), "i64", APART, True)
    source, count, left, right, bound = f.params
    bounds = f.splat(bound, keys.lanes)
    # How many are read, and lie on either side: a difference of these in addresses would be looked
    # at for long by LLVM.
    at, made, aside = (f.variable("i64", 0) for _ in range(3))

    def part(together: int) -> None:
        begin = at.get()
        values = [keys.load(f, source, begin + i * keys.lanes) for i in range(together)]
        for value in values:
            flags = value.is_("sle", bounds)
            keys.store(f, keys.packed(f, value, flags), left, made.get())
            keys.store(f, keys.packed(f, value, ~flags), right, aside.get())
            few = keys.number_of(f, flags)
            made.set(made.get() + few)
            aside.set(aside.get() + (keys.lanes - few))
        at.set(begin + together * keys.lanes)

    for together in (TOGETHER, 1):
        with f.while_(partial(fits, at, count, together * keys.lanes)):
            part(together)
    begin, here = at.get(), made.get()
    there = keys.first(f, count - begin)
    value = keys.load_some(f, source, begin, there)
    low = value.is_("sle", bounds)
    few = keys.number_of(f, low & there)
    keys.store_some(f, keys.packed(f, value, low & there), left, here, keys.first(f, few))
    keys.store(f, keys.packed(f, value, ~low & there), right, aside.get())
    f.leave(here + few)
    return name
