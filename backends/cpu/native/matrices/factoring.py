"""LU decompositions of batches, in blocks of columns.

A block is factored column by column with partial pivoting; then the part right of it becomes rows
of U, and the trailing matrix is updated by their product.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from shardir.backends.cpu.native.contraction.elements import Arithmetic
from shardir.backends.cpu.native.data import SCRATCH_BYTES, Context, Phase, Rule, View
from shardir.backends.cpu.native.llvm.text import Function, Value, vector
from shardir.backends.cpu.native.matrices.held import (
    LANES,
    Copying,
    Held,
    emit_substitute,
    emit_update,
    held_bytes,
    inverse,
    less_product,
    load,
    neighbours,
    product,
    row_bytes,
    size,
    spread,
    store,
    wide,
)
from shardir.backends.cpu.native.moves.grid import Block, Form, grid_kernel, grid_of
from shardir.backends.cpu.native.moves.loops import nest
from shardir.ir import Op

RATE = 8.0
"""Approximate multiply-adds per nanosecond."""


def outer(view: View, dims: int) -> View:
    """Return the view of the first elements of matrices or vectors of rank `dims`."""
    rank = len(view.shape) - dims
    return view._replace(shape=view.shape[:rank], strides=view.strides[:rank])


def lu_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Lower LU decompositions of matrices that fit into scratch memory."""
    (x,), (result, pivots, order) = operands, results
    rows, columns = x.shape[-2:]
    if order.size == 0:
        return []
    if held_bytes(rows, columns, x.dtype) > SCRATCH_BYTES:
        return None
    views = [outer(x, 2), outer(pivots, 1), outer(order, 1), outer(result, 2)]
    found = nest(views)
    longest_loop = max(found.loops, key=lambda loop: loop.extent, default=None)
    count = prod(x.shape[:-2])
    planes = wide(x.dtype).planes
    work = max(rows, columns) * (rows * columns / RATE * planes**2 + 20.0) + 50.0
    each = -(
        -(longest_loop.extent if longest_loop else 1) // max(1, min(4 * context.workers, count))
    )
    grid = grid_of(views, found, None, longest_loop, 1, each)
    is_contiguous = neighbours(x), neighbours(result)
    name = f"lu_{x.dtype}_{'n' if is_contiguous[0] else 's'}{'n' if is_contiguous[1] else 's'}"
    kernel = grid_kernel(name, Form(4, extras=9), partial(_factored, x.dtype, is_contiguous))
    extra = (rows, columns, *x.strides[-2:], *result.strides[-2:], pivots.strides[-1],
             order.strides[-1], row_bytes(columns))  # fmt: skip
    return [grid.phase(kernel, count * work, context.workers, "lu", extra)]


def _factored(dtype: str, is_contiguous: tuple[bool, bool], f: Function, block: Block) -> None:
    emit_update(f.module, dtype)
    emit_substitute(f.module, dtype, unit=True)
    numbers = wide(dtype)
    rows, columns, *steps, pivot_step, order_step, row_step = map(block.extra, range(9))
    matrix = Held(block.scratch, row_step, rows * row_step)
    filled = (columns + (LANES - 1)) & -LANES
    with f.loop(0, block.columns) as which:
        source, pivots, order, target = (
            f.offset(address, which * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        Copying(f, dtype, is_contiguous[0]).bring(source, steps[:2], rows, columns, matrix)
        with f.loop(0, rows) as i:
            f.store(i.to("i32", "trunc"), f.offset(order, i * order_step), 4)

        def pivot_column(k: Value, pivots: Value = pivots, order: Value = order) -> None:
            best = _largest(f, numbers, matrix, k, rows)
            f.store(best.to("i32", "trunc"), f.offset(pivots, k * pivot_step), 4)
            with f.when(best.is_("ne", k)):
                _exchanged(f, numbers, matrix, k, best, filled)
                ends = [f.offset(order, row * order_step) for row in (k, best)]
                one, other = (f.load(end, "i32", 4) for end in ends)
                f.store(other, ends[0], 4)
                f.store(one, ends[1], 4)

        eliminate(f, numbers, matrix, rows, columns, pivot_column)
        Copying(f, dtype, is_contiguous[1]).put(matrix, rows, columns, target, steps[2:])


def eliminate(
    f: Function, numbers: Arithmetic, matrix: Held, rows: Value, columns: Value,
    before: Callable[[Value], None] | None = None,
) -> None:  # fmt: skip
    """Emit an in-place LU decomposition; `before` chooses and swaps the pivot of each column."""
    pivot_count = f.least(rows, columns)
    with f.loop(0, pivot_count, LANES) as first:
        height = f.least(pivot_count - first, LANES)
        with f.loop(first, first + height) as k:
            if before:
                before(k)
            _eliminated(f, numbers, matrix, first, k, rows)
        beyond = first + LANES
        with f.when(beyond.is_("slt", columns)):
            right, corner = matrix.at(first, beyond), matrix.at(first, first)
            f.call("substitute", [height, columns - beyond, *corner, *right])
            with f.when(beyond.is_("slt", rows)):
                below, rest = matrix.at(beyond, first), matrix.at(beyond, beyond)
                f.call("update", [rows - beyond, columns - beyond, *below, *right, *rest])


def _largest(f: Function, numbers: Arithmetic, matrix: Held, k: Value, rows: Value) -> Value:
    """Return the row from `k` on with the largest element of column `k`: the first NaN, if any."""
    largest = f.variable("double", size(f, load(f, matrix.at(k, k), numbers, "double")))
    best = f.variable("i64", k)
    with f.loop(k + 1, rows) as i:
        here = size(f, load(f, matrix.at(i, k), numbers, "double"))
        now = largest.get()
        better = here.is_("ugt", now) & now.is_("ord", 0.0)
        largest.set(f.select(better, here, now))
        best.set(f.select(better, i, best.get()))
    return best.get()


def _exchanged(
    f: Function, numbers: Arithmetic, matrix: Held, k: Value, best: Value, columns: Value
) -> None:
    with f.loop(0, columns, LANES) as j:
        one, other = matrix.at(k, j), matrix.at(best, j)
        old, new = load(f, one, numbers), load(f, other, numbers)
        store(f, new, one, numbers)
        store(f, old, other, numbers)


def _eliminated(
    f: Function, numbers: Arithmetic, matrix: Held, first: Value, k: Value, rows: Value
) -> None:
    """Eliminate column `k` from the rows below it, in the block that begins at column `first`."""
    step = k - first
    whole = vector("i64", LANES)
    lane_text = f"<{', '.join(f'i64 {lane}' for lane in range(LANES))}>"
    lanes = Value(lane_text, whole, f)
    here, after = (lanes.is_(how, f.splat(step, LANES)) for how in ("eq", "sgt"))
    line = load(f, matrix.at(k, first), numbers)
    pivot = load(f, matrix.at(k, k), numbers, "double")
    # If the largest element is zero, all are, and stay zero.
    zero = pivot[0].is_("oeq", 0.0)
    for part in pivot[1:]:
        zero = zero & part.is_("oeq", 0.0)
    pivot[0] = f.select(zero, 1.0, pivot[0])
    by = inverse(f, pivot) if numbers.planes == 2 else pivot
    with f.loop(k + 1, rows) as i:
        there = matrix.at(i, first)
        old = load(f, there, numbers)
        below = load(f, there.at(0, step), numbers, "double")
        share = product(below, by) if numbers.planes == 2 else [below[0] / by[0]]
        shares = spread(f, share)
        updated = less_product(f, numbers, shares, line, old)
        new = [
            f.select(after, a, f.select(here, b, c))
            for a, b, c in zip(updated, shares, old, strict=True)
        ]
        store(f, new, there, numbers)


RULES: dict[str, Rule] = {"lu": lu_rule}
