"""How a product is split into tasks."""

from dataclasses import dataclass
from itertools import product

from shardir.backends.cpu.native.contraction.kernel import LINES, Sizes

LINE_COST = 0.25
"""Nanoseconds that packing a number takes."""
PACKED_COST = 0.4
"""What reading a packed number takes, in terms of packing it."""
TASK_COST = 500.0
SMALL = 20_000.0
"""Nanoseconds that a task should take at least."""
SPLITS = (*range(1, 17), 20, 24, 32, 48, 64)


@dataclass(frozen=True)
class Grid:
    """Blocks of `rows` by `columns`, of `products` products of a batch.

    `packed`: the right operand is packed by a phase before. `cost` is that of all tasks.
    """

    rows: int
    columns: int
    packed: bool
    cost: float
    products: int = 1


def grid_of(
    batch: int, rows: int, columns: int, inner: int, sizes: Sizes, staged: bool, reused: bool,
    workers: int, rate: float, packable: bool = True,
) -> Grid:  # fmt: skip
    """The grid that should be done first.

    `rate` is how many products and sums a nanosecond sees; `reused` says whether products of the
    batch share the right operand.
    """
    tile = sizes.tile
    best: tuple[float, Grid] | None = None
    for cut_rows, cut_columns in product(
        _cuts(rows, tile.height, LINES), _cuts(columns, tile.columns, sizes.columns)
    ):
        if staged and cut_rows * cut_columns > sizes.staged:
            continue
        # Small products are done together.
        row_blocks, column_blocks = -(-rows // cut_rows), -(-columns // cut_columns)
        high, wide = _padded(cut_rows, tile.height), _padded(cut_columns, tile.columns)
        multiply = 2.0 * high * wide * inner / rate
        left, right = (lines * inner * LINE_COST for lines in (cut_rows, cut_columns))
        for packed in (False, True):
            if packed and ((row_blocks == 1 and not reused) or not packable):
                continue
            one = multiply + left + right * (PACKED_COST if packed else 1.0) + TASK_COST
            together = max(1, min(int(SMALL / one), -(-batch // (4 * workers))))
            tasks = -(-batch // together) * row_blocks * column_blocks
            task = together * one
            before = right * column_blocks * (1 if reused else batch) if packed else 0.0
            before += TASK_COST if packed else 0
            rounds = -(-tasks // workers)
            # The rest of a task is what the others may have to wait for.
            time = rounds * task + 0.2 * task * (workers > 1) + before / workers
            if best is None or time < best[0]:
                best = time, Grid(cut_rows, cut_columns, packed, tasks * task + before, together)
    assert best is not None
    return best[1]


def _cuts(extent: int, step: int, most: int) -> list[int]:
    """Sizes of blocks, whole tiles but for the last."""
    sizes = {min(_padded(-(-extent // n), step), max(extent, 1)) for n in SPLITS}
    return sorted({min(size, most) for size in sizes} | {min(most, max(extent, 1))})


def _padded(extent: int, step: int) -> int:
    return -(-extent // step) * step
