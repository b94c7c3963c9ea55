"""Selection of the rows of each part of a sum over patches.

At a tap of a window, some output positions read an element outside of the image, which is zero. If
each part of the K steps belongs to one tap, only the rows that are inside are packed and multiplied
with the columns of the part, and added to sums that begin as zero.

The product of zero and an infinite element or NaN of the right operand is NaN, which belongs to the
sums of the rows outside. Such an element makes a sum of each row inside infinite or NaN. If all
sums of the first row inside are finite, the products of the rows outside are zero. Otherwise, or if
no row is inside, a second pass multiplies one row outside, and its sums are added to those of all
rows outside.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

EXPONENT_BITS = {"float": 0x7F80_0000, "double": 0x7FF0_0000_0000_0000}
"""The bits of the exponent of each type; all are set if a number is infinite or NaN."""


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
    """The rows of a block that a part of the K steps multiplies: those inside of the image."""

    task: ProductTask
    place: LLVMValue
    """The address of the sums of the block."""
    row_count: LLVMValue
    outside: LLVMValue
    """A row outside of the image, if fewer rows than those of the block are inside."""
    bounds: list[tuple[LLVMValue, LLVMValue]]
    """The position that the first K step adds, and the size of the image, in each dimension."""

    @contextmanager
    def passes(self) -> Iterator[LLVMValue]:
        """Emit the body, which multiplies the selected rows, in a loop; yield their number.

        The second pass, of one row outside, is necessary only if its sums may not be zero.
        """
        f, count = self.task.f, self.row_count
        if self.task.arith.type not in EXPONENT_BITS:  # All products of zero are zero.
            yield count
            return
        has_outside = count.is_("ult", self.task.block.rows)
        has_none = has_outside & count.is_("eq", 0)
        rows, goes_on = f.variable("i64", count), f.variable("i1", 1)
        is_outside = f.variable("i1", has_none)
        with f.when(has_none):
            rows.set(self._select_outside())
        with f.while_(goes_on.get):
            yield rows.get()
            goes_on.set(0)
            with f.when(has_outside & ~is_outside.get()):
                goes_on.set(self._has_nonfinite_sums())
            with f.when(goes_on.get(), seldom=True):
                rows.set(self._select_outside())
                is_outside.set(1)
        with f.when(is_outside.get(), seldom=True):
            self._add_outside_sums()

    def _select_outside(self) -> LLVMValue:
        """Select a row outside instead, and set its sums to zero; return the number of rows."""
        task, f = self.task, self.task.f
        _copy_line(task, self.outside, f.value(0, "i64"))
        target = task.places["outside_sums"]
        distance = target.to("i64", "ptrtoint") - self.place.to("i64", "ptrtoint")
        f.store(distance, _table(task, "rows_staged", "selected_"))
        _clear_row(task, target)
        return f.value(1, "i64")

    def _has_nonfinite_sums(self) -> LLVMValue:
        """Return whether a sum of the first selected row is infinite or NaN."""
        task, f, found = self.task, self.task.f, self.task.f.variable("i1", 0)
        row = f.offset(self.place, f.load(_table(task, "rows_staged", "selected_"), "i64"))
        for first, end, many in _runs_of_columns(task):
            type = vector_type(f"i{8 * task.arith.plane_bytes}", many * task.arith.planes)
            exponent = f.value(EXPONENT_BITS[task.arith.type], type)
            with f.loop(first, end, many) as column:
                at = f.offset(row, column * task.arith.size)
                bits = f.load(at, type, task.arith.plane_bytes)
                found.set(found.get() | any_of(f, (bits & exponent).is_("eq", exponent)))
        return found.get()

    def _add_outside_sums(self) -> None:
        """Add the sums of the row outside to those of all rows outside."""
        task, f = self.task, self.task.f
        with (
            f.loop(0, task.block.rows) as i,
            f.when(_is_inside(task, i, self.bounds).is_("eq", 0)),
        ):
            _add_row(task, _row_of_sums(task, self.place, i))


def clear_sums(task: ProductTask, place: LLVMValue) -> None:
    """Set the sums of the block, which begin at `place`, to zero."""
    with task.f.loop(0, task.block.rows) as i:
        _clear_row(task, _row_of_sums(task, place, i))


def select_rows(
    task: ProductTask, first: LLVMValue, steps: LLVMValue, place: LLVMValue
) -> SelectedRows:
    """Write the tables of the rows that the part of `steps` K steps from `first` multiplies. The
    sums of the block begin at `place`."""
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
    count, outside = f.variable("i64", 0), f.variable("i64", 0)
    with f.loop(0, task.block.rows) as i:
        inside = _is_inside(task, i, bounds)
        _copy_line(task, i, count.get())
        outside.set(f.select(inside, outside.get(), i))
        count.set(count.get() + inside.to("i64", "zext"))
    return SelectedRows(task, place, count.get(), outside.get(), bounds)


def _copy_line(task: ProductTask, row: LLVMValue, number: LLVMValue) -> None:
    """Copy the entries of a row in all tables to those of the selected row `number`."""
    f = task.f
    names = ["rows_lhs", "rows_staged", *(f"positions_{d}" for d in range(task.checked.dims))]
    for name in names:
        source, target = _table(task, name), _table(task, name, "selected_")
        f.store(f.load(f.offset(source, row, "i64"), "i64"), f.offset(target, number, "i64"))


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


def _runs_of_columns(task: ProductTask) -> Iterator[tuple[LLVMValue | int, LLVMValue, int]]:
    """Yield the first column and the end of two runs of columns of a block, and the columns of a
    vector: whole vectors and the remaining columns."""
    columns, many = task.block.columns, task.sizes.tile.lanes
    whole = columns - columns % many
    yield 0, whole, many
    yield whole, columns, 1


def _clear_row(task: ProductTask, row: LLVMValue) -> None:
    """Set the sums at `row` to zero."""
    f = task.f
    for first, end, many in _runs_of_columns(task):
        type = vector_type(f"i{8 * task.arith.size}", many)
        with f.loop(first, end, many) as column:
            f.store(f.value(0, type), f.offset(row, column * task.arith.size),
                    task.arith.plane_bytes)  # fmt: skip


def _add_row(task: ProductTask, row: LLVMValue) -> None:
    """Add the sums of the row outside to those at `row`."""
    f, arith = task.f, task.arith
    with f.loop(0, task.block.columns * arith.planes) as i:
        at = f.offset(row, i * arith.plane_bytes)
        more = f.load(f.offset(task.places["outside_sums"], i * arith.plane_bytes), arith.type)
        f.store(f.load(at, arith.type) + more, at)
