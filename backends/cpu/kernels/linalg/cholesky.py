"""Cholesky factors of positive definite matrices, from LU decompositions with scaled columns.

If L U = x for Hermitian x, then U is L^H with its rows multiplied by the diagonal of U, so L times
the square roots of the diagonal is the factor. No pivoting is needed.
"""

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
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
from shardir.backends.cpu.kernels.linalg.lu import FMAS_PER_NANOSECOND, batch_view, emit_blocked_lu
from shardir.backends.cpu.kernels.linalg.scratch_matrix import (
    MatrixCopy,
    ScratchMatrix,
    compute_arithmetic,
    define_substitute,
    define_update,
    has_contiguous_rows,
    load_vector,
    row_bytes,
    scratch_bytes,
    store_vector,
)
from shardir.ir.module import Op


def cholesky_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower Cholesky decompositions of matrices that fit into scratch memory."""
    (x,), (result,) = operands, results
    rows = x.shape[-1]
    if x.size == 0:
        return []
    if scratch_bytes(rows, rows, x.dtype) + row_bytes(rows) > SCRATCH_BYTES_PER_WORKER:
        return None
    views = [batch_view(x, 2), batch_view(result, 2)]
    count, planes = prod(x.shape[:-2]), compute_arithmetic(x.dtype).planes
    work = rows * (rows * rows / FMAS_PER_NANOSECOND * planes**2 + 20.0) + 50.0
    grid = batch_grid(views, context.workers)
    is_contiguous = has_contiguous_rows(x), has_contiguous_rows(result)
    name = (
        f"cholesky_{x.dtype}_{'n' if is_contiguous[0] else 's'}{'n' if is_contiguous[1] else 's'}"
    )
    kernel = grid_kernel(
        name, KernelForm(2, extras=6), partial(_emit_cholesky, x.dtype, is_contiguous)
    )
    extra = (rows, *x.strides[-2:], *result.strides[-2:], row_bytes(rows))
    return [grid.phase(kernel, count * work, context.workers, "cholesky", extra)]


def _emit_cholesky(
    dtype: str, is_contiguous: tuple[bool, bool], f: LLVMFunction, block: GridBlock
) -> None:
    define_update(f.module, dtype)
    define_substitute(f.module, dtype, unit=True)
    numbers = compute_arithmetic(dtype)
    rows, *steps, row_step = map(block.extra, range(6))
    matrix = ScratchMatrix(block.scratch, row_step, rows * row_step)
    roots = f.offset(block.scratch, rows * row_step * numbers.planes)
    with f.loop(0, block.columns) as which:
        source, target = (
            f.offset(address, which * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        MatrixCopy(f, dtype, is_contiguous[0]).load_matrix(source, steps[:2], rows, rows, matrix)
        with f.loop(0, rows) as i:
            with f.loop(0, i) as j:
                lower = load_vector(f, matrix.at(i, j), numbers, "double")
                store_vector(
                    f, [lower[0], *(-part for part in lower[1:])], matrix.at(j, i), numbers
                )
            for part in matrix.at(i, i).planes(numbers)[1:]:
                f.store(f.value(0.0, "double"), part, 8)
        emit_blocked_lu(f, numbers, matrix, rows, rows)
        definite = f.variable("i1", 1)
        with f.loop(0, rows) as k:
            pivot = load_vector(f, matrix.at(k, k), numbers, "double")[0]
            definite.set(definite.get() & pivot.is_("ogt", 0.0))
            f.store(f.intrinsic("sqrt", pivot), f.offset(roots, k, "double"), 8)
        # A single pivot that is not positive means that no factor exists.
        nan_or_zero = f.select(definite.get(), f.value(0.0, "double"), f.value(np.nan, "double"))
        with f.loop(0, rows) as i:
            _emit_scaled_row(f, dtype, matrix, roots, i, rows, nan_or_zero)
        MatrixCopy(f, dtype, is_contiguous[1]).store_matrix(matrix, rows, rows, target, steps[2:])


def _emit_scaled_row(
    f: LLVMFunction,
    dtype: str,
    matrix: ScratchMatrix,
    roots: LLVMValue,
    i: LLVMValue,
    rows: LLVMValue,
    nan_or_zero: LLVMValue,
) -> None:
    """Scale a row of the factor; `nan_or_zero` is NaN if there is no factor."""
    numbers = compute_arithmetic(dtype)
    with f.loop(0, i) as j:
        root = f.load(f.offset(roots, j, "double"), "double", 8)
        below = load_vector(f, matrix.at(i, j), numbers, "double")
        store_vector(f, [part * root + nan_or_zero for part in below], matrix.at(i, j), numbers)
    zero = [nan_or_zero] * (numbers.planes - 1)
    root = f.load(f.offset(roots, i, "double"), "double", 8)
    store_vector(f, [root + nan_or_zero, *zero], matrix.at(i, i), numbers)
    with f.loop(i + 1, rows) as j:
        store_vector(f, [nan_or_zero, *zero], matrix.at(i, j), numbers)


RULES: dict[str, Rule] = {"cholesky": cholesky_rule}
