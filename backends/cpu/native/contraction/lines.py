"""Padded NHWC layout: lines of an image with zeros around them, features contiguous.

Rows of such a product are output positions. A task copies the lines of the image that its windows
read, padded with zeros. In the copy all windows are inside, positions of a line have a constant
distance, and so has each step of a window from its position: a tile needs one address for all of
its rows and a table of step offsets. Tile heights divide lines evenly.
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
"""Minimum output positions of a line."""
MANY = 25
"""Minimum number of features for which tiles read the image in place instead."""
FILTER = 128 << 10
"""Maximum bytes of a filter, which is reread for each tile."""
TASK = 20_000.0
"""Minimum duration of a task in nanoseconds."""


class Lined(NamedTuple):
    """A product whose left operand uses the padded NHWC layout.

    Its rows are `near` (positions of a line) and `line`; images are batch loops. `laid` is the
    layout of an image. Output lines are `apart` lines of the image apart, output positions `pace`
    elements.
    """

    work: Product
    near: Loop
    line: Loop
    laid: Laid
    apart: int
    pace: int

    def bytes_of(self, lines: int, size: int) -> int:
        """Return the bytes of the copied lines for `lines` output lines."""
        count = (lines - 1) * self.apart + 1 + self.laid.more
        return count * self.laid.width * size + 4 * LINE


def in_lines(work: Product, context: Context, label: str) -> list[Phase]:
    """Return the phases; none if another kernel is faster."""
    found = lined(work)
    if not found:
        return []
    work, laid, arith = found.work, found.laid, arithmetic(work.out.dtype)
    batch, _, columns, _ = work.sizes
    sizes = Sizes.of(arith, columns, work.machine)
    most = max((n for n in range(1, found.line.extent + 1)
                if found.bytes_of(n, arith.size) <= LEFT), default=0)  # fmt: skip
    most = min(most, LINES // found.near.extent)
    if not most:
        return []
    cost = 2.0 * prod(work.sizes) / rate(arith.part, work.machine)
    wanted = max(1, min(int(cost / TASK), 4 * context.workers))
    products = ceil(batch / min(batch, wanted))
    lines = min(most, ceil(found.line.extent / ceil(wanted / ceil(batch / products))))
    lines = ceil(found.line.extent / ceil(found.line.extent / lines))
    grid = Grid(lines * found.near.extent, columns, False, cost, products)
    fields, lists = described(work, grid)
    near, line = found.near, found.line
    lists["rows_lhs"] = [(near.extent, found.pace), (line.extent, found.apart)]
    lists["rows_out"] = [(near.extent, near.out), (line.extent, line.out)]
    lists["image_layout"] = laid.words
    tiles = Tiles.of(columns, sizes.tile)
    tiles = tiles.of_height(ceil(near.extent / ceil(near.extent / tiles.height)))
    dtypes = work.lhs.dtype, work.rhs.dtype, work.out.dtype
    kernel = lines_kernel(dtypes, sizes, tiles, found.pace)
    return [Phase(kernel, written(fields, lists), tasks(fields), grid.cost, label)]


def lined(work: Product) -> Lined | None:
    """Return the padded NHWC layout of the left operand, or None if it is not possible."""
    patches, arith = work.patches, arithmetic(work.out.dtype)
    if not (patches and patches.side == "lhs" and work.rows and work.inner):
        return None
    if arith.planes > 1 or work.lhs.dtype in COMPLEX or not converts(work.lhs.dtype, arith):
        return None
    if arith.dtype != work.out.dtype or [loop.out for loop in work.columns] != [arith.size]:
        return None
    *others, near = work.rows
    steps, item = prod(loop.extent for loop in work.inner), work.lhs.itemsize
    line = others.pop() if others else Loop(1, 0, 0, 0, (0,) * len(near.steps))
    if not 0 < steps <= STEPS or steps * work.sizes[2] * arith.size > FILTER:
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
        shift, reach_elements = 0, 0
        for at, loop in zip(place, work.inner, strict=True):
            if loop == down:
                shift = at * pace
            else:
                reach_elements += at * loop.lhs // item
        taps.append((0, shift, reach_elements))
    plane = Plane(0, *places, *inside)
    laid = Laid(width, ENDLESS, more, (unit, 0, 0), (plane,), tuple(taps))
    work = work._replace(batch=(*work.batch, *others), rows=(line, near) if line.lhs else (near,))
    return Lined(work, near, line, laid, apart, near.lhs // item)


def _features(near: Loop, along: Sequence[Loop], item: int) -> int:
    """Return the number of contiguous elements of a position; without checks, of a run of steps."""
    step = max(near.steps, default=0)
    if step:
        return near.lhs // item // step
    return next((loop.extent for loop in along if loop.lhs == item), 1)


def _overlap(near: Loop, along: Sequence[Loop], item: int) -> bool:
    """Return whether windows of adjacent positions overlap."""
    return sum((loop.extent - 1) * loop.lhs for loop in along) + item > near.lhs


def _in_groups(near: Loop, along: Sequence[Loop], d: int, group: int, item: int) -> bool:
    """Return whether `group` contiguous elements share a position along dimension `d`, and all
    loops advance by such groups or stay in one."""
    inside = sum((loop.extent - 1) * loop.lhs for loop in along if not loop.steps[d])
    return (
        group > 0
        and group * near.steps[d] * item == near.lhs
        and all(loop.steps[d] * group * item == loop.lhs for loop in along if loop.steps[d])
        and inside < group * item
    )
