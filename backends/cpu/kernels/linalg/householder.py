"""Blocks of Householder reflections: computed from columns, and applied to other columns.

The reflections of a block are applied together, as I - V T V^T (R. Schreiber and C. Van Loan, "A
storage-efficient WY representation for products of Householder transformations", 1989). Signs
follow LAPACK.
"""

from collections.abc import Sequence

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.kernels.linalg.scratch_matrix import (
    BLOCK_COLUMNS,
    ITEM_BYTES,
    MATRIX_PARAMS,
    VECTOR_TYPE,
    ScratchMatrix,
    compute_arithmetic,
    load_vector,
    store_vector,
)

REAL_ARITHMETIC = compute_arithmetic("f64")
TRIANGLE_BYTES = BLOCK_COLUMNS * BLOCK_COLUMNS * ITEM_BYTES
"""Bytes of the T of a block."""
SAFE_SQUARES_RANGE = (2.0**-200, 2.0**200)
"""The range of sums of squares in which no scaling of the column is needed."""
PARALLEL_SUMS = 4
"""Independent sums, which hide the latency of additions."""


def lane_indices(f: LLVMFunction) -> LLVMValue:
    """Return the index of each lane."""
    text = f"<{', '.join(f'i64 {lane}' for lane in range(BLOCK_COLUMNS))}>"
    return LLVMValue(text, vector_type("i64", BLOCK_COLUMNS), f)


def define_panel(module: LLVMModule) -> None:
    """Define `panel(rows, width, x, taus)`: reflections of the first `width` columns of a block.

    Below the diagonal each column becomes its reflection vector, whose first element is an implicit
    1; all columns of the block right of it are reflected.
    """
    f = add_outlined_function(module, "panel", ["i64", "i64", *MATRIX_PARAMS, "ptr"])
    rows, width, x, taus = *f.params[:2], ScratchMatrix(*f.params[2:5]), f.params[5]
    f.store(f.value(0.0, VECTOR_TYPE), taus, ITEM_BYTES)
    with f.loop(0, width) as s:
        _emit_column_reflection(f, rows, x, s, taus)
    f.ret()


def _emit_column_reflection(
    f: LLVMFunction, rows: LLVMValue, x: ScratchMatrix, s: LLVMValue, taus: LLVMValue
) -> None:
    """Emit the reflection of column `s` of a block."""
    step = f.splat(s, BLOCK_COLUMNS)
    here, after = (lane_indices(f).is_(how, step) for how in ("eq", "sgt"))
    line, diagonal = (
        load_vector(f, x.at(s, 0), REAL_ARITHMETIC)[0],
        load_vector(f, x.at(s, s), REAL_ARITHMETIC, "double")[0],
    )
    sums = [f.variable(VECTOR_TYPE) for _ in range(PARALLEL_SUMS)]
    factor = f.variable("double", 1.0)
    _emit_column_products(f, rows, x, s, factor, sums)
    below = f.variable("double", _self_product(f, sums, s))
    square = f.fma(diagonal, diagonal, below.get())
    needs_no_scaling = square.is_("ogt", SAFE_SQUARES_RANGE[0]) & square.is_(
        "olt", SAFE_SQUARES_RANGE[1]
    )
    with f.when(~needs_no_scaling, seldom=True):
        factor.set(_emit_scale_factor(f, rows, x, s))
        _emit_column_products(f, rows, x, s, factor, sums)
        below.set(0.0)
        with f.loop(s + 1, rows) as i:
            one = load_vector(f, x.at(i, s), REAL_ARITHMETIC, "double")[0] * factor.get()
            below.set(f.fma(one, one, below.get()))
    first, rest = diagonal * factor.get(), below.get()
    is_trivial = rest.is_("oeq", 0.0)
    norm = f.intrinsic("sqrt", f.fma(first, first, rest))
    beta = -f.intrinsic("copysign", norm, first)
    tau = f.select(is_trivial, 0.0, (beta - first) / beta)
    scale = f.select(is_trivial, 0.0, 1.0 / (first - beta))
    f.store(tau, f.offset(taus, s, "double"), ITEM_BYTES)
    weights = f.fma(sums[0].get(), f.splat(scale, BLOCK_COLUMNS), line) * f.splat(
        tau, BLOCK_COLUMNS
    )
    weights = f.select(after, weights, 0.0)
    corner = f.splat(f.select(is_trivial, diagonal, beta / factor.get()), BLOCK_COLUMNS)
    store_vector(f, [f.select(here, corner, line - weights)], x.at(s, 0), REAL_ARITHMETIC)
    with f.loop(s + 1, rows) as i:
        (row,), (one,) = (
            load_vector(f, x.at(i, 0), REAL_ARITHMETIC),
            load_vector(f, x.at(i, s), REAL_ARITHMETIC, "double"),
        )
        part = f.splat(one * factor.get() * scale, BLOCK_COLUMNS)
        store_vector(
            f, [f.select(here, part, f.fma(-part, weights, row))], x.at(i, 0), REAL_ARITHMETIC
        )


def _emit_column_products(
    f: LLVMFunction,
    rows: LLVMValue,
    x: ScratchMatrix,
    s: LLVMValue,
    factor: StackVariable,
    sums: Sequence[StackVariable],
) -> None:
    """Compute the products of column `s` below the diagonal, times a factor, with all columns.

    The result is in the first of `sums`.
    """
    for each in sums:
        each.set(0.0)

    def add(i: LLVMValue, total: StackVariable) -> None:
        one = load_vector(f, x.at(i, s), REAL_ARITHMETIC, "double")[0] * factor.get()
        (other,) = load_vector(f, x.at(i, 0), REAL_ARITHMETIC)
        total.set(f.fma(other, f.splat(one, BLOCK_COLUMNS), total.get()))

    whole = s + 1 + ((rows - s - 1) & -PARALLEL_SUMS)
    with f.loop(s + 1, whole, PARALLEL_SUMS) as i:
        for chain, total in enumerate(sums):
            add(i + chain, total)
    with f.loop(whole, rows) as i:
        add(i, sums[0])
    one, two, three, four = (each.get() for each in sums)
    sums[0].set((one + two) + (three + four))


def _self_product(f: LLVMFunction, sums: Sequence[StackVariable], s: LLVMValue) -> LLVMValue:
    """Return the product of column `s` with itself."""
    return f.emit(f"extractelement {VECTOR_TYPE} {sums[0].get()}, i64 {s}", "double")


def _emit_scale_factor(
    f: LLVMFunction, rows: LLVMValue, x: ScratchMatrix, s: LLVMValue
) -> LLVMValue:
    """Return a power of 2 that scales the largest element of a column, from the diagonal on, to
    about 1."""
    largest = f.variable("double", 0.0)
    with f.loop(s, rows) as i:
        size = f.intrinsic("fabs", load_vector(f, x.at(i, s), REAL_ARITHMETIC, "double")[0])
        largest.set(f.select(size.is_("ogt", largest.get()), size, largest.get()))
    # Mirror the exponent bits: 2^(2 * 1023 - e) for 2^e, clamped to normal numbers.
    bits = largest.get().to("i64", "bitcast") >> 52
    mirrored = f.value(2046, "i64") - bits
    mirrored = f.select(mirrored.is_("sgt", 2045), f.value(2045, "i64"), mirrored)
    mirrored = f.select(mirrored.is_("slt", 1), f.value(1, "i64"), mirrored)
    return (mirrored << 52).to("double", "bitcast")


def define_reflectors(module: LLVMModule) -> None:
    """Define `reflectors(rows, width, x, v)` and `triangle(rows, v, t)`: V, and its T,
    transposed."""
    f = add_outlined_function(module, "reflectors", ["i64", "i64", *MATRIX_PARAMS, "ptr"])
    rows, width, x, v = *f.params[:2], ScratchMatrix(*f.params[2:5]), f.params[5]
    inside = lane_indices(f).is_("slt", f.splat(width, BLOCK_COLUMNS))
    with f.loop(0, rows) as i:
        at = f.splat(i, BLOCK_COLUMNS)
        row = load_vector(f, x.at(i, 0), REAL_ARITHMETIC)[0]
        row = f.select(lane_indices(f).is_("eq", at), 1.0, row)
        kept = inside & lane_indices(f).is_("sle", at)
        f.store(f.select(kept, row, 0.0), f.offset(v, i * (BLOCK_COLUMNS * ITEM_BYTES)), ITEM_BYTES)
    f.ret()

    f = add_outlined_function(module, "triangle", ["i64", "ptr", "ptr"])
    rows, v, t = f.params
    sums = [f.variable(VECTOR_TYPE, 0.0) for _ in range(BLOCK_COLUMNS)]
    with f.loop(0, rows) as i:
        start = f.offset(v, i * (BLOCK_COLUMNS * ITEM_BYTES))
        row = f.load(start, VECTOR_TYPE, ITEM_BYTES)
        for k, total in enumerate(sums):
            one = f.splat(f.load(f.offset(start, k, "double"), "double", ITEM_BYTES), BLOCK_COLUMNS)
            total.set(f.fma(row, one, total.get()))
    result: list[LLVMValue] = []
    taus = f.load(t, VECTOR_TYPE, ITEM_BYTES)
    for s in range(BLOCK_COLUMNS):
        found = f.value(0.0, VECTOR_TYPE)
        for b, above in enumerate(result):
            dot = f.emit(f"extractelement {VECTOR_TYPE} {sums[b].get()}, i64 {s}", "double")
            found = f.fma(above, f.splat(dot, BLOCK_COLUMNS), found)
        tau = f.splat(
            f.emit(f"extractelement {VECTOR_TYPE} {taus}, i64 {s}", "double"), BLOCK_COLUMNS
        )
        here = lane_indices(f).is_("eq", f.value(s, vector_type("i64", BLOCK_COLUMNS)))
        result.append(f.select(here, tau, -(found * tau)))
    for s, line in enumerate(result):
        f.store(line, f.offset(t, s * BLOCK_COLUMNS * ITEM_BYTES), ITEM_BYTES)
    f.ret()


def define_apply(module: LLVMModule, turned: bool) -> None:
    """Define `apply(rows, columns, v, t, x)`: x becomes (I - V T V^T) x; `apply_turned` uses T^T.

    `t` holds T transposed, row by row.
    """
    name = "apply_turned" if turned else "apply"
    params = ["i64", "i64", "ptr", "ptr", *MATRIX_PARAMS]
    f = add_outlined_function(module, name, params)
    rows, columns, v, t = f.params[:4]
    x = ScratchMatrix(*f.params[4:])

    def apply_to_columns(j: LLVMValue, vector_count: int) -> None:
        sums = [
            [f.variable(VECTOR_TYPE, 0.0) for _ in range(vector_count)]
            for _ in range(BLOCK_COLUMNS)
        ]
        with f.loop(0, rows) as i:
            lines = [
                load_vector(f, x.at(i, j + k * BLOCK_COLUMNS), REAL_ARITHMETIC)[0]
                for k in range(vector_count)
            ]
            for s, totals in enumerate(sums):
                at = f.offset(v, i * (BLOCK_COLUMNS * ITEM_BYTES) + s * ITEM_BYTES)
                one = f.splat(f.load(at, "double", ITEM_BYTES), BLOCK_COLUMNS)
                for line, total in zip(lines, totals, strict=True):
                    total.set(f.fma(line, one, total.get()))
        shares = []
        for s in range(BLOCK_COLUMNS):
            found = [f.value(0.0, VECTOR_TYPE)] * vector_count
            for a in range(s + 1) if turned else range(s, BLOCK_COLUMNS):
                at = f.offset(
                    t, ((s * BLOCK_COLUMNS + a) if turned else (a * BLOCK_COLUMNS + s)) * ITEM_BYTES
                )
                one = f.splat(f.load(at, "double", ITEM_BYTES), BLOCK_COLUMNS)
                found = [
                    f.fma(total.get(), one, old) for total, old in zip(sums[a], found, strict=True)
                ]
            shares.append(found)
        with f.loop(0, rows) as i:
            places = [x.at(i, j + k * BLOCK_COLUMNS) for k in range(vector_count)]
            lines = [load_vector(f, place, REAL_ARITHMETIC)[0] for place in places]
            for s, parts in enumerate(shares):
                at = f.offset(v, i * (BLOCK_COLUMNS * ITEM_BYTES) + s * ITEM_BYTES)
                one = -f.splat(f.load(at, "double", ITEM_BYTES), BLOCK_COLUMNS)
                lines = [f.fma(p, one, line) for p, line in zip(parts, lines, strict=True)]
            for line, place in zip(lines, places, strict=True):
                store_vector(f, [line], place, REAL_ARITHMETIC)

    filled = (columns + (BLOCK_COLUMNS - 1)) & -BLOCK_COLUMNS
    pairs = filled & -(2 * BLOCK_COLUMNS)
    with f.loop(0, pairs, 2 * BLOCK_COLUMNS) as j:
        apply_to_columns(j, 2)
    with f.loop(pairs, filled, BLOCK_COLUMNS) as j:
        apply_to_columns(j, 1)
    f.ret()
