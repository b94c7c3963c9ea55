"""Singular vectors of f32 matrices that are nearly square: those of a bidiagonal matrix,
transformed back.

Native code applies the reflections in f64; LAPACK's `bdsdc` solves the bidiagonal problem, as in
its `gesdd`.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.linalg.bidiagonal import MAX_BIDIAGONAL_EXTENT, define_bidiagonal
from shardir.backends.cpu.kernels.linalg.householder import (
    REAL_ARITHMETIC,
    TRIANGLE_BYTES,
    define_apply,
    define_reflectors,
    lane_indices,
)
from shardir.backends.cpu.kernels.linalg.lapack_calls import (
    BatchedWork,
    EmitMatrix,
    LapackRoutine,
    MatrixEmitter,
    emit_call_if_finite,
    lower_batch,
)
from shardir.backends.cpu.kernels.linalg.lapack_columns import store_columns
from shardir.backends.cpu.kernels.linalg.scratch_matrix import (
    BLOCK_COLUMNS,
    ITEM_BYTES,
    VECTOR_TYPE,
    MatrixCopy,
    ScratchMatrix,
    has_contiguous_rows,
    pad_to_vectors,
    row_bytes,
    store_vector,
)
from shardir.backends.cpu.kernels.linalg.tridiagonal import define_gather_reflectors
from shardir.ir.module import Op


def is_back_transform_faster(x: BufferView) -> bool:
    """Return whether this is faster than LAPACK for these matrices.

    LAPACK computes a QR decomposition of longer ones first, and has other signs for broad ones.
    """
    rows, columns = x.shape[-2:]
    return (
        x.dtype == "f32" and columns <= rows < 11 * columns // 6 and rows <= MAX_BIDIAGONAL_EXTENT
    )


def _bdsdc_routine() -> LapackRoutine:
    return LapackRoutine(
        "dbdsdc", "'U 'I n *values *beside *u n *vh n *none *iwork *work *iwork info"
    )


def _make_work(
    name: str,
    views: Sequence[tuple[BufferView, int]],
    left: int,
    routines: Sequence[LapackRoutine],
    emit: EmitMatrix,
) -> BatchedWork:
    """Describe the decomposition of the matrices of the first view, with `left` columns of U."""
    x = views[0][0]
    rows, columns = x.shape[-2:]
    line, held = pad_to_vectors(columns) * ITEM_BYTES, rows * row_bytes(columns)
    square = columns * columns * ITEM_BYTES
    return BatchedWork(
        name, x.dtype, views, routines,
        {"m": rows, "n": columns, "left": left, "apart": row_bytes(columns),
         "apart_u": row_bytes(left)},
        {"*a": held, "*reflected": held, "*values": line, "*beside": line, "*space": line,
         "*taus": line, "*turns": line, "*u": square, "*vh": square, "*none": 64,
         "*work": 3 * square + 32 * columns, "*iwork": 64 * columns,
         "*u_held": rows * row_bytes(left), "*v_held": columns * row_bytes(columns),
         "*v": rows * BLOCK_COLUMNS * ITEM_BYTES, "*t": TRIANGLE_BYTES},
        rows * columns * columns * 0.9 + 40 * columns**2, emit,
    )  # fmt: skip


def singular_vectors_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower singular value decompositions of matrices with rows >= columns."""
    (x,), (u, values, vh), called = operands, results, _bdsdc_routine()
    flags = has_contiguous_rows(x), has_contiguous_rows(u), vh.strides[-2] == vh.itemsize
    layout_letters = "".join("n" if flag else "s" for flag in flags)
    views = [(x, 2), (u, 2), (values, 1), (vh, 2)]
    emit = partial(_emit_svd, called, flags)
    return lower_batch(
        _make_work(f"turned{layout_letters}", views, u.shape[-1], [called], emit), context
    )


def _emit_svd(called: LapackRoutine, flags: tuple[bool, bool, bool], e: MatrixEmitter) -> None:
    f, m, n, left = e.f, e.sizes["m"], e.sizes["n"], e.sizes["left"]
    step, one = [e.sizes[f"step{i}"] for i in range(7)], f.value(1, "i64")
    u, v, good = _emit_decomposition(called, flags[0], e)
    store_columns(e, "*values", e.dtype, n, (n, one), 2, (step[4], one), good)
    with f.when(~good, seldom=True):
        _emit_fill_nan(e, u, m, left)
        _emit_fill_nan(e, v, n, n)
    MatrixCopy(f, e.dtype, flags[1]).store_matrix(u, m, left, e.addresses[1], step[2:4])
    MatrixCopy(f, e.dtype, flags[2]).store_matrix(v, n, n, e.addresses[3], step[6:4:-1])


def bidiagonal_pinv_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower pseudoinverses of matrices with rows >= columns.

    The result is V, divided by the singular values above the cutoff, times U^T.
    """
    (x, cutoff), (result,), called = operands, results, _bdsdc_routine()
    multiplied = LapackRoutine("dgemm", "'T 'N n m n *one *v_held w *u_held w *zero *made n")
    emit = partial(_emit_pinv, called, multiplied, has_contiguous_rows(x))
    name = f"turned_pinv{'n' if has_contiguous_rows(x) else 's'}"
    views, columns = [(x, 2), (cutoff, 0), (result, 2)], x.shape[-1]
    work = _make_work(name, views, columns, [called, multiplied], emit)
    sizes = {**work.sizes, "w": row_bytes(columns) // ITEM_BYTES}
    pieces = {
        **work.pieces,
        "*made": result.shape[-1] * columns * ITEM_BYTES,
        "*one": 64,
        "*zero": 64,
    }
    return lower_batch(work._replace(sizes=sizes, pieces=pieces), context)


def _emit_pinv(
    called: LapackRoutine, multiplied: LapackRoutine, is_contiguous: bool, e: MatrixEmitter
) -> None:
    f, m, n = e.f, e.sizes["m"], e.sizes["n"]
    _, v, good = _emit_decomposition(called, is_contiguous, e)
    with f.when(good):
        values = e.piece_address("*values")
        limit = f.load(e.addresses[1], "float", 4).to("double", "fpext")
        limit = limit * f.load(values, "double", ITEM_BYTES)
        with f.loop(0, n) as i:
            at = f.offset(values, i, "double")
            value = f.load(at, "double", ITEM_BYTES)
            divisor = f.select(value.is_("oeq", 0.0), 1.0, value)
            one = f.value(1.0, "double")
            f.store(f.select(value.is_("ugt", limit), one / divisor, 0.0), at, ITEM_BYTES)
        with f.loop(0, n) as i, f.loop(0, n) as j:
            there = v.at(i, j).start
            factor = f.load(f.offset(values, j, "double"), "double", ITEM_BYTES)
            f.store(f.load(there, "double", ITEM_BYTES) * factor, there, ITEM_BYTES)
        f.store(f.value(1.0, "double"), e.piece_address("*one"), ITEM_BYTES)
        f.store(f.value(0.0, "double"), e.piece_address("*zero"), ITEM_BYTES)
        e.call(multiplied)
    store_columns(e, "*made", e.dtype, n, (n, m), 2, (e.sizes["step2"], e.sizes["step3"]), good)


def _emit_decomposition(
    called: LapackRoutine, is_contiguous: bool, e: MatrixEmitter
) -> tuple[ScratchMatrix, ScratchMatrix, LLVMValue]:
    """Emit U and V of the matrix of the first view; return them and whether the routine
    succeeded."""
    f, m, n = e.f, e.sizes["m"], e.sizes["n"]
    define_bidiagonal(f.module, kept=True)
    define_gather_reflectors(f.module)
    define_reflectors(f.module)
    define_apply(f.module, turned=False)
    none = f.value(0, "i64")
    a = ScratchMatrix(e.piece_address("*a"), e.sizes["apart"], none)
    u = ScratchMatrix(e.piece_address("*u_held"), e.sizes["apart_u"], none)
    v = a._replace(start=e.piece_address("*v_held"))
    steps = [e.sizes["step0"], e.sizes["step1"]]
    MatrixCopy(f, e.dtype, is_contiguous).load_matrix(e.addresses[0], steps, m, n, a)
    names = ("*values", "*beside", "*space", "*reflected", "*taus", "*turns")
    pieces = [e.piece_address(name) for name in names]
    finite = f.call("bidiagonal_kept", [m, n, *a, *pieces], "double").is_("oeq", 0.0)
    good = emit_call_if_finite(e, finite, called)
    _emit_left_vectors(e, a, u)
    _emit_right_vectors(e, a, v)
    return u, v, good


def _emit_left_vectors(e: MatrixEmitter, a: ScratchMatrix, u: ScratchMatrix) -> None:
    """Emit U: reflect the left vectors of the bidiagonal matrix, and columns of the identity."""
    f, m, n, left = e.f, e.sizes["m"], e.sizes["n"], e.sizes["left"]
    with f.loop(0, m) as i, f.loop(0, left, BLOCK_COLUMNS) as j:
        ones = lane_indices(f).is_("eq", f.splat(i - j, BLOCK_COLUMNS))
        store_vector(
            f, [f.select(ones, f.value(1.0, VECTOR_TYPE), 0.0)], u.at(i, j), REAL_ARITHMETIC
        )
    with f.loop(0, n) as i, f.loop(0, n) as j:
        number = f.load(f.offset(e.piece_address("*u"), j * n + i, "double"), "double", ITEM_BYTES)
        f.store(number, u.at(i, j).start, ITEM_BYTES)
    v, t, reflected = (
        e.piece_address("*v"),
        e.piece_address("*t"),
        a._replace(start=e.piece_address("*reflected")),
    )
    with f.loop(0, n, BLOCK_COLUMNS) as done:
        first = ((n - 1) & -BLOCK_COLUMNS) - done
        high = m - first
        f.store(
            f.load(f.offset(e.piece_address("*taus"), first, "double"), VECTOR_TYPE, ITEM_BYTES),
            t,
            ITEM_BYTES,
        )
        f.call(
            "reflectors", [high, f.umin(n - first, BLOCK_COLUMNS), *reflected.at(first, first), v]
        )
        f.call("triangle", [high, v, t])
        f.call("apply", [high, left, v, t, *u.at(first, 0)])


def _emit_right_vectors(e: MatrixEmitter, a: ScratchMatrix, turned: ScratchMatrix) -> None:
    """Emit V: the columns of LAPACK's V^H are the rows of V."""
    f, n = e.f, e.sizes["n"]
    steps: list[LLVMValue] = [n * ITEM_BYTES, f.value(ITEM_BYTES, "i64")]
    MatrixCopy(f, "f64", True).load_matrix(e.piece_address("*vh"), steps, n, n, turned)
    v, t = e.piece_address("*v"), e.piece_address("*t")
    with f.loop(1, n, BLOCK_COLUMNS) as done:
        first = ((n - 2) & -BLOCK_COLUMNS) - (done - 1)
        high = n - 1 - first
        f.store(
            f.load(f.offset(e.piece_address("*turns"), first, "double"), VECTOR_TYPE, ITEM_BYTES),
            t,
            ITEM_BYTES,
        )
        f.call("gather", [n, first, *a, v])
        f.call("triangle", [high, v, t])
        f.call("apply", [high, n, v, t, *turned.at(first + 1, 0)])


def _emit_fill_nan(e: MatrixEmitter, x: ScratchMatrix, rows: LLVMValue, columns: LLVMValue) -> None:
    """Fill a matrix with NaN."""
    f = e.f
    with f.loop(0, rows) as i, f.loop(0, columns) as j:
        f.store(f.value(np.nan, "double"), x.at(i, j).start, ITEM_BYTES)
