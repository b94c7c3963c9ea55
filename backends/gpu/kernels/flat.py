"""Kernels of groups without reductions: one sequence of elements, split into tiles.

Tensors with all elements are accessed in memory order, so that adjacent threads load and store 16
bytes each; the index into broadcast tensors (a bias, a scale per row) is found by division.
"""

from shardir.backends.gpu.kernels.group import FusedGroup
from shardir.backends.gpu.kernels.kernel import KernelLaunch, KernelText
from shardir.backends.gpu.kernels.kernel_text import function_text
from shardir.backends.gpu.kernels.tile_sizes import (
    TileSizes,
    ceil_divide,
    count_warps,
    next_power_of_two,
)


def write_flat_kernel(group: FusedGroup, sizes: TileSizes) -> KernelText:
    """Return the kernel of a group without reductions."""
    layout = group.layout
    axes = tuple(range(len(layout.extents)))
    size = layout.size(axes)
    block = min(
        max(sizes.flat_elements * 4 // group.itemsize, sizes.flat_elements // 2),
        2 * sizes.flat_elements,
        next_power_of_two(size),
    )
    side = group.make_side("at", axes, size, block, "BLOCK")
    writer = group.make_writer(*([side] if axes else []))
    if axes:
        writer.append_line(f"{side.index} = {group.program_id(0)} * BLOCK + {side.offsets_text}")
        writer.lines += side.mask_lines()
    writer.emit(writer.collect_needed(group.block.returns, through=True))
    for value, pointer, _ in group.stores():
        writer.store(value, pointer)
    pointers = group.pointers(group.params)
    pointers.update((pointer, type) for _, pointer, type in group.stores())
    constants = {"BLOCK": block} if axes else {}
    grid = (ceil_divide(size, block),)
    launch = KernelLaunch(
        f"{group.name}_kernel", grid, pointers, constants, min(count_warps(block), 4)
    )
    text = function_text(launch, group.docstring(), writer.lines)
    return group.kernel([text], [launch])
