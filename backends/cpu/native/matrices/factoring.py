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
    (x,), (made, pivots, order) = operands, results
    rows, columns = x.shape[-2:]
    if order.size == 0:
        return []
    if held_bytes(rows, columns, x.dtype) > SCRATCH_BYTES:
        return None
    views = [outer(x, 2), outer(pivots, 1), outer(order, 1), outer(made, 2)]
    found = nest(views)
    many = max(found.loops, key=lambda loop: loop.extent, default=None)
    count = prod(x.shape[:-2])
    planes = wide(x.dtype).planes
    work = max(rows, columns) * (rows * columns / RATE * planes**2 + 20.0) + 50.0
    each = -(-(many.extent if many else 1) // max(1, min(4 * context.workers, count)))
    grid = grid_of(views, found, None, many, 1, each)
    beside = neighbours(x), neighbours(made)
    name = f"lu_{x.dtype}_{'n' if beside[0] else 's'}{'n' if beside[1] else 's'}"
    kernel = grid_kernel(name, Form(4, extras=9), partial(_factored, x.dtype, beside))
    extra = (rows, columns, *x.strides[-2:], *made.strides[-2:], pivots.strides[-1],
             order.strides[-1], row_bytes(columns))  # fmt: skip
    return [grid.phase(kernel, count * work, context.workers, "lu", extra)]


def _factored(dtype: str, beside: tuple[bool, bool], f: Function, block: Block) -> None:
    emit_update(f.module, dtype)
    emit_substitute(f.module, dtype, unit=True)
    numbers = wide(dtype)
    rows, columns, *steps, pivot_step, order_step, apart = map(block.extra, range(9))
    held = Held(block.scratch, apart, rows * apart)
    filled = (columns + (LANES - 1)) & -LANES
    with f.loop(0, block.columns) as which:
        source, pivots, order, target = (
            f.offset(address, which * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        Copying(f, dtype, beside[0]).bring(source, steps[:2], rows, columns, held)
        with f.loop(0, rows) as i:
            f.store(i.to("i32", "trunc"), f.offset(order, i * order_step), 4)

        def pivot_column(k: Value, pivots: Value = pivots, order: Value = order) -> None:
            best = _largest(f, numbers, held, k, rows)
            f.store(best.to("i32", "trunc"), f.offset(pivots, k * pivot_step), 4)
            with f.when(best.is_("ne", k)):
                _exchanged(f, numbers, held, k, best, filled)
                ends = [f.offset(order, row * order_step) for row in (k, best)]
                one, other = (f.load(end, "i32", 4) for end in ends)
                f.store(other, ends[0], 4)
                f.store(one, ends[1], 4)

        eliminate(f, numbers, held, rows, columns, pivot_column)
        Copying(f, dtype, beside[1]).put(held, rows, columns, target, steps[2:])


def eliminate(
    f: Function, numbers: Arithmetic, held: Held, rows: Value, columns: Value,
    before: Callable[[Value], None] | None = None,
) -> None:  # fmt: skip
    """Emit an in-place LU decomposition; `before` chooses and swaps the pivot of each column."""
    least = f.least(rows, columns)
    with f.loop(0, least, LANES) as first:
        height = f.least(least - first, LANES)
        with f.loop(first, first + height) as k:
            if before:
                before(k)
            _eliminated(f, numbers, held, first, k, rows)
        beyond = first + LANES
        with f.when(beyond.is_("slt", columns)):
            right, corner = held.at(first, beyond), held.at(first, first)
            f.call("substitute", [height, columns - beyond, *corner, *right])
            with f.when(beyond.is_("slt", rows)):
                below, rest = held.at(beyond, first), held.at(beyond, beyond)
                f.call("update", [rows - beyond, columns - beyond, *below, *right, *rest])


def _largest(f: Function, numbers: Arithmetic, held: Held, k: Value, rows: Value) -> Value:
    """Return the row from `k` on with the largest element of column `k`: the first NaN, if any."""
    largest = f.variable("double", size(f, load(f, held.at(k, k), numbers, "double")))
    best = f.variable("i64", k)
    with f.loop(k + 1, rows) as i:
        here = size(f, load(f, held.at(i, k), numbers, "double"))
        now = largest.get()
        better = here.is_("ugt", now) & now.is_("ord", 0.0)
        largest.set(f.select(better, here, now))
        best.set(f.select(better, i, best.get()))
    return best.get()


def _exchanged(
    f: Function, numbers: Arithmetic, held: Held, k: Value, best: Value, columns: Value
) -> None:
    with f.loop(0, columns, LANES) as j:
        one, other = held.at(k, j), held.at(best, j)
        kept, new = load(f, one, numbers), load(f, other, numbers)
        store(f, new, one, numbers)
        store(f, kept, other, numbers)


def _eliminated(
    f: Function, numbers: Arithmetic, held: Held, first: Value, k: Value, rows: Value
) -> None:
    """Eliminate column `k` from the rows below it, in the block that begins at column `first`."""
    step = k - first
    whole = vector("i64", LANES)
    numbered = f"<{', '.join(f'i64 {lane}' for lane in range(LANES))}>"
    lanes = Value(numbered, whole, f)
    here, after = (lanes.is_(how, f.splat(step, LANES)) for how in ("eq", "sgt"))
    line = load(f, held.at(k, first), numbers)
    pivot = load(f, held.at(k, k), numbers, "double")
    # If the largest element is zero, all are, and stay zero.
    zero = pivot[0].is_("oeq", 0.0)
    for part in pivot[1:]:
        zero = zero & part.is_("oeq", 0.0)
    pivot[0] = f.select(zero, 1.0, pivot[0])
    by = inverse(f, pivot) if numbers.planes == 2 else pivot
    with f.loop(k + 1, rows) as i:
        there = held.at(i, first)
        old = load(f, there, numbers)
        below = load(f, there.at(0, step), numbers, "double")
        share = product(below, by) if numbers.planes == 2 else [below[0] / by[0]]
        shares = spread(f, share)
        less = less_product(f, numbers, shares, line, old)
        new = [
            f.select(after, a, f.select(here, b, c))
            for a, b, c in zip(less, shares, old, strict=True)
        ]
        store(f, new, there, numbers)


RULES: dict[str, Rule] = {"lu": lu_rule}
