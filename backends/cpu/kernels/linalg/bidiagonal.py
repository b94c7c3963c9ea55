"""Singular values of f32 matrices, reduced to bidiagonal form by Householder reflections in f64.

The algorithm follows G. H. Golub and C. F. Van Loan, "Matrix Computations" (1996), 5.4.3; LAPACK's
`bdsdc` computes the singular values of the bidiagonal matrix. Squares of f32 do not overflow in
f64.
"""

from collections.abc import Sequence
from functools import partial

from shardir.backends.cpu.codegen.llvm_text import (
    OUTLINED_FUNCTION_ATTRIBUTES,
    LLVMFunction,
    LLVMModule,
    LLVMValue,
)
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.linalg.householder import lane_indices
from shardir.backends.cpu.kernels.linalg.lapack_calls import (
    BatchedWork,
    LapackRoutine,
    MatrixEmitter,
    emit_call_if_finite,
    lower_batch,
)
from shardir.backends.cpu.kernels.linalg.lapack_columns import store_columns
from shardir.backends.cpu.kernels.linalg.scratch_matrix import (
    BLOCK_COLUMNS,
    ITEM_BYTES,
    MATRIX_PARAMS,
    VECTOR_TYPE,
    MatrixCopy,
    ScratchMatrix,
    pad_to_vectors,
    row_bytes,
)
from shardir.backends.cpu.kernels.linalg.tridiagonal import (
    MIN_SQUARES_SUM,
    VECTOR_BYTES,
    VECTORS_PER_STEP,
    emit_row_reflection,
    sum_lanes,
)
from shardir.ir.module import Op

MAX_BIDIAGONAL_EXTENT = 400
"""Rows and columns up to which this is faster than LAPACK alone."""
MAX_ASPECT_RATIO = 2
"""For matrices that are more elongated than this, LAPACK computes a QR decomposition first."""


def is_bidiagonal_faster(x: BufferView) -> bool:
    """Return whether this is faster than LAPACK for these matrices."""
    least, most = sorted(x.shape[-2:])
    return x.dtype == "f32" and most <= min(MAX_BIDIAGONAL_EXTENT, MAX_ASPECT_RATIO * least)


def singular_values_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower the singular values of a batch; a broad matrix is transposed, which preserves them."""
    (x,), (result,) = operands, results
    least, most = sorted(x.shape[-2:])
    is_broad = x.shape[-1] > x.shape[-2]
    called = LapackRoutine(
        "dbdsdc",
        "'U 'N n *values *beside *none one *none one *none *iwork *work *iwork info",
    )
    line, is_contiguous = (
        pad_to_vectors(least) * ITEM_BYTES,
        x.strides[-2 if is_broad else -1] == x.itemsize,
    )
    return lower_batch(
        BatchedWork(
            f"singular{'t' if is_broad else ''}{'n' if is_contiguous else 's'}", x.dtype,
            [(x, 2), (result, 1)], [called],
            {"m": most, "n": least, "one": 1, "apart": row_bytes(least)},
            {"*a": most * row_bytes(least), "*values": line, "*beside": line, "*space": line,
             "*none": 64, "*work": 64 * least, "*iwork": 64 * least},
            most * least * least * 0.3 + 40 * least**2,
            partial(_emit_singular_values, called, is_broad, is_contiguous),
        ),
        context,
    )  # fmt: skip


def _emit_singular_values(
    called: LapackRoutine, broad: bool, is_contiguous: bool, e: MatrixEmitter
) -> None:
    f, m, n = e.f, e.sizes["m"], e.sizes["n"]
    define_bidiagonal(f.module)
    x = ScratchMatrix(e.piece_address("*a"), e.sizes["apart"], f.value(0, "i64"))
    steps = [e.sizes["step0"], e.sizes["step1"]]
    steps = steps[::-1] if broad else steps
    MatrixCopy(f, e.dtype, is_contiguous).load_matrix(e.addresses[0], steps, m, n, x)
    pieces = [e.piece_address(name) for name in ("*values", "*beside", "*space")]
    nan_if_nonfinite = f.call("bidiagonal", [m, n, *x, *pieces], "double")
    good, one = emit_call_if_finite(e, nan_if_nonfinite.is_("oeq", 0.0), called), f.value(1, "i64")
    store_columns(e, "*values", e.dtype, n, (n, one), 1, (e.sizes["step2"], one), good)


def define_bidiagonal(module: LLVMModule, kept: bool = False) -> None:
    """Define `bidiagonal(rows, columns, x, diagonal, beside, space)` for rows >= columns.

    It returns 0, or NaN if an element is not finite. `space` has the length of a row.
    `bidiagonal_kept(..., space, left, taus, turns)` also stores the left reflections in the columns
    of `left`, below the diagonal, the right ones in the rows of x, from superdiagonal 1 on, and
    their factors, padded with zeros to full vectors.
    """
    params = ["i64", "i64", *MATRIX_PARAMS, "ptr", "ptr", "ptr", *(["ptr"] * 3 if kept else [])]
    name = "bidiagonal_kept" if kept else "bidiagonal"
    f = LLVMFunction(module, name, params, "double", OUTLINED_FUNCTION_ATTRIBUTES, internal=True)
    rows, columns, x = f.params[0], f.params[1], ScratchMatrix(*f.params[2:5])
    diagonal, superdiagonal, space, *more = f.params[5:]
    filled = (columns + (BLOCK_COLUMNS - 1)) & -BLOCK_COLUMNS
    nan_if_nonfinite = f.variable(VECTOR_TYPE, 0.0)
    with f.loop(0, rows) as i, f.loop(0, filled, BLOCK_COLUMNS) as j:
        row = f.load(x.at(i, j).start, VECTOR_TYPE, ITEM_BYTES)
        nan_if_nonfinite.set(nan_if_nonfinite.get() + (row - row))
    for factors in more[1:]:
        with f.loop(0, filled, BLOCK_COLUMNS) as j:
            f.store(f.value(0.0, VECTOR_TYPE), f.offset(factors, j, "double"), ITEM_BYTES)
    with f.loop(0, columns) as k:
        scale, left_tau = _emit_column_reflection(f, x, k, rows, filled, diagonal, space)
        if kept:
            f.store(left_tau, f.offset(more[1], k, "double"), ITEM_BYTES)
            with f.loop(k + 1, rows) as i:
                one = f.load(x.at(i, k).start, "double", ITEM_BYTES) * scale
                f.store(one, x._replace(start=more[0]).at(i, k).start, ITEM_BYTES)
        tau = f.variable("double", 0.0)
        with f.when((k + 1).is_("slt", columns)):
            tau.set(emit_row_reflection(f, x, k, filled, superdiagonal))
            if kept:
                f.store(tau.get(), f.offset(more[2], k, "double"), ITEM_BYTES)
        with f.loop(k + 1, rows) as i:
            _emit_row_update(f, x, k, i, filled, space, scale, tau.get())
    f.ret(sum_lanes(f, nan_if_nonfinite.get()))


def _emit_column_reflection(
    f: LLVMFunction,
    x: ScratchMatrix,
    k: LLVMValue,
    rows: LLVMValue,
    filled: LLVMValue,
    diagonal: LLVMValue,
    space: LLVMValue,
) -> tuple[LLVMValue, LLVMValue]:
    """Reflect row `k` from the left; return the scale of column `k` as reflection vector, and its
    factor.

    `space` then holds what is subtracted from the other rows, times their reflection entry.
    """
    start, last = k & -BLOCK_COLUMNS, f.offset(space, k, "double")
    wide = start + ((filled - start) & -(VECTORS_PER_STEP * BLOCK_COLUMNS))

    def products(j: LLVMValue, count: int) -> None:
        sums = [f.variable(VECTOR_TYPE, 0.0) for _ in range(count)]
        with f.loop(k + 1, rows) as i:
            one, line = (
                f.splat(f.load(x.at(i, k).start, "double", ITEM_BYTES), BLOCK_COLUMNS),
                x.at(i, j).start,
            )
            for n, total in enumerate(sums):
                row = f.load(f.offset(line, n * VECTOR_BYTES), VECTOR_TYPE, ITEM_BYTES)
                total.set(f.fma(row, one, total.get()))
        for n, total in enumerate(sums):
            f.store(total.get(), f.offset(space, j + n * BLOCK_COLUMNS, "double"), ITEM_BYTES)

    with f.loop(start, wide, VECTORS_PER_STEP * BLOCK_COLUMNS) as j:
        products(j, VECTORS_PER_STEP)
    with f.loop(wide, filled, BLOCK_COLUMNS) as j:
        products(j, 1)
    first, rest = f.load(x.at(k, k).start, "double", ITEM_BYTES), f.load(last, "double", ITEM_BYTES)
    is_trivial = rest.is_("olt", MIN_SQUARES_SUM)
    norm = f.intrinsic("sqrt", f.fma(first, first, rest))
    beta = -f.intrinsic("copysign", norm, first)
    f.store(f.select(is_trivial, first, beta), f.offset(diagonal, k, "double"), ITEM_BYTES)
    tau = f.select(is_trivial, 0.0, (beta - first) / beta)
    scale = f.select(is_trivial, 0.0, 1.0 / (first - beta))
    with f.loop(start, filled, BLOCK_COLUMNS) as j:
        at, line = f.offset(space, j, "double"), x.at(k, j).start
        row = f.load(line, VECTOR_TYPE, ITEM_BYTES)
        subtrahend = f.fma(
            f.load(at, VECTOR_TYPE, ITEM_BYTES), f.splat(scale, BLOCK_COLUMNS), row
        ) * f.splat(tau, BLOCK_COLUMNS)
        right = lane_indices(f).is_("sgt", f.splat(k - j, BLOCK_COLUMNS))
        subtrahend = f.select(right, subtrahend, 0.0)
        f.store(subtrahend, at, ITEM_BYTES)
        f.store(row - subtrahend, line, ITEM_BYTES)
    return scale, tau


def _emit_row_update(
    f: LLVMFunction,
    x: ScratchMatrix,
    k: LLVMValue,
    i: LLVMValue,
    filled: LLVMValue,
    space: LLVMValue,
    scale: LLVMValue,
    tau: LLVMValue,
) -> None:
    """Reflect row `i` from the left, and then by row `k` from the right."""
    one = -f.splat(f.load(x.at(i, k).start, "double", ITEM_BYTES) * scale, BLOCK_COLUMNS)
    dot, start = f.variable(VECTOR_TYPE, 0.0), (k + 1) & -BLOCK_COLUMNS
    with f.loop(start, filled, BLOCK_COLUMNS) as j:
        at = x.at(i, j).start
        subtrahend = f.load(f.offset(space, j, "double"), VECTOR_TYPE, ITEM_BYTES)
        row = f.fma(one, subtrahend, f.load(at, VECTOR_TYPE, ITEM_BYTES))
        f.store(row, at, ITEM_BYTES)
        dot.set(f.fma(row, f.load(x.at(k, j).start, VECTOR_TYPE, ITEM_BYTES), dot.get()))
    part = -f.splat(sum_lanes(f, dot.get()) * tau, BLOCK_COLUMNS)
    with f.loop(start, filled, BLOCK_COLUMNS) as j:
        at = x.at(i, j).start
        row = f.fma(
            part,
            f.load(x.at(k, j).start, VECTOR_TYPE, ITEM_BYTES),
            f.load(at, VECTOR_TYPE, ITEM_BYTES),
        )
        f.store(row, at, ITEM_BYTES)
