"""Reductions over sliding windows, one dimension at a time.

A window is a box, so that it is reduced along one dimension after the other. If another dimension
is contiguous, vectors run along it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, vector_type
from shardir.backends.cpu.kernel_api import (
    BufferView,
    LoweringContext,
    Phase,
    Rule,
    row_major_strides,
)
from shardir.backends.cpu.kernels.data_movement import element_values
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    BlockGrid,
    GridBlock,
    KernelForm,
    block_grid_of,
    grid_kernel,
)
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.data_movement.element_cast import fits_before
from shardir.backends.cpu.kernels.data_movement.loop_nest import LoopNest, loop_nest_of
from shardir.backends.cpu.kernels.data_movement.view_transforms import as_real_parts
from shardir.backends.cpu.schedule.buffer_views import dimension_order
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX, TensorType

BLOCK_ITEMS = 1 << 12
"""Elements of a block, which is also the limit of its columns."""


class SlidingWindow(NamedTuple):
    """The windows along one dimension: six words of a record."""

    size: int
    stride: int
    low: int
    dilation: int
    base_dilation: int
    extent: int
    """The number of elements along the dimension."""


def sliding_windows(op: Op, shape: Sequence[int]) -> list[SlidingWindow]:
    """Return the windows of an operation along each dimension of its operand's `shape`."""
    a = op.attrs
    return [
        SlidingWindow(a["window"][d], a["strides"][d], a["padding"][d][0], a["window_dilation"][d],
                a["base_dilation"][d], extent)
        for d, extent in enumerate(shape)
    ]  # fmt: skip


def windowed_dims(op: Op, operand: Sequence[int], places: Sequence[int]) -> list[int]:
    """Return the dimensions along which windows are not single elements."""
    found = sliding_windows(op, operand)
    return [
        d
        for d, (each, n, count) in enumerate(zip(found, operand, places, strict=True))
        if (each.size, each.stride, each.low, each.base_dilation) != (1, 1, 0, 1) or n != count
    ]


def reduce_window_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower a window reduction to a phase for each dimension along which windows are not
    trivial."""
    (x,), (y,) = operands, results
    combine = str(op.attrs["op"])
    if y.size == 0:
        return []
    if x.dtype in COMPLEX and combine != "add":
        return None
    dims, sliding, order = (
        windowed_dims(op, x.shape, y.shape),
        sliding_windows(op, x.shape),
        dimension_order(x),
    )
    if not dims:
        return copy_phases(x, y, context)
    phases, shape = [], x.shape
    for number, d in enumerate(dims):
        target = y
        shape = (*shape[:d], y.shape[d], *shape[d + 1 :])
        if number < len(dims) - 1:
            dtype = "f32" if y.dtype in NARROW_FLOATS else y.dtype
            type = TensorType(shape, dtype)
            target = BufferView(
                context.temporary(type.nbytes), 0, shape, row_major_strides(type, order), dtype
            )
        # Without elements along another dimension, windows of padding have an empty intermediate.
        if target.size:
            phases.append(_window_phase(combine, x, target, d, sliding[d], context))
        x = target
    return phases


def _window_phase(
    combine: str,
    x: BufferView,
    y: BufferView,
    dim: int,
    sliding: SlidingWindow,
    context: LoweringContext,
) -> Phase:
    """Return the phase that reduces windows along one dimension."""
    step = x.strides[dim]
    x, y = as_real_parts(x), as_real_parts(y)
    start = x._replace(
        shape=y.shape, strides=tuple(0 if d == dim else s for d, s in enumerate(x.strides))
    )
    place = y._replace(offset=0, strides=tuple(int(d == dim) for d in range(len(y.shape))))
    found = loop_nest_of([start, y, place], counters=1)
    grid, contiguous = window_grid([x, y], found, range(2), range(2, 3))
    variant = "rows" if contiguous else "items"
    kernel = grid_kernel(
        f"window_{combine}_{variant}_{x.dtype}_{y.dtype}",
        KernelForm(2, 1, 7),
        partial(_combine, combine, x.dtype, y.dtype, contiguous),
    )
    cost = y.size * (1 + sliding.size) * (0.15 if contiguous else 1.0)
    return grid.phase(kernel, cost, context.workers, "reduce_window", (*sliding, step))


def window_grid(
    views: Sequence[BufferView],
    found: LoopNest,
    contiguous_views: Sequence[int],
    count: Sequence[int],
) -> tuple[BlockGrid, bool]:
    """Return the grid, and whether columns are contiguous in the `contiguous_views` and advance no
    counter."""
    columns = [
        loop
        for loop in found.loops
        if not any(loop.strides[i] for i in count)
        and all(loop.strides[i] == views[i].itemsize for i in contiguous_views)
    ]
    column = columns[-1] if columns else found.loops[-1] if found.loops else None
    rows = [loop for loop in found.loops if loop is not column]
    extent = column.extent if column else 1
    row = rows[-1] if rows else None
    grid = block_grid_of(views, found, row, column, max(1, BLOCK_ITEMS // extent), BLOCK_ITEMS)
    return grid, bool(columns)


def for_each_column_group(
    f: LLVMFunction,
    block: GridBlock,
    lanes: int,
    contiguous: bool,
    body: Callable[[LLVMValue, int, int], object],
) -> None:
    """Call `body` for all columns, with the first column, the number of vectors, and their
    lanes."""
    position = f.variable("i64", 0)
    for count, wide in ((4, lanes), (1, lanes), (1, 1)) if contiguous else ((1, 1),):
        with f.while_(partial(fits_before, position, block.columns, count * wide)):
            body(position.get(), count, wide)
            position.set(position.get() + count * wide)


def window_element(
    f: LLVMFunction, place: LLVMValue, number: LLVMValue, words: Sequence[LLVMValue]
) -> tuple[LLVMValue, LLVMValue]:
    """Return the index of the `number`-th element of a window, and whether it exists."""
    _, stride, low, dilation, base, extent = words
    at = place * stride - low + number * dilation
    one = base.is_("eq", 1)
    index = f.variable("i64", at)
    inside = f.variable("i1", at.is_("ult", extent))
    with f.when(one ^ 1):
        index.set(at / base)
        inside.set(at.is_("sge", 0) & (at % base).is_("eq", 0) & index.get().is_("ult", extent))
    return index.get(), inside.get()


def _combine(
    op: str, dtype: str, to: str, contiguous: bool, f: LLVMFunction, block: GridBlock
) -> None:
    """Combine one element of each window at a time, for all vectors of a group."""
    reads = element_values.kind_of(dtype)
    writes = element_values.ElementKind(to, reads.type)
    words = [block.extra(i) for i in range(6)]
    step = block.extra(6)
    identity_value = 0.0 if op == "add" else element_values.identity_element(op, dtype)
    from_column, to_column, on_column = block.column_strides

    with f.loop(0, block.rows) as i:
        source, target = (
            f.offset(address, i * stride)
            for address, stride in zip(block.addresses[:2], block.row_strides[:2], strict=True)
        )
        first = block.addresses[2] + i * block.row_strides[2]

        def columns(at: LLVMValue, vectors: int, lanes: int) -> None:
            kinds = vector_type(reads.type, lanes)
            totals = [f.variable(kinds, identity_value) for _ in range(vectors)]
            with f.loop(0, words[0]) as number:
                index, inside = window_element(f, first + at * on_column, number, words)
                with f.when(inside):
                    start = f.offset(source, index * step)
                    for k, total in enumerate(totals):
                        place = f.offset(start, (at + k * lanes) * from_column)
                        new = element_values.load(f, place, reads, lanes)
                        total.set(element_values.combine(f, op, total.get(), new, dtype))
            for k, total in enumerate(totals):
                element_values.store(
                    f, total.get(), f.offset(target, (at + k * lanes) * to_column), writes
                )

        for_each_column_group(
            f,
            block,
            f.machine.lanes(max(4, element_values.ELEMENT_BYTES[dtype])),
            contiguous,
            columns,
        )


RULES: dict[str, Rule] = {"reduce_window": reduce_window_rule}
"""Products of complex numbers are not supported."""
