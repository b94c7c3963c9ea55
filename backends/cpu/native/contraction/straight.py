"""Implicit GEMM with patches as left operand: tiles read the image in place.

If the innermost steps of a patch are contiguous (the channels of a pixel or, with few channels, a
row of a window), a line of a segment is a contiguous run, or all of it is outside and is read from
a run of zeros. Runs that are partly inside are copied, with zeros around them. A table of the start
addresses of runs is built for some rows, from which tiles load them. The summation order is the
same as for packed patches.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from shardir.backends.cpu.native.contraction.einsum import Product
from shardir.backends.cpu.native.contraction.elements import Arithmetic
from shardir.backends.cpu.native.contraction.packing import zeros
from shardir.backends.cpu.native.contraction.tile import (
    Tile,
    TileSums,
    masked_load,
)
from shardir.backends.cpu.native.llvm.target import Machine, host
from shardir.backends.cpu.native.llvm.text import (
    APART,
    Function,
    Module,
    Value,
    lanes as lanes_in,
    vector,
)

RUN = 8
"""Minimum contiguous steps, since each run has a fixed cost."""
DISTANCE = 4096
"""Maximum bytes between lines; lines further apart would conflict in the L1 cache."""
COLUMNS = 2048
"""Maximum bytes of columns; more columns amortize packing."""


def readable(work: Product) -> bool:
    """Return whether the left operand is patches that should be read in place."""
    if not (work.patches and work.patches.side == "lhs" and work.inner and work.rows):
        return False
    run, item = work.inner[-1], work.out.itemsize
    return (
        work.lhs.dtype == work.out.dtype
        and work.out.dtype in ("f32", "f64")
        and run.lhs == item
        and sorted(run.steps)[:-1] == [0] * (len(run.steps) - 1)
        and max(run.steps, default=0) <= 1
        and run.extent >= RUN
        and abs(work.rows[-1].lhs) <= DISTANCE
        and work.sizes[2] * item <= COLUMNS
    )


def walked(work: Product) -> int:
    """Return the checked dimension along which the innermost K steps run; -1 if there is none."""
    return next((d for d, step in enumerate(work.inner[-1].steps) if step), -1)


def lanes_of(lines: int) -> int:
    """Return the number of table entries for the lines of a panel."""
    return 1 << (lines - 1).bit_length()


def emit_starts(
    module: Module, name: str, lines: int, longest: int, arith: Arithmetic, checks: int,
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
    f = Function(module, name, params, attributes=APART, internal=True)
    starts, base, offsets, count, segments, parts, positions, bounds = f.params
    lanes = lanes_of(lines)
    many = vector("i64", lanes)
    zero_run = f.splat(zeros(f, name, longest * arith.size).to("i64", "ptrtoint"), lanes)
    origin = f.splat(base.to("i64", "ptrtoint"), lanes)
    extents = [f.splat(f.load(f.offset(bounds, 16 * d + 8), "i64"), lanes) for d in range(checks)]
    firsts = [f.load(f.offset(bounds, 16 * d), "i64") for d in range(checks)]
    place = f.variable("ptr", starts)
    panels = (count + (lines - 1)) // lines
    copies = f.variable("ptr", f.offset(starts, panels * parts * (8 * lanes)))
    with f.loop(0, count, lines) as first:
        here = f.least(count - first, lines)
        numbered = ", ".join(f"i64 {lane}" for lane in range(lanes))
        exist = f.emit(f"icmp slt {many} <{numbered}>, {f.splat(here, lanes)}", vector("i1", lanes))
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
                with _each(f, partly) as lane:
                    line = f.load(f.offset(offsets, first + lane, "i64"), "i64")
                    table = f.offset(positions, along * table_stride)
                    start = f.load(f.offset(table, first + lane, "i64"), "i64") + firsts[along]
                    start = start + f.load(f.offset(entry, 16 + 8 * along), "i64")
                    source, to = f.offset(f.offset(base, line), distance), copies.get()
                    _copy(f, arith, source, to, length, start, size)
                    f.store(to, f.offset(place.get(), lane, "i64"))
                    copies.set(f.offset(to, length * arith.size))
            place.set(f.offset(place.get(), 8 * lanes))
    f.leave()


@contextmanager
def _each(f: Function, mask: Value) -> Iterator[Value]:
    """Emit the body in a loop over the set lanes of a mask."""
    lanes = lanes_in(mask.type)
    left = f.variable("i64", mask.to(f"i{lanes}", "bitcast").to("i64", "zext"))
    with f.while_(lambda: left.get().is_("ne", 0)):
        now = left.get()
        yield f.call("llvm.cttz.i64", [now, f.value(1, "i1")], "i64")
        left.set(now & (now - 1))
    f.module.declare("llvm.cttz.i64", "i64", ["i64", "i1"])


def _copy(
    f: Function, arith: Arithmetic, source: Value, to: Value, length: Value, start: Value,
    size: Value,
) -> None:  # fmt: skip
    """Copy elements whose positions, from `start` on, are in `[0, size)`; others are zero. The
    elements after them in the last vector are overwritten later."""
    many = host().lanes(arith.size)
    type, places = vector(arith.type, many), vector("i64", many)
    numbered = Value(f"<{', '.join(f'i64 {lane}' for lane in range(many))}>", places, f)
    with f.loop(0, length, many) as j:
        steps = f.splat(j, many) + numbered
        exist = steps.is_("ult", f.splat(length, many))
        exist = exist & (steps + f.splat(start, many)).is_("ult", f.splat(size, many))
        at = f.offset(source, j * arith.size)
        some = masked_load(f, at, exist, type, arith.size)
        f.store(some, f.offset(to, j * arith.size), arith.size)


def emit_straight_tile(
    module: Module, name: str, tile: Tile, packed: Tile, arith: Arithmetic, machine: Machine,
    checks: int,
) -> None:  # fmt: skip
    """Emit `name(parts, segments, starts, rhs, out, offsets, rows, columns, adding)`.

    The function computes a tile as in `emit_tile`, with the lines of each segment at the addresses
    in `starts`.
    """
    params = ["i64", "ptr noalias readonly", "ptr noalias readonly", "ptr noalias readonly",
              "ptr noalias", "ptr noalias readonly", "i64", "i64", "i1"]  # fmt: skip
    f = Function(module, name, params, attributes=APART, internal=True)
    parts, segments, starts, rhs, *place = f.params
    sums = TileSums(f, tile, packed, arith, machine)
    right, table = f.variable("ptr", rhs), f.variable("ptr", starts)
    # With each segment, some rows of the result are prefetched before they are written.
    many = f.intrinsic("smax", parts, f.value(1, "i64"))
    asked = (many + (tile.height - 1)) // many
    with f.loop(0, parts) as number:
        entry = f.offset(segments, number * (16 + 8 * checks))
        length = f.load(f.offset(entry, 8), "i64")
        lines = [f.load(f.offset(table.get(), 8 * i), "ptr") for i in range(tile.height)]

        with f.loop(number * asked, f.least((number + 1) * asked, tile.height)) as row:
            sums.ask_for_row(place, row)
        with f.loop(0, length) as k:
            here = right.get()
            sums.ask_ahead(here)
            sums.add([[f.offset(line, k * arith.size) for line in lines]], sums.columns_at(here))
            right.set(f.offset(here, packed.columns * arith.size))
        table.set(f.offset(table.get(), 8 * lanes_of(packed.height)))
    sums.write(place)
    f.leave()
