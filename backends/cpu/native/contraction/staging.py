"""Stores staged sums from scratch memory to the result."""

from shardir.backends.cpu.native.contraction.elements import Arithmetic, narrowed
from shardir.backends.cpu.native.contraction.packing import neighbours, transposed
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value, Variable, vector
from shardir.types import NUMPY_DTYPES

UNSTAGE = "unstage"


def emit_unstage(module: Module, dtype: str, arith: Arithmetic, turning: bool) -> None:
    """Emit `unstage(out, stage, rows, columns, row_count, column_count, width)`: store the sums.

    Columns are stored in runs: columns that are contiguous in the result as vectors if the run is
    long enough, other columns row by row. Rows that are contiguous are transposed square by square;
    most products have no such rows, since they are transposed as a whole (`turning` states that
    this product may have such rows).
    """
    params = ["ptr noalias", "ptr noalias readonly", "ptr noalias readonly",
              "ptr noalias readonly", "i64", "i64", "i64"]  # fmt: skip
    f = Function(module, UNSTAGE, params, attributes=APART, internal=True)
    out, stage, rows, columns, row_count, column_count, width = f.params
    item, lanes = NUMPY_DTYPES[dtype].itemsize, 64 // arith.part
    bottom, right_end, done = (f.variable("i64", 0) for _ in range(3))

    def column_at(j: Value) -> Value:
        return f.load(f.offset(columns, j, "i64"), "i64")

    def has_neighbour(j: Value, end: Value) -> Value:
        """Return whether the next column, before the end, is adjacent to this one."""
        return column_at(f.least(j + 1, end - 1)).is_("eq", column_at(j) + item)

    def number(i: Value, j: Value, count: int) -> Value:
        type = vector(arith.type, count * arith.planes)
        return f.load(f.offset(stage, (i * width + j) * arith.size), type, arith.part)

    def store(value: Value, i: Value, j: Value) -> None:
        row = f.offset(out, f.load(f.offset(rows, i, "i64"), "i64"))
        at = f.offset(row, column_at(j))
        f.store(narrowed(f, value, dtype), at, item // arith.planes)

    def run(first: Value, last: Value, count: int) -> None:
        top = f.select(first.is_("slt", right_end.get()), bottom.get(), 0)
        with f.loop(top, row_count) as i, f.loop(first, last, count) as next:
            j = next if count == 1 else f.least(next, last - count)
            store(number(i, j, count), i, j)

    if turning and arith.planes == 1:
        size = host().lanes(arith.part)
        is_transposed = neighbours(f, rows, row_count, item) & ~neighbours(
            f, columns, column_count, item
        )
        with f.when(is_transposed):
            bottom.set(row_count - row_count % size)
            right_end.set(column_count - column_count % size)
            with f.loop(0, right_end.get(), size) as j, f.loop(0, bottom.get(), size) as i:
                square = [number(i + k, j, size) for k in range(size)]
                for k, column in enumerate(transposed(f, square, 1)):
                    store(column, i, j + k)
    with f.while_(lambda: done.get().is_("slt", column_count)):
        first = done.get()
        end = f.select(first.is_("slt", right_end.get()), right_end.get(), column_count)
        joined = has_neighbour(first, end)
        last = f.variable("i64", first + 1)

        def goes_on(last: Variable = last, end: Value = end, joined: Value = joined) -> Value:
            at = f.least(last.get() - joined.to("i64", "zext"), end - 1)
            return last.get().is_("slt", end) & has_neighbour(at, end).is_("eq", joined)

        with f.while_(goes_on):
            last.set(last.get() + 1)
        stop = last.get()
        f.choose(
            joined & (stop - first).is_("sge", lanes),
            lambda: run(first, stop, lanes),
            lambda: run(first, stop, 1),
        )
        done.set(stop)
    f.leave()
