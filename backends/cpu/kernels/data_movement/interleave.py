"""Interleaves arrays that are concatenated along an innermost dimension of extent 1 each (`stack`
along the last axis, `dstack`, vectors as columns)."""

from collections.abc import Sequence
from functools import partial

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, lane_count as lanes_of
from shardir.backends.cpu.codegen.memory_hints import should_stream_stores
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    GridBlock,
    KernelForm,
    block_grid_of,
    grid_kernel,
)
from shardir.backends.cpu.kernels.data_movement.copy_bodies import item_type
from shardir.backends.cpu.kernels.data_movement.loop_nest import loop_nest_of
from shardir.backends.cpu.kernels.data_movement.view_transforms import slice_dim

MAX_INTERLEAVED_ARRAYS = 4
"""Maximum number of arrays."""
ITEM_BYTES = (1, 2, 4, 8)
MAX_BLOCK_COLUMNS = 1 << 13
"""Maximum columns of a block, and about its elements."""


def interleave_phases(
    operands: Sequence[BufferView], y: BufferView, dim: int, context: LoweringContext
) -> list[Phase] | None:
    """Return one phase for all operands, or None if the strides are not supported."""
    count, size = len(operands), y.itemsize
    if not 2 <= count <= MAX_INTERLEAVED_ARRAYS or size not in ITEM_BYTES or y.strides[dim] != size:
        return None
    if any(x.shape[dim] != 1 for x in operands):
        return None
    views = (*operands, slice_dim(y, dim, 0, 1))
    found = loop_nest_of(views)
    lanes = context.machine.lanes(size)
    column = found.loops[-1] if found.loops else None
    if column is None or column.extent < lanes:
        return None
    if column.strides != (*[size] * count, size * count):
        return None
    row = found.loops[-2] if len(found.loops) > 1 else None
    is_aligned = not any(
        number % context.machine.vector_bytes
        for number in (y.offset, *(loop.strides[-1] for loop in found.loops[:-1]))
    )
    streaming = is_aligned and should_stream_stores(y.nbytes, y.nbytes, context.machine)
    name = f"interleave{size}_{count}{'_streaming' if streaming else ''}"
    grid = block_grid_of(
        views, found, row, column, max(1, MAX_BLOCK_COLUMNS // column.extent), MAX_BLOCK_COLUMNS
    )
    kernel = grid_kernel(name, KernelForm(count + 1), partial(_interleave_block, size, streaming))
    return [grid.phase(kernel, y.nbytes / 10, context.workers, "interleave")]


def _interleave_block(size: int, streaming: bool, f: LLVMFunction, block: GridBlock) -> None:
    """Store as many target vectors as there are sources; a column is an item of each source."""
    lanes, one = f.machine.lanes(size), item_type(size)
    count = len(block.addresses) - 1
    with f.loop(0, block.rows) as row:
        *sources, target = (
            f.offset(address, row * stride)
            for address, stride in zip(block.addresses, block.row_strides, strict=True)
        )
        is_aligned = block.columns & -lanes
        with f.loop(0, is_aligned, lanes) as at:
            read = [f.load(f.offset(each, at, one), f"<{lanes} x {one}>", 1) for each in sources]
            place = f.offset(target, at * count, one)
            for number in range(count):
                interleaved_vector = _interleave_vectors(f, read, number * lanes)
                align = lanes * size if streaming else 1
                f.store(interleaved_vector, f.offset(place, number * lanes, one), align, streaming)
        with f.loop(is_aligned, block.columns) as at:
            for number, each in enumerate(sources):
                item = f.load(f.offset(each, at, one), one, 1)
                f.store(item, f.offset(target, at * count + number, one), 1)


def _interleave_vectors(f: LLVMFunction, vectors: Sequence[LLVMValue], start: int) -> LLVMValue:
    """Return a vector of the elements of all vectors in turn, from position `start`."""
    count, lanes = len(vectors), lanes_of(vectors[0].type)
    order = [at + which * lanes for at, which in (divmod(start + k, count) for k in range(lanes))]
    if count == 2:
        return f.shuffle(vectors[0], vectors[1], order)
    a, b, c, d = [*vectors, vectors[-1]][:MAX_INTERLEAVED_ARRAYS]
    both = range(2 * lanes)
    return f.shuffle(f.shuffle(a, b, both), f.shuffle(c, d, both), order)
