"""A vector times a large matrix whose columns are neighbours.

Some rows of the matrix are read at once, along all columns of the task, since memory is fastest
when it is read in long runs; the result stays in the nearest cache meanwhile.
"""

from functools import cache

from shardir.backends.cpu.native.contraction.elements import arithmetic
from shardir.backends.cpu.native.contraction.record import Block, Reader, fitting_in
from shardir.backends.cpu.native.contraction.tile import masked_load, masked_store, within
from shardir.backends.cpu.native.data import Kernel
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Module, Value, vector

TOGETHER = 8
"""Rows of the matrix that are read at once."""


@cache
def across_kernel(dtype: str) -> Kernel:
    """The kernel for one row of results."""
    name = f"across_{dtype}"
    return Kernel(name, lambda: _text(name, dtype))


def _text(name: str, dtype: str) -> str:
    module, numbers = Module(), arithmetic(dtype)
    for together in (TOGETHER, 1):
        _emit_sweep(module, together, dtype)
    f = Function(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    r = Reader(f, record)
    block = Block(f, r, task)
    step_in, step_rhs = (
        f.load(f.offset(r.loops(name)[0], 8), "i64") for name in ("inner_lhs", "inner_rhs")
    )
    size = numbers.size
    with block.products(bases) as (lhs, rhs, out, _):
        far = block.first_column * size
        to, right = f.offset(out, far), f.offset(rhs, far)
        f.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
        f.do(f"call void @llvm.memset.p0.i64(ptr {to}, i8 0, i64 {block.columns * size}, i1 false)")
        row = f.variable("i64", 0)
        for together in (TOGETHER, 1):
            with fitting_in(f, row, together, r["inner"]) as k:
                left, first = f.offset(lhs, k * step_in), f.offset(right, k * step_rhs)
                f.call(f"sweep{together}", [left, step_in, first, step_rhs, to, block.columns])
    f.leave()
    return module.text()


def _emit_sweep(module: Module, together: int, dtype: str) -> None:
    """`sweep(lhs, step, rhs, rhs_step, out, columns)`: add some rows, each times a number."""
    machine, numbers = host(), arithmetic(dtype)
    params = ["ptr readonly", "i64", "ptr readonly", "i64", "ptr noalias", "i64"]
    f = Function(module, f"sweep{together}", params, attributes="nounwind noinline", internal=True)
    lhs, step, rhs, rhs_step, out, columns = f.params
    size, lanes = numbers.size, machine.lanes(numbers.size)
    many = vector(numbers.type, lanes)
    left = [f.splat(f.load(f.offset(lhs, step * k), numbers.type), lanes) for k in range(together)]
    rows = [f.offset(rhs, rhs_step * k) for k in range(together)]

    def one(j: Value, mask: Value | None = None) -> None:
        def read(start: Value) -> Value:
            at = f.offset(start, j * size)
            return masked_load(f, at, mask, many, size) if mask else f.load(at, many, size)

        total = read(out)
        for a, row in zip(left, rows, strict=True):
            total = numbers.add_product(f, machine, a, read(row), total)
        at = f.offset(out, j * size)
        if mask:
            masked_store(f, total, at, mask, size)
        else:
            f.store(total, at, size)

    whole = columns - columns % lanes
    with f.loop(0, whole, lanes) as j:
        one(j)
    with f.when(whole.is_("slt", columns)):
        one(whole, within(f, columns - whole, lanes))
    f.leave()
