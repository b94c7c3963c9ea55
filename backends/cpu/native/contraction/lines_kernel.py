"""The kernel of products whose left operand is laid out in lines: see `lines`."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from shardir.backends.cpu.native.contraction.checked import Checked
from shardir.backends.cpu.native.contraction.copied_lines import LAY, emit_lay
from shardir.backends.cpu.native.contraction.elements import Arithmetic, arithmetic
from shardir.backends.cpu.native.contraction.packing import emit_across, emit_pack
from shardir.backends.cpu.native.contraction.sizes import Sizes
from shardir.backends.cpu.native.contraction.tables import emit_offsets, emit_segments
from shardir.backends.cpu.native.contraction.task import Task
from shardir.backends.cpu.native.contraction.tile import (
    Tile,
    TileSums,
    masked_store,
    within,
)
from shardir.backends.cpu.native.data import Kernel
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import (
    APART,
    Function,
    Module,
    Value,
    Variable,
    lanes as lanes_of,
    vector,
)


class Tiles(NamedTuple):
    """How columns are made: `whole` tiles, if there are as many, and what is left in a `last` one.

    Where that has some whole vectors and at most half of one, it is `folded`: two rows share the
    vector in which their last columns are.
    """

    whole: Tile | None
    last: Tile | None
    folded: bool
    height: int

    @staticmethod
    def of(columns: int, tile: Tile) -> "Tiles":
        """For so many columns, which are packed for this tile."""
        whole, rest = columns // tile.columns, columns % tile.columns
        half = 0 < rest % tile.lanes <= tile.lanes // 2 and tile.halved
        last = tile._replace(width=-(-rest // tile.lanes)) if rest else None
        if last and half and last.width == 1:
            last, half = last._replace(lanes=tile.lanes // 2), False
        # Of folded vectors there is room for more rows.
        height = tile.height * 4 // 3 if half and not whole else tile.height
        return Tiles(tile if whole else None, last, half, height)

    def of_height(self, height: int) -> "Tiles":
        """With so many rows."""
        whole, last = (each and each._replace(height=height) for each in (self.whole, self.last))
        return self._replace(whole=whole, last=last, height=height)

    @property
    def parts(self) -> list[tuple[Tile, bool]]:
        """The tiles that there are, and whether they are folded."""
        parts = (self.whole, False), (self.last, self.folded)
        return [(tile, folded) for tile, folded in parts if tile]

    @property
    def name(self) -> str:
        """What of it is a part of the kernel's name."""
        columns = [str(tile.columns) for tile in (self.whole, self.last) if tile]
        return f"{self.height}x{'_'.join(columns)}" + "_folded" * self.folded


@cache
def lines_kernel(dtypes: tuple[str, str, str], sizes: Sizes, tiles: Tiles, pace: int) -> Kernel:
    """The kernel for these tiles, or those of one row less, whose rows are `pace` numbers apart."""
    name = f"lines_{'_'.join(dtypes)}_{tiles.name}_by{pace}"
    return Kernel(name, lambda: _text(name, dtypes, sizes, tiles, pace))


def _text(name: str, dtypes: tuple[str, str, str], sizes: Sizes, tiles: Tiles, pace: int) -> str:
    lhs, rhs, out = dtypes
    module, numbers, packed = Module(), arithmetic(out), sizes.tile.columns
    emit_offsets(module)
    emit_segments(module)
    emit_across(module, "across_rhs", packed, rhs, numbers)
    emit_pack(module, rhs, numbers, max(sizes.tile.height, packed), sizes.steps)
    emit_lay(module, lhs, numbers, 1)
    for part, folded in dict.fromkeys(tiles.parts):
        for height in dict.fromkeys((tiles.height, max(1, tiles.height - 1))):
            _Tile(part._replace(height=height), packed, numbers, pace, folded).emit(module)
    f = Function(module, name, ["ptr", "ptr", "i64", "i64"])
    _emit_block(Task(f, {"lhs": lhs, "rhs": rhs}, sizes, numbers, Checked()), tiles, pace)
    f.leave()
    return module.text()


def _emit_block(task: Task, tiles: Tiles, pace: int) -> None:
    """Whole lines of the result, one after the other."""
    f, r, block, size = task.f, task.record, task.block, task.numbers.size
    inner, height, packed = r["inner"], tiles.height, task.sizes.tile.columns
    (places, apart), (row_out, line_out) = (
        [f.load(f.offset(r.loops(name)[0], at, "i64"), "i64") for at in where]
        for name, where in (("rows_lhs", (0, 3)), ("rows_out", (1, 3)))
    )
    words, table = r.loops("laid")[0], task.places["lhs_segments"]
    width = f.load(words, "i64")
    offsets = task.places["rows_made"]
    for i in range(height):
        f.store(row_out * i, f.offset(offsets, i, "i64"))
    task.lines("columns_rhs", block.first_column, block.columns)
    first, count = block.first_row // places, block.rows // places
    pieces = (places + (height - 1)) // height
    # So many pieces of a line have a row more than the others.
    higher = places - pieces * (height - 1)
    with block.products(task.bases) as (lhs, rhs, out, _):
        none = f.value(0, "i64")
        filter, image = task.places["rhs"], task.places["lhs"]
        task.packed("rhs", rhs, none, block.columns, none, inner, filter)
        numbers = first * apart * width, ((count - 1) * apart + 1) * width
        f.call(LAY, [image, lhs, words, table, none, inner, *numbers])
        with f.loop(0, count) as line:
            source = f.variable("ptr", f.offset(image, line * apart * width * size))
            to = f.variable("ptr", f.offset(out, (first + line) * line_out))
            with f.loop(0, pieces) as piece:
                whole = piece.is_("slt", higher)
                with f.loop(0, block.columns, packed) as j:
                    rest = block.columns - j
                    found, *last = (_called(f, *part, whole) for part in tiles.parts)
                    if last:
                        found = f.select(rest.is_("slt", packed), last[0], found)
                    right = f.offset(filter, j * inner * size)
                    args = [inner, source.get(), right, table, f.offset(to.get(), j * size)]
                    f.call(str(found), [*args, offsets, rest])
                rows = f.select(whole, height, height - 1)
                source.set(f.offset(source.get(), rows * (pace * size)))
                to.set(f.offset(to.get(), rows * row_out))


def _called(f: Function, tile: Tile, folded: bool, whole: Value) -> Value:
    """The function for a tile; where it is not whole, of one row less."""
    high, low = (
        Value(f"@{_name(tile._replace(height=height), folded)}", "ptr", f)
        for height in (tile.height, max(1, tile.height - 1))
    )
    return f.select(whole, high, low)


def _name(tile: Tile, folded: bool) -> str:
    return f"tile{tile.height}x{tile.columns}" + "_folded" * folded


@dataclass
class _Tile:
    """`tile(steps, lhs, rhs, table, out, offsets, columns)`.

    Rows are `pace` numbers apart, and steps where the table says; columns lie as they are packed,
    so many for a step. Row i of the result begins `offsets[i]` bytes further on.
    """

    tile: Tile
    packed: int
    numbers: Arithmetic
    pace: int
    folded: bool

    def emit(self, module: Module) -> None:
        params = ["i64", "ptr noalias readonly", "ptr noalias readonly", "ptr noalias readonly",
                  "ptr noalias", "ptr noalias readonly", "i64"]  # fmt: skip
        f = Function(module, _name(self.tile, self.folded), params, attributes=APART, internal=True)
        steps, lhs, rhs, table, out, offsets, columns = f.params
        height, size = self.tile.height, self.numbers.size
        # Folded vectors are of two rows, which are half of the rows apart; a last one is alone.
        self.pairs = [(i, i + height // 2) for i in range(height // 2) if self.folded]
        self.pairs += [(height - 1, height - 1)] * (height % 2 * self.folded)
        sums = TileSums(f, self._plain(), self.tile, self.numbers, host())
        type = vector(self.numbers.type, self.tile.lanes)
        self.mixed = [f.variable(type, 0) for _ in self.pairs]
        right = f.variable("ptr", rhs)

        def step(k: Value) -> None:
            start = f.offset(lhs, f.load(f.offset(table, k, "i64"), "i64"))
            rows = [f.offset(start, i * self.pace * size) for i in range(height)]
            here = right.get()
            if self.folded:
                self._add_folded(f, sums, rows, here)
            else:
                sums.add([rows], sums.columns_at(here))
            right.set(f.offset(here, self.packed * size))

        # With each of the first steps a row of the result is asked for.
        asking = f.least(steps, height)
        with f.loop(0, asking) as k:
            sums.ask_for_row([out, offsets], k)
            step(k)
        with f.loop(asking, steps) as k:
            step(k)
        self._write(f, sums, out, offsets, columns)
        f.leave()

    def _plain(self) -> Tile:
        """What of it is vectors of a row each."""
        return self.tile._replace(width=self.tile.width - self.folded)

    def _add_folded(self, f: Function, sums: TileSums, rows: Sequence[Value], right: Value) -> None:
        """A pair of rows at a time, so that few registers hold what is multiplied."""
        lanes, numbers = self.tile.lanes, self.numbers
        half = vector(numbers.type, lanes // 2)
        columns = [each for (each,) in sums.columns_at(right)]
        few = f.load(f.offset(right, len(columns) * lanes * numbers.size), half, numbers.size)
        twice = f.shuffle(few, few, [*range(lanes // 2)] * 2)

        def add(place: Variable, a: Value, b: Value) -> None:
            place.set(numbers.add_product(f, host(), a, b, place.get()))

        first = ", ".join(f"i1 {int(lane < lanes // 2)}" for lane in range(lanes))
        for place, pair in zip(self.mixed, self.pairs, strict=True):
            left = {i: f.splat(f.load(rows[i], numbers.type), lanes) for i in pair}
            for i, a in left.items():
                for (total,), b in zip(sums.sums[i], columns, strict=True):
                    add(total, a, b)
            text = f"select <{lanes} x i1> <{first}>, {twice.type} {left[pair[0]]}"
            both = f.emit(f"{text}, {twice.type} {left[pair[1]]}", twice.type)
            add(place, both, twice)

    def _write(
        self, f: Function, sums: TileSums, out: Value, offsets: Value, columns: Value
    ) -> None:
        lanes, size = self.tile.lanes, self.numbers.size
        parts: list[list[Value]] = [[each.get() for (each,) in row] for row in sums.sums]
        for place, pair in zip(self.mixed, self.pairs, strict=True):
            both = place.get()
            for i, first in zip(pair, (0, lanes // 2), strict=True):
                parts[i].append(f.shuffle(both, both, range(first, first + lanes // 2)))
        masks = []
        for j, part in enumerate(parts[0]):
            masks.append(within(f, columns - j * lanes, lanes_of(part.type)))

        def write(masked: bool) -> None:
            for i, row in enumerate(parts):
                start = f.offset(out, f.load(f.offset(offsets, i, "i64"), "i64"))
                for j, (part, mask) in enumerate(zip(row, masks, strict=False)):
                    at = f.offset(start, j * lanes * size)
                    if masked:
                        masked_store(f, part, at, mask, size)
                    else:
                        f.store(part, at, size)

        there = self._plain().columns + self.folded * (lanes // 2)
        f.choose(columns.is_("sge", there), lambda: write(False), lambda: write(True))
