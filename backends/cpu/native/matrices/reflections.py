"""Blocks of Householder reflections: made of columns, and applied to others.

Those of a block are applied together, as I - V T V^T (R. Schreiber and C. Van Loan, "A
storage-efficient WY representation for products of Householder transformations", 1989). Signs are
LAPACK's.
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
"""Bytes of a block's T."""
SQUARES = (2.0**-200, 2.0**200)
"""Between these a column's sum of squares tells its length as well as that of multiples of it."""
CHAINS = 4
"""Sums that are taken beside each other, so that none waits for the one before."""


def numbered(f: Function) -> Value:
    """The number of each lane."""
    text = f"<{', '.join(f'i64 {lane}' for lane in range(LANES))}>"
    return Value(text, vector("i64", LANES), f)


def emit_panel(module: Module) -> None:
    """`panel(rows, width, x, taus)`: reflections of the first `width` columns of a block.

    Below its diagonal each column becomes the vector of its reflection, whose first number is 1;
    all columns of the block that are right of it are reflected.
    """
    f = Function(module, "panel", ["i64", "i64", *HELD, "ptr"], attributes=APART, internal=True)
    rows, width, x, taus = *f.params[:2], Held(*f.params[2:5]), f.params[5]
    f.store(f.value(0.0, VECTOR), taus, ITEM)
    with f.loop(0, width) as s:
        _reflected(f, rows, x, s, taus)
    f.leave()


def _reflected(f: Function, rows: Value, x: Held, s: Value, taus: Value) -> None:
    """The reflection of column `s` of a block."""
    step = f.splat(s, LANES)
    here, after = (numbered(f).is_(how, step) for how in ("eq", "sgt"))
    line, diagonal = load(f, x.at(s, 0), REAL)[0], load(f, x.at(s, s), REAL, "double")[0]
    sums = [f.variable(VECTOR) for _ in range(CHAINS)]
    factor = f.variable("double", 1.0)
    _multiplied(f, rows, x, s, factor, sums)
    below = f.variable("double", _own(f, sums, s))
    square = f.fma(diagonal, diagonal, below.get())
    usual = square.is_("ogt", SQUARES[0]) & square.is_("olt", SQUARES[1])
    with f.when(~usual, seldom=True):
        factor.set(_factor(f, rows, x, s))
        _multiplied(f, rows, x, s, factor, sums)
        below.set(0.0)
        with f.loop(s + 1, rows) as i:
            one = load(f, x.at(i, s), REAL, "double")[0] * factor.get()
            below.set(f.fma(one, one, below.get()))
    first, rest = diagonal * factor.get(), below.get()
    none = rest.is_("oeq", 0.0)
    norm = f.intrinsic("sqrt", f.fma(first, first, rest))
    beta = -f.intrinsic("copysign", norm, first)
    tau = f.select(none, 0.0, (beta - first) / beta)
    scale = f.select(none, 0.0, 1.0 / (first - beta))
    f.store(tau, f.offset(taus, s, "double"), ITEM)
    weights = f.fma(sums[0].get(), f.splat(scale, LANES), line) * f.splat(tau, LANES)
    weights = f.select(after, weights, 0.0)
    corner = f.splat(f.select(none, diagonal, beta / factor.get()), LANES)
    store(f, [f.select(here, corner, line - weights)], x.at(s, 0), REAL)
    with f.loop(s + 1, rows) as i:
        (row,), (one,) = load(f, x.at(i, 0), REAL), load(f, x.at(i, s), REAL, "double")
        part = f.splat(one * factor.get() * scale, LANES)
        store(f, [f.select(here, part, f.fma(-part, weights, row))], x.at(i, 0), REAL)


def _multiplied(
    f: Function, rows: Value, x: Held, s: Value, factor: Variable, sums: Sequence[Variable]
) -> None:
    """The products of what is below the diagonal in column `s`, times a factor, with all columns.

    They are the first of `sums`.
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
    """The product of column `s` with itself."""
    return f.emit(f"extractelement {VECTOR} {sums[0].get()}, i64 {s}", "double")


def _factor(f: Function, rows: Value, x: Held, s: Value) -> Value:
    """A power of 2 that makes the largest of a column, from the diagonal on, about 1."""
    most = f.variable("double", 0.0)
    with f.loop(s, rows) as i:
        size = f.intrinsic("fabs", load(f, x.at(i, s), REAL, "double")[0])
        most.set(f.select(size.is_("ogt", most.get()), size, most.get()))
    # The exponent's bits, turned around: 2^(2 * 1023 - e) of 2^e, and of none of it subnormal.
    bits = most.get().to("i64", "bitcast") >> 52
    turned = f.value(2046, "i64") - bits
    turned = f.select(turned.is_("sgt", 2045), f.value(2045, "i64"), turned)
    turned = f.select(turned.is_("slt", 1), f.value(1, "i64"), turned)
    return (turned << 52).to("double", "bitcast")


def emit_reflectors(module: Module) -> None:
    """`reflectors(rows, width, x, v)` and `triangle(rows, v, t)`: V, and its T, turned."""
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
    made: list[Value] = []
    taus = f.load(t, VECTOR, ITEM)
    for s in range(LANES):
        found = f.value(0.0, VECTOR)
        for b, above in enumerate(made):
            dot = f.emit(f"extractelement {VECTOR} {sums[b].get()}, i64 {s}", "double")
            found = f.fma(above, f.splat(dot, LANES), found)
        tau = f.splat(f.emit(f"extractelement {VECTOR} {taus}, i64 {s}", "double"), LANES)
        here = numbered(f).is_("eq", f.value(s, vector("i64", LANES)))
        made.append(f.select(here, tau, -(found * tau)))
    for s, line in enumerate(made):
        f.store(line, f.offset(t, s * LANES * ITEM), ITEM)
    f.leave()


def emit_apply(module: Module, turned: bool) -> None:
    """`apply(rows, columns, v, t, x)`: x becomes (I - V T V^T) x; `apply_turned` with T turned.

    `t` holds T turned, row by row.
    """
    name = "apply_turned" if turned else "apply"
    params = ["i64", "i64", "ptr", "ptr", *HELD]
    f = Function(module, name, params, attributes=APART, internal=True)
    rows, columns, v, t = f.params[:4]
    x = Held(*f.params[4:])

    def applied(j: Value, beside: int) -> None:
        sums = [[f.variable(VECTOR, 0.0) for _ in range(beside)] for _ in range(LANES)]
        with f.loop(0, rows) as i:
            lines = [load(f, x.at(i, j + k * LANES), REAL)[0] for k in range(beside)]
            for s, totals in enumerate(sums):
                at = f.offset(v, i * (LANES * ITEM) + s * ITEM)
                one = f.splat(f.load(at, "double", ITEM), LANES)
                for line, total in zip(lines, totals, strict=True):
                    total.set(f.fma(line, one, total.get()))
        shares = []
        for s in range(LANES):
            found = [f.value(0.0, VECTOR)] * beside
            for a in range(s + 1) if turned else range(s, LANES):
                at = f.offset(t, ((s * LANES + a) if turned else (a * LANES + s)) * ITEM)
                one = f.splat(f.load(at, "double", ITEM), LANES)
                found = [
                    f.fma(total.get(), one, old) for total, old in zip(sums[a], found, strict=True)
                ]
            shares.append(found)
        with f.loop(0, rows) as i:
            places = [x.at(i, j + k * LANES) for k in range(beside)]
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
        applied(j, 2)
    with f.loop(pairs, filled, LANES) as j:
        applied(j, 1)
    f.leave()
