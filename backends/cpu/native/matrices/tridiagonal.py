"""Reduction of symmetric f32 matrices to tridiagonal form by two-sided reflections in f64.

The algorithm follows G. H. Golub and C. F. Van Loan, "Matrix Computations" (1996), 8.3.1, with
LAPACK's signs. Both triangles are stored, so that a reflection is a row and all steps are on full
vectors. Squares of f32 do not overflow in f64, and squares of significant differences of f32 values
do not underflow.
"""

from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value
from shardir.backends.cpu.native.matrices.held import HELD, ITEM, LANES, VECTOR, Held
from shardir.backends.cpu.native.matrices.reflections import numbered

BESIDE = 4
"""Vectors of columns that are processed in one step."""
WORDS = LANES * ITEM
NOTHING = 2.0**-900
"""A smaller sum of squares is rounding noise of f32 values and counts as 0: such squares are
themselves inaccurate, and would make no orthogonal reflection."""


def emit_mirror(module: Module) -> None:
    """Define `mirror(rows, x)`: copy the lower triangle to the upper one; return 0 if it is
    finite."""
    f = Function(module, "mirror", ["i64", *HELD], "double", APART, internal=True)
    rows, x = f.params[0], Held(*f.params[1:])
    nan_if_nonfinite = f.variable("double", 0.0)
    with f.loop(0, rows) as i, f.loop(0, i + 1) as j:
        one = f.load(x.at(i, j).start, "double", ITEM)
        nan_if_nonfinite.set(nan_if_nonfinite.get() + (one - one))
        f.store(one, x.at(j, i).start, ITEM)
    f.leave(nan_if_nonfinite.get())


def emit_tridiagonal(module: Module) -> None:
    """Define `tridiagonal(rows, x, diagonal, beside, taus, space)`: rows of x become reflections.

    The reflection of row k begins at column k + 1 with a 1. `space` has the length of a row. `taus`
    is padded with zeros to full vectors.
    """
    params = ["i64", *HELD, "ptr", "ptr", "ptr", "ptr"]
    f = Function(module, "tridiagonal", params, attributes=APART, internal=True)
    rows, x, (diagonal, off_diagonal, taus, space) = f.params[0], Held(*f.params[1:4]), f.params[4:]
    filled = (rows + (LANES - 1)) & -LANES
    with f.loop(0, filled, LANES) as j:
        f.store(f.value(0.0, VECTOR), f.offset(taus, j, "double"), ITEM)
    with f.loop(0, rows) as k:
        f.store(f.load(x.at(k, k).start, "double", ITEM), f.offset(diagonal, k, "double"), ITEM)
        with f.when((k + 1).is_("slt", rows)):
            tau = row_reflection(f, x, k, filled, off_diagonal)
            f.store(tau, f.offset(taus, k, "double"), ITEM)
            with f.when(tau.is_("une", 0.0)):
                _both_sides(f, x, k, rows, filled, tau, space)
    f.leave()


def row_reflection(f: Function, x: Held, k: Value, filled: Value, off_diagonal: Value) -> Value:
    """Turn row `k` beyond its diagonal into a reflection; return its factor."""
    start, next_ = (k + 1) & -LANES, x.at(k, k + 1).start
    first = f.load(next_, "double", ITEM)
    f.store(f.value(0.0, "double"), next_, ITEM)
    edge = f.load(x.at(k, start).start, VECTOR, ITEM)
    inside = numbered(f).is_("sgt", f.splat(k - start, LANES))
    f.store(f.select(inside, edge, 0.0), x.at(k, start).start, ITEM)
    total = f.variable(VECTOR, 0.0)
    with f.loop(start, filled, LANES) as j:
        row = f.load(x.at(k, j).start, VECTOR, ITEM)
        total.set(f.fma(row, row, total.get()))
    rest = lane_sum(f, total.get())
    is_trivial = rest.is_("olt", NOTHING)
    norm = f.intrinsic("sqrt", f.fma(first, first, rest))
    beta = -f.intrinsic("copysign", norm, first)
    f.store(f.select(is_trivial, first, beta), f.offset(off_diagonal, k, "double"), ITEM)
    scale = f.splat(f.select(is_trivial, 0.0, 1.0 / (first - beta)), LANES)
    with f.loop(start, filled, LANES) as j:
        at = x.at(k, j).start
        f.store(f.load(at, VECTOR, ITEM) * scale, at, ITEM)
    f.store(f.value(1.0, "double"), next_, ITEM)
    return f.select(is_trivial, 0.0, (beta - first) / beta)


def lane_sum(f: Function, x: Value) -> Value:
    """Return the sum of all lanes."""
    half = LANES // 2
    while half:
        x = x + f.shuffle(x, x, [(lane + half) % LANES for lane in range(LANES)])
        half //= 2
    return f.emit(f"extractelement {VECTOR} {x}, i64 0", "double")


def _both_sides(
    f: Function, x: Held, k: Value, rows: Value, filled: Value, tau: Value, space: Value
) -> None:
    """Reflect the submatrix below and right of (k, k) from the left and from the right."""
    start, v = (k + 1) & -LANES, x.at(k, 0).start
    wide = start + ((filled - start) & -(BESIDE * LANES))
    dot = f.variable(VECTOR, 0.0)

    def product(j: Value, vector_count: int) -> None:
        sums = [f.variable(VECTOR, 0.0) for _ in range(vector_count)]
        with f.loop(k + 1, rows) as i:
            one = f.splat(f.load(f.offset(v, i, "double"), "double", ITEM), LANES)
            line = x.at(i, j).start
            for n, total in enumerate(sums):
                row = f.load(f.offset(line, n * WORDS), VECTOR, ITEM)
                total.set(f.fma(row, one, total.get()))
        for n, total in enumerate(sums):
            result = total.get() * f.splat(tau, LANES)
            at = j + n * LANES
            f.store(result, f.offset(space, at, "double"), ITEM)
            dot.set(f.fma(result, f.load(f.offset(v, at, "double"), VECTOR, ITEM), dot.get()))

    with f.loop(start, wide, BESIDE * LANES) as j:
        product(j, BESIDE)
    with f.loop(wide, filled, LANES) as j:
        product(j, 1)
    half = f.splat(lane_sum(f, dot.get()) * tau * -0.5, LANES)
    with f.loop(start, filled, LANES) as j:
        at = f.offset(space, j, "double")
        line = f.load(f.offset(v, j, "double"), VECTOR, ITEM)
        f.store(f.fma(half, line, f.load(at, VECTOR, ITEM)), at, ITEM)

    def subtract(j: Value, vector_count: int) -> None:
        pairs = [
            [f.load(f.offset(of, j + n * LANES, "double"), VECTOR, ITEM) for of in (v, space)]
            for n in range(vector_count)
        ]
        with f.loop(k + 1, rows) as i:
            one, other = (
                -f.splat(f.load(f.offset(of, i, "double"), "double", ITEM), LANES)
                for of in (v, space)
            )
            line = x.at(i, j).start
            for n, (reflection, result) in enumerate(pairs):
                at = f.offset(line, n * WORDS)
                row = f.fma(one, result, f.load(at, VECTOR, ITEM))
                f.store(f.fma(other, reflection, row), at, ITEM)

    with f.loop(start, wide, BESIDE * LANES) as j:
        subtract(j, BESIDE)
    with f.loop(wide, filled, LANES) as j:
        subtract(j, 1)


def emit_gather(module: Module) -> None:
    """Define `gather(rows, first, x, v)`: V of the reflections in rows of x from `first` on.

    There are `BLOCK_COLUMNS` of them; the rows of V begin with row `first` + 1.
    """
    f = Function(module, "gather", ["i64", "i64", *HELD, "ptr"], attributes=APART, internal=True)
    rows, first, x, v = *f.params[:2], Held(*f.params[2:5]), f.params[5]
    with f.loop(first + 1, rows) as i:
        at = f.offset(v, (i - first - 1) * WORDS)
        f.store(f.value(0.0, VECTOR), at, ITEM)
        with f.loop(0, f.least(i - first, LANES)) as s:
            one = f.load(x.at(first + s, i).start, "double", ITEM)
            f.store(one, f.offset(at, s, "double"), ITEM)
    f.leave()
