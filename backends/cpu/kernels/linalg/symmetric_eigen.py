"""Eigenvalues and eigenvectors of symmetric f32 matrices.

Native code does most of the arithmetic: the reduction to tridiagonal form, and the
back-transformation of vectors. LAPACK's `sterf` or `stedc` solves the tridiagonal problem, as in
its `syevd`.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.linalg.householder import (
    TRIANGLE_BYTES,
    define_apply,
    define_reflectors,
)
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
    VECTOR_TYPE,
    MatrixCopy,
    ScratchMatrix,
    has_contiguous_rows,
    pad_to_vectors,
    row_bytes,
)
from shardir.backends.cpu.kernels.linalg.tridiagonal import (
    define_gather_reflectors,
    define_mirror,
    define_tridiagonal,
)
from shardir.ir.module import Op

MAX_SYMMETRIC_ROWS = 400
"""Rows up to which this is faster than LAPACK alone."""


def symmetric_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower symmetric eigenvalue problems; the lower triangle is read."""
    (x,), vectors = operands, bool(op.attrs["vectors"])
    rows = x.shape[-1]
    matrix_bytes, line = rows * row_bytes(rows), pad_to_vectors(rows) * ITEM_BYTES
    called = LapackRoutine("dsterf", "n *values *beside info")
    pieces = {"*a": matrix_bytes, "*values": line, "*beside": line, "*taus": line, "*space": line}
    if vectors:
        called = LapackRoutine("dstedc", "'I n *values *beside *z n *work lwork *iwork liwork info")
        pieces |= {
            "*z": rows * rows * ITEM_BYTES,
            "*turned": matrix_bytes,
            "*v": rows * BLOCK_COLUMNS * ITEM_BYTES,
            "*t": TRIANGLE_BYTES,
        }
    flags = has_contiguous_rows(x), vectors and has_contiguous_rows(results[1])
    layout_letters = "".join("n" if flag else "s" for flag in flags)
    return lower_batch(
        BatchedWork(
            f"symmetric{'V' if vectors else 'N'}{layout_letters}",
            x.dtype,
            [(x, 2), *zip(results, (1, 2), strict=False)],
            [called],
            {"n": rows, "apart": row_bytes(rows)},
            pieces,
            rows**3 * (0.4 if vectors else 0.15) + 40 * rows**2,
            partial(_emit_symmetric_eigen, called, flags),
        ),
        context,
    )


def _emit_symmetric_eigen(
    called: LapackRoutine, flags: tuple[bool, bool], e: MatrixEmitter
) -> None:
    f, n = e.f, e.sizes["n"]
    define_mirror(f.module)
    define_tridiagonal(f.module)
    a = ScratchMatrix(e.piece_address("*a"), e.sizes["apart"], f.value(0, "i64"))
    steps = [e.sizes["step0"], e.sizes["step1"]]
    MatrixCopy(f, e.dtype, flags[0]).load_matrix(e.addresses[0], steps, n, n, a)
    finite = f.call("mirror", [n, *a], "double").is_("oeq", 0.0)
    pieces = [e.piece_address(name) for name in ("*values", "*beside", "*taus", "*space")]
    f.call("tridiagonal", [n, *a, *pieces])
    good, one = emit_call_if_finite(e, finite, called), f.value(1, "i64")
    store_columns(e, "*values", e.dtype, n, (n, one), 1, (e.sizes["step2"], one), good)
    if called.name == "dstedc":
        _emit_eigenvectors(e, a, good, flags[1])


def _emit_eigenvectors(
    e: MatrixEmitter, a: ScratchMatrix, good: LLVMValue, is_contiguous: bool
) -> None:
    """Apply all reflections to the vectors of the tridiagonal matrix, the last one first."""
    f, n = e.f, e.sizes["n"]
    define_gather_reflectors(f.module)
    define_reflectors(f.module)
    define_apply(f.module, turned=False)
    vectors = a._replace(start=e.piece_address("*turned"))
    item = f.value(ITEM_BYTES, "i64")
    MatrixCopy(f, "f64", False).load_matrix(
        e.piece_address("*z"), [item, n * ITEM_BYTES], n, n, vectors
    )
    v, t = e.piece_address("*v"), e.piece_address("*t")
    with f.loop(1, n, BLOCK_COLUMNS) as done:
        first = ((n - 2) & -BLOCK_COLUMNS) - (done - 1)
        high = n - 1 - first
        taus = f.load(f.offset(e.piece_address("*taus"), first, "double"), VECTOR_TYPE, ITEM_BYTES)
        f.store(taus, t, ITEM_BYTES)
        f.call("gather", [n, first, *a, v])
        f.call("triangle", [high, v, t])
        f.call("apply", [high, n, v, t, *vectors.at(first + 1, 0)])
    with f.when(~good, seldom=True), f.loop(0, n) as i, f.loop(0, n) as j:
        f.store(f.value(np.nan, "double"), vectors.at(i, j).start, ITEM_BYTES)
    steps = [e.sizes["step3"], e.sizes["step4"]]
    MatrixCopy(f, e.dtype, is_contiguous).store_matrix(vectors, n, n, e.addresses[2], steps)
