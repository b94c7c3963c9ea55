"""Dispatch of small and skinny products to kernels that do not pack their operands.

The kernels are `unpacked_gemm`, `inner_product`, `skinny_gemm` and `unrolled_batched`. If the
strides suit none of them, a small right operand is copied first, or a small result afterwards
(`operand_copies`).
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
"""Maximum bytes of a right operand that stays in cache while rows are computed. The limit is three
quarters of the L2 cache, clamped to these two values, if many rows amortize the first read and
steps are less than a page apart; otherwise it is the first value."""
PAGE = 4096
NEARER = 128 << 10
"""Maximum bytes of the right operand if the K steps of the left operand are not contiguous."""
NARROW = 640
"""Maximum bytes of columns for which rows are computed so fast that they must be prefetched."""
WAYS = 8
"""Associativity of the L1 cache."""
SECOND_WAYS = 16
"""Associativity of the L2 cache."""
FAR = 768 << 10
"""Minimum bytes of a right operand that does not fit the L2 cache."""
FARTHER = 12 << 20
"""Minimum bytes of a right operand that is read from memory: several rows are computed per pass."""
RUN, LEAST_RUN, PIECES = 16384, 1024, 4
"""Target and minimum bytes of a contiguous read; the number of pieces to split columns into."""
WIDENED = 16 << 10
"""Maximum bytes of a right operand whose elements are widened again for each few rows."""
SHORT = 4
"""Minimum K steps of an inner product that are accumulated in vectors."""
MANY = 64
"""Minimum number of products that justify a kernel for their exact size."""
SOME_ROWS = 128
"""Maximum rows that do not amortize packing a right operand."""
FEW_COLUMNS = 12
WIDTHS = {1: 1.2, 2: 1.02, 3: 1.0}
"""Vectors of columns per tile, and the relative cost of each: a loaded element of the left operand
is used for all of them."""
TASK = 20_000.0
"""Minimum duration of a task in nanoseconds."""


def narrow(work: Product, context: Context, label: str) -> list[Phase]:
    """Return the phases; none if the product should be packed."""
    work = _parted(work)
    transposed = work.turned()
    return (
        _tiny(work, context, label)
        or _tiny(transposed, context, label)
        or _along(work, context, label)
        or copied(work, few_columns, _along, context, label)
        or copied(transposed, few_columns, _along, context, label)
        or stored_after(work, _direct, context, label)
        or stored_after(transposed, _direct, context, label)
        or _direct(work, context, label)
        or _direct(transposed, context, label)
        or copied(work, columns_apart, _direct, context, label)
        or copied(transposed, columns_apart, _direct, context, label)
        or copied(work, steps_apart, _along, context, label)
    )


def _parted(work: Product) -> Product:
    """Turn all but the innermost loop of rows, or of columns, of a vector-matrix product into batch
    loops."""
    if work.patches:
        return work
    if work.sizes[2] == 1 and len(work.rows) > 1:
        return work._replace(batch=(*work.batch, *work.rows[:-1]), rows=work.rows[-1:])
    if work.sizes[1] == 1 and len(work.columns) > 1:
        return work._replace(batch=(*work.batch, *work.columns[:-1]), columns=work.columns[-1:])
    return work


def _fits(work: Product) -> bool:
    """Return whether the kernels that do not pack support the product: at most one loop of each
    kind, and operands of one element type that can be widened on load."""
    return (
        not work.patches
        and work.lhs.dtype == work.rhs.dtype
        and kind_of(work).possible()
        and max(map(len, (work.rows, work.columns, work.inner))) <= 1
    )


def _tiny(work: Product, context: Context, label: str) -> list[Phase]:
    """Return the phases of many products of few elements."""
    batch, rows, columns, inner = work.sizes
    if batch < MANY or not _fits(work) or not 0 < rows * inner <= MOST:
        return []
    kind, item = kind_of(work), work.lhs.itemsize
    access = "across" if columns == 1 or work.columns[0].rhs == item else "apart"
    if columns == 1 and inner > 1:
        access = "along"
        fits = work.inner[0][1:3] == (item, item) and inner <= kind.lanes
    else:
        fits = inner <= STEPS and columns <= kind.lanes and stored_at_once(work, work.out.itemsize)
    if not fits or (access == "apart" and (kind.planes > 1 or columns * inner > MOST)):
        return []
    kernel = tiny_kernel(kind, rows, columns, inner, access)
    return spread(work, kernel, (rows, columns), context, label)


def _along(work: Product, context: Context, label: str) -> list[Phase]:
    """Return the phases as inner products, if K steps are contiguous and columns, or rows, are
    few."""
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
    # Use as many accumulators as there are registers, minus those of the operands.
    widest = (6 if work.machine.has_many_registers else 3) // kind.planes
    width = ceil(columns / ceil(columns / widest))
    most = _registers(work.machine) // (width * kind.planes)
    height = {1: 8, 2: 4}.get(columns * kind.planes, most)
    height = min(rows, height, 8)
    kernel = along_kernel(kind, height, width, columns)
    # Groups do not depend on the number of tasks, since the summation order differs between groups.
    return spread(work, kernel, (height, columns), context, label)


def swept(work: Product) -> bool:
    """Return whether a few rows are multiplied with a large matrix that is streamed from memory."""
    _, rows, columns, inner = work.sizes
    item = work.out.itemsize
    return (
        _fits(work)
        and work.lhs.dtype == work.out.dtype
        and work.out.dtype not in ("f16", "bf16")  # `skinny_gemm` accumulates in the result.
        and rows <= FEW_ROWS
        and columns > 1
        and work.columns[0].rhs == work.columns[0].out == item
        and inner * columns * item >= (FAR if rows == 1 else FARTHER)
    )


def _direct(work: Product, context: Context, label: str) -> list[Phase]:
    """Return the phases without packing, if rows or columns are few or the right operand is
    small."""
    batch, rows, columns, inner = work.sizes
    if not (_fits(work) and stored_at_once(work, work.out.itemsize)):
        return []
    kind, item = kind_of(work), work.rhs.itemsize
    if work.columns and work.columns[0].rhs != item:
        return []
    if columns == 1 < rows and work.rows[0].lhs == item and work.rows[0].out == work.out.itemsize:
        return []  # Contiguous rows are better used as columns of the transposed product.
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
        # Accumulators and operands must fit the registers.
        most = next((n for n in (8, 4) if n * width * kind.planes <= _registers(work.machine)), 2)
        height = min(most, 1 << (rows - 1).bit_length())
        if height < rows <= 2 * height:  # Two tiles of the same height.
            height = ceil(rows / 2)
    width = min(width, vectors)
    # A step of one vector of columns is too short for additional prefetches.
    ahead = width > 1 and asked_for(work, height)
    kernel = direct_kernel(kind, height, width, ahead, last)
    step = width * lanes
    return spread(work, kernel, (8, step * ceil(256 / (step * item))), context, label)


def _cost(vectors: int, width: int) -> float:
    """Return the relative cost of `vectors` vectors of columns in tiles of `width`; the remainder
    is one narrower tile."""
    last = vectors % width
    return (vectors - last) * WIDTHS[width] + (last * WIDTHS[last] if last else 0.0)


def _worth_reading(work: Product) -> bool:
    """Return whether there are too few rows to amortize packing a right operand that exceeds the L2
    cache: a strip of its columns must fit the sets of the L2 cache, unless it is read only
    twice."""
    _, rows, columns, inner = work.sizes
    item, second = work.rhs.itemsize, work.machine.l2_bytes
    read = inner * columns * item * prod(loop.extent for loop in work.batch if loop.rhs)
    if item < kind_of(work).arith.size or not work.inner or read >= FARTHER:
        return False  # Strips are slow to read from memory.
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
    """Return the maximum bytes of a right operand that is reread for each tile rather than
    packed."""
    _, rows, columns, _ = work.sizes
    item = work.rhs.itemsize
    if item < kind_of(work).arith.size:
        return WIDENED
    if not work.inner:
        return NEAR
    if work.inner[0].lhs != item:
        return NEARER
    if rows < 2 * columns or abs(work.inner[0].rhs) >= PAGE:
        return NEAR
    return max(NEAR, min(FARTHEST, 3 * work.machine.l2_bytes // 4))


def asked_for(work: Product, height: int) -> bool:
    """Return whether to prefetch the next rows while some are computed: both must fit the sets of
    the L1 cache, which lines at large power-of-two distances share."""
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
    """Return the number of vector registers for accumulators."""
    return 24 if machine.has_many_registers else 12


def spread(
    work: Product, kernel: Kernel, steps: tuple[int, int], context: Context, label: str
) -> list[Phase]:
    """Return the phase of a kernel that does not pack; blocks are multiples of `steps` rows and
    columns."""
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
    """Return an estimate of multiplications and additions per nanosecond for elements of `size`
    bytes."""
    return 7.0 * machine.vector_bytes / size


def stored_at_once(work: Product, item: int) -> bool:
    """Return whether the columns of the result are contiguous."""
    return not work.columns or work.columns[-1].out == item
