"""Triangular systems of a batch, by substitution in blocks of rows.

An upper triangular system is a lower one with reversed rows and columns. Right-hand sides are
divided among tasks in independent blocks.
"""

from collections.abc import Sequence
from functools import partial
from math import prod

from shardir.backends.cpu.native.data import SCRATCH_BYTES, Context, Phase, Rule, View
from shardir.backends.cpu.native.llvm.text import Function
from shardir.backends.cpu.native.matrices.factoring import RATE, outer
from shardir.backends.cpu.native.matrices.held import (
    LANES,
    Copying,
    Held,
    emit_substitute,
    emit_update,
    held_bytes,
    neighbours,
    padded,
    row_bytes,
    wide,
)
from shardir.backends.cpu.native.moves.grid import Block, Form, grid_kernel, grid_of
from shardir.backends.cpu.native.moves.loops import nest
from shardir.ir import Op

BESIDE = 128
"""Right-hand sides of one task, if there are as many."""


def triangular_solve_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Lower triangular systems that fit into scratch memory with a block of right-hand sides."""
    (a, y), (x,) = operands, results
    if x.size == 0:
        return []
    rows, columns = x.shape[-2:]
    rhs_block = min(BESIDE, columns)
    if held_bytes(rows, rows, a.dtype) + held_bytes(rows, rhs_block, a.dtype) > SCRATCH_BYTES:
        return None
    lower = bool(op.attrs["lower"])
    if op.attrs["transpose"] != "no":
        a, lower = _turned(a), not lower
    if not lower:
        a, y, x = _backwards(a, (-2, -1)), _backwards(y, (-2,)), _backwards(x, (-2,))
    blocks = -(-columns // rhs_block)
    starts = [
        _blocks(a, blocks, 0),
        *(_blocks(v, blocks, rhs_block * v.strides[-1]) for v in (y, x)),
    ]
    counted = starts[0]._replace(offset=0, strides=(*(0,) * (len(x.shape) - 2), rhs_block))
    found = nest([*starts, counted], counters=1)
    longest_loop = max(found.loops, key=lambda loop: loop.extent, default=None)
    count = prod(x.shape[:-2]) * blocks
    planes = wide(a.dtype).planes
    work = rows * rows * (1.0 + padded(rhs_block) / RATE * planes**2) + 20.0 * rows + 50.0
    each = -(
        -(longest_loop.extent if longest_loop else 1) // max(1, min(4 * context.workers, count))
    )
    grid = grid_of(starts, found, None, longest_loop, 1, each)
    flags = neighbours(a), neighbours(y), neighbours(x)
    unit, conjugate = bool(op.attrs["unit"]), op.attrs["transpose"] == "adjoint"
    layout_letters = "".join("n" if flag else "s" for flag in flags) + "u" * unit + "c" * conjugate
    kernel = grid_kernel(
        f"triangular_{a.dtype}_{layout_letters}",
        Form(3, counters=1, extras=11),
        partial(_solved, a.dtype, flags, unit, conjugate),
    )
    extra = (rows, columns, rhs_block, *a.strides[-2:], *y.strides[-2:], *x.strides[-2:],
             row_bytes(rows), row_bytes(rhs_block))  # fmt: skip
    return [grid.phase(kernel, count * work, context.workers, "triangular solve", extra)]


def _turned(view: View) -> View:
    """Swap rows and columns."""
    *batch, row, column = view.strides
    return view._replace(strides=(*batch, column, row))


def _backwards(view: View, dims: Sequence[int]) -> View:
    strides, offset = list(view.strides), view.offset
    for d in dims:
        offset += (view.shape[d] - 1) * strides[d]
        strides[d] = -strides[d]
    return view._replace(offset=offset, strides=tuple(strides))


def _blocks(view: View, count: int, step: int) -> View:
    """Return the view of matrix starts, and of each of `count` blocks of their columns."""
    starts = outer(view, 2)
    return starts._replace(shape=(*starts.shape, count), strides=(*starts.strides, step))


def _solved(
    dtype: str,
    flags: tuple[bool, bool, bool],
    unit: bool,
    conjugate: bool,
    f: Function,
    block: Block,
) -> None:
    emit_update(f.module, dtype)
    emit_substitute(f.module, dtype, unit)
    planes = wide(dtype).planes
    rows, columns, rhs_block, *steps, row_step, row_step_x = map(block.extra, range(11))
    left = Held(block.scratch, row_step, rows * row_step)
    x = Held(f.offset(block.scratch, rows * row_step * planes), row_step_x, rows * row_step_x)
    with f.loop(0, block.columns) as which:
        coefficients, source, target = (
            f.offset(address, which * stride)
            for address, stride in zip(block.addresses[:3], block.column_strides[:3], strict=True)
        )
        done = block.addresses[3] + which * block.column_strides[3]
        here = f.least(columns - done, rhs_block)
        copying = [Copying(f, dtype, flag) for flag in flags]
        copying[0].bring(coefficients, steps[:2], rows, rows, left, conjugate)
        copying[1].bring(source, steps[2:4], rows, here, x)
        with f.loop(0, rows, LANES) as first:
            height = f.least(rows - first, LANES)
            solved = x.at(first, 0)
            f.call("substitute", [height, here, *left.at(first, first), *solved])
            beyond = first + LANES
            with f.when(beyond.is_("slt", rows)):
                below, rest = left.at(beyond, first), x.at(beyond, 0)
                f.call("update", [rows - beyond, here, *below, *solved, *rest])
        copying[2].put(x, rows, here, target, steps[4:])


RULES: dict[str, Rule] = {"triangular_solve": triangular_solve_rule}
