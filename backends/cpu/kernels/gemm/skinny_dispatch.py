"""Dispatch of small and skinny products to kernels that do not pack their operands.

The kernels are `unpacked_gemm`, `inner_product`, `skinny_gemm` and `unrolled_batched`. If the
strides suit none of them, a small right operand is copied first, or a small result afterwards
(`operand_copies`).
"""

from math import ceil, gcd, prod

from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES, PAGE_BYTES, HostDescription
from shardir.backends.cpu.kernel_api import Kernel, LoweringContext, Phase, choose_task_count
from shardir.backends.cpu.kernels.gemm.inner_product import inner_product_kernel
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct
from shardir.backends.cpu.kernels.gemm.operand_copies import (
    lower_with_result_copy,
    lower_with_rhs_copy,
    order_for_few_columns,
    order_for_strided_columns,
    order_for_strided_steps,
    vector_arithmetic_of,
)
from shardir.backends.cpu.kernels.gemm.product_record import encode_record
from shardir.backends.cpu.kernels.gemm.record_builder import count_tasks, describe_product, round_up
from shardir.backends.cpu.kernels.gemm.skinny_gemm import skinny_gemm_kernel
from shardir.backends.cpu.kernels.gemm.task_grid import TaskGrid
from shardir.backends.cpu.kernels.gemm.tuning import (
    CACHED_RHS_BYTES,
    L1_WAYS,
    L2_WAYS,
    MAX_CACHED_RHS_BYTES,
    MAX_INNER_PRODUCT_COLUMNS,
    MAX_LHS_ELEMENTS,
    MAX_PREFETCHED_ROW_BYTES,
    MAX_REWIDENED_RHS_BYTES,
    MAX_UNPACKED_ROWS,
    MAX_UNROLLED_STEPS,
    MIN_INNER_PRODUCT_STEPS,
    MIN_MEMORY_RHS_BYTES,
    MIN_READ_BYTES,
    MIN_READ_PIECES,
    MIN_STREAMED_RHS_BYTES,
    MIN_UNROLLED_PRODUCTS,
    READ_BYTES,
    RELATIVE_COST_BY_WIDTH,
    SKINNY_ROWS,
    STRIDED_LHS_CACHED_RHS_BYTES,
)
from shardir.backends.cpu.kernels.gemm.unpacked_gemm import unpacked_gemm_kernel
from shardir.backends.cpu.kernels.gemm.unrolled_batched import unrolled_batched_kernel
from shardir.ir.dtypes import NARROW_FLOATS


def lower_skinny(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    """Return the phases; none if the product should be packed."""
    work = _split_off_batch(work)
    transposed = work.transpose()
    return (
        _lower_unrolled(work, context, label)
        or _lower_unrolled(transposed, context, label)
        or _lower_inner_product(work, context, label)
        or lower_with_rhs_copy(work, order_for_few_columns, _lower_inner_product, context, label)
        or lower_with_rhs_copy(
            transposed, order_for_few_columns, _lower_inner_product, context, label
        )
        or lower_with_result_copy(work, _lower_unpacked, context, label)
        or lower_with_result_copy(transposed, _lower_unpacked, context, label)
        or _lower_unpacked(work, context, label)
        or _lower_unpacked(transposed, context, label)
        or lower_with_rhs_copy(work, order_for_strided_columns, _lower_unpacked, context, label)
        or lower_with_rhs_copy(
            transposed, order_for_strided_columns, _lower_unpacked, context, label
        )
        or lower_with_rhs_copy(work, order_for_strided_steps, _lower_inner_product, context, label)
    )


def _split_off_batch(work: MatrixProduct) -> MatrixProduct:
    """Turn all but the innermost loop of rows, or of columns, of a vector-matrix product into batch
    loops."""
    if work.patches:
        return work
    if work.sizes[2] == 1 and len(work.rows) > 1:
        return work._replace(batch=(*work.batch, *work.rows[:-1]), rows=work.rows[-1:])
    if work.sizes[1] == 1 and len(work.columns) > 1:
        return work._replace(batch=(*work.batch, *work.columns[:-1]), columns=work.columns[-1:])
    return work


def _is_supported(work: MatrixProduct) -> bool:
    """Return whether the kernels that do not pack support the product: at most one loop of each
    kind, and operands of one element type that can be widened on load."""
    return (
        not work.patches
        and work.lhs.dtype == work.rhs.dtype
        and vector_arithmetic_of(work).is_supported()
        and max(map(len, (work.rows, work.columns, work.inner))) <= 1
    )


def _lower_unrolled(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    """Return the phases of many products of few elements."""
    batch, rows, columns, inner = work.sizes
    if (
        batch < MIN_UNROLLED_PRODUCTS
        or not _is_supported(work)
        or not 0 < rows * inner <= MAX_LHS_ELEMENTS
    ):
        return []
    kind, item = vector_arithmetic_of(work), work.lhs.itemsize
    access = "columns" if columns == 1 or work.columns[0].rhs == item else "gather"
    if columns == 1 and inner > 1:
        access = "steps"
        fits = work.inner[0][1:3] == (item, item) and inner <= kind.lanes
    else:
        fits = (
            inner <= MAX_UNROLLED_STEPS
            and columns <= kind.lanes
            and has_contiguous_columns(work, work.out.itemsize)
        )
    if not fits or (access == "gather" and (kind.planes > 1 or columns * inner > MAX_LHS_ELEMENTS)):
        return []
    kernel = unrolled_batched_kernel(kind, rows, columns, inner, access)
    return unpacked_phases(work, kernel, (rows, columns), context, label)


def _lower_inner_product(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    """Return the phases as inner products, if K steps are contiguous and columns, or rows, are
    few."""
    if work.sizes[2] > work.sizes[1]:
        work = work.transpose()
    _, rows, columns, inner = work.sizes
    kind, item = vector_arithmetic_of(work), work.lhs.itemsize
    if not (
        _is_supported(work)
        and columns * kind.planes <= MAX_INNER_PRODUCT_COLUMNS
        and inner >= MIN_INNER_PRODUCT_STEPS
        and work.inner[0][1:3] == (item, item)
    ):
        return []
    # Use as many accumulators as there are registers, minus those of the operands.
    widest = (6 if work.machine.has_many_registers else 3) // kind.planes
    width = ceil(columns / ceil(columns / widest))
    most = _accumulator_registers(work.machine) // (width * kind.planes)
    height = {1: 8, 2: 4}.get(columns * kind.planes, most)
    height = min(rows, height, 8)
    kernel = inner_product_kernel(kind, height, width, columns)
    # Groups do not depend on the number of tasks, since the summation order differs between groups.
    return unpacked_phases(work, kernel, (height, columns), context, label)


def is_streamed(work: MatrixProduct) -> bool:
    """Return whether a few rows are multiplied with a large matrix that is streamed from memory."""
    _, rows, columns, inner = work.sizes
    item = work.out.itemsize
    return (
        _is_supported(work)
        and work.lhs.dtype == work.out.dtype
        and work.out.dtype not in NARROW_FLOATS  # `skinny_gemm` accumulates in the result.
        and rows <= SKINNY_ROWS
        and columns > 1
        and work.columns[0].rhs == work.columns[0].out == item
        and inner * columns * item
        >= (MIN_STREAMED_RHS_BYTES if rows == 1 else MIN_MEMORY_RHS_BYTES)
    )


def _lower_unpacked(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    """Return the phases without packing, if rows or columns are few or the right operand is
    small."""
    batch, rows, columns, inner = work.sizes
    if not (_is_supported(work) and has_contiguous_columns(work, work.out.itemsize)):
        return []
    kind, item = vector_arithmetic_of(work), work.rhs.itemsize
    if work.columns and work.columns[0].rhs != item:
        return []
    if columns == 1 < rows and work.rows[0].lhs == item and work.rows[0].out == work.out.itemsize:
        return []  # Contiguous rows are better used as columns of the transposed product.
    lanes = kind.lanes
    if is_streamed(work):
        kernel = skinny_gemm_kernel(kind, rows)
        pieces = 1 if batch >= context.workers else MIN_READ_PIECES
        run = min(READ_BYTES // item, max(MIN_READ_BYTES // item, ceil(columns / pieces)))
        return unpacked_phases(work, kernel, (rows, round_up(run, lanes)), context, label)
    near = inner * columns * item <= max_cached_rhs_bytes(work)
    if not (rows <= SKINNY_ROWS or columns <= lanes or near or _is_rereading_cheaper(work)):
        return []
    vectors, last = ceil(columns / lanes), 0
    if rows == 1:
        height, width = 1, 8 // kind.planes
    else:
        width = min(RELATIVE_COST_BY_WIDTH, key=lambda n: (_relative_width_cost(vectors, n), -n))
        last = vectors % width
        # Accumulators and operands must fit the registers.
        most = next(
            (n for n in (8, 4) if n * width * kind.planes <= _accumulator_registers(work.machine)),
            2,
        )
        height = min(most, 1 << (rows - 1).bit_length())
        if height < rows <= 2 * height:  # Two tiles of the same height.
            height = ceil(rows / 2)
    width = min(width, vectors)
    # A step of one vector of columns is too short for additional prefetches.
    ahead = width > 1 and should_prefetch_rows(work, height)
    kernel = unpacked_gemm_kernel(kind, height, width, ahead, last)
    step = width * lanes
    return unpacked_phases(work, kernel, (8, step * ceil(256 / (step * item))), context, label)


def _relative_width_cost(vectors: int, width: int) -> float:
    """Return the relative cost of `vectors` vectors of columns in tiles of `width`; the remainder
    is one narrower tile."""
    last = vectors % width
    return (vectors - last) * RELATIVE_COST_BY_WIDTH[width] + (
        last * RELATIVE_COST_BY_WIDTH[last] if last else 0.0
    )


def _is_rereading_cheaper(work: MatrixProduct) -> bool:
    """Return whether there are too few rows to amortize packing a right operand that exceeds the L2
    cache: a strip of its columns must fit the sets of the L2 cache, unless it is read only
    twice."""
    _, rows, columns, inner = work.sizes
    item, second = work.rhs.itemsize, work.machine.l2_bytes
    read = inner * columns * item * prod(loop.extent for loop in work.batch if loop.rhs)
    if (
        item < vector_arithmetic_of(work).arith.size
        or not work.inner
        or read >= MIN_MEMORY_RHS_BYTES
    ):
        return False  # Strips are slow to read from memory.
    if rows <= 2 * SKINNY_ROWS:
        return True
    strip = max(RELATIVE_COST_BY_WIDTH) * vector_arithmetic_of(work).lanes * item
    address_step = gcd(work.inner[0].rhs, second // L2_WAYS)
    return (
        rows <= MAX_UNPACKED_ROWS
        and work.inner[0].lhs == item
        and inner * address_step <= second
        and inner * strip <= second // 2
    )


def max_cached_rhs_bytes(work: MatrixProduct) -> int:
    """Return the maximum bytes of a right operand that is reread for each tile rather than
    packed."""
    _, rows, columns, _ = work.sizes
    item = work.rhs.itemsize
    if item < vector_arithmetic_of(work).arith.size:
        return MAX_REWIDENED_RHS_BYTES
    if not work.inner:
        return CACHED_RHS_BYTES
    if work.inner[0].lhs != item:
        return STRIDED_LHS_CACHED_RHS_BYTES
    if rows < 2 * columns or abs(work.inner[0].rhs) >= PAGE_BYTES:
        return CACHED_RHS_BYTES
    return max(CACHED_RHS_BYTES, min(MAX_CACHED_RHS_BYTES, 3 * work.machine.l2_bytes // 4))


def should_prefetch_rows(work: MatrixProduct, height: int) -> bool:
    """Return whether to prefetch the next rows while some are computed: both must fit the sets of
    the L1 cache, which lines at large power-of-two distances share."""
    _, rows, columns, _ = work.sizes
    item = work.out.itemsize
    if not rows > height > 1 or columns * item > MAX_PREFETCHED_ROW_BYTES:
        return False
    if not work.inner or work.inner[0].lhs != item:
        return False
    way = work.machine.l1_bytes // L1_WAYS
    places = {number * work.rows[0].lhs % way // CACHE_LINE_BYTES for number in range(2 * height)}
    return 2 * height <= len(places) * L1_WAYS // 2


def _accumulator_registers(machine: HostDescription) -> int:
    """Return the number of vector registers for accumulators."""
    return 24 if machine.has_many_registers else 12


def unpacked_phases(
    work: MatrixProduct,
    kernel: Kernel,
    steps: tuple[int, int],
    context: LoweringContext,
    label: str,
) -> list[Phase]:
    """Return the phase of a kernel that does not pack; blocks are multiples of `steps` rows and
    columns."""
    batch, rows, columns, inner = work.sizes
    item = work.out.itemsize
    operations = 2.0 * batch * rows * columns * inner
    arithmetic_ns = operations / operations_per_ns(item, work.arithmetic.planes, work.machine)
    touched = batch * item * (inner * (rows + columns) + rows * columns) / 20.0
    cost = max(arithmetic_ns, touched) + 20.0 * batch
    task_count = choose_task_count(cost, context.workers)
    products = -(-batch // min(batch, task_count))
    task_count = -(-task_count // -(-batch // products))
    grid = TaskGrid(rows, columns, False, cost, products)
    if task_count > 1 and columns >= rows:
        grid = grid._replace(columns=round_up(ceil(columns / task_count), steps[1]))
    elif task_count > 1:
        grid = grid._replace(rows=round_up(ceil(rows / task_count), steps[0]))
    fields, lists = describe_product(work, grid)
    return [Phase(kernel, encode_record(fields, lists), count_tasks(fields), cost, label)]


def operations_per_ns(size: int, planes: int, machine: HostDescription) -> float:
    """Return an estimate of multiplications and additions per nanosecond, for elements of `size`
    bytes that consist of `planes` real numbers (2 for complex elements)."""
    # A product of complex elements takes four products of real numbers.
    return 7.0 * machine.vector_bytes / size / planes


def has_contiguous_columns(work: MatrixProduct, item: int) -> bool:
    """Return whether the columns of the result are contiguous."""
    return not work.columns or work.columns[-1].out == item
