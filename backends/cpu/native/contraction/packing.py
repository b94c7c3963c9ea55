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
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value, lanes
from shardir.types import NUMPY_DTYPES

SEGMENT = 16
"""Bytes of an entry of the table of segments: offset and length."""

MOST = 4
"""Panels that are packed at once."""


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
    place, done = f.variable("ptr", packed), f.variable("i64", 0)

    def segment(number: Value, start: Value, here: Value) -> tuple[Panel, Value]:
        """A segment of a panel, and where it begins in memory but for the line."""
        entry = f.offset(segments, number * SEGMENT)
        length = f.load(f.offset(entry, 8), "i64")
        origin = f.offset(base, f.load(entry, "i64"))
        return Panel(f, lines, dtype, numbers, starts, start, length, stride, here), origin

    several = _panels_of(lines * item)
    wide = several * lines

    def fitting() -> Value:
        fits = (done.get() + wide).is_("sle", count)
        table = f.offset(offsets, done.get(), "i64")
        return fits & neighbours(f, table, f.select(fits, wide, 1), item)

    with f.while_(fitting if several > 1 else lambda: f.value(0, "i1")):
        line = f.load(f.offset(offsets, done.get(), "i64"), "i64")
        part = f.variable("ptr", place.get())
        with f.loop(0, parts) as number:
            panel, origin = segment(number, part.get(), f.value(lines, "i64"))
            panel.across(f.offset(origin, line), several, steps * row)
            part.set(f.offset(part.get(), panel.length * row))
        place.set(f.offset(place.get(), steps * row * several))
        done.set(done.get() + wide)
    with f.loop(done.get(), count, lines) as first:
        table = f.offset(offsets, first, "i64")
        here = f.least(count - first, lines)
        together = neighbours(f, table, here, item)
        part = f.variable("ptr", place.get())
        with f.loop(0, parts) as number:
            panel, origin = segment(number, part.get(), here)

            def across(panel: Panel = panel, origin: Value = origin) -> None:
                panel.across(f.offset(origin, f.load(table, "i64")))

            def apart(panel: Panel = panel, origin: Value = origin) -> None:
                with f.loop(0, lines) as i:
                    there = f.offset(origin, f.load(f.offset(table, i, "i64"), "i64"))
                    start = f.select(i.is_("ult", here), there, nothing)
                    f.store(start, f.offset(starts, i, "ptr"))
                panel.lines_apart(0, panel.length)

            f.choose(together & here.is_("eq", lines), across, apart)
            part.set(f.offset(part.get(), panel.length * row))
        place.set(f.offset(place.get(), steps * row))
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

    def across(self, start: Value, panels: int = 1, apart: Value | int = 0) -> None:
        """Lines are neighbours: each step is copied as it is, to panels so many bytes apart."""
        f, numbers = self.f, self.numbers
        place, source = f.variable("ptr", self.packed), f.variable("ptr", start)
        widest = max(1, 64 // numbers.part)
        item = NUMPY_DTYPES[self.dtype].itemsize
        with f.loop(0, self.length):
            for number in range(panels):
                to, done = f.offset(place.get(), apart * number if number else 0), 0
                while done < self.lines:
                    count = min(widest, 1 << (self.lines - done).bit_length() - 1)
                    at = f.offset(source.get(), (number * self.lines + done) * item)
                    for p, plane in enumerate(read(f, at, self.dtype, numbers, count)):
                        there = f.offset(to, (p * self.lines + done) * numbers.part)
                        f.store(plane, there, numbers.part)
                    done += count
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
        """Steps from `first` on: if they are neighbours, blocks of lines and steps are transposed,
        a cache line of each at a time if possible; the rest goes number by number."""
        f, numbers = self.f, self.numbers
        few = 16 // numbers.part
        done = f.variable("i64", first)
        if numbers.planes == 1 and self.lines % few == 0:
            item = NUMPY_DTYPES[self.dtype].itemsize
            end = f.select(self.stride.is_("eq", item), last, first)
            for steps in dict.fromkeys((LINE // numbers.part, few)):
                whole = end - (end - done.get()) % steps
                with f.loop(done.get(), whole, steps) as k, f.loop(0, self.lines, few) as line:
                    self._turn(k, line, steps, few)
                done.set(whole)
        self.anyhow(done.get(), last)

    def _turn(self, first: Value, line: Value, steps: int, lines: int) -> None:
        """Transpose some steps of a few lines, the numbers of 16 bytes."""
        f, item = self.f, NUMPY_DTYPES[self.dtype].itemsize
        entries, rows = f.offset(self.starts, line, "ptr"), []
        for i in range(lines):
            start = f.load(f.offset(entries, 8 * i), "ptr")
            rows += read(f, f.offset(start, first * item), self.dtype, self.numbers, steps)
        at = f.offset(self.packed, first * self.row + line * self.numbers.size)
        for i, column in enumerate(transposed(f, rows)):
            for group in range(0, steps, lines):
                part = f.shuffle(column, column, range(group, group + lines))
                to = f.offset(at, (group + i) * self.row)
                f.store(part, to, self.numbers.part)


def transposed(f: Function, rows: list[Value]) -> list[Value]:
    """The columns of squares side by side: each vector holds one of every square.

    They are interleaved within the squares, which is cheap where a square's row has 16 bytes.
    """
    size, width = len(rows), lanes(rows[0].type)
    for _ in range(size.bit_length() - 1):
        half, pairs = size // 2, []
        for i in range(half):
            for high in (0, half):
                mask = [
                    start + high + j + other
                    for start in range(0, width, size)
                    for j in range(half)
                    for other in (0, width)
                ]
                pairs.append(f.shuffle(rows[i], rows[i + half], mask))
        rows = pairs
    return rows
