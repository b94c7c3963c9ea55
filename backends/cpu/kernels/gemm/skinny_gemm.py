"""Skinny GEMM: a few rows times a large matrix whose columns are contiguous.

Some rows of the matrix are read together, along all columns of the task, since memory bandwidth is
highest for long contiguous reads; the result stays in the L1 cache meanwhile.
"""

from functools import cache

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import Kernel
from shardir.backends.cpu.kernels.gemm.product_record import (
    OutputBlock,
    RecordReader,
    emit_while_fits,
)
from shardir.backends.cpu.kernels.gemm.tuning import MAX_ROWS_PER_SWEEP
from shardir.backends.cpu.kernels.gemm.vector_arithmetic import VectorArithmetic


@cache
def skinny_gemm_kernel(kind: VectorArithmetic, height: int) -> Kernel:
    """Return the kernel for results of `height` rows."""
    name = f"skinny_gemm_{kind.name}_{height}"
    return Kernel(name, lambda machine: _text(machine, name, kind, height))


def _text(machine: HostDescription, name: str, kind: VectorArithmetic, height: int) -> str:
    module = LLVMModule(machine)
    groups = [
        min(MAX_ROWS_PER_SWEEP, height - first) for first in range(0, height, MAX_ROWS_PER_SWEEP)
    ]
    for high in sorted(set(groups)):
        for group in (_rows_per_sweep(high, kind), 1):
            _emit_sweep(module, high, group, kind)
    f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    r = RecordReader(f, record)
    block = OutputBlock(f, r, task)
    step_in, step_rhs, row_in, row_out = (
        f.load(f.offset(r.loops(name)[0], 8), "i64")
        for name in ("inner_lhs", "inner_rhs", "rows_lhs", "rows_out")
    )
    f.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
    nbytes = block.columns * kind.item
    with block.products(bases) as (lhs, rhs, out, _):
        distance = block.first_column * kind.item
        right = f.offset(rhs, distance)
        for number, high in enumerate(groups):
            to = f.offset(f.offset(out, distance), row_out * (number * MAX_ROWS_PER_SWEEP))
            top = f.offset(lhs, row_in * (number * MAX_ROWS_PER_SWEEP))
            for i in range(high):
                start = f.offset(to, row_out * i)
                f.do(f"call void @llvm.memset.p0.i64(ptr {start}, i8 0, i64 {nbytes}, i1 false)")
            row = f.variable("i64", 0)
            for group in (_rows_per_sweep(high, kind), 1):
                with emit_while_fits(f, row, group, r["inner"]) as k:
                    left, first = f.offset(top, k * step_in), f.offset(right, k * step_rhs)
                    f.call(
                        f"sweep{high}x{group}",
                        [left, row_in, step_in, first, step_rhs, to, row_out, block.columns],
                    )
    f.ret()
    return module.text()


def _rows_per_sweep(height: int, kind: VectorArithmetic) -> int:
    """Return the number of rows of the matrix that are read together."""
    return (8 if height < 3 else 4) // kind.planes


def _emit_sweep(module: LLVMModule, height: int, group: int, kind: VectorArithmetic) -> None:
    """Emit `sweep(lhs, row, step, rhs, rhs_step, out, out_row, columns)`.

    The function adds `group` rows of the matrix, times elements of the left operand, to each row
    of the result.
    """
    params = ["ptr readonly", "i64", "i64", "ptr readonly", "i64", "ptr noalias", "i64", "i64"]
    f = add_outlined_function(module, f"sweep{height}x{group}", params)
    lhs, row_in, step, rhs, rhs_step, out, row_out, columns = f.params
    size, lanes = kind.item, kind.lanes
    left = [
        [
            kind.broadcast_element(f, f.offset(f.offset(lhs, row_in * i), step * k))
            for k in range(group)
        ]
        for i in range(height)
    ]
    if kind.planes == 2:
        # The imaginary part is multiplied with swapped pairs: subtracted in real lanes, added in
        # others.
        for elements in left:
            for pair in elements:
                pair[1] = f.shuffle(
                    -pair[1], pair[1], [i % 2 * 2 * lanes for i in range(2 * lanes)]
                )
    rows = [f.offset(rhs, rhs_step * k) for k in range(group)]
    outs = [f.offset(out, row_out * i) for i in range(height)]

    def one(j: LLVMValue, mask: LLVMValue | None = None) -> None:
        def read(start: LLVMValue) -> LLVMValue:
            return kind.read(f, f.offset(start, j * size), mask)

        right = [[read(row)] for row in rows]
        if kind.planes == 2:
            right = [[b, kind.swap_complex_parts(f, b)] for (b,) in right]
        for elements, start in zip(left, outs, strict=True):
            total = f.variable(kind.type, read(start))
            for a, b in zip(elements, right, strict=True):
                kind.add(f, [total] * kind.planes, a, b)
            kind.write(f, total.get(), f.offset(start, j * size), mask)

    whole = columns - columns % lanes
    with f.loop(0, whole, lanes) as j:
        one(j)
    with f.when(whole.is_("slt", columns)):
        one(whole, kind.mask(f, columns - whole))
    f.ret()
