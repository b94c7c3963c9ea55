"""A few rows times a large matrix whose columns are neighbours.

Some rows of the matrix are read at once, along all columns of the task, since memory is fastest
when it is read in long runs; the result stays in the nearest cache meanwhile.
"""

from functools import cache

from shardir.backends.cpu.native.contraction.elements import arithmetic
from shardir.backends.cpu.native.contraction.record import Block, Reader, fitting_in
from shardir.backends.cpu.native.contraction.tile import masked_load, masked_store, within
from shardir.backends.cpu.native.data import Kernel
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value, vector

MOST = 4
"""Rows of the result that are made at once: the nearest cache has few places for each column."""


@cache
def across_kernel(dtype: str, height: int) -> Kernel:
    """The kernel for results of `height` rows."""
    name = f"across_{dtype}_{height}"
    return Kernel(name, lambda: _text(name, dtype, height))


def _text(name: str, dtype: str, height: int) -> str:
    module, numbers = Module(), arithmetic(dtype)
    groups = [min(MOST, height - first) for first in range(0, height, MOST)]
    for high in sorted(set(groups)):
        for together in (_together(high), 1):
            _emit_sweep(module, high, together, dtype)
    f = Function(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    r = Reader(f, record)
    block = Block(f, r, task)
    step_in, step_rhs, row_in, row_out = (
        f.load(f.offset(r.loops(name)[0], 8), "i64")
        for name in ("inner_lhs", "inner_rhs", "rows_lhs", "rows_out")
    )
    f.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
    nbytes = block.columns * numbers.size
    with block.products(bases) as (lhs, rhs, out, _):
        far = block.first_column * numbers.size
        right = f.offset(rhs, far)
        for number, high in enumerate(groups):
            to = f.offset(f.offset(out, far), row_out * (number * MOST))
            top = f.offset(lhs, row_in * (number * MOST))
            for i in range(high):
                start = f.offset(to, row_out * i)
                f.do(f"call void @llvm.memset.p0.i64(ptr {start}, i8 0, i64 {nbytes}, i1 false)")
            row = f.variable("i64", 0)
            for together in (_together(high), 1):
                with fitting_in(f, row, together, r["inner"]) as k:
                    left, first = f.offset(top, k * step_in), f.offset(right, k * step_rhs)
                    f.call(
                        f"sweep{high}x{together}",
                        [left, row_in, step_in, first, step_rhs, to, row_out, block.columns],
                    )
    f.leave()
    return module.text()


def _together(height: int) -> int:
    """Rows of the matrix that are read at once."""
    return 8 if height < 3 else 4


def _emit_sweep(module: Module, height: int, together: int, dtype: str) -> None:
    """`sweep(lhs, row, step, rhs, rhs_step, out, out_row, columns)`.

    Adds `together` rows of the matrix, times numbers, to each row of the result.
    """
    machine, numbers = host(), arithmetic(dtype)
    params = ["ptr readonly", "i64", "i64", "ptr readonly", "i64", "ptr noalias", "i64", "i64"]
    f = Function(module, f"sweep{height}x{together}", params, attributes=APART, internal=True)
    lhs, row_in, step, rhs, rhs_step, out, row_out, columns = f.params
    size, lanes = numbers.size, machine.lanes(numbers.size)
    many = vector(numbers.type, lanes)
    left = [
        [
            f.splat(f.load(f.offset(f.offset(lhs, row_in * i), step * k), numbers.type), lanes)
            for k in range(together)
        ]
        for i in range(height)
    ]
    rows = [f.offset(rhs, rhs_step * k) for k in range(together)]
    outs = [f.offset(out, row_out * i) for i in range(height)]

    def one(j: Value, mask: Value | None = None) -> None:
        def read(start: Value) -> Value:
            at = f.offset(start, j * size)
            return masked_load(f, at, mask, many, size) if mask else f.load(at, many, size)

        right = [read(row) for row in rows]
        for numbers_of, start in zip(left, outs, strict=True):
            total = read(start)
            for a, b in zip(numbers_of, right, strict=True):
                total = numbers.add_product(f, machine, a, b, total)
            at = f.offset(start, j * size)
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
