"""Bodies of `argmax` and `argmin`: find the index of the extreme in the lines of a block.

The parameters of a body are whether the largest is wanted, and the types of elements and indices.
"""

from functools import partial

from shardir.backends.cpu.native.llvm.hints import prefetch
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import (
    FLOATS,
    Function,
    Value,
    Variable,
    element,
    vector,
)
from shardir.backends.cpu.native.moves import numbers
from shardir.backends.cpu.native.moves.casting import fits
from shardir.backends.cpu.native.moves.grid import Block
from shardir.backends.cpu.native.moves.scanning import first_place

BESIDE = 2048
"""Maximum number of adjacent lines of a task, so that the extremes stay in the cache."""
AHEAD = 4 << 10
"""Prefetch distance in bytes."""
PIECE = 32
"""Vectors of a chunk of a line."""


def better(largest: bool, dtype: str, new: Value, best: Value) -> Value:
    """Return whether `new` replaces `best`, an element with a lower index."""
    if element(new.type) in FLOATS:
        return new.is_("ugt" if largest else "ult", best) & best.is_("ord", best)
    sign = "u" if dtype == "bool" or dtype[0] == "u" else "s"
    return new.is_(sign + ("gt" if largest else "lt"), best)


def keep(f: Function, best: Variable, place: Variable, wins: Value, new: Value, at: Value) -> None:
    best.set(f.select(wins, new, best.get()))
    place.set(f.select(wins, at, place.get()))


def _halves(f: Function, value: Value, half: int) -> tuple[Value, Value]:
    """Split a vector in halves; a vector of two lanes in its elements."""
    if half > 1:
        low, high = range(half), range(half, 2 * half)
        return f.shuffle(value, value, low), f.shuffle(value, value, high)
    one = element(value.type)
    first, second = (f.emit(f"extractelement {value.type} {value}, i64 {k}", one) for k in (0, 1))
    return first, second


def _merge(
    f: Function,
    largest: bool,
    dtype: str,
    best: Variable,
    place: Variable,
    other: Value,
    there: Value,
) -> None:
    """Keep the better of two candidates; of equal ones, the one with the lower index."""
    wins = better(largest, dtype, other, best.get())
    loses = better(largest, dtype, best.get(), other)
    earlier = there.is_("ult", place.get()) & ((wins | loses) ^ 1)
    keep(f, best, place, wins | earlier, other, there)


def as_place(place: Value, type: str) -> Value:
    width = int(type[1:])
    return place if width == 32 else place.to(type, "zext" if width > 32 else "trunc")


def beside(largest: bool, dtype: str, to: str, f: Function, block: Block) -> None:
    kind, size = numbers.kind_of(dtype), numbers.SIZES[dtype]
    steps, step = block.extra(0), block.extra(1)
    wide = host().lanes(max(size, 4))
    places = f.offset(block.scratch, BESIDE * 8)

    def walk(down: Value, number: Value) -> None:
        """Update the extremes and indices of all lines with one step; they are in scratch
        memory."""
        position = f.variable("i64", 0)
        for lanes in (wide, 1):
            with f.while_(partial(fits, position, block.columns, lanes)):
                at = position.get()
                new = numbers.load(f, f.offset(block.addresses[0], down + at * size), kind, lanes)
                here = f.splat(number.to("i32", "trunc"), lanes)
                accumulators, there = (
                    f.offset(block.scratch, at, kind.type),
                    f.offset(places, at, "i32"),
                )
                best, place = f.load(accumulators, new.type, 1), f.load(there, here.type, 1)
                wins = better(largest, dtype, new, best) | here.is_("eq", 0)
                f.store(f.select(wins, new, best), accumulators, 1)
                f.store(f.select(wins, here, place), there, 1)
                position.set(at + lanes)

    with f.loop(0, steps) as i:
        walk(i * step, i)
    with f.loop(0, block.columns) as j:
        place = f.load(f.offset(places, j, "i32"), "i32")
        to_column = f.offset(block.addresses[1], j * block.column_strides[1])
        f.store(as_place(place, numbers.MEMORY[to]), to_column, 1)


def items(largest: bool, dtype: str, to: str, f: Function, block: Block) -> None:
    kind = numbers.kind_of(dtype)
    steps, step = block.extra(0), block.extra(1)
    with f.loop(0, block.columns) as j:
        source, target = (
            f.offset(address, j * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        best = f.variable(kind.type, numbers.load(f, source, kind, 1))
        place = f.variable("i32", 0)
        with f.loop(1, steps) as i:
            new = numbers.load(f, f.offset(source, i * step), kind, 1)
            wins = better(largest, dtype, new, best.get())
            keep(f, best, place, wins, new, i.to("i32", "trunc"))
        f.store(as_place(place.get(), numbers.MEMORY[to]), target, 1)


def first(largest: bool, dtype: str, to: str, f: Function, block: Block) -> None:
    """Find the first true (argmax) or false (argmin) byte of each line."""
    steps = block.extra(0)
    with f.loop(0, block.columns) as j:
        source, target = (
            f.offset(address, j * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        place = first_place(f, [source], steps, int(largest))
        place = f.select(place.is_("slt", steps), place, 0)
        f.store(as_place(place.to("i32", "trunc"), numbers.MEMORY[to]), target, 1)


def along(vectors: int, largest: bool, dtype: str, to: str, f: Function, block: Block) -> None:
    kind, size = numbers.kind_of(dtype), numbers.SIZES[dtype]
    steps, lanes = block.extra(0), host().lanes(max(size, 4))
    counting = Value(
        "<" + ", ".join(f"i32 {lane}" for lane in range(lanes)) + ">", vector("i32", lanes), f
    )
    with f.loop(0, block.columns) as j:
        source, target = (
            f.offset(address, j * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        accumulators = []
        for number in range(vectors):
            start = f.offset(source, number * lanes * size)
            first = numbers.load(f, start, kind, lanes)
            at_first = f.variable(counting.type, counting + number * lanes)
            accumulators.append((f.variable(first.type, first), at_first))
        position = f.variable("i64", vectors * lanes)
        with f.while_(partial(fits, position, steps, vectors * lanes)):
            at = position.get()
            for number, (best, place) in enumerate(accumulators):
                start = f.offset(source, (at + number * lanes) * size)
                new = numbers.load(f, start, kind, lanes)
                wins = better(largest, dtype, new, best.get())
                here = f.splat((at + number * lanes).to("i32", "trunc"), lanes) + counting
                keep(f, best, place, wins, new, here)
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
            new = numbers.load(f, f.offset(source, i * size), kind, 1)
            wins = better(largest, dtype, new, one.get())
            keep(f, one, where, wins, new, i.to("i32", "trunc"))
        f.store(as_place(where.get(), numbers.MEMORY[to]), target, 1)


def pieces(largest: bool, dtype: str, to: str, f: Function, block: Block) -> None:
    kind, size = numbers.kind_of(dtype), numbers.SIZES[dtype]
    steps, lanes = block.extra(0), host().lanes(size)
    piece, whole, flags = PIECE * lanes, vector(kind.type, lanes), vector("i1", lanes)
    is_float = kind.type in FLOATS
    with f.loop(0, block.columns) as j:
        source, target = (
            f.offset(address, j * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        best = f.variable(kind.type, numbers.load(f, source, kind, 1))
        begin, at = f.variable("i64", 0), f.variable("i64", 0)
        unordered = f.variable(flags, f.value(0, flags)) if is_float else None

        def update_best(new: Value) -> None:
            wins = better(largest, dtype, new, best.get())
            best.set(f.select(wins, new, best.get()))
            begin.set(f.select(wins, at.get(), begin.get()))

        def load(at: Value, number: int) -> Value:
            new = numbers.load(f, f.offset(at, number * lanes * size), kind, lanes)
            if lanes * size == 64:
                prefetch(f, f.offset(at, number * lanes * size + AHEAD))
            if unordered is not None:
                # Comparisons ignore NaN, therefore the lanes that had one are recorded.
                unordered.set(unordered.get() | new.is_("uno", new))
            return new

        def higher(a: Value, b: Value) -> Value:
            if is_float:
                return f.select(b.is_("ogt" if largest else "olt", a), b, a)
            return numbers.combine(f, "max" if largest else "min", a, b, dtype)

        with f.while_(lambda: at.get().is_("slt", steps)):
            # The last chunk overlaps the one before it; elements in both cannot win again.
            at.set(f.least(at.get(), steps - piece))
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
        place = _first_equal(f, source, begin.get(), kind, best.get(), lanes)
        f.store(as_place(place.to("i32", "trunc"), numbers.MEMORY[to]), target, 1)


def parts(largest: bool, dtype: str, to: str, f: Function, block: Block) -> None:
    """Select the extreme of the parts of lines from the index of each part's extreme."""
    kind, size = numbers.kind_of(dtype), numbers.SIZES[dtype]
    count, part = block.extra(0), block.extra(1)
    source, places, target = block.addresses
    best, place = f.variable(kind.type, 0), f.variable("i64", 0)
    with f.loop(0, count) as i:
        at = i * part + f.load(f.offset(places, i, "i32"), "i32").to("i64", "zext")
        new = numbers.load(f, f.offset(source, at * size), kind, 1)
        wins = better(largest, dtype, new, best.get()) | i.is_("eq", 0)
        keep(f, best, place, wins, new, at)
    f.store(as_place(place.get().to("i32", "trunc"), numbers.MEMORY[to]), target, 1)


def _first_equal(
    f: Function, source: Value, begin: Value, kind: numbers.Kind, best: Value, lanes: int
) -> Value:
    """Return the first index of the chunk from `begin` whose element equals `best`, or is NaN if
    that is NaN; `begin` if there is none because another thread has modified the array."""
    at, found = f.variable("i64", begin - lanes), f.variable("i64", 0)
    many, last = f.splat(best, lanes), begin + (PIECE - 1) * lanes
    with f.while_(lambda: found.get().is_("eq", 0) & at.get().is_("slt", last)):
        at.set(at.get() + lanes)
        here = numbers.load(f, f.offset(source, at.get() * numbers.SIZES[kind.dtype]), kind, lanes)
        if kind.type in FLOATS:
            equal = here.is_("oeq", many) | (here.is_("uno", here) & many.is_("uno", many))
        else:
            equal = here.is_("eq", many)
        bits = equal.to(f"i{lanes}", "bitcast")
        found.set(bits if lanes == 64 else bits.to("i64", "zext"))
    f.module.declare("llvm.cttz.i64", "i64", ["i64", "i1"])
    lane = f.call("llvm.cttz.i64", [found.get(), f.value(0, "i1")], "i64")
    return f.select(found.get().is_("ne", 0), at.get() + lane, begin)
