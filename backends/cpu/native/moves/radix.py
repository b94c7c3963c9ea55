"""Least-significant-digit radix sort of lines that are long or few.

Elements become words: unsigned integers that compare in element order, with their indices in the
low bits if the permutation is wanted. For each 8-bit digit, the words of every part of a line are
counted, and then written to the offsets that the counts determine, in stable order; tasks process
parts. A digit that all words of a line share moves none of them. Elements may be in a NumPy array
that another thread modifies between the two: whatever is counted, no word is written outside of its
line.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from shardir.backends.cpu.native.data import SCRATCH_BYTES, Context, Kernel, Phase, View
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import FLOATS, Function, Module, Value, vector
from shardir.backends.cpu.native.moves import numbers
from shardir.backends.cpu.native.moves.casting import fits
from shardir.backends.cpu.native.moves.loops import nest
from shardir.backends.cpu.native.moves.picking import element_of, line_starts, ordered
from shardir.backends.cpu.native.moves.zeros import zeros_phases

DIGITS = 256
TABLE_BYTES = 4 * DIGITS
APART = 4
"""Count tables that consecutive elements use in turn: repeated increments of one entry are slow."""
PART = 1 << 15
"""Minimum elements of a part of a line."""
FEW, LONG = 4, 512
"""Lines of fewer elements than the second number are not radix-sorted if there are at least as many
lines as the first: their tables cost too much."""
MOST = 1 << 31
UNSEEN = {"f16": 1, "bf16": 2}
"""Number of low bytes of an f32 that are zero if it was widened from this type."""


class Lines(NamedTuple):
    """The address of lines of elements or words."""

    slot: int
    offset: int
    line: int
    step: int
    """Bytes to the next line, and to the next element of a line."""


class Source(NamedTuple):
    """The input of a pass, elements or words; `name` identifies it in kernel names."""

    name: str
    load: Callable[[Function, Value, Value], Value]
    """Returns the word at an address; the last parameter is its index in the line."""
    digit: Callable[[Function, Value, Value, Value], Value]
    """Returns the digit of a word at an address; the last parameter is the byte of the digit."""
    own: bool
    """True if no other thread can modify the memory, so that the counts are exact."""


class Target(NamedTuple):
    """The output of a pass: words, elements or indices."""

    name: str
    store: Callable[[Function, Value, Value], None]


def sorted_phases(x: View, y: View, dim: int, places: bool, context: Context) -> list[Phase] | None:
    """Return phases that write the sorted lines of `x` to `y`, or with `places` their permutation.

    Return None for many short lines, and for lines without a constant stride.
    """
    steps = x.shape[dim]
    loops = nest([line_starts(x, dim), line_starts(y, dim)]).loops
    count, from_line, to_line = (loops[0].extent, *loops[0].strides) if loops else (1, 0, 0)
    if len(loops) > 1 or steps >= MOST or (count >= FEW and steps < LONG):
        return None
    parts = max(1, min(-(-4 * context.workers // count), steps // PART))
    each = -(-steps // parts)
    parts = -(-steps // each)
    tables = context.temporary(count * parts * TABLE_BYTES)
    width = width_of(x.dtype, places)
    nbytes = width // 8
    lines = Lines(x.slot, x.offset, from_line, x.strides[dim])
    target = Lines(y.slot, y.offset, to_line, y.strides[dim])
    digits = digits_of(x.dtype, places)

    def buffer() -> Lines:
        slot = context.temporary(count * steps * nbytes)
        return Lines(slot, 0, steps * nbytes, nbytes)

    # Words may be stored in the result memory, unless the last pass would read them there.
    own = not places and y.itemsize == y.strides[dim] == nbytes and len(digits) % 2 == 0
    waiting = [buffer()] if len(digits) > 1 else []
    if len(digits) > 2:
        waiting.append(target if own else buffer())
    phases = []
    for number, digit in enumerate(digits):
        last = number == len(digits) - 1
        read = elements_of(x.dtype, places) if number == 0 else words_of(width)
        made = sorted_of(x.dtype, places) if last else words_to(width)
        to = target if last else waiting[number % 2]
        shared = (count * parts, parts, each, steps, tables, digit)
        many = -(-count * parts // (4 * context.workers))
        tasks = -(-count * parts // many)
        name = f"moves_radix_count_{read.name}"
        text = partial(_counting, name, read)
        cost = x.size * 0.7 + 100.0
        phases.append(Phase(Kernel(name, text), (many, *shared, *lines), tasks, cost, "sort"))
        name = f"moves_radix_move_{read.name}_{made.name}"
        text = partial(_moving, name, read, made)
        cost = x.size * 1.5 + 100.0
        record = (many, *shared, *lines, *to)
        phases.append(Phase(Kernel(name, text), record, tasks, cost, "sort"))
        lines = to
    return phases if places else [*phases, *zeros_phases(x, y, dim)]


def digits_of(dtype: str, places: bool) -> list[int]:
    """Return the bytes of a word that determine the order, lowest first."""
    size = 4 if dtype in UNSEEN else numbers.SIZES[dtype]
    first = (4 if size <= 4 else 8) if places else 0
    return [first + byte for byte in range(UNSEEN.get(dtype, 0), size)]


def width_of(dtype: str, places: bool) -> int:
    """Return the number of bits of a word."""
    return (32 if numbers.SIZES[dtype] <= 4 else 64) * (1 + places)


def words_of(width: int) -> Source:
    """Return the source of words in memory, whose digits are their bytes."""

    def digit(f: Function, word: Value, address: Value, byte: Value) -> Value:
        return f.load(f.offset(address, byte), "i8").to("i64", "zext")

    return Source(
        f"word{width}", lambda f, address, _: f.load(address, f"i{width}", 8), digit, True
    )


def words_to(width: int) -> Target:
    """Return the target of words in memory."""
    return Target(f"word{width}", lambda f, word, address: f.store(word, address, 8))


def elements_of(dtype: str, places: bool) -> Source:
    """Return the source of elements that are converted to words."""
    kind, key = numbers.kind_of(dtype), 32 if numbers.SIZES[dtype] <= 4 else 64
    low = 8 * digits_of(dtype, places)[0]

    def load(f: Function, address: Value, place: Value) -> Value:
        value = numbers.load(f, address, kind, 1)
        if places and kind.type in FLOATS:
            value = value + 0.0  # Converts -0 to +0.
        word = _key(f, value, dtype)
        if not places:
            return word
        whole = f"i{2 * key}"
        behind = place.to("i32", "trunc").to(whole, "zext")
        return (word.to(whole, "zext") << key) | behind

    def digit(f: Function, word: Value, address: Value, byte: Value) -> Value:
        return (word >> low).to("i8", "trunc").to("i64", "zext")

    return Source(f"{dtype}{'_places' * places}", load, digit, False)


def sorted_of(dtype: str, places: bool) -> Target:
    """Return the target of the last pass: elements, or indices in i32."""
    if places:

        def store_place(f: Function, word: Value, address: Value) -> None:
            f.store(word.to("i32", "trunc"), address, 4)

        return Target(f"place{width_of(dtype, places)}", store_place)
    kind = numbers.kind_of(dtype)

    def store(f: Function, word: Value, address: Value) -> None:
        numbers.store(f, _element(f, word, dtype), address, kind)

    return Target(dtype, store)


def _key(f: Function, value: Value, dtype: str) -> Value:
    """Convert an element to an unsigned integer whose low bytes determine its order."""
    size = numbers.SIZES[dtype]
    if size in (4, 8) or numbers.kind_of(dtype).type in FLOATS:
        return ordered(f, value, dtype)
    if dtype[0] == "i":
        value = value ^ (-(1 << 8 * size - 1))
    return value.to("i32", "zext")


def _element(f: Function, word: Value, dtype: str) -> Value:
    size = numbers.SIZES[dtype]
    if size in (4, 8) or numbers.kind_of(dtype).type in FLOATS:
        return element_of(f, word if word.type == "i64" else word.to("i64", "zext"), dtype)
    value = word.to(f"i{8 * size}", "trunc")
    return value ^ (-(1 << 8 * size - 1)) if dtype[0] == "i" else value


class _Piece(NamedTuple):
    """The part of a line that a kernel processes."""

    line: Value
    begin: Value
    end: Value
    number: Value
    """The number of the part in its line."""


def _start(name: str) -> tuple[Module, Function, Callable[[int], Value], Callable[[Value], Value]]:
    module = Module()
    f = Function(module, name, ("ptr", "ptr", "i64", "i64"))
    bases, record, _, _ = f.params
    return (
        module,
        f,
        lambda index: f.load(f.offset(record, index, "i64"), "i64"),
        lambda slot: f.load(f.offset(bases, slot, "ptr"), "ptr"),
    )


def _counting(name: str, read: Source) -> str:
    """Return the text of the kernel that counts the digits of each part."""
    module, f, word, base = _start(name)
    *_, task, worker = f.params
    many, units, parts, each, steps, tables, digit = (word(k) for k in range(7))
    slot, offset, from_line, step = (word(7 + k) for k in range(4))
    table_base = f.offset(base(f.value(0, "i64")), worker * SCRATCH_BYTES)
    whole = vector("i32", host().lanes(4))
    first = task * many
    with f.loop(first, f.least(first + many, units)) as unit:
        piece = _piece(f, unit, parts, each, steps)
        source = f.offset(base(slot), offset + piece.line * from_line)
        with f.loop(0, APART * DIGITS, host().lanes(4)) as i:
            f.store(f.value(0, whole), f.offset(table_base, i, "i32"), 1)
        at = f.variable("i64", piece.begin)
        for group in (APART, 1):
            with f.while_(partial(fits, at, piece.end, group)):
                for k in range(group):
                    here = at.get() + k
                    address = f.offset(source, here * step)
                    found = read.digit(f, read.load(f, address, here), address, digit)
                    place = f.offset(f.offset(table_base, k * TABLE_BYTES), found, "i32")
                    f.store(f.load(place, "i32") + 1, place)
                at.set(at.get() + group)
        own_counts = f.offset(base(tables), unit * TABLE_BYTES)
        with f.loop(0, DIGITS, host().lanes(4)) as i:
            total = f.load(f.offset(table_base, i, "i32"), whole, 1)
            for other in range(1, APART):
                more = f.offset(f.offset(table_base, other * TABLE_BYTES), i, "i32")
                total = total + f.load(more, whole, 1)
            f.store(total, f.offset(own_counts, i, "i32"), 1)
    f.leave()
    return module.text()


def _piece(f: Function, unit: Value, parts: Value, each: Value, steps: Value) -> _Piece:
    number = unit % parts
    begin = number * each
    return _Piece(unit // parts, begin, f.least(begin + each, steps), number)


def _moving(name: str, read: Source, made: Target) -> str:
    """Return the text of the kernel that moves every word behind those of lower digits, and behind
    earlier words of its digit."""
    module, f, word, base = _start(name)
    *_, task, _ = f.params
    many, units, parts, each, steps, tables, digit = (word(k) for k in range(7))
    slot, offset, from_line, step = (word(7 + k) for k in range(4))
    to_slot, to_offset, to_line, to_step = (word(11 + k) for k in range(4))
    places = f.variable(f"[{DIGITS} x i64]").address
    first = task * many
    with f.loop(first, f.least(first + many, units)) as unit:
        piece = _piece(f, unit, parts, each, steps)
        source = f.offset(base(slot), offset + piece.line * from_line)
        target = f.offset(base(to_slot), to_offset + piece.line * to_line)
        counts = f.offset(base(tables), piece.line * parts * TABLE_BYTES)
        shares_digit = _begin(f, counts, parts, piece.number, steps, to_step, places)
        last = (steps - 1) * to_step
        lowest = f.least(last, 0)
        room = f.select(last.is_("slt", 0), -last, last)

        def move_words(place: Callable[[Value, Value], Value]) -> None:
            with f.loop(piece.begin, piece.end) as i:
                address = f.offset(source, i * step)
                found = read.load(f, address, i)
                to = place(i, read.digit(f, found, address, digit))
                if read.own:
                    made.store(f, found, f.offset(target, to))
                else:
                    with f.when((to - lowest).is_("ule", room)):
                        made.store(f, found, f.offset(target, to))

        def next_of(_: Value, digit: Value) -> Value:
            entry = f.offset(places, digit, "i64")
            to = f.load(entry, "i64")
            f.store(to + to_step, entry)
            return to

        f.choose(
            shares_digit, lambda: move_words(lambda i, _: i * to_step), lambda: move_words(next_of)
        )
    f.leave()
    return module.text()


def _begin(
    f: Function, counts: Value, parts: Value, own_counts: Value, steps: Value, to_step: Value,
    places: Value,
) -> Value:  # fmt: skip
    """Write the offset of the first word of each digit in a part; return whether all words of the
    line share one digit."""
    start, shares_digit = f.variable("i64", 0), f.variable("i1", 0)
    with f.loop(0, DIGITS) as digit:
        before, total = f.variable("i64", 0), f.variable("i64", 0)
        with f.loop(0, parts) as part:
            place = f.offset(f.offset(counts, part * TABLE_BYTES), digit, "i32")
            here = f.load(place, "i32").to("i64", "zext")
            before.set(before.get() + f.select(part.is_("slt", own_counts), here, 0))
            total.set(total.get() + here)
        f.store((start.get() + before.get()) * to_step, f.offset(places, digit, "i64"))
        start.set(start.get() + total.get())
        shares_digit.set(shares_digit.get() | total.get().is_("eq", steps))
    return shares_digit.get()
