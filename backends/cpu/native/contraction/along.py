"""Narrow products whose operands both have their steps as neighbours: dot products.

Vectors of steps are multiplied and summed lane by lane, and the lanes at the end. A group of
`height` rows and `width` columns shares what is read. The result may lie anyhow.
"""

from functools import cache

from shardir.backends.cpu.native.contraction.elements import Arithmetic, arithmetic
from shardir.backends.cpu.native.contraction.record import Block, Reader, fitting_in
from shardir.backends.cpu.native.contraction.tile import masked_load, within
from shardir.backends.cpu.native.data import Kernel
from shardir.backends.cpu.native.llvm.target import Machine, host
from shardir.backends.cpu.native.llvm.text import (
    APART,
    Function,
    Module,
    Value,
    element,
    lanes,
    vector,
)

CHAINS = 8
"""How many sums are under way at least, so that additions need not wait for each other."""


@cache
def along_kernel(dtype: str, height: int, width: int) -> Kernel:
    """The kernel for groups of `height` rows and `width` columns."""
    name = f"along_{dtype}_{height}x{width}"
    return Kernel(name, lambda: _text(name, dtype, height, width))


def _text(name: str, dtype: str, height: int, width: int) -> str:
    module, machine, numbers = Module(), host(), arithmetic(dtype)
    heights = (height, 1) if height > 1 else (1,)
    widths = (width, 1) if width > 1 else (1,)
    for high in heights:
        for wide in widths:
            _emit_group(module, numbers, machine, high, wide)
    f = Function(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    r = Reader(f, record)
    block = Block(f, r, task)
    rows_in, rows_out, columns_in, columns_out = (
        f.load(f.offset(r.loops(name)[0], 8), "i64")
        for name in ("rows_lhs", "rows_out", "columns_rhs", "columns_out")
    )
    inner = r["inner"]
    with block.products(bases) as (lhs, rhs, out, _):
        column = f.variable("i64", 0)
        for wide in widths:
            with fitting_in(f, column, wide, block.columns) as at:
                j = block.first_column + at
                right, there = f.offset(rhs, j * columns_in), f.offset(out, j * columns_out)
                row = f.variable("i64", 0)
                for high in heights:
                    with fitting_in(f, row, high, block.rows) as top:
                        i = block.first_row + top
                        left, to = f.offset(lhs, i * rows_in), f.offset(there, i * rows_out)
                        f.call(
                            f"group{high}x{wide}",
                            [inner, left, rows_in, right, columns_in, to, rows_out, columns_out],
                        )
    f.leave()
    return module.text()


def _emit_group(
    module: Module, numbers: Arithmetic, machine: Machine, height: int, width: int
) -> None:
    """`group(inner, lhs, row, rhs, column, out, out_row, out_column)`."""
    params = ["i64", "ptr readonly", "i64", "ptr readonly", "i64", "ptr noalias", "i64", "i64"]
    f = Function(module, f"group{height}x{width}", params, attributes=APART, internal=True)
    inner, lhs, row, rhs, column, out, out_row, out_column = f.params
    many, size = machine.lanes(numbers.size), numbers.size
    type = vector(numbers.type, many)
    sets = max(1, -(-CHAINS // (height * width)))
    sums = [
        [[f.variable(type, 0) for _ in range(width)] for _ in range(height)] for _ in range(sets)
    ]
    rows = [f.variable("ptr", f.offset(lhs, row * i)) for i in range(height)]
    columns = [f.variable("ptr", f.offset(rhs, column * j)) for j in range(width)]

    def step(number: int, mask: Value | None = None) -> None:
        def read(address: Value) -> Value:
            at = f.offset(address, number * many * size)
            return masked_load(f, at, mask, type, size) if mask else f.load(at, type, size)

        right = [read(each.get()) for each in columns]
        for i, each in enumerate(rows):
            left = read(each.get())
            for j, b in enumerate(right):
                place = sums[number][i][j]
                place.set(numbers.add_product(f, machine, left, b, place.get()))

    def moved(count: int) -> None:
        for each in (*rows, *columns):
            each.set(f.offset(each.get(), count * many * size))

    whole, vectors = inner - inner % (sets * many), inner - inner % many
    with f.loop(0, whole, sets * many):
        for number in range(sets):
            step(number)
        moved(sets)
    with f.loop(whole, vectors, many):
        step(0)
        moved(1)
    with f.when(vectors.is_("slt", inner)):
        step(0, within(f, inner - vectors, many))
    for i in range(height):
        for j in range(width):
            total = sums[0][i][j].get()
            for others in sums[1:]:
                total = total + others[i][j].get()
            at = f.offset(f.offset(out, out_row * i), out_column * j)
            f.store(summed(f, total), at, size)
    f.leave()


def summed(f: Function, x: Value) -> Value:
    """The sum of the lanes, halves first."""
    while (count := lanes(x.type)) > 2:
        half = count // 2
        x = f.shuffle(x, x, range(half)) + f.shuffle(x, x, range(half, count))
    if lanes(x.type) == 1:
        return x
    lower, upper = (
        f.emit(f"extractelement {x.type} {x}, i64 {lane}", element(x.type)) for lane in (0, 1)
    )
    return lower + upper
