"""Implicit GEMM with patches as left operand: tiles read the image in place.

If the innermost steps of a patch are contiguous (the channels of a pixel or, with few channels, a
row of a window), a line of a segment is a contiguous run, or all of it is outside and is read from
a run of zeros. Runs that are partly inside are copied, with zeros around them. A table of the start
addresses of runs is built for some rows, from which tiles load them. The summation order is the
same as for packed patches. Steps may be groups of steps of the size of an f32 (`grouped_steps`).
"""

from collections.abc import Iterator
from contextlib import contextmanager

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
    lane_count as lanes_in,
    vector_type,
)
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES
from shardir.backends.cpu.kernels.conv.tuning import (
    MAX_COLUMN_BYTES,
    MAX_LINE_DISTANCE_BYTES,
    MIN_RUN_STEPS,
)
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct
from shardir.backends.cpu.kernels.gemm.microkernel import (
    RegisterTile,
    TileAccumulators,
    masked_load,
)
from shardir.backends.cpu.kernels.gemm.packing import zeros_constant


def is_lhs_readable_in_place(work: MatrixProduct) -> bool:
    """Return whether the left operand is patches that tiles should read in place."""
    arith = work.arithmetic
    is_grouped = work.grouped is not None and not work.packs_groups and not arith.has_tiles
    return (
        work.lhs.dtype == (arith.dtype if is_grouped else work.out.dtype)
        and work.lhs.dtype in ("f32", "f64")
        and has_readable_runs(work)
    )


def has_readable_runs(work: MatrixProduct) -> bool:
    """Return whether the left operand is patches whose innermost K steps are contiguous runs."""
    if not (work.patches and work.patches.side == "lhs" and work.inner and work.rows):
        return False
    run, item = work.inner[-1], work.lhs.itemsize
    return (
        run.lhs == item
        and sorted(run.position_strides)[:-1] == [0] * (len(run.position_strides) - 1)
        and max(run.position_strides, default=0) <= 1
        and run.extent >= MIN_RUN_STEPS
        and abs(work.rows[-1].lhs) <= MAX_LINE_DISTANCE_BYTES
        and work.sizes[2] * item <= MAX_COLUMN_BYTES
    )


def find_run_dim(work: MatrixProduct) -> int:
    """Return the checked dimension along which the innermost K steps run; -1 if there is none."""
    return next((d for d, step in enumerate(work.inner[-1].position_strides) if step), -1)


def starts_per_panel(lines: int) -> int:
    """Return the number of table entries for the lines of a panel."""
    return 1 << (lines - 1).bit_length()


def emit_starts(
    module: LLVMModule, name: str, lines: int, longest: int, arith: Arithmetic, checks: int,
    table_stride: int, along: int,
) -> None:  # fmt: skip
    """Emit `name(starts, base, offsets, count, segments, parts, positions, bounds)`.

    The function writes the start addresses of the lines of each panel in each segment:
    `starts_per_panel(lines)` addresses. Steps of a segment run along the dimension `along` (-1:
    none), element by element; copies of lines that are partly inside follow the addresses. The
    other parameters are those of `emit_im2col`.
    """
    params = ["ptr noalias", "ptr readonly", "ptr noalias readonly", "i64",
              "ptr noalias readonly", "i64", "ptr noalias readonly",
              "ptr noalias readonly"]  # fmt: skip
    f = add_outlined_function(module, name, params)
    starts, base, offsets, count, segments, parts, positions, bounds = f.params
    lanes = starts_per_panel(lines)
    many = vector_type("i64", lanes)
    zero_run = f.splat(zeros_constant(f, name, longest * arith.size).to("i64", "ptrtoint"), lanes)
    origin = f.splat(base.to("i64", "ptrtoint"), lanes)
    extents = [f.splat(f.load(f.offset(bounds, 16 * d + 8), "i64"), lanes) for d in range(checks)]
    firsts = [f.load(f.offset(bounds, 16 * d), "i64") for d in range(checks)]
    place = f.variable("ptr", starts)
    panels = (count + (lines - 1)) // lines
    copies = f.variable("ptr", f.offset(starts, panels * parts * (8 * lanes)))
    with f.loop(0, count, lines) as first:
        here = f.umin(count - first, lines)
        numbered = ", ".join(f"i64 {lane}" for lane in range(lanes))
        exist = f.emit(
            f"icmp slt {many} <{numbered}>, {f.splat(here, lanes)}", vector_type("i1", lanes)
        )
        begin = origin + f.load(f.offset(offsets, first, "i64"), many, 8)
        where = [
            f.load(f.offset(f.offset(positions, d * table_stride), first, "i64"), many, 8)
            + f.splat(firsts[d], lanes)
            for d in range(checks)
        ]
        with f.loop(0, parts) as number:
            entry = f.offset(segments, number * (16 + 8 * checks))
            valid, distance = exist, f.load(entry, "i64")
            places = [
                lines_at + f.splat(f.load(f.offset(entry, 16 + 8 * d), "i64"), lanes)
                for d, lines_at in enumerate(where)
            ]
            for d, (at, extent) in enumerate(zip(places, extents, strict=True)):
                if d != along:
                    valid = valid & at.is_("ult", extent)
            there = begin + f.splat(distance, lanes)
            if along < 0:
                f.store(f.select(valid, there, zero_run), place.get(), 8)
            else:
                length, at, extent = (
                    f.load(f.offset(entry, 8), "i64"),
                    places[along],
                    extents[along],
                )
                end = at + f.splat(length, lanes)
                whole = at.is_("sge", 0) & end.is_("sle", extent)
                partly = valid & ~whole & end.is_("sgt", 0) & at.is_("slt", extent)
                f.store(f.select(valid & whole, there, zero_run), place.get(), 8)
                size = f.load(f.offset(bounds, 16 * along + 8), "i64")
                with _for_each_lane(f, partly) as lane:
                    line = f.load(f.offset(offsets, first + lane, "i64"), "i64")
                    table = f.offset(positions, along * table_stride)
                    start = f.load(f.offset(table, first + lane, "i64"), "i64") + firsts[along]
                    start = start + f.load(f.offset(entry, 16 + 8 * along), "i64")
                    source, to = f.offset(f.offset(base, line), distance), copies.get()
                    _copy_partial_run(f, arith, source, to, length, start, size)
                    f.store(to, f.offset(place.get(), lane, "i64"))
                    copies.set(f.offset(to, length * arith.size))
            place.set(f.offset(place.get(), 8 * lanes))
    f.ret()


@contextmanager
def _for_each_lane(f: LLVMFunction, mask: LLVMValue) -> Iterator[LLVMValue]:
    """Emit the body in a loop over the set lanes of a mask."""
    lanes = lanes_in(mask.type)
    left = f.variable("i64", mask.to(f"i{lanes}", "bitcast").to("i64", "zext"))
    with f.while_(lambda: left.get().is_("ne", 0)):
        now = left.get()
        yield f.call("llvm.cttz.i64", [now, f.value(1, "i1")], "i64")
        left.set(now & (now - 1))
    f.module.declare("llvm.cttz.i64", "i64", ["i64", "i1"])


def _copy_partial_run(
    f: LLVMFunction,
    arith: Arithmetic,
    source: LLVMValue,
    to: LLVMValue,
    length: LLVMValue,
    start: LLVMValue,
    size: LLVMValue,
) -> None:
    """Copy elements whose positions, from `start` on, are in `[0, size)`; others are zero. The
    elements after them in the last vector are overwritten later."""
    many = f.machine.lanes(arith.size)
    type, places = vector_type(arith.type, many), vector_type("i64", many)
    numbered = LLVMValue(f"<{', '.join(f'i64 {lane}' for lane in range(many))}>", places, f)
    with f.loop(0, length, many) as j:
        steps = f.splat(j, many) + numbered
        exist = steps.is_("ult", f.splat(length, many))
        exist = exist & (steps + f.splat(start, many)).is_("ult", f.splat(size, many))
        at = f.offset(source, j * arith.size)
        some = masked_load(f, at, exist, type, arith.size)
        f.store(some, f.offset(to, j * arith.size), arith.size)


def emit_in_place_lhs_tile(
    module: LLVMModule,
    name: str,
    tile: RegisterTile,
    packed: RegisterTile,
    arith: Arithmetic,
    checks: int,
) -> None:
    """Emit `name(parts, segments, starts, later, rhs, out, offsets, rows, columns, adding)`.

    The function computes a tile as in `emit_tile`, with the lines of each segment at the addresses
    in `starts`. The lines at those in `later`, which are read next, are prefetched.
    """
    params = ["i64", "ptr noalias readonly", "ptr readonly", "ptr readonly",
              "ptr noalias readonly", "ptr noalias", "ptr noalias readonly",
              "i64", "i64", "i1"]  # fmt: skip
    f = add_outlined_function(module, name, params)
    parts, segments, starts, later, rhs, *place = f.params
    sums = TileAccumulators(f, tile, packed, arith)
    right, table, ahead = (f.variable("ptr", at) for at in (rhs, starts, later))
    table_lines = starts_per_panel(packed.height)
    # With each segment, some rows of the result are prefetched before they are written.
    many = f.intrinsic("smax", parts, f.value(1, "i64"))
    prefetched_rows = (many + (tile.height - 1)) // many
    with f.loop(0, parts) as number:
        entry = f.offset(segments, number * (16 + 8 * checks))
        length = f.load(f.offset(entry, 8), "i64")
        lines = [f.load(f.offset(table.get(), 8 * i), "ptr") for i in range(tile.height)]

        with f.loop(
            number * prefetched_rows, f.umin((number + 1) * prefetched_rows, tile.height)
        ) as row:
            sums.prefetch_row(place, row)
        with f.loop(0, length) as k:
            here = right.get()
            sums.prefetch_columns(here)
            _prefetch_line(f, ahead.get(), k, table_lines, arith)
            sums.add([[f.offset(line, k * arith.size) for line in lines]], sums.columns_at(here))
            right.set(f.offset(here, packed.columns * arith.size))
        for addresses in (table, ahead):
            addresses.set(f.offset(addresses.get(), 8 * table_lines))
    sums.write(place)
    f.ret()


def _prefetch_line(
    f: LLVMFunction, starts: LLVMValue, k: LLVMValue, count: int, arith: Arithmetic
) -> None:
    """Prefetch the elements of steps near `k` of one of `count` lines, at the addresses in
    `starts`; `count` adjacent steps prefetch their elements of all lines.

    The processor does not detect that so many lines are read in order: images of 13 MB that are not
    in the second-level cache take 1.09 of the time without prefetches (Zen 5).
    """
    line = k & (count - 1)
    start = f.load(f.offset(starts, line, "i64"), "ptr")
    here = f.offset(start, (k - line) * arith.size)
    for at in range(0, count * arith.size, CACHE_LINE_BYTES):
        prefetch(f, f.offset(here, at))
