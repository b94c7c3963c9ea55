"""QR decompositions: of small real matrices by Householder reflections, in blocks of columns; of
others by LAPACK (`geqrf` and `orgqr`), so that the values equal NumPy's."""

from collections.abc import Sequence
from functools import partial
from math import prod

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
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
from shardir.backends.cpu.kernels.linalg.householder import (
    REAL_ARITHMETIC,
    TRIANGLE_BYTES,
    define_apply,
    define_panel,
    define_reflectors,
    lane_indices,
)
from shardir.backends.cpu.kernels.linalg.lapack_calls import (
    BatchedWork,
    LapackRoutine,
    MatrixEmitter,
    lower_batch,
)
from shardir.backends.cpu.kernels.linalg.lapack_columns import load_columns, store_columns
from shardir.backends.cpu.kernels.linalg.lu import FMAS_PER_NANOSECOND, batch_view
from shardir.backends.cpu.kernels.linalg.scratch_matrix import (
    BLOCK_COLUMNS,
    ITEM_BYTES,
    VECTOR_TYPE,
    MatrixCopy,
    ScratchMatrix,
    has_contiguous_rows,
    load_vector,
    pad_to_vectors,
    row_bytes,
    scratch_bytes,
    store_vector,
)
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX

MAX_NARROW_ROWS = 64
"""Maximum rows of a matrix of at most `BLOCK_COLUMNS` columns that reflections decompose. LAPACK
takes 0.77 of their time for 100 rows of 4 columns and 0.34 for 8,192 of 5, but 1.4 to 4.3 times
their time for smaller and wider matrices of up to 128 columns (one worker of an EPYC, Zen 3)."""


def qr_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower QR decompositions of matrices that fit into scratch memory with Q; others, and narrow
    ones of many rows, use LAPACK."""
    (x,), (q, r) = operands, results
    rows, columns = x.shape[-2:]
    left, least = q.shape[-1], min(rows, columns)
    panel_bytes = (
        rows * BLOCK_COLUMNS * ITEM_BYTES + pad_to_vectors(least) * TRIANGLE_BYTES // BLOCK_COLUMNS
    )
    scratch_need = (
        scratch_bytes(rows, columns, x.dtype) + scratch_bytes(rows, left, x.dtype) + panel_bytes
    )
    is_narrow = rows > MAX_NARROW_ROWS and max(columns, left) <= BLOCK_COLUMNS
    if x.dtype in COMPLEX or x.size == 0 or is_narrow or scratch_need > SCRATCH_BYTES_PER_WORKER:
        return lower_qr_by_lapack(op, operands, results, context)
    views = [batch_view(x, 2), batch_view(q, 2), batch_view(r, 2)]
    count = prod(x.shape[:-2])
    work = least * (rows * (columns + left) / FMAS_PER_NANOSECOND + rows + 50.0) + 100.0
    grid = batch_grid(views, context.workers)
    flags = tuple(has_contiguous_rows(view) for view in (x, q, r))
    name = f"qr_{x.dtype}_{''.join('n' if flag else 's' for flag in flags)}"
    kernel = grid_kernel(name, KernelForm(3, extras=11), partial(_emit_qr, x.dtype, flags))
    strides = (view.strides[-2:] for view in (x, q, r))
    extra = (rows, columns, left, *sum(strides, ()), row_bytes(columns), row_bytes(left))
    return [grid.phase(kernel, count * work, context.workers, "qr", extra)]


def _emit_qr(dtype: str, flags: Sequence[bool], f: LLVMFunction, block: GridBlock) -> None:
    define_panel(f.module)
    define_reflectors(f.module)
    define_apply(f.module, turned=True)
    define_apply(f.module, turned=False)
    rows, columns, left, *steps, row_step, row_step_q = map(block.extra, range(11))
    matrix = ScratchMatrix(block.scratch, row_step, rows * row_step)
    q = ScratchMatrix(f.offset(block.scratch, rows * row_step), row_step_q, rows * row_step_q)
    v = f.offset(q.start, rows * row_step_q)
    triangles = f.offset(v, rows * (BLOCK_COLUMNS * ITEM_BYTES))
    least = f.umin(rows, columns)
    copying = [MatrixCopy(f, dtype, flag) for flag in flags]
    with f.loop(0, block.columns) as which:
        source, target_q, target_r = (
            f.offset(address, which * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        copying[0].load_matrix(source, steps[:2], rows, columns, matrix)
        with f.loop(0, least, BLOCK_COLUMNS) as first:
            width = f.umin(least - first, BLOCK_COLUMNS)
            triangle = f.offset(triangles, first * (TRIANGLE_BYTES // BLOCK_COLUMNS))
            here, high = matrix.at(first, first), rows - first
            f.call("panel", [high, width, *here, triangle])
            f.call("reflectors", [high, width, *here, v])
            f.call("triangle", [high, v, triangle])
            beyond = first + BLOCK_COLUMNS
            with f.when(beyond.is_("slt", columns)):
                rest = matrix.at(first, beyond)
                f.call("apply_turned", [high, columns - beyond, v, triangle, *rest])
        _emit_identity(f, q, rows, left)
        with f.loop(0, least, BLOCK_COLUMNS) as done:
            first = ((least - 1) & -BLOCK_COLUMNS) - done
            triangle = f.offset(triangles, first * (TRIANGLE_BYTES // BLOCK_COLUMNS))
            width, high = f.umin(least - first, BLOCK_COLUMNS), rows - first
            f.call("reflectors", [high, width, *matrix.at(first, first), v])
            f.call("apply", [high, left - first, v, triangle, *q.at(first, first)])
        copying[1].store_matrix(q, rows, left, target_q, steps[2:4])
        _emit_clear_lower(f, matrix, left, columns)
        copying[2].store_matrix(matrix, left, columns, target_r, steps[4:])


def _emit_identity(f: LLVMFunction, q: ScratchMatrix, rows: LLVMValue, columns: LLVMValue) -> None:
    with f.loop(0, rows) as i, f.loop(0, columns, BLOCK_COLUMNS) as j:
        ones = lane_indices(f).is_("eq", f.splat(i - j, BLOCK_COLUMNS))
        store_vector(
            f, [f.select(ones, f.value(1.0, VECTOR_TYPE), 0.0)], q.at(i, j), REAL_ARITHMETIC
        )


def _emit_clear_lower(
    f: LLVMFunction, matrix: ScratchMatrix, rows: LLVMValue, columns: LLVMValue
) -> None:
    """Emit zeros below the diagonal."""
    with f.loop(0, rows) as i, f.loop(0, f.umin(i, columns), BLOCK_COLUMNS) as j:
        below = lane_indices(f).is_("slt", f.splat(i - j, BLOCK_COLUMNS))
        store_vector(
            f,
            [f.select(below, 0.0, load_vector(f, matrix.at(i, j), REAL_ARITHMETIC)[0])],
            matrix.at(i, j),
            REAL_ARITHMETIC,
        )


def lower_qr_by_lapack(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower QR decompositions to LAPACK calls; the values equal NumPy's."""
    (x,), (q, r) = operands, results
    rows, columns = x.shape[-2:]
    left, least = q.shape[-1], min(rows, columns)
    if x.size == 0:
        return None if q.size else []
    item, complex_ = 16 if x.dtype in COMPLEX else 8, x.dtype in COMPLEX
    factor = LapackRoutine("zgeqrf" if complex_ else "dgeqrf", "m n *a m *tau *work lwork info")
    form = LapackRoutine("zungqr" if complex_ else "dorgqr", "m left k *q m *tau *work lwork info")
    return lower_batch(
        BatchedWork(
            "qr", x.dtype, [(x, 2), (q, 2), (r, 2)], [factor, form],
            {"m": rows, "n": columns, "k": least, "left": left},
            {"*a": rows * columns * item, "*q": rows * left * item, "*tau": least * item},
            rows * left * least * 0.3, partial(_emit_lapack_qr, factor, form),
        ),
        context,
    )  # fmt: skip


def _emit_lapack_qr(factor: LapackRoutine, form: LapackRoutine, e: MatrixEmitter) -> None:
    f, (m, n, k, left) = e.f, (e.sizes[name] for name in ("m", "n", "k", "left"))
    load_columns(e, 0, 0, m, n, "*a")
    good = e.call(factor)
    parts = e.item // 8
    with f.loop(0, k) as j:
        _emit_move_reflector(e, j, m * parts)
    good = good & e.call(form)
    step = [e.sizes[f"step{i}"] for i in range(6)]
    store_columns(e, "*q", e.dtype, m, (m, left), 1, (step[2], step[3]), good)
    store_columns(e, "*a", e.dtype, m, (left, n), 2, (step[4], step[5]), good)


def _emit_move_reflector(e: MatrixEmitter, j: LLVMValue, words: LLVMValue) -> None:
    """Move reflector `j` to `q`, and clear its place below the diagonal."""
    f, parts = e.f, e.item // 8
    source, target = (f.offset(e.piece_address(name), j * words * 8) for name in ("*a", "*q"))
    with f.loop(0, words) as i:
        f.store(
            f.load(f.offset(source, i, "double"), "double", 8), f.offset(target, i, "double"), 8
        )
    with f.loop((j + 1) * parts, words) as i:
        f.store(f.value(0.0, "double"), f.offset(source, i, "double"), 8)


RULES: dict[str, Rule] = {"qr": qr_rule}
