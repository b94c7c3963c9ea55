"""The innermost product: a tile of the result in registers.

A tile has `height` rows and `width` vectors of columns. Both operands lie packed, so that the
numbers of one step of the sum are neighbours: `height` of the left one, a row of vectors of the
right one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from shardir.backends.cpu.native.contraction.elements import Arithmetic, joined
from shardir.backends.cpu.native.llvm.hints import prefetch
from shardir.backends.cpu.native.llvm.target import Machine
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value, Variable, vector

LINE = 64
"""Bytes that come from memory at a time."""
AHEAD = 512
"""How many bytes of packed columns ahead the next ones are asked for."""


WRITE = "write_tile"


class Tile(NamedTuple):
    """The sizes of a tile, in numbers of an arithmetic.

    `halved`: a vector of half as many lanes takes no longer, or half as long, as with AVX-512.
    """

    height: int
    width: int
    lanes: int
    halved: bool = False

    @property
    def columns(self) -> int:
        """How many columns it has."""
        return self.width * self.lanes


@cache
def fitting(numbers: Arithmetic, machine: Machine, narrow: bool = False) -> Tile:
    """The tile that fills the registers of a machine; a narrow one has a vector of columns."""
    lanes = machine.lanes(numbers.part)
    if machine.vector_bytes == 64:
        height, width = 12, 2
    elif machine.has_many_registers:
        height, width = 8, 3
    else:
        height, width = 6, 2
    if narrow:
        height, width = height * width, 1
    height = height if numbers.planes == 1 else height // 2
    return Tile(height, width, lanes, machine.vector_bytes == 64)


def parts_of(tile: Tile) -> tuple[Tile, ...]:
    """A tile, then what is made where fewer columns, or fewer rows, are left; the smaller later.

    Low ones read columns more often than the second cache gives them, so that there are two.
    """
    low = max(1, tile.height // 3)
    parts = [tile, tile._replace(width=1)]
    if tile.halved:  # Half of the widest registers takes no longer, or half as long.
        parts.append(parts[1]._replace(lanes=tile.lanes // 2))
    parts += [tile._replace(height=height) for height in (2 * low, low)]
    return tuple(dict.fromkeys(parts))


def emit_tile(
    module: Module, name: str, tile: Tile, packed: Tile, numbers: Arithmetic, machine: Machine
) -> None:
    """`name(k, lhs, rhs, soon, pace, each, out, offsets, rows, columns, adding)`.

    Writes, or adds to, the first `rows` rows and `columns` columns at `out`; row i begins
    `offsets[i]` bytes further on, and its columns are neighbours. Operands lie as they are packed
    for tiles of the size `packed`. Lines from `soon` on, `pace` bytes apart, are asked for; a share
    of steps begins `each` bytes further on for each step before it.
    """
    params = ["i64", "ptr noalias readonly", "ptr noalias readonly", "ptr", "i64", "i64",
              "ptr noalias", "ptr noalias readonly", "i64", "i64", "i1"]  # fmt: skip
    f = Function(module, name, params, attributes=APART, internal=True)
    steps, lhs, rhs, soon, pace, each, *place = f.params
    sums = TileSums(f, tile, packed, numbers, machine)
    left, right, line = (f.variable("ptr", start) for start in (lhs, rhs, soon))

    def step() -> None:
        start, here = left.get(), right.get()
        planes = [
            [f.offset(start, (p * packed.height + i) * numbers.part) for i in range(tile.height)]
            for p in range(numbers.planes)
        ]
        sums.ask_ahead(here)
        prefetch(f, line.get())
        line.set(f.offset(line.get(), pace))
        sums.add(planes, sums.columns_at(here))
        left.set(f.offset(start, packed.height * numbers.size))
        right.set(f.offset(here, packed.columns * numbers.size))

    def ask_from(first: Value) -> None:
        line.set(f.offset(soon, first * each))

    for_each_step(sums, place, steps, lambda _: step(), ask_from)
    sums.write(place)
    f.leave()


def for_each_step(
    sums: "TileSums", place: list[Value], steps: Value, step: Callable[[Value], None],
    begin: Callable[[Value], None] = lambda _: None,
) -> None:  # fmt: skip
    """All steps, in shares, each of which begins with `begin`; with each share one more row of the
    result is asked for before it is written, so that steps need not wait behind them all."""
    f, height = sums.f, sums.tile.height
    if sums.tile != sums.packed:  # Few tiles are such.
        with f.loop(0, steps) as k:
            step(k)
        return
    # No share takes more than a line of memory of what lies along the steps.
    share = f.least(steps // (2 * height) + 1, LINE // sums.numbers.size)
    row = f.variable("i64", 0)
    with f.loop(0, steps, share) as first:
        now = row.get()
        begin(first)
        sums.ask_for_row(place, now)
        row.set(f.least(now + 1, height - 1))
        with f.loop(first, f.least(first + share, steps)) as k:
            step(k)


@dataclass
class TileSums:
    """The sums of a tile, in registers; `packed` is the tile that columns are packed for."""

    f: Function
    tile: Tile
    packed: Tile
    numbers: Arithmetic
    machine: Machine

    def __post_init__(self) -> None:
        tile, numbers = self.tile, self.numbers
        many = vector(numbers.type, tile.lanes)
        self.sums: list[list[list[Variable]]] = [
            [[self.f.variable(many, 0) for _ in range(numbers.planes)] for _ in range(tile.width)]
            for _ in range(tile.height)
        ]

    def columns_at(self, rhs: Value) -> list[list[Value]]:
        """The packed columns of a step: of each vector each plane."""
        f, tile, numbers = self.f, self.tile, self.numbers
        many = vector(numbers.type, tile.lanes)
        return [
            [
                f.load(
                    f.offset(rhs, (p * self.packed.columns + j * tile.lanes) * numbers.part),
                    many,
                    numbers.part,
                )
                for p in range(numbers.planes)
            ]
            for j in range(tile.width)
        ]

    def add(self, lhs: Sequence[Sequence[Value]], right: Sequence[list[Value]]) -> None:
        """Add the products of a step: of the numbers at addresses (of each plane, of each row),
        and of a row of vectors."""
        f, tile, numbers = self.f, self.tile, self.numbers
        for i, sums in enumerate(self.sums):
            left = [f.splat(f.load(plane[i], numbers.type), tile.lanes) for plane in lhs]
            for j, place in enumerate(sums):
                self._add(place, left, right[j])

    def ask_for_row(self, place: list[Value], row: Value) -> None:
        """Ask for a row of the result before it is written."""
        f, out, offsets = self.f, place[0], place[1]
        start = f.offset(out, f.load(f.offset(offsets, row, "i64"), "i64"))
        nbytes = self.tile.columns * self.numbers.size
        for at in (*range(0, nbytes, LINE), nbytes - 1):
            prefetch(f, f.offset(start, at), writing=True)

    def ask_ahead(self, rhs: Value) -> None:
        """Ask for columns that are needed some steps later, which come from the second cache."""
        for at in range(0, self.tile.columns * self.numbers.size, LINE):
            prefetch(self.f, self.f.offset(rhs, AHEAD + at))

    def write(self, place: list[Value]) -> None:
        """Write them, as `emit_tile` says: (out, offsets, rows, columns, adding).

        What is not a whole tile goes through memory.
        """
        f, tile, (out, offsets, rows, columns, adding) = self.f, self.tile, place
        step = tile.lanes * self.numbers.size
        vectors = [
            [joined(f, [plane.get() for plane in each]) for each in row] for row in self.sums
        ]

        def put(row: int, start: Value, align: int, more: bool = False) -> None:
            for j, value in enumerate(vectors[row]):
                at = f.offset(start, j * step)
                before = [f.load(at, value.type, align)] if more else []
                f.store(sum(before, value), at, align)

        def at_once(more: bool) -> None:
            for i in range(tile.height):
                start = f.offset(out, f.load(f.offset(offsets, 8 * i), "i64"))
                put(i, start, self.numbers.part, more)

        def whole() -> None:
            f.choose(adding, lambda: at_once(True), lambda: at_once(False))

        def in_memory() -> None:
            far = self.packed.columns * self.numbers.size
            kept = f.variable(f"[{tile.height * far} x i8]").address
            for i in range(tile.height):
                put(i, f.offset(kept, i * far), min(LINE, step))
            some = f.least(rows, tile.height)
            there = f.least(columns, tile.columns)
            f.call(WRITE, [kept, out, offsets, some, there, adding])

        if tile.columns == self.packed.columns:
            f.choose(
                rows.is_("uge", tile.height) & columns.is_("uge", tile.columns), whole, in_memory
            )
        else:
            in_memory()

    def _add(self, sums: list[Variable], a: list[Value], b: list[Value]) -> None:
        def product(x: Value, y: Value, z: Value, minus: bool = False) -> Value:
            return self.numbers.add_product(self.f, self.machine, x, y, z, minus)

        if self.numbers.planes == 1:
            sums[0].set(product(a[0], b[0], sums[0].get()))
            return
        sums[0].set(product(a[1], b[1], product(a[0], b[0], sums[0].get()), minus=True))
        sums[1].set(product(a[1], b[0], product(a[0], b[1], sums[1].get())))


def emit_write(module: Module, tile: Tile, numbers: Arithmetic, machine: Machine) -> None:
    """`write_tile(sums, out, offsets, rows, columns, adding)`: write, or add, rows of a tile."""
    params = ["ptr noalias readonly", "ptr noalias", "ptr noalias readonly", "i64", "i64", "i1"]
    f = Function(module, WRITE, params, attributes=APART, internal=True)
    sums, out, offsets, rows, columns, adding = f.params
    lanes, step = tile.lanes * numbers.planes, tile.lanes * numbers.size
    type = vector(numbers.type, lanes)
    masks = [
        within(f, columns - j * tile.lanes, tile.lanes, numbers.planes) for j in range(tile.width)
    ]
    # What is not added to may hold anything: nothing of it is read.
    before = [mask & f.splat(adding, lanes) for mask in masks]

    def each_row(masked: bool) -> None:
        source = f.variable("ptr", sums)
        with f.loop(0, rows) as i:
            start = f.offset(out, f.load(f.offset(offsets, i, "i64"), "i64"))
            for j, mask in enumerate(masks):
                at = f.offset(start, j * step)
                new = f.load(f.offset(source.get(), j * step), type, min(LINE, step))
                if masked:
                    old = masked_load(f, at, before[j], type, numbers.part)
                    masked_store(f, old + new, at, mask, numbers.part)
                else:
                    f.store(f.load(at, type, numbers.part) + new, at, numbers.part)
            source.set(f.offset(source.get(), tile.columns * numbers.size))

    if machine.vector_bytes == 64:
        each_row(masked=True)
    else:  # Masks are dear.
        whole = adding & columns.is_("uge", tile.columns)
        f.choose(whole, lambda: each_row(masked=False), lambda: each_row(masked=True))
    f.leave()


def within(f: Function, count: Value, lanes: int, times: int = 1) -> Value:
    """A mask of the first `count` lanes, each `times` over; none for a negative count."""
    numbers = ", ".join(f"i32 {lane // times}" for lane in range(lanes * times))
    type = vector("i32", lanes * times)
    least = f.select(count.is_("slt", lanes), count, lanes)
    limit = f.splat(least.to("i32", "trunc"), lanes * times)
    text = f"icmp slt {type} <{numbers}>, {limit}"
    return f.emit(text, vector("i1", lanes * times))


def masked_load(f: Function, address: Value, mask: Value, type: str, align: int) -> Value:
    """The lanes of the mask, zero elsewhere; nothing else is touched."""
    name = f"llvm.masked.load.{_suffix(type)}.p0"
    f.module.declare(name, type, ["ptr", "i32", mask.type, type])
    text = f"ptr {address}, i32 {align}, {mask.type} {mask}, {type} zeroinitializer"
    return f.emit(f"call {type} @{name}({text})", type)


def masked_store(f: Function, value: Value, address: Value, mask: Value, align: int) -> None:
    """Write the lanes of the mask."""
    name = f"llvm.masked.store.{_suffix(value.type)}.p0"
    f.module.declare(name, "void", [value.type, "ptr", "i32", mask.type])
    text = f"{value.type} {value}, ptr {address}, i32 {align}, {mask.type} {mask}"
    f.do(f"call void @{name}({text})")


def _suffix(type: str) -> str:
    kind = type.split(" x ")[1][:-1]
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(kind, kind)
    return f"v{type[1:].split(' ')[0]}{short}"
