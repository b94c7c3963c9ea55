"""Least-significant-digit radix sort of lines that are long or few.

Elements become words: unsigned integers that compare in element order, with their indices in the
low bits if the permutation is requested. For each 8-bit digit, the words of every part of a line
are counted, and then written to the offsets that the counts determine, in stable order; tasks
process parts. A digit that all words of a line share moves none of them. Elements may be in a NumPy
array that another thread modifies between the two: whatever is counted, no word is written outside
of its line.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import (
    FLOAT_TYPES,
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    vector_type,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import (
    SCRATCH_BYTES_PER_WORKER,
    BufferView,
    Kernel,
    LoweringContext,
    Phase,
)
from shardir.backends.cpu.kernels.data_movement import element_values
from shardir.backends.cpu.kernels.data_movement.element_cast import fits_before
from shardir.backends.cpu.kernels.data_movement.loop_nest import loop_nest_of
from shardir.backends.cpu.kernels.selection.radix_select import (
    from_ordered_integer,
    line_starts,
    to_ordered_integer,
)
from shardir.backends.cpu.kernels.sort.signed_zeros import signed_zero_phases
from shardir.backends.cpu.kernels.sort.tuning import (
    MIN_LINE_ELEMENTS,
    MIN_MANY_LINES,
    MIN_PART_ELEMENTS,
)
from shardir.ir.dtypes import DTYPE_INFO, NARROW_FLOATS, SIGNED

DIGIT_VALUES = 256
"""Number of values of a digit."""
TABLE_BYTES = 4 * DIGIT_VALUES
INTERLEAVED_TABLES = 4
"""Count tables that consecutive elements use in turn: repeated increments of one entry are slow."""
MAX_LINE_ELEMENTS = 1 << 31
ZERO_LOW_BYTES = {
    dtype: (DTYPE_INFO["f32"].mantissa_bits - DTYPE_INFO[dtype].mantissa_bits) // 8
    for dtype in NARROW_FLOATS
}
"""Number of low bytes of an f32 that are zero if it was widened from this type."""


class StridedLines(NamedTuple):
    """The address of lines of elements or words."""

    slot: int
    offset: int
    line: int
    step: int
    """Bytes to the next line, and to the next element of a line."""


class PassSource(NamedTuple):
    """The input of a pass, elements or words; `name` identifies it in kernel names."""

    name: str
    load: Callable[[LLVMFunction, LLVMValue, LLVMValue], LLVMValue]
    """Returns the word at an address; the last parameter is its index in the line."""
    digit: Callable[[LLVMFunction, LLVMValue, LLVMValue, LLVMValue], LLVMValue]
    """Returns the digit of a word at an address; the last parameter is the byte of the digit."""
    has_exact_counts: bool
    """True if no other thread can modify the memory, so that the counts are exact."""


class PassTarget(NamedTuple):
    """The output of a pass: words, elements or indices."""

    name: str
    store: Callable[[LLVMFunction, LLVMValue, LLVMValue], None]


def radix_sort_phases(
    x: BufferView, y: BufferView, dim: int, places: bool, context: LoweringContext
) -> list[Phase] | None:
    """Return phases that write the sorted lines of `x` to `y`, or with `places` their permutation.

    Return None for many short lines, and for lines without a constant stride.
    """
    steps = x.shape[dim]
    loops = loop_nest_of([line_starts(x, dim), line_starts(y, dim)]).loops
    count, from_line, to_line = (loops[0].extent, *loops[0].strides) if loops else (1, 0, 0)
    if (
        len(loops) > 1
        or steps >= MAX_LINE_ELEMENTS
        or (count >= MIN_MANY_LINES and steps < MIN_LINE_ELEMENTS)
    ):
        return None
    parts = max(1, min(-(-4 * context.workers // count), steps // MIN_PART_ELEMENTS))
    each = -(-steps // parts)
    parts = -(-steps // each)
    tables = context.temporary(count * parts * TABLE_BYTES)
    width = word_bits(x.dtype, places)
    nbytes = width // 8
    lines = StridedLines(x.slot, x.offset, from_line, x.strides[dim])
    target = StridedLines(y.slot, y.offset, to_line, y.strides[dim])
    digits = digit_bytes(x.dtype, places)

    def buffer() -> StridedLines:
        slot = context.temporary(count * steps * nbytes)
        return StridedLines(slot, 0, steps * nbytes, nbytes)

    # Words may be stored in the result memory, unless the last pass would read them there.
    own = not places and y.itemsize == y.strides[dim] == nbytes and len(digits) % 2 == 0
    waiting = [buffer()] if len(digits) > 1 else []
    if len(digits) > 2:
        waiting.append(target if own else buffer())
    phases = []
    for number, digit in enumerate(digits):
        last = number == len(digits) - 1
        read = element_source(x.dtype, places) if number == 0 else word_source(width)
        made = result_target(x.dtype, places) if last else word_target(width)
        to = target if last else waiting[number % 2]
        shared = (count * parts, parts, each, steps, tables, digit)
        many = -(-count * parts // (4 * context.workers))
        tasks = -(-count * parts // many)
        name = f"moves_radix_count_{read.name}"
        text = partial(_count_text, name, read)
        cost = x.size * 0.7 + 100.0
        phases.append(Phase(Kernel(name, text), (many, *shared, *lines), tasks, cost, "sort"))
        name = f"moves_radix_move_{read.name}_{made.name}"
        text = partial(_move_text, name, read, made)
        cost = x.size * 1.5 + 100.0
        record = (many, *shared, *lines, *to)
        phases.append(Phase(Kernel(name, text), record, tasks, cost, "sort"))
        lines = to
    return phases if places else [*phases, *signed_zero_phases(x, y, dim)]


def digit_bytes(dtype: str, places: bool) -> list[int]:
    """Return the bytes of a word that determine the order, lowest first."""
    size = 4 if dtype in ZERO_LOW_BYTES else element_values.ELEMENT_BYTES[dtype]
    first = (4 if size <= 4 else 8) if places else 0
    return [first + byte for byte in range(ZERO_LOW_BYTES.get(dtype, 0), size)]


def word_bits(dtype: str, places: bool) -> int:
    """Return the number of bits of a word."""
    return (32 if element_values.ELEMENT_BYTES[dtype] <= 4 else 64) * (1 + places)


def word_source(width: int) -> PassSource:
    """Return the source of words in memory, whose digits are their bytes."""

    def digit(f: LLVMFunction, word: LLVMValue, address: LLVMValue, byte: LLVMValue) -> LLVMValue:
        return f.load(f.offset(address, byte), "i8").to("i64", "zext")

    return PassSource(
        f"word{width}", lambda f, address, _: f.load(address, f"i{width}", 8), digit, True
    )


def word_target(width: int) -> PassTarget:
    """Return the target of words in memory."""
    return PassTarget(f"word{width}", lambda f, word, address: f.store(word, address, 8))


def element_source(dtype: str, places: bool) -> PassSource:
    """Return the source of elements that are converted to words."""
    kind, key = (
        element_values.kind_of(dtype),
        32 if element_values.ELEMENT_BYTES[dtype] <= 4 else 64,
    )
    low = 8 * digit_bytes(dtype, places)[0]

    def load(f: LLVMFunction, address: LLVMValue, place: LLVMValue) -> LLVMValue:
        value = element_values.load(f, address, kind, 1)
        if places and kind.type in FLOAT_TYPES:
            value = value + 0.0  # Converts -0 to +0.
        word = _to_word(f, value, dtype)
        if not places:
            return word
        whole = f"i{2 * key}"
        behind = place.to("i32", "trunc").to(whole, "zext")
        return (word.to(whole, "zext") << key) | behind

    def digit(f: LLVMFunction, word: LLVMValue, address: LLVMValue, byte: LLVMValue) -> LLVMValue:
        return (word >> low).to("i8", "trunc").to("i64", "zext")

    return PassSource(f"{dtype}{'_places' * places}", load, digit, False)


def result_target(dtype: str, places: bool) -> PassTarget:
    """Return the target of the last pass: elements, or indices in i32."""
    if places:

        def store_place(f: LLVMFunction, word: LLVMValue, address: LLVMValue) -> None:
            f.store(word.to("i32", "trunc"), address, 4)

        return PassTarget(f"place{word_bits(dtype, places)}", store_place)
    kind = element_values.kind_of(dtype)

    def store(f: LLVMFunction, word: LLVMValue, address: LLVMValue) -> None:
        element_values.store(f, _from_word(f, word, dtype), address, kind)

    return PassTarget(dtype, store)


def _to_word(f: LLVMFunction, value: LLVMValue, dtype: str) -> LLVMValue:
    """Convert an element to an unsigned integer whose low bytes determine its order."""
    size = element_values.ELEMENT_BYTES[dtype]
    if size in (4, 8) or element_values.kind_of(dtype).type in FLOAT_TYPES:
        return to_ordered_integer(f, value, dtype)
    if dtype in SIGNED:
        value = value ^ (-(1 << 8 * size - 1))
    return value.to("i32", "zext")


def _from_word(f: LLVMFunction, word: LLVMValue, dtype: str) -> LLVMValue:
    size = element_values.ELEMENT_BYTES[dtype]
    if size in (4, 8) or element_values.kind_of(dtype).type in FLOAT_TYPES:
        return from_ordered_integer(
            f, word if word.type == "i64" else word.to("i64", "zext"), dtype
        )
    value = word.to(f"i{8 * size}", "trunc")
    return value ^ (-(1 << 8 * size - 1)) if dtype in SIGNED else value


class _LinePart(NamedTuple):
    """The part of a line that a kernel processes."""

    line: LLVMValue
    begin: LLVMValue
    end: LLVMValue
    number: LLVMValue
    """The number of the part in its line."""


def _start(
    name: str, machine: HostDescription
) -> tuple[LLVMModule, LLVMFunction, Callable[[int], LLVMValue], Callable[[LLVMValue], LLVMValue]]:
    module = LLVMModule(machine)
    f = LLVMFunction(module, name, ("ptr", "ptr", "i64", "i64"))
    bases, record, _, _ = f.params
    return (
        module,
        f,
        lambda index: f.load(f.offset(record, index, "i64"), "i64"),
        lambda slot: f.load(f.offset(bases, slot, "ptr"), "ptr"),
    )


def _count_text(name: str, read: PassSource, machine: HostDescription) -> str:
    """Return the text of the kernel that counts the digits of each part."""
    module, f, word, base = _start(name, machine)
    *_, task, worker = f.params
    many, units, parts, each, steps, tables, digit = (word(k) for k in range(7))
    slot, offset, from_line, step = (word(7 + k) for k in range(4))
    table_base = f.offset(base(f.value(0, "i64")), worker * SCRATCH_BYTES_PER_WORKER)
    whole = vector_type("i32", f.machine.lanes(4))
    first = task * many
    with f.loop(first, f.umin(first + many, units)) as unit:
        piece = _line_part(f, unit, parts, each, steps)
        source = f.offset(base(slot), offset + piece.line * from_line)
        with f.loop(0, INTERLEAVED_TABLES * DIGIT_VALUES, f.machine.lanes(4)) as i:
            f.store(f.value(0, whole), f.offset(table_base, i, "i32"), 1)
        at = f.variable("i64", piece.begin)
        for group in (INTERLEAVED_TABLES, 1):
            with f.while_(partial(fits_before, at, piece.end, group)):
                for k in range(group):
                    here = at.get() + k
                    address = f.offset(source, here * step)
                    found = read.digit(f, read.load(f, address, here), address, digit)
                    place = f.offset(f.offset(table_base, k * TABLE_BYTES), found, "i32")
                    f.store(f.load(place, "i32") + 1, place)
                at.set(at.get() + group)
        own_counts = f.offset(base(tables), unit * TABLE_BYTES)
        with f.loop(0, DIGIT_VALUES, f.machine.lanes(4)) as i:
            total = f.load(f.offset(table_base, i, "i32"), whole, 1)
            for other in range(1, INTERLEAVED_TABLES):
                more = f.offset(f.offset(table_base, other * TABLE_BYTES), i, "i32")
                total = total + f.load(more, whole, 1)
            f.store(total, f.offset(own_counts, i, "i32"), 1)
    f.ret()
    return module.text()


def _line_part(
    f: LLVMFunction, unit: LLVMValue, parts: LLVMValue, each: LLVMValue, steps: LLVMValue
) -> _LinePart:
    number = unit % parts
    begin = number * each
    return _LinePart(unit // parts, begin, f.umin(begin + each, steps), number)


def _move_text(name: str, read: PassSource, made: PassTarget, machine: HostDescription) -> str:
    """Return the text of the kernel that moves every word behind those of lower digits, and behind
    earlier words of its digit."""
    module, f, word, base = _start(name, machine)
    *_, task, _ = f.params
    many, units, parts, each, steps, tables, digit = (word(k) for k in range(7))
    slot, offset, from_line, step = (word(7 + k) for k in range(4))
    to_slot, to_offset, to_line, to_step = (word(11 + k) for k in range(4))
    places = f.variable(f"[{DIGIT_VALUES} x i64]").address
    first = task * many
    with f.loop(first, f.umin(first + many, units)) as unit:
        piece = _line_part(f, unit, parts, each, steps)
        source = f.offset(base(slot), offset + piece.line * from_line)
        target = f.offset(base(to_slot), to_offset + piece.line * to_line)
        counts = f.offset(base(tables), piece.line * parts * TABLE_BYTES)
        shares_digit = _write_digit_offsets(f, counts, parts, piece.number, steps, to_step, places)
        last = (steps - 1) * to_step
        lowest = f.umin(last, 0)
        room = f.select(last.is_("slt", 0), -last, last)

        def move_words(place: Callable[[LLVMValue, LLVMValue], LLVMValue]) -> None:
            with f.loop(piece.begin, piece.end) as i:
                address = f.offset(source, i * step)
                found = read.load(f, address, i)
                to = place(i, read.digit(f, found, address, digit))
                if read.has_exact_counts:
                    made.store(f, found, f.offset(target, to))
                else:
                    with f.when((to - lowest).is_("ule", room)):
                        made.store(f, found, f.offset(target, to))

        def next_of(_: LLVMValue, digit: LLVMValue) -> LLVMValue:
            entry = f.offset(places, digit, "i64")
            to = f.load(entry, "i64")
            f.store(to + to_step, entry)
            return to

        f.if_else(
            shares_digit, lambda: move_words(lambda i, _: i * to_step), lambda: move_words(next_of)
        )
    f.ret()
    return module.text()


def _write_digit_offsets(
    f: LLVMFunction,
    counts: LLVMValue,
    parts: LLVMValue,
    own_counts: LLVMValue,
    steps: LLVMValue,
    to_step: LLVMValue,
    places: LLVMValue,
) -> LLVMValue:
    """Write the offset of the first word of each digit in a part; return whether all words of the
    line share one digit."""
    start, shares_digit = f.variable("i64", 0), f.variable("i1", 0)
    with f.loop(0, DIGIT_VALUES) as digit:
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
