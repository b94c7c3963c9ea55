"""Lowers products whose rows have a constant pitch: see `strided_gemm_kernel`.

Such products are gradients of filters of few features and convolutions of images of one feature: a
run of elements of an image line is rows or columns, and so are features of the other operand.
"""

from collections.abc import Iterator
from math import ceil, inf, isqrt, prod
from typing import NamedTuple

from shardir.backends.cpu.native.contraction.describing import described, padded, tasks
from shardir.backends.cpu.native.contraction.einsum import Loop, Product
from shardir.backends.cpu.native.contraction.grid import Grid
from shardir.backends.cpu.native.contraction.pitched import LOOPS, Shape, pitched_kernel
from shardir.backends.cpu.native.contraction.rearranged import kind_of
from shardir.backends.cpu.native.contraction.record import written
from shardir.backends.cpu.native.data import Context, Phase, View, packed
from shardir.backends.cpu.native.llvm.target import Machine
from shardir.backends.cpu.native.moves.copying import copy_phases
from shardir.types import TensorType

PITCH = 512
"""Maximum bytes between rows of a filter; rows of an image are contiguous."""
WIDEST = 5
"""Maximum vectors of columns of a tile."""
LATENCY = 4.0
"""Latency in cycles of an accumulation."""
MOVE, TURN, SHARE, CLOCK = 0.08, 0.3, 0.5, 4.0
"""Nanoseconds per element copied in runs or squares, and per element copied otherwise; the maximum
time of copies relative to the product; cycles per nanosecond."""
FEW, PAGE = 16, 4096
"""Minimum rows and columns of a product without patches; maximum bytes between its K steps."""
SELDOM = 8
"""Maximum number of times that columns are read for which they are prefetched."""
STILL = Loop(1, 0, 0, 0)
TASK = 8_000.0
"""Minimum duration of a task in nanoseconds."""


class Tiling(NamedTuple):
    """A tile shape, and the cycles that each K step of all rows and columns takes."""

    cycles: float
    shape: Shape


def tiling(work: Product) -> Tiling | None:
    """Return the best tile for a product, if its rows have a pitch and its columns are
    contiguous."""
    if not work.rows or not work.columns:
        return None
    if work.patches.starts if work.patches else _far(work):
        return None
    if not 1 <= len(work.inner) <= LOOPS or not work.sizes[3]:
        return None
    if work.out.dtype not in ("f32", "f64"):
        return None
    near, last, item = work.rows[-1], work.columns[-1], work.out.itemsize
    # Taps of a filter run along positions of an image of one feature.
    taps = work.patches and work.patches.side == "rhs" and len(work.inner) <= 2
    taps = taps and abs(work.inner[-1].rhs) == item
    most = PITCH if taps else item
    same = work.lhs.dtype == work.rhs.dtype == work.out.dtype
    if not same or not 0 < near.lhs <= most or last.rhs != item:
        return None
    lanes = kind_of(work).lanes
    vectors, cut = ceil(last.extent / lanes), last.extent % lanes > 0
    others = prod(loop.extent for loop in (*work.rows[:-1], *work.columns[:-1]))
    found = []
    for times, height, width in _shapes(work):
        thin, high = vectors % width or width, times * height
        total = (vectors - thin) // width * _cycles(high, width) + _cycles(high, thin)
        total *= ceil(near.extent / height) * others / times
        found.append(Tiling(total, Shape(times, height, width, thin, cut, near.lhs)))
    return min(found, key=lambda each: each.cycles)


def _far(work: Product) -> bool:
    """Return whether a product without patches should be packed: its data exceeds the caches, or
    its steps are so far apart that they conflict in the caches. Few rows or columns do not pay
    off."""
    _, rows, columns, inner = work.sizes
    return (
        min(rows, columns) < FEW
        or inner * (rows + columns) * work.out.itemsize > 4 * work.machine.l2_bytes
        or any(abs(stride) >= PAGE for loop in work.inner for stride in (loop.lhs, loop.rhs))
    )


def _cycles(height: int, width: int) -> float:
    """Return the cycles of a step of a tile: the maximum of arithmetic, loads and latency."""
    return max(height * width / 2, (height + width) / 2, LATENCY) + 0.25


def _shapes(work: Product) -> Iterator[tuple[int, int, int]]:
    """Yield candidate tile shapes: groups of rows, rows per group, vectors of columns."""
    registers = 32 if work.machine.has_many_registers else 16
    rows = work.rows[-1].extent
    for width in range(1, WIDEST + 1):
        most = (registers - 1 - (width if width > 1 else 1)) // width
        count = ceil(rows / most)
        yield 1, ceil(rows / count), width
        if count == 1 and len(work.rows) > 1 and work.rows[-2].extent * rows <= most:
            yield work.rows[-2].extent, rows, width


def suits(work: Product, copied_before: int, copied_after: int) -> bool:
    """Return whether strided GEMM pays off for a convolution, if `copied_before` elements are
    copied before it and `copied_after` elements after it."""
    best, _ = _best(work)
    copies = MOVE * copied_before + TURN * copied_after
    return best is not None and copies <= SHARE * best.cycles * work.sizes[3] / CLOCK


def _best(work: Product) -> tuple[Tiling | None, Product]:
    """Return the better of a product and its transposition, and its tile."""

    def cycles(pair: tuple[Tiling | None, Product]) -> float:
        found, each = pair
        if not found:
            return inf
        apart = each.columns[-1].out != each.out.itemsize
        return found.cycles * each.sizes[3] + TURN / 2 * CLOCK * each.out.size * apart

    return min(((tiling(each), each) for each in (work, work.turned())), key=cycles)


def sliding(work: Product, context: Context, label: str) -> list[Phase]:
    """Return the phases of a product with one vector of columns that each skip some of the first
    and of the last K steps: see `TileShape`."""
    best = tiling(work)
    assert best is not None
    best = best._replace(shape=best.shape._replace(sliding=True))
    return [_phase(work, best, context, label)]


def pitched(work: Product, context: Context, label: str) -> list[Phase]:
    """Return the phases; none if the strides of rows or columns are not supported."""
    best, work = _best(work)
    if not best:
        return []
    if work.columns[-1].out == work.out.itemsize:
        return [_phase(work, best, context, label)]
    dense, source, target = _stored_apart(work, context)
    return [_phase(dense, best, context, label), *copy_phases(source, target, context)]


def _stored_apart(work: Product, context: Context) -> tuple[Product, View, View]:
    """Return the product with a dense result in a temporary, that result, and the view to copy it
    to."""
    loops = [*work.batch, *work.rows, *work.columns]
    shape = tuple(loop.extent for loop in loops)
    type = TensorType(shape, work.out.dtype)
    made = View(context.temporary(type.nbytes), 0, shape, packed(type), type.dtype)
    strides = iter(made.strides)
    batch, rows, columns = (
        tuple(loop._replace(out=next(strides)) for loop in each)
        for each in (work.batch, work.rows, work.columns)
    )
    target = work.out._replace(shape=shape, strides=tuple(loop.out for loop in loops))
    return work._replace(out=made, batch=batch, rows=rows, columns=columns), made, target


def _phase(work: Product, best: Tiling, context: Context, label: str) -> Phase:
    shape, kind = best.shape, kind_of(work)
    # Contiguous steps are innermost, even if there are few.
    loops = sorted(work.inner, key=lambda loop: -abs(loop.lhs) - abs(loop.rhs))
    inner = (*[STILL] * (LOOPS - len(loops)), *loops)
    read = work.sizes[1] // (shape.times * shape.height)
    is_uncached = work.sizes[3] * abs(inner[-1].rhs) > work.machine.l2_bytes and read <= SELDOM
    split = -2 if shape.times > 1 else -1
    group = work.rows[-2] if shape.times > 1 else STILL
    flat = work._replace(
        batch=(*work.batch, *work.rows[:split], *work.columns[:-1]),
        rows=work.rows[-1:], columns=work.columns[-1:], inner=inner, patches=None,
    )  # fmt: skip
    batch, rows, columns, steps = flat.sizes
    many = prod(loop.extent for loop in work.batch)
    cost = many * best.cycles * steps / CLOCK + 20.0 * batch
    wanted = max(1, min(int(cost / TASK), 4 * context.workers))
    products = -(-batch // min(batch, wanted))
    wanted = -(-wanted // -(-batch // products))
    step = shape.width * kind.lanes
    near = work.machine.l2_bytes // 4 // kind.item
    wide = _cut(columns, wanted, isqrt(near), step)
    high = _cut(rows, -(-wanted // -(-columns // wide)), near // wide, shape.height)
    fields, lists = described(flat, Grid(high, wide, False, cost, products))
    outer_steps, middle_steps = _read_at_once(inner, (high + wide) * kind.item, work.machine)
    fields |= {
        "packed_rows": outer_steps, "packed_columns": middle_steps,
        "panel_columns": group.lhs, "steps": group.out,
    }  # fmt: skip
    kernel = pitched_kernel(kind, shape._replace(ahead=is_uncached))
    return Phase(kernel, written(fields, lists), tasks(fields), cost, label)


def _cut(extent: int, parts: int, most: int, step: int) -> int:
    """Return the size of at least `parts` blocks of at most about `most` rows or columns."""
    parts = max(parts, ceil(extent / most))
    return padded(ceil(extent / parts), step) if parts > 1 else extent


def _read_at_once(inner: tuple[Loop, ...], nbytes: int, machine: Machine) -> tuple[int, int]:
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
