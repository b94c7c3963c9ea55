"""Results that are summed in scratch memory, and stored at the end: unstaging."""

from shardir.backends.cpu.native.contraction.elements import Arithmetic, narrowed
from shardir.backends.cpu.native.contraction.packing import neighbours
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value, vector
from shardir.types import NUMPY_DTYPES

UNSTAGE = "unstage"


def emit_unstage(module: Module, dtype: str, numbers: Arithmetic) -> None:
    """`unstage(out, stage, rows, columns, row_count, column_count, width)`: store the sums."""
    params = ["ptr noalias", "ptr noalias readonly", "ptr noalias readonly",
              "ptr noalias readonly", "i64", "i64", "i64"]  # fmt: skip
    f = Function(module, UNSTAGE, params, attributes=APART, internal=True)
    out, stage, rows, columns, row_count, column_count, width = f.params
    item = NUMPY_DTYPES[dtype].itemsize
    together = neighbours(f, columns, column_count, item)
    lanes = 64 // numbers.part
    whole = f.select(together, column_count - column_count % lanes, 0)
    with f.loop(0, row_count) as i:
        source = f.offset(stage, i * width * numbers.size)
        row = f.offset(out, f.load(f.offset(rows, i, "i64"), "i64"))
        first = f.offset(row, f.load(columns, "i64"))

        def move(j: Value, to: Value, count: int, source: Value = source) -> None:
            type = vector(numbers.type, count * numbers.planes)
            number = f.load(f.offset(source, j * numbers.size), type, numbers.part)
            f.store(narrowed(f, number, dtype), to, item // numbers.planes)

        with f.loop(0, whole, lanes) as j:
            move(j, f.offset(first, j * item), lanes)
        with f.loop(whole, column_count) as j:
            move(j, f.offset(row, f.load(f.offset(columns, j, "i64"), "i64")), 1)
    f.leave()
