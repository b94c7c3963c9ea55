"""LU decompositions of batches, in blocks of columns.

A block is factored column by column with partial pivoting; then the part right of it becomes rows
of U, and the trailing matrix is updated by their product.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, vector_type
from shardir.backends.cpu.kernel_api import (
    SCRATCH_BYTES_PER_WORKER,
    BufferView,
    LoweringContext,
    Phase,
    Rule,
)
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    GridBlock,
    KernelForm,
    batch_grid,
    grid_kernel,
)
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic
from shardir.backends.cpu.kernels.linalg.scratch_matrix import (
    BLOCK_COLUMNS,
    MatrixCopy,
    ScratchMatrix,
    complex_multiply,
    complex_reciprocal,
    compute_arithmetic,
    define_substitute,
    define_update,
    has_contiguous_rows,
    load_vector,
    multiply_subtract,
    pivot_magnitude,
    row_bytes,
    scratch_bytes,
    splat_planes,
    store_vector,
)
from shardir.ir.module import Op

FMAS_PER_NANOSECOND = 8.0
"""Approximate multiply-adds per nanosecond."""


def batch_view(view: BufferView, dims: int) -> BufferView:
    """Return the view of the first elements of matrices or vectors of rank `dims`."""
    rank = len(view.shape) - dims
    return view._replace(shape=view.shape[:rank], strides=view.strides[:rank])


def lu_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower LU decompositions of matrices that fit into scratch memory."""
    (x,), (result, pivots, order) = operands, results
    rows, columns = x.shape[-2:]
    if order.size == 0:
        return []
    if scratch_bytes(rows, columns, x.dtype) > SCRATCH_BYTES_PER_WORKER:
        return None
    views = [batch_view(x, 2), batch_view(pivots, 1), batch_view(order, 1), batch_view(result, 2)]
    count = prod(x.shape[:-2])
    planes = compute_arithmetic(x.dtype).planes
    work = max(rows, columns) * (rows * columns / FMAS_PER_NANOSECOND * planes**2 + 20.0) + 50.0
    grid = batch_grid(views, context.workers)
    is_contiguous = has_contiguous_rows(x), has_contiguous_rows(result)
    name = f"lu_{x.dtype}_{'n' if is_contiguous[0] else 's'}{'n' if is_contiguous[1] else 's'}"
    kernel = grid_kernel(name, KernelForm(4, extras=9), partial(_emit_lu, x.dtype, is_contiguous))
    extra = (rows, columns, *x.strides[-2:], *result.strides[-2:], pivots.strides[-1],
             order.strides[-1], row_bytes(columns))  # fmt: skip
    return [grid.phase(kernel, count * work, context.workers, "lu", extra)]


def _emit_lu(
    dtype: str, is_contiguous: tuple[bool, bool], f: LLVMFunction, block: GridBlock
) -> None:
    define_update(f.module, dtype)
    define_substitute(f.module, dtype, unit=True)
    numbers = compute_arithmetic(dtype)
    rows, columns, *steps, pivot_step, order_step, row_step = map(block.extra, range(9))
    matrix = ScratchMatrix(block.scratch, row_step, rows * row_step)
    filled = (columns + (BLOCK_COLUMNS - 1)) & -BLOCK_COLUMNS
    with f.loop(0, block.columns) as which:
        source, pivots, order, target = (
            f.offset(address, which * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        MatrixCopy(f, dtype, is_contiguous[0]).load_matrix(source, steps[:2], rows, columns, matrix)
        with f.loop(0, rows) as i:
            f.store(i.to("i32", "trunc"), f.offset(order, i * order_step), 4)

        def pivot_column(
            k: LLVMValue, pivots: LLVMValue = pivots, order: LLVMValue = order
        ) -> None:
            best = _emit_pivot_search(f, numbers, matrix, k, rows)
            f.store(best.to("i32", "trunc"), f.offset(pivots, k * pivot_step), 4)
            with f.when(best.is_("ne", k)):
                _emit_row_swap(f, numbers, matrix, k, best, filled)
                ends = [f.offset(order, row * order_step) for row in (k, best)]
                one, other = (f.load(end, "i32", 4) for end in ends)
                f.store(other, ends[0], 4)
                f.store(one, ends[1], 4)

        emit_blocked_lu(f, numbers, matrix, rows, columns, pivot_column)
        MatrixCopy(f, dtype, is_contiguous[1]).store_matrix(
            matrix, rows, columns, target, steps[2:]
        )


def emit_blocked_lu(
    f: LLVMFunction,
    numbers: Arithmetic,
    matrix: ScratchMatrix,
    rows: LLVMValue,
    columns: LLVMValue,
    before: Callable[[LLVMValue], None] | None = None,
) -> None:
    """Emit an in-place LU decomposition; `before` chooses and swaps the pivot of each column."""
    pivot_count = f.umin(rows, columns)
    with f.loop(0, pivot_count, BLOCK_COLUMNS) as first:
        height = f.umin(pivot_count - first, BLOCK_COLUMNS)
        with f.loop(first, first + height) as k:
            if before:
                before(k)
            _emit_column_elimination(f, numbers, matrix, first, k, rows)
        beyond = first + BLOCK_COLUMNS
        with f.when(beyond.is_("slt", columns)):
            right, corner = matrix.at(first, beyond), matrix.at(first, first)
            f.call("substitute", [height, columns - beyond, *corner, *right])
            with f.when(beyond.is_("slt", rows)):
                below, rest = matrix.at(beyond, first), matrix.at(beyond, beyond)
                f.call("update", [rows - beyond, columns - beyond, *below, *right, *rest])


def _emit_pivot_search(
    f: LLVMFunction, numbers: Arithmetic, matrix: ScratchMatrix, k: LLVMValue, rows: LLVMValue
) -> LLVMValue:
    """Return the row from `k` on with the largest element of column `k`: the first NaN, if any."""
    largest = f.variable(
        "double", pivot_magnitude(f, load_vector(f, matrix.at(k, k), numbers, "double"))
    )
    best = f.variable("i64", k)
    with f.loop(k + 1, rows) as i:
        here = pivot_magnitude(f, load_vector(f, matrix.at(i, k), numbers, "double"))
        now = largest.get()
        better = here.is_("ugt", now) & now.is_("ord", 0.0)
        largest.set(f.select(better, here, now))
        best.set(f.select(better, i, best.get()))
    return best.get()


def _emit_row_swap(
    f: LLVMFunction,
    numbers: Arithmetic,
    matrix: ScratchMatrix,
    k: LLVMValue,
    best: LLVMValue,
    columns: LLVMValue,
) -> None:
    with f.loop(0, columns, BLOCK_COLUMNS) as j:
        one, other = matrix.at(k, j), matrix.at(best, j)
        old, new = load_vector(f, one, numbers), load_vector(f, other, numbers)
        store_vector(f, new, one, numbers)
        store_vector(f, old, other, numbers)


def _emit_column_elimination(
    f: LLVMFunction,
    numbers: Arithmetic,
    matrix: ScratchMatrix,
    first: LLVMValue,
    k: LLVMValue,
    rows: LLVMValue,
) -> None:
    """Eliminate column `k` from the rows below it, in the block that begins at column `first`."""
    step = k - first
    whole = vector_type("i64", BLOCK_COLUMNS)
    lane_text = f"<{', '.join(f'i64 {lane}' for lane in range(BLOCK_COLUMNS))}>"
    lanes = LLVMValue(lane_text, whole, f)
    here, after = (lanes.is_(how, f.splat(step, BLOCK_COLUMNS)) for how in ("eq", "sgt"))
    line = load_vector(f, matrix.at(k, first), numbers)
    pivot = load_vector(f, matrix.at(k, k), numbers, "double")
    # If the largest element is zero, all are, and stay zero.
    zero = pivot[0].is_("oeq", 0.0)
    for part in pivot[1:]:
        zero = zero & part.is_("oeq", 0.0)
    pivot[0] = f.select(zero, 1.0, pivot[0])
    by = complex_reciprocal(f, pivot) if numbers.planes == 2 else pivot
    with f.loop(k + 1, rows) as i:
        there = matrix.at(i, first)
        old = load_vector(f, there, numbers)
        below = load_vector(f, there.at(0, step), numbers, "double")
        share = complex_multiply(below, by) if numbers.planes == 2 else [below[0] / by[0]]
        shares = splat_planes(f, share)
        updated = multiply_subtract(f, numbers, shares, line, old)
        new = [
            f.select(after, a, f.select(here, b, c))
            for a, b, c in zip(updated, shares, old, strict=True)
        ]
        store_vector(f, new, there, numbers)


RULES: dict[str, Rule] = {"lu": lu_rule}
