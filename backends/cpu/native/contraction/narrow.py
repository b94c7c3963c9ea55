"""Small and narrow products, made where the operands lie: `direct`, `along`, `across`.

Of what lies badly for all of these, a small right operand is copied first, or a small result in the
end (`rearranged`).
"""

from math import ceil, gcd, prod

from shardir.backends.cpu.native.contraction.across import across_kernel
from shardir.backends.cpu.native.contraction.along import along_kernel
from shardir.backends.cpu.native.contraction.describing import described, padded, tasks
from shardir.backends.cpu.native.contraction.direct import direct_kernel
from shardir.backends.cpu.native.contraction.einsum import Product
from shardir.backends.cpu.native.contraction.grid import Grid
from shardir.backends.cpu.native.contraction.rearranged import (
    FEW_ROWS,
    columns_apart,
    copied,
    few_columns,
    kind_of,
    steps_apart,
    stored_after,
)
from shardir.backends.cpu.native.contraction.record import written
from shardir.backends.cpu.native.contraction.tile import LINE
from shardir.backends.cpu.native.contraction.tiny import MOST, STEPS, tiny_kernel
from shardir.backends.cpu.native.data import Context, Kernel, Phase
from shardir.backends.cpu.native.llvm.target import Machine

NEAR, FARTHEST = 384 << 10, 1 << 20
"""Bytes of a right operand that stays in a near cache while rows are made: if many rows make up for
reading it the first time, and steps are nearer to each other than a page, three quarters of the
second one, between these."""
PAGE = 4096
NEARER = 128 << 10
"""The same, where the left operand's steps are no neighbours and take much of the cache."""
NARROW = 640
"""Bytes of columns up to which rows pass so fast that they are to be asked for."""
WAYS = 8
"""Lines that have the same place in the nearest cache."""
SECOND_WAYS = 16
"""The same in the second one."""
FAR = 768 << 10
"""Bytes of a right operand that no near cache holds."""
FARTHER = 12 << 20
"""Bytes of one that is read from memory: some rows are made at once while it passes by."""
RUN, LEAST_RUN, PIECES = 16384, 1024, 4
"""Bytes that should be read at a time, as few as it takes to have some pieces."""
WIDENED = 16 << 10
"""Bytes of a right operand whose numbers are widened once for each few rows."""
SHORT = 4
"""Steps of a dot product from which on they are added at once."""
MANY = 64
"""Products that are worth a kernel for their size."""
SOME_ROWS = 128
"""Rows that do not make up for packing a right operand."""
FEW_COLUMNS = 12
WIDTHS = {1: 1.2, 2: 1.02, 3: 1.0}
"""Vectors of columns at a time, and what each of them takes then: a number of the left operand is
read for as many."""
TASK = 20_000.0
"""Nanoseconds that a task should take at least."""


def narrow(work: Product, context: Context, label: str) -> list[Phase]:
    """Its phases; none if it is to be packed."""
    work = _parted(work)
    turned = work.turned()
    return (
        _tiny(work, context, label)
        or _tiny(turned, context, label)
        or _along(work, context, label)
        or copied(work, few_columns, _along, context, label)
        or copied(turned, few_columns, _along, context, label)
        or stored_after(work, _direct, context, label)
        or stored_after(turned, _direct, context, label)
        or _direct(work, context, label)
        or _direct(turned, context, label)
        or copied(work, columns_apart, _direct, context, label)
        or copied(turned, columns_apart, _direct, context, label)
        or copied(work, steps_apart, _along, context, label)
    )


def _parted(work: Product) -> Product:
    """A vector times rows, or columns, of several loops: all but the innermost are a batch."""
    if work.patches:
        return work
    if work.sizes[2] == 1 and len(work.rows) > 1:
        return work._replace(batch=(*work.batch, *work.rows[:-1]), rows=work.rows[-1:])
    if work.sizes[1] == 1 and len(work.columns) > 1:
        return work._replace(batch=(*work.batch, *work.columns[:-1]), columns=work.columns[-1:])
    return work


def _fits(work: Product) -> bool:
    """Whether the kernels that do not pack can do it: one loop of each kind, one type of numbers
    that are widened as they are read."""
    return (
        not work.patches
        and work.lhs.dtype == work.rhs.dtype
        and kind_of(work).possible()
        and max(map(len, (work.rows, work.columns, work.inner))) <= 1
    )


def _tiny(work: Product, context: Context, label: str) -> list[Phase]:
    """Many products of few numbers."""
    batch, rows, columns, inner = work.sizes
    if batch < MANY or not _fits(work) or not 0 < rows * inner <= MOST:
        return []
    kind, item = kind_of(work), work.lhs.itemsize
    lying = "across" if columns == 1 or work.columns[0].rhs == item else "apart"
    if columns == 1 and inner > 1:
        lying = "along"
        fits = work.inner[0][1:3] == (item, item) and inner <= kind.lanes
    else:
        fits = inner <= STEPS and columns <= kind.lanes and stored_at_once(work, work.out.itemsize)
    if not fits or (lying == "apart" and (kind.planes > 1 or columns * inner > MOST)):
        return []
    kernel = tiny_kernel(kind, rows, columns, inner, lying)
    return spread(work, kernel, (rows, columns), context, label)


def _along(work: Product, context: Context, label: str) -> list[Phase]:
    """Dot products, if steps are neighbours and there are few columns, or few rows."""
    if work.sizes[2] > work.sizes[1]:
        work = work.turned()
    _, rows, columns, inner = work.sizes
    kind, item = kind_of(work), work.lhs.itemsize
    if not (
        _fits(work)
        and columns * kind.planes <= FEW_COLUMNS
        and inner >= SHORT
        and work.inner[0][1:3] == (item, item)
    ):
        return []
    # As many sums as there are registers, less those of what is multiplied.
    widest = (6 if work.machine.has_many_registers else 3) // kind.planes
    width = ceil(columns / ceil(columns / widest))
    most = _registers(work.machine) // (width * kind.planes)
    height = {1: 8, 2: 4}.get(columns * kind.planes, most)
    height = min(rows, height, 8)
    kernel = along_kernel(kind, height, width, columns)
    # Groups are the same for any number of tasks, since the order of sums differs between them.
    return spread(work, kernel, (height, columns), context, label)


def swept(work: Product) -> bool:
    """Whether a few rows are made while a large matrix passes by."""
    _, rows, columns, inner = work.sizes
    item = work.out.itemsize
    return (
        _fits(work)
        and work.lhs.dtype == work.out.dtype
        and work.out.dtype not in ("f16", "bf16")  # Results are summed where they lie.
        and rows <= FEW_ROWS
        and columns > 1
        and work.columns[0].rhs == work.columns[0].out == item
        and inner * columns * item >= (FAR if rows == 1 else FARTHER)
    )


def _direct(work: Product, context: Context, label: str) -> list[Phase]:
    """Rows and columns where they lie, if they are few or the right operand is small."""
    batch, rows, columns, inner = work.sizes
    if not (_fits(work) and stored_at_once(work, work.out.itemsize)):
        return []
    kind, item = kind_of(work), work.rhs.itemsize
    if work.columns and work.columns[0].rhs != item:
        return []
    if columns == 1 < rows and work.rows[0].lhs == item and work.rows[0].out == work.out.itemsize:
        return []  # Rows that are neighbours are better columns.
    lanes = kind.lanes
    if swept(work):
        kernel = across_kernel(kind, rows)
        pieces = 1 if batch >= context.workers else PIECES
        run = min(RUN // item, max(LEAST_RUN // item, ceil(columns / pieces)))
        return spread(work, kernel, (rows, padded(run, lanes)), context, label)
    near = inner * columns * item <= bytes_near(work)
    if not (rows <= FEW_ROWS or columns <= lanes or near or _worth_reading(work)):
        return []
    vectors, last = ceil(columns / lanes), 0
    if rows == 1:
        height, width = 1, 8 // kind.planes
    else:
        width = min(WIDTHS, key=lambda n: (_cost(vectors, n), -n))
        last = vectors % width
        # Sums, and what is multiplied, are to stay in the registers that there are.
        most = next((n for n in (8, 4) if n * width * kind.planes <= _registers(work.machine)), 2)
        height = min(most, 1 << (rows - 1).bit_length())
        if height < rows <= 2 * height:  # Two of the same height.
            height = ceil(rows / 2)
    width = min(width, vectors)
    # A step of a vector of columns is too short to ask for anything beside.
    ahead = width > 1 and asked_for(work, height)
    kernel = direct_kernel(kind, height, width, ahead, last)
    step = width * lanes
    return spread(work, kernel, (8, step * ceil(256 / (step * item))), context, label)


def _cost(vectors: int, width: int) -> float:
    """What so many vectors of columns take, that many at a time; those that are left are done in
    the end."""
    last = vectors % width
    return (vectors - last) * WIDTHS[width] + (last * WIDTHS[last] if last else 0.0)


def _worth_reading(work: Product) -> bool:
    """Whether rows are too few to make up for packing a right operand that no near cache holds:
    what a strip of its columns takes of the second cache must have places there, unless it is read
    but twice."""
    _, rows, columns, inner = work.sizes
    item, second = work.rhs.itemsize, work.machine.l2_bytes
    read = inner * columns * item * prod(loop.extent for loop in work.batch if loop.rhs)
    if item < kind_of(work).numbers.size or not work.inner or read >= FARTHER:
        return False  # Strips are slow to come from memory.
    if rows <= 2 * FEW_ROWS:
        return True
    strip = max(WIDTHS) * kind_of(work).lanes * item
    apart = gcd(work.inner[0].rhs, second // SECOND_WAYS)
    return (
        rows <= SOME_ROWS
        and work.inner[0].lhs == item
        and inner * apart <= second
        and inner * strip <= second // 2
    )


def bytes_near(work: Product) -> int:
    """Bytes of a right operand that are read over and over rather than packed once."""
    _, rows, columns, _ = work.sizes
    item = work.rhs.itemsize
    if item < kind_of(work).numbers.size:
        return WIDENED
    if not work.inner:
        return NEAR
    if work.inner[0].lhs != item:
        return NEARER
    if rows < 2 * columns or abs(work.inner[0].rhs) >= PAGE:
        return NEAR
    return max(NEAR, min(FARTHEST, 3 * work.machine.l2_bytes // 4))


def asked_for(work: Product, height: int) -> bool:
    """Whether to ask for the next rows while some are made: these and those must have places in
    the nearest cache, where lines that are far apart compete for the same ones."""
    _, rows, columns, _ = work.sizes
    item = work.out.itemsize
    if not rows > height > 1 or columns * item > NARROW:
        return False
    if not work.inner or work.inner[0].lhs != item:
        return False
    way = work.machine.l1_bytes // WAYS
    places = {number * work.rows[0].lhs % way // LINE for number in range(2 * height)}
    return 2 * height <= len(places) * WAYS // 2


def _registers(machine: Machine) -> int:
    """How many vector registers sums may take."""
    return 24 if machine.has_many_registers else 12


def spread(
    work: Product, kernel: Kernel, steps: tuple[int, int], context: Context, label: str
) -> list[Phase]:
    """Tasks of a kernel that packs nothing, of multiples of `steps` rows and columns."""
    batch, rows, columns, inner = work.sizes
    item = work.out.itemsize
    flops = 2.0 * batch * rows * columns * inner / rate(item, work.machine)
    touched = batch * item * (inner * (rows + columns) + rows * columns) / 20.0
    cost = max(flops, touched) + 20.0 * batch
    wanted = max(1, min(int(cost / TASK), 4 * context.workers))
    products = -(-batch // min(batch, wanted))
    wanted = -(-wanted // -(-batch // products))
    grid = Grid(rows, columns, False, cost, products)
    if wanted > 1 and columns >= rows:
        grid = grid._replace(columns=padded(ceil(columns / wanted), steps[1]))
    elif wanted > 1:
        grid = grid._replace(rows=padded(ceil(rows / wanted), steps[0]))
    fields, lists = described(work, grid)
    return [Phase(kernel, written(fields, lists), tasks(fields), cost, label)]


def rate(size: int, machine: Machine) -> float:
    """Products and sums a nanosecond, about, of numbers of so many bytes."""
    return 7.0 * machine.vector_bytes / size


def stored_at_once(work: Product, item: int) -> bool:
    """Whether columns of the result are neighbours."""
    return not work.columns or work.columns[-1].out == item
