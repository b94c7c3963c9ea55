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

from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES
from shardir.backends.cpu.kernel_api import LoweringContext, Phase, choose_task_count
from shardir.backends.cpu.kernels.conv.nchw_layout import (
    UNBOUNDED_LINES,
    ImageLayout,
    ImagePlane,
    find_line_loop,
    inside_range,
)
from shardir.backends.cpu.kernels.conv.padded_nhwc_kernel import ColumnTiles, padded_nhwc_kernel
from shardir.backends.cpu.kernels.conv.tuning import (
    MAX_FILTER_BYTES,
    MIN_IN_PLACE_FEATURES,
    MIN_LINE_POSITIONS,
)
from shardir.backends.cpu.kernels.gemm.block_sizes import BlockSizes
from shardir.backends.cpu.kernels.gemm.element_arithmetic import can_widen
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct, ProductLoop
from shardir.backends.cpu.kernels.gemm.product_record import encode_record
from shardir.backends.cpu.kernels.gemm.record_builder import count_tasks, describe_product
from shardir.backends.cpu.kernels.gemm.skinny_dispatch import operations_per_ns
from shardir.backends.cpu.kernels.gemm.task_grid import TaskGrid
from shardir.backends.cpu.kernels.gemm.tuning import (
    MAX_BLOCK_LINES,
    MAX_PART_STEPS,
    PACKED_LHS_BYTES,
)
from shardir.ir.types import COMPLEX


class PaddedNhwcProduct(NamedTuple):
    """A product whose left operand uses the padded NHWC layout.

    Its rows are `near` (positions of a line) and `line`; images are batch loops. `image_layout`
    is the layout of an image. Successive output lines are `line_distance` lines of the image apart,
    successive output positions `position_pitch` elements.
    """

    work: MatrixProduct
    near: ProductLoop
    line: ProductLoop
    image_layout: ImageLayout
    line_distance: int
    position_pitch: int

    def copied_bytes(self, lines: int, size: int) -> int:
        """Return the bytes of the copied lines for `lines` output lines."""
        count = (lines - 1) * self.line_distance + 1 + self.image_layout.padding_lines
        return count * self.image_layout.width * size + 4 * CACHE_LINE_BYTES


def lower_padded_nhwc(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    """Return the phases; none if another kernel is faster."""
    found = find_padded_nhwc_layout(work)
    if not found:
        return []
    work, laid, arith = found.work, found.image_layout, work.arithmetic
    batch, _, columns, _ = work.sizes
    sizes = BlockSizes.of(arith, columns, work.machine)
    most = max((n for n in range(1, found.line.extent + 1)
                if found.copied_bytes(n, arith.size) <= PACKED_LHS_BYTES), default=0)  # fmt: skip
    most = min(most, MAX_BLOCK_LINES // found.near.extent)
    if not most:
        return []
    cost = 2.0 * prod(work.sizes) / operations_per_ns(arith.size, arith.planes, work.machine)
    task_count = choose_task_count(cost, context.workers)
    products = ceil(batch / min(batch, task_count))
    lines = min(most, ceil(found.line.extent / ceil(task_count / ceil(batch / products))))
    lines = ceil(found.line.extent / ceil(found.line.extent / lines))
    grid = TaskGrid(lines * found.near.extent, columns, False, cost, products)
    fields, lists = describe_product(work, grid)
    near, line = found.near, found.line
    lists["rows_lhs"] = [(near.extent, found.position_pitch), (line.extent, found.line_distance)]
    lists["rows_out"] = [(near.extent, near.out), (line.extent, line.out)]
    lists["image_layout"] = laid.words
    tiles = ColumnTiles.of(columns, sizes.tile)
    tiles = tiles.with_height(ceil(near.extent / ceil(near.extent / tiles.height)))
    dtypes = work.lhs.dtype, work.rhs.dtype, work.out.dtype
    kernel = padded_nhwc_kernel(dtypes, sizes, tiles, found.position_pitch, work.grouped)
    return [Phase(kernel, encode_record(fields, lists), count_tasks(fields), grid.cost, label)]


def find_padded_nhwc_layout(work: MatrixProduct) -> PaddedNhwcProduct | None:
    """Return the padded NHWC layout of the left operand, or None if it is not possible."""
    patches, arith = work.patches, work.arithmetic
    if not (patches and patches.side == "lhs" and work.rows and work.inner):
        return None
    if arith.planes > 1 or work.lhs.dtype in COMPLEX or not can_widen(work.lhs.dtype, arith):
        return None
    if [loop.out for loop in work.columns] != [work.out.itemsize]:
        return None
    *others, near = work.rows
    steps, item = prod(loop.extent for loop in work.inner), work.lhs.itemsize
    line = others.pop() if others else ProductLoop(1, 0, 0, 0, (0,) * len(near.position_strides))
    if not 0 < steps <= MAX_PART_STEPS or steps * work.sizes[2] * arith.size > MAX_FILTER_BYTES:
        return None
    if (
        near.lhs <= 0
        or line.lhs < 0
        or any(any(loop.position_strides) for loop in (*others, *work.batch))
    ):
        return None
    down = find_line_loop(work.transpose(), line._replace(rhs=line.lhs))
    down = down and down._replace(lhs=down.rhs, rhs=down.lhs)
    along = [loop for loop in work.inner if loop != down]
    reach = sum((loop.extent - 1) * loop.lhs for loop in (near, *along))
    if any(loop.lhs % item or loop.lhs < 0 for loop in (near, *along)):
        return None
    if near.extent < MIN_LINE_POSITIONS or reach > 2 * near.extent * near.lhs:
        return None
    if _features_per_position(near, along, item) >= MIN_IN_PLACE_FEATURES or not (
        patches.starts or _do_windows_overlap(near, along, item)
    ):
        return None
    unit = gcd(line.lhs, down.lhs) if down else line.lhs
    line_distance, pace = (line.lhs // unit, down.lhs // unit) if down else (1, 0)
    more = (down.extent - 1) * pace if down else 0
    width, lines = reach // item + 1, (line.extent - 1) * line_distance + 1 + more
    places, inside = (0, width), (0, lines)
    for d, (begin, size) in enumerate(zip(patches.starts, patches.sizes, strict=True)):
        if near.position_strides[d]:
            group = near.lhs // item // near.position_strides[d]
            if not _is_grouped_by(near, along, d, group, item):
                return None
            first, last = inside_range(begin, 1, size, ceil(width / group))
            # Windows of a feature group read a part of each position; the array may end after it.
            end = (last - 1) * group + _elements_read_per_position(along, d, item)
            places = first * group, min(width, end)
        else:
            if any(loop.position_strides[d] for loop in along):
                return None
            low, high = inside_range(
                begin, line.position_strides[d] // line_distance, size, inside[1]
            )
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
    plane = ImagePlane(0, *places, *inside)
    laid = ImageLayout(width, UNBOUNDED_LINES, more, (unit, 0, 0), (plane,), tuple(taps))
    work = work._replace(batch=(*work.batch, *others), rows=(line, near) if line.lhs else (near,))
    return PaddedNhwcProduct(work, near, line, laid, line_distance, near.lhs // item)


def _features_per_position(near: ProductLoop, along: Sequence[ProductLoop], item: int) -> int:
    """Return the number of contiguous elements of a position; without checks, of a run of steps."""
    step = max(near.position_strides, default=0)
    if step:
        return near.lhs // item // step
    return next((loop.extent for loop in along if loop.lhs == item), 1)


def _do_windows_overlap(near: ProductLoop, along: Sequence[ProductLoop], item: int) -> bool:
    """Return whether windows of adjacent positions overlap."""
    return sum((loop.extent - 1) * loop.lhs for loop in along) + item > near.lhs


def _is_grouped_by(
    near: ProductLoop, along: Sequence[ProductLoop], d: int, group: int, item: int
) -> bool:
    """Return whether `group` contiguous elements share a position along dimension `d`, and all
    loops advance by such groups or stay in one."""
    return (
        group > 0
        and group * near.position_strides[d] * item == near.lhs
        and all(
            loop.position_strides[d] * group * item == loop.lhs
            for loop in along
            if loop.position_strides[d]
        )
        and _elements_read_per_position(along, d, item) <= group
    )


def _elements_read_per_position(along: Sequence[ProductLoop], d: int, item: int) -> int:
    """Return the number of elements between the first and the last one, inclusive, that a window
    reads at a position along dimension `d`."""
    loops = [loop for loop in along if not loop.position_strides[d]]
    return sum((loop.extent - 1) * loop.lhs for loop in loops) // item + 1
