"""Selection of the rows of each part of a sum over patches.

At a tap of a window, some output positions read an element outside of the image, which is zero. If
each part of the K steps belongs to one tap, only the rows that are inside are packed and multiplied
with the columns of the part, and added to sums that begin as zero. One row outside is multiplied,
too: its sums are those of all rows outside, and are added to them if they are not zero. Products of
zero with infinite elements and NaN of the right operand are NaN.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shardir.backends.cpu.codegen.llvm_text import LLVMValue, vector_type
from shardir.backends.cpu.kernels.conv.implicit_gemm_lhs import is_lhs_readable_in_place
from shardir.backends.cpu.kernels.conv.tuning import (
    MIN_OUTSIDE_FRACTION,
    PACKED_STEP_COLUMNS,
    PART_OVERHEAD_STEPS,
)
from shardir.backends.cpu.kernels.gemm.block_sizes import BlockSizes
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct, ProductLoop
from shardir.backends.cpu.kernels.gemm.packing import SEGMENT_ENTRY_BYTES
from shardir.backends.cpu.kernels.gemm.product_task import ProductTask
from shardir.backends.cpu.kernels.gemm.tuning import MAX_BLOCK_LINES
from shardir.backends.cpu.kernels.math.vector_arithmetic import any_of
from shardir.ir.types import NumpyArray


def steps_of_selected_rows(work: MatrixProduct, sizes: BlockSizes) -> int:
    """Return the K steps of a part whose rows are selected; 0 if all rows should be multiplied."""
    if (
        not (work.patches and work.patches.side == "lhs")
        # A sum of no steps has no parts, and the loops of a sum of one step may all be merged.
        or not (work.inner and work.sizes[3])
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
    outside = 1.0 - _inside_fraction(work)
    columns = work.sizes[2] if is_lhs_readable_in_place(work) else None
    return steps if does_selection_pay_off(outside, steps, columns) else 0


def does_selection_pay_off(outside: float, steps: int, columns: int | None) -> bool:
    """Return whether to select rows for parts of `steps` K steps, if a fraction of the elements of
    patches is `outside` of the image. `columns` is their number if rows would be read in place
    otherwise."""
    overhead = PART_OVERHEAD_STEPS + (PACKED_STEP_COLUMNS / columns if columns else 0.0)
    return outside > MIN_OUTSIDE_FRACTION + overhead / steps


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


class SelectedRows(NamedTuple):
    """The rows of a block that a part of the K steps multiplies: those inside of the image, then
    one outside, if there is any."""

    task: ProductTask
    rows: LLVMValue
    bounds: list[tuple[LLVMValue, LLVMValue]]
    """The position that the first K step adds, and the size of the image, in each dimension."""

    def add_outside_sums(self, place: LLVMValue) -> None:
        """Add the sums of the row outside to those of all rows outside, if they are not zero; the
        sums of the block begin at `place`."""
        task, f = self.task, self.task.f
        with (
            f.when(_has_nonzero_sums(task), seldom=True),
            f.loop(0, task.block.rows) as i,
            f.when(_is_inside(task, i, self.bounds).is_("eq", 0)),
        ):
            _add_row(task, _row_of_sums(task, place, i))


def clear_sums(task: ProductTask, place: LLVMValue) -> None:
    """Set the sums of the block, which begin at `place`, to zero."""
    f, size = task.f, task.arith.size
    many = task.sizes.tile.lanes
    vector, element = vector_type(f"i{8 * size}", many), f"i{8 * size}"
    columns = task.block.columns
    whole = columns - columns % many
    with f.loop(0, task.block.rows) as i:
        row = _row_of_sums(task, place, i)
        with f.loop(0, whole, many) as column:
            f.store(f.value(0, vector), f.offset(row, column * size), task.arith.plane_bytes)
        with f.loop(whole, columns) as column:
            f.store(f.value(0, element), f.offset(row, column * size), task.arith.plane_bytes)


def select_rows(
    task: ProductTask, first: LLVMValue, steps: LLVMValue, place: LLVMValue
) -> SelectedRows:
    """Write the tables of the rows that the part of `steps` K steps from `first` multiplies. The
    sums of the block begin at `place`; those of the row outside are set to zero."""
    f, dims, segment = task.f, task.checked.dims, task.places["lhs_segments"]
    header = task.record.list_header("inner_lhs")
    f.call(f"segments_{dims}", [task.words, header, segment, first, steps], "i64")
    entry = task.record.loops("bounds")[0]
    bounds = [
        (
            f.load(f.offset(entry, 16 * d), "i64")
            + f.load(f.offset(segment, SEGMENT_ENTRY_BYTES + 8 * d), "i64"),
            f.load(f.offset(entry, 16 * d + 8), "i64"),
        )
        for d in range(dims)
    ]
    names = ["rows_lhs", "rows_staged", *(f"positions_{d}" for d in range(dims))]
    tables = [(_table(task, name), _table(task, name, "selected_")) for name in names]

    def copy(row: LLVMValue, number: LLVMValue) -> None:
        for source, target in tables:
            f.store(f.load(f.offset(source, row, "i64"), "i64"), f.offset(target, number, "i64"))

    count, outside = f.variable("i64", 0), f.variable("i64", 0)
    with f.loop(0, task.block.rows) as i:
        inside = _is_inside(task, i, bounds)
        copy(i, count.get())
        outside.set(f.select(inside, outside.get(), i))
        count.set(count.get() + inside.to("i64", "zext"))
    number = count.get()
    has_outside = number.is_("ult", task.block.rows)
    with f.when(has_outside):
        copy(outside.get(), number)
        distance = task.places["outside_sums"].to("i64", "ptrtoint") - place.to("i64", "ptrtoint")
        f.store(distance, f.offset(_table(task, "rows_staged", "selected_"), number, "i64"))
    _clear_outside_sums(task)
    return SelectedRows(task, number + has_outside.to("i64", "zext"), bounds)


def _table(task: ProductTask, name: str, prefix: str = "") -> LLVMValue:
    """Return the table of an offset of the rows, or of their positions along a dimension."""
    table, _, dim = name.partition("positions_")
    if not dim:
        return task.places[prefix + table]
    return task.f.offset(task.places[f"{prefix}positions"], int(dim) * 8 * MAX_BLOCK_LINES)


def _is_inside(
    task: ProductTask, row: LLVMValue, bounds: Sequence[tuple[LLVMValue, LLVMValue]]
) -> LLVMValue:
    """Return whether a row is inside of the image."""
    f = task.f
    inside = f.value(1, "i1")
    for d, (start, size) in enumerate(bounds):
        position = f.load(f.offset(_table(task, f"positions_{d}"), row, "i64"), "i64")
        inside = inside & (position + start).is_("ult", size)
    return inside


def _row_of_sums(task: ProductTask, place: LLVMValue, row: LLVMValue) -> LLVMValue:
    """Return the address of the sums of a row."""
    f = task.f
    return f.offset(place, f.load(f.offset(task.places["rows_staged"], row, "i64"), "i64"))


def _clear_outside_sums(task: ProductTask) -> None:
    """Set the sums of the row outside to zero, in whole vectors."""
    f, vector = task.f, _bits_of_vector(task)
    with f.loop(0, task.block.columns * task.arith.planes, task.sizes.tile.lanes) as at:
        place = f.offset(task.places["outside_sums"], at * task.arith.plane_bytes)
        f.store(f.value(0, vector), place, task.arith.plane_bytes)


def _has_nonzero_sums(task: ProductTask) -> LLVMValue:
    """Return whether a sum of the row outside is not +0."""
    f, vector = task.f, _bits_of_vector(task)
    seen = f.variable(vector, f.value(0, vector))
    with f.loop(0, task.block.columns * task.arith.planes, task.sizes.tile.lanes) as at:
        place = f.offset(task.places["outside_sums"], at * task.arith.plane_bytes)
        seen.set(seen.get() | f.load(place, vector, task.arith.plane_bytes))
    return any_of(f, seen.get().is_("ne", f.value(0, vector)))


def _add_row(task: ProductTask, row: LLVMValue) -> None:
    """Add the sums of the row outside to those at `row`."""
    f, arith = task.f, task.arith
    with f.loop(0, task.block.columns * arith.planes) as i:
        at = f.offset(row, i * arith.plane_bytes)
        more = f.load(f.offset(task.places["outside_sums"], i * arith.plane_bytes), arith.type)
        f.store(f.load(at, arith.type) + more, at)


def _bits_of_vector(task: ProductTask) -> str:
    """Return the type of the bits of a vector of sums."""
    return vector_type(f"i{8 * task.arith.plane_bytes}", task.sizes.tile.lanes)
