"""Triangular systems of a batch, by substitution in blocks of rows.

An upper triangular system is a lower one with reversed rows and columns. Right-hand sides are
divided among tasks in independent blocks.
"""

from collections.abc import Sequence
from functools import partial
from math import prod

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction
from shardir.backends.cpu.kernel_api import (
    SCRATCH_BYTES_PER_WORKER,
    BufferView,
    LoweringContext,
    Phase,
    Rule,
)
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    GridBlock,
    KernelForm,
    batch_grid,
    grid_kernel,
)
from shardir.backends.cpu.kernels.linalg.lu import FMAS_PER_NANOSECOND, batch_view
from shardir.backends.cpu.kernels.linalg.scratch_matrix import (
    BLOCK_COLUMNS,
    MatrixCopy,
    ScratchMatrix,
    compute_arithmetic,
    define_substitute,
    define_update,
    has_contiguous_rows,
    pad_to_vectors,
    row_bytes,
    scratch_bytes,
)
from shardir.ir.module import Op

RIGHT_HAND_SIDES_PER_TASK = 128
"""Right-hand sides of one task, if there are as many."""


def triangular_solve_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower triangular systems that fit into scratch memory with a block of right-hand sides."""
    (a, y), (x,) = operands, results
    if x.size == 0:
        return []
    rows, columns = x.shape[-2:]
    rhs_block = min(RIGHT_HAND_SIDES_PER_TASK, columns)
    if (
        scratch_bytes(rows, rows, a.dtype) + scratch_bytes(rows, rhs_block, a.dtype)
        > SCRATCH_BYTES_PER_WORKER
    ):
        return None
    lower = bool(op.attrs["lower"])
    if op.attrs["transpose"] != "no":
        a, lower = _transpose_view(a), not lower
    if not lower:
        a, y, x = _reverse_dims(a, (-2, -1)), _reverse_dims(y, (-2,)), _reverse_dims(x, (-2,))
    blocks = -(-columns // rhs_block)
    starts = [
        _column_blocks(a, blocks, 0),
        *(_column_blocks(v, blocks, rhs_block * v.strides[-1]) for v in (y, x)),
    ]
    counted = starts[0]._replace(offset=0, strides=(*(0,) * (len(x.shape) - 2), rhs_block))
    count = prod(x.shape[:-2]) * blocks
    planes = compute_arithmetic(a.dtype).planes
    work = (
        rows * rows * (1.0 + pad_to_vectors(rhs_block) / FMAS_PER_NANOSECOND * planes**2)
        + 20.0 * rows
        + 50.0
    )
    grid = batch_grid([*starts, counted], context.workers, counters=1)
    flags = has_contiguous_rows(a), has_contiguous_rows(y), has_contiguous_rows(x)
    unit, conjugate = bool(op.attrs["unit"]), op.attrs["transpose"] == "adjoint"
    layout_letters = "".join("n" if flag else "s" for flag in flags) + "u" * unit + "c" * conjugate
    kernel = grid_kernel(
        f"triangular_{a.dtype}_{layout_letters}",
        KernelForm(3, counters=1, extras=11),
        partial(_emit_triangular_solve, a.dtype, flags, unit, conjugate),
    )
    extra = (rows, columns, rhs_block, *a.strides[-2:], *y.strides[-2:], *x.strides[-2:],
             row_bytes(rows), row_bytes(rhs_block))  # fmt: skip
    return [grid.phase(kernel, count * work, context.workers, "triangular solve", extra)]


def _transpose_view(view: BufferView) -> BufferView:
    """Swap rows and columns."""
    *batch, row, column = view.strides
    return view._replace(strides=(*batch, column, row))


def _reverse_dims(view: BufferView, dims: Sequence[int]) -> BufferView:
    strides, offset = list(view.strides), view.offset
    for d in dims:
        offset += (view.shape[d] - 1) * strides[d]
        strides[d] = -strides[d]
    return view._replace(offset=offset, strides=tuple(strides))


def _column_blocks(view: BufferView, count: int, step: int) -> BufferView:
    """Return the view of matrix starts, and of each of `count` blocks of their columns."""
    starts = batch_view(view, 2)
    return starts._replace(shape=(*starts.shape, count), strides=(*starts.strides, step))


def _emit_triangular_solve(
    dtype: str,
    flags: tuple[bool, bool, bool],
    unit: bool,
    conjugate: bool,
    f: LLVMFunction,
    block: GridBlock,
) -> None:
    define_update(f.module, dtype)
    define_substitute(f.module, dtype, unit)
    planes = compute_arithmetic(dtype).planes
    rows, columns, rhs_block, *steps, row_step, row_step_x = map(block.extra, range(11))
    left = ScratchMatrix(block.scratch, row_step, rows * row_step)
    x = ScratchMatrix(
        f.offset(block.scratch, rows * row_step * planes), row_step_x, rows * row_step_x
    )
    with f.loop(0, block.columns) as which:
        coefficients, source, target = (
            f.offset(address, which * stride)
            for address, stride in zip(block.addresses[:3], block.column_strides[:3], strict=True)
        )
        done = block.addresses[3] + which * block.column_strides[3]
        here = f.umin(columns - done, rhs_block)
        copying = [MatrixCopy(f, dtype, flag) for flag in flags]
        copying[0].load_matrix(coefficients, steps[:2], rows, rows, left, conjugate)
        copying[1].load_matrix(source, steps[2:4], rows, here, x)
        with f.loop(0, rows, BLOCK_COLUMNS) as first:
            height = f.umin(rows - first, BLOCK_COLUMNS)
            solved = x.at(first, 0)
            f.call("substitute", [height, here, *left.at(first, first), *solved])
            beyond = first + BLOCK_COLUMNS
            with f.when(beyond.is_("slt", rows)):
                below, rest = left.at(beyond, first), x.at(beyond, 0)
                f.call("update", [rows - beyond, here, *below, *solved, *rest])
        copying[2].store_matrix(x, rows, here, target, steps[4:])


RULES: dict[str, Rule] = {"triangular_solve": triangular_solve_rule}
