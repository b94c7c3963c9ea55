"""The packed GEMM kernel: a task computes a block of the result.

The K steps are split into equal parts of some hundred steps. For each part, the macro-kernel
multiplies groups of rows of the left operand, which fit the caches, with all columns of the right
operand, tile by tile. Both operands are packed for that (`product_task`): columns once for all
rows, or by an earlier phase that uses the same kernel. `implicit_gemm_lhs`, `implicit_gemm_rhs` and
`nchw_layout` describe operands that need no packing. Elements are summed in the order of the K
steps for any block sizes, so that results do not depend on how the work is split.
"""

from functools import cache

from shardir.backends.cpu.native.contraction.blocks import called, emit_block
from shardir.backends.cpu.native.contraction.checked import Checked
from shardir.backends.cpu.native.contraction.copied_lines import emit_lay
from shardir.backends.cpu.native.contraction.elements import arithmetic
from shardir.backends.cpu.native.contraction.packing import emit_across, emit_pack
from shardir.backends.cpu.native.contraction.patches import emit_patches
from shardir.backends.cpu.native.contraction.planes_tile import emit_planes_tile
from shardir.backends.cpu.native.contraction.sizes import LINES, Sizes
from shardir.backends.cpu.native.contraction.staging import emit_unstage
from shardir.backends.cpu.native.contraction.straight import emit_starts, emit_straight_tile
from shardir.backends.cpu.native.contraction.tables import emit_offsets, emit_segments
from shardir.backends.cpu.native.contraction.task import Task
from shardir.backends.cpu.native.contraction.tile import emit_tile, emit_write
from shardir.backends.cpu.native.contraction.windows import emit_windows, emit_windows_tile
from shardir.backends.cpu.native.data import Kernel
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Module


@cache
def product_kernel(lhs: str, rhs: str, out: str, sizes: Sizes, checked: Checked) -> Kernel:
    """Return the kernel for operands and results of these element types."""
    name = f"packed_gemm_{lhs}_{rhs}_{out}_{sizes.name}{checked.name}"
    return Kernel(name, lambda: _text(name, lhs, rhs, out, sizes, checked))


def _text(name: str, lhs: str, rhs: str, out: str, sizes: Sizes, checked: Checked) -> str:
    module, arith = Module(), arithmetic(out)
    tile = sizes.tile
    emit_offsets(module)
    emit_write(module, tile, arith, host())
    for part in checked.parts_of(tile):
        place = module, called(part), part, tile, arith, host()
        if checked.pace:
            emit_planes_tile(*place)
        elif checked.straight and checked.side == "lhs":
            emit_straight_tile(*place, checked.dims)
        elif checked.straight:
            emit_windows_tile(*place, checked.dims, checked.walked)
        else:
            emit_tile(*place)
    for side, lines, dtype in (("lhs", tile.height, lhs), ("rhs", tile.columns, rhs)):
        dims = checked.of(side)
        straight = checked.straight and side == checked.side
        if checked.pace and side == "rhs":
            emit_lay(module, dtype, arith, checked.pace)
        elif straight and side == "rhs":
            emit_windows(module, f"starts_{side}", tile, arith, dims, 8 * LINES, checked.walked)
        elif straight:
            run_dim = checked.walked
            emit_starts(
                module, f"starts_{side}", lines, sizes.steps, arith, dims, 8 * LINES, run_dim
            )
        elif checked.gathers(side):
            emit_patches(module, f"pack_{side}", lines, sizes.steps, dtype, arith, dims, 8 * LINES)
        else:
            emit_across(module, f"pack_contiguous_{side}", lines, dtype, arith)
    for dims in sorted({checked.of("lhs"), checked.of("rhs")}):
        emit_segments(module, dims)
    for dtype in sorted(
        {dtype for side, dtype in (("lhs", lhs), ("rhs", rhs)) if not checked.gathers(side)}
    ):
        emit_pack(module, dtype, arith, max(tile.height, tile.columns), sizes.steps)
    emit_unstage(module, out, arith, turning=checked.straight and checked.side == "rhs")
    f = Function(module, name, ["ptr", "ptr", "i64", "i64"])
    emit_block(Task(f, {"lhs": lhs, "rhs": rhs}, sizes, arith, checked))
    f.leave()
    return module.text()
