"""Lowers products whose columns are positions of images in the NCHW layout: see `nchw_layout`."""

from shardir.backends.cpu.native.contraction.checked import Checked
from shardir.backends.cpu.native.contraction.describing import blocked, tasks
from shardir.backends.cpu.native.contraction.einsum import Product
from shardir.backends.cpu.native.contraction.elements import arithmetic
from shardir.backends.cpu.native.contraction.grid import grid_of
from shardir.backends.cpu.native.contraction.kernel import product_kernel
from shardir.backends.cpu.native.contraction.narrow import rate
from shardir.backends.cpu.native.contraction.planes import lying, one_run
from shardir.backends.cpu.native.contraction.record import written
from shardir.backends.cpu.native.contraction.sizes import Sizes
from shardir.backends.cpu.native.data import Context, Phase


def in_planes(work: Product, context: Context, label: str) -> list[Phase]:
    """Return the phases; none if another kernel is faster."""
    found = lying(work)
    if not found:
        return []
    work, arith = found.ordered(), arithmetic(work.out.dtype)
    laid = found.laid()
    batch, rows, columns, inner = work.sizes
    sizes = Sizes.of(arith, columns, work.machine)
    steps, most = laid.blocks(found.channels, arith.size, work.machine)
    most = most // sizes.tile.columns * sizes.tile.columns
    if not most:
        return []
    staged = arith.dtype != work.out.dtype or not one_run(work.columns)
    grid = grid_of(
        batch, rows, columns, inner, sizes._replace(columns=most), arith.size, staged, False,
        context.workers, rate(arith.part, work.machine), packable=False,
    )  # fmt: skip
    if staged:
        most = min(most, sizes.staged // grid.rows)
    if laid.more:  # Otherwise no line is copied twice, and blocks are whole tiles.
        parts = context.workers if batch == 1 else 1
        grid = grid._replace(columns=laid.whole_lines(columns, grid.columns, most, parts))
    checked = Checked("rhs", pace=found.pace)
    fields, lists = blocked(work, grid, sizes, staged, checked)
    lists["inner_lhs"] = [(loop.extent, loop.lhs) for loop in reversed(found.runs)] or [(1, 0)]
    fields["steps"], lists["image_layout"] = steps, laid.words
    kernel = product_kernel(work.lhs.dtype, work.rhs.dtype, work.out.dtype, sizes, checked)
    return [Phase(kernel, written(fields, lists), tasks(fields), grid.cost, label)]
