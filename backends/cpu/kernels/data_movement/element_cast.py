"""Copies that convert elements: narrow floats to the type of the computation, and back, and short
integers to longer ones."""

from functools import partial

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, StackVariable
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.data_movement import element_values
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    GridBlock,
    KernelForm,
    block_grid_of,
    grid_kernel,
)
from shardir.backends.cpu.kernels.data_movement.loop_nest import StridedLoop, loop_nest_of
from shardir.ir.dtypes import FLOATS
from shardir.ir.types import TensorType

BLOCK_ITEMS = 1 << 14
"""Elements of a block, which is also the limit of its columns."""


def cast_phases(
    source: BufferView, target: BufferView, context: LoweringContext, flipped_bits: int = 0
) -> list[Phase]:
    """Return the phases that convert `source` to the type of `target`.

    One of two float types is f32 or f64. The target of integers is as long or longer, and its
    `flipped_bits` are inverted.
    """
    if source.size == 0:
        return []
    found = loop_nest_of([source, target])
    *outer_loops, column = found.loops or (StridedLoop(1, (0, 0)),)
    contiguous = column.strides == (source.itemsize, target.itemsize)
    grid = block_grid_of(
        [source, target],
        found,
        outer_loops[-1] if outer_loops else None,
        column,
        max(1, BLOCK_ITEMS // column.extent),
        BLOCK_ITEMS,
    )
    variant = "rows" if contiguous else "items"
    body = partial(_cast, source.dtype, target.dtype, contiguous, flipped_bits)
    flips = f"_flip{flipped_bits:x}" if flipped_bits else ""
    kernel = grid_kernel(
        f"cast_{variant}_{source.dtype}_{target.dtype}{flips}", KernelForm(2), body
    )
    cost = source.size * (0.25 if contiguous else 1.0)
    return [grid.phase(kernel, cost, context.workers, f"cast to {target.dtype}")]


def _cast(
    source: str,
    target: str,
    contiguous: bool,
    flipped_bits: int,
    f: LLVMFunction,
    block: GridBlock,
) -> None:
    middle = MEMORY_TYPES[target]
    if target in FLOATS:
        middle = "double" if "f64" in (source, target) else "float"
    reads, writes = (
        element_values.ElementKind(source, middle),
        element_values.ElementKind(target, middle),
    )
    wide = f.machine.lanes(max(TensorType((), each).numpy.itemsize for each in (source, target)))
    with f.loop(0, block.rows) as i:
        ends = [
            f.offset(address, i * stride)
            for address, stride in zip(block.addresses, block.row_strides, strict=True)
        ]
        position = f.variable("i64", 0)
        for lanes in (wide, 1) if contiguous else (1,):
            with f.while_(partial(fits_before, position, block.columns, lanes)):
                at = position.get()
                a, b = (
                    f.offset(end, at * stride)
                    for end, stride in zip(ends, block.column_strides, strict=True)
                )
                value = element_values.load(f, a, reads, lanes)
                if flipped_bits:
                    value = value ^ flipped_bits
                element_values.store(f, value, b, writes)
                position.set(at + lanes)


def fits_before(position: StackVariable, stop: LLVMValue, lanes: int) -> LLVMValue:
    """Emit whether `lanes` more elements fit before `stop`."""
    return (position.get() + (lanes - 1)).is_("slt", stop)
