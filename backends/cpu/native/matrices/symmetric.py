"""Eigenvalues and eigenvectors of symmetric f32 matrices.

Native code does most of the arithmetic: the reduction to tridiagonal form, and the
back-transformation of vectors. LAPACK's `sterf` or `stedc` solves the tridiagonal problem, as in
its `syevd`.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from shardir.backends.cpu.native.data import Context, Phase, View
from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.matrices.calling import Emitter, Routine, Work, phases, tried
from shardir.backends.cpu.native.matrices.columns import put
from shardir.backends.cpu.native.matrices.held import (
    ITEM,
    LANES,
    VECTOR,
    Copying,
    Held,
    neighbours,
    padded,
    row_bytes,
)
from shardir.backends.cpu.native.matrices.reflections import (
    TRIANGLE,
    emit_apply,
    emit_reflectors,
)
from shardir.backends.cpu.native.matrices.tridiagonal import (
    emit_gather,
    emit_mirror,
    emit_tridiagonal,
)
from shardir.ir import Op

MOST = 400
"""Rows up to which this is faster than LAPACK alone."""


def symmetric_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Lower symmetric eigenvalue problems; the lower triangle is read."""
    (x,), vectors = operands, bool(op.attrs["vectors"])
    rows = x.shape[-1]
    matrix_bytes, line = rows * row_bytes(rows), padded(rows) * ITEM
    called = Routine("dsterf", "n *values *beside info")
    pieces = {"*a": matrix_bytes, "*values": line, "*beside": line, "*taus": line, "*space": line}
    if vectors:
        called = Routine("dstedc", "'I n *values *beside *z n *work lwork *iwork liwork info")
        pieces |= {"*z": rows * rows * ITEM, "*turned": matrix_bytes, "*v": rows * LANES * ITEM,
                   "*t": TRIANGLE}  # fmt: skip
    flags = neighbours(x), vectors and neighbours(results[1])
    layout_letters = "".join("n" if flag else "s" for flag in flags)
    return phases(
        Work(
            f"symmetric{'V' if vectors else 'N'}{layout_letters}", x.dtype,
            [(x, 2), *zip(results, (1, 2), strict=False)], [called],
            {"n": rows, "apart": row_bytes(rows)}, pieces,
            rows**3 * (0.4 if vectors else 0.15) + 40 * rows**2, partial(_values, called, flags),
        ),
        context,
    )  # fmt: skip


def _values(called: Routine, flags: tuple[bool, bool], e: Emitter) -> None:
    f, n = e.f, e.sizes["n"]
    emit_mirror(f.module)
    emit_tridiagonal(f.module)
    a = Held(e.piece("*a"), e.sizes["apart"], f.value(0, "i64"))
    steps = [e.sizes["step0"], e.sizes["step1"]]
    Copying(f, e.dtype, flags[0]).bring(e.addresses[0], steps, n, n, a)
    finite = f.call("mirror", [n, *a], "double").is_("oeq", 0.0)
    pieces = [e.piece(name) for name in ("*values", "*beside", "*taus", "*space")]
    f.call("tridiagonal", [n, *a, *pieces])
    good, one = tried(e, finite, called), f.value(1, "i64")
    put(e, "*values", e.dtype, n, (n, one), 1, (e.sizes["step2"], one), good)
    if called.name == "dstedc":
        _vectors(e, a, good, flags[1])


def _vectors(e: Emitter, a: Held, good: Value, is_contiguous: bool) -> None:
    """Apply all reflections to the vectors of the tridiagonal matrix, the last one first."""
    f, n = e.f, e.sizes["n"]
    emit_gather(f.module)
    emit_reflectors(f.module)
    emit_apply(f.module, turned=False)
    vectors = a._replace(start=e.piece("*turned"))
    item = f.value(ITEM, "i64")
    Copying(f, "f64", False).bring(e.piece("*z"), [item, n * ITEM], n, n, vectors)
    v, t = e.piece("*v"), e.piece("*t")
    with f.loop(1, n, LANES) as done:
        first = ((n - 2) & -LANES) - (done - 1)
        high = n - 1 - first
        taus = f.load(f.offset(e.piece("*taus"), first, "double"), VECTOR, ITEM)
        f.store(taus, t, ITEM)
        f.call("gather", [n, first, *a, v])
        f.call("triangle", [high, v, t])
        f.call("apply", [high, n, v, t, *vectors.at(first + 1, 0)])
    with f.when(~good, seldom=True), f.loop(0, n) as i, f.loop(0, n) as j:
        f.store(f.value(np.nan, "double"), vectors.at(i, j).start, ITEM)
    steps = [e.sizes["step3"], e.sizes["step4"]]
    Copying(f, e.dtype, is_contiguous).put(vectors, n, n, e.addresses[2], steps)
