"""Stores staged sums from scratch memory to the result."""

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMModule,
    LLVMValue,
    StackVariable,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic, narrow_to_storage
from shardir.ir.types import NUMPY_DTYPES

UNSTAGE_FUNCTION = "unstage"


def emit_unstage(module: LLVMModule, dtype: str, arith: Arithmetic) -> None:
    """Emit `unstage(out, stage, rows, columns, row_count, column_count, width)`: store the sums.

    Columns are stored in runs: columns that are contiguous in the result as vectors if the run is
    long enough, other columns row by row.
    """
    params = ["ptr noalias", "ptr noalias readonly", "ptr noalias readonly",
              "ptr noalias readonly", "i64", "i64", "i64"]  # fmt: skip
    f = add_outlined_function(module, UNSTAGE_FUNCTION, params)
    out, stage, rows, columns, row_count, column_count, width = f.params
    item, lanes = NUMPY_DTYPES[dtype].itemsize, 64 // arith.plane_bytes
    done = f.variable("i64", 0)

    def column_at(j: LLVMValue) -> LLVMValue:
        return f.load(f.offset(columns, j, "i64"), "i64")

    def has_neighbour(j: LLVMValue, end: LLVMValue) -> LLVMValue:
        """Return whether the next column, before the end, is adjacent to this one."""
        return column_at(f.umin(j + 1, end - 1)).is_("eq", column_at(j) + item)

    def number(i: LLVMValue, j: LLVMValue, count: int) -> LLVMValue:
        type = vector_type(arith.type, count * arith.planes)
        return f.load(f.offset(stage, (i * width + j) * arith.size), type, arith.plane_bytes)

    def store(value: LLVMValue, i: LLVMValue, j: LLVMValue) -> None:
        row = f.offset(out, f.load(f.offset(rows, i, "i64"), "i64"))
        at = f.offset(row, column_at(j))
        f.store(narrow_to_storage(f, value, dtype), at, item // arith.planes)

    def run(first: LLVMValue, last: LLVMValue, count: int) -> None:
        with f.loop(0, row_count) as i, f.loop(first, last, count) as next:
            j = next if count == 1 else f.umin(next, last - count)
            store(number(i, j, count), i, j)

    with f.while_(lambda: done.get().is_("slt", column_count)):
        first, end = done.get(), column_count
        joined = has_neighbour(first, end)
        last = f.variable("i64", first + 1)

        def goes_on(
            last: StackVariable = last, end: LLVMValue = end, joined: LLVMValue = joined
        ) -> LLVMValue:
            at = f.umin(last.get() - joined.to("i64", "zext"), end - 1)
            return last.get().is_("slt", end) & has_neighbour(at, end).is_("eq", joined)

        with f.while_(goes_on):
            last.set(last.get() + 1)
        stop = last.get()
        f.if_else(
            joined & (stop - first).is_("sge", lanes),
            lambda: run(first, stop, lanes),
            lambda: run(first, stop, 1),
        )
        done.set(stop)
    f.ret()
