"""The kernel of products whose left operand is laid out in lines: see `lines`."""

from functools import cache

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
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value


@cache
def lines_kernel(
    dtypes: tuple[str, str, str], sizes: Sizes, high: int, pace: int, rest: int
) -> Kernel:
    """The kernel for tiles of `high` rows, or one less, that are `pace` numbers apart; `rest`
    columns are no whole tile."""
    tile = sizes.tile._replace(height=high)
    last = tile
    if 0 < rest <= tile.lanes:
        last = tile._replace(width=1)
    if 0 < rest <= tile.lanes // 2 and host().vector_bytes == 64:
        last = last._replace(lanes=tile.lanes // 2)
    name = f"lines_{'_'.join(dtypes)}_{high}x{tile.columns}_{last.columns}_by{pace}"
    return Kernel(name, lambda: _text(name, dtypes, sizes, (tile, last), pace))


def _text(
    name: str, dtypes: tuple[str, str, str], sizes: Sizes, tiles: tuple[Tile, Tile], pace: int
) -> str:
    lhs, rhs, out = dtypes
    module, numbers, tile = Module(), arithmetic(out), tiles[0]
    emit_offsets(module)
    emit_segments(module)
    emit_across(module, "across_rhs", tile.columns, rhs, numbers)
    emit_pack(module, rhs, numbers, max(sizes.tile.height, tile.columns), sizes.steps)
    emit_lay(module, lhs, numbers, 1)
    for part in dict.fromkeys(tiles):
        for height in dict.fromkeys((part.height, max(1, part.height - 1))):
            _emit_tile(module, part._replace(height=height), tile, numbers, pace)
    f = Function(module, name, ["ptr", "ptr", "i64", "i64"])
    _emit_block(Task(f, {"lhs": lhs, "rhs": rhs}, sizes, numbers, Checked()), tiles, pace)
    f.leave()
    return module.text()


def _emit_block(task: Task, tiles: tuple[Tile, Tile], pace: int) -> None:
    """Whole lines of the result, one after the other."""
    f, r, block, size = task.f, task.record, task.block, task.numbers.size
    (tile, last), inner = tiles, r["inner"]
    (places, apart), (row_out, line_out) = (
        [f.load(f.offset(r.loops(name)[0], at, "i64"), "i64") for at in where]
        for name, where in (("rows_lhs", (0, 3)), ("rows_out", (1, 3)))
    )
    words, table = r.loops("laid")[0], task.places["lhs_segments"]
    width = f.load(words, "i64")
    offsets = task.places["rows_made"]
    for i in range(tile.height):
        f.store(row_out * i, f.offset(offsets, i, "i64"))
    task.lines("columns_rhs", block.first_column, block.columns)
    first, count = block.first_row // places, block.rows // places
    pieces = (places + (tile.height - 1)) // tile.height
    # So many pieces of a line have a row more than the others.
    higher = places - pieces * (tile.height - 1)
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
                with f.loop(0, block.columns, tile.columns) as j:
                    rest = block.columns - j
                    found = _called(f, tile, whole)
                    if last != tile:
                        few = rest.is_("sle", last.columns)
                        found = f.select(few, _called(f, last, whole), found)
                    right = f.offset(filter, j * inner * size)
                    args = [inner, source.get(), right, table, f.offset(to.get(), j * size)]
                    f.call(str(found), [*args, offsets, rest])
                rows = f.select(whole, tile.height, tile.height - 1)
                source.set(f.offset(source.get(), rows * (pace * size)))
                to.set(f.offset(to.get(), rows * row_out))


def _called(f: Function, tile: Tile, whole: Value) -> Value:
    """The function for a tile; where it is not whole, of one row less."""
    high, low = (
        Value(f"@{_name(tile._replace(height=height))}", "ptr", f)
        for height in (tile.height, max(1, tile.height - 1))
    )
    return f.select(whole, high, low)


def _name(tile: Tile) -> str:
    return f"tile{tile.height}x{tile.columns}"


def _emit_tile(module: Module, tile: Tile, packed: Tile, numbers: Arithmetic, pace: int) -> None:
    """`tile(steps, lhs, rhs, table, out, offsets, columns)`.

    Rows are `pace` numbers apart, and steps where the table says; columns lie as they are packed
    for tiles of the size `packed`. Row i of the result begins `offsets[i]` bytes further on.
    """
    params = ["i64", "ptr noalias readonly", "ptr noalias readonly", "ptr noalias readonly",
              "ptr noalias", "ptr noalias readonly", "i64"]  # fmt: skip
    f = Function(module, _name(tile), params, attributes=APART, internal=True)
    steps, lhs, rhs, table, out, offsets, columns = f.params
    sums = TileSums(f, tile, packed, numbers, host())
    right = f.variable("ptr", rhs)

    def step(k: Value) -> None:
        start = f.offset(lhs, f.load(f.offset(table, k, "i64"), "i64"))
        rows = [f.offset(start, i * pace * numbers.size) for i in range(tile.height)]
        sums.add([rows], sums.columns_at(right.get()))
        right.set(f.offset(right.get(), packed.columns * numbers.size))

    # With each of the first steps a row of the result is asked for.
    asking = f.least(steps, tile.height)
    with f.loop(0, asking) as k:
        sums.ask_for_row([out, offsets], k)
        step(k)
    with f.loop(asking, steps) as k:
        step(k)

    def write(masks: list[Value] | None) -> None:
        for i, row in enumerate(sums.sums):
            start = f.offset(out, f.load(f.offset(offsets, i, "i64"), "i64"))
            for j, (value,) in enumerate(row):
                at = f.offset(start, j * tile.lanes * numbers.size)
                if masks:
                    masked_store(f, value.get(), at, masks[j], numbers.size)
                else:
                    f.store(value.get(), at, numbers.size)

    masks = [within(f, columns - j * tile.lanes, tile.lanes) for j in range(tile.width)]
    whole = columns.is_("sge", tile.columns)
    f.choose(whole, lambda: write(None), lambda: write(masks))
    f.leave()
