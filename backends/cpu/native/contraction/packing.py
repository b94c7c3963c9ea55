"""Packing: numbers of an operand made neighbours in the order in which a tile reads them.

An operand is a matrix of lines and steps: the rows of the left one, the columns of the right one,
and the steps of the sum. Lines lie anywhere (a table of offsets); steps lie in segments of equal
distance (a table of offsets and lengths). A panel is as many lines as the tile has; for each step
it holds a number of each line, zeros for lines that are missing.
"""

from math import gcd

from shardir.backends.cpu.native.contraction.elements import Arithmetic, read, stored, widened
from shardir.backends.cpu.native.contraction.tile import LINE, masked_load, within
from shardir.backends.cpu.native.llvm.hints import prefetch
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value, vector
from shardir.types import NUMPY_DTYPES

SEGMENT = 16
"""Bytes of an entry of the table of segments: offset and length."""

MOST = 4
"""Panels that are packed at once."""
ALONG = 64
"""Steps of some lines that are packed before those of others."""
SOON = 16
"""How many steps ahead lines that are neighbours are asked for."""
NEIGHBOURS = "neighbours"


def emit_pack(module: Module, dtype: str, numbers: Arithmetic, most: int, longest: int) -> None:
    """`pack_{dtype}(packed, base, offsets, count, segments, parts, steps, stride, lines, several,
    across)`.

    Packs `count` lines that begin `offsets[i]` bytes after `base`, in panels of `lines` lines and
    `steps` steps, which are those of `parts` segments; steps of a segment are `stride` bytes
    apart. Where lines are neighbours, the function `across` (see `emit_across`) packs `several`
    panels at once. `most` is the largest number of lines, `longest` that of steps.
    """
    item = NUMPY_DTYPES[dtype].itemsize
    name = f"pack_{dtype}"
    emit_apart(module, dtype, numbers)
    params = ["ptr noalias", "ptr readonly", "ptr noalias readonly", "i64",
              "ptr noalias readonly", "i64", "i64", "i64", "i64", "i64", "ptr"]  # fmt: skip
    f = Function(module, name, params, attributes=APART, internal=True)
    packed, base, offsets, count, segments, parts, steps, stride, lines, several, across = f.params
    starts, paces = (f.variable(f"[{most} x i64]").address for _ in range(2))
    nothing = zeros(f, name, longest * item)
    row = lines * numbers.size
    place, done = f.variable("ptr", packed), f.variable("i64", 0)
    with f.while_(lambda: done.get().is_("slt", count)):
        first = done.get()
        table, rest = f.offset(offsets, first, "i64"), count - first
        here = f.least(rest, lines)
        whole, together = rest.is_("uge", lines), neighbours(f, table, here, item)
        many = f.least(rest // lines, several)
        panels = f.select(whole & neighbours(f, table, many * lines, item), many, 1)
        part = f.variable("ptr", place.get())
        with f.loop(0, parts) as number:
            entry = f.offset(segments, number * SEGMENT)
            length = f.load(f.offset(entry, 8), "i64")
            origin = f.offset(base, f.load(entry, "i64"))

            def panels_across(length: Value = length, origin: Value = origin) -> None:
                start = f.offset(origin, f.load(table, "i64"))
                rows = f.select(whole, panels, 0)
                args = [part.get(), start, length, stride, rows, steps * row, here]
                f.call(str(across), args)

            def apart(length: Value = length, origin: Value = origin) -> None:
                with f.loop(0, lines) as i:
                    exists = i.is_("ult", here)
                    there = f.offset(origin, f.load(f.offset(table, i, "i64"), "i64"))
                    f.store(f.select(exists, there, nothing), f.offset(starts, i, "ptr"))
                    f.store(f.select(exists, stride, 0), f.offset(paces, i, "i64"))
                next = f.select(rest.is_("ugt", lines), lines, 0)
                ahead = f.load(f.offset(table, next, "i64"), "i64") - f.load(table, "i64")
                steps_of = [f.value(0, "i64"), length, ahead]
                f.call(f"apart_{dtype}", [part.get(), starts, paces, stride, lines, *steps_of])

            f.choose(together if numbers.planes == 1 else together & whole, panels_across, apart)
            part.set(f.offset(part.get(), length * row))
        place.set(f.offset(place.get(), panels * steps * row))
        done.set(first + panels * lines)
    f.leave()


def zeros(f: Function, name: str, nbytes: int) -> Value:
    """What lines that are missing are read from."""
    f.module.declarations.setdefault(
        f"@{name}_zeros = internal constant [{nbytes} x i8] zeroinitializer, align 64"
    )
    return Value(f"@{name}_zeros", "ptr", f)


def panels_of(nbytes: int) -> int:
    """How many panels of lines that are neighbours fill cache lines, so that each is read once."""
    return min(LINE // gcd(nbytes, LINE), MOST)


def neighbours(f: Function, table: Value, count: Value, item: int) -> Value:
    """Whether the lines are next to each other in memory."""
    if all(each.name != NEIGHBOURS for each in f.module.functions):
        _emit_neighbours(f.module)
    return f.call(NEIGHBOURS, [table, count, f.value(item, "i64")], "i1")


def _emit_neighbours(module: Module) -> None:
    params = ["ptr noalias readonly", "i64", "i64"]
    f = Function(module, NEIGHBOURS, params, "i1", attributes=APART, internal=True)
    table, count, item = f.params
    expected = f.variable("i64", f.load(table, "i64"))
    wrong = f.variable("i64", 0)
    with f.loop(0, count) as i:
        wrong.set(wrong.get() | (f.load(f.offset(table, i, "i64"), "i64") ^ expected.get()))
        expected.set(expected.get() + item)
    f.leave(wrong.get().is_("eq", 0))


def emit_across(module: Module, name: str, lines: int, dtype: str, numbers: Arithmetic) -> None:
    """`name(packed, start, length, stride, panels, apart, count)`: lines are neighbours.

    Each step is copied as it is, to `panels` panels of `lines` lines that are `apart` bytes apart;
    where there are none, to a panel that has `count` lines.
    """
    params = ["ptr noalias", "ptr noalias readonly", "i64", "i64", "i64", "i64", "i64"]
    f = Function(module, name, params, attributes=APART, internal=True)
    packed, start, length, stride, panels, apart, count = f.params
    place, source = f.variable("ptr", packed), f.variable("ptr", start)
    widest = max(1, 64 // numbers.part)
    item = NUMPY_DTYPES[dtype].itemsize
    pieces, done = [], 0
    while done < lines:
        pieces.append((done, min(widest, 1 << (lines - done).bit_length() - 1)))
        done += pieces[-1][1]
    masks = [within(f, count - done, many) for done, many in pieces if numbers.planes == 1]
    with f.loop(0, length):
        to, there = f.variable("ptr", place.get()), f.variable("ptr", source.get())
        with f.loop(0, panels):
            for line in range(0, lines * item, LINE):
                prefetch(f, f.offset(there.get(), stride * SOON + line))
            for done, many in pieces:
                at = f.offset(there.get(), done * item)
                for p, plane in enumerate(read(f, at, dtype, numbers, many)):
                    step = f.offset(to.get(), (p * lines + done) * numbers.part)
                    f.store(plane, step, numbers.part)
            to.set(f.offset(to.get(), apart))
            there.set(f.offset(there.get(), lines * item))
        if masks:
            with f.when(panels.is_("eq", 0)):
                for (done, many), mask in zip(pieces, masks, strict=True):
                    at, type = f.offset(source.get(), done * item), vector(stored(dtype), many)
                    loaded = masked_load(f, at, mask, type, item)
                    new = widened(f, loaded, dtype, numbers)
                    f.store(new, f.offset(place.get(), done * numbers.part), numbers.part)
        place.set(f.offset(place.get(), lines * numbers.size))
        source.set(f.offset(source.get(), stride))
    f.leave()


def emit_apart(module: Module, dtype: str, numbers: Arithmetic) -> None:
    """`apart_{dtype}(packed, starts, paces, stride, lines, first, last, ahead)`.

    Packs a panel of lines that begin at `starts`, from step `first` on: line i goes on by
    `paces[i]` bytes with each step, which are `stride` or, for one that is missing, none. If steps
    are neighbours, squares of lines and steps are transposed, as many at once as a register has
    steps, and lines `ahead` bytes further on are asked for; else it goes number by number. Some
    steps of a line come before those of the next one, so that few cache lines are in use. Twice
    does no harm.
    """
    name = f"apart_{dtype}"
    if any(each.name == name for each in module.functions):
        return
    params = ["ptr noalias", "ptr noalias readonly", "ptr noalias readonly", "i64", "i64", "i64",
              "i64", "i64"]  # fmt: skip
    f = Function(module, name, params, attributes=APART, internal=True)
    packed, starts, paces, stride, lines, first, last, ahead = f.params
    item, row = NUMPY_DTYPES[dtype].itemsize, lines * numbers.size
    few = 16 // numbers.part
    done = f.variable("i64", first)
    turned = stride.is_("eq", item) & (lines % few).is_("eq", 0)

    def squares(many: int) -> None:
        """As many steps at once, from those done on, if as many are left."""
        start = done.get()
        end = f.select(turned & (last - start).is_("sge", many), last, start)
        with (
            f.loop(start, end, ALONG) as begin,
            f.loop(0, lines, few) as line,
            f.loop(begin, f.least(end, begin + ALONG), many) as next,
        ):
            # The last steps are done with some before them, once more.
            k = f.least(next, end - many)
            entries, rows = f.offset(starts, line, "ptr"), []
            for i in range(few):
                here = f.offset(f.load(f.offset(entries, 8 * i), "ptr"), k * item)
                rows += read(f, here, dtype, numbers, many)
                prefetch(f, f.offset(here, ahead))
            at = f.offset(packed, k * row + line * numbers.size)
            for i, columns in enumerate(transposed(f, rows, many // few)):
                for square in range(0, many, few):
                    column = columns
                    if many > few:
                        column = f.shuffle(columns, columns, range(square, square + few))
                    f.store(column, f.offset(at, row * (square + i)), numbers.part)
        done.set(end)

    if numbers.planes == 1:
        for many in sorted({host().lanes(numbers.part), few}, reverse=True):
            squares(many)
    with f.loop(done.get(), last, ALONG) as begin, f.loop(0, lines) as line:
        start = f.load(f.offset(starts, line, "ptr"), "ptr")
        pace = f.load(f.offset(paces, line, "i64"), "i64")
        source = f.variable("ptr", f.offset(start, begin * pace))
        place = f.variable("ptr", f.offset(packed, begin * row + line * numbers.part))
        with f.loop(begin, f.least(last, begin + ALONG)):
            for p, plane in enumerate(read(f, source.get(), dtype, numbers, 1)):
                at = f.offset(place.get(), lines * (p * numbers.part))
                f.store(plane, at, numbers.part)
            source.set(f.offset(source.get(), pace))
            place.set(f.offset(place.get(), row))
    f.leave()


def transposed(f: Function, rows: list[Value], squares: int) -> list[Value]:
    """The columns of squares of numbers that lie side by side, by interleaving: each vector has a
    column of the first one, the same of the next one, and so on."""
    size = len(rows)
    half = size // 2
    for _ in range(size.bit_length() - 1):
        masks = [
            [
                square + at + j + other
                for square in range(0, squares * size, size)
                for j in range(half)
                for other in (0, squares * size)
            ]
            for at in (0, half)
        ]
        rows = [f.shuffle(rows[i], rows[i + half], mask) for i in range(half) for mask in masks]
    return rows
