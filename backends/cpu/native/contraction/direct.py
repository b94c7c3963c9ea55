"""Small and narrow products, straight from where the operands lie.

Where few rows share a column, or all of the right operand stays in the nearest cache, packing
would cost more than it saves. The columns of the right operand and of the result must be
neighbours; the left operand may lie anyhow. A task makes a block of rows and columns, or of many
small products.
"""

from dataclasses import dataclass
from functools import cache

from shardir.backends.cpu.native.contraction.elements import Arithmetic, arithmetic
from shardir.backends.cpu.native.contraction.record import Block, Reader, fitting_in
from shardir.backends.cpu.native.contraction.tile import masked_load, masked_store, within
from shardir.backends.cpu.native.data import Kernel
from shardir.backends.cpu.native.llvm.target import Machine, host
from shardir.backends.cpu.native.llvm.text import Function, Module, Value, vector

UNROLLED = 2
AHEAD = 12
"""How many steps ahead the right operand is asked for."""


@cache
def direct_kernel(dtype: str, height: int, width: int) -> Kernel:
    """The kernel for `height` rows and `width` vectors of columns at a time."""
    name = f"direct_{dtype}_{height}x{width}"
    return Kernel(name, lambda: _text(name, dtype, height, width))


def _text(name: str, dtype: str, height: int, width: int) -> str:
    module, machine, numbers = Module(), host(), arithmetic(dtype)
    heights = [height]
    while heights[-1] > 1:
        heights.append(1 << (heights[-1] - 1).bit_length() - 1)
    for each in heights:
        _Strip(module, numbers, machine, each, width).emit()
    f = Function(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    r = Reader(f, record)
    block = Block(f, r, task)
    row_in, row_out = (
        f.load(f.offset(r.loops(name)[0], 8), "i64") for name in ("rows_lhs", "rows_out")
    )
    step_in, step_rhs = (
        f.load(f.offset(r.loops(name)[0], 8), "i64") for name in ("inner_lhs", "inner_rhs")
    )
    inner = r["inner"]
    columns = width * machine.lanes(numbers.size)
    item = numbers.size
    with block.products(bases) as (lhs, rhs, out, _), f.loop(0, block.columns, columns) as j:
        right = f.offset(rhs, (block.first_column + j) * item)
        top = f.variable("i64", 0)
        for each in heights:
            with fitting_in(f, top, each, block.rows) as at:
                first = block.first_row + at
                left = f.offset(lhs, first * row_in)
                to = f.offset(f.offset(out, first * row_out), (block.first_column + j) * item)
                f.call(
                    f"strip{each}",
                    [inner, left, row_in, step_in, right, step_rhs, to, row_out, block.columns - j],
                )
    f.leave()
    return module.text()


@dataclass
class _Strip:
    """`strip{height}(inner, lhs, row, step, rhs, rhs_step, out, out_row, columns)`."""

    module: Module
    numbers: Arithmetic
    machine: Machine
    height: int
    width: int

    def emit(self) -> None:
        params = ["i64", "ptr readonly", "i64", "i64", "ptr readonly", "i64", "ptr noalias",
                  "i64", "i64"]  # fmt: skip
        f = Function(
            self.module, f"strip{self.height}", params, attributes="nounwind noinline",
            internal=True,
        )  # fmt: skip
        inner, lhs, row, step, rhs, rhs_step, out, out_row, columns = f.params
        lanes, size = self.machine.lanes(self.numbers.size), self.numbers.size
        many = vector(self.numbers.type, lanes)
        sums = [[f.variable(many, 0) for _ in range(self.width)] for _ in range(self.height)]

        def sweep(near: bool, full: bool) -> None:
            """`near`: steps of the left operand are neighbours; `full`: no column is missing."""
            masks = [within(f, columns - j * lanes, lanes) for j in range(self.width)]
            rows = [f.variable("ptr", f.offset(lhs, row * i)) for i in range(self.height)]
            right = f.variable("ptr", rhs)

            def one(u: int) -> None:
                here = right.get()
                line = self.machine.vector_bytes * self.width
                if self.height > 1 and self.width > 2:
                    for far in range(0, line, 64):
                        self._prefetch(f, f.offset(f.offset(here, rhs_step * AHEAD), far))
                b = []
                for j in range(self.width):
                    place = f.offset(here, j * lanes * size)
                    b.append(f.load(place, many, size) if full else
                             masked_load(f, place, masks[j], many, size))  # fmt: skip
                right.set(f.offset(here, rhs_step))
                for i, each in enumerate(rows):
                    where = each.get()
                    a = f.splat(
                        f.load(f.offset(where, u * size if near else 0), self.numbers.type), lanes
                    )
                    if not near:
                        each.set(f.offset(where, step))
                    for j in range(self.width):
                        new = self.numbers.add_product(f, self.machine, a, b[j], sums[i][j].get())
                        sums[i][j].set(new)

            whole = inner - inner % UNROLLED if near else f.value(0, "i64")
            for start, stop, unrolled in ((0, whole, UNROLLED), (whole, inner, 1)):
                if unrolled > 1 and not near:
                    continue
                with f.loop(start, stop, unrolled):
                    for u in range(unrolled):
                        one(u)
                    if near:
                        for each in rows:
                            each.set(f.offset(each.get(), unrolled * size))
            for i in range(self.height):
                start = f.offset(out, out_row * i)
                for j in range(self.width):
                    at = f.offset(start, j * lanes * size)
                    if full:
                        f.store(sums[i][j].get(), at, size)
                    else:
                        masked_store(f, sums[i][j].get(), at, masks[j], size)

        def either(full: bool) -> None:
            f.choose(step.is_("eq", size), lambda: sweep(True, full), lambda: sweep(False, full))

        if self.machine.vector_bytes == 64:
            either(False)
        else:
            whole = columns.is_("uge", lanes * self.width)
            f.choose(whole, lambda: either(True), lambda: either(False))
        f.leave()

    @staticmethod
    def _prefetch(f: Function, at: Value) -> None:
        f.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
        f.do(f"call void @llvm.prefetch.p0(ptr {at}, i32 0, i32 3, i32 1)")
