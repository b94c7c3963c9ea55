"""Matrices in scratch memory: rows of f64, which are accessed as vectors of `BLOCK_COLUMNS`
columns.

Rows are padded with zeros to full vectors. Complex matrices have two planes, for real and imaginary
parts. Algorithms work on blocks of `BLOCK_COLUMNS` columns or rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    Operand,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.kernel_api import BufferView
from shardir.backends.cpu.kernels.gemm.element_arithmetic import (
    Arithmetic,
    arithmetic_of,
    interleave_planes,
    load_widened,
    split_planes,
    widen,
)
from shardir.backends.cpu.kernels.gemm.microkernel import lane_mask, masked_load, masked_store
from shardir.ir.types import COMPLEX, NUMPY_DTYPES

BLOCK_COLUMNS = 8
"""Columns of a block: one or several registers hold a row of it."""
ITEM_BYTES = 8
"""Bytes of an element; all are f64."""
VECTOR_TYPE = vector_type("double", BLOCK_COLUMNS)
ROW_PADDING_BYTES = 64
"""Padding between rows, so that the columns of large matrices do not conflict in the caches."""

PlaneValues = list[LLVMValue]


def compute_arithmetic(dtype: str) -> Arithmetic:
    """Return the arithmetic that a dtype is computed in."""
    return arithmetic_of("c128" if dtype in COMPLEX else "f64")


def pad_to_vectors(extent: int) -> int:
    """Round an extent up to full vectors."""
    return -(-extent // BLOCK_COLUMNS) * BLOCK_COLUMNS


def row_bytes(columns: int) -> int:
    """Return the bytes between rows."""
    return pad_to_vectors(columns) * ITEM_BYTES + ROW_PADDING_BYTES


def scratch_bytes(rows: int, columns: int, dtype: str) -> int:
    """Return the bytes of a matrix in scratch memory."""
    return rows * row_bytes(columns) * compute_arithmetic(dtype).planes


class ScratchMatrix(NamedTuple):
    """A matrix, or a part of one, in scratch memory: bytes between rows, and between planes."""

    start: LLVMValue
    row: LLVMValue
    plane: LLVMValue

    def at(self, row: Operand, column: Operand) -> "ScratchMatrix":
        """Return the submatrix that begins at an element."""
        f = self.start.function
        down = f.value(row, "i64") * self.row
        return self._replace(start=f.offset(f.offset(self.start, down), column, "double"))

    def planes(self, numbers: Arithmetic) -> list[LLVMValue]:
        """Return the addresses of the first element's parts."""
        f = self.start.function
        return [self.start, f.offset(self.start, self.plane)][: numbers.planes]


def load_vector(
    f: LLVMFunction, matrix: ScratchMatrix, numbers: Arithmetic, type: str = VECTOR_TYPE
) -> PlaneValues:
    """Load a vector of columns, or one element."""
    return [f.load(address, type, ITEM_BYTES) for address in matrix.planes(numbers)]


def store_vector(
    f: LLVMFunction, values: Sequence[LLVMValue], matrix: ScratchMatrix, numbers: Arithmetic
) -> None:
    """Store a vector of columns, or one element."""
    for value, address in zip(values, matrix.planes(numbers), strict=True):
        f.store(value, address, ITEM_BYTES)


def splat_planes(f: LLVMFunction, values: Sequence[LLVMValue]) -> PlaneValues:
    """Return one element in all lanes."""
    return [f.splat(value, BLOCK_COLUMNS) for value in values]


def multiply_subtract(
    f: LLVMFunction, numbers: Arithmetic, a: PlaneValues, b: PlaneValues, c: PlaneValues
) -> PlaneValues:
    """Return `c - a * b`."""

    def step(x: LLVMValue, y: LLVMValue, z: LLVMValue, minus: bool) -> LLVMValue:
        return numbers.add_product(f, x, y, z, minus)

    if numbers.planes == 1:
        return [step(a[0], b[0], c[0], True)]
    real = step(a[1], b[1], step(a[0], b[0], c[0], True), False)
    return [real, step(a[1], b[0], step(a[0], b[1], c[1], True), True)]


def complex_multiply(a: PlaneValues, b: PlaneValues) -> PlaneValues:
    """Return `a * b` of complex numbers."""
    return [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]


def complex_reciprocal(f: LLVMFunction, x: PlaneValues) -> PlaneValues:
    """Return `1 / x` of a complex number, scaled by its larger part to avoid overflow."""
    real, imag = x
    large = pivot_magnitude(f, [real]).is_("oge", pivot_magnitude(f, [imag]))
    larger_part, smaller_part = f.select(large, real, imag), f.select(large, imag, real)
    ratio = smaller_part / larger_part
    scale = 1.0 / (larger_part + smaller_part * ratio)
    return [f.select(large, scale, ratio * scale), -f.select(large, ratio * scale, scale)]


def pivot_magnitude(f: LLVMFunction, x: Sequence[LLVMValue]) -> LLVMValue:
    """Return the magnitude for pivoting: of complex numbers the sum of both parts, as in LAPACK."""
    parts = [f.intrinsic("fabs", part) for part in x]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


@dataclass
class MatrixCopy:
    """Copies between the last two dimensions of a view and a matrix in scratch memory."""

    f: LLVMFunction
    dtype: str
    beside: bool
    """True if the elements of a row are contiguous in memory."""

    @property
    def numbers(self) -> Arithmetic:
        return compute_arithmetic(self.dtype)

    @property
    def item(self) -> int:
        return NUMPY_DTYPES[self.dtype].itemsize

    def load_matrix(
        self,
        source: LLVMValue,
        steps: Sequence[LLVMValue],
        rows: LLVMValue,
        columns: LLVMValue,
        matrix: ScratchMatrix,
        conjugate: bool = False,
    ) -> None:
        """Load a matrix; `steps` are the bytes between rows and between columns."""
        f, numbers = self.f, self.numbers

        def one(
            start: LLVMValue, i: LLVMValue, j: LLVMValue, count: int, left: LLVMValue | None = None
        ) -> None:
            address = f.offset(start, j * steps[1])
            if left is None:
                result = load_widened(f, address, self.dtype, numbers, count)
            else:
                result = self._load_tail(address, left)
            result = [result[0], -result[1]] if conjugate and numbers.planes == 2 else result
            store_vector(f, result, matrix.at(i, j), numbers)

        whole = columns - columns % BLOCK_COLUMNS
        with f.loop(0, rows) as i:
            start = f.offset(source, i * steps[0])
            if self.beside:
                with f.loop(0, whole, BLOCK_COLUMNS) as j:
                    one(start, i, j, BLOCK_COLUMNS)
                with f.when(whole.is_("slt", columns)):
                    one(start, i, whole, BLOCK_COLUMNS, columns - whole)
            else:
                with f.loop(whole, columns, BLOCK_COLUMNS) as j:
                    store_vector(
                        f, [f.value(0, VECTOR_TYPE)] * numbers.planes, matrix.at(i, j), numbers
                    )
                with f.loop(0, columns) as j:
                    one(start, i, j, 1)

    def _load_tail(self, address: LLVMValue, count: LLVMValue) -> PlaneValues:
        """Load the first `count` lanes, with zeros in the others."""
        f, numbers = self.f, self.numbers
        part = self.item // numbers.planes
        lanes = BLOCK_COLUMNS * numbers.planes
        mask = lane_mask(f, count, BLOCK_COLUMNS, numbers.planes)
        loaded = masked_load(f, address, mask, vector_type(MEMORY_TYPES[self.dtype], lanes), part)
        planes = split_planes(f, loaded) if numbers.planes == 2 else [loaded]
        return [widen(f, plane, self.dtype, numbers) for plane in planes]

    def store_matrix(
        self,
        matrix: ScratchMatrix,
        rows: LLVMValue,
        columns: LLVMValue,
        target: LLVMValue,
        steps: Sequence[LLVMValue],
    ) -> None:
        """Store a matrix."""
        f, numbers = self.f, self.numbers
        narrow = self.item // numbers.planes == 4

        def one(
            start: LLVMValue, i: LLVMValue, j: LLVMValue, count: int, left: LLVMValue | None = None
        ) -> None:
            result = load_vector(f, matrix.at(i, j), numbers, vector_type("double", count))
            if narrow:
                result = [part.to(vector_type("float", count), "fptrunc") for part in result]
            address, part = f.offset(start, j * steps[1]), self.item // numbers.planes
            if left is None:
                f.store(interleave_planes(f, result), address, part)
            else:
                mask = lane_mask(f, left, BLOCK_COLUMNS, numbers.planes)
                masked_store(f, interleave_planes(f, result), address, mask, part)

        with f.loop(0, rows) as i:
            start = f.offset(target, i * steps[0])
            if self.beside:
                whole = columns - columns % BLOCK_COLUMNS
                with f.loop(0, whole, BLOCK_COLUMNS) as j:
                    one(start, i, j, BLOCK_COLUMNS)
                with f.when(whole.is_("slt", columns)):
                    one(start, i, whole, BLOCK_COLUMNS, columns - whole)
            else:
                with f.loop(0, columns) as j:
                    one(start, i, j, 1)


def has_contiguous_rows(view: BufferView) -> bool:
    """Return whether the last dimension is contiguous."""
    return view.strides[-1] == view.itemsize


MATRIX_PARAMS = ["ptr", "i64", "i64"]


def define_update(module: LLVMModule, dtype: str) -> None:
    """Define `update(rows, columns, left, right, out)`: out -= left @ right.

    `left` has `BLOCK_COLUMNS` columns, `right` as many rows; each is a `ScratchMatrix` of three
    words.
    """
    numbers = compute_arithmetic(dtype)
    params = ["i64", "i64", *MATRIX_PARAMS * 3]
    f = add_outlined_function(module, "update", params)
    rows, columns = f.params[:2]
    left, right, out = (ScratchMatrix(*f.params[k : k + 3]) for k in (2, 5, 8))
    with f.loop(0, columns, BLOCK_COLUMNS) as j:
        factors = [load_vector(f, right.at(k, j), numbers) for k in range(BLOCK_COLUMNS)]
        with f.loop(0, rows) as i:
            line, there = left.at(i, 0), out.at(i, j)
            total = load_vector(f, there, numbers)
            for k, factor in enumerate(factors):
                each = splat_planes(f, load_vector(f, line.at(0, k), numbers, "double"))
                total = multiply_subtract(f, numbers, each, factor, total)
            store_vector(f, total, there, numbers)
    f.ret()


def define_substitute(module: LLVMModule, dtype: str, unit: bool) -> None:
    """Define `substitute(rows, columns, left, x)`: replace x by the solution of left @ _ = x.

    `left` is lower triangular with at most `BLOCK_COLUMNS` rows; `unit`: its diagonal counts as
    ones.
    """
    numbers = compute_arithmetic(dtype)
    params = ["i64", "i64", *MATRIX_PARAMS * 2]
    f = add_outlined_function(module, "substitute", params)
    rows, columns = f.params[:2]
    left, x = (ScratchMatrix(*f.params[k : k + 3]) for k in (2, 5))
    with f.loop(0, columns, BLOCK_COLUMNS) as j, f.loop(0, rows) as i:
        total = [f.variable(VECTOR_TYPE, part) for part in load_vector(f, x.at(i, j), numbers)]
        with f.loop(0, i) as k:
            each = splat_planes(f, load_vector(f, left.at(i, k), numbers, "double"))
            now = [part.get() for part in total]
            now = multiply_subtract(f, numbers, each, load_vector(f, x.at(k, j), numbers), now)
            for part, value in zip(total, now, strict=True):
                part.set(value)
        result = [part.get() for part in total]
        if not unit:
            divisor = load_vector(f, left.at(i, i), numbers, "double")
            if numbers.planes == 1:
                result = [result[0] / f.splat(divisor[0], BLOCK_COLUMNS)]
            else:
                result = complex_multiply(result, splat_planes(f, complex_reciprocal(f, divisor)))
        store_vector(f, result, x.at(i, j), numbers)
    f.ret()
