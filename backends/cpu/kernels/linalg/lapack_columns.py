"""Copies between matrices of any strides and the f64 or c128 columns of LAPACK."""

from collections.abc import Callable

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.kernels.linalg.lapack_calls import MatrixEmitter
from shardir.ir.types import COMPLEX, NUMPY_DTYPES

ROWS_PER_COPY = 8
"""Rows that are copied in one step, so that columns are read or written in full cache lines."""


def load_columns(
    e: MatrixEmitter, view: int, steps: int, rows: LLVMValue, columns: LLVMValue, name: str,
    leading_dimension: LLVMValue | None = None,
) -> LLVMValue:  # fmt: skip
    """Load the matrix of a view into a piece of memory; return whether all of it is finite.

    `steps` is the index of the view's row step, which its column step follows. Columns are
    `leading_dimension` rows apart in memory, by default `rows`.
    """
    define_load_columns(e.f.module, e.dtype)
    between = [e.sizes[f"step{steps}"], e.sizes[f"step{steps + 1}"]]
    arguments = [
        e.addresses[view],
        *between,
        rows,
        columns,
        e.piece_address(name),
        leading_dimension or rows,
    ]
    return e.f.call(f"load_columns_{e.dtype}", arguments, "double").is_("oeq", 0.0)


def store_columns(
    e: MatrixEmitter,
    name: str,
    dtype: str,
    leading_dimension: LLVMValue,
    size: tuple[LLVMValue, LLVMValue],
    view: int,
    steps: tuple[LLVMValue, LLVMValue],
    good: LLVMValue,
) -> None:
    """Store a piece of memory, whose columns are `leading_dimension` rows apart, to a view; NaN
    unless `good`.

    `size` are rows and columns, `steps` the bytes between them.
    """
    define_store_columns(e.f.module, dtype)
    arguments = [e.piece_address(name), leading_dimension, *size, e.addresses[view], *steps, good]
    e.f.call(f"store_columns_{dtype}", arguments)


def define_load_columns(module: LLVMModule, dtype: str) -> None:
    """Define `load_columns(source, row step, column step, rows, columns, target, target rows)`.

    It returns 0, or NaN if an element is not finite.
    """
    if any(each.name == f"load_columns_{dtype}" for each in module.functions):
        return
    params = ["ptr", "i64", "i64", "i64", "i64", "ptr", "i64"]
    f = add_outlined_function(module, f"load_columns_{dtype}", params, "double")
    source, down, along, rows, columns, target, column_rows = f.params
    planes, item = (2 if dtype in COMPLEX else 1), NUMPY_DTYPES[dtype].itemsize
    kind = vector_type(MEMORY_TYPES[dtype], planes)
    wide, wider = vector_type("double", planes), vector_type("double", planes * ROWS_PER_COPY)
    nan_if_nonfinite, nan_if_nonfinite_row = f.variable(wider, 0.0), f.variable(wide, 0.0)

    def widen(x: LLVMValue, type: str) -> LLVMValue:
        return x if x.type == type else x.to(type, "fpext")

    def some(i: LLVMValue, count: int) -> None:
        start = f.offset(source, i * down)
        with f.loop(0, columns) as j:
            at = f.offset(start, j * along)
            loaded = [f.load(f.offset(at, down * k), kind, item // planes) for k in range(count)]
            there = f.offset(target, (j * column_rows + i) * (8 * planes))
            if count == 1:
                x = widen(loaded[0], wide)
                nan_if_nonfinite_row.set(nan_if_nonfinite_row.get() + (x - x))
            else:
                x = widen(_concatenate(f, loaded), wider)
                nan_if_nonfinite.set(nan_if_nonfinite.get() + (x - x))
            f.store(x, there, 8)

    _emit_row_loop(f, rows, some)
    total = f.value(0.0, "double")
    for found, count in (
        (nan_if_nonfinite.get(), planes * ROWS_PER_COPY),
        (nan_if_nonfinite_row.get(), planes),
    ):
        for lane in range(count):
            total = total + (_extract_lane(f, found, lane) if count > 1 else found)
    f.ret(total)


def define_store_columns(module: LLVMModule, dtype: str) -> None:
    """Define `store_columns(source, source rows, rows, columns, target, row step, column step,
    good)`."""
    if any(each.name == f"store_columns_{dtype}" for each in module.functions):
        return
    params = ["ptr", "i64", "i64", "i64", "ptr", "i64", "i64", "i1"]
    f = add_outlined_function(module, f"store_columns_{dtype}", params)
    source, column_rows, rows, columns, target, down, along, good = f.params
    planes, item = (2 if dtype in COMPLEX else 1), NUMPY_DTYPES[dtype].itemsize

    def some(i: LLVMValue, count: int) -> None:
        start = f.offset(target, i * down)
        with f.loop(0, columns) as j:
            from_ = f.offset(source, (j * column_rows + i) * (8 * planes))
            x = f.load(from_, vector_type("double", planes * count), 8)
            x = f.select(good, x, f.value(float("nan"), x.type))
            if item == 4 * planes:
                x = x.to(vector_type("float", planes * count), "fptrunc")
            at = f.offset(start, j * along)
            for k in range(count):
                if count == 1:
                    part = x
                elif planes == 1:
                    part = _extract_lane(f, x, k)
                else:
                    part = f.shuffle(x, x, (2 * k, 2 * k + 1))
                f.store(part, f.offset(at, down * k), item // planes)

    _emit_row_loop(f, rows, some)
    f.ret()


def _emit_row_loop(
    f: LLVMFunction, rows: LLVMValue, some: Callable[[LLVMValue, int], None]
) -> None:
    whole = rows & -ROWS_PER_COPY
    with f.loop(0, whole, ROWS_PER_COPY) as i:
        some(i, ROWS_PER_COPY)
    with f.loop(whole, rows) as i:
        some(i, 1)


def _concatenate(f: LLVMFunction, parts: list[LLVMValue]) -> LLVMValue:
    """Concatenate scalars, or pairs, to one vector."""
    type = parts[0].type
    if type[0] == "<":
        while len(parts) > 1:
            count = 2 * int(parts[0].type[1:].split(" ")[0])
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [f.shuffle(a, b, range(count)) for a, b in pairs]
        return parts[0]
    whole = vector_type(type, len(parts))
    result = f.value(0, whole)
    for lane, part in enumerate(parts):
        result = f.emit(f"insertelement {whole} {result}, {type} {part}, i64 {lane}", whole)
    return result


def _extract_lane(f: LLVMFunction, x: LLVMValue, lane: int) -> LLVMValue:
    return f.emit(f"extractelement {x.type} {x}, i64 {lane}", x.type.split(" x ")[1][:-1])
