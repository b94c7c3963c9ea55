"""Patches read where they lie: products that pack nothing of the image.

Where the innermost steps of a patch are neighbours and none of them is checked (the channels of a
pixel), a line of a segment is a run of memory, or all of it lies outside and is a run of zeros. A
table of where the runs begin is made for some rows, and tiles read them from there. Numbers are
summed in the same order as if they were packed.
"""

from shardir.backends.cpu.native.contraction.einsum import Product
from shardir.backends.cpu.native.contraction.elements import Arithmetic
from shardir.backends.cpu.native.contraction.packing import zeros
from shardir.backends.cpu.native.contraction.tile import Tile, TileSums, for_each_step
from shardir.backends.cpu.native.llvm.target import Machine
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value, vector

RUN = 8
"""Neighbouring steps that there should be: each run costs something on its own."""
DISTANCE = 4096
"""Bytes that lines may be apart; further ones would compete for places in the nearest cache."""
COLUMNS = 2048
"""Bytes of columns up to which it is the better way; more make up for packing."""


def readable(work: Product) -> bool:
    """Whether the left operand is patches that are better read where they lie."""
    if not (work.patches and work.patches.side == "lhs" and work.inner and work.rows):
        return False
    run, item = work.inner[-1], work.out.itemsize
    return (
        work.lhs.dtype == work.out.dtype
        and work.out.dtype in ("f32", "f64")
        and run.lhs == item
        and not any(run.steps)
        and run.extent >= RUN
        and abs(work.rows[-1].lhs) <= DISTANCE
        and work.sizes[2] * item <= COLUMNS
    )


def lanes_of(lines: int) -> int:
    """Places that the table has for the lines of a panel."""
    return 1 << (lines - 1).bit_length()


def emit_starts(
    module: Module, name: str, lines: int, longest: int, numbers: Arithmetic, checks: int,
    apart: int,
) -> None:  # fmt: skip
    """`name(starts, base, offsets, count, segments, parts, positions, bounds)`.

    Writes where the lines of each panel begin in each segment: `lanes_of(lines)` addresses. Other
    parameters are those of `emit_patches`.
    """
    params = ["ptr noalias", "ptr readonly", "ptr noalias readonly", "i64",
              "ptr noalias readonly", "i64", "ptr noalias readonly",
              "ptr noalias readonly"]  # fmt: skip
    f = Function(module, name, params, attributes=APART, internal=True)
    starts, base, offsets, count, segments, parts, positions, bounds = f.params
    lanes = lanes_of(lines)
    many = vector("i64", lanes)
    nothing = f.splat(zeros(f, name, longest * numbers.size).to("i64", "ptrtoint"), lanes)
    origin = f.splat(base.to("i64", "ptrtoint"), lanes)
    extents = [f.splat(f.load(f.offset(bounds, 16 * d + 8), "i64"), lanes) for d in range(checks)]
    firsts = [f.load(f.offset(bounds, 16 * d), "i64") for d in range(checks)]
    place = f.variable("ptr", starts)
    with f.loop(0, count, lines) as first:
        here = f.least(count - first, lines)
        numbered = ", ".join(f"i64 {lane}" for lane in range(lanes))
        exist = f.emit(f"icmp slt {many} <{numbered}>, {f.splat(here, lanes)}", vector("i1", lanes))
        begin = origin + f.load(f.offset(offsets, first, "i64"), many, 8)
        where = [
            f.load(f.offset(f.offset(positions, d * apart), first, "i64"), many, 8)
            + f.splat(firsts[d], lanes)
            for d in range(checks)
        ]
        with f.loop(0, parts) as number:
            entry = f.offset(segments, number * (16 + 8 * checks))
            valid = exist
            for d, (lines_at, extent) in enumerate(zip(where, extents, strict=True)):
                step = f.load(f.offset(entry, 16 + 8 * d), "i64")
                valid = valid & (lines_at + f.splat(step, lanes)).is_("ult", extent)
            there = begin + f.splat(f.load(entry, "i64"), lanes)
            f.store(f.select(valid, there, nothing), place.get(), 8)
            place.set(f.offset(place.get(), 8 * lanes))
    f.leave()


def emit_straight_tile(
    module: Module, name: str, tile: Tile, packed: Tile, numbers: Arithmetic, machine: Machine,
    checks: int,
) -> None:  # fmt: skip
    """`name(parts, segments, starts, rhs, out, offsets, rows, columns, adding)`.

    As `emit_tile`, with the lines of each segment where `starts` says.
    """
    params = ["i64", "ptr noalias readonly", "ptr noalias readonly", "ptr noalias readonly",
              "ptr noalias", "ptr noalias readonly", "i64", "i64", "i1"]  # fmt: skip
    f = Function(module, name, params, attributes=APART, internal=True)
    parts, segments, starts, rhs, *place = f.params
    sums = TileSums(f, tile, packed, numbers, machine)
    right, table = f.variable("ptr", rhs), f.variable("ptr", starts)
    with f.loop(0, parts) as number:
        entry = f.offset(segments, number * (16 + 8 * checks))
        length = f.load(f.offset(entry, 8), "i64")
        lines = [f.load(f.offset(table.get(), 8 * i), "ptr") for i in range(tile.height)]

        def step(k: Value, lines: list[Value] = lines) -> None:
            here = right.get()
            sums.ask_ahead(here)
            sums.add([[f.offset(line, k * numbers.size) for line in lines]], here)
            right.set(f.offset(here, packed.columns * numbers.size))

        for_each_step(sums, place, length, step)
        table.set(f.offset(table.get(), 8 * lanes_of(packed.height)))
    sums.write(place)
    f.leave()
