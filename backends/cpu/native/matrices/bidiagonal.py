"""Singular values of f32 matrices, reduced to bidiagonal form by Householder reflections in f64.

The algorithm follows G. H. Golub and C. F. Van Loan, "Matrix Computations" (1996), 5.4.3; LAPACK's
`bdsdc` computes the singular values of the bidiagonal matrix. Squares of f32 do not overflow in
f64.
"""

from collections.abc import Sequence
from functools import partial

from shardir.backends.cpu.native.data import Context, Phase, View
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value
from shardir.backends.cpu.native.matrices.calling import Emitter, Routine, Work, phases, tried
from shardir.backends.cpu.native.matrices.columns import put
from shardir.backends.cpu.native.matrices.held import (
    HELD,
    ITEM,
    LANES,
    VECTOR,
    Copying,
    Held,
    padded,
    row_bytes,
)
from shardir.backends.cpu.native.matrices.reflections import numbered
from shardir.backends.cpu.native.matrices.tridiagonal import (
    BESIDE,
    NOTHING,
    WORDS,
    lane_sum,
    row_reflection,
)
from shardir.ir import Op

MOST = 400
"""Rows and columns up to which this is faster than LAPACK alone."""
SLENDER = 2
"""For matrices that are more elongated than this, LAPACK computes a QR decomposition first."""


def bidiagonal_pays(x: View) -> bool:
    """Return whether this is faster than LAPACK for these matrices."""
    least, most = sorted(x.shape[-2:])
    return x.dtype == "f32" and most <= min(MOST, SLENDER * least)


def singular_values_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Lower the singular values of a batch; a broad matrix is transposed, which preserves them."""
    (x,), (result,) = operands, results
    least, most = sorted(x.shape[-2:])
    is_broad = x.shape[-1] > x.shape[-2]
    called = Routine(
        "dbdsdc",
        "'U 'N n *values *beside *none one *none one *none *iwork *work *iwork info",
    )
    line, is_contiguous = padded(least) * ITEM, x.strides[-2 if is_broad else -1] == x.itemsize
    return phases(
        Work(
            f"singular{'t' if is_broad else ''}{'n' if is_contiguous else 's'}", x.dtype,
            [(x, 2), (result, 1)], [called],
            {"m": most, "n": least, "one": 1, "apart": row_bytes(least)},
            {"*a": most * row_bytes(least), "*values": line, "*beside": line, "*space": line,
             "*none": 64, "*work": 64 * least, "*iwork": 64 * least},
            most * least * least * 0.3 + 40 * least**2,
            partial(_values, called, is_broad, is_contiguous),
        ),
        context,
    )  # fmt: skip


def _values(called: Routine, broad: bool, is_contiguous: bool, e: Emitter) -> None:
    f, m, n = e.f, e.sizes["m"], e.sizes["n"]
    emit_bidiagonal(f.module)
    x = Held(e.piece("*a"), e.sizes["apart"], f.value(0, "i64"))
    steps = [e.sizes["step0"], e.sizes["step1"]]
    steps = steps[::-1] if broad else steps
    Copying(f, e.dtype, is_contiguous).bring(e.addresses[0], steps, m, n, x)
    pieces = [e.piece(name) for name in ("*values", "*beside", "*space")]
    nan_if_nonfinite = f.call("bidiagonal", [m, n, *x, *pieces], "double")
    good, one = tried(e, nan_if_nonfinite.is_("oeq", 0.0), called), f.value(1, "i64")
    put(e, "*values", e.dtype, n, (n, one), 1, (e.sizes["step2"], one), good)


def emit_bidiagonal(module: Module, kept: bool = False) -> None:
    """Define `bidiagonal(rows, columns, x, diagonal, beside, space)` for rows >= columns.

    It returns 0, or NaN if an element is not finite. `space` has the length of a row.
    `bidiagonal_kept(..., space, left, taus, turns)` also stores the left reflections in the columns
    of `left`, below the diagonal, the right ones in the rows of x, from superdiagonal 1 on, and
    their factors, padded with zeros to full vectors.
    """
    params = ["i64", "i64", *HELD, "ptr", "ptr", "ptr", *(["ptr"] * 3 if kept else [])]
    name = "bidiagonal_kept" if kept else "bidiagonal"
    f = Function(module, name, params, "double", APART, internal=True)
    rows, columns, x = f.params[0], f.params[1], Held(*f.params[2:5])
    diagonal, superdiagonal, space, *more = f.params[5:]
    filled = (columns + (LANES - 1)) & -LANES
    nan_if_nonfinite = f.variable(VECTOR, 0.0)
    with f.loop(0, rows) as i, f.loop(0, filled, LANES) as j:
        row = f.load(x.at(i, j).start, VECTOR, ITEM)
        nan_if_nonfinite.set(nan_if_nonfinite.get() + (row - row))
    for factors in more[1:]:
        with f.loop(0, filled, LANES) as j:
            f.store(f.value(0.0, VECTOR), f.offset(factors, j, "double"), ITEM)
    with f.loop(0, columns) as k:
        scale, left_tau = _column(f, x, k, rows, filled, diagonal, space)
        if kept:
            f.store(left_tau, f.offset(more[1], k, "double"), ITEM)
            with f.loop(k + 1, rows) as i:
                one = f.load(x.at(i, k).start, "double", ITEM) * scale
                f.store(one, x._replace(start=more[0]).at(i, k).start, ITEM)
        tau = f.variable("double", 0.0)
        with f.when((k + 1).is_("slt", columns)):
            tau.set(row_reflection(f, x, k, filled, superdiagonal))
            if kept:
                f.store(tau.get(), f.offset(more[2], k, "double"), ITEM)
        with f.loop(k + 1, rows) as i:
            _both(f, x, k, i, filled, space, scale, tau.get())
    f.leave(lane_sum(f, nan_if_nonfinite.get()))


def _column(
    f: Function, x: Held, k: Value, rows: Value, filled: Value, diagonal: Value, space: Value
) -> tuple[Value, Value]:
    """Reflect row `k` from the left; return the scale of column `k` as reflection vector, and its
    factor.

    `space` then holds what is subtracted from the other rows, times their reflection entry.
    """
    start, last = k & -LANES, f.offset(space, k, "double")
    wide = start + ((filled - start) & -(BESIDE * LANES))

    def products(j: Value, count: int) -> None:
        sums = [f.variable(VECTOR, 0.0) for _ in range(count)]
        with f.loop(k + 1, rows) as i:
            one, line = f.splat(f.load(x.at(i, k).start, "double", ITEM), LANES), x.at(i, j).start
            for n, total in enumerate(sums):
                row = f.load(f.offset(line, n * WORDS), VECTOR, ITEM)
                total.set(f.fma(row, one, total.get()))
        for n, total in enumerate(sums):
            f.store(total.get(), f.offset(space, j + n * LANES, "double"), ITEM)

    with f.loop(start, wide, BESIDE * LANES) as j:
        products(j, BESIDE)
    with f.loop(wide, filled, LANES) as j:
        products(j, 1)
    first, rest = f.load(x.at(k, k).start, "double", ITEM), f.load(last, "double", ITEM)
    is_trivial = rest.is_("olt", NOTHING)
    norm = f.intrinsic("sqrt", f.fma(first, first, rest))
    beta = -f.intrinsic("copysign", norm, first)
    f.store(f.select(is_trivial, first, beta), f.offset(diagonal, k, "double"), ITEM)
    tau = f.select(is_trivial, 0.0, (beta - first) / beta)
    scale = f.select(is_trivial, 0.0, 1.0 / (first - beta))
    with f.loop(start, filled, LANES) as j:
        at, line = f.offset(space, j, "double"), x.at(k, j).start
        row = f.load(line, VECTOR, ITEM)
        subtrahend = f.fma(f.load(at, VECTOR, ITEM), f.splat(scale, LANES), row) * f.splat(
            tau, LANES
        )
        right = numbered(f).is_("sgt", f.splat(k - j, LANES))
        subtrahend = f.select(right, subtrahend, 0.0)
        f.store(subtrahend, at, ITEM)
        f.store(row - subtrahend, line, ITEM)
    return scale, tau


def _both(
    f: Function, x: Held, k: Value, i: Value, filled: Value, space: Value, scale: Value, tau: Value
) -> None:
    """Reflect row `i` from the left, and then by row `k` from the right."""
    one = -f.splat(f.load(x.at(i, k).start, "double", ITEM) * scale, LANES)
    dot, start = f.variable(VECTOR, 0.0), (k + 1) & -LANES
    with f.loop(start, filled, LANES) as j:
        at = x.at(i, j).start
        subtrahend = f.load(f.offset(space, j, "double"), VECTOR, ITEM)
        row = f.fma(one, subtrahend, f.load(at, VECTOR, ITEM))
        f.store(row, at, ITEM)
        dot.set(f.fma(row, f.load(x.at(k, j).start, VECTOR, ITEM), dot.get()))
    part = -f.splat(lane_sum(f, dot.get()) * tau, LANES)
    with f.loop(start, filled, LANES) as j:
        at = x.at(i, j).start
        row = f.fma(part, f.load(x.at(k, j).start, VECTOR, ITEM), f.load(at, VECTOR, ITEM))
        f.store(row, at, ITEM)
