"""Reduction of symmetric f32 matrices to tridiagonal form by two-sided reflections in f64.

The algorithm follows G. H. Golub and C. F. Van Loan, "Matrix Computations" (1996), 8.3.1, with
LAPACK's signs. Both triangles are stored, so that a reflection is a row and all steps are on full
vectors. Squares of f32 do not overflow in f64, and squares of significant differences of f32 values
do not underflow.
"""

from shardir.backends.cpu.codegen.llvm_text import (
    OUTLINED_FUNCTION_ATTRIBUTES,
    LLVMFunction,
    LLVMModule,
    LLVMValue,
)
from shardir.backends.cpu.kernels.linalg.householder import lane_indices
from shardir.backends.cpu.kernels.linalg.scratch_matrix import (
    BLOCK_COLUMNS,
    ITEM_BYTES,
    MATRIX_PARAMS,
    VECTOR_TYPE,
    ScratchMatrix,
)

VECTORS_PER_STEP = 4
"""Vectors of columns that are processed in one step."""
VECTOR_BYTES = BLOCK_COLUMNS * ITEM_BYTES
MIN_SQUARES_SUM = 2.0**-900
"""A smaller sum of squares is rounding noise of f32 values and counts as 0: such squares are
themselves inaccurate, and would make no orthogonal reflection."""


def define_mirror(module: LLVMModule) -> None:
    """Define `mirror(rows, x)`: copy the lower triangle to the upper one; return 0 if it is
    finite."""
    f = LLVMFunction(
        module,
        "mirror",
        ["i64", *MATRIX_PARAMS],
        "double",
        OUTLINED_FUNCTION_ATTRIBUTES,
        internal=True,
    )
    rows, x = f.params[0], ScratchMatrix(*f.params[1:])
    nan_if_nonfinite = f.variable("double", 0.0)
    with f.loop(0, rows) as i, f.loop(0, i + 1) as j:
        one = f.load(x.at(i, j).start, "double", ITEM_BYTES)
        nan_if_nonfinite.set(nan_if_nonfinite.get() + (one - one))
        f.store(one, x.at(j, i).start, ITEM_BYTES)
    f.ret(nan_if_nonfinite.get())


def define_tridiagonal(module: LLVMModule) -> None:
    """Define `tridiagonal(rows, x, diagonal, beside, taus, space)`: rows of x become reflections.

    The reflection of row k begins at column k + 1 with a 1. `space` has the length of a row. `taus`
    is padded with zeros to full vectors.
    """
    params = ["i64", *MATRIX_PARAMS, "ptr", "ptr", "ptr", "ptr"]
    f = LLVMFunction(
        module, "tridiagonal", params, attributes=OUTLINED_FUNCTION_ATTRIBUTES, internal=True
    )
    rows, x, (diagonal, off_diagonal, taus, space) = (
        f.params[0],
        ScratchMatrix(*f.params[1:4]),
        f.params[4:],
    )
    filled = (rows + (BLOCK_COLUMNS - 1)) & -BLOCK_COLUMNS
    with f.loop(0, filled, BLOCK_COLUMNS) as j:
        f.store(f.value(0.0, VECTOR_TYPE), f.offset(taus, j, "double"), ITEM_BYTES)
    with f.loop(0, rows) as k:
        f.store(
            f.load(x.at(k, k).start, "double", ITEM_BYTES),
            f.offset(diagonal, k, "double"),
            ITEM_BYTES,
        )
        with f.when((k + 1).is_("slt", rows)):
            tau = emit_row_reflection(f, x, k, filled, off_diagonal)
            f.store(tau, f.offset(taus, k, "double"), ITEM_BYTES)
            with f.when(tau.is_("une", 0.0)):
                _emit_two_sided_reflection(f, x, k, rows, filled, tau, space)
    f.ret()


def emit_row_reflection(
    f: LLVMFunction, x: ScratchMatrix, k: LLVMValue, filled: LLVMValue, off_diagonal: LLVMValue
) -> LLVMValue:
    """Turn row `k` beyond its diagonal into a reflection; return its factor."""
    start, next_ = (k + 1) & -BLOCK_COLUMNS, x.at(k, k + 1).start
    first = f.load(next_, "double", ITEM_BYTES)
    f.store(f.value(0.0, "double"), next_, ITEM_BYTES)
    edge = f.load(x.at(k, start).start, VECTOR_TYPE, ITEM_BYTES)
    inside = lane_indices(f).is_("sgt", f.splat(k - start, BLOCK_COLUMNS))
    f.store(f.select(inside, edge, 0.0), x.at(k, start).start, ITEM_BYTES)
    total = f.variable(VECTOR_TYPE, 0.0)
    with f.loop(start, filled, BLOCK_COLUMNS) as j:
        row = f.load(x.at(k, j).start, VECTOR_TYPE, ITEM_BYTES)
        total.set(f.fma(row, row, total.get()))
    rest = sum_lanes(f, total.get())
    is_trivial = rest.is_("olt", MIN_SQUARES_SUM)
    norm = f.intrinsic("sqrt", f.fma(first, first, rest))
    beta = -f.intrinsic("copysign", norm, first)
    f.store(f.select(is_trivial, first, beta), f.offset(off_diagonal, k, "double"), ITEM_BYTES)
    scale = f.splat(f.select(is_trivial, 0.0, 1.0 / (first - beta)), BLOCK_COLUMNS)
    with f.loop(start, filled, BLOCK_COLUMNS) as j:
        at = x.at(k, j).start
        f.store(f.load(at, VECTOR_TYPE, ITEM_BYTES) * scale, at, ITEM_BYTES)
    f.store(f.value(1.0, "double"), next_, ITEM_BYTES)
    return f.select(is_trivial, 0.0, (beta - first) / beta)


def sum_lanes(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """Return the sum of all lanes."""
    half = BLOCK_COLUMNS // 2
    while half:
        x = x + f.shuffle(x, x, [(lane + half) % BLOCK_COLUMNS for lane in range(BLOCK_COLUMNS)])
        half //= 2
    return f.emit(f"extractelement {VECTOR_TYPE} {x}, i64 0", "double")


def _emit_two_sided_reflection(
    f: LLVMFunction,
    x: ScratchMatrix,
    k: LLVMValue,
    rows: LLVMValue,
    filled: LLVMValue,
    tau: LLVMValue,
    space: LLVMValue,
) -> None:
    """Reflect the submatrix below and right of (k, k) from the left and from the right."""
    start, v = (k + 1) & -BLOCK_COLUMNS, x.at(k, 0).start
    wide = start + ((filled - start) & -(VECTORS_PER_STEP * BLOCK_COLUMNS))
    dot = f.variable(VECTOR_TYPE, 0.0)

    def product(j: LLVMValue, vector_count: int) -> None:
        sums = [f.variable(VECTOR_TYPE, 0.0) for _ in range(vector_count)]
        with f.loop(k + 1, rows) as i:
            one = f.splat(f.load(f.offset(v, i, "double"), "double", ITEM_BYTES), BLOCK_COLUMNS)
            line = x.at(i, j).start
            for n, total in enumerate(sums):
                row = f.load(f.offset(line, n * VECTOR_BYTES), VECTOR_TYPE, ITEM_BYTES)
                total.set(f.fma(row, one, total.get()))
        for n, total in enumerate(sums):
            result = total.get() * f.splat(tau, BLOCK_COLUMNS)
            at = j + n * BLOCK_COLUMNS
            f.store(result, f.offset(space, at, "double"), ITEM_BYTES)
            dot.set(
                f.fma(result, f.load(f.offset(v, at, "double"), VECTOR_TYPE, ITEM_BYTES), dot.get())
            )

    with f.loop(start, wide, VECTORS_PER_STEP * BLOCK_COLUMNS) as j:
        product(j, VECTORS_PER_STEP)
    with f.loop(wide, filled, BLOCK_COLUMNS) as j:
        product(j, 1)
    half = f.splat(sum_lanes(f, dot.get()) * tau * -0.5, BLOCK_COLUMNS)
    with f.loop(start, filled, BLOCK_COLUMNS) as j:
        at = f.offset(space, j, "double")
        line = f.load(f.offset(v, j, "double"), VECTOR_TYPE, ITEM_BYTES)
        f.store(f.fma(half, line, f.load(at, VECTOR_TYPE, ITEM_BYTES)), at, ITEM_BYTES)

    def subtract(j: LLVMValue, vector_count: int) -> None:
        pairs = [
            [
                f.load(f.offset(of, j + n * BLOCK_COLUMNS, "double"), VECTOR_TYPE, ITEM_BYTES)
                for of in (v, space)
            ]
            for n in range(vector_count)
        ]
        with f.loop(k + 1, rows) as i:
            one, other = (
                -f.splat(f.load(f.offset(of, i, "double"), "double", ITEM_BYTES), BLOCK_COLUMNS)
                for of in (v, space)
            )
            line = x.at(i, j).start
            for n, (reflection, result) in enumerate(pairs):
                at = f.offset(line, n * VECTOR_BYTES)
                row = f.fma(one, result, f.load(at, VECTOR_TYPE, ITEM_BYTES))
                f.store(f.fma(other, reflection, row), at, ITEM_BYTES)

    with f.loop(start, wide, VECTORS_PER_STEP * BLOCK_COLUMNS) as j:
        subtract(j, VECTORS_PER_STEP)
    with f.loop(wide, filled, BLOCK_COLUMNS) as j:
        subtract(j, 1)


def define_gather_reflectors(module: LLVMModule) -> None:
    """Define `gather(rows, first, x, v)`: V of the reflections in rows of x from `first` on.

    There are `BLOCK_COLUMNS` of them; the rows of V begin with row `first` + 1.
    """
    f = LLVMFunction(
        module,
        "gather",
        ["i64", "i64", *MATRIX_PARAMS, "ptr"],
        attributes=OUTLINED_FUNCTION_ATTRIBUTES,
        internal=True,
    )
    rows, first, x, v = *f.params[:2], ScratchMatrix(*f.params[2:5]), f.params[5]
    with f.loop(first + 1, rows) as i:
        at = f.offset(v, (i - first - 1) * VECTOR_BYTES)
        f.store(f.value(0.0, VECTOR_TYPE), at, ITEM_BYTES)
        with f.loop(0, f.umin(i - first, BLOCK_COLUMNS)) as s:
            one = f.load(x.at(first + s, i).start, "double", ITEM_BYTES)
            f.store(one, f.offset(at, s, "double"), ITEM_BYTES)
    f.ret()
