"""Lowers products whose columns are positions of images in the NCHW layout: see `nchw_layout`."""

from shardir.backends.cpu.kernel_api import LoweringContext, Phase
from shardir.backends.cpu.kernels.conv.nchw_layout import are_columns_contiguous, find_nchw_layout
from shardir.backends.cpu.kernels.conv.patch_access import PatchAccess
from shardir.backends.cpu.kernels.gemm.block_sizes import BlockSizes
from shardir.backends.cpu.kernels.gemm.element_arithmetic import arithmetic_of
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct
from shardir.backends.cpu.kernels.gemm.packed_kernel import packed_gemm_kernel
from shardir.backends.cpu.kernels.gemm.product_record import encode_record
from shardir.backends.cpu.kernels.gemm.record_builder import count_tasks, describe_blocked_product
from shardir.backends.cpu.kernels.gemm.skinny_dispatch import operations_per_ns
from shardir.backends.cpu.kernels.gemm.task_grid import choose_task_grid


def lower_nchw(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    """Return the phases; none if another kernel is faster."""
    found = find_nchw_layout(work)
    if not found:
        return []
    work, arith = found.in_filter_order(), arithmetic_of(work.out.dtype)
    laid = found.image_layout()
    batch, rows, columns, inner = work.sizes
    sizes = BlockSizes.of(arith, columns, work.machine)
    steps, most = laid.block_sizes(found.channels, arith.size, work.machine)
    most = most // sizes.tile.columns * sizes.tile.columns
    if not most:
        return []
    staged = arith.dtype != work.out.dtype or not are_columns_contiguous(work.columns)
    grid = choose_task_grid(
        batch, rows, columns, inner, sizes._replace(columns=most), arith.size, staged, False,
        context.workers, operations_per_ns(arith.plane_bytes, work.machine), packable=False,
    )  # fmt: skip
    if staged:
        most = min(most, sizes.staged // grid.rows)
    if laid.padding_lines:  # Otherwise no line is copied twice, and blocks are whole tiles.
        parts = context.workers if batch == 1 else 1
        grid = grid._replace(columns=laid.align_block_to_lines(columns, grid.columns, most, parts))
    checked = PatchAccess("rhs", position_pitch=found.position_pitch)
    fields, lists = describe_blocked_product(work, grid, sizes, staged, checked)
    lists["inner_lhs"] = [(loop.extent, loop.lhs) for loop in reversed(found.runs)] or [(1, 0)]
    fields["steps"], lists["image_layout"] = steps, laid.words
    kernel = packed_gemm_kernel(work.lhs.dtype, work.rhs.dtype, work.out.dtype, sizes, checked)
    return [Phase(kernel, encode_record(fields, lists), count_tasks(fields), grid.cost, label)]
