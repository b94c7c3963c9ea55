"""Lowers products whose rows have a constant pitch: see `strided_gemm_kernel`.

Such products are gradients of filters of few features and convolutions of images of one feature: a
run of elements of an image line is rows or columns, and so are features of the other operand.
"""

from collections.abc import Iterator
from math import ceil, inf, isqrt, prod
from typing import NamedTuple

from shardir.backends.cpu.codegen.target import MachineDescription
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, row_major_strides
from shardir.backends.cpu.kernels.conv.strided_gemm_kernel import (
    STEP_LOOPS,
    TileShape,
    strided_gemm_kernel,
)
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct, ProductLoop
from shardir.backends.cpu.kernels.gemm.operand_copies import vector_arithmetic_of
from shardir.backends.cpu.kernels.gemm.product_record import encode_record
from shardir.backends.cpu.kernels.gemm.record_builder import count_tasks, describe_product, round_up
from shardir.backends.cpu.kernels.gemm.task_grid import TaskGrid
from shardir.ir.types import TensorType

MAX_FILTER_PITCH_BYTES = 512
"""Maximum bytes between rows of a filter; rows of an image are contiguous."""
MAX_TILE_VECTORS = 5
"""Maximum vectors of columns of a tile."""
ACCUMULATION_LATENCY_CYCLES = 4.0
"""Latency in cycles of an accumulation."""
COPY_NS_PER_ELEMENT, TRANSPOSE_NS_PER_ELEMENT, MAX_COPY_TIME_RATIO, CYCLES_PER_NS = (
    0.08,
    0.3,
    0.5,
    4.0,
)
"""Nanoseconds per element copied in runs or squares, and per element copied otherwise; the maximum
time of copies relative to the product; cycles per nanosecond."""
MIN_PLAIN_EXTENT, MAX_STEP_STRIDE_BYTES = 16, 4096
"""Minimum rows and columns of a product without patches; maximum bytes between its K steps."""
MAX_PREFETCHED_READS = 8
"""Maximum number of times that columns are read for which they are prefetched."""
UNIT_LOOP = ProductLoop(1, 0, 0, 0)
MIN_STRIDED_TASK_NS = 8_000.0
"""Minimum duration of a task in nanoseconds."""


class Tiling(NamedTuple):
    """A tile shape, and the cycles that each K step of all rows and columns takes."""

    cycles: float
    shape: TileShape


def choose_tiling(work: MatrixProduct) -> Tiling | None:
    """Return the best tile for a product, if its rows have a pitch and its columns are
    contiguous."""
    if not work.rows or not work.columns:
        return None
    if work.patches.starts if work.patches else _should_pack(work):
        return None
    if not 1 <= len(work.inner) <= STEP_LOOPS or not work.sizes[3]:
        return None
    if work.out.dtype not in ("f32", "f64"):
        return None
    near, last, item = work.rows[-1], work.columns[-1], work.out.itemsize
    # Taps of a filter run along positions of an image of one feature.
    taps = work.patches and work.patches.side == "rhs" and len(work.inner) <= 2
    taps = taps and abs(work.inner[-1].rhs) == item
    most = MAX_FILTER_PITCH_BYTES if taps else item
    same = work.lhs.dtype == work.rhs.dtype == work.out.dtype
    if not same or not 0 < near.lhs <= most or last.rhs != item:
        return None
    lanes = vector_arithmetic_of(work).lanes
    vectors, cut = ceil(last.extent / lanes), last.extent % lanes > 0
    others = prod(loop.extent for loop in (*work.rows[:-1], *work.columns[:-1]))
    found = []
    for times, height, width in _tile_shapes(work):
        thin, high = vectors % width or width, times * height
        total = (vectors - thin) // width * _step_cycles(high, width) + _step_cycles(high, thin)
        total *= ceil(near.extent / height) * others / times
        found.append(Tiling(total, TileShape(times, height, width, thin, cut, near.lhs)))
    return min(found, key=lambda each: each.cycles)


def _should_pack(work: MatrixProduct) -> bool:
    """Return whether a product without patches should be packed: its data exceeds the caches, or
    its steps are so far apart that they conflict in the caches. Few rows or columns do not pay
    off."""
    _, rows, columns, inner = work.sizes
    return (
        min(rows, columns) < MIN_PLAIN_EXTENT
        or inner * (rows + columns) * work.out.itemsize > 4 * work.machine.l2_bytes
        or any(
            abs(stride) >= MAX_STEP_STRIDE_BYTES
            for loop in work.inner
            for stride in (loop.lhs, loop.rhs)
        )
    )


def _step_cycles(height: int, width: int) -> float:
    """Return the cycles of a step of a tile: the maximum of arithmetic, loads and latency."""
    return max(height * width / 2, (height + width) / 2, ACCUMULATION_LATENCY_CYCLES) + 0.25


def _tile_shapes(work: MatrixProduct) -> Iterator[tuple[int, int, int]]:
    """Yield candidate tile shapes: groups of rows, rows per group, vectors of columns."""
    registers = 32 if work.machine.has_many_registers else 16
    rows = work.rows[-1].extent
    for width in range(1, MAX_TILE_VECTORS + 1):
        most = (registers - 1 - (width if width > 1 else 1)) // width
        count = ceil(rows / most)
        yield 1, ceil(rows / count), width
        if count == 1 and len(work.rows) > 1 and work.rows[-2].extent * rows <= most:
            yield work.rows[-2].extent, rows, width


def is_strided_gemm_faster(work: MatrixProduct, copied_before: int, copied_after: int) -> bool:
    """Return whether strided GEMM pays off for a convolution, if `copied_before` elements are
    copied before it and `copied_after` elements after it."""
    best, _ = _better_orientation(work)
    copies = COPY_NS_PER_ELEMENT * copied_before + TRANSPOSE_NS_PER_ELEMENT * copied_after
    return (
        best is not None
        and copies <= MAX_COPY_TIME_RATIO * best.cycles * work.sizes[3] / CYCLES_PER_NS
    )


def _better_orientation(work: MatrixProduct) -> tuple[Tiling | None, MatrixProduct]:
    """Return the better of a product and its transposition, and its tile."""

    def cycles(pair: tuple[Tiling | None, MatrixProduct]) -> float:
        found, each = pair
        if not found:
            return inf
        apart = each.columns[-1].out != each.out.itemsize
        return (
            found.cycles * each.sizes[3]
            + TRANSPOSE_NS_PER_ELEMENT / 2 * CYCLES_PER_NS * each.out.size * apart
        )

    return min(((choose_tiling(each), each) for each in (work, work.transpose())), key=cycles)


def lower_sliding_product(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    """Return the phases of a product with one vector of columns that each skip some of the first
    and of the last K steps: see `TileShape`."""
    best = choose_tiling(work)
    assert best is not None
    best = best._replace(shape=best.shape._replace(sliding=True))
    return [_strided_gemm_phase(work, best, context, label)]


def lower_strided_gemm(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    """Return the phases; none if the strides of rows or columns are not supported."""
    best, work = _better_orientation(work)
    if not best:
        return []
    if work.columns[-1].out == work.out.itemsize:
        return [_strided_gemm_phase(work, best, context, label)]
    dense, source, target = _with_dense_result(work, context)
    return [_strided_gemm_phase(dense, best, context, label), *copy_phases(source, target, context)]


def _with_dense_result(
    work: MatrixProduct, context: LoweringContext
) -> tuple[MatrixProduct, BufferView, BufferView]:
    """Return the product with a dense result in a temporary, that result, and the view to copy it
    to."""
    loops = [*work.batch, *work.rows, *work.columns]
    shape = tuple(loop.extent for loop in loops)
    type = TensorType(shape, work.out.dtype)
    made = BufferView(context.temporary(type.nbytes), 0, shape, row_major_strides(type), type.dtype)
    strides = iter(made.strides)
    batch, rows, columns = (
        tuple(loop._replace(out=next(strides)) for loop in each)
        for each in (work.batch, work.rows, work.columns)
    )
    target = work.out._replace(shape=shape, strides=tuple(loop.out for loop in loops))
    return work._replace(out=made, batch=batch, rows=rows, columns=columns), made, target


def _strided_gemm_phase(
    work: MatrixProduct, best: Tiling, context: LoweringContext, label: str
) -> Phase:
    shape, kind = best.shape, vector_arithmetic_of(work)
    # Contiguous steps are innermost, even if there are few.
    loops = sorted(work.inner, key=lambda loop: -abs(loop.lhs) - abs(loop.rhs))
    inner = (*[UNIT_LOOP] * (STEP_LOOPS - len(loops)), *loops)
    read = work.sizes[1] // (shape.times * shape.height)
    is_uncached = (
        work.sizes[3] * abs(inner[-1].rhs) > work.machine.l2_bytes and read <= MAX_PREFETCHED_READS
    )
    split = -2 if shape.times > 1 else -1
    group = work.rows[-2] if shape.times > 1 else UNIT_LOOP
    flat = work._replace(
        batch=(*work.batch, *work.rows[:split], *work.columns[:-1]),
        rows=work.rows[-1:], columns=work.columns[-1:], inner=inner, patches=None,
    )  # fmt: skip
    batch, rows, columns, steps = flat.sizes
    many = prod(loop.extent for loop in work.batch)
    cost = many * best.cycles * steps / CYCLES_PER_NS + 20.0 * batch
    wanted = max(1, min(int(cost / MIN_STRIDED_TASK_NS), 4 * context.workers))
    products = -(-batch // min(batch, wanted))
    wanted = -(-wanted // -(-batch // products))
    step = shape.width * kind.lanes
    near = work.machine.l2_bytes // 4 // kind.item
    wide = _block_size(columns, wanted, isqrt(near), step)
    high = _block_size(rows, -(-wanted // -(-columns // wide)), near // wide, shape.height)
    fields, lists = describe_product(flat, TaskGrid(high, wide, False, cost, products))
    outer_steps, middle_steps = _steps_per_pass(inner, (high + wide) * kind.item, work.machine)
    fields |= {
        "packed_rows": outer_steps, "packed_columns": middle_steps,
        "panel_columns": group.lhs, "steps": group.out,
    }  # fmt: skip
    kernel = strided_gemm_kernel(kind, shape._replace(has_prefetch=is_uncached))
    return Phase(kernel, encode_record(fields, lists), count_tasks(fields), cost, label)


def _block_size(extent: int, parts: int, most: int, step: int) -> int:
    """Return the size of at least `parts` blocks of at most about `most` rows or columns."""
    parts = max(parts, ceil(extent / most))
    return round_up(ceil(extent / parts), step) if parts > 1 else extent


def _steps_per_pass(
    inner: tuple[ProductLoop, ...], nbytes: int, machine: MachineDescription
) -> tuple[int, int]:
    """Return how many steps of the outer and middle loop are computed at a time, so that their data
    fits the L2 cache: whole middle loops if possible. A step reads at most `nbytes` bytes, fewer
    where steps overlap."""
    most = machine.l2_bytes // 2
    outer, middle, last = inner
    line = last.extent * min(nbytes, abs(last.lhs) + abs(last.rhs))
    image = max(1, line * middle.extent)
    if image <= most:
        return min(outer.extent, max(1, most // image)), middle.extent
    return 1, max(1, min(middle.extent, most // max(1, line)))
