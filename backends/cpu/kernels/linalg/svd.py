"""Singular value decompositions, pseudoinverses and least squares by LAPACK: `gesdd` and
`gelsd`."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, Rule
from shardir.backends.cpu.kernels.linalg.lapack_calls import (
    BatchedWork,
    LapackRoutine,
    MatrixEmitter,
    emit_call_if_finite,
    lower_batch,
)
from shardir.backends.cpu.kernels.linalg.lapack_columns import load_columns, store_columns
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX, REAL_OF


def _item_bytes(dtype: str) -> int:
    """Return the bytes of an element during computation."""
    return 16 if dtype in COMPLEX else 8


def _gesdd_routine(dtype: str, letter: str) -> LapackRoutine:
    """Return the routine for `m` rows, `n` columns, and `k` rows of V^H."""
    more = "*rwork" if dtype in COMPLEX else ""
    name = "zgesdd" if dtype in COMPLEX else "dgesdd"
    arguments = f"'{letter} m n *a m *values *u m *vh k *work lwork {more} *iwork info"
    return LapackRoutine(name, arguments)


def _gesdd_pieces(dtype: str, rows: int, columns: int, left: int, right: int) -> dict[str, int]:
    """Return the bytes of memory that `gesdd` takes for these numbers of vectors."""
    item, least, most = _item_bytes(dtype), min(rows, columns), max(rows, columns)
    pieces = {"*a": rows * columns * item, "*values": least * 8, "*iwork": 64 * least,
              "*u": max(rows * left, 1) * item, "*vh": max(right * columns, 1) * item}  # fmt: skip
    if dtype in COMPLEX:
        pieces["*rwork"] = 8 * least * max(5 * least + 7, 2 * (most + least) + 1)
    return pieces


def svd_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower singular value decompositions with all vectors, as many as values, or none."""
    (x,), vectors = operands, bool(op.attrs["vectors"])
    rows, columns = x.shape[-2:]
    least = min(rows, columns)
    if x.size == 0:
        return None if vectors else []
    letter = ("A" if op.attrs["full"] else "S") if vectors else "N"
    left, right = {"A": (rows, columns), "S": (least, least), "N": (0, 0)}[letter]
    called = _gesdd_routine(x.dtype, letter)
    ranks = (2, 1, 2) if vectors else (1,)
    return lower_batch(
        BatchedWork(
            f"svd{letter}", x.dtype, [(x, 2), *zip(results, ranks, strict=True)], [called],
            {"m": rows, "n": columns, "k": max(right, 1), "left": left, "size": least},
            _gesdd_pieces(x.dtype, rows, columns, left, right),
            rows * columns * least * (1.5 if vectors else 0.6), partial(_emit_svd, called, vectors),
        ),
        context,
    )  # fmt: skip


def _emit_svd(called: LapackRoutine, vectors: bool, e: MatrixEmitter) -> None:
    m, n, k, left, size = (e.sizes[name] for name in ("m", "n", "k", "left", "size"))
    good = emit_call_if_finite(e, load_columns(e, 0, 0, m, n, "*a"), called)
    one, real = e.f.value(1, "i64"), REAL_OF.get(e.dtype, e.dtype)
    step = [e.sizes[f"step{i}"] for i in range(7 if vectors else 3)]
    if not vectors:
        store_columns(e, "*values", real, size, (size, one), 1, (step[2], one), good)
        return
    store_columns(e, "*u", e.dtype, m, (m, left), 1, (step[2], step[3]), good)
    store_columns(e, "*values", real, size, (size, one), 2, (step[4], one), good)
    store_columns(e, "*vh", e.dtype, k, (k, n), 3, (step[5], step[6]), good)


def pinv_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower pseudoinverses: V, divided by the singular values above the cutoff, times U^H."""
    (x, cutoff), (result,) = operands, results
    rows, columns = x.shape[-2:]
    least, item = min(rows, columns), _item_bytes(x.dtype)
    if x.size == 0:
        return None if result.size else []
    called = _gesdd_routine(x.dtype, "S")
    transpose = "C" if x.dtype in COMPLEX else "T"
    multiplied = LapackRoutine(
        "zgemm" if x.dtype in COMPLEX else "dgemm",
        f"'{transpose} '{transpose} n m k *one *vh k *u m *zero *a n",
    )
    return lower_batch(
        BatchedWork(
            "pinv", x.dtype, [(x, 2), (cutoff, 0), (result, 2)], [called, multiplied],
            {"m": rows, "n": columns, "k": least},
            {**_gesdd_pieces(x.dtype, rows, columns, least, least), "*one": item, "*zero": item},
            rows * columns * least * 1.7, partial(_emit_pinv, called, multiplied),
        ),
        context,
    )  # fmt: skip


def _emit_pinv(called: LapackRoutine, multiplied: LapackRoutine, e: MatrixEmitter) -> None:
    f, (m, n, k) = e.f, (e.sizes[name] for name in ("m", "n", "k"))
    good = emit_call_if_finite(e, load_columns(e, 0, 0, m, n, "*a"), called)
    with f.when(good):
        values, limit = e.piece_address("*values"), _load_real(e, 1)
        limit = limit * f.load(values, "double", 8)
        with f.loop(0, k) as i:
            value = f.load(f.offset(values, i, "double"), "double", 8)
            # A singular value of 0 above the cutoff occurs only for a zero matrix; it is divided by
            # 1.
            divisor = f.select(value.is_("oeq", 0.0), 1.0, value)
            factor = f.select(value.is_("ugt", limit), f.value(1.0, "double") / divisor, 0.0)
            _emit_scale_row(e, i, factor)
        _store_constant(e, "*one", 1.0)
        _store_constant(e, "*zero", 0.0)
        e.call(multiplied)
    store_columns(e, "*a", e.dtype, n, (n, m), 2, (e.sizes["step2"], e.sizes["step3"]), good)


def _load_real(e: MatrixEmitter, view: int) -> LLVMValue:
    """Load a real number as f64."""
    f, kind = e.f, REAL_OF.get(e.dtype, e.dtype)
    if kind == "f64":
        return f.load(e.addresses[view], "double", 8)
    return f.load(e.addresses[view], "float", 4).to("double", "fpext")


def _store_constant(e: MatrixEmitter, name: str, number: float) -> None:
    for part in range(e.item // 8):
        value = e.f.value(0.0 if part else number, "double")
        e.f.store(value, e.f.offset(e.piece_address(name), 8 * part), 8)


def _emit_scale_row(e: MatrixEmitter, i: LLVMValue, factor: LLVMValue) -> None:
    """Multiply row `i` of V^H by a factor."""
    f, k = e.f, e.sizes["k"]
    with f.loop(0, e.sizes["n"]) as j:
        for part in range(e.item // 8):
            at = f.offset(e.piece_address("*vh"), (j * k + i) * e.item + 8 * part)
            f.store(f.load(at, "double", 8) * factor, at, 8)


def least_squares_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower least squares; a column of `y` that is not finite makes only its solution NaN."""
    (a, y, cutoff), (result, values) = operands, results
    rows, columns = a.shape[-2:]
    rhs_count = y.shape[-1]
    if not a.size or not rhs_count:
        return None
    item, least, most = _item_bytes(a.dtype), min(rows, columns), max(rows, columns)
    more = "*rwork" if a.dtype in COMPLEX else ""
    called = LapackRoutine(
        "zgelsd" if a.dtype in COMPLEX else "dgelsd",
        f"m n r *a m *y h *values *limit *rank *work lwork {more} *iwork info",
    )
    return lower_batch(
        BatchedWork(
            "least_squares", a.dtype, [(a, 2), (y, 2), (cutoff, 0), (result, 2), (values, 1)],
            [called], {"m": rows, "n": columns, "r": rhs_count, "h": most, "size": least},
            {"*a": rows * columns * item, "*y": most * rhs_count * item, "*values": least * 8,
             "*limit": 8, "*rank": 8, "*lost": 8 * rhs_count},
            rows * columns * (least + rhs_count) * 1.0, partial(_emit_least_squares, called),
        ),
        context,
    )  # fmt: skip


def _emit_least_squares(called: LapackRoutine, e: MatrixEmitter) -> None:
    f, (m, n, r, h, size) = e.f, (e.sizes[name] for name in ("m", "n", "r", "h", "size"))
    finite = load_columns(e, 0, 0, m, n, "*a")
    load_columns(e, 1, 2, m, r, "*y", h)
    f.store(_load_real(e, 2), e.piece_address("*limit"), 8)
    with f.loop(0, r) as j:
        _emit_clear_nonfinite_column(e, j)
    good = emit_call_if_finite(e, finite, called)
    with f.loop(0, r) as j:
        nan_if_nonfinite = f.load(f.offset(e.piece_address("*lost"), j, "double"), "double", 8)
        with f.when(nan_if_nonfinite.is_("uno", 0.0)):
            _emit_fill_column(e, j, n, np.nan)
    one, real = f.value(1, "i64"), REAL_OF.get(e.dtype, e.dtype)
    step = [e.sizes[f"step{i}"] for i in range(7)]
    store_columns(e, "*y", e.dtype, h, (n, r), 3, (step[4], step[5]), good)
    store_columns(e, "*values", real, size, (size, one), 4, (step[6], one), good)


def _emit_clear_nonfinite_column(e: MatrixEmitter, j: LLVMValue) -> None:
    """Replace column `j` of `y` by 0 if it is not finite; `*lost` is then NaN, and 0 otherwise."""
    f, rows = e.f, e.sizes["m"]
    start = f.offset(e.piece_address("*y"), j * e.sizes["h"] * e.item)
    total = f.variable("double", 0.0)
    with f.loop(0, rows * (e.item // 8)) as i:
        part = f.load(f.offset(start, i, "double"), "double", 8)
        total.set(total.get() + (part - part))
    nan_if_nonfinite = total.get()
    f.store(nan_if_nonfinite, f.offset(e.piece_address("*lost"), j, "double"), 8)
    with f.when(nan_if_nonfinite.is_("uno", 0.0)):
        _emit_fill_column(e, j, rows, 0.0)


def _emit_fill_column(e: MatrixEmitter, j: LLVMValue, rows: LLVMValue, number: float) -> None:
    f = e.f
    start = f.offset(e.piece_address("*y"), j * e.sizes["h"] * e.item)
    with f.loop(0, rows * (e.item // 8)) as i:
        f.store(f.value(number, "double"), f.offset(start, i, "double"), 8)


RULES: dict[str, Rule] = {"svd": svd_rule, "pinv": pinv_rule, "least_squares": least_squares_rule}
