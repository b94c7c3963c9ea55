"""Cumulative products of complex numbers: the parts of several lines are held in registers."""

from collections.abc import Sequence
from functools import partial

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, StackVariable
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    GridBlock,
    KernelForm,
    block_grid_of,
    grid_kernel,
)
from shardir.backends.cpu.kernels.data_movement.loop_nest import loop_nest_of

LINES_PER_GROUP = 8
"""Number of lines that are processed together."""
ELEMENT_NS = 1.5
"""Estimated nanoseconds for an element."""
PART_TYPES = {"c64": ("float", 4), "c128": ("double", 8)}
"""The LLVM type of a part in memory, and its bytes. Products are computed in double."""

Line = tuple[LLVMValue, LLVMValue, StackVariable, StackVariable]


def cumprod_phases(x: BufferView, y: BufferView, dim: int, context: LoweringContext) -> list[Phase]:
    """Return one phase over all lines along a dimension."""
    found = loop_nest_of([x, y], [dim])
    column = found.loops[-1] if found.loops else None
    row = found.loops[-2] if len(found.loops) > 1 else None
    grid = block_grid_of([x, y], found, row, column, 1, LINES_PER_GROUP)
    kernel = grid_kernel(
        f"running_mul_{x.dtype}", KernelForm(2, extras=3), partial(_products, x.dtype)
    )
    extra = (x.shape[dim], x.strides[dim], y.strides[dim])
    return [grid.phase(kernel, x.size * ELEMENT_NS, context.workers, "cumprod", extra)]


def _products(dtype: str, f: LLVMFunction, block: GridBlock) -> None:
    def line(number: LLVMValue) -> Line:
        source, target = (
            f.offset(address, number * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        return source, target, f.variable("double", 1.0), f.variable("double", 0.0)

    def together() -> None:
        _multiply_lines(
            f, dtype, block, [line(f.value(number, "i64")) for number in range(LINES_PER_GROUP)]
        )

    def one_by_one() -> None:
        with f.loop(0, block.columns) as number:
            _multiply_lines(f, dtype, block, [line(number)])

    f.if_else(block.columns.is_("eq", LINES_PER_GROUP), together, one_by_one)


def _multiply_lines(f: LLVMFunction, dtype: str, block: GridBlock, lines: Sequence[Line]) -> None:
    steps, from_step, to_step = (block.extra(i) for i in range(3))
    kind, size = PART_TYPES[dtype]

    def read(address: LLVMValue) -> LLVMValue:
        value = f.load(address, kind, 1)
        return value if kind == "double" else value.to("double", "fpext")

    def write(value: LLVMValue, address: LLVMValue) -> None:
        f.store(value if kind == "double" else value.to(kind, "fptrunc"), address, 1)

    for source, target, real, imag in lines:
        real.set(read(source))
        imag.set(read(f.offset(source, size)))
        write(real.get(), target)
        write(imag.get(), f.offset(target, size))
    with f.loop(1, steps) as i:
        for source, target, real, imag in lines:
            at, to = f.offset(source, i * from_step), f.offset(target, i * to_step)
            a, b, c, d = real.get(), imag.get(), read(at), read(f.offset(at, size))
            real.set(a * c - b * d)
            imag.set(a * d + b * c)
            write(real.get(), to)
            write(imag.get(), f.offset(to, size))
