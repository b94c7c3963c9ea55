"""QR decompositions of real matrices by Householder reflections, in blocks of columns."""

from collections.abc import Sequence
from functools import partial
from math import prod

from shardir.backends.cpu.native.data import SCRATCH_BYTES, Context, Phase, Rule, View
from shardir.backends.cpu.native.llvm.text import Function, Value
from shardir.backends.cpu.native.matrices.factoring import RATE, outer
from shardir.backends.cpu.native.matrices.held import (
    ITEM,
    LANES,
    VECTOR,
    Copying,
    Held,
    held_bytes,
    load,
    neighbours,
    padded,
    row_bytes,
    store,
)
from shardir.backends.cpu.native.matrices.orthogonal import called_qr
from shardir.backends.cpu.native.matrices.reflections import (
    REAL,
    TRIANGLE,
    emit_apply,
    emit_panel,
    emit_reflectors,
    numbered,
)
from shardir.backends.cpu.native.moves.grid import Block, Form, grid_kernel, grid_of
from shardir.backends.cpu.native.moves.loops import nest
from shardir.ir import Op
from shardir.types import COMPLEX


def qr_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Lower QR decompositions of matrices that fit into scratch memory with Q; others use
    LAPACK."""
    (x,), (q, r) = operands, results
    rows, columns = x.shape[-2:]
    left, least = q.shape[-1], min(rows, columns)
    panel_bytes = rows * LANES * ITEM + padded(least) * TRIANGLE // LANES
    scratch_need = (
        held_bytes(rows, columns, x.dtype) + held_bytes(rows, left, x.dtype) + panel_bytes
    )
    if x.dtype in COMPLEX or x.size == 0 or scratch_need > SCRATCH_BYTES:
        return called_qr(op, operands, results, context)
    views = [outer(x, 2), outer(q, 2), outer(r, 2)]
    found = nest(views)
    longest_loop = max(found.loops, key=lambda loop: loop.extent, default=None)
    count = prod(x.shape[:-2])
    work = least * (rows * (columns + left) / RATE + rows + 50.0) + 100.0
    each = -(
        -(longest_loop.extent if longest_loop else 1) // max(1, min(4 * context.workers, count))
    )
    grid = grid_of(views, found, None, longest_loop, 1, each)
    flags = tuple(neighbours(view) for view in (x, q, r))
    name = f"qr_{x.dtype}_{''.join('n' if flag else 's' for flag in flags)}"
    kernel = grid_kernel(name, Form(3, extras=11), partial(_factored, x.dtype, flags))
    strides = (view.strides[-2:] for view in (x, q, r))
    extra = (rows, columns, left, *sum(strides, ()), row_bytes(columns), row_bytes(left))
    return [grid.phase(kernel, count * work, context.workers, "qr", extra)]


def _factored(dtype: str, flags: Sequence[bool], f: Function, block: Block) -> None:
    emit_panel(f.module)
    emit_reflectors(f.module)
    emit_apply(f.module, turned=True)
    emit_apply(f.module, turned=False)
    rows, columns, left, *steps, row_step, row_step_q = map(block.extra, range(11))
    matrix = Held(block.scratch, row_step, rows * row_step)
    q = Held(f.offset(block.scratch, rows * row_step), row_step_q, rows * row_step_q)
    v = f.offset(q.start, rows * row_step_q)
    triangles = f.offset(v, rows * (LANES * ITEM))
    least = f.least(rows, columns)
    copying = [Copying(f, dtype, flag) for flag in flags]
    with f.loop(0, block.columns) as which:
        source, target_q, target_r = (
            f.offset(address, which * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        copying[0].bring(source, steps[:2], rows, columns, matrix)
        with f.loop(0, least, LANES) as first:
            width = f.least(least - first, LANES)
            triangle = f.offset(triangles, first * (TRIANGLE // LANES))
            here, high = matrix.at(first, first), rows - first
            f.call("panel", [high, width, *here, triangle])
            f.call("reflectors", [high, width, *here, v])
            f.call("triangle", [high, v, triangle])
            beyond = first + LANES
            with f.when(beyond.is_("slt", columns)):
                rest = matrix.at(first, beyond)
                f.call("apply_turned", [high, columns - beyond, v, triangle, *rest])
        _identity(f, q, rows, left)
        with f.loop(0, least, LANES) as done:
            first = ((least - 1) & -LANES) - done
            triangle = f.offset(triangles, first * (TRIANGLE // LANES))
            width, high = f.least(least - first, LANES), rows - first
            f.call("reflectors", [high, width, *matrix.at(first, first), v])
            f.call("apply", [high, left - first, v, triangle, *q.at(first, first)])
        copying[1].put(q, rows, left, target_q, steps[2:4])
        _upper(f, matrix, left, columns)
        copying[2].put(matrix, left, columns, target_r, steps[4:])


def _identity(f: Function, q: Held, rows: Value, columns: Value) -> None:
    with f.loop(0, rows) as i, f.loop(0, columns, LANES) as j:
        ones = numbered(f).is_("eq", f.splat(i - j, LANES))
        store(f, [f.select(ones, f.value(1.0, VECTOR), 0.0)], q.at(i, j), REAL)


def _upper(f: Function, matrix: Held, rows: Value, columns: Value) -> None:
    """Emit zeros below the diagonal."""
    with f.loop(0, rows) as i, f.loop(0, f.least(i, columns), LANES) as j:
        below = numbered(f).is_("slt", f.splat(i - j, LANES))
        store(f, [f.select(below, 0.0, load(f, matrix.at(i, j), REAL)[0])], matrix.at(i, j), REAL)


RULES: dict[str, Rule] = {"qr": qr_rule}
