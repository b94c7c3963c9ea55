"""Packing: copies elements of an operand to the order in which the micro-kernel reads them.

An operand is a matrix of lines and K steps. A line is a row of the left operand or a column of the
right one. Lines may begin anywhere (a table of offsets); steps form segments of constant stride (a
table of offsets and lengths). A panel has as many lines as the tile; for each step it holds one
element of each line, and zeros for missing lines.
"""

from math import gcd

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic, load_widened, widen
from shardir.backends.cpu.kernels.gemm.microkernel import lane_mask, masked_load
from shardir.backends.cpu.kernels.gemm.tuning import (
    MAX_INTERLEAVED_PANELS,
    PACK_PREFETCH_STEPS,
    STEPS_PER_LINE,
)
from shardir.ir.types import NUMPY_DTYPES

SEGMENT_ENTRY_BYTES = 16
"""Bytes of an entry of the segment table: offset and length."""

CONTIGUOUS_FUNCTION = "neighbours"


def emit_pack(module: LLVMModule, dtype: str, arith: Arithmetic, most: int, longest: int) -> None:
    """Emit `pack_{dtype}(packed, base, offsets, count, segments, parts, steps, stride, lines,
    several, across)`.

    The function packs `count` lines that begin `offsets[i]` bytes after `base`, in panels of
    `lines` lines and `steps` steps, which form `parts` segments; steps of a segment are `stride`
    bytes apart. For contiguous lines, the function `across` (see `emit_pack_contiguous_lines`)
    packs `several` panels together. `most` is the maximum of `lines`, `longest` the maximum of
    `steps`.
    """
    item = NUMPY_DTYPES[dtype].itemsize
    name = f"pack_{dtype}"
    emit_pack_separate_lines(module, dtype, arith)
    params = ["ptr noalias", "ptr readonly", "ptr noalias readonly", "i64",
              "ptr noalias readonly", "i64", "i64", "i64", "i64", "i64", "ptr"]  # fmt: skip
    f = add_outlined_function(module, name, params)
    packed, base, offsets, count, segments, parts, steps, stride, lines, several, across = f.params
    starts, line_strides = (f.variable(f"[{most} x i64]").address for _ in range(2))
    zero_line = zeros_constant(f, name, longest * item)
    row = lines * arith.size
    place, done = f.variable("ptr", packed), f.variable("i64", 0)
    with f.while_(lambda: done.get().is_("slt", count)):
        first = done.get()
        table, rest = f.offset(offsets, first, "i64"), count - first
        here = f.umin(rest, lines)
        whole, contiguous = rest.is_("uge", lines), emit_is_contiguous(f, table, here, item)
        many = f.umin(rest // lines, several)
        panels = f.select(whole & emit_is_contiguous(f, table, many * lines, item), many, 1)
        part = f.variable("ptr", place.get())
        with f.loop(0, parts) as number:
            entry = f.offset(segments, number * SEGMENT_ENTRY_BYTES)
            length = f.load(f.offset(entry, 8), "i64")
            origin = f.offset(base, f.load(entry, "i64"))

            def panels_across(length: LLVMValue = length, origin: LLVMValue = origin) -> None:
                start = f.offset(origin, f.load(table, "i64"))
                rows = f.select(whole, panels, 0)
                args = [part.get(), start, length, stride, rows, steps * row, here]
                f.call(str(across), args)

            def pack_strided(length: LLVMValue = length, origin: LLVMValue = origin) -> None:
                with f.loop(0, lines) as i:
                    exists = i.is_("ult", here)
                    there = f.offset(origin, f.load(f.offset(table, i, "i64"), "i64"))
                    f.store(f.select(exists, there, zero_line), f.offset(starts, i, "ptr"))
                    f.store(f.select(exists, stride, 0), f.offset(line_strides, i, "i64"))
                next = f.select(rest.is_("ugt", lines), lines, 0)
                ahead = f.load(f.offset(table, next, "i64"), "i64") - f.load(table, "i64")
                steps_of = [f.value(0, "i64"), length, ahead]
                f.call(
                    f"pack_separate_{dtype}",
                    [part.get(), starts, line_strides, stride, lines, *steps_of],
                )

            f.if_else(
                contiguous if arith.planes == 1 else contiguous & whole, panels_across, pack_strided
            )
            part.set(f.offset(part.get(), length * row))
        place.set(f.offset(place.get(), panels * steps * row))
        done.set(first + panels * lines)
    f.ret()


def zeros_constant(f: LLVMFunction, name: str, nbytes: int) -> LLVMValue:
    """Return the address of a constant of zeros, from which missing lines are read."""
    f.module.declarations.setdefault(
        f"@{name}_zeros = internal constant [{nbytes} x i8] zeroinitializer, align 64"
    )
    return LLVMValue(f"@{name}_zeros", "ptr", f)


def panels_per_cache_line(nbytes: int) -> int:
    """Return the number of panels of contiguous lines that fill cache lines, so that each cache
    line is read once."""
    return min(CACHE_LINE_BYTES // gcd(nbytes, CACHE_LINE_BYTES), MAX_INTERLEAVED_PANELS)


def emit_is_contiguous(f: LLVMFunction, table: LLVMValue, count: LLVMValue, item: int) -> LLVMValue:
    """Emit a call that returns whether `count` lines are contiguous in memory."""
    if all(each.name != CONTIGUOUS_FUNCTION for each in f.module.functions):
        _emit_contiguous_function(f.module)
    return f.call(CONTIGUOUS_FUNCTION, [table, count, f.value(item, "i64")], "i1")


def _emit_contiguous_function(module: LLVMModule) -> None:
    params = ["ptr noalias readonly", "i64", "i64"]
    f = add_outlined_function(module, CONTIGUOUS_FUNCTION, params, "i1")
    table, count, item = f.params
    expected = f.variable("i64", f.load(table, "i64"))
    wrong = f.variable("i64", 0)
    with f.loop(0, count) as i:
        wrong.set(wrong.get() | (f.load(f.offset(table, i, "i64"), "i64") ^ expected.get()))
        expected.set(expected.get() + item)
    f.ret(wrong.get().is_("eq", 0))


def emit_pack_contiguous_lines(
    module: LLVMModule, name: str, lines: int, dtype: str, arith: Arithmetic
) -> None:
    """Emit `name(packed, start, length, stride, panels, panel_distance, count)` for contiguous
    lines.

    Each step is copied as it is to `panels` panels of `lines` lines that are `panel_distance` bytes
    apart; if `panels` is 0, to one panel that has `count` lines.
    """
    params = ["ptr noalias", "ptr noalias readonly", "i64", "i64", "i64", "i64", "i64"]
    f = add_outlined_function(module, name, params)
    packed, start, length, stride, panels, panel_distance, count = f.params
    place, source = f.variable("ptr", packed), f.variable("ptr", start)
    widest = max(1, 64 // arith.plane_bytes)
    item = NUMPY_DTYPES[dtype].itemsize
    pieces, done = [], 0
    while done < lines:
        pieces.append((done, min(widest, 1 << (lines - done).bit_length() - 1)))
        done += pieces[-1][1]
    masks = [lane_mask(f, count - done, many) for done, many in pieces if arith.planes == 1]
    with f.loop(0, length):
        to, there = f.variable("ptr", place.get()), f.variable("ptr", source.get())
        with f.loop(0, panels):
            for line in range(0, lines * item, CACHE_LINE_BYTES):
                prefetch(f, f.offset(there.get(), stride * PACK_PREFETCH_STEPS + line))
            for done, many in pieces:
                at = f.offset(there.get(), done * item)
                for p, plane in enumerate(load_widened(f, at, dtype, arith, many)):
                    step = f.offset(to.get(), (p * lines + done) * arith.plane_bytes)
                    f.store(plane, step, arith.plane_bytes)
            to.set(f.offset(to.get(), panel_distance))
            there.set(f.offset(there.get(), lines * item))
        if masks:
            with f.when(panels.is_("eq", 0)):
                for (done, many), mask in zip(pieces, masks, strict=True):
                    at, type = (
                        f.offset(source.get(), done * item),
                        vector_type(MEMORY_TYPES[dtype], many),
                    )
                    loaded = masked_load(f, at, mask, type, item)
                    new = widen(f, loaded, dtype, arith)
                    f.store(new, f.offset(place.get(), done * arith.plane_bytes), arith.plane_bytes)
        place.set(f.offset(place.get(), lines * arith.size))
        source.set(f.offset(source.get(), stride))
    f.ret()


def emit_interleave_steps(module: LLVMModule, name: str, lines: int) -> None:
    """Emit `name(packed, count)`: interleave the elements of each two steps of panels of `lines`
    lines, `count` steps in all, whose elements have 16 bits."""
    f = add_outlined_function(module, name, ["ptr", "i64"])
    packed, count = f.params
    type, row = vector_type("i16", lines), 2 * lines
    with f.loop(0, count, 2) as step:
        at = f.offset(packed, step * row)
        first, second = f.load(at, type, 2), f.load(f.offset(at, row), type, 2)
        order = [place for line in range(lines) for place in (line, lines + line)]
        f.store(f.shuffle(first, second, order), at, 2)
    f.ret()


def emit_pack_separate_lines(module: LLVMModule, dtype: str, arith: Arithmetic) -> None:
    """Emit `pack_separate_{dtype}(packed, starts, line_strides, stride, lines, first, last,
    ahead)`.

    The function packs a panel of lines that begin at `starts`, from step `first`: line i advances
    `line_strides[i]` bytes per step, which is `stride`, or 0 for a missing line. If steps are
    contiguous, squares of lines and steps are transposed, as many together as a register has steps,
    and lines `ahead` bytes further on are prefetched; otherwise elements are copied one by one.
    Some steps of a line precede those of the next line, so that few cache lines are in use.
    Repeated calls emit the function once.
    """
    name = f"pack_separate_{dtype}"
    if any(each.name == name for each in module.functions):
        return
    params = ["ptr noalias", "ptr noalias readonly", "ptr noalias readonly", "i64", "i64", "i64",
              "i64", "i64"]  # fmt: skip
    f = add_outlined_function(module, name, params)
    packed, starts, line_strides, stride, lines, first, last, ahead = f.params
    item, row = NUMPY_DTYPES[dtype].itemsize, lines * arith.size
    few = 16 // arith.plane_bytes
    done = f.variable("i64", first)
    transposable = stride.is_("eq", item) & (lines % few).is_("eq", 0)

    def squares(many: int) -> None:
        """Transpose squares of `many` steps, from `done`, while at least `many` steps are left."""
        start = done.get()
        end = f.select(transposable & (last - start).is_("sge", many), last, start)
        with (
            f.loop(start, end, STEPS_PER_LINE) as begin,
            f.loop(0, lines, few) as line,
            f.loop(begin, f.umin(end, begin + STEPS_PER_LINE), many) as next,
        ):
            # The last square overlaps the one before it.
            k = f.umin(next, end - many)
            entries, rows = f.offset(starts, line, "ptr"), []
            for i in range(few):
                here = f.offset(f.load(f.offset(entries, 8 * i), "ptr"), k * item)
                rows += load_widened(f, here, dtype, arith, many)
                prefetch(f, f.offset(here, ahead))
            at = f.offset(packed, k * row + line * arith.size)
            for i, columns in enumerate(transpose_squares(f, rows, many // few)):
                for square in range(0, many, few):
                    column = columns
                    if many > few:
                        column = f.shuffle(columns, columns, range(square, square + few))
                    f.store(column, f.offset(at, row * (square + i)), arith.plane_bytes)
        done.set(end)

    if arith.planes == 1:
        for many in sorted({f.machine.lanes(arith.plane_bytes), few}, reverse=True):
            squares(many)
    with f.loop(done.get(), last, STEPS_PER_LINE) as begin, f.loop(0, lines) as line:
        start = f.load(f.offset(starts, line, "ptr"), "ptr")
        line_stride = f.load(f.offset(line_strides, line, "i64"), "i64")
        source = f.variable("ptr", f.offset(start, begin * line_stride))
        place = f.variable("ptr", f.offset(packed, begin * row + line * arith.plane_bytes))
        with f.loop(begin, f.umin(last, begin + STEPS_PER_LINE)):
            for p, plane in enumerate(load_widened(f, source.get(), dtype, arith, 1)):
                at = f.offset(place.get(), lines * (p * arith.plane_bytes))
                f.store(plane, at, arith.plane_bytes)
            source.set(f.offset(source.get(), line_stride))
            place.set(f.offset(place.get(), row))
    f.ret()


def transpose_squares(f: LLVMFunction, rows: list[LLVMValue], squares: int) -> list[LLVMValue]:
    """Return the columns of adjacent squares, by interleaving: each vector has a column of the
    first square, the same column of the next one, and so on."""
    size = len(rows)
    half = size // 2
    for _ in range(size.bit_length() - 1):
        masks = [
            [
                square + at + j + other
                for square in range(0, squares * size, size)
                for j in range(half)
                for other in (0, squares * size)
            ]
            for at in (0, half)
        ]
        rows = [f.shuffle(rows[i], rows[i + half], mask) for i in range(half) for mask in masks]
    return rows
