"""Radix select: elements at a few positions of sorted lines, without sorting long lines.

Elements become unsigned integers that compare in the same order. A round counts the values of the
next eleven bits, the highest first, among the elements that agree with the bits found so far; the
counts determine these bits of the element at a position, and its position among the elements that
agree. After three rounds (six for 64 bits) all bits are known. Tasks count parts of a line, and
their counts are added.
"""

from collections.abc import Callable, Sequence
from functools import partial

from shardir.backends.cpu.codegen.llvm_text import (
    FLOAT_TYPES,
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
    element_type,
    lane_count,
    vector_type,
)
from shardir.backends.cpu.codegen.memory_hints import store_fence
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
from shardir.ir.dtypes import UNSIGNED

DIGIT_BITS = 11
"""Bits of a digit."""
COUNTS_PER_TABLE = 1 << DIGIT_BITS
COUNT_TABLE_BYTES = 4 * COUNTS_PER_TABLE
INTERLEAVED_TABLES = 4
"""Count tables that consecutive elements use in turn: repeated increments of one entry are slow."""
MIN_TASK_ELEMENTS = 1 << 15
"""Minimum elements of a line that one task counts."""
MAX_LINE_ELEMENTS = 1 << 31
"""Elements of a line from which on counts of 32 bits could overflow."""
STATE_WORDS = ("bits", "place", "match", "table")
"""The state of a position, one word each: the bits of its element found so far, its position among
the elements that agree, the bits to match (-1: another position has the same), and the table with
its counts."""


def radix_select_phases(
    x: BufferView, y: BufferView, dim: int, positions: Sequence[int], context: LoweringContext
) -> list[Phase] | None:
    """Return phases that write the elements at `positions` of the sorted lines of `x` to
    `y` and nothing else; None for lines that are not contiguous."""
    steps, size = x.shape[dim], x.itemsize
    lines = loop_nest_of([line_starts(x, dim), line_starts(y, dim)]).loops
    if x.strides[dim] != size or steps >= MAX_LINE_ELEMENTS or len(lines) > 1:
        return None
    count, from_line, to_line = (lines[0].extent, *lines[0].strides) if lines else (1, 0, 0)
    width = 32 if size <= 4 else 64
    each = max(MIN_TASK_ELEMENTS, -(-steps // (4 * context.workers) // 64) * 64)
    parts, ranks = -(-steps // each), len(positions)
    if (
        ranks * COUNT_TABLE_BYTES + INTERLEAVED_TABLES * COUNT_TABLE_BYTES
        > SCRATCH_BYTES_PER_WORKER
    ):
        return None
    tables = context.temporary(count * parts * ranks * COUNT_TABLE_BYTES)
    state = context.temporary(count * ranks * 8 * len(STATE_WORDS))
    phases = []
    for number, low in enumerate(range(width - DIGIT_BITS, -DIGIT_BITS, -DIGIT_BITS)):
        bits, low = DIGIT_BITS + min(low, 0), max(low, 0)
        record = (x.slot, x.offset, from_line, steps, each, parts, tables, state)
        name = f"moves_pick_count_{x.dtype}_{ranks}_{low}_{bits}"
        text = partial(_count_text, name, x.dtype, ranks, low, bits, number == 0)
        cost = count * steps * (1.0 if number == 0 else 0.5)
        phases.append(Phase(Kernel(name, text), record, count * parts, cost, "select positions"))
        found = (y.slot, y.offset, to_line, y.strides[dim], parts, tables, state, *positions)
        name = f"moves_pick_find_{x.dtype}_{ranks}_{low}_{bits}"
        text = partial(_find_text, name, x.dtype, ranks, low, bits, number == 0)
        cost = 300.0 * parts + 2000.0 * ranks
        phases.append(Phase(Kernel(name, text), found, count, count * cost, "select positions"))
    return phases


def line_starts(x: BufferView, dim: int) -> BufferView:
    """Return the first elements of the lines along a dimension."""
    shape, strides = list(x.shape), list(x.strides)
    del shape[dim], strides[dim]
    return BufferView(x.slot, x.offset, tuple(shape), tuple(strides), x.dtype)


def _start(module: LLVMModule, name: str) -> tuple[LLVMFunction, Sequence[LLVMValue]]:
    f = LLVMFunction(module, name, ("ptr", "ptr", "i64", "i64"))
    return f, f.params


def _word(f: LLVMFunction, record: LLVMValue, index: int) -> LLVMValue:
    return f.load(f.offset(record, 8 * index), "i64")


def _base(f: LLVMFunction, bases: LLVMValue, slot: LLVMValue) -> LLVMValue:
    return f.load(f.offset(bases, slot, "ptr"), "ptr")


def _state_address(
    f: LLVMFunction, state: LLVMValue, rank: LLVMValue | int, name: str
) -> LLVMValue:
    """Return the address of a word of the state of a position."""
    return f.offset(f.offset(state, rank * (8 * len(STATE_WORDS))), 8 * STATE_WORDS.index(name))


def _count_text(
    name: str, dtype: str, ranks: int, low: int, bits: int, first: bool, machine: HostDescription
) -> str:
    """Return the text of a kernel that counts bits `low` to `low + bits` in a part of a line."""
    module = LLVMModule(machine)
    f, (bases, record, task, worker) = _start(module, name)
    slot, offset, from_line, steps, each, parts, tables, states = (
        _word(f, record, k) for k in range(8)
    )
    line, part = task // parts, task % parts
    begin = part * each
    extent = f.umin(each, steps - begin)
    kind, size = element_values.kind_of(dtype), element_values.ELEMENT_BYTES[dtype]
    start = f.offset(_base(f, bases, slot), offset + line * from_line + begin * size)
    own_counts = f.offset(_base(f, bases, tables), task * (ranks * COUNT_TABLE_BYTES))
    state = f.offset(_base(f, bases, states), line * (ranks * 8 * len(STATE_WORDS)))
    used = 1 if first else ranks
    table_count = INTERLEAVED_TABLES if first else 1
    table_base = (
        f.offset(_base(f, bases, f.value(0, "i64")), worker * SCRATCH_BYTES_PER_WORKER)
        if first
        else own_counts
    )
    wide = f.machine.lanes(max(size, 4))
    count_type = vector_type("i32", wide)
    with f.loop(0, used * table_count * COUNTS_PER_TABLE, wide) as i:
        f.store(f.value(0, count_type), f.offset(table_base, i, "i32"), 1)

    def add(digit: LLVMValue, table: int) -> None:
        place = f.offset(f.offset(table_base, table * COUNT_TABLE_BYTES), digit, "i32")
        f.store(f.load(place, "i32") + 1, place)

    matches = [
        f.load(_state_address(f, state, rank, "match"), "i64")
        for rank in range(0 if first else ranks)
    ]
    position = f.variable("i64", 0)
    for count in (wide, 1):
        with f.while_(partial(fits_before, position, extent, count)):
            loaded = element_values.load(f, f.offset(start, position.get() * size), kind, count)
            key = to_ordered_integer(f, loaded, dtype)
            digits = _shift_right(f, key, low) & ((1 << bits) - 1)
            if first:
                for lane in range(count):
                    one = _extract_lane(f, digits, lane) if count > 1 else digits
                    add(_to_i64(one), lane % INTERLEAVED_TABLES)
            else:
                above = _shift_right(f, key, low + bits)
                for rank, match in enumerate(matches):
                    _add_matching(f, above, digits, match, partial(add, table=rank))
            position.set(position.get() + count)
    if first:
        with f.loop(0, COUNTS_PER_TABLE, wide) as i:
            total = f.load(f.offset(table_base, i, "i32"), count_type, 1)
            for other in range(1, INTERLEAVED_TABLES):
                place = f.offset(f.offset(table_base, other * COUNT_TABLE_BYTES), i, "i32")
                total = total + f.load(place, count_type, 1)
            f.store(total, f.offset(own_counts, i, "i32"), 1)
    store_fence(f)
    f.ret()
    return module.text()


def _add_matching(
    f: LLVMFunction,
    above: LLVMValue,
    digits: LLVMValue,
    match: LLVMValue,
    add: Callable[[LLVMValue], None],
) -> None:
    """Count the digits of the elements whose higher bits equal `match`."""
    count = lane_count(above.type)
    if count == 1:
        with f.when(_to_i64(above).is_("eq", match)):
            add(_to_i64(digits))
        return
    one = element_type(above.type)
    prefix = match if one == "i64" else match.to("i32", "trunc")
    mask = f"i{count}"
    left = f.variable(mask, above.is_("eq", f.splat(prefix, count)).to(mask, "bitcast"))
    with f.when(left.get().is_("ne", 0)):
        held = f.variable(digits.type, digits)
        f.module.declare(f"llvm.cttz.{mask}", mask, (mask, "i1"))
        with f.while_(lambda: left.get().is_("ne", 0)):
            now = left.get()
            lane = f.emit(f"call {mask} @llvm.cttz.{mask}({mask} {now}, i1 true)", mask)
            place = f.offset(held.address, lane.to("i64", "zext"), one)
            add(_to_i64(f.load(place, one)))
            left.set(now & (now - 1))


def _find_text(
    name: str, dtype: str, ranks: int, low: int, bits: int, first: bool, machine: HostDescription
) -> str:
    """Return the text of a kernel that finds the next bits of every position of a line, and in the
    last round its element."""
    module = LLVMModule(machine)
    f, (bases, record, task, _) = _start(module, name)
    slot, offset, to_line, step, parts, tables, states = (_word(f, record, k) for k in range(7))
    counted = f.offset(_base(f, bases, tables), task * parts * (ranks * COUNT_TABLE_BYTES))
    state = f.offset(_base(f, bases, states), task * (ranks * 8 * len(STATE_WORDS)))
    wide = f.machine.lanes(4)
    whole = vector_type("i32", wide)
    with (
        f.loop(1, parts) as other,
        f.loop(0, (1 if first else ranks) * COUNTS_PER_TABLE, wide) as i,
    ):
        here = f.offset(counted, i, "i32")
        more = f.load(f.offset(here, other * (ranks * COUNT_TABLE_BYTES)), whole, 1)
        f.store(f.load(here, whole, 1) + more, here, 1)
    found: list[LLVMValue] = []
    for rank in range(ranks):
        position = _word(f, record, 7 + rank)
        if first:
            table, before, place = f.value(0, "i64"), f.value(0, "i64"), position
        else:
            table, before, place = (
                f.load(_state_address(f, state, rank, word), "i64")
                for word in ("table", "bits", "place")
            )
        digit, left = f.variable("i64", 0), f.variable("i64", place)
        _find_digit(f, f.offset(counted, table * COUNT_TABLE_BYTES), digit, left)
        known = (before << bits) | digit.get()
        found.append(known)
        if not low:
            target = f.offset(_base(f, bases, slot), offset + task * to_line + position * step)
            element_values.store(
                f, from_ordered_integer(f, known, dtype), target, element_values.kind_of(dtype)
            )
            continue
        table_of, match = f.value(rank, "i64"), known
        for earlier in range(rank - 1, -1, -1):
            same = found[earlier].is_("eq", known)
            table_of, match = f.select(same, earlier, table_of), f.select(same, -1, match)
        for word, value in zip(STATE_WORDS, (known, left.get(), match, table_of), strict=True):
            f.store(value, _state_address(f, state, rank, word))
    f.ret()
    return module.text()


def _find_digit(
    f: LLVMFunction, counts: LLVMValue, digit: StackVariable, left: StackVariable
) -> None:
    """Advance to the digit of position `left`, and set `left` to the position among its equals.

    If another thread modifies the elements, fewer may have been counted than there are; then the
    last digit is used.
    """

    def count() -> LLVMValue:
        return f.load(f.offset(counts, digit.get(), "i32"), "i32").to("i64", "zext")

    def behind() -> LLVMValue:
        return digit.get().is_("slt", COUNTS_PER_TABLE - 1) & count().is_("sle", left.get())

    with f.while_(behind):
        left.set(left.get() - count())
        digit.set(digit.get() + 1)


def _extract_lane(f: LLVMFunction, value: LLVMValue, lane: int) -> LLVMValue:
    return f.emit(f"extractelement {value.type} {value}, i64 {lane}", element_type(value.type))


def _to_i64(value: LLVMValue) -> LLVMValue:
    return value if value.type == "i64" else value.to("i64", "zext")


def _shift_right(f: LLVMFunction, value: LLVMValue, by: int) -> LLVMValue:
    """Shift right, filling with zeros."""
    return f.emit(f"lshr {value.type} {value}, {f.value(by, value.type)}", value.type)


def to_ordered_integer(f: LLVMFunction, value: LLVMValue, dtype: str) -> LLVMValue:
    """Convert elements to unsigned integers that compare in element order, all NaN last."""
    count, size = lane_count(value.type), element_values.ELEMENT_BYTES[dtype]
    width = 32 if size <= 4 else 64
    whole, top = vector_type(f"i{width}", count), -(1 << width - 1)
    if element_values.kind_of(dtype).type in FLOAT_TYPES:
        bits = value.to(whole, "bitcast")
        nan = 0x7FC00000 if width == 32 else 0x7FF8 << 48
        bits = f.select(value.is_("uno", value), nan, bits)
        return f.select(bits.is_("slt", 0), bits ^ -1, bits ^ top)
    unsigned = dtype in ("bool", *UNSIGNED)
    if size * 8 < width:
        value = value.to(whole, "zext" if unsigned else "sext")
    return value if unsigned else value ^ top


def from_ordered_integer(f: LLVMFunction, key: LLVMValue, dtype: str) -> LLVMValue:
    """Convert such an integer of 64 bits back to its element."""
    size, type = element_values.ELEMENT_BYTES[dtype], element_values.kind_of(dtype).type
    width = 32 if size <= 4 else 64
    word, top = f"i{width}", -(1 << width - 1)
    key = key if width == 64 else key.to(word, "trunc")
    if type in FLOAT_TYPES:
        return f.select(key.is_("slt", 0), key ^ top, key ^ -1).to(type, "bitcast")
    key = key if dtype in ("bool", *UNSIGNED) else key ^ top
    return key.to(type, "trunc") if size * 8 < width else key
