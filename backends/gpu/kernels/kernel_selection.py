"""Select the kernel of a group, or the reason why it has none."""

from collections.abc import Set

from shardir.backends.gpu.dtypes import TRITON_TYPES
from shardir.backends.gpu.kernels.arithmetic import REFUSAL_REASONS, RULES
from shardir.backends.gpu.kernels.flat import write_flat_kernel
from shardir.backends.gpu.kernels.fused_products.products_kernel import write_products_kernel
from shardir.backends.gpu.kernels.group import make_group
from shardir.backends.gpu.kernels.group_layout import needs_no_line
from shardir.backends.gpu.kernels.kernel import KernelRefusal, KernelText
from shardir.backends.gpu.kernels.split_reduction import count_parts, write_split_kernel
from shardir.backends.gpu.kernels.tile_sizes import TileSizes
from shardir.backends.gpu.kernels.tiled_reduction import choose_tile, write_tiled_kernel
from shardir.errors import count_noun
from shardir.ir.module import Op
from shardir.op_rules.rule_table import find_rule
from shardir.ops.contraction.dot import dot
from shardir.ops.control_flow.fused import REDUCTIONS
from shardir.ops.control_flow.fused_products import fused_products
from shardir.ops.shape.create import iota


def write_kernel(
    op: Op,
    name: str,
    sizes: TileSizes | None = None,
    precision: str = "ieee",
    sums: Set[int] = frozenset(),
) -> KernelText | KernelRefusal:
    """Return the kernel of an operation `fused` or `fused_products`.

    Its functions are named after `name`, an identifier that no other group of the program has.
    Operands and results are contiguous tensors of the torch types with the names of their element
    types (bool as `torch.bool`). `precision` is that of f32 products, in terms of `tl.dot`. `sums`
    are the positions of operands that `find_sum_operands` returns.
    """
    sizes = sizes or TileSizes()
    (block,) = op.blocks
    for inner in block.ops:
        if reason := _refusal(inner):
            return KernelRefusal(reason)
    for value in block.values():
        if value.type.dtype not in TRITON_TYPES:
            return KernelRefusal(f"Triton has no {value.type.dtype}, the type of %{value.name}")
        if 0 in value.type.shape:
            return KernelRefusal(f"%{value.name}: {value.type} has no elements")
    if op.spec is fused_products:
        return write_products_kernel(op, name, sizes, precision, sums)
    group = make_group(op, name)
    if not group.layout.reduced:
        return write_flat_kernel(group, sizes)
    tile = choose_tile(group, sizes)
    if tile.fits_reduction:
        return write_tiled_kernel(group, tile)
    parts = count_parts(group, tile, sizes)
    if parts > 1:
        return write_split_kernel(group, tile, parts)
    walked = tile.elements * (tile.reduced_side.size // tile.reduced_side.length)
    if tile.programs < sizes.min_row_programs and walked > sizes.max_sequential_elements:
        return KernelRefusal(
            f"it reduces {count_noun(walked, 'element')} one after the other in "
            f"{count_noun(tile.programs, 'program')}"
        )
    return write_tiled_kernel(group, tile)


def _refusal(op: Op) -> str:
    """Return why no kernel can contain an operation, or "" if kernels can."""
    if op.name in REFUSAL_REASONS:
        return f"{REFUSAL_REASONS[op.name]}, as %{op.result.name} = {op.name} needs"
    known = (
        op.spec in (iota, dot)
        or op.spec in REDUCTIONS
        or needs_no_line(op)
        or find_rule(RULES, op.name, "gpu") is not None
    )
    return "" if known else f"kernels have no {op.name}, which gives %{op.results[0].name}"
