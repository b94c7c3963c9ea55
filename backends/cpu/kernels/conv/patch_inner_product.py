"""Lowers products of patches with few columns to inner-product kernels."""

from math import prod

from shardir.backends.cpu.kernel_api import LoweringContext, Phase
from shardir.backends.cpu.kernels.conv.implicit_gemm_lhs import (
    find_run_dim,
    has_readable_runs,
    is_lhs_readable_in_place,
)
from shardir.backends.cpu.kernels.conv.patch_inner_product_kernel import patch_inner_product_kernel
from shardir.backends.cpu.kernels.conv.tuning import (
    MAX_COLUMN_LANE_FRACTION,
    MAX_COPIED_LINE_BYTES,
    MAX_RUN_STEPS,
    MAX_RUNS,
    MAX_TILE_ROWS,
)
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct
from shardir.backends.cpu.kernels.gemm.operand_copies import vector_arithmetic_of, with_rhs_copy
from shardir.backends.cpu.kernels.gemm.skinny_dispatch import unpacked_phases
from shardir.ir.dtypes import NARROW_FLOATS


def lower_patch_inner_product(
    work: MatrixProduct, context: LoweringContext, label: str
) -> list[Phase]:
    """Return the phases; none if there are too many columns or the K steps are not contiguous."""
    columns, item, kind = work.sizes[2], work.out.itemsize, vector_arithmetic_of(work)
    few = columns <= MAX_COLUMN_LANE_FRACTION * kind.lanes
    if not few or not _are_runs_readable(work):
        return []
    before: list[Phase] = []
    if work.inner[-1].rhs != item or len(work.columns) > 1:
        batch_loops = [loop for loop in work.batch if loop.rhs]
        loops = [*batch_loops, *work.columns, *work.inner]
        # Loops that are adjacent in the copy are merged, so its runs may be longer.
        if not _within_bounds(with_rhs_copy(work, loops, 0)[0]):
            return []
        slot = context.temporary(prod(loop.extent for loop in loops) * item)
        work, source, target = with_rhs_copy(work, loops, slot)
        before = copy_phases(source, target, context)
    elif not _within_bounds(work):
        return []
    run = work.inner[-1].extent
    registers = 24 if work.machine.has_many_registers else 12
    height = max(1, min(MAX_TILE_ROWS, registers // columns))
    checks = len(work.patches.starts) if work.patches else 0
    kernel = patch_inner_product_kernel(
        kind, height, columns, run, checks, find_run_dim(work) if checks else -1
    )
    return [*before, *unpacked_phases(work, kernel, (height, columns), context, label)]


def _are_runs_readable(work: MatrixProduct) -> bool:
    """Return whether the kernel reads the runs of patches: those of half precision are not copied
    if they are partly outside of the image."""
    return work.lhs.dtype == work.rhs.dtype == work.out.dtype and (
        is_lhs_readable_in_place(work)
        or (work.out.dtype in NARROW_FLOATS and has_readable_runs(work) and find_run_dim(work) < 0)
    )


def _within_bounds(work: MatrixProduct) -> bool:
    """Return whether the tables can hold the runs, and caches the copied lines."""
    *segments, run = (loop.extent for loop in work.inner)
    if run > MAX_RUN_STEPS or prod(segments) > MAX_RUNS:
        return False
    return (
        find_run_dim(work) < 0
        or MAX_TILE_ROWS * work.sizes[3] * work.out.itemsize <= MAX_COPIED_LINE_BYTES
    )
