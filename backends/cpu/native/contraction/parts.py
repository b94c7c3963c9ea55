"""Sums of parts: a long sum with a small result is taken in parts, which other tasks add up."""

from functools import cache

from shardir.backends.cpu.native.contraction.elements import arithmetic, narrowed
from shardir.backends.cpu.native.contraction.record import Reader
from shardir.backends.cpu.native.data import Kernel
from shardir.backends.cpu.native.llvm.text import Function, Module, vector
from shardir.types import NUMPY_DTYPES


@cache
def parts_kernel(dtype: str) -> Kernel:
    """out[row, column] = sum over inner of lhs[inner, row, column], which lies dense."""
    name = f"parts_{dtype}"
    return Kernel(name, lambda: _text(name, dtype))


def _text(name: str, dtype: str) -> str:
    module, numbers = Module(), arithmetic(dtype)
    f = Function(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, _, _ = f.params
    r = Reader(f, record)
    source, out = r.address(bases, "lhs"), r.address(bases, "out")
    rows, columns, parts = r["rows"], r["columns"], r["inner"]
    type = vector(numbers.type, numbers.planes)
    far = rows * columns * numbers.size
    (row_loops, row_number), (loops, number) = r.loops("rows_out"), r.loops("columns_out")
    with f.loop(0, rows * columns) as i:
        start = f.offset(source, i * numbers.size)
        total = f.variable(type, f.load(start, type, numbers.part))
        with f.loop(1, parts) as part:
            total.set(total.get() + f.load(f.offset(start, part * far), type, numbers.part))
        place = f.variable("i64", 0)
        for start_of, count, index in (
            (row_loops, row_number, i // columns), (loops, number, i % columns),
        ):  # fmt: skip
            rest = f.variable("i64", index)
            with f.loop(0, count) as level:
                entry = f.offset(start_of, level * 16)
                extent, now = f.load(entry, "i64"), rest.get()
                place.set(place.get() + now % extent * f.load(f.offset(entry, 8), "i64"))
                rest.set(now // extent)
        at = f.offset(out, place.get())
        f.store(narrowed(f, total.get(), dtype), at, NUMPY_DTYPES[dtype].itemsize // numbers.planes)
    f.leave()
    return module.text()
