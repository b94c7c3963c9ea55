"""The packed GEMM kernel: a task computes a block of the result.

The K steps are split into equal parts of some hundred steps. For each part, the macro-kernel
multiplies groups of rows of the left operand, which fit the caches, with all columns of the right
operand, tile by tile. Both operands are packed for that (`product_task`): columns once for all
rows, or by an earlier phase that uses the same kernel. `implicit_gemm_lhs` and `nchw_layout`
describe operands that need no packing. Elements are summed in the order of the K steps for any
block sizes, so that results do not depend on how the work is split.
"""

from functools import cache

from shardir.backends.cpu.codegen.dot_product_instructions import GroupInstruction
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.codegen.tile_instructions import (
    TileInstruction,
    configure_tiles,
    release_tiles,
)
from shardir.backends.cpu.kernel_api import Kernel
from shardir.backends.cpu.kernels.conv.im2col import emit_im2col
from shardir.backends.cpu.kernels.conv.implicit_gemm_lhs import emit_in_place_lhs_tile, emit_starts
from shardir.backends.cpu.kernels.conv.indirect_lhs import emit_addresses, emit_indirect_tile
from shardir.backends.cpu.kernels.conv.line_copy import emit_layout_copy
from shardir.backends.cpu.kernels.conv.nchw_tile import emit_nchw_tile
from shardir.backends.cpu.kernels.conv.patch_access import PatchAccess
from shardir.backends.cpu.kernels.gemm.amx.amx_packing import (
    emit_fill_steps,
    emit_pack_lines,
    emit_pack_rows,
)
from shardir.backends.cpu.kernels.gemm.amx.amx_tile import emit_amx_tile
from shardir.backends.cpu.kernels.gemm.block_sizes import BlockSizes
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic, arithmetic_of
from shardir.backends.cpu.kernels.gemm.macrokernel import (
    emit_output_block,
    emit_unstage,
    tile_function_name,
)
from shardir.backends.cpu.kernels.gemm.microkernel import emit_tile, emit_write, tile_variants
from shardir.backends.cpu.kernels.gemm.offset_tables import emit_offsets, emit_segments
from shardir.backends.cpu.kernels.gemm.packing import (
    emit_interleave_steps,
    emit_pack,
    emit_pack_contiguous_lines,
)
from shardir.backends.cpu.kernels.gemm.product_task import ProductTask
from shardir.backends.cpu.kernels.gemm.tuning import MAX_BLOCK_LINES


@cache
def packed_gemm_kernel(
    lhs: str,
    rhs: str,
    out: str,
    sizes: BlockSizes,
    checked: PatchAccess,
    grouped: GroupInstruction | None = None,
    stored: str = "",
    packs_groups: bool = False,
) -> Kernel:
    """Return the kernel for operands and results of these element types; operands may hold
    groups of K steps for the instruction `grouped`, and tiles may store elements of the type
    `stored`."""
    variant = (f"_groups_{grouped.name}" if grouped else "") + "_packed" * packs_groups
    variant += "_direct" if stored else ""
    name = f"packed_gemm_{lhs}_{rhs}_{out}{variant}_{sizes.name}{checked.name}"
    arith = arithmetic_of(out)._replace(grouped=grouped, stored=stored, packs_groups=packs_groups)
    return Kernel(name, lambda machine: _text(machine, name, lhs, rhs, out, arith, sizes, checked))


def common_gemm_kernel(machine: HostDescription) -> Kernel:
    """Return the kernel of most products of f32 matrices of more than a few columns."""
    sizes = BlockSizes.of(arithmetic_of("f32"), MAX_BLOCK_LINES, machine)
    return packed_gemm_kernel("f32", "f32", "f32", sizes, PatchAccess())


def _text(
    machine: HostDescription,
    name: str,
    lhs: str,
    rhs: str,
    out: str,
    arith: Arithmetic,
    sizes: BlockSizes,
    checked: PatchAccess,
) -> str:
    module, tile, packing = LLVMModule(machine), sizes.tile, arith.packing
    grouped = arith.grouped
    emit_offsets(module)
    emit_write(module, tile, arith)
    for part in tile_variants(tile):
        place = module, tile_function_name(part), part, tile, arith
        if isinstance(grouped, TileInstruction):
            emit_amx_tile(*place, grouped)
        elif checked.position_pitch:
            emit_nchw_tile(*place)
        elif checked.is_indirect:
            emit_indirect_tile(*place)
        elif checked.is_in_place:
            emit_in_place_lhs_tile(*place, checked.dims)
        else:
            emit_tile(*place)
    for side, lines, dtype in (("lhs", tile.height, lhs), ("rhs", tile.columns, rhs)):
        dims = checked.checked_dims_of(side)
        if checked.position_pitch and side == "rhs":
            emit_layout_copy(module, dtype, arith, checked.position_pitch)
        elif arith.has_tiles and side == "lhs":
            table_bytes = 8 * MAX_BLOCK_LINES
            emit_pack_lines(
                module, "pack_lines", lines, sizes.steps, packing.size, dims, table_bytes
            )
        elif isinstance(grouped, TileInstruction) and dtype == grouped.dtype:
            emit_pack_rows(module, "pack_rows", lines, grouped.steps)
        elif checked.is_in_place and checked.is_patches(side):
            table_bytes = 8 * MAX_BLOCK_LINES
            emit_starts(
                module,
                f"starts_{side}",
                lines,
                sizes.steps,
                arith,
                dims,
                table_bytes,
                checked.run_dim,
            )
        elif checked.is_indirect and checked.is_patches(side):
            emit_addresses(module, f"pack_{side}", dims, 8 * MAX_BLOCK_LINES)
        elif checked.is_patches(side):
            emit_im2col(
                module,
                f"pack_{side}",
                lines,
                sizes.steps,
                dtype,
                packing,
                dims,
                8 * MAX_BLOCK_LINES,
                checked.has_pairs,
            )
        else:
            name_of_lines = f"pack_contiguous_{side}"
            emit_pack_contiguous_lines(module, name_of_lines, lines, dtype, arith.packing_of(dtype))
        has_groups = (
            checked.has_pairs if checked.is_patches(side) else arith.has_tiles and side == "lhs"
        )
        has_groups = has_groups or arith.has_packed_groups(dtype)
        if arith.packs_groups and not has_groups:
            emit_interleave_steps(module, f"interleave_{side}", lines)
    for dims in sorted({checked.checked_dims_of("lhs"), checked.checked_dims_of("rhs")}):
        emit_segments(module, dims)
    packed_by_lines = {
        dtype
        for side, dtype in (("lhs", lhs), ("rhs", rhs))
        if not checked.is_patches(side)
        and not (arith.has_tiles and side == "lhs")
        and not arith.interleaves(dtype)
    }
    for dtype in sorted(packed_by_lines):
        emit_pack(
            module, dtype, arith.packing_of(dtype), max(tile.height, tile.columns), sizes.steps
        )
    emit_unstage(module, out, arith)
    if arith.has_tiles:
        emit_fill_steps(module, tile.columns, packing)
    f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
    if arith.has_tiles:
        configure_tiles(f)
    emit_output_block(ProductTask(f, {"lhs": lhs, "rhs": rhs}, sizes, arith, checked))
    if arith.has_tiles:
        release_tiles(f)
    f.ret()
    return module.text()
