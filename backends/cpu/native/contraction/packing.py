"""Packing: numbers of an operand made neighbours in the order in which a tile reads them.

An operand is a matrix of lines and steps: the rows of the left one, the columns of the right one,
and the steps of the sum. Lines lie anywhere (a table of offsets); steps lie in segments of equal
distance (a table of offsets and lengths). A panel is as many lines as the tile has; for each step
it holds a number of each line, zeros for lines that are missing.
"""

from typing import NamedTuple

from shardir.backends.cpu.native.contraction.elements import Arithmetic, read
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value
from shardir.types import NUMPY_DTYPES

SEGMENT = 16
"""Bytes of an entry of the table of segments: offset and length."""


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
    place = f.variable("ptr", packed)
    with f.loop(0, count, lines) as first:
        table = f.offset(offsets, first, "i64")
        here = f.least(count - first, lines)
        together = neighbours(f, table, here, item)
        part = f.variable("ptr", place.get())
        with f.loop(0, parts) as number:
            entry = f.offset(segments, number * SEGMENT)
            length = f.load(f.offset(entry, 8), "i64")
            origin = f.offset(base, f.load(entry, "i64"))
            panel = Panel(f, lines, dtype, numbers, starts, part.get(), length, stride, here)

            def across(panel: Panel = panel, origin: Value = origin) -> None:
                panel.across(f.offset(origin, f.load(table, "i64")))

            def apart(panel: Panel = panel, origin: Value = origin) -> None:
                with f.loop(0, lines) as i:
                    there = f.offset(origin, f.load(f.offset(table, i, "i64"), "i64"))
                    start = f.select(i.is_("ult", here), there, nothing)
                    f.store(start, f.offset(starts, i, "ptr"))
                panel.lines_apart(0, length)

            f.choose(together & here.is_("eq", lines), across, apart)
            part.set(f.offset(part.get(), length * row))
        place.set(f.offset(place.get(), steps * row))
    f.leave()


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

    def across(self, start: Value) -> None:
        """Lines are neighbours: each step is copied as it is."""
        f, numbers = self.f, self.numbers
        place, source = f.variable("ptr", self.packed), f.variable("ptr", start)
        widest = max(1, 64 // numbers.part)
        with f.loop(0, self.length):
            done = 0
            while done < self.lines:
                count = min(widest, 1 << (self.lines - done).bit_length() - 1)
                item = NUMPY_DTYPES[self.dtype].itemsize
                planes = read(
                    f, f.offset(source.get(), done * item), self.dtype, self.numbers, count
                )
                for p, plane in enumerate(planes):
                    at = (p * self.lines + done) * numbers.part
                    f.store(plane, f.offset(place.get(), at), numbers.part)
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

    def square(self) -> int:
        """The size of blocks that are transposed in registers; 0: none fits."""
        size = 16 // self.numbers.part
        if self.numbers.planes == 2 or self.lines % size:
            return 0
        return 2 * size if self.lines % (2 * size) == 0 and size < 16 else size

    def lines_apart(self, first: Value | int, last: Value) -> None:
        """Steps from `first` on: if they are neighbours, blocks of lines and steps are transposed;
        the rest goes number by number."""
        f, numbers = self.f, self.numbers
        item = NUMPY_DTYPES[self.dtype].itemsize
        square = self.square()
        done = f.variable("i64", first)
        if square:
            length = last - first
            whole = f.select(self.stride.is_("eq", item), length - length % square, 0) + first
            with f.loop(first, whole, square) as k, f.loop(0, self.lines, square) as line:
                entries = f.offset(self.starts, line, "ptr")
                rows = []
                for i in range(square):
                    start = f.load(f.offset(entries, 8 * i), "ptr")
                    rows += read(f, f.offset(start, k * item), self.dtype, numbers, square)
                at = f.offset(self.packed, k * self.row + line * numbers.size)
                for step, column in enumerate(transposed(f, rows, 16 // numbers.part)):
                    f.store(column, f.offset(at, step * self.row), numbers.part)
            done.set(whole)
        self.anyhow(done.get(), last)


def transposed(f: Function, rows: list[Value], lane: int) -> list[Value]:
    """The columns of a square of vectors.

    First within lanes of `lane` numbers (16 bytes), by interleaving, then lanes are exchanged:
    the instructions for both are the cheap ones.
    """
    size = len(rows)
    out: list[Value] = []
    for group in range(0, size, lane):
        part = rows[group : group + lane]
        for _ in range(lane.bit_length() - 1):
            half, pairs = lane // 2, []
            for i in range(half):
                for high in (0, half):
                    mask = [
                        start + high + j + other
                        for start in range(0, size, lane)
                        for j in range(half)
                        for other in (0, size)
                    ]
                    pairs.append(f.shuffle(part[i], part[i + half], mask))
            part = pairs
        out += part
    distance = lane
    while distance < size:
        for i in range(size):
            if not i & distance:
                a, b = out[i], out[i + distance]
                first = [j if not j & distance else size + j - distance for j in range(size)]
                second = [j + distance if not j & distance else size + j for j in range(size)]
                out[i], out[i + distance] = f.shuffle(a, b, first), f.shuffle(a, b, second)
        distance *= 2
    return out
