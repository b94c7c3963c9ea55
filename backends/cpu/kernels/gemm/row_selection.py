"""Selection of the rows of each part of a sum over patches.

At a tap of a window, some output positions read an element outside of the image, which is zero. If
each part of the K steps belongs to one tap, only the rows that are inside are packed and multiplied
with the columns of the part, and added to sums that begin as zero.
"""

from collections.abc import Sequence

import numpy as np

from shardir.backends.cpu.codegen.llvm_text import LLVMValue, vector_type
from shardir.backends.cpu.kernels.conv.implicit_gemm_lhs import is_lhs_readable_in_place
from shardir.backends.cpu.kernels.gemm.block_sizes import BlockSizes
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct, ProductLoop
from shardir.backends.cpu.kernels.gemm.packing import SEGMENT_ENTRY_BYTES
from shardir.backends.cpu.kernels.gemm.product_task import ProductTask
from shardir.backends.cpu.kernels.gemm.tuning import (
    MAX_BLOCK_LINES,
    MIN_OUTSIDE_FRACTION,
    PACKED_STEP_COLUMNS,
    PART_OVERHEAD_STEPS,
)
from shardir.ir.types import NumpyArray


def steps_of_selected_rows(work: MatrixProduct, sizes: BlockSizes) -> int:
    """Return the K steps of a part whose rows are selected; 0 if all rows should be multiplied."""
    if (
        not (work.patches and work.patches.side == "lhs" and work.patches.starts)
        or work.packs_groups
        or work.arithmetic.has_tiles
        or work.sizes[1] > MAX_BLOCK_LINES
        or any(work.inner[-1].position_strides)
    ):
        return 0
    extent = work.inner[-1].extent
    parts = -(-extent // sizes.steps)
    if extent % parts:
        return 0
    steps = extent // parts
    overhead = PART_OVERHEAD_STEPS
    if is_lhs_readable_in_place(work):
        overhead += PACKED_STEP_COLUMNS / work.sizes[2]
    outside = 1.0 - _inside_fraction(work)
    return steps if outside > MIN_OUTSIDE_FRACTION + overhead / steps else 0


def _inside_fraction(work: MatrixProduct) -> float:
    """Return the fraction of elements of patches that are inside of the image."""
    assert work.patches is not None
    fraction = 1.0
    for d, (start, size) in enumerate(zip(work.patches.starts, work.patches.sizes, strict=True)):
        at = start + np.add.outer(_positions(work.rows, d), _positions(work.inner, d))
        fraction *= float(((at >= 0) & (at < size)).mean())
    return fraction


def _positions(loops: Sequence[ProductLoop], d: int) -> NumpyArray:
    """Return the positions of loops along a checked dimension."""
    found: NumpyArray = np.zeros(1, np.int64)
    for loop in loops:
        if step := loop.position_strides[d]:
            found = np.add.outer(found, step * np.arange(loop.extent)).ravel()
    return found


def clear_sums(task: ProductTask, place: LLVMValue) -> None:
    """Set the sums of the block, which begin at `place`, to zero."""
    f, size = task.f, task.arith.size
    many = task.sizes.tile.lanes
    vector, element = vector_type(f"i{8 * size}", many), f"i{8 * size}"
    columns = task.block.columns
    whole = columns - columns % many
    with f.loop(0, task.block.rows) as i:
        row = f.offset(place, f.load(f.offset(task.places["rows_staged"], i, "i64"), "i64"))
        with f.loop(0, whole, many) as column:
            f.store(f.value(0, vector), f.offset(row, column * size), task.arith.plane_bytes)
        with f.loop(whole, columns) as column:
            f.store(f.value(0, element), f.offset(row, column * size), task.arith.plane_bytes)


def select_rows(task: ProductTask, first: LLVMValue, steps: LLVMValue) -> LLVMValue:
    """Write the tables of the rows that are inside in the part of `steps` K steps from `first`;
    return their number."""
    f, dims, segment = task.f, task.checked.dims, task.places["lhs_segments"]
    header = task.record.list_header("inner_lhs")
    f.call(f"segments_{dims}", [task.words, header, segment, first, steps], "i64")
    bounds = task.record.loops("bounds")[0]
    starts, sizes = (
        [f.load(f.offset(bounds, 16 * d + at), "i64") for d in range(dims)] for at in (0, 8)
    )
    moves = [f.load(f.offset(segment, SEGMENT_ENTRY_BYTES + 8 * d), "i64") for d in range(dims)]
    count = f.variable("i64", 0)
    tables = [
        tuple(task.places[prefix + name] for prefix in ("", "selected_"))
        for name in ("rows_lhs", "rows_staged")
    ]
    positions = [
        tuple(
            f.offset(task.places[prefix + "positions"], d * 8 * MAX_BLOCK_LINES)
            for prefix in ("", "selected_")
        )
        for d in range(dims)
    ]
    with f.loop(0, task.block.rows) as i:
        number, inside = count.get(), f.value(1, "i1")
        for d, (source, target) in enumerate(positions):
            position = f.load(f.offset(source, i, "i64"), "i64")
            f.store(position, f.offset(target, number, "i64"))
            inside = inside & (position + (starts[d] + moves[d])).is_("ult", sizes[d])
        for source, target in tables:
            f.store(f.load(f.offset(source, i, "i64"), "i64"), f.offset(target, number, "i64"))
        count.set(number + inside.to("i64", "zext"))
    return count.get()
