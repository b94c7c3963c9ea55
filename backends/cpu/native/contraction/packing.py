"""Packing: numbers of an operand made neighbours in the order in which a tile reads them.

An operand is a matrix of lines and steps: the rows of the left one, the columns of the right one,
and the steps of the sum. Lines lie anywhere (a table of offsets); steps lie in segments of equal
distance (a table of offsets and lengths). A panel is as many lines as the tile has; for each step
it holds a number of each line, zeros for lines that are missing.
"""

from math import gcd
from typing import NamedTuple

from shardir.backends.cpu.native.contraction.elements import Arithmetic, read
from shardir.backends.cpu.native.contraction.tile import LINE
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value
from shardir.types import NUMPY_DTYPES

SEGMENT = 16
"""Bytes of an entry of the table of segments: offset and length."""

MOST = 4
"""Panels that are packed at once."""
ALONG = 64
"""Steps of some lines that are packed before those of others."""


def emit_pack(
    module: Module, name: str, lines: int, longest: int, dtype: str, numbers: Arithmetic
) -> None:
    """`name(packed, base, offsets, count, segments, parts, steps, stride)`.

    Packs `count` lines that begin `offsets[i]` bytes after `base`, in panels of `lines` lines and
    `steps` steps, which are those of `parts` segments; steps of a segment are `stride` bytes
    apart. `longest` is the largest number of steps.
    """
    item = NUMPY_DTYPES[dtype].itemsize
    zeros = f"@{name}_zeros"
    module.declarations.setdefault(
        f"{zeros} = internal constant [{longest * item} x i8] zeroinitializer, align 64"
    )
    params = ["ptr noalias", "ptr readonly", "ptr noalias readonly", "i64",
              "ptr noalias readonly", "i64", "i64", "i64"]  # fmt: skip
    f = Function(module, name, params, attributes=APART, internal=True)
    packed, base, offsets, count, segments, parts, steps, stride = f.params
    row = lines * numbers.size
    starts = f.variable(f"[{lines} x ptr]").address
    nothing = Value(zeros, "ptr", f)
    several = _panels_of(lines * item)
    place, done = f.variable("ptr", packed), f.variable("i64", 0)
    with f.while_(lambda: done.get().is_("slt", count)):
        first = done.get()
        table, rest = f.offset(offsets, first, "i64"), count - first
        here = f.least(rest, lines)
        together = here.is_("eq", lines) & neighbours(f, table, here, item)
        panels = f.value(1, "i64")
        if several > 1:
            many = f.select(rest.is_("sge", several * lines), several, 1)
            all_of_them = neighbours(f, table, many * lines, item)
            panels = f.select(together & all_of_them, many, 1)
        part = f.variable("ptr", place.get())
        with f.loop(0, parts) as number:
            entry = f.offset(segments, number * SEGMENT)
            length = f.load(f.offset(entry, 8), "i64")
            origin = f.offset(base, f.load(entry, "i64"))
            panel = Panel(f, lines, dtype, numbers, starts, part.get(), length, stride, here)

            def across(panel: Panel = panel, origin: Value = origin) -> None:
                panel.across(f.offset(origin, f.load(table, "i64")), panels, steps * row)

            def apart(panel: Panel = panel, origin: Value = origin) -> None:
                with f.loop(0, lines) as i:
                    there = f.offset(origin, f.load(f.offset(table, i, "i64"), "i64"))
                    start = f.select(i.is_("ult", here), there, nothing)
                    f.store(start, f.offset(starts, i, "ptr"))
                panel.lines_apart(0, length)

            f.choose(together, across, apart)
            part.set(f.offset(part.get(), length * row))
        place.set(f.offset(place.get(), panels * steps * row))
        done.set(first + panels * lines)
    f.leave()


def _panels_of(nbytes: int) -> int:
    """How many panels of lines that are neighbours fill cache lines, so that each is read once."""
    return min(LINE // gcd(nbytes, LINE), MOST)


def neighbours(f: Function, table: Value, count: Value, item: int) -> Value:
    """Whether the lines are next to each other in memory."""
    first = f.load(table, "i64")
    wrong = f.variable("i64", 0)
    with f.loop(1, count) as i:
        expected = first + i * item
        wrong.set(wrong.get() | (f.load(f.offset(table, i, "i64"), "i64") ^ expected))
    return wrong.get().is_("eq", 0)


class Panel(NamedTuple):
    """The steps of one segment, of one panel.

    `starts` is a table of where lines begin; `paces` one of their strides, where they differ.
    """

    f: Function
    lines: int
    dtype: str
    numbers: Arithmetic
    starts: Value
    packed: Value
    length: Value
    stride: Value
    here: Value
    paces: Value | None = None

    @property
    def row(self) -> int:
        """Bytes of a step in packed memory."""
        return self.lines * self.numbers.size

    def across(self, start: Value, panels: Value, apart: Value) -> None:
        """Lines are neighbours: each step is copied as it is, to panels so many bytes apart."""
        f, numbers = self.f, self.numbers
        place, source = f.variable("ptr", self.packed), f.variable("ptr", start)
        widest = max(1, 64 // numbers.part)
        item = NUMPY_DTYPES[self.dtype].itemsize
        with f.loop(0, self.length):
            to, there = f.variable("ptr", place.get()), f.variable("ptr", source.get())
            with f.loop(0, panels):
                done = 0
                while done < self.lines:
                    count = min(widest, 1 << (self.lines - done).bit_length() - 1)
                    at = f.offset(there.get(), done * item)
                    for p, plane in enumerate(read(f, at, self.dtype, numbers, count)):
                        step = f.offset(to.get(), (p * self.lines + done) * numbers.part)
                        f.store(plane, step, numbers.part)
                    done += count
                to.set(f.offset(to.get(), apart))
                there.set(f.offset(there.get(), self.lines * item))
            place.set(f.offset(place.get(), self.row))
            source.set(f.offset(source.get(), self.stride))

    def anyhow(self, first: Value | int, last: Value) -> None:
        """Number by number, from step `first` on."""
        f, numbers = self.f, self.numbers
        with f.loop(first, last) as k:
            step = f.offset(self.packed, k * self.row)

            def put(i: Value, planes: list[Value], step: Value = step) -> None:
                at = f.offset(step, i * numbers.part)
                for p, plane in enumerate(planes):
                    f.store(plane, f.offset(at, p * self.lines * numbers.part), numbers.part)

            with f.loop(0, self.here) as i:
                start = f.load(f.offset(self.starts, i, "ptr"), "ptr")
                pace = f.load(f.offset(self.paces, i, "i64"), "i64") if self.paces else self.stride
                put(i, read(f, f.offset(start, k * pace), self.dtype, numbers, 1))
            with f.loop(self.here, self.lines) as i:
                put(i, [f.value(0, numbers.type)] * numbers.planes)

    def lines_apart(self, first: Value | int, last: Value) -> None:
        """Steps from `first` on: if they are neighbours, squares of lines and steps are transposed,
        along the lines, so that few cache lines are in use; the rest goes number by number."""
        f, numbers = self.f, self.numbers
        few = 16 // numbers.part
        done = f.variable("i64", first)
        if numbers.planes == 1 and self.lines % few == 0:
            item = NUMPY_DTYPES[self.dtype].itemsize
            whole = last - (last - first) % few
            end = f.select(self.stride.is_("eq", item), whole, first)
            with (
                f.loop(first, end, ALONG) as begin,
                f.loop(0, self.lines, few) as line,
                f.loop(begin, f.least(end, begin + ALONG), few) as k,
            ):
                self._turn(k, line, few)
            done.set(end)
        self.anyhow(done.get(), last)

    def _turn(self, first: Value, line: Value, few: int) -> None:
        """Transpose a few steps of as many lines."""
        f, item = self.f, NUMPY_DTYPES[self.dtype].itemsize
        entries, rows = f.offset(self.starts, line, "ptr"), []
        for i in range(few):
            start = f.load(f.offset(entries, 8 * i), "ptr")
            rows += read(f, f.offset(start, first * item), self.dtype, self.numbers, few)
        at = f.offset(self.packed, first * self.row + line * self.numbers.size)
        for i, column in enumerate(transposed(f, rows)):
            f.store(column, f.offset(at, i * self.row), self.numbers.part)


def transposed(f: Function, rows: list[Value]) -> list[Value]:
    """The columns of a square of numbers, by interleaving."""
    half = len(rows) // 2
    for _ in range(len(rows).bit_length() - 1):
        masks = [
            [at + j + other for j in range(half) for other in (0, 2 * half)] for at in (0, half)
        ]
        rows = [f.shuffle(rows[i], rows[i + half], mask) for i in range(half) for mask in masks]
    return rows
