"""Tables that kernels make for themselves: where lines begin, and how steps lie.

Loops are read from a list of the record as pairs (extent, stride), the innermost first.
"""

from shardir.backends.cpu.native.contraction.record import loops_of
from shardir.backends.cpu.native.llvm.text import APART, Function, Module

OFFSETS = "offsets_of_lines"


def emit_offsets(module: Module) -> None:
    """`offsets_of_lines(record, list, table, first, count)`: where lines begin, in bytes."""
    params = ["ptr noalias readonly", "ptr noalias readonly", "ptr noalias", "i64", "i64"]
    f = Function(module, OFFSETS, params, attributes=APART, internal=True)
    record, list, table, first, count = f.params
    loops, number = loops_of(f, record, list)
    extent, stride = (f.load(f.offset(loops, 8 * i), "i64") for i in range(2))
    done = f.variable("i64", 0)
    with f.while_(lambda: done.get().is_("slt", count)):
        # A run of the innermost loop at a time, since divisions are slow.
        now = done.get()
        at = first + now
        inside, rest = at % extent, f.variable("i64", at // extent)
        offset = f.variable("i64", inside * stride)
        with f.loop(1, number) as level:
            entry = f.offset(loops, level * 16)
            size, index = f.load(entry, "i64"), rest.get()
            offset.set(offset.get() + index % size * f.load(f.offset(entry, 8), "i64"))
            rest.set(index // size)
        end = f.least(now + (extent - inside), count)
        with f.loop(now, end) as i:
            f.store(offset.get(), f.offset(table, i, "i64"))
            offset.set(offset.get() + stride)
        done.set(end)
    f.leave()


def emit_segments(module: Module, checks: int = 0) -> None:
    """`segments_{checks}(record, list, table, first, count)`: how many segments of steps there are.

    They are the runs of the innermost loop; the table gets their offsets and lengths. Loops may
    have further strides, `checks` of them: positions that segments get as well.
    """
    params = ["ptr noalias readonly", "ptr noalias readonly", "ptr noalias", "i64", "i64"]
    f = Function(module, f"segments_{checks}", params, "i64", attributes=APART, internal=True)
    record, list, table, first, count = f.params
    loops, number = loops_of(f, record, list)
    at, found, end = f.variable("i64", first), f.variable("i64", 0), first + count
    width = 16 + 8 * checks
    kinds = [0, *range(2, 2 + checks)]
    extent = f.load(loops, "i64")
    with f.while_(lambda: at.get().is_("slt", end)):
        now = at.get()
        inside = now % extent
        length = f.least(extent - inside, end - now)
        rest = f.variable("i64", now // extent)
        sums = [
            f.variable("i64", inside * f.load(f.offset(loops, 8 * max(kind, 1)), "i64"))
            for kind in kinds
        ]
        with f.loop(1, number) as level:
            entry = f.offset(loops, level * width)
            size = f.load(entry, "i64")
            index = rest.get() % size
            for kind, each in zip(kinds, sums, strict=True):
                step = f.load(f.offset(entry, 8 * max(kind, 1)), "i64")
                each.set(each.get() + index * step)
            rest.set(rest.get() // size)
        entry = f.offset(table, found.get() * width)
        f.store(length, f.offset(entry, 8))
        for kind, each in zip(kinds, sums, strict=True):
            f.store(each.get(), f.offset(entry, 8 * kind))
        found.set(found.get() + 1)
        at.set(now + length)
    f.leave(found.get())
