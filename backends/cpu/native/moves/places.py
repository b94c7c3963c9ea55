"""Where the elements of sorted lines were, where the processor packs lanes: by sorting words.

A key of at most 32 bits and the place where it was make a word of 64, so that sorting words alone
keeps the order of equal keys.
"""

from collections.abc import Callable
from functools import partial

from shardir.backends.cpu.native.data import Context, Kernel, Phase, View
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import FLOATS, Function, Value, vector
from shardir.backends.cpu.native.moves import numbers
from shardir.backends.cpu.native.moves.buckets import packed_phases
from shardir.backends.cpu.native.moves.casting import fits
from shardir.backends.cpu.native.moves.loops import nest
from shardir.backends.cpu.native.moves.picking import line_starts, ordered
from shardir.backends.cpu.native.moves.quicksort import Start, keys_of, started
from shardir.backends.cpu.native.moves.zeros import zeros_phases

WORD_BYTES = 8
LONG = 1 << 18
"""Lines of so many elements are sorted by digits as fast, or faster if they share some."""
PART = 1 << 15
"""Elements of a line that one task makes words of."""


def places_phases(
    x: View, y: View, dim: int, values: View | None, context: Context
) -> list[Phase] | None:
    """Phases that write to `y` where the elements of the sorted lines of `x` were, in i32; and
    elements of 32 bits to `values`.

    `None` for keys of 64 bits, for long lines, and where quicksort does not sort their words.
    """
    steps = x.shape[dim]
    ends = [x, y] if values is None else [x, y, values]
    loops, offsets = nest([line_starts(end, dim) for end in ends])
    if x.itemsize > WORD_BYTES // 2 or len(loops) > 1 or steps >= LONG:
        return None
    count, strides = loops[0] if loops else (1, (0,) * len(ends))
    lines = [
        (end.slot, offset, stride, end.strides[dim])
        for end, offset, stride in zip(ends, offsets, strides, strict=True)
    ]
    around = steps * WORD_BYTES

    def words() -> View:
        slot = context.temporary(count * around)
        return View(slot, 0, (count, steps), (around, WORD_BYTES), "u64")

    unsorted, arranged = words(), words()
    phases = packed_phases(unsorted, arranged, 1, (), context)
    if phases is None:
        return None
    parts = -(-steps // PART)

    def phase(name: str, text: Callable[[str], str], *record: int) -> Phase:
        kernel = Kernel(name, partial(text, name))
        cost = count * steps * 0.4 + 50.0
        return Phase(kernel, (parts, steps, *record), count * parts, cost, "sort")

    made = (arranged.slot, 0, around, WORD_BYTES)
    write = phase("moves_words_places", _places_text, *made, *lines[1])
    read = phase(
        f"moves_words_{x.dtype}", partial(_words_text, x.dtype),
        *lines[0], unsorted.slot, 0, around, WORD_BYTES,
    )  # fmt: skip
    phases = [read, *phases, write]
    if values is not None:
        name = f"moves_words_values_{x.dtype}"
        phases.append(phase(name, partial(_values_text, x.dtype), *made, *lines[2]))
        phases += zeros_phases(x, values, dim, False)
    return phases


def _words_text(dtype: str, name: str) -> str:
    """Elements as words."""
    kind, size = numbers.kind_of(dtype), numbers.SIZES[dtype]

    def move(f: Function, source: Value, target: Value, first: Value, lanes: int) -> None:
        value = numbers.load(f, source, kind, lanes)
        if kind.type in FLOATS:
            value = value + 0.0  # makes +0 of -0
        key = ordered(f, value, dtype)
        whole, place = vector("i64", lanes), f.splat(first, lanes)
        if lanes > 1:
            numbers_of = ", ".join(f"i64 {lane}" for lane in range(lanes))
            place = place + Value(f"<{numbers_of}>", whole, f)
        f.store((key.to(whole, "zext") << 32) | place, target, WORD_BYTES)

    return _text(name, size, WORD_BYTES, move)


def _places_text(name: str) -> str:
    """The places in words."""

    def move(f: Function, source: Value, target: Value, _: Value, lanes: int) -> None:
        word = f.load(source, vector("i64", lanes), WORD_BYTES)
        f.store(word.to(vector("i32", lanes), "trunc"), target, 4)

    return _text(name, WORD_BYTES, 4, move)


def _values_text(dtype: str, name: str) -> str:
    """The elements in words; all NaN are one."""
    keys = keys_of(dtype)

    def move(f: Function, source: Value, target: Value, _: Value, lanes: int) -> None:
        word = f.load(source, vector("i64", lanes), WORD_BYTES)
        key = (word >> 32).to(vector("i32", lanes), "trunc") ^ keys.least
        f.store(keys.element(f, key), target, 4)

    return _text(name, WORD_BYTES, 4, move)


def _text(
    name: str, reads: int, writes: int,
    move: Callable[[Function, Value, Value, Value, int], None],
) -> str:  # fmt: skip
    """A kernel that moves parts of lines, as vectors where elements lie together."""
    start = started(name)
    f, wide = start.function, host().lanes(WORD_BYTES)
    parts, steps = start.word(0), start.word(1)
    line, first = start.task // parts, (start.task % parts) * PART
    stop = f.least(first + PART, steps)
    source, step = _line(start, 2, line)
    target, to_step = _line(start, 6, line)
    at = f.variable("i64", first)

    def moved(lanes: int) -> None:
        here = at.get()
        move(f, f.offset(source, here * step), f.offset(target, here * to_step), here, lanes)
        at.set(here + lanes)

    together = step.is_("eq", reads) & to_step.is_("eq", writes)
    with f.while_(lambda: together & fits(at, stop, wide)):
        moved(wide)
    with f.while_(partial(fits, at, stop, 1)):
        moved(1)
    f.leave()
    return f.module.text()


def _line(start: Start, index: int, number: Value) -> tuple[Value, Value]:
    """Where a line begins, and the bytes from one element of it to the next."""
    return start.line(index, number), start.word(index + 3)
