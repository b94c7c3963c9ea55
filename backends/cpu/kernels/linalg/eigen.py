"""Eigenvalues and eigenvectors by LAPACK: `syevd` of Hermitian matrices, and `geev`."""

from collections.abc import Sequence
from functools import partial

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, Rule
from shardir.backends.cpu.kernels.linalg.lapack_calls import (
    BatchedWork,
    LapackRoutine,
    MatrixEmitter,
    emit_call_if_finite,
    lower_batch,
)
from shardir.backends.cpu.kernels.linalg.lapack_columns import load_columns, store_columns
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX, REAL_OF


def eigh_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower Hermitian eigenvalue problems; the lower triangle is read."""
    (x,), vectors = operands, bool(op.attrs["vectors"])
    rows = x.shape[-1]
    if x.size == 0:
        return []
    complex_, letter = x.dtype in COMPLEX, "V" if vectors else "N"
    more = "*rwork lrwork" if complex_ else ""
    called = LapackRoutine(
        "zheevd" if complex_ else "dsyevd",
        f"'{letter} 'L n *a n *values *work lwork {more} *iwork liwork info",
    )
    return lower_batch(
        BatchedWork(
            f"eigh{letter}", x.dtype, [(x, 2), *zip(results, (1, 2), strict=False)], [called],
            {"n": rows}, {"*a": rows * rows * (16 if complex_ else 8), "*values": rows * 8},
            rows**3 * (0.8 if vectors else 0.4), partial(_emit_eigh, called, vectors),
        ),
        context,
    )  # fmt: skip


def _emit_eigh(called: LapackRoutine, vectors: bool, e: MatrixEmitter) -> None:
    n = e.sizes["n"]
    # Elements above the diagonal are arbitrary, so whether they are finite has no meaning.
    load_columns(e, 0, 0, n, n, "*a")
    good = e.call(called)
    one, real = e.f.value(1, "i64"), REAL_OF.get(e.dtype, e.dtype)
    store_columns(e, "*values", real, n, (n, one), 1, (e.sizes["step2"], one), good)
    if vectors:
        store_columns(e, "*a", e.dtype, n, (n, n), 2, (e.sizes["step3"], e.sizes["step4"]), good)


def eig_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower general eigenvalue problems; as in NumPy, but all results are complex."""
    (x,), vectors = operands, bool(op.attrs["vectors"])
    rows = x.shape[-1]
    if x.size == 0:
        return []
    complex_, letter = x.dtype in COMPLEX, "V" if vectors else "N"
    values = "*values" if complex_ else "*real *imag"
    more = "*rwork" if complex_ else ""
    called = LapackRoutine(
        "zgeev" if complex_ else "dgeev",
        f"'N '{letter} n *a n {values} *none n *vectors n *work lwork {more} info",
    )
    square = rows * rows if vectors else 1
    pieces = {"*a": rows * rows * (16 if complex_ else 8), "*values": rows * 16, "*none": 16,
              "*vectors": square * (16 if complex_ else 8)}  # fmt: skip
    pieces |= {"*rwork": 16 * rows} if complex_ else {
        "*real": 8 * rows, "*imag": 8 * rows, "*both": square * 16
    }  # fmt: skip
    return lower_batch(
        BatchedWork(
            f"eig{letter}", x.dtype, [(x, 2), *zip(results, (1, 2), strict=False)], [called],
            {"n": rows}, pieces, rows**3 * (3.5 if vectors else 2.0),
            partial(_emit_eig, called, vectors),
        ),
        context,
    )  # fmt: skip


def _emit_eig(called: LapackRoutine, vectors: bool, e: MatrixEmitter) -> None:
    f, n = e.f, e.sizes["n"]
    good = emit_call_if_finite(e, load_columns(e, 0, 0, n, n, "*a"), called)
    result_dtype, done = {"f32": "c64", "f64": "c128"}.get(e.dtype, e.dtype), "*vectors"
    if e.dtype not in COMPLEX:
        _emit_complex_values(e)
        if vectors:
            done = "*both"
            with f.loop(0, n) as j:
                _emit_complex_vector(e, j)
    one = f.value(1, "i64")
    store_columns(e, "*values", result_dtype, n, (n, one), 1, (e.sizes["step2"], one), good)
    if vectors:
        store_columns(
            e, done, result_dtype, n, (n, n), 2, (e.sizes["step3"], e.sizes["step4"]), good
        )


def _emit_complex_values(e: MatrixEmitter) -> None:
    """Combine the real and imaginary parts of eigenvalues."""
    f = e.f
    with f.loop(0, e.sizes["n"]) as i:
        at = f.offset(e.piece_address("*values"), i * 16)
        for plane, name in enumerate(("*real", "*imag")):
            part = f.load(f.offset(e.piece_address(name), i, "double"), "double", 8)
            f.store(part, f.offset(at, 8 * plane), 8)


def _emit_complex_vector(e: MatrixEmitter, j: LLVMValue) -> None:
    """Expand vector `j`: for a conjugate pair LAPACK returns the real part, then the imaginary
    part."""
    f, n = e.f, e.sizes["n"]
    imag = f.load(f.offset(e.piece_address("*imag"), j, "double"), "double", 8)
    first, second = imag.is_("ogt", 0.0), imag.is_("olt", 0.0)
    real_at, imag_at = f.select(second, j - 1, j), f.select(first, j + 1, j)
    columns = [f.offset(e.piece_address("*vectors"), k * n * 8) for k in (real_at, imag_at)]
    target = f.offset(e.piece_address("*both"), j * n * 16)
    with f.loop(0, n) as i:
        real, part = (f.load(f.offset(column, i, "double"), "double", 8) for column in columns)
        part = f.select(first, part, f.select(second, -part, 0.0))
        f.store(real, f.offset(target, i * 16), 8)
        f.store(part, f.offset(target, i * 16 + 8), 8)


RULES: dict[str, Rule] = {"eigh": eigh_rule, "eig": eig_rule}
