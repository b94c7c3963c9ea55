"""The rule of `dot`."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from shardir.backends.cpu.native.contraction.einsum import Loop, Product, product_of
from shardir.backends.cpu.native.contraction.elements import arithmetic, converts
from shardir.backends.cpu.native.contraction.grid import Grid, grid_of
from shardir.backends.cpu.native.contraction.kernel import Sizes, product_kernel
from shardir.backends.cpu.native.contraction.record import written
from shardir.backends.cpu.native.data import Context, Phase, View
from shardir.ir import Op

PARTED = 128
"""Bytes of columns from which on loops of columns are done one by one."""
PACKED = 256 << 10
"""Bytes that a task packs for later ones."""


def dot_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> Sequence[Phase] | None:
    """A product of two matrices, or many."""
    lhs, rhs = operands
    (out,) = results
    if not all(converts(view.dtype, arithmetic(out.dtype)) for view in operands):
        return None
    return multiplied(product_of(op.attrs["dims"], lhs, rhs, out), context, "dot")


def dot_order(op: Op, operands: Sequence[View]) -> Sequence[int]:
    """Batch first, then what the left operand has, then the right one, as they have them."""
    left, right = op.attrs["dims"].partition("->")[0].split(",")
    output = op.attrs["dims"].partition("->")[2]
    lhs, rhs = (
        dict(zip(term, view.strides, strict=True))
        for term, view in zip((left, right), operands, strict=True)
    )

    def place(dim: int) -> tuple[int, int]:
        letter = output[dim]
        if letter in lhs:
            return (0 if letter in rhs else 1), -abs(lhs[letter])
        return 2, -abs(rhs[letter])

    return sorted(range(len(output)), key=place)


def multiplied(work: Product, context: Context, label: str) -> list[Phase]:
    """The phases of a product."""
    if not work.out.size:
        return []
    numbers = arithmetic(work.out.dtype)
    item = work.out.itemsize
    if not _stored_at_once(work, item) and _stored_at_once(work.turned(), item):
        work = work.turned()
    while len(work.columns) > 1 and work.columns[-1].extent * item >= PARTED:
        work = replace(work, batch=(work.columns[0], *work.batch), columns=work.columns[1:])
    sizes = Sizes.of(numbers)
    direct = len(work.columns) < 2 and _stored_at_once(work, item)
    staged = numbers.dtype != work.out.dtype or not direct
    batch, rows, columns, inner = work.sizes
    shared = prod(loop.extent for loop in work.batch if loop.rhs == 0)
    grid = grid_of(
        batch, rows, columns, inner, sizes, staged, shared > 1, context.workers, rate(numbers.part)
    )
    return _phases(work, grid, sizes, staged, context, label)


def rate(size: int) -> float:
    """Products and sums a nanosecond, about, of numbers of so many bytes."""
    return 400.0 / size


def _stored_at_once(work: Product, item: int) -> bool:
    """Whether columns of the result are neighbours."""
    return not work.columns or work.columns[-1].out == item


def _phases(
    work: Product, grid: Grid, sizes: Sizes, staged: bool, context: Context, label: str
) -> list[Phase]:
    numbers = arithmetic(work.out.dtype)
    kernel = product_kernel(work.lhs.dtype, work.rhs.dtype, work.out.dtype, numbers)
    batch, rows, columns, inner = work.sizes
    width = sizes.tile.columns
    panels = -(-columns // width) * width
    step = panels * inner * numbers.size
    entries, packed_size = [], step
    for loop in reversed(work.batch):
        entries.append((*loop, packed_size if loop.rhs else 0))
        packed_size *= loop.extent if loop.rhs else 1
    slot = context.temporary(packed_size) if grid.packed else 0
    fields = {
        "packing": 0,
        "lhs_slot": work.lhs.slot, "lhs_offset": work.lhs.offset,
        "rhs_slot": work.rhs.slot, "rhs_offset": work.rhs.offset,
        "out_slot": work.out.slot, "out_offset": work.out.offset,
        "packed_slot": slot, "staged": int(staged),
        "rows": rows, "columns": columns, "inner": inner,
        "block_rows": grid.rows, "block_columns": grid.columns,
        "row_blocks": -(-rows // grid.rows), "column_blocks": -(-columns // grid.columns),
    }  # fmt: skip
    lists: dict[str, Sequence[tuple[int, ...]]] = {
        "batch": entries,
        "rows_lhs": _strides(work.rows, 1), "rows_out": _strides(work.rows, 3),
        "columns_rhs": _strides(work.columns, 2), "columns_out": _strides(work.columns, 3),
        "inner_lhs": _strides(work.inner, 1), "inner_rhs": _strides(work.inner, 2),
    }  # fmt: skip
    out = []
    if grid.packed:
        block = max(width, min(sizes.columns, PACKED // (inner * numbers.size) // width * width))
        blocks = -(-columns // block)
        kept = [entry for entry in entries if entry[2]]
        before = {**fields, "packing": 1, "block_columns": block, "column_blocks": blocks,
                  "row_blocks": 1}  # fmt: skip
        tasks = blocks * prod(entry[0] for entry in kept)
        out.append(
            Phase(kernel, written(before, {**lists, "batch": kept}), tasks,
                  0.25 * packed_size / numbers.size, f"{label} packing")
        )  # fmt: skip
    tasks = batch * fields["row_blocks"] * fields["column_blocks"]
    out.append(Phase(kernel, written(fields, lists), tasks, grid.cost, label))
    return out


def _strides(loops: Sequence[Loop], which: int) -> list[tuple[int, int]]:
    """Pairs of extent and stride, innermost first; at least one."""
    return [(loop[0], loop[which]) for loop in reversed(loops)] or [(1, 0)]
