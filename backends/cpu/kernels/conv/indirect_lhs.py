"""Indirect GEMM: tiles read the patches of an image in place, through a buffer of addresses.

In the gradient of a filter, K steps are positions of the image, and the channels of a pixel are
adjacent rows of the left operand. A buffer holds the address of the pixel at each K step, or that
of zeros for a position outside of the image (the indirection buffer of M. Dukhan, The Indirect
Convolution Algorithm, 2019). It is written once for all channels of a tap, so that the image is not
copied for each tap. The order of summation is that of packed patches.
"""

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.kernels.conv.tuning import (
    MAX_INDIRECT_LINE_BYTES,
    MIN_INDIRECT_LINES,
)
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct
from shardir.backends.cpu.kernels.gemm.microkernel import (
    RegisterTile,
    StepPrefetch,
    TileAccumulators,
    for_each_step,
    tile_variants,
)
from shardir.backends.cpu.kernels.gemm.packing import SEGMENT_ENTRY_BYTES, zeros_constant

ADDRESS_BYTES = 8


def is_lhs_indirect(work: MatrixProduct, tile: RegisterTile) -> bool:
    """Return whether tiles should read the patches of a product through addresses."""
    if not (work.patches and work.patches.side == "lhs" and work.rows):
        return False
    lines = work.rows[-1]
    return (
        not work.grouped
        and lines.lhs == work.lhs.itemsize
        and not any(lines.position_strides)
        and are_lines_addressable(lines.extent, work.lhs.dtype, work.arithmetic, tile)
    )


def are_lines_addressable(count: int, dtype: str, arith: Arithmetic, tile: RegisterTile) -> bool:
    """Return whether tiles can read `count` adjacent rows through the address of the first."""
    return (
        arith.dtype == dtype
        and arith.planes == 1
        # Low tiles do not read more rows.
        and count % tile_variants(tile)[-1].height == 0
        and MIN_INDIRECT_LINES <= count <= MAX_INDIRECT_LINE_BYTES // arith.size
    )


def emit_addresses(module: LLVMModule, name: str, checks: int, table_stride: int) -> None:
    """Emit `name(buffer, base, offsets, count, segments, parts, steps, stride, positions, bounds)`.

    The function writes the address of the first of `count` adjacent lines at each K step. The
    parameters are those of `emit_im2col`, with tables of positions `table_stride` bytes apart.
    """
    params = ["ptr noalias", "ptr readonly", "ptr noalias readonly", "i64",
              "ptr noalias readonly", "i64", "i64", "i64", "ptr noalias readonly",
              "ptr noalias readonly"]  # fmt: skip
    f = add_outlined_function(module, name, params)
    buffer, base, offsets, _, segments, parts, _, stride, positions, bounds = f.params
    lanes = f.machine.lanes(ADDRESS_BYTES)
    many = vector_type("i64", lanes)
    zeros = zeros_constant(f, name, MAX_INDIRECT_LINE_BYTES).to("i64", "ptrtoint")
    numbers = LLVMValue(f"<{', '.join(f'i64 {i}' for i in range(lanes))}>", many, f)
    origin = f.offset(base, f.load(offsets, "i64")).to("i64", "ptrtoint")
    lines = [f.load(f.offset(positions, d * table_stride), "i64") for d in range(checks)]
    place = f.variable("ptr", buffer)
    with f.loop(0, parts) as number:
        entry = f.offset(segments, number * (SEGMENT_ENTRY_BYTES + 8 * checks))
        start = origin + f.load(entry, "i64")
        length = f.load(f.offset(entry, 8), "i64")
        is_inside, first, step, extent = _find_run(f, entry, lines, bounds)
        with f.loop(0, length, lanes) as k:
            # Addresses after the last step are overwritten, or not read.
            steps = f.splat(k, lanes) + numbers
            addresses = f.splat(start, lanes) + steps * f.splat(stride, lanes)
            at = f.splat(first, lanes) + steps * f.splat(step, lanes)
            exist = f.splat(is_inside, lanes) & at.is_("ult", f.splat(extent, lanes))
            found = f.select(exist, addresses, f.splat(zeros, lanes))
            f.store(found, f.offset(place.get(), k, "i64"), ADDRESS_BYTES)
        place.set(f.offset(place.get(), length, "i64"))
    f.ret()


def _find_run(
    f: LLVMFunction, entry: LLVMValue, lines: list[LLVMValue], bounds: LLVMValue
) -> tuple[LLVMValue, LLVMValue, LLVMValue, LLVMValue]:
    """Return whether the steps of a segment are inside of the image along the dimensions along
    which they do not run; and the first position, the step and the extent of the other one.

    `lines` are the positions of the lines along all checked dimensions.
    """
    # Steps that do not run along a dimension are at position 0 of 1.
    is_inside, first, step, extent = (f.value(1, "i1"), *(f.value(n, "i64") for n in (0, 0, 1)))
    run_dim, stride = (f.load(f.offset(bounds, 16 * len(lines) + at), "i64") for at in (0, 8))
    for d, line in enumerate(lines):
        start = f.load(f.offset(bounds, 16 * d), "i64")
        at = line + start + f.load(f.offset(entry, SEGMENT_ENTRY_BYTES + 8 * d), "i64")
        size = f.load(f.offset(bounds, 16 * d + 8), "i64")
        runs = run_dim.is_("eq", d)
        is_inside = is_inside & (runs | at.is_("ult", size))
        first, extent = f.select(runs, at, first), f.select(runs, size, extent)
    return is_inside, first, f.select(run_dim.is_("sge", 0), stride, step), extent


def emit_indirect_tile(
    module: LLVMModule,
    name: str,
    tile: RegisterTile,
    packed: RegisterTile,
    arith: Arithmetic,
) -> None:
    """Emit `name(steps, addresses, line, rhs, prefetch_start, prefetch_stride, share_stride, out,
    offsets, rows, columns, adding)`.

    The function computes a tile as in `emit_tile`, with rows that begin `line` bytes after the
    address of each step.
    """
    params = ["i64", "ptr noalias readonly", "i64", "ptr noalias readonly", "ptr", "i64", "i64",
              "ptr noalias", "ptr noalias readonly", "i64", "i64", "i1"]  # fmt: skip
    f = add_outlined_function(module, name, params)
    steps, addresses, line, rhs, prefetch_start, prefetch_stride, share_stride, *place = f.params
    sums = TileAccumulators(f, tile, packed, arith)
    prefetches = StepPrefetch(f, prefetch_start, prefetch_stride, share_stride)
    right = f.variable("ptr", rhs)

    def step(k: LLVMValue) -> None:
        here = right.get()
        start = f.offset(f.load(f.offset(addresses, k, "i64"), "ptr"), line)
        sums.prefetch_columns(here)
        prefetches.step()
        rows = [f.offset(start, i * arith.size) for i in range(tile.height)]
        sums.add([rows], sums.columns_at(here))
        right.set(f.offset(here, packed.columns * arith.operand_bytes))

    for_each_step(sums, place, steps, step, prefetches.begin_share)
    sums.write(place)
    f.ret()
