"""Transposes: square tiles turned in registers.

Along columns the target is contiguous, along rows the source. A tile is as many vectors as a
vector has items. First, items change places within every 16 bytes, by interleaving halves of the
list of vectors as often as it takes; then pieces of 16 bytes change places between vectors. Every
step is one instruction of x86 and of ARM.
"""

from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Value
from shardir.backends.cpu.native.moves.bodies import copy_items, item_type
from shardir.backends.cpu.native.moves.grid import Block

LANE = 16
"""Bytes within which items are interleaved at no cost."""


def side(nbytes: int) -> int:
    """Items along one side of a tile, at most sixteen."""
    return max(1, min(host().vector_bytes, LANE * nbytes) // nbytes)


def vector_type(nbytes: int) -> str:
    """A vector of as many items as a tile has on a side; of 16 bytes, of their halves."""
    part = min(nbytes, 8)
    return f"<{side(nbytes) * nbytes // part} x {item_type(part)}>"


def copy_tiles(nbytes: int, streaming: bool, f: Function, block: Block) -> None:
    """A block of at least one tile; the last tiles overlap those before them.

    With `streaming`, blocks consist of whole tiles, and all of them are aligned if the first is.
    """
    size = side(nbytes)
    rows, columns = block.rows, block.columns

    def tiles(streaming: bool) -> None:
        with f.loop(0, columns, size) as j:
            column = f.least(j, columns - size)
            source = f.offset(block.addresses[0], column * block.column_strides[0])
            target = f.offset(block.addresses[1], column * nbytes)
            with f.loop(0, rows, size) as i:
                row = f.least(i, rows - size)
                _turn(
                    f,
                    nbytes,
                    f.offset(source, row * nbytes),
                    block.column_strides[0],
                    f.offset(target, row * block.row_strides[1]),
                    block.row_strides[1],
                    streaming,
                )

    if streaming:
        off = block.addresses[1].to("i64", "ptrtoint") & (size * nbytes - 1)
        f.choose(off.is_("eq", 0), lambda: tiles(True), lambda: tiles(False))
        return
    fits = rows.is_("uge", size) & columns.is_("uge", size)
    f.choose(fits, lambda: tiles(False), lambda: copy_items(nbytes, f, block))


def _turn(
    f: Function,
    nbytes: int,
    source: Value,
    source_stride: Value,
    target: Value,
    target_stride: Value,
    streaming: bool,
) -> None:
    size = side(nbytes)
    type = vector_type(nbytes)
    tile = []
    at = source
    for _ in range(size):
        tile.append(f.load(at, type, 1))
        at = f.offset(at, source_stride)
    at = target
    for value in turned(f, tile, nbytes):
        f.store(value, at, size * nbytes if streaming else 1, streaming)
        at = f.offset(at, target_stride)


def turned(f: Function, tile: list[Value], nbytes: int) -> list[Value]:
    """A square tile transposed; items of 16 bytes are pairs of lanes."""
    size = len(tile)
    within = max(1, min(LANE // nbytes, size))
    unit = max(1, nbytes // 8)
    groups = [tile[start : start + within] for start in range(0, size, within)]
    inner = [_interleaved(f, group, size * unit, within) for group in groups]
    turned_rows = []
    columns = [_exchanged(f, [group[i] for group in inner], within * unit) for i in range(within)]
    for lane in range(len(groups)):
        turned_rows += [columns[i][lane] for i in range(within)]
    return turned_rows


def _interleaved(f: Function, rows: list[Value], lanes: int, within: int) -> list[Value]:
    """`within` vectors with items exchanged between them in every run of `within` lanes."""
    half, step = within // 2, 1
    while step < within:
        found = []
        for i in range(half):
            for first in (0, half):
                mask = []
                for run in range(0, lanes, within):
                    for k in range(half):
                        mask += [run + first + k, lanes + run + first + k]
                found.append(f.shuffle(rows[i], rows[i + half], mask))
        rows, step = found, 2 * step
    return rows


def _exchanged(f: Function, rows: list[Value], run: int) -> list[Value]:
    """As many vectors as runs in each, with runs of `run` lanes exchanged between them."""
    count = len(rows)
    if count == 1:
        return rows

    def pick(a: Value, b: Value, chosen: list[int]) -> Value:
        return f.shuffle(a, b, [c * run + k for c in chosen for k in range(run)])

    if count == 2:
        return [pick(rows[0], rows[1], [0, 2]), pick(rows[0], rows[1], [1, 3])]
    assert count == 4
    low = [pick(rows[i], rows[i + 1], [0, 1, 4, 5]) for i in (0, 2)]
    high = [pick(rows[i], rows[i + 1], [2, 3, 6, 7]) for i in (0, 2)]
    return [
        pick(low[0], low[1], [0, 2, 4, 6]),
        pick(low[0], low[1], [1, 3, 5, 7]),
        pick(high[0], high[1], [0, 2, 4, 6]),
        pick(high[0], high[1], [1, 3, 5, 7]),
    ]
