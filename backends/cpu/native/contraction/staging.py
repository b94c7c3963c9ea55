"""Sums that were kept until they were done, stored where the result lies."""

from shardir.backends.cpu.native.contraction.elements import Arithmetic, narrowed
from shardir.backends.cpu.native.contraction.packing import neighbours, transposed
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value, vector
from shardir.types import NUMPY_DTYPES

UNSTAGE = "unstage"


def emit_unstage(module: Module, dtype: str, numbers: Arithmetic, turning: bool) -> None:
    """`unstage(out, stage, rows, columns, row_count, column_count, width)`: store the sums.

    Columns that are neighbours in the result are stored as vectors. So are rows that are, turned
    square by square; most products have no such rows, since they are turned as a whole (`turning`
    says that this one may).
    """
    params = ["ptr noalias", "ptr noalias readonly", "ptr noalias readonly",
              "ptr noalias readonly", "i64", "i64", "i64"]  # fmt: skip
    f = Function(module, UNSTAGE, params, attributes=APART, internal=True)
    out, stage, rows, columns, row_count, column_count, width = f.params
    item = NUMPY_DTYPES[dtype].itemsize
    together = neighbours(f, columns, column_count, item)
    lanes = 64 // numbers.part
    whole = f.select(together, column_count - column_count % lanes, 0)
    done = f.variable("i64", 0)

    def source(i: Value, j: Value) -> Value:
        return f.offset(stage, (i * width + j) * numbers.size)

    def move(i: Value, j: Value, to: Value, count: int) -> None:
        type = vector(numbers.type, count * numbers.planes)
        number = f.load(source(i, j), type, numbers.part)
        f.store(narrowed(f, number, dtype), to, item // numbers.planes)

    def line(i: Value, first: Value) -> None:
        """A row, from this column on: vectors, then number by number."""
        row = f.offset(out, f.load(f.offset(rows, i, "i64"), "i64"))
        start = f.offset(row, f.load(columns, "i64"))
        with f.loop(first, whole, lanes) as j:
            move(i, j, f.offset(start, j * item), lanes)
        with f.loop(f.intrinsic("smax", first, whole), column_count) as j:
            move(i, j, f.offset(row, f.load(f.offset(columns, j, "i64"), "i64")), 1)

    if turning and numbers.planes == 1:
        size = host().lanes(numbers.part)
        below = ~together & neighbours(f, rows, row_count, item)
        end = f.select(below, row_count - row_count % size, 0)
        last = column_count - column_count % size
        with f.when(end.is_("ne", 0)):
            with f.loop(0, last, size) as j, f.loop(0, end, size) as i:
                square = [
                    f.load(source(i + k, j), vector(numbers.type, size), numbers.part)
                    for k in range(size)
                ]
                start = f.offset(out, f.load(f.offset(rows, i, "i64"), "i64"))
                for k, column in enumerate(transposed(f, square, 1)):
                    to = f.offset(start, f.load(f.offset(columns, j + k, "i64"), "i64"))
                    f.store(narrowed(f, column, dtype), to, item)
            with f.loop(0, end) as i:
                line(i, last)
            done.set(end)
    with f.loop(done.get(), row_count) as i:
        line(i, f.value(0, "i64"))
    f.leave()
