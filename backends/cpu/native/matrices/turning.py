"""Singular vectors of f32 matrices that are nearly square: those of a bidiagonal matrix,
transformed back.

Native code applies the reflections in f64; LAPACK's `bdsdc` solves the bidiagonal problem, as in
its `gesdd`.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from shardir.backends.cpu.native.data import Context, Phase, View
from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.matrices.bidiagonal import MOST, emit_bidiagonal
from shardir.backends.cpu.native.matrices.calling import Emit, Emitter, Routine, Work, phases, tried
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
    store,
)
from shardir.backends.cpu.native.matrices.reflections import (
    REAL,
    TRIANGLE,
    emit_apply,
    emit_reflectors,
    numbered,
)
from shardir.backends.cpu.native.matrices.tridiagonal import emit_gather
from shardir.ir import Op


def turning_pays(x: View) -> bool:
    """Return whether this is faster than LAPACK for these matrices.

    LAPACK computes a QR decomposition of longer ones first, and has other signs for broad ones.
    """
    rows, columns = x.shape[-2:]
    return x.dtype == "f32" and columns <= rows < 11 * columns // 6 and rows <= MOST


def _called() -> Routine:
    return Routine("dbdsdc", "'U 'I n *values *beside *u n *vh n *none *iwork *work *iwork info")


def _work(
    name: str, views: Sequence[tuple[View, int]], left: int, routines: Sequence[Routine], emit: Emit
) -> Work:
    """Describe the decomposition of the matrices of the first view, with `left` columns of U."""
    x = views[0][0]
    rows, columns = x.shape[-2:]
    line, held = padded(columns) * ITEM, rows * row_bytes(columns)
    square = columns * columns * ITEM
    return Work(
        name, x.dtype, views, routines,
        {"m": rows, "n": columns, "left": left, "apart": row_bytes(columns),
         "apart_u": row_bytes(left)},
        {"*a": held, "*reflected": held, "*values": line, "*beside": line, "*space": line,
         "*taus": line, "*turns": line, "*u": square, "*vh": square, "*none": 64,
         "*work": 3 * square + 32 * columns, "*iwork": 64 * columns,
         "*u_held": rows * row_bytes(left), "*v_held": columns * row_bytes(columns),
         "*v": rows * LANES * ITEM, "*t": TRIANGLE},
        rows * columns * columns * 0.9 + 40 * columns**2, emit,
    )  # fmt: skip


def singular_vectors_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Lower singular value decompositions of matrices with rows >= columns."""
    (x,), (u, values, vh), called = operands, results, _called()
    flags = neighbours(x), neighbours(u), vh.strides[-2] == vh.itemsize
    layout_letters = "".join("n" if flag else "s" for flag in flags)
    views = [(x, 2), (u, 2), (values, 1), (vh, 2)]
    emit = partial(_svd, called, flags)
    return phases(_work(f"turned{layout_letters}", views, u.shape[-1], [called], emit), context)


def _svd(called: Routine, flags: tuple[bool, bool, bool], e: Emitter) -> None:
    f, m, n, left = e.f, e.sizes["m"], e.sizes["n"], e.sizes["left"]
    step, one = [e.sizes[f"step{i}"] for i in range(7)], f.value(1, "i64")
    u, v, good = _decomposed(called, flags[0], e)
    put(e, "*values", e.dtype, n, (n, one), 2, (step[4], one), good)
    with f.when(~good, seldom=True):
        _lost(e, u, m, left)
        _lost(e, v, n, n)
    Copying(f, e.dtype, flags[1]).put(u, m, left, e.addresses[1], step[2:4])
    Copying(f, e.dtype, flags[2]).put(v, n, n, e.addresses[3], step[6:4:-1])


def turned_pinv_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Lower pseudoinverses of matrices with rows >= columns.

    The result is V, divided by the singular values above the cutoff, times U^T.
    """
    (x, cutoff), (result,), called = operands, results, _called()
    multiplied = Routine("dgemm", "'T 'N n m n *one *v_held w *u_held w *zero *made n")
    emit = partial(_pinv, called, multiplied, neighbours(x))
    name = f"turned_pinv{'n' if neighbours(x) else 's'}"
    views, columns = [(x, 2), (cutoff, 0), (result, 2)], x.shape[-1]
    work = _work(name, views, columns, [called, multiplied], emit)
    sizes = {**work.sizes, "w": row_bytes(columns) // ITEM}
    pieces = {**work.pieces, "*made": result.shape[-1] * columns * ITEM, "*one": 64, "*zero": 64}
    return phases(work._replace(sizes=sizes, pieces=pieces), context)


def _pinv(called: Routine, multiplied: Routine, is_contiguous: bool, e: Emitter) -> None:
    f, m, n = e.f, e.sizes["m"], e.sizes["n"]
    _, v, good = _decomposed(called, is_contiguous, e)
    with f.when(good):
        values = e.piece("*values")
        limit = f.load(e.addresses[1], "float", 4).to("double", "fpext")
        limit = limit * f.load(values, "double", ITEM)
        with f.loop(0, n) as i:
            at = f.offset(values, i, "double")
            value = f.load(at, "double", ITEM)
            divisor = f.select(value.is_("oeq", 0.0), 1.0, value)
            one = f.value(1.0, "double")
            f.store(f.select(value.is_("ugt", limit), one / divisor, 0.0), at, ITEM)
        with f.loop(0, n) as i, f.loop(0, n) as j:
            there = v.at(i, j).start
            factor = f.load(f.offset(values, j, "double"), "double", ITEM)
            f.store(f.load(there, "double", ITEM) * factor, there, ITEM)
        f.store(f.value(1.0, "double"), e.piece("*one"), ITEM)
        f.store(f.value(0.0, "double"), e.piece("*zero"), ITEM)
        e.call(multiplied)
    put(e, "*made", e.dtype, n, (n, m), 2, (e.sizes["step2"], e.sizes["step3"]), good)


def _decomposed(called: Routine, is_contiguous: bool, e: Emitter) -> tuple[Held, Held, Value]:
    """Emit U and V of the matrix of the first view; return them and whether the routine
    succeeded."""
    f, m, n = e.f, e.sizes["m"], e.sizes["n"]
    emit_bidiagonal(f.module, kept=True)
    emit_gather(f.module)
    emit_reflectors(f.module)
    emit_apply(f.module, turned=False)
    none = f.value(0, "i64")
    a = Held(e.piece("*a"), e.sizes["apart"], none)
    u = Held(e.piece("*u_held"), e.sizes["apart_u"], none)
    v = a._replace(start=e.piece("*v_held"))
    steps = [e.sizes["step0"], e.sizes["step1"]]
    Copying(f, e.dtype, is_contiguous).bring(e.addresses[0], steps, m, n, a)
    names = ("*values", "*beside", "*space", "*reflected", "*taus", "*turns")
    pieces = [e.piece(name) for name in names]
    finite = f.call("bidiagonal_kept", [m, n, *a, *pieces], "double").is_("oeq", 0.0)
    good = tried(e, finite, called)
    _from_left(e, a, u)
    _from_right(e, a, v)
    return u, v, good


def _from_left(e: Emitter, a: Held, u: Held) -> None:
    """Emit U: reflect the left vectors of the bidiagonal matrix, and columns of the identity."""
    f, m, n, left = e.f, e.sizes["m"], e.sizes["n"], e.sizes["left"]
    with f.loop(0, m) as i, f.loop(0, left, LANES) as j:
        ones = numbered(f).is_("eq", f.splat(i - j, LANES))
        store(f, [f.select(ones, f.value(1.0, VECTOR), 0.0)], u.at(i, j), REAL)
    with f.loop(0, n) as i, f.loop(0, n) as j:
        number = f.load(f.offset(e.piece("*u"), j * n + i, "double"), "double", ITEM)
        f.store(number, u.at(i, j).start, ITEM)
    v, t, reflected = e.piece("*v"), e.piece("*t"), a._replace(start=e.piece("*reflected"))
    with f.loop(0, n, LANES) as done:
        first = ((n - 1) & -LANES) - done
        high = m - first
        f.store(f.load(f.offset(e.piece("*taus"), first, "double"), VECTOR, ITEM), t, ITEM)
        f.call("reflectors", [high, f.least(n - first, LANES), *reflected.at(first, first), v])
        f.call("triangle", [high, v, t])
        f.call("apply", [high, left, v, t, *u.at(first, 0)])


def _from_right(e: Emitter, a: Held, turned: Held) -> None:
    """Emit V: the columns of LAPACK's V^H are the rows of V."""
    f, n = e.f, e.sizes["n"]
    steps: list[Value] = [n * ITEM, f.value(ITEM, "i64")]
    Copying(f, "f64", True).bring(e.piece("*vh"), steps, n, n, turned)
    v, t = e.piece("*v"), e.piece("*t")
    with f.loop(1, n, LANES) as done:
        first = ((n - 2) & -LANES) - (done - 1)
        high = n - 1 - first
        f.store(f.load(f.offset(e.piece("*turns"), first, "double"), VECTOR, ITEM), t, ITEM)
        f.call("gather", [n, first, *a, v])
        f.call("triangle", [high, v, t])
        f.call("apply", [high, n, v, t, *turned.at(first + 1, 0)])


def _lost(e: Emitter, x: Held, rows: Value, columns: Value) -> None:
    """Fill a matrix with NaN."""
    f = e.f
    with f.loop(0, rows) as i, f.loop(0, columns) as j:
        f.store(f.value(np.nan, "double"), x.at(i, j).start, ITEM)
