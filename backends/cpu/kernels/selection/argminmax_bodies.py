"""Bodies of `argmax` and `argmin`: find the index of the extreme in the lines of a block.

The parameters of a body are whether it finds the largest element, and the types of elements and
indices.
"""

from functools import partial

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    FLOAT_TYPES,
    LLVMFunction,
    LLVMValue,
    StackVariable,
    element_type,
    vector_type,
)
from shardir.backends.cpu.codegen.memory_hints import is_prefetch_useful, prefetch
from shardir.backends.cpu.kernels.data_movement import element_values
from shardir.backends.cpu.kernels.data_movement.block_grid import GridBlock
from shardir.backends.cpu.kernels.data_movement.element_cast import fits_before
from shardir.backends.cpu.kernels.selection.bool_search import find_first
from shardir.ir.dtypes import UNSIGNED

MAX_ADJACENT_LINES = 2048
"""Maximum number of adjacent lines of a task, so that the extremes stay in the cache."""
PREFETCH_DISTANCE_BYTES = 4 << 10
"""Prefetch distance in bytes."""
VECTORS_PER_CHUNK = 32
"""Vectors of a chunk of a line."""


def is_better(largest: bool, dtype: str, new: LLVMValue, best: LLVMValue) -> LLVMValue:
    """Return whether `new` replaces `best`, an element with a lower index."""
    if element_type(new.type) in FLOAT_TYPES:
        return new.is_("ugt" if largest else "ult", best) & best.is_("ord", best)
    sign = "u" if dtype in ("bool", *UNSIGNED) else "s"
    return new.is_(sign + ("gt" if largest else "lt"), best)


def keep_better(
    f: LLVMFunction,
    best: StackVariable,
    place: StackVariable,
    wins: LLVMValue,
    new: LLVMValue,
    at: LLVMValue,
) -> None:
    best.set(f.select(wins, new, best.get()))
    place.set(f.select(wins, at, place.get()))


def _halves(f: LLVMFunction, value: LLVMValue, half: int) -> tuple[LLVMValue, LLVMValue]:
    """Split a vector in halves; a vector of two lanes in its elements."""
    if half > 1:
        low, high = range(half), range(half, 2 * half)
        return f.shuffle(value, value, low), f.shuffle(value, value, high)
    one = element_type(value.type)
    first, second = (f.emit(f"extractelement {value.type} {value}, i64 {k}", one) for k in (0, 1))
    return first, second


def _merge(
    f: LLVMFunction,
    largest: bool,
    dtype: str,
    best: StackVariable,
    place: StackVariable,
    other: LLVMValue,
    there: LLVMValue,
) -> None:
    """Keep the better of two candidates; of equal ones, the one with the lower index."""
    wins = is_better(largest, dtype, other, best.get())
    loses = is_better(largest, dtype, best.get(), other)
    earlier = there.is_("ult", place.get()) & ((wins | loses) ^ 1)
    keep_better(f, best, place, wins | earlier, other, there)


def convert_index(place: LLVMValue, type: str) -> LLVMValue:
    width = int(type[1:])
    return place if width == 32 else place.to(type, "zext" if width > 32 else "trunc")


def scan_adjacent_lines(
    largest: bool, dtype: str, to: str, f: LLVMFunction, block: GridBlock
) -> None:
    kind, size = element_values.kind_of(dtype), element_values.ELEMENT_BYTES[dtype]
    steps, step = block.extra(0), block.extra(1)
    wide = f.machine.lanes(max(size, 4))
    places = f.offset(block.scratch, MAX_ADJACENT_LINES * 8)

    def walk(down: LLVMValue, number: LLVMValue) -> None:
        """Update the extremes and indices of all lines with one step; they are in scratch
        memory."""
        position = f.variable("i64", 0)
        for lanes in (wide, 1):
            with f.while_(partial(fits_before, position, block.columns, lanes)):
                at = position.get()
                new = element_values.load(
                    f, f.offset(block.addresses[0], down + at * size), kind, lanes
                )
                here = f.splat(number.to("i32", "trunc"), lanes)
                accumulators, there = (
                    f.offset(block.scratch, at, kind.type),
                    f.offset(places, at, "i32"),
                )
                best, place = f.load(accumulators, new.type, 1), f.load(there, here.type, 1)
                wins = is_better(largest, dtype, new, best) | here.is_("eq", 0)
                f.store(f.select(wins, new, best), accumulators, 1)
                f.store(f.select(wins, here, place), there, 1)
                position.set(at + lanes)

    with f.loop(0, steps) as i:
        walk(i * step, i)
    with f.loop(0, block.columns) as j:
        place = f.load(f.offset(places, j, "i32"), "i32")
        to_column = f.offset(block.addresses[1], j * block.column_strides[1])
        f.store(convert_index(place, MEMORY_TYPES[to]), to_column, 1)


def scan_items(largest: bool, dtype: str, to: str, f: LLVMFunction, block: GridBlock) -> None:
    kind = element_values.kind_of(dtype)
    steps, step = block.extra(0), block.extra(1)
    with f.loop(0, block.columns) as j:
        source, target = (
            f.offset(address, j * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        best = f.variable(kind.type, element_values.load(f, source, kind, 1))
        place = f.variable("i32", 0)
        with f.loop(1, steps) as i:
            new = element_values.load(f, f.offset(source, i * step), kind, 1)
            wins = is_better(largest, dtype, new, best.get())
            keep_better(f, best, place, wins, new, i.to("i32", "trunc"))
        f.store(convert_index(place.get(), MEMORY_TYPES[to]), target, 1)


def find_first_bool(largest: bool, dtype: str, to: str, f: LLVMFunction, block: GridBlock) -> None:
    """Find the first true (argmax) or false (argmin) byte of each line."""
    steps = block.extra(0)
    with f.loop(0, block.columns) as j:
        source, target = (
            f.offset(address, j * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        place = find_first(f, [source], steps, int(largest))
        place = f.select(place.is_("slt", steps), place, 0)
        f.store(convert_index(place.to("i32", "trunc"), MEMORY_TYPES[to]), target, 1)


def scan_lanes(
    vectors: int, largest: bool, dtype: str, to: str, f: LLVMFunction, block: GridBlock
) -> None:
    kind, size = element_values.kind_of(dtype), element_values.ELEMENT_BYTES[dtype]
    steps, lanes = block.extra(0), f.machine.lanes(max(size, 4))
    counting = LLVMValue(
        "<" + ", ".join(f"i32 {lane}" for lane in range(lanes)) + ">", vector_type("i32", lanes), f
    )
    with f.loop(0, block.columns) as j:
        source, target = (
            f.offset(address, j * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        accumulators = []
        for number in range(vectors):
            start = f.offset(source, number * lanes * size)
            first = element_values.load(f, start, kind, lanes)
            at_first = f.variable(counting.type, counting + number * lanes)
            accumulators.append((f.variable(first.type, first), at_first))
        position = f.variable("i64", vectors * lanes)
        with f.while_(partial(fits_before, position, steps, vectors * lanes)):
            at = position.get()
            for number, (best, place) in enumerate(accumulators):
                start = f.offset(source, (at + number * lanes) * size)
                new = element_values.load(f, start, kind, lanes)
                wins = is_better(largest, dtype, new, best.get())
                here = f.splat((at + number * lanes).to("i32", "trunc"), lanes) + counting
                keep_better(f, best, place, wins, new, here)
            position.set(at + vectors * lanes)
        best, place = accumulators[0]
        for other, there in accumulators[1:]:
            _merge(f, largest, dtype, best, place, other.get(), there.get())
        for half in (lanes >> k for k in range(1, lanes.bit_length())):
            (low, high), (first, second) = (
                _halves(f, accumulators.get(), half) for accumulators in (best, place)
            )
            best, place = f.variable(low.type, low), f.variable(first.type, first)
            _merge(f, largest, dtype, best, place, high, second)
        one, where = best, place
        with f.loop(position.get(), steps) as i:
            new = element_values.load(f, f.offset(source, i * size), kind, 1)
            wins = is_better(largest, dtype, new, one.get())
            keep_better(f, one, where, wins, new, i.to("i32", "trunc"))
        f.store(convert_index(where.get(), MEMORY_TYPES[to]), target, 1)


def scan_chunks(largest: bool, dtype: str, to: str, f: LLVMFunction, block: GridBlock) -> None:
    kind, size = element_values.kind_of(dtype), element_values.ELEMENT_BYTES[dtype]
    steps, lanes = block.extra(0), f.machine.lanes(size)
    piece, whole, flags = (
        VECTORS_PER_CHUNK * lanes,
        vector_type(kind.type, lanes),
        vector_type("i1", lanes),
    )
    is_float = kind.type in FLOAT_TYPES
    with f.loop(0, block.columns) as j:
        source, target = (
            f.offset(address, j * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        best = f.variable(kind.type, element_values.load(f, source, kind, 1))
        begin, at = f.variable("i64", 0), f.variable("i64", 0)
        unordered = f.variable(flags, f.value(0, flags)) if is_float else None

        def update_best(new: LLVMValue) -> None:
            wins = is_better(largest, dtype, new, best.get())
            best.set(f.select(wins, new, best.get()))
            begin.set(f.select(wins, at.get(), begin.get()))

        def load(at: LLVMValue, number: int) -> LLVMValue:
            new = element_values.load(f, f.offset(at, number * lanes * size), kind, lanes)
            if lanes * size == 64 and is_prefetch_useful(f.machine):
                prefetch(f, f.offset(at, number * lanes * size + PREFETCH_DISTANCE_BYTES))
            if unordered is not None:
                # Comparisons ignore NaN, therefore the lanes that had one are recorded.
                unordered.set(unordered.get() | new.is_("uno", new))
            return new

        def higher(a: LLVMValue, b: LLVMValue) -> LLVMValue:
            if is_float:
                return f.select(b.is_("ogt" if largest else "olt", a), b, a)
            return element_values.combine(f, "max" if largest else "min", a, b, dtype)

        with f.while_(lambda: at.get().is_("slt", steps)):
            # The last chunk overlaps the one before it; elements in both cannot win again.
            at.set(f.umin(at.get(), steps - piece))
            start = f.offset(source, at.get() * size)
            highest = [f.variable(whole, load(start, k)) for k in range(4)]
            with f.loop(4 * lanes, piece, 4 * lanes) as i:
                there = f.offset(start, i * size)
                for k, each in enumerate(highest):
                    each.set(higher(each.get(), load(there, k)))
            first, *others = (each.get() for each in highest)
            for other in others:
                first = higher(first, other)
            one, half = first, lanes // 2
            while half:
                one = higher(*_halves(f, one, half))
                half //= 2
            if unordered is not None:
                bits = unordered.get().to(f"i{lanes}", "bitcast")
                one = f.select(bits.is_("ne", 0), float("nan"), one)
                unordered.set(f.value(0, flags))
            update_best(one)
            at.set(at.get() + piece)
        place = _find_first_equal(f, source, begin.get(), kind, best.get(), lanes)
        f.store(convert_index(place.to("i32", "trunc"), MEMORY_TYPES[to]), target, 1)


def select_part(largest: bool, dtype: str, to: str, f: LLVMFunction, block: GridBlock) -> None:
    """Select the extreme of the parts of lines from the index of each part's extreme."""
    kind, size = element_values.kind_of(dtype), element_values.ELEMENT_BYTES[dtype]
    count, part = block.extra(0), block.extra(1)
    source, places, target = block.addresses
    best, place = f.variable(kind.type, 0), f.variable("i64", 0)
    with f.loop(0, count) as i:
        at = i * part + f.load(f.offset(places, i, "i32"), "i32").to("i64", "zext")
        new = element_values.load(f, f.offset(source, at * size), kind, 1)
        wins = is_better(largest, dtype, new, best.get()) | i.is_("eq", 0)
        keep_better(f, best, place, wins, new, at)
    f.store(convert_index(place.get().to("i32", "trunc"), MEMORY_TYPES[to]), target, 1)


def _find_first_equal(
    f: LLVMFunction,
    source: LLVMValue,
    begin: LLVMValue,
    kind: element_values.ElementKind,
    best: LLVMValue,
    lanes: int,
) -> LLVMValue:
    """Return the first index of the chunk from `begin` whose element equals `best`, or is NaN if
    that is NaN; `begin` if there is none because another thread has modified the array."""
    at, found = f.variable("i64", begin - lanes), f.variable("i64", 0)
    many, last = f.splat(best, lanes), begin + (VECTORS_PER_CHUNK - 1) * lanes
    with f.while_(lambda: found.get().is_("eq", 0) & at.get().is_("slt", last)):
        at.set(at.get() + lanes)
        here = element_values.load(
            f, f.offset(source, at.get() * element_values.ELEMENT_BYTES[kind.dtype]), kind, lanes
        )
        if kind.type in FLOAT_TYPES:
            equal = here.is_("oeq", many) | (here.is_("uno", here) & many.is_("uno", many))
        else:
            equal = here.is_("eq", many)
        bits = equal.to(f"i{lanes}", "bitcast")
        found.set(bits if lanes == 64 else bits.to("i64", "zext"))
    f.module.declare("llvm.cttz.i64", "i64", ["i64", "i1"])
    lane = f.call("llvm.cttz.i64", [found.get(), f.value(0, "i1")], "i64")
    return f.select(found.get().is_("ne", 0), at.get() + lane, begin)
