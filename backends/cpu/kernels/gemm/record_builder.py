"""Builds the fields and lists of a product's parameter record from its loops."""

from collections.abc import Sequence

from shardir.backends.cpu.kernels.conv.patch_access import PatchAccess
from shardir.backends.cpu.kernels.gemm.block_sizes import BlockSizes, equal_share_size
from shardir.backends.cpu.kernels.gemm.element_arithmetic import arithmetic_of
from shardir.backends.cpu.kernels.gemm.matrix_product import (
    ImagePatches,
    MatrixProduct,
    ProductLoop,
)
from shardir.backends.cpu.kernels.gemm.task_grid import TaskGrid
from shardir.backends.cpu.kernels.gemm.tuning import PART_STEP_MULTIPLE

PANELS_PER_GROUP = 2
"""Panels of columns that are packed at a time."""


def describe_product(
    work: MatrixProduct, grid: TaskGrid
) -> tuple[dict[str, int], dict[str, Sequence[tuple[int, ...]]]]:
    """Return the fields and lists of a product's record, with nothing packed or staged."""
    batch, rows, columns, inner = work.sizes
    fields = {
        "packing": 0,
        "lhs_slot": work.lhs.slot, "lhs_offset": work.lhs.offset,
        "rhs_slot": work.rhs.slot, "rhs_offset": work.rhs.offset,
        "out_slot": work.out.slot, "out_offset": work.out.offset,
        "packed_slot": 0, "packed_offset": 0, "staged": 0,
        "rows": rows, "columns": columns, "inner": inner,
        "steps": inner, "packed_rows": rows, "packed_columns": columns, "panel_columns": columns,
        "products": batch, "block_products": grid.products,
        "block_rows": grid.rows, "block_columns": grid.columns,
        "row_blocks": -(-rows // grid.rows), "column_blocks": -(-columns // grid.columns),
    }  # fmt: skip
    lists: dict[str, Sequence[tuple[int, ...]]] = {
        "batch": [(*loop[:4], 0) for loop in reversed(work.batch)],
        "rows_lhs": _strides(work.rows, 1), "rows_out": _strides(work.rows, 3),
        "rows_staged": _strides(work.rows, 3),
        "columns_rhs": _strides(work.columns, 2), "columns_out": _strides(work.columns, 3),
        "inner_lhs": _steps(work, 1), "inner_rhs": _steps(work, 2),
        "positions_0": (), "positions_1": (), "positions_2": (), "bounds": (),
        "image_layout": (),
    }  # fmt: skip
    if work.patches:
        _describe_patches(work, work.patches, lists)
    return fields, lists


def describe_blocked_product(
    work: MatrixProduct,
    grid: TaskGrid,
    sizes: BlockSizes,
    staged: bool,
    checked: PatchAccess,
    steps: int = 0,
) -> tuple[dict[str, int], dict[str, Sequence[tuple[int, ...]]]]:
    """Return the fields and lists for the packing kernel: the K steps are split into parts, and
    some rows and columns are packed at a time. Parts have `steps` steps, if that is not 0."""
    _, _, columns, inner = work.sizes
    width, height = sizes.tile.columns, sizes.tile.height
    fields, lists = describe_product(work, grid)
    # If steps run along a row, copies of lines are stored beside the table of starts.
    copied = checked.side == "lhs" and checked.run_dim >= 0
    most = sizes.rows // 2 // height * height if copied else sizes.rows
    packed_rows = equal_share_size(grid.rows, max(height, most), height)
    if checked.is_indirect:  # Adjacent rows share the addresses of K steps.
        packed_rows = work.rows[-1].extent
    # Columns are packed in groups: the next group is prefetched while tiles of this one are
    # computed.
    packed_columns = grid.columns if checked.side else min(grid.columns, PANELS_PER_GROUP * width)
    fields |= {
        "staged": int(staged),
        "steps": steps or equal_share_size(inner, sizes.steps, PART_STEP_MULTIPLE),
        "packed_rows": packed_rows, "packed_columns": packed_columns,
        "panel_columns": round_up(columns, width),
    }  # fmt: skip
    if staged:
        size = arithmetic_of(work.out.dtype).size
        lists["rows_staged"] = [(grid.rows, grid.columns * size), (1, 0)]
    return fields, lists


def _describe_patches(
    work: MatrixProduct, patches: ImagePatches, lists: dict[str, Sequence[tuple[int, ...]]]
) -> None:
    """Write the offsets of the lines and steps of patches and the bounds of the image to
    `lists`."""
    lines = work.rows if patches.side == "lhs" else work.columns
    for d in range(len(patches.starts)):
        lists[f"positions_{d}"] = [
            (loop.extent, loop.position_strides[d]) for loop in reversed(lines)
        ] or [(1, 0)]
    none = (0,) * len(patches.starts)
    which = 1 if patches.side == "lhs" else 2
    lists[f"inner_{patches.side}"] = [
        (loop.extent, _stride(loop, which), *loop.position_strides) for loop in reversed(work.inner)
    ] or [(1, 0, *none)]
    run_steps = work.inner[-1].position_strides if work.inner else none
    run_dim = next((d for d, step in enumerate(run_steps) if step), -1)
    bounds = list(zip(patches.starts, patches.sizes, strict=True))
    lists["bounds"] = [*bounds, (run_dim, run_steps[run_dim] if run_dim >= 0 else 0)]


def round_up(extent: int, step: int) -> int:
    """Round an extent up to a multiple of `step`."""
    return -(-extent // step) * step


def count_tasks(fields: dict[str, int]) -> int:
    """Return the number of tasks of a record."""
    products = -(-fields["products"] // fields["block_products"])
    return products * fields["row_blocks"] * fields["column_blocks"]


def _strides(loops: Sequence[ProductLoop], which: int) -> list[tuple[int, int]]:
    """Return pairs of extent and stride, innermost first; at least one pair."""
    return [(loop.extent, _stride(loop, which)) for loop in reversed(loops)] or [(1, 0)]


def _steps(work: MatrixProduct, which: int) -> list[tuple[int, int]]:
    """Return the strides of the K steps of an operand, or of its pairs if packing copies these."""
    steps = _strides(work.inner, which)
    if work.arithmetic.has_packed_groups((work.lhs, work.rhs)[which - 1].dtype):
        (extent, stride), *others = steps
        return [(extent // 2, 2 * stride), *others]
    return steps


def _stride(loop: ProductLoop, which: int) -> int:
    return (loop.lhs, loop.rhs, loop.out)[which - 1]
