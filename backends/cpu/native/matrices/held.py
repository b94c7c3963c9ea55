"""Matrices in scratch memory: rows of f64, which are accessed as vectors of `BLOCK_COLUMNS`
columns.

Rows are padded with zeros to full vectors. Complex matrices have two planes, for real and imaginary
parts. Algorithms work on blocks of `BLOCK_COLUMNS` columns or rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardir.backends.cpu.native.contraction.elements import (
    Arithmetic,
    arithmetic,
    joined,
    read,
    split,
    stored,
    widened,
)
from shardir.backends.cpu.native.contraction.tile import masked_load, masked_store, within
from shardir.backends.cpu.native.data import View
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Number, Value, vector
from shardir.types import COMPLEX, NUMPY_DTYPES

LANES = 8
ITEM = 8
VECTOR = vector("double", LANES)
AWAY = 64
"""Padding between rows, so that the columns of large matrices do not conflict in the caches."""

Planes = list[Value]


def wide(dtype: str) -> Arithmetic:
    """Return the arithmetic that a dtype is computed in."""
    return arithmetic("c128" if dtype in COMPLEX else "f64")


def padded(extent: int) -> int:
    """Round an extent up to full vectors."""
    return -(-extent // LANES) * LANES


def row_bytes(columns: int) -> int:
    """Return the bytes between rows."""
    return padded(columns) * ITEM + AWAY


def held_bytes(rows: int, columns: int, dtype: str) -> int:
    """Return the bytes of a matrix in scratch memory."""
    return rows * row_bytes(columns) * wide(dtype).planes


class Held(NamedTuple):
    """A matrix, or a part of one, in scratch memory: bytes between rows, and between planes."""

    start: Value
    row: Value
    plane: Value

    def at(self, row: Number, column: Number) -> "Held":
        """Return the submatrix that begins at an element."""
        f = self.start.function
        down = f.value(row, "i64") * self.row
        return self._replace(start=f.offset(f.offset(self.start, down), column, "double"))

    def planes(self, numbers: Arithmetic) -> list[Value]:
        """Return the addresses of the first element's parts."""
        f = self.start.function
        return [self.start, f.offset(self.start, self.plane)][: numbers.planes]


def load(f: Function, matrix: Held, numbers: Arithmetic, type: str = VECTOR) -> Planes:
    """Load a vector of columns, or one element."""
    return [f.load(address, type, ITEM) for address in matrix.planes(numbers)]


def store(f: Function, values: Sequence[Value], matrix: Held, numbers: Arithmetic) -> None:
    """Store a vector of columns, or one element."""
    for value, address in zip(values, matrix.planes(numbers), strict=True):
        f.store(value, address, ITEM)


def spread(f: Function, values: Sequence[Value]) -> Planes:
    """Return one element in all lanes."""
    return [f.splat(value, LANES) for value in values]


def less_product(f: Function, numbers: Arithmetic, a: Planes, b: Planes, c: Planes) -> Planes:
    """Return `c - a * b`."""

    def step(x: Value, y: Value, z: Value, minus: bool) -> Value:
        return numbers.add_product(f, host(), x, y, z, minus)

    if numbers.planes == 1:
        return [step(a[0], b[0], c[0], True)]
    real = step(a[1], b[1], step(a[0], b[0], c[0], True), False)
    return [real, step(a[1], b[0], step(a[0], b[1], c[1], True), True)]


def product(a: Planes, b: Planes) -> Planes:
    """Return `a * b` of complex numbers."""
    return [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]


def inverse(f: Function, x: Planes) -> Planes:
    """Return `1 / x` of a complex number, scaled by its larger part to avoid overflow."""
    real, imag = x
    large = size(f, [real]).is_("oge", size(f, [imag]))
    larger_part, smaller_part = f.select(large, real, imag), f.select(large, imag, real)
    ratio = smaller_part / larger_part
    scale = 1.0 / (larger_part + smaller_part * ratio)
    return [f.select(large, scale, ratio * scale), -f.select(large, ratio * scale, scale)]


def size(f: Function, x: Sequence[Value]) -> Value:
    """Return the magnitude for pivoting: of complex numbers the sum of both parts, as in LAPACK."""
    parts = [f.intrinsic("fabs", part) for part in x]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


@dataclass
class Copying:
    """Copies between the last two dimensions of a view and a matrix in scratch memory."""

    f: Function
    dtype: str
    beside: bool
    """Whether the elements of a row are contiguous in memory."""

    @property
    def numbers(self) -> Arithmetic:
        return wide(self.dtype)

    @property
    def item(self) -> int:
        return NUMPY_DTYPES[self.dtype].itemsize

    def bring(
        self, source: Value, steps: Sequence[Value], rows: Value, columns: Value, matrix: Held,
        conjugate: bool = False,
    ) -> None:  # fmt: skip
        """Load a matrix; `steps` are the bytes between rows and between columns."""
        f, numbers = self.f, self.numbers

        def one(start: Value, i: Value, j: Value, count: int, left: Value | None = None) -> None:
            address = f.offset(start, j * steps[1])
            if left is None:
                result = read(f, address, self.dtype, numbers, count)
            else:
                result = self._tail(address, left)
            result = [result[0], -result[1]] if conjugate and numbers.planes == 2 else result
            store(f, result, matrix.at(i, j), numbers)

        whole = columns - columns % LANES
        with f.loop(0, rows) as i:
            start = f.offset(source, i * steps[0])
            if self.beside:
                with f.loop(0, whole, LANES) as j:
                    one(start, i, j, LANES)
                with f.when(whole.is_("slt", columns)):
                    one(start, i, whole, LANES, columns - whole)
            else:
                with f.loop(whole, columns, LANES) as j:
                    store(f, [f.value(0, VECTOR)] * numbers.planes, matrix.at(i, j), numbers)
                with f.loop(0, columns) as j:
                    one(start, i, j, 1)

    def _tail(self, address: Value, count: Value) -> Planes:
        """Load the first `count` lanes, with zeros in the others."""
        f, numbers = self.f, self.numbers
        part = self.item // numbers.planes
        lanes = LANES * numbers.planes
        mask = within(f, count, LANES, numbers.planes)
        loaded = masked_load(f, address, mask, vector(stored(self.dtype), lanes), part)
        planes = split(f, loaded) if numbers.planes == 2 else [loaded]
        return [widened(f, plane, self.dtype, numbers) for plane in planes]

    def put(
        self, matrix: Held, rows: Value, columns: Value, target: Value, steps: Sequence[Value]
    ) -> None:
        """Store a matrix."""
        f, numbers = self.f, self.numbers
        narrow = self.item // numbers.planes == 4

        def one(start: Value, i: Value, j: Value, count: int, left: Value | None = None) -> None:
            result = load(f, matrix.at(i, j), numbers, vector("double", count))
            if narrow:
                result = [part.to(vector("float", count), "fptrunc") for part in result]
            address, part = f.offset(start, j * steps[1]), self.item // numbers.planes
            if left is None:
                f.store(joined(f, result), address, part)
            else:
                mask = within(f, left, LANES, numbers.planes)
                masked_store(f, joined(f, result), address, mask, part)

        with f.loop(0, rows) as i:
            start = f.offset(target, i * steps[0])
            if self.beside:
                whole = columns - columns % LANES
                with f.loop(0, whole, LANES) as j:
                    one(start, i, j, LANES)
                with f.when(whole.is_("slt", columns)):
                    one(start, i, whole, LANES, columns - whole)
            else:
                with f.loop(0, columns) as j:
                    one(start, i, j, 1)


def neighbours(view: View) -> bool:
    """Return whether the last dimension is contiguous."""
    return view.strides[-1] == view.itemsize


HELD = ["ptr", "i64", "i64"]


def emit_update(module: Module, dtype: str) -> None:
    """Define `update(rows, columns, left, right, out)`: out -= left @ right.

    `left` has `BLOCK_COLUMNS` columns, `right` as many rows; each is a `ScratchMatrix` of three
    words.
    """
    numbers = wide(dtype)
    params = ["i64", "i64", *HELD * 3]
    f = Function(module, "update", params, attributes=APART, internal=True)
    rows, columns = f.params[:2]
    left, right, out = (Held(*f.params[k : k + 3]) for k in (2, 5, 8))
    with f.loop(0, columns, LANES) as j:
        factors = [load(f, right.at(k, j), numbers) for k in range(LANES)]
        with f.loop(0, rows) as i:
            line, there = left.at(i, 0), out.at(i, j)
            total = load(f, there, numbers)
            for k, factor in enumerate(factors):
                each = spread(f, load(f, line.at(0, k), numbers, "double"))
                total = less_product(f, numbers, each, factor, total)
            store(f, total, there, numbers)
    f.leave()


def emit_substitute(module: Module, dtype: str, unit: bool) -> None:
    """Define `substitute(rows, columns, left, x)`: replace x by the solution of left @ _ = x.

    `left` is lower triangular with at most `BLOCK_COLUMNS` rows; `unit`: its diagonal counts as
    ones.
    """
    numbers = wide(dtype)
    params = ["i64", "i64", *HELD * 2]
    f = Function(module, "substitute", params, attributes=APART, internal=True)
    rows, columns = f.params[:2]
    left, x = (Held(*f.params[k : k + 3]) for k in (2, 5))
    with f.loop(0, columns, LANES) as j, f.loop(0, rows) as i:
        total = [f.variable(VECTOR, part) for part in load(f, x.at(i, j), numbers)]
        with f.loop(0, i) as k:
            each = spread(f, load(f, left.at(i, k), numbers, "double"))
            now = [part.get() for part in total]
            now = less_product(f, numbers, each, load(f, x.at(k, j), numbers), now)
            for part, value in zip(total, now, strict=True):
                part.set(value)
        result = [part.get() for part in total]
        if not unit:
            divisor = load(f, left.at(i, i), numbers, "double")
            if numbers.planes == 1:
                result = [result[0] / f.splat(divisor[0], LANES)]
            else:
                result = product(result, spread(f, inverse(f, divisor)))
        store(f, result, x.at(i, j), numbers)
    f.leave()
