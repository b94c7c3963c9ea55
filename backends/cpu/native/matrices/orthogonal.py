"""QR decompositions by LAPACK: `geqrf` and `orgqr`."""

from collections.abc import Sequence
from functools import partial

from shardir.backends.cpu.native.data import Context, Phase, View
from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.matrices.calling import Emitter, Routine, Work, phases
from shardir.backends.cpu.native.matrices.columns import bring, put
from shardir.ir import Op
from shardir.types import COMPLEX


def called_qr(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Lower QR decompositions to LAPACK calls; the values equal NumPy's."""
    (x,), (q, r) = operands, results
    rows, columns = x.shape[-2:]
    left, least = q.shape[-1], min(rows, columns)
    if x.size == 0:
        return None if q.size else []
    item, complex_ = 16 if x.dtype in COMPLEX else 8, x.dtype in COMPLEX
    factor = Routine("zgeqrf" if complex_ else "dgeqrf", "m n *a m *tau *work lwork info")
    form = Routine("zungqr" if complex_ else "dorgqr", "m left k *q m *tau *work lwork info")
    return phases(
        Work(
            "qr", x.dtype, [(x, 2), (q, 2), (r, 2)], [factor, form],
            {"m": rows, "n": columns, "k": least, "left": left},
            {"*a": rows * columns * item, "*q": rows * left * item, "*tau": least * item},
            rows * left * least * 0.3, partial(_qr, factor, form),
        ),
        context,
    )  # fmt: skip


def _qr(factor: Routine, form: Routine, e: Emitter) -> None:
    f, (m, n, k, left) = e.f, (e.sizes[name] for name in ("m", "n", "k", "left"))
    bring(e, 0, 0, m, n, "*a")
    good = e.call(factor)
    parts = e.item // 8
    with f.loop(0, k) as j:
        _column(e, j, m * parts)
    good = good & e.call(form)
    step = [e.sizes[f"step{i}"] for i in range(6)]
    put(e, "*q", e.dtype, m, (m, left), 1, (step[2], step[3]), good)
    put(e, "*a", e.dtype, m, (left, n), 2, (step[4], step[5]), good)


def _column(e: Emitter, j: Value, words: Value) -> None:
    """Move reflector `j` to `q`, and clear its place below the diagonal."""
    f, parts = e.f, e.item // 8
    source, target = (f.offset(e.piece(name), j * words * 8) for name in ("*a", "*q"))
    with f.loop(0, words) as i:
        f.store(
            f.load(f.offset(source, i, "double"), "double", 8), f.offset(target, i, "double"), 8
        )
    with f.loop((j + 1) * parts, words) as i:
        f.store(f.value(0.0, "double"), f.offset(source, i, "double"), 8)
