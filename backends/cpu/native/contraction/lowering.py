"""Dispatch of products: selects a kernel and the number of tasks.

Large products are packed (`packed_kernel`). Small products and those with few rows or columns read
their operands in place (`unpacked_gemm`, `inner_product`). A long sum with a small result is split
into parts (split-K), whose number depends on the shape alone: results are the same for any number
of workers.
"""

from collections.abc import Sequence
from math import prod

from shardir.backends.cpu.native.contraction.apart import each_lane
from shardir.backends.cpu.native.contraction.checked import Checked
from shardir.backends.cpu.native.contraction.describing import blocked, described, tasks
from shardir.backends.cpu.native.contraction.dots import dotted
from shardir.backends.cpu.native.contraction.einsum import Loop, Product, merged
from shardir.backends.cpu.native.contraction.elements import Arithmetic, arithmetic
from shardir.backends.cpu.native.contraction.grid import Grid, grid_of
from shardir.backends.cpu.native.contraction.kernel import product_kernel
from shardir.backends.cpu.native.contraction.laying import in_planes
from shardir.backends.cpu.native.contraction.lines import in_lines
from shardir.backends.cpu.native.contraction.narrow import (
    narrow,
    rate,
    stored_at_once,
    swept,
)
from shardir.backends.cpu.native.contraction.parts import parts_kernel
from shardir.backends.cpu.native.contraction.pitches import pitched
from shardir.backends.cpu.native.contraction.planes import lying
from shardir.backends.cpu.native.contraction.record import written
from shardir.backends.cpu.native.contraction.sizes import STEPS, Sizes
from shardir.backends.cpu.native.contraction.straight import readable, walked
from shardir.backends.cpu.native.contraction.windows import windowed
from shardir.backends.cpu.native.data import Context, Phase, View

PARTED = 128
"""Minimum bytes of a run of result columns for which outer column loops become batch loops."""
PACKED = 256 << 10
"""Bytes that a packing task packs for later tasks."""
COPIED = 128 << 20
"""Maximum bytes of a right operand that is packed as a whole."""
READ, RUNS, LINES = 4 << 20, 4, 16
"""A matrix of at least the first number of bytes is split into this many parts along K, of at least
this many lines each."""
LONG = 16384
"""Minimum K steps for split-K with a small result."""
SMALL = 4096
"""Maximum elements of a small result."""
LONGER, LARGER = 65536, 65536
"""Minimum K steps and maximum elements for split-K of sums so long that no cache holds an operand:
the operands are read once instead of once for each block of the result."""
TALL, BROAD, PART = 8192, 64, 2048
"""Minimum K steps, minimum rows and columns, and K steps per part for split-K of products whose
operands are both packed: each task packs parts that fit the caches."""
PARTS = 32
ADDED = 8.0
"""Bytes of partial sums that are added per nanosecond."""
TASK = 20_000.0
"""Minimum duration of a task in nanoseconds."""


def multiplied(work: Product, context: Context, label: str) -> list[Phase]:
    """Return the phases of a product."""
    if not work.out.size:
        return []
    batch, _, _, inner = work.sizes
    count = _parts(work)
    if count > 1 and not any(work.inner[0].steps):
        return _in_parts(work, count, context, label)
    for each in (work, work.turned()):
        nbytes = inner * each.sizes[2] * work.out.itemsize
        if batch == 1 and swept(each) and nbytes >= READ and inner >= RUNS * LINES:
            return _in_parts(each, RUNS, context, label)
    return _at_once(work, context, label)


def _parts(work: Product) -> int:
    """Return the number of parts of a split-K sum, 1 if the sum is not split."""
    batch, rows, columns, inner = work.sizes
    elements = rows * columns
    if batch > 1 or elements > LARGER:
        return 1
    if inner >= TALL and min(rows, columns) >= BROAD:
        return min(PARTS, inner // PART)
    if inner >= LONGER or (inner >= LONG and elements <= SMALL):
        return min(PARTS, inner // (LONG // 2))
    return 1


def _at_once(work: Product, context: Context, label: str) -> list[Phase]:
    return (
        each_lane(work, context, label)
        or pitched(work, context, label)
        or dotted(work, context, label)
        or narrow(work, context, label)
        or _packed(work, context, label)
    )


def _in_parts(work: Product, count: int, context: Context, label: str) -> list[Phase]:
    """Return the phases of equal parts of the outermost K loop, of the remainder, and of their
    sum."""
    arith = arithmetic(work.out.dtype)
    if not readable(work) and windowed(work.turned()):
        work = work.turned()
    _, rows, columns, _ = work.sizes
    loop, *others = work.inner
    count = min(count, loop.extent)
    steps = loop.extent // count
    rest = loop.extent - count * steps
    each = rows * columns * arith.size
    slot = context.temporary((count + 1) * each)
    place = View(slot, 0, (rows, columns), (columns * arith.size, arith.size), arith.dtype)
    dense = _dense(work, arith)
    part = loop._replace(extent=count, lhs=loop.lhs * steps, rhs=loop.rhs * steps, out=each)
    short = work._replace(out=place, batch=(part,), rows=dense[0], columns=dense[1],
        inner=merged([loop._replace(extent=steps), *others]),
    )  # fmt: skip
    phases = _at_once(short, context, f"{label}, split-K")
    if rest:
        done = count * steps
        last = short._replace(
            lhs=work.lhs._replace(offset=work.lhs.offset + done * loop.lhs),
            rhs=work.rhs._replace(offset=work.rhs.offset + done * loop.rhs),
            out=place._replace(offset=count * each),
            batch=(),
            inner=merged([loop._replace(extent=rest), *others]),
        )
        phases += _at_once(last, context, f"{label}, split-K remainder")
    lines = merged(loop._replace(rhs=0, steps=()) for loop in work.columns)
    plain = work._replace(lhs=place, columns=lines, inner=(), patches=None)
    cost = each * (count + 1) / ADDED
    block = -(-rows // max(1, min(int(cost / TASK), context.workers)))
    fields, lists = described(plain, Grid(block, columns, False, cost))
    fields["inner"] = count + bool(rest)
    added = Phase(
        parts_kernel(work.out.dtype), written(fields, lists), tasks(fields), cost,
        f"{label}, split-K sum",
    )  # fmt: skip
    return [*phases, added]


def _dense(work: Product, arith: Arithmetic) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """Return the rows and columns with the strides of a dense result, rows outermost."""
    step, dense_loops = arith.size, []
    for loops in (work.columns, work.rows):
        new: list[Loop] = []
        for loop in reversed(loops):
            new.insert(0, loop._replace(out=step))
            step *= loop.extent
        dense_loops.append(tuple(new))
    return dense_loops[1], dense_loops[0]


def _packed(work: Product, context: Context, label: str) -> list[Phase]:
    arith = arithmetic(work.out.dtype)
    item = work.out.itemsize
    if _better_turned(work):
        work = work.turned()
    if phases := in_planes(work, context, label) or in_lines(work, context, label):
        return phases
    while (
        not _dense_from(work.columns, item)
        and _run(work.columns, item) >= PARTED
        # Batch loops are not checked against the bounds of the image.
        and not any(work.columns[0].steps)
    ):
        work = work._replace(batch=(work.columns[0], *work.batch), columns=work.columns[1:])
    batch, rows, columns, inner = work.sizes
    # Usually one task computes one product of a batch.
    sizes = Sizes.of(arith, columns, work.machine, rows if batch > 1 and inner > STEPS else 1)
    direct = _dense_from(work.columns, item)
    staged = arith.dtype != work.out.dtype or not direct
    shared = prod(loop.extent for loop in work.batch if loop.rhs == 0)
    gathered = _checked(work).side == "rhs"
    copied = batch // shared * columns * inner * arith.size
    grid = grid_of(
        batch, rows, columns, inner, sizes, arith.size, staged, shared > 1, context.workers,
        rate(arith.part, work.machine), not gathered and copied <= COPIED,
    )  # fmt: skip
    return _packed_phases(work, grid, sizes, staged, context, label)


def _better_turned(work: Product) -> bool:
    """Return whether to transpose the product, so that patches are read in place or results are
    stored without staging."""
    item, transposed = work.out.itemsize, work.turned()
    if lying(work):
        return False
    if lying(transposed) and not readable(work):
        return True
    if windowed(work):
        return False
    if windowed(transposed) and not readable(work):
        return True
    return not stored_at_once(work, item) and stored_at_once(transposed, item)


def _dense_from(columns: Sequence[Loop], item: int) -> bool:
    """Return whether the columns of the result are contiguous."""
    return _run(columns, item) == item * prod(loop.extent for loop in columns)


def _run(columns: Sequence[Loop], item: int) -> int:
    """Return the bytes of a contiguous run of the innermost result columns."""
    step = item
    for loop in reversed(columns):
        if loop.out != step:
            break
        step *= loop.extent
    return step


def _checked(work: Product) -> Checked:
    """Return how patches are accessed; patches that all exist are packed as a plain operand unless
    their columns form several runs."""
    patches, straight = work.patches, readable(work) or windowed(work)
    if not patches:
        return Checked()
    if not (straight or patches.starts or (patches.side == "rhs" and len(work.columns) > 1)):
        return Checked()
    return Checked(patches.side, len(patches.starts), straight, walked(work) if straight else -1)


def _packed_phases(
    work: Product, grid: Grid, sizes: Sizes, staged: bool, context: Context, label: str
) -> list[Phase]:
    arith = arithmetic(work.out.dtype)
    checked = _checked(work)
    kernel = product_kernel(work.lhs.dtype, work.rhs.dtype, work.out.dtype, sizes, checked)
    _, _, columns, inner = work.sizes
    width = sizes.tile.columns
    fields, lists = blocked(work, grid, sizes, staged, checked)
    if not grid.packed:
        return [Phase(kernel, written(fields, lists), tasks(fields), grid.cost, label)]
    entries, size = [], fields["panel_columns"] * inner * arith.size
    for loop in reversed(work.batch):
        entries.append((*loop[:4], size if loop.rhs else 0))
        size *= loop.extent if loop.rhs else 1
    fields["packed_slot"] = context.temporary(size)
    lists["batch"] = entries
    block = max(width, min(sizes.columns, PACKED // (inner * arith.size or 1)) // width * width)
    kept = [entry for entry in entries if entry[2]]
    before = {
        **fields, "packing": 1, "products": prod(entry[0] for entry in kept), "block_products": 1,
        "block_columns": block, "column_blocks": -(-columns // block), "row_blocks": 1,
        "rows": 0, "packed_columns": block, "staged": 0,
    }  # fmt: skip
    packing = written(before, {**lists, "batch": kept})
    cost = 0.25 * size / arith.size
    return [
        Phase(kernel, packing, tasks(before), cost, f"{label} packing"),
        Phase(kernel, written(fields, lists), tasks(fields), grid.cost, label),
    ]
