"""Copies that convert floats: narrow types to the type of the computation, and back."""

from functools import partial

from shardir.backends.cpu.native.data import Context, Phase, View
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Value, Variable
from shardir.backends.cpu.native.moves import numbers
from shardir.backends.cpu.native.moves.grid import Block, Form, grid_kernel, grid_of
from shardir.backends.cpu.native.moves.loops import Loop, nest

BLOCK_ITEMS = 1 << 14


def cast_phases(source: View, target: View, context: Context) -> list[Phase]:
    """Return the phases that convert `source` to the float type of `target`.

    One of the two types is f32 or f64.
    """
    if source.size == 0:
        return []
    found = nest([source, target])
    *outer_loops, column = found.loops or (Loop(1, (0, 0)),)
    contiguous = column.strides == (source.itemsize, target.itemsize)
    grid = grid_of(
        [source, target],
        found,
        outer_loops[-1] if outer_loops else None,
        column,
        max(1, BLOCK_ITEMS // column.extent),
        BLOCK_ITEMS,
    )
    variant = "rows" if contiguous else "items"
    body = partial(_cast, source.dtype, target.dtype, contiguous)
    kernel = grid_kernel(f"cast_{variant}_{source.dtype}_{target.dtype}", Form(2), body)
    cost = source.size * (0.25 if contiguous else 1.0)
    return [grid.phase(kernel, cost, context.workers, f"cast to {target.dtype}")]


def _cast(source: str, target: str, contiguous: bool, f: Function, block: Block) -> None:
    middle = "double" if "f64" in (source, target) else "float"
    reads, writes = numbers.Kind(source, middle), numbers.Kind(target, middle)
    wide = host().lanes(8 if middle == "double" else 4)
    with f.loop(0, block.rows) as i:
        ends = [
            f.offset(address, i * stride)
            for address, stride in zip(block.addresses, block.row_strides, strict=True)
        ]
        position = f.variable("i64", 0)
        for lanes in (wide, 1) if contiguous else (1,):
            with f.while_(partial(fits, position, block.columns, lanes)):
                at = position.get()
                a, b = (
                    f.offset(end, at * stride)
                    for end, stride in zip(ends, block.column_strides, strict=True)
                )
                numbers.store(f, numbers.load(f, a, reads, lanes), b, writes)
                position.set(at + lanes)


def fits(position: Variable, stop: Value, lanes: int) -> Value:
    """Emit whether `lanes` more elements fit before `stop`."""
    return (position.get() + (lanes - 1)).is_("slt", stop)
