"""Cumulative sums, products and extremes along a dimension.

Each element is combined with the result before it, in sequence, in the wide type of the reference:
the results are bit-identical. Lines are independent. If lines are adjacent in memory, a vector has
an element of each, and partial results are kept in scratch memory; otherwise several lines are
processed together, so that their operations overlap.
"""

from collections.abc import Callable, Sequence
from functools import partial

from shardir.backends.cpu.native.data import Context, Phase, Rule, View
from shardir.backends.cpu.native.llvm.hints import goes_past_caches, prefetch
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Value, Variable, vector
from shardir.backends.cpu.native.moves import numbers, running_lines, tiles
from shardir.backends.cpu.native.moves.casting import fits
from shardir.backends.cpu.native.moves.grid import Block, Form, grid_kernel, grid_of
from shardir.backends.cpu.native.moves.loops import nest
from shardir.backends.cpu.native.moves.running_products import product_phases
from shardir.backends.cpu.native.moves.views import in_parts, turned
from shardir.ir import Op
from shardir.types import COMPLEX

BESIDE = 2048
"""Maximum number of adjacent lines of a task, so that partial results stay in the cache."""
TOGETHER = 8
"""Number of non-adjacent lines that are processed together."""
SOON = 4 * tiles.LINE
"""Prefetch distance in bytes of tiles; the hardware prefetcher does not follow so many lines."""
COMBINE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}


def running_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Lower a cumulative operation to one phase over all lines."""
    (x,), (y,), dim = operands, results, op.attrs["dim"]
    combine = COMBINE[op.name]
    if x.dtype in COMPLEX and combine not in ("add", "mul"):
        return None
    if x.size == 0:
        return []
    if op.attrs["reverse"]:
        x, y = turned(x, [dim]), turned(y, [dim])
    if x.dtype in COMPLEX and combine == "mul":
        return product_phases(x, y, dim, context)
    x, y = in_parts(x), in_parts(y)
    found = nest([x, y], [dim])
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
        block_columns = min(BESIDE, max(64, -(-enough // 64) * 64))
    else:
        block_columns = TOGETHER
    side, steps, step = tiles.side(size, context.machine), x.shape[dim], x.strides[dim]
    streaming = goes_past_caches(y.nbytes, x.nbytes, context.machine)
    variant, price = "along", 0.3
    body: Callable[..., None] = _along
    if is_adjacent:
        streaming = streaming and context.machine.vector_bytes == tiles.LINE
        variant, body = f"beside{'_streaming' if streaming else ''}", partial(_beside, streaming)
    elif min(extent, steps) >= side and abs(step) == size and step == y.strides[dim]:
        streaming = streaming and step > 0 and side * size == tiles.LINE
        variant = "back" if step < 0 else "tiles_streaming" if streaming else "tiles"
        body = partial(_tiles, step < 0, streaming)
        block_columns = side * max(1, -(-extent // side) // (4 * context.workers))
    elif step == size == y.strides[dim] and running_lines.is_any_order(combine, x.dtype):
        variant, body = "line", running_lines.walk
    else:
        price = 0.5 if extent >= TOGETHER else 1.5
    kernel = grid_kernel(
        f"running_{combine}_{variant}_{x.dtype}", Form(2, extras=3), partial(body, combine, x.dtype)
    )
    grid = grid_of([x, y], found, row, column, 1, block_columns)
    extra, cost = (steps, step, y.strides[dim]), x.size * price
    return [grid.phase(kernel, cost, context.workers, op.name, extra)]


def _kind(combine: str, dtype: str) -> numbers.Kind:
    return numbers.kind_of(dtype, wide=combine in ("add", "mul"))


def _beside(streaming: bool, combine: str, dtype: str, f: Function, block: Block) -> None:
    """Scan adjacent lines, which are the columns of the block."""
    kind = _kind(combine, dtype)
    size = numbers.SIZES[dtype]
    wide = host().lanes(size)
    steps, from_step, to_step = (block.extra(i) for i in range(3))

    def step(source: Value, target: Value, first: bool, past_caches: bool) -> None:
        position = f.variable("i64", 0)
        for lanes in (wide, 1):
            with f.while_(partial(fits, position, block.columns, lanes)):
                at = position.get()
                value = numbers.load(f, f.offset(source, at * size), kind, lanes)
                place = f.offset(block.scratch, at, kind.type)
                if not first:
                    before = f.load(place, value.type, 1)
                    value = numbers.combine(f, combine, before, value, dtype)
                f.store(value, place, 1)
                made, to = numbers.narrowed(f, value, kind), f.offset(target, at * size)
                if past_caches and lanes == wide:
                    f.store(made, to, tiles.LINE, True)
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
        _where_aligned(f, target, to_step, others)
    else:
        others(False)


def _where_aligned(f: Function, target: Value, step: Value, do: Callable[[bool], None]) -> None:
    """Emit `do` with non-temporal stores if the target and its steps are cache-line aligned."""
    places = target.to("i64", "ptrtoint") | step
    f.choose((places & (tiles.LINE - 1)).is_("eq", 0), lambda: do(True), lambda: do(False))


def _tiles(
    back: bool, streaming: bool, combine: str, dtype: str, f: Function, block: Block
) -> None:
    """Scan contiguous lines, from the end with `back`: tiles are transposed, scanned as adjacent
    lines, and transposed back. The remainder of each line is scanned separately."""
    size = numbers.SIZES[dtype]
    kind, side = _kind(combine, dtype), tiles.side(size, host())
    steps, lines = block.extra(0), block.columns
    step = -size if back else size
    total_type = vector(kind.type, side)

    def whole() -> None:
        with f.loop(0, lines, side) as j:
            first = f.least(j, lines - side)
            source, target = (
                f.offset(address, first * stride)
                for address, stride in zip(block.addresses, block.column_strides, strict=True)
            )
            total = f.variable(total_type, f.value(numbers.identity(combine, dtype), total_type))
            done = f.variable("i64", 0)

            def walk(past_caches: bool) -> None:
                with f.while_(lambda: done.get().is_("sle", steps - side)):
                    at = (done.get() + (side - 1 if back else 0)) * step
                    ends = f.offset(source, at), f.offset(target, at)
                    _tile(f, block, back, combine, kind, total, *ends, past_caches)
                    done.set(done.get() + side)

            if streaming:
                _where_aligned(f, target, block.column_strides[1], walk)
            else:
                walk(False)
            f.store(total.get(), block.scratch, 1)
            with f.loop(0, side) as i:
                before = f.load(f.offset(block.scratch, i, kind.type), kind.type)
                ends = [
                    f.offset(f.offset(end, i * stride), done.get() * step)
                    for end, stride in zip((source, target), block.column_strides, strict=True)
                ]
                _walk(
                    f, combine, kind, [(ends[0], ends[1], before)], steps - done.get(), step, step
                )

    f.choose(lines.is_("uge", side), whole, lambda: _along(combine, dtype, f, block))


def _tile(
    f: Function,
    block: Block,
    back: bool,
    combine: str,
    kind: numbers.Kind,
    total: Variable,
    source: Value,
    target: Value,
    streaming: bool,
) -> None:
    size = numbers.SIZES[kind.dtype]
    side = tiles.side(size, host())
    type = tiles.vector_type(size, side)
    stored = vector(numbers.MEMORY[kind.dtype], side)
    from_line, to_line = block.column_strides
    starts = [f.offset(source, from_line * i) for i in range(side)]
    if streaming:
        for start in starts:
            prefetch(f, f.offset(start, SOON))
    tile = [f.load(start, type, 1) for start in starts]
    tile = tiles.turned(f, tile, size)
    for i in reversed(range(side)) if back else range(side):
        new = numbers.widened(f, tile[i].to(stored, "bitcast"), kind)
        total.set(numbers.combine(f, combine, total.get(), new, kind.dtype))
        tile[i] = numbers.narrowed(f, total.get(), kind).to(type, "bitcast")
    for i, line in enumerate(tiles.turned(f, tile, size)):
        f.store(line, f.offset(target, to_line * i), tiles.LINE if streaming else 1, streaming)


def _walk(
    f: Function,
    combine: str,
    kind: numbers.Kind,
    lines: Sequence[tuple[Value, Value, Value]],
    steps: Value,
    from_step: Value | int,
    to_step: Value | int,
) -> None:
    """Scan several lines together, each given as (source, target, initial value)."""
    totals = [f.variable(kind.type, before) for _, _, before in lines]
    with f.loop(0, steps) as i:
        for (source, target, _), total in zip(lines, totals, strict=True):
            new = numbers.load(f, f.offset(source, i * from_step), kind, 1)
            value = numbers.combine(f, combine, total.get(), new, kind.dtype)
            numbers.store(f, value, f.offset(target, i * to_step), kind)
            total.set(value)


def _along(combine: str, dtype: str, f: Function, block: Block) -> None:
    """Scan up to `LINES_PER_GROUP` lines, together or one by one; they are the block's columns."""
    kind = _kind(combine, dtype)
    steps, from_step, to_step = (block.extra(i) for i in range(3))

    identity_value = f.value(numbers.identity(combine, dtype), kind.type)

    def line(number: Value) -> tuple[Value, Value, Value]:
        source, target = (
            f.offset(address, number * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        return source, target, identity_value

    def together() -> None:
        lines = [line(f.value(number, "i64")) for number in range(TOGETHER)]
        _walk(f, combine, kind, lines, steps, from_step, to_step)

    def one_by_one() -> None:
        with f.loop(0, block.columns) as number:
            _walk(f, combine, kind, [line(number)], steps, from_step, to_step)

    f.choose(block.columns.is_("eq", TOGETHER), together, one_by_one)


RULES: dict[str, Rule] = dict.fromkeys(COMBINE, running_rule)
"""Extremes of complex numbers are not supported."""
