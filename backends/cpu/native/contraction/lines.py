"""Images laid out in lines with zeros around them: few features, which are neighbours.

Rows of such a product are places. A task copies the lines of the image that its windows meet, with
zeros where they reach beyond it. Then all windows exist, places of a line are the same distance
apart everywhere, and so is each step of a window from its place: a tile needs one address for all
of its rows, and a table of steps, and is cut so that lines are whole tiles.
"""

from collections.abc import Sequence
from itertools import product
from math import ceil, gcd, prod
from typing import NamedTuple

from shardir.backends.cpu.native.contraction.describing import described, tasks
from shardir.backends.cpu.native.contraction.einsum import Loop, Product
from shardir.backends.cpu.native.contraction.elements import arithmetic, converts
from shardir.backends.cpu.native.contraction.grid import Grid
from shardir.backends.cpu.native.contraction.lines_kernel import Tiles, lines_kernel
from shardir.backends.cpu.native.contraction.narrow import rate
from shardir.backends.cpu.native.contraction.planes import (
    ENDLESS,
    Laid,
    Plane,
    inside_of,
    loop_down,
)
from shardir.backends.cpu.native.contraction.record import written
from shardir.backends.cpu.native.contraction.sizes import LEFT, LINES, STEPS, Sizes
from shardir.backends.cpu.native.contraction.tile import LINE
from shardir.backends.cpu.native.data import Context, Phase
from shardir.types import COMPLEX

LEAST_PLACES = 4
"""Places of a line that are worth a tile."""
MANY = 25
"""Features from which on tiles read them where they lie."""
FILTER = 128 << 10
"""Bytes of a filter that passes by for each few places."""
TASK = 20_000.0
"""Nanoseconds that a task should take at least."""


class Lined(NamedTuple):
    """A product whose left operand is to be laid out in lines.

    Its rows are `near`, places of a line, and `line`; of the batch are images. `down` goes through
    a window from line to line, `laid` says how an image is laid out.
    """

    work: Product
    near: Loop
    line: Loop
    laid: Laid
    apart: int
    pace: int

    def bytes_of(self, lines: int, size: int) -> int:
        """What so many lines of places take."""
        count = (lines - 1) * self.apart + 1 + self.laid.more
        return count * self.laid.width * size + 4 * LINE


def in_lines(work: Product, context: Context, label: str) -> list[Phase]:
    """Its phases; none if it is better done otherwise."""
    found = lined(work)
    if not found:
        return []
    work, laid, numbers = found.work, found.laid, arithmetic(work.out.dtype)
    batch, _, columns, _ = work.sizes
    sizes = Sizes.of(numbers, columns, work.machine)
    most = max((n for n in range(1, found.line.extent + 1)
                if found.bytes_of(n, numbers.size) <= LEFT), default=0)  # fmt: skip
    most = min(most, LINES // found.near.extent)
    if not most:
        return []
    cost = 2.0 * prod(work.sizes) / rate(numbers.part, work.machine)
    wanted = max(1, min(int(cost / TASK), 4 * context.workers))
    products = ceil(batch / min(batch, wanted))
    lines = min(most, ceil(found.line.extent / ceil(wanted / ceil(batch / products))))
    lines = ceil(found.line.extent / ceil(found.line.extent / lines))
    grid = Grid(lines * found.near.extent, columns, False, cost, products)
    fields, lists = described(work, grid)
    near, line = found.near, found.line
    lists["rows_lhs"] = [(near.extent, found.pace), (line.extent, found.apart)]
    lists["rows_out"] = [(near.extent, near.out), (line.extent, line.out)]
    lists["laid"] = laid.words
    tiles = Tiles.of(columns, sizes.tile)
    tiles = tiles.of_height(ceil(near.extent / ceil(near.extent / tiles.height)))
    dtypes = work.lhs.dtype, work.rhs.dtype, work.out.dtype
    kernel = lines_kernel(dtypes, sizes, tiles, found.pace)
    return [Phase(kernel, written(fields, lists), tasks(fields), grid.cost, label)]


def lined(work: Product) -> Lined | None:
    """How the left operand may be laid out in lines; none if it may not."""
    patches, numbers = work.patches, arithmetic(work.out.dtype)
    if not (patches and patches.side == "lhs" and work.rows and work.inner):
        return None
    if numbers.planes > 1 or work.lhs.dtype in COMPLEX or not converts(work.lhs.dtype, numbers):
        return None
    if numbers.dtype != work.out.dtype or [loop.out for loop in work.columns] != [numbers.size]:
        return None
    *others, near = work.rows
    steps, item = prod(loop.extent for loop in work.inner), work.lhs.itemsize
    line = others.pop() if others else Loop(1, 0, 0, 0, (0,) * len(near.steps))
    if not 0 < steps <= STEPS or steps * work.sizes[2] * numbers.size > FILTER:
        return None
    if near.lhs <= 0 or line.lhs < 0 or any(any(loop.steps) for loop in (*others, *work.batch)):
        return None
    down = loop_down(work.turned(), line._replace(rhs=line.lhs))
    down = down and down._replace(lhs=down.rhs, rhs=down.lhs)
    along = [loop for loop in work.inner if loop != down]
    reach = sum((loop.extent - 1) * loop.lhs for loop in (near, *along))
    if any(loop.lhs % item or loop.lhs < 0 for loop in (near, *along)):
        return None
    if near.extent < LEAST_PLACES or reach > 2 * near.extent * near.lhs:
        return None
    if _features(near, along, item) >= MANY or not (patches.starts or _overlap(near, along, item)):
        return None
    unit = gcd(line.lhs, down.lhs) if down else line.lhs
    apart, pace = (line.lhs // unit, down.lhs // unit) if down else (1, 0)
    more = (down.extent - 1) * pace if down else 0
    width, lines = reach // item + 1, (line.extent - 1) * apart + 1 + more
    places, inside = (0, width), (0, lines)
    for d, (begin, size) in enumerate(zip(patches.starts, patches.sizes, strict=True)):
        if near.steps[d]:
            group = near.lhs // item // near.steps[d]
            if not _in_groups(near, along, d, group, item):
                return None
            first, last = inside_of(begin, 1, size, ceil(width / group))
            places = first * group, min(width, last * group)
        else:
            if any(loop.steps[d] for loop in along):
                return None
            low, high = inside_of(begin, line.steps[d] // apart, size, inside[1])
            inside = max(inside[0], low), high
    taps = []
    for place in product(*(range(loop.extent) for loop in work.inner)):
        shift, far = 0, 0
        for at, loop in zip(place, work.inner, strict=True):
            if loop == down:
                shift = at * pace
            else:
                far += at * loop.lhs // item
        taps.append((0, shift, far))
    plane = Plane(0, *places, *inside)
    laid = Laid(width, ENDLESS, more, (unit, 0, 0), (plane,), tuple(taps))
    work = work._replace(batch=(*work.batch, *others), rows=(line, near) if line.lhs else (near,))
    return Lined(work, near, line, laid, apart, near.lhs // item)


def _features(near: Loop, along: Sequence[Loop], item: int) -> int:
    """How many neighbours make a place of the image; where nobody checks, of a run of steps."""
    step = max(near.steps, default=0)
    if step:
        return near.lhs // item // step
    return next((loop.extent for loop in along if loop.lhs == item), 1)


def _overlap(near: Loop, along: Sequence[Loop], item: int) -> bool:
    """Whether windows of neighbouring places do."""
    return sum((loop.extent - 1) * loop.lhs for loop in along) + item > near.lhs


def _in_groups(near: Loop, along: Sequence[Loop], d: int, group: int, item: int) -> bool:
    """Whether so many neighbours are at the same position along a dimension, and all loops go by
    such groups, or stay in one."""
    inside = sum((loop.extent - 1) * loop.lhs for loop in along if not loop.steps[d])
    return (
        group > 0
        and group * near.steps[d] * item == near.lhs
        and all(loop.steps[d] * group * item == loop.lhs for loop in along if loop.steps[d])
        and inside < group * item
    )
