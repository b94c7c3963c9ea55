"""The kernel of products: a task makes a block of the result.

The sum is taken in equal parts of some hundred steps. For each part the block's columns of the
right operand are packed (or have been by an earlier phase, which uses the same kernel), then some
rows of the left one at a time, which the caches hold while tile after tile is computed (`straight`
says when rows need no packing). Numbers are summed in the order of the steps whatever the blocks
are, so that results do not depend on how the work is split.
"""

from functools import cache
from typing import NamedTuple

from shardir.backends.cpu.native.contraction.elements import Arithmetic, arithmetic, narrowed
from shardir.backends.cpu.native.contraction.packing import (
    SEGMENT,
    emit_across,
    emit_pack,
    neighbours,
    panels_of,
)
from shardir.backends.cpu.native.contraction.patches import emit_patches
from shardir.backends.cpu.native.contraction.record import Block, Reader
from shardir.backends.cpu.native.contraction.sizes import LEFT, LINES, RIGHT, STAGE, Sizes
from shardir.backends.cpu.native.contraction.straight import (
    emit_starts,
    emit_straight_tile,
    lanes_of,
)
from shardir.backends.cpu.native.contraction.tables import OFFSETS, emit_offsets, emit_segments
from shardir.backends.cpu.native.contraction.tile import LINE, Tile, emit_tile, emit_write, parts_of
from shardir.backends.cpu.native.contraction.windows import (
    ENTRY,
    emit_windows,
    emit_windows_tile,
)
from shardir.backends.cpu.native.data import SCRATCH_BYTES, Kernel
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value, Variable, vector
from shardir.types import NUMPY_DTYPES

ASKED = 2
"""Panels of rows whose tiles ask for columns."""


class Checked(NamedTuple):
    """The operand that is patches of an image ("lhs", "rhs" or ""), and its checked dimensions.

    `straight`: it is read where it lies rather than packed (`straight` says how of the left one,
    `windows` of the right one); steps go along the dimension `walked` then (-1: none).
    """

    side: str = ""
    dims: int = 0
    straight: bool = False
    walked: int = -1

    def parts_of(self, tile: Tile) -> tuple[Tile, ...]:
        """The tiles there are: those that read columns where they lie are of whole panels."""
        whole = self.straight and self.side == "rhs"
        return tuple(part for part in parts_of(tile) if not whole or part.width == tile.width)

    def of(self, side: str) -> int:
        """How many dimensions of an operand are checked."""
        return self.dims if side == self.side else 0


@cache
def product_kernel(lhs: str, rhs: str, out: str, sizes: Sizes, checked: Checked) -> Kernel:
    """The kernel for operands and results of these element types."""
    name = f"product_{lhs}_{rhs}_{out}_{sizes.name}"
    if checked.dims:
        name += f"_{checked.side}{checked.dims}"
        name += f"_straight{checked.walked + 1}" * checked.straight
    return Kernel(name, lambda: _text(name, lhs, rhs, out, sizes, checked))


def _text(name: str, lhs: str, rhs: str, out: str, sizes: Sizes, checked: Checked) -> str:
    module, numbers = Module(), arithmetic(out)
    tile = sizes.tile
    emit_offsets(module)
    emit_write(module, tile, numbers, host())
    for part in checked.parts_of(tile):
        place = module, _called(part), part, tile, numbers, host()
        if checked.straight and checked.side == "lhs":
            emit_straight_tile(*place, checked.dims)
        elif checked.straight:
            emit_windows_tile(*place, checked.dims, checked.walked)
        else:
            emit_tile(*place)
    for side, lines, dtype in (("lhs", tile.height, lhs), ("rhs", tile.columns, rhs)):
        dims = checked.of(side)
        if dims and checked.straight and side == "rhs":
            emit_windows(module, f"starts_{side}", tile, numbers, dims, 8 * LINES, checked.walked)
        elif dims and checked.straight:
            along = checked.walked
            emit_starts(
                module, f"starts_{side}", lines, sizes.steps, numbers, dims, 8 * LINES, along
            )
        elif dims:
            emit_patches(
                module, f"pack_{side}", lines, sizes.steps, dtype, numbers, dims, 8 * LINES
            )
        else:
            emit_across(module, f"across_{side}", lines, dtype, numbers)
    for dims in sorted({checked.of("lhs"), checked.of("rhs")}):
        emit_segments(module, dims)
    for dtype in sorted(
        {dtype for side, dtype in (("lhs", lhs), ("rhs", rhs)) if not checked.of(side)}
    ):
        emit_pack(module, dtype, numbers, max(tile.height, tile.columns), sizes.steps)
    _emit_unstage(module, out, numbers)
    f = Function(module, name, ["ptr", "ptr", "i64", "i64"])
    _Task(f, lhs, rhs, sizes, numbers, checked).compute()
    f.leave()
    return module.text()


class _Task:
    """The instructions of a task, written in their order."""

    def __init__(
        self, f: Function, lhs: str, rhs: str, sizes: Sizes, numbers: Arithmetic, checked: Checked
    ) -> None:
        self.f, self.sizes, self.numbers, self.checked = f, sizes, numbers, checked
        self.dtypes = {"lhs": lhs, "rhs": rhs}
        self.bases, self.words, task, worker = f.params
        self.record = Reader(f, self.words)
        self.block = Block(f, self.record, task)
        at = f.offset(f.load(self.bases, "ptr"), worker * SCRATCH_BYTES)
        table = 8 * LINES
        segments = (SEGMENT + 8 * checked.dims) * sizes.steps
        places = {}
        for name, size in (
            ("rows_lhs", table), ("rows_made", table), ("rows_out", table), ("columns_rhs", table),
            ("columns_out", table), ("lhs_segments", segments), ("rhs_segments", segments),
            ("lhs", LEFT + 4096), ("rhs", RIGHT), ("stage", STAGE),
            ("positions", table * checked.dims),
        ):  # fmt: skip
            places[name] = at
            at = f.offset(at, size)
        self.places = places

    def _lines(self, name: str, first: Value, count: Value) -> Value:
        """The table of where lines begin; of patches, also of their positions."""
        f, lists = self.f, {name: self.places[name]}
        for d in range(self.checked.of(name.rpartition("_")[2])):
            lists[f"positions_{d}"] = f.offset(self.places["positions"], d * 8 * LINES)
        for each, table in lists.items():
            f.call(OFFSETS, [self.words, self.record.list(each), table, first, count])
        return self.places[name]

    def _packed(
        self, side: str, base: Value, skipped: Value, lines: Value, first: Value, steps: Value,
        to: Value,
    ) -> Value:  # fmt: skip
        """Pack lines of an operand, but for those skipped, for the steps from `first` on, or find
        them in memory. How many segments these are."""
        f, dims, tile = self.f, self.checked.of(side), self.sizes.tile
        name, segments = f"inner_{side}", self.places[f"{side}_segments"]
        args = [self.words, self.record.list(name), segments, first, steps]
        parts = f.call(f"segments_{dims}", args, "i64")
        table = f.offset(
            self.places["rows_lhs" if side == "lhs" else "columns_rhs"], skipped, "i64"
        )
        args = [to, base, table, lines, segments, parts]
        straight = self.checked.straight and side == self.checked.side
        if not straight:
            args += [steps, f.load(f.offset(self.record.loops(name)[0], 8), "i64")]
        if dims:
            args.append(f.offset(self.places["positions"], skipped, "i64"))
            args.append(self.record.loops("bounds")[0])
            f.call(f"starts_{side}" if straight else f"pack_{side}", args)
            return parts
        dtype, high = self.dtypes[side], tile.height if side == "lhs" else tile.columns
        several = panels_of(high * NUMPY_DTYPES[dtype].itemsize)
        args += [f.value(high, "i64"), f.value(several, "i64"), Value(f"@across_{side}", "ptr", f)]
        f.call(f"pack_{dtype}", args)
        return parts

    def compute(self) -> None:
        """Make a block of the result; one without rows is packed for later tasks."""
        f, r, block = self.f, self.record, self.block
        self._lines("rows_lhs", block.first_row, block.rows)
        columns_out = self._lines("columns_out", block.first_column, block.columns)
        self._lines("columns_rhs", block.first_column, block.columns)
        self._lines("rows_made", block.first_row, block.rows)
        staged = r["staged"].is_("ne", 0)
        with block.products(self.bases) as (lhs, rhs, out, packed):
            start = f.offset(out, f.load(columns_out, "i64"))
            place = f.select(staged, self.places["stage"], start)
            self._sums(lhs, rhs, packed, place)
            with f.when(staged):
                rows_out = self._lines("rows_out", block.first_row, block.rows)
                tables = [rows_out, columns_out, block.rows, block.columns, r["block_columns"]]
                f.call("unstage", [out, self.places["stage"], *tables])

    def _sums(self, lhs: Value, rhs: Value, packed: Value, place: Value) -> None:
        """One part of the steps after the other."""
        f, r, size, block = self.f, self.record, self.numbers.size, self.block
        here, inner, most = r["packed_slot"].is_("eq", 0), r["inner"], r["held_rows"]
        # A sum of no steps is zero: the first part is done even if it is empty.
        after, first = f.variable("i64", 0), f.variable("i64", 0)
        with f.while_(lambda: after.get().is_("eq", 0) | first.get().is_("slt", inner)):
            now = first.get()
            steps, parts = f.least(inner - now, r["steps"]), f.variable("i64")
            of_columns = f.variable("i64", 0)
            at = (now * r["panel_columns"] + block.first_column * steps) * size
            right = f.select(here, self.places["rhs"], f.offset(packed, at))
            with f.loop(0, block.columns, r["together"]) as begin:
                end = f.least(block.columns, begin + r["together"])
                next_columns, next_rows = (_Soon(f, self.places["rhs"]) for _ in range(2))
                with f.when(here | r["packing"].is_("ne", 0)):
                    args = begin, end - begin, now, steps, right
                    of_columns.set(self._packed("rhs", rhs, *args))
                    last = end.is_("eq", block.columns)
                    column, far = f.select(last, 0, end), f.select(last, steps, 0)
                    self._find(next_columns, "rhs", rhs, column, far)
                with f.loop(0, block.rows, most) as top:
                    count = f.least(block.rows - top, most)
                    with f.when(begin.is_("eq", 0)):
                        args = top, count, now, steps, self.places["lhs"]
                        parts.set(self._packed("lhs", lhs, *args))
                    last = count.is_("eq", block.rows - top)
                    row, far = f.select(last, 0, top + count), f.select(last, steps, 0)
                    self._find(next_rows, "lhs", lhs, row, far)
                    soon = next_columns, next_rows
                    rows, columns, adding = (top, count), (begin, end), now.is_("ne", 0)
                    number = parts if self.checked.side == "lhs" else of_columns
                    self._tiles(right, place, rows, columns, steps, number, soon, adding)
            after.set(1)
            first.set(now + r["steps"])

    def _find(self, soon: "_Soon", side: str, base: Value, line: Value, steps: Value) -> None:
        """Where a line of an operand lies, so many steps after those that were packed last."""
        f = self.f
        table = self.places["rows_lhs" if side == "lhs" else "columns_rhs"]
        start = f.load(f.offset(table, line, "i64"), "i64")
        first = f.load(self.places[f"{side}_segments"], "i64")
        pace = f.load(f.offset(self.record.loops(f"inner_{side}")[0], 8), "i64")
        soon.start.set(f.offset(f.offset(base, start), first + steps * pace))
        soon.pace.set(pace)

    def _tiles(
        self, right: Value, place: Value, rows: tuple[Value, Value],
        columns: tuple[Value, Value], steps: Value, parts: Variable,
        soon: tuple["_Soon", "_Soon"], adding: Value,
    ) -> None:  # fmt: skip
        """Tiles of some rows (the first, how many) and columns (from, to)."""
        f, tile, size = self.f, self.sizes.tile, self.numbers.size
        (top, count), (start, stop) = rows, columns
        stripe, low = self.sizes.stripe, parts_of(tile)[-1].height
        # A panel of rows stays in the nearest cache while columns come from the next one.
        with f.loop(start, stop, stripe) as begin, f.loop(0, count, tile.height) as panel:
            here = f.least(count - panel, tile.height)
            high = f.select(here.is_("sgt", 2 * low), tile.height, low)
            end = f.least(stop, begin + stripe)
            number = panel // tile.height
            # A panel of packed columns takes two lines of memory, neighbouring rows take more.
            is_row = number.is_("uge", ASKED)
            start_of, pace = (
                f.select(is_row, b.get(), a.get())
                for a, b in zip(*((each.start, each.pace) for each in soon), strict=True)
            )
            line = f.offset(start_of, (number - f.select(is_row, ASKED, 0)) * LINE)
            with f.loop(0, here, high) as row:
                column = f.variable("i64", begin)
                with f.while_(lambda: column.get().is_("slt", end)):
                    j = column.get()
                    rest = self.block.columns - j
                    called, wide = self._fitting(high, rest)
                    inside = (j - start) % tile.columns
                    at = (j - start - inside) * steps * size + inside * self.numbers.part
                    packed = f.offset(right, at)
                    offsets = f.offset(self.places["rows_made"], top + panel + row, "i64")
                    out = [f.offset(place, j * size), offsets, here - row, rest, adding]
                    if self.checked.straight and self.checked.side == "rhs":
                        each = f.value(ENTRY * tile.width, "i64") * parts.get()
                        table = f.offset(right, (j - start) // tile.columns * each)
                        left = f.offset(
                            self.places["lhs"], panel * steps * size + row * self.numbers.part
                        )
                        stride = f.load(f.offset(self.record.loops("inner_rhs")[0], 8), "i64")
                        segments = self.places["rhs_segments"]
                        args = [parts.get(), segments, table, left, stride, *out]
                    elif self.checked.straight:
                        each = f.value(8 * lanes_of(tile.height), "i64") * parts.get()
                        starts = f.offset(self.places["lhs"], number * each + row * 8)
                        args = [parts.get(), self.places["lhs_segments"], starts, packed, *out]
                    else:
                        at = panel * steps * size + row * self.numbers.part
                        left = f.offset(self.places["lhs"], at)
                        args = [steps, left, packed, line, pace, *out]
                    f.call(str(called), args)
                    column.set(j + wide)

    def _fitting(self, high: Value, rest: Value) -> tuple[Value, Value]:
        """The function for tiles of so many rows, where so many columns are left, and how many
        columns it makes."""
        f, tile = self.f, self.sizes.tile
        whole, *parts = self.checked.parts_of(tile)
        found, wide = Value(f"@{_called(whole)}", "ptr", f), f.value(whole.columns, "i64")
        for part in parts:
            fits = high.is_("eq", part.height)
            if part.columns < tile.columns:
                fits = fits & rest.is_("sle", tile.columns - part.columns)
                wide = f.select(fits, part.columns, wide)
            found = f.select(fits, Value(f"@{_called(part)}", "ptr", f), found)
        return found, wide


class _Soon:
    """What to ask for while tiles are made: with each step a line, `pace` bytes further on.

    Tiles of the first panels of rows ask for columns, the other ones for rows.
    """

    def __init__(self, f: Function, start: Value) -> None:
        self.start, self.pace = f.variable("ptr", start), f.variable("i64", 0)


def _called(part: Tile) -> str:
    return f"tile{part.height}x{part.width}"


def _emit_unstage(module: Module, dtype: str, numbers: Arithmetic) -> None:
    """`unstage(out, stage, rows, columns, row_count, column_count, width)`: store the sums."""
    params = ["ptr noalias", "ptr noalias readonly", "ptr noalias readonly",
              "ptr noalias readonly", "i64", "i64", "i64"]  # fmt: skip
    f = Function(module, "unstage", params, attributes=APART, internal=True)
    out, stage, rows, columns, row_count, column_count, width = f.params
    item = NUMPY_DTYPES[dtype].itemsize
    together = neighbours(f, columns, column_count, item)
    lanes = 64 // numbers.part
    whole = f.select(together, column_count - column_count % lanes, 0)
    with f.loop(0, row_count) as i:
        source = f.offset(stage, i * width * numbers.size)
        row = f.offset(out, f.load(f.offset(rows, i, "i64"), "i64"))
        first = f.offset(row, f.load(columns, "i64"))

        def move(j: Value, to: Value, count: int, source: Value = source) -> None:
            type = vector(numbers.type, count * numbers.planes)
            number = f.load(f.offset(source, j * numbers.size), type, numbers.part)
            f.store(narrowed(f, number, dtype), to, item // numbers.planes)

        with f.loop(0, whole, lanes) as j:
            move(j, f.offset(first, j * item), lanes)
        with f.loop(whole, column_count) as j:
            move(j, f.offset(row, f.load(f.offset(columns, j, "i64"), "i64")), 1)
    f.leave()
