"""Cumulative products of complex numbers: the parts of several lines are held in registers."""

from collections.abc import Sequence
from functools import partial

from shardir.backends.cpu.native.data import Context, Phase, View
from shardir.backends.cpu.native.llvm.text import Function, Value, Variable
from shardir.backends.cpu.native.moves.grid import Block, Form, grid_kernel, grid_of
from shardir.backends.cpu.native.moves.loops import nest

TOGETHER = 8
"""Number of lines that are processed together."""
NANOSECONDS = 1.5
PARTS = {"c64": ("float", 4), "c128": ("double", 8)}
"""The LLVM type of a part in memory, and its bytes. Products are computed in double."""

Line = tuple[Value, Value, Variable, Variable]


def product_phases(x: View, y: View, dim: int, context: Context) -> list[Phase]:
    """Return one phase over all lines along a dimension."""
    found = nest([x, y], [dim])
    column = found.loops[-1] if found.loops else None
    row = found.loops[-2] if len(found.loops) > 1 else None
    grid = grid_of([x, y], found, row, column, 1, TOGETHER)
    kernel = grid_kernel(f"running_mul_{x.dtype}", Form(2, extras=3), partial(_products, x.dtype))
    extra = (x.shape[dim], x.strides[dim], y.strides[dim])
    return [grid.phase(kernel, x.size * NANOSECONDS, context.workers, "cumprod", extra)]


def _products(dtype: str, f: Function, block: Block) -> None:
    def line(number: Value) -> Line:
        source, target = (
            f.offset(address, number * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        return source, target, f.variable("double", 1.0), f.variable("double", 0.0)

    def together() -> None:
        _walk(f, dtype, block, [line(f.value(number, "i64")) for number in range(TOGETHER)])

    def one_by_one() -> None:
        with f.loop(0, block.columns) as number:
            _walk(f, dtype, block, [line(number)])

    f.choose(block.columns.is_("eq", TOGETHER), together, one_by_one)


def _walk(f: Function, dtype: str, block: Block, lines: Sequence[Line]) -> None:
    steps, from_step, to_step = (block.extra(i) for i in range(3))
    kind, size = PARTS[dtype]

    def read(address: Value) -> Value:
        value = f.load(address, kind, 1)
        return value if kind == "double" else value.to("double", "fpext")

    def write(value: Value, address: Value) -> None:
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
