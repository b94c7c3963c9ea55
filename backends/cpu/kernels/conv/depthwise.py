"""Lowers products whose dimensions are batch dimensions or K (depthwise): see
`depthwise_kernel`."""

from collections.abc import Sequence
from math import ceil, gcd, prod

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import (
    BufferView,
    LoweringContext,
    Phase,
    choose_task_count,
    row_major_strides,
)
from shardir.backends.cpu.kernels.conv.depthwise_kernel import (
    RUNS_PER_TABLE,
    depthwise_kernel,
    encode_depthwise_record,
)
from shardir.backends.cpu.kernels.conv.depthwise_tile import (
    MAX_DEPTHWISE_CHECKED_DIMS,
    LaneLayout,
    TapRun,
    TileShape,
)
from shardir.backends.cpu.kernels.conv.tuning import (
    MAX_LINES_PER_TILE,
    MAX_RUN_PITCH,
    MAX_RUN_TAPS,
    MIN_VECTOR_LANES,
)
from shardir.backends.cpu.kernels.data_movement.element_cast import cast_phases
from shardir.backends.cpu.kernels.gemm.element_arithmetic import can_widen
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct, ProductLoop
from shardir.ir.types import TensorType


def lower_depthwise(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    """Return the phases; none if lanes are not contiguous or an operand has other columns."""
    work, times = _merge_columns_into_lanes(work)
    arith = work.arithmetic
    if work.sizes[2] != 1 or work.lhs.dtype != work.rhs.dtype or arith.planes > 1:
        return []
    if not can_widen(work.lhs.dtype, arith) or (work.patches and work.patches.side != "lhs"):
        return []
    lane = _find_lane_loop(work)
    if lane is None:
        return []
    others = [loop for loop in (*work.batch, *work.rows) if loop is not lane]
    lines = sorted(others, key=lambda loop: abs(loop.out)) or [ProductLoop(1, 0, 0, 0)]
    many = work.machine.lanes(arith.size)
    vectors = ceil(lane.extent / many)
    run, unrolled, inner = _find_tap_run(lines[0], work.inner)
    runs = work.sizes[3] // run.taps
    if work.out.dtype != arith.dtype and runs > RUNS_PER_TABLE:
        return _lower_with_wide_result(work, context, label)
    shape = _choose_tile_shape(lines, vectors, run, work.machine)
    run_dim = next((d for d, step in enumerate(lane.position_strides) if step), -1)
    count, taps = prod(loop.extent for loop in lines), work.sizes[3]
    each = 0.25 + 2.0 / (shape.lines * shape.width)
    cost = count * (taps * vectors * each + 20.0)
    tasks = choose_task_count(cost, context.workers)
    tiles = ceil(count / shape.lines) * ceil(vectors / shape.width)
    if shape.planes > 1 and tiles < min(tasks, context.workers):
        shape = shape._replace(planes=1, has_partial_tiles=False)
    block = ceil(count / min(tasks, count) / shape.lines) * shape.lines
    pieces = min(ceil(tasks / ceil(count / block)), ceil(vectors / shape.width))
    lanes = ceil(vectors / shape.width / pieces) * shape.width * many
    starts = work.patches.starts if work.patches else ()
    sizes = work.patches.sizes if work.patches else ()
    fields = {
        "lhs_slot": work.lhs.slot, "lhs_offset": work.lhs.offset,
        "rhs_slot": work.rhs.slot, "rhs_offset": work.rhs.offset,
        "out_slot": work.out.slot, "out_offset": work.out.offset,
        "lanes": lane.extent, "block_lanes": lanes, "lane_blocks": ceil(lane.extent / lanes),
        "lines": count, "block_lines": block,
        "runs": runs,
    }  # fmt: skip
    for d in range(MAX_DEPTHWISE_CHECKED_DIMS):
        fields[f"start_{d}"] = starts[d] if d < len(starts) else 0
        fields[f"size_{d}"] = sizes[d] if d < len(sizes) else 1
    fields |= _encode_strides(lines, run, shape) | {"tap_stride": unrolled.rhs}
    row_dims = tuple(d for d, step in enumerate(lines[0].position_strides) if step and d != run_dim)
    layout = LaneLayout(
        len(starts), run_dim, row_dims, lane.rhs == 0, lane.lhs // work.lhs.itemsize, times
    )
    kernel = depthwise_kernel(work.lhs.dtype, work.out.dtype, shape, layout, run)
    record = encode_depthwise_record(fields, _encode_loops(lines), _encode_loops(inner[::-1]))
    return [Phase(kernel, record, ceil(count / block) * fields["lane_blocks"], cost, label)]


def _lower_with_wide_result(
    work: MatrixProduct, context: LoweringContext, label: str
) -> list[Phase]:
    """Return the phases with a result of the type of the sums, which is rounded at the end: the
    result contains the sums of earlier entries of long tables."""
    loops = sorted((*work.batch, *work.rows, *work.columns), key=lambda loop: -abs(loop.out))
    shape, dtype = tuple(loop.extent for loop in loops), work.arithmetic.dtype
    dense = row_major_strides(TensorType(shape, dtype))
    wide = BufferView(context.temporary(prod(shape) * work.arithmetic.size), 0, shape, dense, dtype)
    steps = dict(zip((loop.out for loop in loops), dense, strict=True))
    batch, rows, columns = (
        tuple(loop._replace(out=steps[loop.out]) for loop in group)
        for group in (work.batch, work.rows, work.columns)
    )
    sums = work._replace(out=wide, batch=batch, rows=rows, columns=columns)
    target = work.out._replace(shape=shape, strides=tuple(loop.out for loop in loops))
    return [*lower_depthwise(sums, context, label), *cast_phases(wide, target, context)]


def _merge_columns_into_lanes(work: MatrixProduct) -> tuple[MatrixProduct, int]:
    """Merge columns into a batch loop as lanes; also return how many lanes share an element of the
    left operand."""
    item, result_item = work.lhs.itemsize, work.out.itemsize
    lanes = work.machine.lanes(work.arithmetic.size)
    for column in work.columns if len(work.columns) == 1 else ():
        times = column.extent
        for loop in work.batch if lanes % times == 0 and times < lanes else ():
            strides = column.rhs, column.out, loop.lhs, loop.rhs, loop.out
            if strides == (item, result_item, item, times * item, times * result_item):
                lane = loop._replace(extent=loop.extent * times, rhs=item, out=result_item)
                batch = tuple(lane if each is loop else each for each in work.batch)
                return work._replace(batch=batch, columns=()), times
    return work, 1


def _choose_tile_shape(
    lines: Sequence[ProductLoop], vectors: int, run: TapRun, machine: HostDescription
) -> TileShape:
    """Return the lines that share the loaded right operand, and the vectors of lanes, that are
    computed together, as registers allow."""
    registers, most = (24, 4) if machine.has_many_registers else (8, 2)
    extent = lines[0].extent
    if lines[0].rhs or extent == 1:
        return TileShape(1, 1, _equal_parts(vectors, 2 * most), False)
    if run.taps > 1:  # Lines share both operands.
        height = _equal_parts(extent, min(MAX_LINES_PER_TILE, registers))
        # One sum more, for filters of 3 by 3 and 5 by 5 taps, leaves registers for the operands.
        planes = _count_planes(lines, (registers + 1) // height) if height == extent else 1
        most = max(1, min(registers // (planes * height), most))
        whole = extent * (lines[1].extent if planes > 1 else 1)
        return TileShape(planes, height, _equal_parts(vectors, most), whole % (planes * height) > 0)
    width = _equal_parts(vectors, most)
    height = _equal_parts(extent, min(MAX_LINES_PER_TILE, registers // width))
    return TileShape(1, height, width, extent % height > 0)


def _count_planes(lines: Sequence[ProductLoop], most: int) -> int:
    """Return the lines of the second loop that a tile computes, at most `most`: one if they do not
    share the right operand, or move along the dimension of the first loop."""
    if len(lines) == 1 or lines[1].rhs:
        return 1
    strides = (loop.position_strides for loop in lines[:2])
    if any(inner and outer for inner, outer in zip(*strides, strict=True)):
        return 1
    return _equal_parts(lines[1].extent, most)


def _equal_parts(extent: int, most: int) -> int:
    """Return the size of the fewest equal parts of at most `most`."""
    return ceil(extent / ceil(extent / most))


def _find_lane_loop(work: MatrixProduct) -> ProductLoop | None:
    """Return the loop whose steps are contiguous: a batch loop or, for patches, output positions of
    a row."""
    item, result_item = work.lhs.itemsize, work.out.itemsize
    for loop in work.batch:
        if (
            (loop.lhs, loop.out) == (item, result_item)
            and loop.rhs in (item, 0)
            and loop.extent >= MIN_VECTOR_LANES
        ):
            return loop
    for loop in work.rows if work.patches else ():
        steps, pace = [step for step in loop.position_strides if step], loop.lhs // item
        line_loop = loop.out == result_item and loop.lhs == pace * item and pace in (1, 2)
        if line_loop and steps in ([], [pace]) and loop.extent >= MIN_VECTOR_LANES:
            return loop
    return None


def _find_tap_run(
    line_loop: ProductLoop, taps: tuple[ProductLoop, ...]
) -> tuple[TapRun, ProductLoop, tuple[ProductLoop, ...]]:
    """Return the run of taps that is unrolled, its loop, and the remaining loops over taps.

    The taps of the run read rows of the left operand that other lines read too. A long loop is
    divided into runs of equal length.
    """
    single = ProductLoop(1, 0, 0, 0)
    if line_loop.rhs or line_loop.extent == 1 or line_loop.lhs <= 0:
        return TapRun(), single, taps or (single,)
    for index, loop in reversed(list(enumerate(taps))):
        stride = gcd(line_loop.lhs, loop.lhs)
        count = max(n for n in range(1, MAX_RUN_TAPS + 1) if loop.extent % n == 0)
        run = TapRun(count, line_loop.lhs // stride, loop.lhs // stride)
        moves_alike = all(
            line_step * run.tap_pitch == tap_step * run.line_pitch
            and line_step % run.line_pitch == 0
            for line_step, tap_step in zip(
                line_loop.position_strides, loop.position_strides, strict=True
            )
        )
        pitches = (run.line_pitch, run.tap_pitch)
        if count > 1 and min(pitches) > 0 and max(pitches) <= MAX_RUN_PITCH and moves_alike:
            outer = (_repeat_loop(loop, count),) if loop.extent > count else ()
            return run, loop, (*taps[:index], *outer, *taps[index + 1 :]) or (single,)
    return TapRun(), single, taps or (single,)


def _repeat_loop(loop: ProductLoop, count: int) -> ProductLoop:
    """Return the loop over runs of `count` steps of a loop."""
    return ProductLoop(
        loop.extent // count, loop.lhs * count, loop.rhs * count, loop.out * count,
        tuple(step * count for step in loop.position_strides),
    )  # fmt: skip


def _encode_strides(lines: Sequence[ProductLoop], run: TapRun, shape: TileShape) -> dict[str, int]:
    """Return the fields of the strides of rows and planes."""
    fields = {"row_stride": lines[0].lhs // run.line_pitch}
    for d, step in enumerate(lines[0].position_strides):
        fields[f"row_step_{d}"] = step // run.line_pitch
    if shape.planes > 1:
        fields |= {"plane_stride": lines[1].lhs, "plane_out": lines[1].out}
        for d, step in enumerate(lines[1].position_strides):
            fields[f"plane_step_{d}"] = step
    return fields


def _encode_loops(loops: Sequence[ProductLoop]) -> list[tuple[int, ...]]:
    return [
        (
            *loop[:4],
            *loop.position_strides,
            *(0,) * (MAX_DEPTHWISE_CHECKED_DIMS - len(loop.position_strides)),
        )
        for loop in loops
    ]
