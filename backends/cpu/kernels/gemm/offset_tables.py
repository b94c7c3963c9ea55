"""Kernel functions that fill tables: offsets of lines, and segments of K steps.

Loops are read from a list of the record as (extent, stride) pairs, the innermost first.
"""

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.kernels.gemm.product_record import load_list

OFFSETS_FUNCTION = "offsets_of_lines"


def emit_offsets(module: LLVMModule) -> None:
    """Emit `offsets_of_lines(record, list, table, first, count)`: write line offsets in bytes."""
    params = ["ptr noalias readonly", "ptr noalias readonly", "ptr noalias", "i64", "i64"]
    f = add_outlined_function(module, OFFSETS_FUNCTION, params)
    record, list, table, first, count = f.params
    loops, number = load_list(f, record, list)
    extent, stride = (f.load(f.offset(loops, 8 * i), "i64") for i in range(2))
    several = number.is_("sgt", 1)
    runs, run_stride = (
        f.select(several, f.load(f.offset(loops, f.select(several, at, 0)), "i64"), single)
        for at, single in ((16, 1), (24, 0))
    )
    done = f.variable("i64", 0)
    with f.while_(lambda: done.get().is_("slt", count)):
        # Iterate over runs of the innermost two loops: divisions are slow.
        at = first + done.get()
        inside, rest = f.variable("i64", at % extent), f.variable("i64", at // extent // runs)
        run = f.variable("i64", at // extent % runs)
        start = f.variable("i64", inside.get() * stride + run.get() * run_stride)
        with f.loop(2, number) as level:
            entry = f.offset(loops, level * 16)
            size, index = f.load(entry, "i64"), rest.get()
            start.set(start.get() + index % size * f.load(f.offset(entry, 8), "i64"))
            rest.set(index // size)
        with f.while_(lambda: run.get().is_("slt", runs) & done.get().is_("slt", count)):
            now, before = done.get(), inside.get()
            end = f.umin(now + (extent - before), count)
            _write_sequence(f, table, now, end, start.get(), stride)
            start.set(start.get() + (run_stride - before * stride))
            inside.set(0)
            run.set(run.get() + 1)
            done.set(end)
    f.ret()


def _write_sequence(
    f: LLVMFunction,
    table: LLVMValue,
    first: LLVMValue,
    last: LLVMValue,
    start: LLVMValue,
    stride: LLVMValue,
) -> None:
    """Write the arithmetic sequence from `start` with step `stride`."""
    lanes = f.machine.lanes(8)
    numbered = LLVMValue(
        f"<{', '.join(f'i64 {i}' for i in range(lanes))}>", vector_type("i64", lanes), f
    )
    many = f.variable(numbered.type, f.splat(start, lanes) + numbered * f.splat(stride, lanes))
    whole = last - (last - first) % lanes
    with f.loop(first, whole, lanes) as i:
        f.store(many.get(), f.offset(table, i, "i64"), 8)
        many.set(many.get() + f.splat(stride * lanes, lanes))
    with f.loop(whole, last) as i:
        f.store(start + (i - first) * stride, f.offset(table, i, "i64"))


def emit_segments(module: LLVMModule, checks: int = 0) -> None:
    """Emit `segments_{checks}(record, list, table, first, count)`: return the number of segments.

    A segment is a run of the innermost loop of K steps; the table receives its offset and length.
    Loops may have `checks` further strides, of positions, which are written to the segments as
    well.
    """
    params = ["ptr noalias readonly", "ptr noalias readonly", "ptr noalias", "i64", "i64"]
    f = add_outlined_function(module, f"segments_{checks}", params, "i64")
    record, list, table, first, count = f.params
    loops, number = load_list(f, record, list)
    at, found, end = f.variable("i64", first), f.variable("i64", 0), first + count
    width = 16 + 8 * checks
    kinds = [0, *range(2, 2 + checks)]
    extent = f.load(loops, "i64")
    with f.while_(lambda: at.get().is_("slt", end)):
        now = at.get()
        inside = now % extent
        length = f.umin(extent - inside, end - now)
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
    f.ret(found.get())
