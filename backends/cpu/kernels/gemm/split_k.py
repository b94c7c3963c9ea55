"""Split-K: adds the partial sums of a long sum with a small result."""

from functools import cache

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue, vector_type
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import Kernel
from shardir.backends.cpu.kernels.gemm.element_arithmetic import (
    Arithmetic,
    arithmetic_of,
    narrow_to_storage,
)
from shardir.backends.cpu.kernels.gemm.product_record import RecordReader
from shardir.ir.types import NUMPY_DTYPES


@cache
def split_k_sum_kernel(dtype: str) -> Kernel:
    """Return the kernel of out[row, column] = sum over inner of lhs[inner, row, column], with a
    dense operand.

    A task computes a block of rows.
    """
    name = f"split_k_sum_{dtype}"
    return Kernel(name, lambda machine: _text(machine, name, dtype))


def _text(machine: HostDescription, name: str, dtype: str) -> str:
    module, arith = LLVMModule(machine), arithmetic_of(dtype)
    f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    r = RecordReader(f, record)
    source, out = r.address(bases, "lhs"), r.address(bases, "out")
    rows, columns = r["rows"], r["columns"]
    item = NUMPY_DTYPES[dtype].itemsize
    loops, number = r.loops("columns_out")
    dense = number.is_("eq", 1) & f.load(f.offset(loops, 8), "i64").is_("eq", item)
    lanes = f.machine.lanes(arith.size)
    whole = f.select(dense, columns - columns % lanes, 0)
    first = task * r["block_rows"]
    with f.loop(first, f.umin(rows, first + r["block_rows"])) as row:
        line = f.offset(out, _line_offset(f, r.loops("rows_out"), row))

        def total(j: LLVMValue, many: int, row: LLVMValue = row) -> LLVMValue:
            start = f.offset(source, (row * columns + j) * arith.size)
            return _sum_parts(f, start, rows * columns * arith.size, r["inner"], many, arith)

        def store_result(value: LLVMValue, to: LLVMValue) -> None:
            f.store(narrow_to_storage(f, value, dtype), to, item // arith.planes)

        with f.loop(0, whole, lanes) as j:
            store_result(total(j, lanes), f.offset(line, j * item))
        with f.loop(whole, columns) as j:
            store_result(total(j, 1), f.offset(line, _line_offset(f, (loops, number), j)))
    f.ret()
    return module.text()


def _sum_parts(
    f: LLVMFunction,
    start: LLVMValue,
    part_stride: LLVMValue,
    parts: LLVMValue,
    many: int,
    arith: Arithmetic,
) -> LLVMValue:
    """Return the sum of `many` contiguous elements over all parts, which are `part_stride` bytes
    apart."""
    type = vector_type(arith.type, many * arith.planes)
    total = f.variable(type, f.load(start, type, arith.plane_bytes))
    with f.loop(1, parts) as part:
        total.set(
            total.get() + f.load(f.offset(start, part * part_stride), type, arith.plane_bytes)
        )
    return total.get()


def _line_offset(
    f: LLVMFunction, loops: tuple[LLVMValue, LLVMValue], index: LLVMValue
) -> LLVMValue:
    """Return the offset of a line in bytes."""
    place, rest = f.variable("i64", 0), f.variable("i64", index)
    with f.loop(0, loops[1]) as level:
        entry = f.offset(loops[0], level * 16)
        extent, now = f.load(entry, "i64"), rest.get()
        place.set(place.get() + now % extent * f.load(f.offset(entry, 8), "i64"))
        rest.set(now // extent)
    return place.get()
