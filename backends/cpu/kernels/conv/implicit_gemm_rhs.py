"""Implicit GEMM with patches as right operand: tiles read the image in place.

If vectors of columns are contiguous in the image (the channels of a pixel, in gradients of grouped
or three-dimensional filters), a tile loads them from there, with zeros for elements outside. For
each segment of steps a table has the start address of each vector, the mask of its existing lanes,
and the range of steps for which it is inside. The summation order is the same as for packed
patches.
"""

from collections.abc import Callable

from shardir.backends.cpu.codegen.llvm_text import (
    OUTLINED_FUNCTION_ATTRIBUTES,
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    vector_type,
)
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.codegen.target import MachineDescription
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic, arithmetic_of
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct
from shardir.backends.cpu.kernels.gemm.microkernel import (
    RegisterTile,
    TileAccumulators,
    masked_load,
    tile_for,
)

WINDOW_ENTRY_BYTES = 32
"""Bytes of an entry of the table: address, first and last step inside, mask of lanes."""
MIN_SEGMENT_STEPS = 8
"""Minimum steps of a segment, since each segment has a fixed cost."""
MAX_STEP_DISTANCE_BYTES = 16384
"""Maximum bytes between steps; further steps would each be on another page of memory."""
IMAGE_PREFETCH_STEPS = 8
"""Prefetch distance in steps."""


def is_rhs_readable_in_place(work: MatrixProduct) -> bool:
    """Return whether the right operand is patches that should be read in place."""
    if not (work.patches and work.patches.side == "rhs" and work.inner and work.columns):
        return False
    if work.rhs.dtype != work.out.dtype or work.out.dtype not in ("f32", "f64"):
        return False
    run, near = work.inner[-1], work.columns[-1]
    tile = tile_for(arithmetic_of(work.out.dtype), work.machine)
    table_stride = [
        bool(a and b) for a, b in zip(run.position_strides, near.position_strides, strict=True)
    ]
    return (
        near.rhs == work.out.itemsize
        and near.extent % tile.lanes == 0
        and work.sizes[2] > tile.lanes
        and not any(table_stride)
        and sum(map(bool, run.position_strides)) <= 1
        and min(run.position_strides, default=0) >= 0
        and run.extent >= MIN_SEGMENT_STEPS
        and abs(run.rhs) <= MAX_STEP_DISTANCE_BYTES
    )


def emit_window_table(
    module: LLVMModule,
    name: str,
    tile: RegisterTile,
    arith: Arithmetic,
    checks: int,
    table_stride: int,
    along: int,
) -> None:
    """Emit `name(table, base, offsets, count, segments, parts, positions, bounds)`.

    The function writes an entry for each vector of each panel of `count` columns, for each segment.
    Steps run along the dimension `along` (-1: none). The other parameters are those of
    `emit_im2col`.
    """
    params = ["ptr noalias", "ptr readonly", "ptr noalias readonly", "i64",
              "ptr noalias readonly", "i64", "ptr noalias readonly",
              "ptr noalias readonly"]  # fmt: skip
    f = LLVMFunction(module, name, params, attributes=OUTLINED_FUNCTION_ATTRIBUTES, internal=True)
    table, base, offsets, count, segments, parts, positions, bounds = f.params
    lanes, many = tile.lanes, vector_type("i64", tile.lanes)
    firsts, sizes = (
        [f.load(f.offset(bounds, 16 * d + at), "i64") for d in range(checks)] for at in (0, 8)
    )
    pace = f.load(f.offset(bounds, 16 * checks + 8), "i64")
    numbered = LLVMValue(f"<{', '.join(f'i64 {lane}' for lane in range(lanes))}>", many, f)
    place = f.variable("ptr", table)
    with f.loop(0, count, tile.columns) as panel, f.loop(0, parts) as number:
        entry = f.offset(segments, number * (16 + 8 * checks))
        distance, length = (f.load(f.offset(entry, at), "i64") for at in (0, 8))
        with f.loop(panel, panel + tile.columns, lanes) as first:
            exist = (numbered + f.splat(first, lanes)).is_("slt", f.splat(count, lanes))
            low, high = f.variable("i64", 0), f.variable("i64", length)
            for d in range(checks):
                moved = firsts[d] + f.load(f.offset(entry, 16 + 8 * d), "i64")
                lines = f.offset(f.offset(positions, d * table_stride), first, "i64")
                if d == along:
                    at = f.load(lines, "i64") + moved
                    for each, bound in ((low, f.value(0, "i64")), (high, sizes[d])):
                        steps = f.intrinsic("smax", bound - at, f.value(0, "i64"))
                        each.set(f.umin((steps + (pace - 1)) // pace, length))
                else:
                    at = f.load(lines, many, 8) + f.splat(moved, lanes)
                    exist = exist & at.is_("ult", f.splat(sizes[d], lanes))
            start = f.offset(
                f.offset(base, f.load(f.offset(offsets, first, "i64"), "i64")), distance
            )
            f.store(start, place.get())
            f.store(low.get(), f.offset(place.get(), 8))
            f.store(high.get(), f.offset(place.get(), 16))
            f.store(exist.to(f"i{lanes}", "bitcast").to("i64", "zext"), f.offset(place.get(), 24))
            place.set(f.offset(place.get(), WINDOW_ENTRY_BYTES))
    f.ret()


def emit_in_place_rhs_tile(
    module: LLVMModule,
    name: str,
    tile: RegisterTile,
    packed: RegisterTile,
    arith: Arithmetic,
    machine: MachineDescription,
    checks: int,
    along: int,
) -> None:
    """Emit `name(parts, segments, table, lhs, stride, out, offsets, rows, columns, adding)`.

    The function computes a tile as in `emit_tile`, with the vectors of each segment at the
    addresses in `table`, `stride` bytes between steps.
    """
    params = ["i64", "ptr noalias readonly", "ptr noalias readonly", "ptr noalias readonly", "i64",
              "ptr noalias", "ptr noalias readonly", "i64", "i64", "i1"]  # fmt: skip
    f = LLVMFunction(module, name, params, attributes=OUTLINED_FUNCTION_ATTRIBUTES, internal=True)
    parts, segments, table, lhs, stride, *place = f.params
    sums = TileAccumulators(f, tile, packed, arith, machine)
    many, mask = vector_type(arith.type, tile.lanes), vector_type("i1", tile.lanes)
    left, entries = f.variable("ptr", lhs), f.variable("ptr", table)
    with f.loop(0, parts) as number:
        length = f.load(f.offset(segments, number * (16 + 8 * checks) + 8), "i64")
        sums.prefetch_row(place, f.umin(number, tile.height - 1))
        words = [
            [f.load(f.offset(entries.get(), j * WINDOW_ENTRY_BYTES + 8 * i), kind)
             for i, kind in enumerate(("ptr", "i64", "i64", "i64"))]
            for j in range(tile.width)
        ]  # fmt: skip
        masks = [each[3].to(f"i{tile.lanes}", "trunc").to(mask, "bitcast") for each in words]

        def steps(
            begin: LLVMValue, end: LLVMValue, lanes_of: Callable[[int, LLVMValue], LLVMValue],
            words: list[list[LLVMValue]] = words,
        ) -> None:  # fmt: skip
            with f.loop(begin, end) as k:
                start, distance = left.get(), k * stride
                right = []
                for j, (first, *_) in enumerate(words):
                    at = f.offset(first, distance)
                    if along >= 0:
                        prefetch(f, f.offset(at, stride * IMAGE_PREFETCH_STEPS))
                    right.append([masked_load(f, at, lanes_of(j, k), many, arith.plane_bytes)])
                rows = [f.offset(start, i * arith.plane_bytes) for i in range(tile.height)]
                sums.add([rows], right)
                left.set(f.offset(start, packed.height * arith.size))

        def inside(j: int, k: LLVMValue, masks: list[LLVMValue] = masks) -> LLVMValue:
            return masks[j]

        def edge(
            j: int,
            k: LLVMValue,
            masks: list[LLVMValue] = masks,
            words: list[list[LLVMValue]] = words,
        ) -> LLVMValue:
            there = k.is_("sge", words[j][1]) & k.is_("slt", words[j][2])
            return masks[j] & f.splat(there, tile.lanes)

        zero = f.value(0, "i64")
        if along < 0:
            steps(zero, length, inside)
        else:
            begin, end = words[0][1], words[0][2]
            for each in words[1:]:
                begin = f.intrinsic("smax", begin, each[1])
                end = f.intrinsic("smin", end, each[2])
            end = f.intrinsic("smax", begin, end)
            steps(zero, begin, edge)
            steps(begin, end, inside)
            steps(end, length, edge)
        entries.set(f.offset(entries.get(), WINDOW_ENTRY_BYTES * packed.width))
    sums.write(place)
    f.ret()
