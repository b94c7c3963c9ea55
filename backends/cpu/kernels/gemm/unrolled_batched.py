"""Kernels for many small products of one size: each product is fully unrolled, in registers.

Either columns are contiguous and a vector has all columns, or K steps are contiguous and a vector
has all steps of a row (see `inner_product`).
"""

from functools import cache

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import Kernel
from shardir.backends.cpu.kernels.gemm.inner_product import store_sums
from shardir.backends.cpu.kernels.gemm.product_record import OutputBlock, RecordReader
from shardir.backends.cpu.kernels.gemm.vector_arithmetic import VectorArithmetic


@cache
def unrolled_batched_kernel(
    kind: VectorArithmetic, rows: int, columns: int, inner: int, access: str
) -> Kernel:
    """Return the kernel for products of this size.

    `access` is "columns" if the columns of the right operand are contiguous, "steps" if the K steps
    of both operands are contiguous and there is one column, and "gather" if elements of the right
    operand are gathered one by one.
    """
    name = f"unrolled_batched_{kind.name}_{rows}x{columns}x{inner}_{access}"
    return Kernel(name, lambda machine: _text(machine, name, kind, rows, columns, inner, access))


def _text(
    machine: HostDescription,
    name: str,
    kind: VectorArithmetic,
    rows: int,
    columns: int,
    inner: int,
    access: str,
) -> str:
    module = LLVMModule(machine)
    f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    r = RecordReader(f, record)
    block = OutputBlock(f, r, task)
    row_in, row_out, step_in, step_rhs, column = (
        f.load(f.offset(r.loops(name)[0], 8), "i64")
        for name in ("rows_lhs", "rows_out", "inner_lhs", "inner_rhs", "columns_rhs")
    )
    along_steps, gathers = access == "steps", access == "gather"
    used = inner if along_steps else columns
    # Use the shortest vectors that suffice.
    kind = kind._replace(most=min(kind.lanes, 1 << (used - 1).bit_length()))
    mask = kind.mask(f, f.value(used, "i64")) if used < kind.lanes else None
    with block.products(bases) as (lhs, rhs, out, _):
        places = [(f.offset(lhs, row_in * i), f.offset(out, row_out * i)) for i in range(rows)]
        if along_steps:
            b = kind.read(f, rhs, mask)
            both = [b, kind.swap_complex_parts(f, b)][: kind.planes]
            totals = []
            for left, _ in places:
                sums = kind.new_accumulators(f)
                kind.add(f, sums, [kind.read(f, left, mask)] * kind.planes, both)
                totals.append([each.get() for each in sums])
            store_sums(f, kind, totals, [to for _, to in places])
        else:
            right = [
                _load_strided(f, kind, f.offset(rhs, step_rhs * k), column, columns)
                if gathers
                else kind.read(f, f.offset(rhs, step_rhs * k), mask)
                for k in range(inner)
            ]
            for left, to in places:
                sums = kind.new_accumulators(f)
                for k, b in enumerate(right):
                    a = kind.broadcast_element(f, f.offset(left, step_in * k))
                    kind.add(f, sums, a, [b] * kind.planes)
                kind.write(f, kind.combine_accumulators(f, sums), to, mask)
    f.ret()
    return module.text()


def _load_strided(
    f: LLVMFunction, kind: VectorArithmetic, start: LLVMValue, stride: LLVMValue, count: int
) -> LLVMValue:
    """Load a vector of `count` elements that are `stride` bytes apart."""
    found = f.value(0, kind.type)
    for lane in range(count):
        number = kind._replace(most=1).read(f, f.offset(start, stride * lane))
        text = f"insertelement {kind.type} {found}, {number.type} {number}, i64 {lane}"
        found = f.emit(text, kind.type)
    return found
