"""Cumulative sums, products and extremes along a dimension.

Each element is combined with the result before it, in sequence, in the wide type of the reference:
the results are bit-identical. Lines are independent. If lines are adjacent in memory, a vector has
an element of each, and partial results are kept in scratch memory; otherwise several lines are
processed together, so that their operations overlap.
"""

from collections.abc import Callable, Sequence
from functools import partial

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMValue,
    StackVariable,
    vector_type,
)
from shardir.backends.cpu.codegen.memory_hints import prefetch, should_stream_stores
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, Rule
from shardir.backends.cpu.kernels.data_movement import element_values, transpose_tiles
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    GridBlock,
    KernelForm,
    block_grid_of,
    grid_kernel,
)
from shardir.backends.cpu.kernels.data_movement.element_cast import fits_before
from shardir.backends.cpu.kernels.data_movement.loop_nest import loop_nest_of
from shardir.backends.cpu.kernels.data_movement.view_transforms import as_real_parts, reverse_view
from shardir.backends.cpu.kernels.scan import integer_scan
from shardir.backends.cpu.kernels.scan.complex_cumprod import cumprod_phases
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX

MAX_ADJACENT_LINES = 2048
"""Maximum number of adjacent lines of a task, so that partial results stay in the cache."""
LINES_PER_GROUP = 8
"""Number of non-adjacent lines that are processed together."""
PREFETCH_DISTANCE_BYTES = 4 * CACHE_LINE_BYTES
"""Prefetch distance in bytes of tiles; the hardware prefetcher does not follow so many lines."""
COMBINE_BY_OP = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}


def cumulative_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower a cumulative operation to one phase over all lines."""
    (x,), (y,), dim = operands, results, op.attrs["dim"]
    combine = COMBINE_BY_OP[op.name]
    if x.dtype in COMPLEX and combine not in ("add", "mul"):
        return None
    if x.size == 0:
        return []
    if op.attrs["reverse"]:
        x, y = reverse_view(x, [dim]), reverse_view(y, [dim])
    if x.dtype in COMPLEX and combine == "mul":
        return cumprod_phases(x, y, dim, context)
    x, y = as_real_parts(x), as_real_parts(y)
    found = loop_nest_of([x, y], [dim])
    column = found.loops[-1] if found.loops else None
    row = found.loops[-2] if len(found.loops) > 1 else None
    size, extent = x.itemsize, column.extent if column else 1
    is_adjacent = (
        column is not None
        and column.strides == (size, size)
        and min(extent, abs(x.strides[dim]) // size) >= context.machine.lanes(size)
    )
    if is_adjacent:
        enough = -(-extent // (4 * context.workers))
        block_columns = min(MAX_ADJACENT_LINES, max(64, -(-enough // 64) * 64))
    else:
        block_columns = LINES_PER_GROUP
    side, steps, step = (
        transpose_tiles.tile_side(size, context.machine),
        x.shape[dim],
        x.strides[dim],
    )
    streaming = should_stream_stores(y.nbytes, x.nbytes, context.machine)
    variant, price = "along", 0.3
    body: Callable[..., None] = _scan_line_group
    if is_adjacent:
        streaming = streaming and context.machine.vector_bytes == CACHE_LINE_BYTES
        variant, body = (
            f"beside{'_streaming' if streaming else ''}",
            partial(_scan_adjacent_lines, streaming),
        )
    elif min(extent, steps) >= side and abs(step) == size and step == y.strides[dim]:
        streaming = streaming and step > 0 and side * size == CACHE_LINE_BYTES
        variant = "back" if step < 0 else "tiles_streaming" if streaming else "tiles"
        body = partial(_scan_tiles, step < 0, streaming)
        block_columns = side * max(1, -(-extent // side) // (4 * context.workers))
    elif step == size == y.strides[dim] and integer_scan.is_order_free(combine, x.dtype):
        variant, body = "line", integer_scan.scan_lines
    else:
        price = 0.5 if extent >= LINES_PER_GROUP else 1.5
    kernel = grid_kernel(
        f"running_{combine}_{variant}_{x.dtype}",
        KernelForm(2, extras=3),
        partial(body, combine, x.dtype),
    )
    grid = block_grid_of([x, y], found, row, column, 1, block_columns)
    extra, cost = (steps, step, y.strides[dim]), x.size * price
    return [grid.phase(kernel, cost, context.workers, op.name, extra)]


def _kind(combine: str, dtype: str) -> element_values.ElementKind:
    return element_values.kind_of(dtype, wide=combine in ("add", "mul"))


def _scan_adjacent_lines(
    streaming: bool, combine: str, dtype: str, f: LLVMFunction, block: GridBlock
) -> None:
    """Scan adjacent lines, which are the columns of the block."""
    kind = _kind(combine, dtype)
    size = element_values.ELEMENT_BYTES[dtype]
    wide = f.machine.lanes(size)
    steps, from_step, to_step = (block.extra(i) for i in range(3))

    def step(source: LLVMValue, target: LLVMValue, first: bool, past_caches: bool) -> None:
        position = f.variable("i64", 0)
        for lanes in (wide, 1):
            with f.while_(partial(fits_before, position, block.columns, lanes)):
                at = position.get()
                value = element_values.load(f, f.offset(source, at * size), kind, lanes)
                place = f.offset(block.scratch, at, kind.type)
                if not first:
                    before = f.load(place, value.type, 1)
                    value = element_values.combine(f, combine, before, value, dtype)
                f.store(value, place, 1)
                made, to = (
                    element_values.narrow_elements(f, value, kind),
                    f.offset(target, at * size),
                )
                if past_caches and lanes == wide:
                    f.store(made, to, CACHE_LINE_BYTES, True)
                else:
                    f.store(made, to, 1)
                position.set(at + lanes)

    source, target = block.addresses
    step(source, target, True, False)

    def others(past_caches: bool) -> None:
        with f.loop(1, steps) as i:
            ends = f.offset(source, i * from_step), f.offset(target, i * to_step)
            step(*ends, False, past_caches)

    if streaming:
        _choose_streaming(f, target, to_step, others)
    else:
        others(False)


def _choose_streaming(
    f: LLVMFunction, target: LLVMValue, step: LLVMValue, do: Callable[[bool], None]
) -> None:
    """Emit `do` with non-temporal stores if the target and its steps are cache-line aligned."""
    places = target.to("i64", "ptrtoint") | step
    f.if_else(
        (places & (CACHE_LINE_BYTES - 1)).is_("eq", 0),
        lambda: do(True),
        lambda: do(False),
    )


def _scan_tiles(
    back: bool, streaming: bool, combine: str, dtype: str, f: LLVMFunction, block: GridBlock
) -> None:
    """Scan contiguous lines, from the end with `back`: tiles are transposed, scanned as adjacent
    lines, and transposed back. The remainder of each line is scanned separately."""
    size = element_values.ELEMENT_BYTES[dtype]
    kind, side = _kind(combine, dtype), transpose_tiles.tile_side(size, f.machine)
    steps, lines = block.extra(0), block.columns
    step = -size if back else size
    total_type = vector_type(kind.type, side)

    def whole() -> None:
        with f.loop(0, lines, side) as j:
            first = f.umin(j, lines - side)
            source, target = (
                f.offset(address, first * stride)
                for address, stride in zip(block.addresses, block.column_strides, strict=True)
            )
            total = f.variable(
                total_type, f.value(element_values.identity_element(combine, dtype), total_type)
            )
            done = f.variable("i64", 0)

            def walk(past_caches: bool) -> None:
                with f.while_(lambda: done.get().is_("sle", steps - side)):
                    at = (done.get() + (side - 1 if back else 0)) * step
                    ends = f.offset(source, at), f.offset(target, at)
                    _scan_tile(f, block, back, combine, kind, total, *ends, past_caches)
                    done.set(done.get() + side)

            if streaming:
                _choose_streaming(f, target, block.column_strides[1], walk)
            else:
                walk(False)
            f.store(total.get(), block.scratch, 1)
            with f.loop(0, side) as i:
                before = f.load(f.offset(block.scratch, i, kind.type), kind.type)
                ends = [
                    f.offset(f.offset(end, i * stride), done.get() * step)
                    for end, stride in zip((source, target), block.column_strides, strict=True)
                ]
                _scan_lines(
                    f, combine, kind, [(ends[0], ends[1], before)], steps - done.get(), step, step
                )

    f.if_else(lines.is_("uge", side), whole, lambda: _scan_line_group(combine, dtype, f, block))


def _scan_tile(
    f: LLVMFunction,
    block: GridBlock,
    back: bool,
    combine: str,
    kind: element_values.ElementKind,
    total: StackVariable,
    source: LLVMValue,
    target: LLVMValue,
    streaming: bool,
) -> None:
    size = element_values.ELEMENT_BYTES[kind.dtype]
    side = transpose_tiles.tile_side(size, f.machine)
    type = transpose_tiles.vector_type(size, side)
    stored = vector_type(MEMORY_TYPES[kind.dtype], side)
    from_line, to_line = block.column_strides
    starts = [f.offset(source, from_line * i) for i in range(side)]
    if streaming:
        for start in starts:
            prefetch(f, f.offset(start, PREFETCH_DISTANCE_BYTES))
    tile = [f.load(start, type, 1) for start in starts]
    tile = transpose_tiles.transpose_tile(f, tile, size)
    for i in reversed(range(side)) if back else range(side):
        new = element_values.widen_elements(f, tile[i].to(stored, "bitcast"), kind)
        total.set(element_values.combine(f, combine, total.get(), new, kind.dtype))
        tile[i] = element_values.narrow_elements(f, total.get(), kind).to(type, "bitcast")
    for i, line in enumerate(transpose_tiles.transpose_tile(f, tile, size)):
        f.store(
            line,
            f.offset(target, to_line * i),
            CACHE_LINE_BYTES if streaming else 1,
            streaming,
        )


def _scan_lines(
    f: LLVMFunction,
    combine: str,
    kind: element_values.ElementKind,
    lines: Sequence[tuple[LLVMValue, LLVMValue, LLVMValue]],
    steps: LLVMValue,
    from_step: LLVMValue | int,
    to_step: LLVMValue | int,
) -> None:
    """Scan several lines together, each given as (source, target, initial value)."""
    totals = [f.variable(kind.type, before) for _, _, before in lines]
    with f.loop(0, steps) as i:
        for (source, target, _), total in zip(lines, totals, strict=True):
            new = element_values.load(f, f.offset(source, i * from_step), kind, 1)
            value = element_values.combine(f, combine, total.get(), new, kind.dtype)
            element_values.store(f, value, f.offset(target, i * to_step), kind)
            total.set(value)


def _scan_line_group(combine: str, dtype: str, f: LLVMFunction, block: GridBlock) -> None:
    """Scan up to `LINES_PER_GROUP` lines, together or one by one; they are the block's columns."""
    kind = _kind(combine, dtype)
    steps, from_step, to_step = (block.extra(i) for i in range(3))

    identity_value = f.value(element_values.identity_element(combine, dtype), kind.type)

    def line(number: LLVMValue) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
        source, target = (
            f.offset(address, number * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        return source, target, identity_value

    def together() -> None:
        lines = [line(f.value(number, "i64")) for number in range(LINES_PER_GROUP)]
        _scan_lines(f, combine, kind, lines, steps, from_step, to_step)

    def one_by_one() -> None:
        with f.loop(0, block.columns) as number:
            _scan_lines(f, combine, kind, [line(number)], steps, from_step, to_step)

    f.if_else(block.columns.is_("eq", LINES_PER_GROUP), together, one_by_one)


RULES: dict[str, Rule] = dict.fromkeys(COMBINE_BY_OP, cumulative_rule)
"""Extremes of complex numbers are not supported."""
