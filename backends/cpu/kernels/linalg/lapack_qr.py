"""QR decompositions by LAPACK: `geqrf` and `orgqr`."""

from collections.abc import Sequence
from functools import partial

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.linalg.lapack_calls import (
    BatchedWork,
    LapackRoutine,
    MatrixEmitter,
    lower_batch,
)
from shardir.backends.cpu.kernels.linalg.lapack_columns import load_columns, store_columns
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX


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
            rows * left * least * 0.3, partial(_emit_qr, factor, form),
        ),
        context,
    )  # fmt: skip


def _emit_qr(factor: LapackRoutine, form: LapackRoutine, e: MatrixEmitter) -> None:
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
