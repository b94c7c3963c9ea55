"""Where along a dimension the largest or smallest element is.

The first NaN, or the first of equals. Where lines lie side by side, a vector has an element of
each; where a line is contiguous, its elements are dealt to the lanes of a vector, each of which
keeps its best, and the best of those is found at the end. Of short integers a vector has more than
a vector of places; of those the best of each piece of a line is found without its place, which is
looked for at the end in the one piece that matters.
"""

from collections.abc import Callable, Sequence
from functools import partial

from shardir.backends.cpu.native.data import Context, Phase, Rule, View
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
from shardir.backends.cpu.native.moves.grid import Block, Form, grid_kernel, grid_of
from shardir.backends.cpu.native.moves.loops import nest
from shardir.backends.cpu.native.moves.scanning import first_place
from shardir.ir import Op

BESIDE = 2048
"""How many lines at most lie side by side, so that the best of each stay in the cache."""
SHORT = ("i8", "u8", "i16", "u16")
PIECE = 32
"""Vectors of a piece of a line of short integers."""
MOST = 1 << 31
"""Places are counted in 32 bits."""


def extreme_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """One phase over all lines."""
    (x,), (y,), dim = operands, results, op.attrs["dim"]
    steps, step = x.shape[dim], x.strides[dim]
    if steps >= MOST:
        return None
    if y.size == 0:
        return []
    left = x._replace(
        shape=(*x.shape[:dim], *x.shape[dim + 1 :]),
        strides=(*x.strides[:dim], *x.strides[dim + 1 :]),
    )
    found = nest([left, y])
    size, lanes = x.itemsize, host().lanes(max(x.itemsize, 4))
    is_truth = x.dtype == "bool" and step == size
    beside = [loop for loop in found.loops if loop.strides[0] == size and loop.extent >= lanes]
    if is_truth:
        way, column = "first", found.loops[-1] if found.loops else None
    elif step == size and x.dtype in SHORT and steps >= PIECE * host().lanes(size):
        way, column = "pieces", found.loops[-1] if found.loops else None
    elif step == size and steps >= lanes:
        way, column = (
            "along" if steps < 8 * lanes else "far",
            found.loops[-1] if found.loops else None,
        )
    elif beside:
        way, column = "beside", beside[-1]
    else:
        way, column = "items", found.loops[-1] if found.loops else None
    rows = [loop for loop in found.loops if loop is not column]
    extent = column.extent if column else 1
    cut = max(1, -(-extent // (4 * context.workers)))
    if way == "beside":
        cut = min(BESIDE, -(-cut // 64) * 64)
    grid = grid_of([x, y], found, rows[-1] if rows else None, column, 1, cut)
    name = f"{op.name}_{way}_{x.dtype}_{y.dtype}"
    ways: dict[str, Callable[..., None]] = {
        "along": partial(_along, 1),
        "far": partial(_along, 4),
        "beside": _beside,
        "items": _items,
        "first": _first,
        "pieces": _pieces,
    }
    kernel = grid_kernel(
        name, Form(2, extras=2), partial(ways[way], op.name == "argmax", x.dtype, y.dtype)
    )
    cost = x.nbytes / (40 if way in ("first", "pieces") else 16) if way != "items" else x.size * 1.5
    return [grid.phase(kernel, cost, context.workers, op.name, (steps, step))]


def _better(largest: bool, dtype: str, new: Value, best: Value) -> Value:
    """Whether `new` is to be chosen, although it comes later."""
    if element(new.type) in FLOATS:
        return new.is_("ugt" if largest else "ult", best) & best.is_("ord", best)
    sign = "u" if dtype == "bool" or dtype[0] == "u" else "s"
    return new.is_(sign + ("gt" if largest else "lt"), best)


def _keep(
    f: Function, best: Variable, place: Variable, better: Value, new: Value, at: Value
) -> None:
    best.set(f.select(better, new, best.get()))
    place.set(f.select(better, at, place.get()))


def _halves(f: Function, value: Value, half: int) -> tuple[Value, Value]:
    """The first lanes of a vector and the others; of two lanes, the elements."""
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
    """Keep the better of two, or of equals the earlier."""
    wins = _better(largest, dtype, other, best.get())
    loses = _better(largest, dtype, best.get(), other)
    earlier = there.is_("ult", place.get()) & ((wins | loses) ^ 1)
    _keep(f, best, place, wins | earlier, other, there)


def _as(place: Value, type: str) -> Value:
    width = int(type[1:])
    return place if width == 32 else place.to(type, "zext" if width > 32 else "trunc")


def _beside(largest: bool, dtype: str, to: str, f: Function, block: Block) -> None:
    kind, size = numbers.kind_of(dtype), numbers.SIZES[dtype]
    steps, step = block.extra(0), block.extra(1)
    wide = host().lanes(max(size, 4))
    places = f.offset(block.scratch, BESIDE * 8)

    def walk(down: Value, number: Value) -> None:
        """A step of all lines, whose best elements and places wait in scratch memory."""
        position = f.variable("i64", 0)
        for lanes in (wide, 1):
            with f.while_(partial(fits, position, block.columns, lanes)):
                at = position.get()
                new = numbers.load(f, f.offset(block.addresses[0], down + at * size), kind, lanes)
                here = f.splat(number.to("i32", "trunc"), lanes)
                kept, there = f.offset(block.scratch, at, kind.type), f.offset(places, at, "i32")
                best, place = f.load(kept, new.type, 1), f.load(there, here.type, 1)
                better = _better(largest, dtype, new, best) | here.is_("eq", 0)
                f.store(f.select(better, new, best), kept, 1)
                f.store(f.select(better, here, place), there, 1)
                position.set(at + lanes)

    with f.loop(0, steps) as i:
        walk(i * step, i)
    with f.loop(0, block.columns) as j:
        place = f.load(f.offset(places, j, "i32"), "i32")
        to_column = f.offset(block.addresses[1], j * block.column_strides[1])
        f.store(_as(place, numbers.MEMORY[to]), to_column, 1)


def _items(largest: bool, dtype: str, to: str, f: Function, block: Block) -> None:
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
            better = _better(largest, dtype, new, best.get())
            _keep(f, best, place, better, new, i.to("i32", "trunc"))
        f.store(_as(place.get(), numbers.MEMORY[to]), target, 1)


def _first(largest: bool, dtype: str, to: str, f: Function, block: Block) -> None:
    """Of truth, the largest is the first that is true, and the smallest the first that is not."""
    steps = block.extra(0)
    with f.loop(0, block.columns) as j:
        source, target = (
            f.offset(address, j * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        place = first_place(f, [source], steps, int(largest))
        place = f.select(place.is_("slt", steps), place, 0)
        f.store(_as(place.to("i32", "trunc"), numbers.MEMORY[to]), target, 1)


def _along(vectors: int, largest: bool, dtype: str, to: str, f: Function, block: Block) -> None:
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
        kept = []
        for number in range(vectors):
            start = f.offset(source, number * lanes * size)
            first = numbers.load(f, start, kind, lanes)
            at_first = f.variable(counting.type, counting + number * lanes)
            kept.append((f.variable(first.type, first), at_first))
        position = f.variable("i64", vectors * lanes)
        with f.while_(partial(fits, position, steps, vectors * lanes)):
            at = position.get()
            for number, (best, place) in enumerate(kept):
                start = f.offset(source, (at + number * lanes) * size)
                new = numbers.load(f, start, kind, lanes)
                better = _better(largest, dtype, new, best.get())
                here = f.splat((at + number * lanes).to("i32", "trunc"), lanes) + counting
                _keep(f, best, place, better, new, here)
            position.set(at + vectors * lanes)
        best, place = kept[0]
        for other, there in kept[1:]:
            _merge(f, largest, dtype, best, place, other.get(), there.get())
        for half in (lanes >> k for k in range(1, lanes.bit_length())):
            (low, high), (first, second) = (_halves(f, kept.get(), half) for kept in (best, place))
            best, place = f.variable(low.type, low), f.variable(first.type, first)
            _merge(f, largest, dtype, best, place, high, second)
        one, where = best, place
        with f.loop(position.get(), steps) as i:
            new = numbers.load(f, f.offset(source, i * size), kind, 1)
            better = _better(largest, dtype, new, one.get())
            _keep(f, one, where, better, new, i.to("i32", "trunc"))
        f.store(_as(where.get(), numbers.MEMORY[to]), target, 1)


def _pieces(largest: bool, dtype: str, to: str, f: Function, block: Block) -> None:
    kind, size = numbers.kind_of(dtype), numbers.SIZES[dtype]
    steps, lanes = block.extra(0), host().lanes(size)
    how = "max" if largest else "min"
    signed = "u" if dtype[0] == "u" else "s"
    whole, piece = vector(kind.type, lanes), PIECE * lanes
    over = f"llvm.vector.reduce.{signed}{how}.v{lanes}{kind.type}"
    f.module.declare(over, kind.type, [whole])
    with f.loop(0, block.columns) as j:
        source, target = (
            f.offset(address, j * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        best = f.variable(kind.type, numbers.load(f, source, kind, 1))
        begin, at = f.variable("i64", 0), f.variable("i64", 0)

        def keep(new: Value) -> None:
            better = _better(largest, dtype, new, best.get())
            best.set(f.select(better, new, best.get()))
            begin.set(f.select(better, at.get(), begin.get()))

        with f.while_(partial(fits, at, steps, piece)):
            start = f.offset(source, at.get() * size)
            highest = [
                f.variable(whole, numbers.load(f, f.offset(start, k * lanes * size), kind, lanes))
                for k in range(4)
            ]
            with f.loop(4 * lanes, piece, 4 * lanes) as i:
                for k, each in enumerate(highest):
                    there = f.offset(start, (i + k * lanes) * size)
                    new = numbers.load(f, there, kind, lanes)
                    each.set(numbers.combine(f, how, each.get(), new, dtype))
            first, *others = (each.get() for each in highest)
            for other in others:
                first = numbers.combine(f, how, first, other, dtype)
            keep(f.call(over, [first], kind.type))
            at.set(at.get() + piece)
        with f.while_(lambda: at.get().is_("slt", steps)):
            keep(numbers.load(f, f.offset(source, at.get() * size), kind, 1))
            at.set(at.get() + 1)
        at.set(begin.get())
        with f.while_(lambda: _differs(f, source, at.get(), kind, best.get())):
            at.set(at.get() + 1)
        f.store(_as(at.get().to("i32", "trunc"), numbers.MEMORY[to]), target, 1)


def _differs(f: Function, source: Value, at: Value, kind: numbers.Kind, best: Value) -> Value:
    here = f.offset(source, at * numbers.SIZES[kind.dtype])
    return numbers.load(f, here, kind, 1).is_("ne", best)


RULES: dict[str, Rule] = {"argmax": extreme_rule, "argmin": extreme_rule}
"""No phases for lines of 2^31 elements and more."""
