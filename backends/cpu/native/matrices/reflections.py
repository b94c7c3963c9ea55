"""Blocks of Householder reflections: computed from columns, and applied to other columns.

The reflections of a block are applied together, as I - V T V^T (R. Schreiber and C. Van Loan, "A
storage-efficient WY representation for products of Householder transformations", 1989). Signs
follow LAPACK.
"""

from collections.abc import Sequence

from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value, Variable, vector
from shardir.backends.cpu.native.matrices.held import (
    HELD,
    ITEM,
    LANES,
    VECTOR,
    Held,
    load,
    store,
    wide,
)

REAL = wide("f64")
TRIANGLE = LANES * LANES * ITEM
"""Bytes of the T of a block."""
SQUARES = (2.0**-200, 2.0**200)
"""The range of sums of squares in which no scaling of the column is needed."""
CHAINS = 4
"""Independent sums, which hide the latency of additions."""


def numbered(f: Function) -> Value:
    """Return the index of each lane."""
    text = f"<{', '.join(f'i64 {lane}' for lane in range(LANES))}>"
    return Value(text, vector("i64", LANES), f)


def emit_panel(module: Module) -> None:
    """Define `panel(rows, width, x, taus)`: reflections of the first `width` columns of a block.

    Below the diagonal each column becomes its reflection vector, whose first element is an implicit
    1; all columns of the block right of it are reflected.
    """
    f = Function(module, "panel", ["i64", "i64", *HELD, "ptr"], attributes=APART, internal=True)
    rows, width, x, taus = *f.params[:2], Held(*f.params[2:5]), f.params[5]
    f.store(f.value(0.0, VECTOR), taus, ITEM)
    with f.loop(0, width) as s:
        _reflected(f, rows, x, s, taus)
    f.leave()


def _reflected(f: Function, rows: Value, x: Held, s: Value, taus: Value) -> None:
    """Emit the reflection of column `s` of a block."""
    step = f.splat(s, LANES)
    here, after = (numbered(f).is_(how, step) for how in ("eq", "sgt"))
    line, diagonal = load(f, x.at(s, 0), REAL)[0], load(f, x.at(s, s), REAL, "double")[0]
    sums = [f.variable(VECTOR) for _ in range(CHAINS)]
    factor = f.variable("double", 1.0)
    _multiplied(f, rows, x, s, factor, sums)
    below = f.variable("double", _own(f, sums, s))
    square = f.fma(diagonal, diagonal, below.get())
    needs_no_scaling = square.is_("ogt", SQUARES[0]) & square.is_("olt", SQUARES[1])
    with f.when(~needs_no_scaling, seldom=True):
        factor.set(_factor(f, rows, x, s))
        _multiplied(f, rows, x, s, factor, sums)
        below.set(0.0)
        with f.loop(s + 1, rows) as i:
            one = load(f, x.at(i, s), REAL, "double")[0] * factor.get()
            below.set(f.fma(one, one, below.get()))
    first, rest = diagonal * factor.get(), below.get()
    is_trivial = rest.is_("oeq", 0.0)
    norm = f.intrinsic("sqrt", f.fma(first, first, rest))
    beta = -f.intrinsic("copysign", norm, first)
    tau = f.select(is_trivial, 0.0, (beta - first) / beta)
    scale = f.select(is_trivial, 0.0, 1.0 / (first - beta))
    f.store(tau, f.offset(taus, s, "double"), ITEM)
    weights = f.fma(sums[0].get(), f.splat(scale, LANES), line) * f.splat(tau, LANES)
    weights = f.select(after, weights, 0.0)
    corner = f.splat(f.select(is_trivial, diagonal, beta / factor.get()), LANES)
    store(f, [f.select(here, corner, line - weights)], x.at(s, 0), REAL)
    with f.loop(s + 1, rows) as i:
        (row,), (one,) = load(f, x.at(i, 0), REAL), load(f, x.at(i, s), REAL, "double")
        part = f.splat(one * factor.get() * scale, LANES)
        store(f, [f.select(here, part, f.fma(-part, weights, row))], x.at(i, 0), REAL)


def _multiplied(
    f: Function, rows: Value, x: Held, s: Value, factor: Variable, sums: Sequence[Variable]
) -> None:
    """Compute the products of column `s` below the diagonal, times a factor, with all columns.

    The result is in the first of `sums`.
    """
    for each in sums:
        each.set(0.0)

    def add(i: Value, total: Variable) -> None:
        one = load(f, x.at(i, s), REAL, "double")[0] * factor.get()
        (other,) = load(f, x.at(i, 0), REAL)
        total.set(f.fma(other, f.splat(one, LANES), total.get()))

    whole = s + 1 + ((rows - s - 1) & -CHAINS)
    with f.loop(s + 1, whole, CHAINS) as i:
        for chain, total in enumerate(sums):
            add(i + chain, total)
    with f.loop(whole, rows) as i:
        add(i, sums[0])
    one, two, three, four = (each.get() for each in sums)
    sums[0].set((one + two) + (three + four))


def _own(f: Function, sums: Sequence[Variable], s: Value) -> Value:
    """Return the product of column `s` with itself."""
    return f.emit(f"extractelement {VECTOR} {sums[0].get()}, i64 {s}", "double")


def _factor(f: Function, rows: Value, x: Held, s: Value) -> Value:
    """Return a power of 2 that scales the largest element of a column, from the diagonal on, to
    about 1."""
    largest = f.variable("double", 0.0)
    with f.loop(s, rows) as i:
        size = f.intrinsic("fabs", load(f, x.at(i, s), REAL, "double")[0])
        largest.set(f.select(size.is_("ogt", largest.get()), size, largest.get()))
    # Mirror the exponent bits: 2^(2 * 1023 - e) for 2^e, clamped to normal numbers.
    bits = largest.get().to("i64", "bitcast") >> 52
    mirrored = f.value(2046, "i64") - bits
    mirrored = f.select(mirrored.is_("sgt", 2045), f.value(2045, "i64"), mirrored)
    mirrored = f.select(mirrored.is_("slt", 1), f.value(1, "i64"), mirrored)
    return (mirrored << 52).to("double", "bitcast")


def emit_reflectors(module: Module) -> None:
    """Define `reflectors(rows, width, x, v)` and `triangle(rows, v, t)`: V, and its T,
    transposed."""
    f = Function(
        module, "reflectors", ["i64", "i64", *HELD, "ptr"], attributes=APART, internal=True
    )
    rows, width, x, v = *f.params[:2], Held(*f.params[2:5]), f.params[5]
    inside = numbered(f).is_("slt", f.splat(width, LANES))
    with f.loop(0, rows) as i:
        at = f.splat(i, LANES)
        row = load(f, x.at(i, 0), REAL)[0]
        row = f.select(numbered(f).is_("eq", at), 1.0, row)
        kept = inside & numbered(f).is_("sle", at)
        f.store(f.select(kept, row, 0.0), f.offset(v, i * (LANES * ITEM)), ITEM)
    f.leave()

    f = Function(module, "triangle", ["i64", "ptr", "ptr"], attributes=APART, internal=True)
    rows, v, t = f.params
    sums = [f.variable(VECTOR, 0.0) for _ in range(LANES)]
    with f.loop(0, rows) as i:
        start = f.offset(v, i * (LANES * ITEM))
        row = f.load(start, VECTOR, ITEM)
        for k, total in enumerate(sums):
            one = f.splat(f.load(f.offset(start, k, "double"), "double", ITEM), LANES)
            total.set(f.fma(row, one, total.get()))
    result: list[Value] = []
    taus = f.load(t, VECTOR, ITEM)
    for s in range(LANES):
        found = f.value(0.0, VECTOR)
        for b, above in enumerate(result):
            dot = f.emit(f"extractelement {VECTOR} {sums[b].get()}, i64 {s}", "double")
            found = f.fma(above, f.splat(dot, LANES), found)
        tau = f.splat(f.emit(f"extractelement {VECTOR} {taus}, i64 {s}", "double"), LANES)
        here = numbered(f).is_("eq", f.value(s, vector("i64", LANES)))
        result.append(f.select(here, tau, -(found * tau)))
    for s, line in enumerate(result):
        f.store(line, f.offset(t, s * LANES * ITEM), ITEM)
    f.leave()


def emit_apply(module: Module, turned: bool) -> None:
    """Define `apply(rows, columns, v, t, x)`: x becomes (I - V T V^T) x; `apply_turned` uses T^T.

    `t` holds T transposed, row by row.
    """
    name = "apply_turned" if turned else "apply"
    params = ["i64", "i64", "ptr", "ptr", *HELD]
    f = Function(module, name, params, attributes=APART, internal=True)
    rows, columns, v, t = f.params[:4]
    x = Held(*f.params[4:])

    def apply_to_columns(j: Value, vector_count: int) -> None:
        sums = [[f.variable(VECTOR, 0.0) for _ in range(vector_count)] for _ in range(LANES)]
        with f.loop(0, rows) as i:
            lines = [load(f, x.at(i, j + k * LANES), REAL)[0] for k in range(vector_count)]
            for s, totals in enumerate(sums):
                at = f.offset(v, i * (LANES * ITEM) + s * ITEM)
                one = f.splat(f.load(at, "double", ITEM), LANES)
                for line, total in zip(lines, totals, strict=True):
                    total.set(f.fma(line, one, total.get()))
        shares = []
        for s in range(LANES):
            found = [f.value(0.0, VECTOR)] * vector_count
            for a in range(s + 1) if turned else range(s, LANES):
                at = f.offset(t, ((s * LANES + a) if turned else (a * LANES + s)) * ITEM)
                one = f.splat(f.load(at, "double", ITEM), LANES)
                found = [
                    f.fma(total.get(), one, old) for total, old in zip(sums[a], found, strict=True)
                ]
            shares.append(found)
        with f.loop(0, rows) as i:
            places = [x.at(i, j + k * LANES) for k in range(vector_count)]
            lines = [load(f, place, REAL)[0] for place in places]
            for s, parts in enumerate(shares):
                at = f.offset(v, i * (LANES * ITEM) + s * ITEM)
                one = -f.splat(f.load(at, "double", ITEM), LANES)
                lines = [f.fma(p, one, line) for p, line in zip(parts, lines, strict=True)]
            for line, place in zip(lines, places, strict=True):
                store(f, [line], place, REAL)

    filled = (columns + (LANES - 1)) & -LANES
    pairs = filled & -(2 * LANES)
    with f.loop(0, pairs, 2 * LANES) as j:
        apply_to_columns(j, 2)
    with f.loop(pairs, filled, LANES) as j:
        apply_to_columns(j, 1)
    f.leave()
