"""NCHW layout of images: features first, so that columns are contiguous vectors in any window.

Columns of such a product are output positions, which are contiguous in the result. For each tap of
a window row a task copies the lines of the image that it needs into a plane, padded with zeros, so
that the positions of all lines form one run: vectors begin at any tap and cross from line to line.
Rows of a window read the same plane at a line offset; with a stride, each remainder has its own
plane. For small images, positions of several images form one run, and each tap of a window has a
plane.

The filter is read in memory order. Elements are summed in that order for any block sizes.
"""

from collections.abc import Sequence
from itertools import pairwise, product
from math import gcd, prod
from typing import NamedTuple

from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES, HostDescription
from shardir.backends.cpu.kernel_api import LoweringContext, Phase
from shardir.backends.cpu.kernels.conv.patch_access import PatchAccess
from shardir.backends.cpu.kernels.conv.tuning import (
    MAX_STRIDE_REMAINDERS,
    MIN_AMORTIZING_ROWS,
    MIN_LINES_PER_PADDING_LINE,
    MIN_NCHW_BLOCK_COLUMNS,
    MIN_NCHW_PART_STEPS,
    MIN_SEPARATE_IMAGE_POSITIONS,
    MIN_SEPARATE_IMAGE_POSITIONS_FOR_FEW_ROWS,
)
from shardir.backends.cpu.kernels.gemm.block_sizes import BlockSizes, equal_share_size
from shardir.backends.cpu.kernels.gemm.element_arithmetic import arithmetic_of
from shardir.backends.cpu.kernels.gemm.matrix_product import (
    ImagePatches,
    MatrixProduct,
    ProductLoop,
    merge_loops,
)
from shardir.backends.cpu.kernels.gemm.microkernel import type_of_stored_sums
from shardir.backends.cpu.kernels.gemm.packed_kernel import packed_gemm_kernel
from shardir.backends.cpu.kernels.gemm.product_record import encode_record
from shardir.backends.cpu.kernels.gemm.record_builder import count_tasks, describe_blocked_product
from shardir.backends.cpu.kernels.gemm.skinny_dispatch import operations_per_ns
from shardir.backends.cpu.kernels.gemm.task_grid import choose_task_grid
from shardir.backends.cpu.kernels.gemm.tuning import (
    MAX_BLOCK_LINES,
    MAX_PART_STEPS,
    PACKED_RHS_BYTES,
)

POSITION_PITCHES = (1, 2)
"""Supported distances in elements of adjacent output positions of a line."""
UNBOUNDED_LINES = 1 << 40
"""Number of lines of an image if there is one image."""


class ImagePlane(NamedTuple):
    """A plane of a channel: its start offset in bytes, and the ranges of positions of a line and of
    lines that are inside the image."""

    start: int
    first_place: int
    last_place: int
    first_line: int
    last_line: int


class ImageLayout(NamedTuple):
    """The layout of an image in planes.

    K steps are the `taps` for each channel; a tap has a plane, a line offset and a position offset.
    An image has `lines` lines of `width` positions; `strides` lead to the next line, image and
    channel. Planes have `padding_lines` lines than there are output lines.
    """

    width: int
    lines: int
    padding_lines: int
    strides: tuple[int, int, int]
    planes: tuple[ImagePlane, ...]
    taps: tuple[tuple[int, int, int], ...]

    @property
    def words(self) -> tuple[tuple[int, ...], ...]:
        """The words of the layout in the record."""
        sizes = self.width, self.lines, self.padding_lines, len(self.planes), len(self.taps)
        return (*sizes, *self.strides), *self.planes, *self.taps

    def block_sizes(self, channels: int, size: int, machine: HostDescription) -> tuple[int, int]:
        """Return the K steps of a part and the maximum columns of a block whose planes fit the L2
        cache; 0 columns if none fit."""
        least = max(
            MIN_NCHW_BLOCK_COLUMNS,
            MIN_LINES_PER_PADDING_LINE // 2 * self.padding_lines * self.width,
        )
        for parts in range(1, channels + 1):
            some = equal_share_size(channels, -(-channels // parts), 1)
            steps = some * len(self.taps)
            if steps > MAX_PART_STEPS:
                continue
            enough = steps <= MIN_NCHW_PART_STEPS or some == 1
            most = PACKED_RHS_BYTES if enough else min(PACKED_RHS_BYTES, machine.l2_bytes)
            columns = self._columns_in(some, size, most)
            if enough or columns >= least:
                return steps, min(columns, MAX_BLOCK_LINES)
        return 0, 0

    def _columns_in(self, channels: int, size: int, nbytes: int) -> int:
        """Return the number of columns whose planes take `nbytes` bytes."""
        line = channels * len(self.planes) * self.width * size
        around = channels * len(self.planes) * 3 * CACHE_LINE_BYTES + 4 * CACHE_LINE_BYTES
        return max(0, (nbytes - around) // line - self.padding_lines - 1) * self.width

    def align_block_to_lines(self, count: int, columns: int, most: int, parts: int) -> int:
        """Return the columns of a block of whole lines, near `columns` and at most `most` of
        `count`.

        Blocks have enough lines to amortize the padding lines if there are at least `parts` blocks;
        all parts have the same number of blocks.
        """
        lines = -(-count // self.width)
        least = min(MIN_LINES_PER_PADDING_LINE * self.padding_lines, -(-lines // parts))
        some = min(max(-(-columns // self.width), least), most // self.width)
        if not some:
            return columns
        blocks = -(-lines // some)
        return -(-lines // (-(-blocks // parts) * parts)) * self.width


class NchwProduct(NamedTuple):
    """The loops of a product whose right operand can be laid out in planes.

    `near` runs over positions of a line, `line` over lines, `image` over images. Of the K loops,
    `down` runs along a window from line to line if planes are shared, `channel` from channel to
    channel; `taps` are all others and `down`, in filter order.
    """

    work: MatrixProduct
    near: ProductLoop
    line: ProductLoop
    image: ProductLoop | None
    down: ProductLoop | None
    channel: ProductLoop | None
    taps: tuple[ProductLoop, ...]

    @property
    def position_pitch(self) -> int:
        """The distance in elements of adjacent output positions."""
        return self.near.rhs // self.work.rhs.itemsize

    @property
    def channels(self) -> int:
        """The number of channels."""
        return self.channel.extent if self.channel else 1

    def in_filter_order(self) -> MatrixProduct:
        """Return the product with its K steps in filter order, channels outermost."""
        outer = (self.channel,) if self.channel else ()
        return self.work._replace(inner=(*outer, *self.taps))

    @property
    def runs(self) -> tuple[ProductLoop, ...]:
        """The K steps as loops over the filter."""
        return merge_loops(
            ProductLoop(loop.extent, loop.lhs, 0, 0) for loop in self.in_filter_order().inner
        )

    def image_layout(self) -> ImageLayout:
        """Return the layout of the image."""
        patches = self.work.patches
        assert patches is not None
        planes: dict[tuple[int, ...], tuple[int, ImagePlane]] = {}
        taps = []
        stride, pace = self._line_strides()
        for place in product(*(range(loop.extent) for loop in self.taps)):
            shift, rest = 0, 0
            others = []
            for at, loop in zip(place, self.taps, strict=True):
                if loop is self.down:
                    shift, rest = divmod(at * pace, stride)
                else:
                    others.append((at, loop))
            key = (*(at for at, _ in others), rest)
            new = len(planes), self._plane_of(patches, others, rest, stride)
            taps.append((planes.setdefault(key, new)[0], shift, 0))
        return ImageLayout(
            self.near.extent,
            self.line.extent if self.image else UNBOUNDED_LINES,
            max(shift for _, shift, _ in taps),
            (
                self.line.rhs,
                self.image.rhs if self.image else 0,
                self.channel.rhs if self.channel else 0,
            ),
            tuple(plane for _, plane in planes.values()),
            tuple(taps),
        )

    def _line_strides(self) -> tuple[int, int]:
        """Return the distance in lines of the image of adjacent output positions, and of adjacent
        taps."""
        if not self.down:
            return 1, 0
        step = gcd(self.line.rhs, self.down.rhs)
        return self.line.rhs // step, self.down.rhs // step

    def _plane_of(
        self, patches: ImagePatches, taps: Sequence[tuple[int, ProductLoop]], rest: int, stride: int
    ) -> ImagePlane:
        """Return the plane of some taps, for lines with remainder `rest`."""
        near, line, down = self.near, self.line, self.down
        lines = (line.extent - 1) * stride
        lines += (down.extent - 1) * self._line_strides()[1] if down else 0
        places, inside = (0, near.extent), (0, (lines - rest) // stride + 1)
        for d, (begin, size) in enumerate(zip(patches.starts, patches.sizes, strict=True)):
            position = begin + sum(at * loop.position_strides[d] for at, loop in taps)
            position += rest * line.position_strides[d] // stride
            if near.position_strides[d]:
                places = inside_range(position, near.position_strides[d], size, near.extent)
            else:
                low, high = inside_range(position, line.position_strides[d], size, inside[1])
                inside = max(inside[0], low), high
        start = sum(at * loop.rhs for at, loop in taps) + rest * (line.rhs // stride)
        return ImagePlane(start, *places, *inside)


def find_nchw_layout(work: MatrixProduct) -> NchwProduct | None:
    """Return the loops of a product whose right operand can be laid out in planes, or None."""
    patches, arith = work.patches, arithmetic_of(work.out.dtype)
    if not (patches and patches.side == "rhs" and work.columns and work.inner):
        return None
    if arith.planes > 1:
        return None
    work = _split_off_large_images(work)
    *others, near = work.columns
    item, line = (
        work.rhs.itemsize,
        others[-1] if others else ProductLoop(1, 0, 0, 0, (0,) * len(near[4])),
    )
    if near.rhs not in [pace * item for pace in POSITION_PITCHES] or near.out != work.out.itemsize:
        return None
    if len(others) > 2 or line.rhs < 0:
        return None
    if any(any(loop.position_strides) for loop in (*others[:-1], *work.batch)):
        return None
    down = find_line_loop(work, line) if len(others) == 1 else None
    channel = _find_channel_loop(work, near, down)
    taps = sorted(
        (loop for loop in work.inner if loop is not channel), key=lambda loop: -abs(loop.lhs)
    )
    if not 0 < prod(loop.extent for loop in taps) <= min(MAX_PART_STEPS, near.extent * line.extent):
        return None
    image = others[0] if len(others) == 2 else None
    return NchwProduct(work, near, line, image, down, channel, tuple(taps))


def _split_off_large_images(work: MatrixProduct) -> MatrixProduct:
    """Turn the loop over large images into a batch loop."""
    enough = (
        MIN_SEPARATE_IMAGE_POSITIONS
        if work.sizes[1] >= MIN_AMORTIZING_ROWS
        else MIN_SEPARATE_IMAGE_POSITIONS_FOR_FEW_ROWS
    )
    while (
        not any(work.columns[0].position_strides)
        and prod(loop.extent for loop in work.columns[1:]) >= enough
        and not are_columns_contiguous(work.columns)
    ):
        work = work._replace(batch=(work.columns[0], *work.batch), columns=work.columns[1:])
    return work


def are_columns_contiguous(columns: Sequence[ProductLoop]) -> bool:
    """Return whether all columns of the result are contiguous."""
    pairs = pairwise(columns)
    return all(outer.out == inner.out * inner.extent for outer, inner in pairs)


def find_line_loop(work: MatrixProduct, line: ProductLoop) -> ProductLoop | None:
    """Return the K loop that runs from line to line, if it spans few lines."""
    found = []
    for loop in work.inner:
        if loop.rhs <= 0 or not line.rhs:
            continue
        step = gcd(line.rhs, loop.rhs)
        stride, pace = line.rhs // step, loop.rhs // step
        like = all(
            a * pace == b * stride
            for a, b in zip(line.position_strides, loop.position_strides, strict=True)
        )
        near = (loop.extent - 1) * pace // stride <= line.extent
        if like and near and stride <= MAX_STRIDE_REMAINDERS:
            found.append(loop)
    return min(found, key=lambda loop: loop.rhs, default=None)


def _find_channel_loop(
    work: MatrixProduct, near: ProductLoop, down: ProductLoop | None
) -> ProductLoop | None:
    """Return the K loop that runs from one set of planes to the next."""
    far = near.rhs * near.extent
    found = [
        loop
        for loop in work.inner
        if loop is not down and not any(loop.position_strides) and abs(loop.rhs) >= far
    ]
    return max(found, key=lambda loop: abs(loop.rhs), default=None)


def inside_range(position: int, step: int, size: int, count: int) -> tuple[int, int]:
    """Return the range of `count` positions that are at least 0 and less than `size`."""
    if not step:
        return (0, count) if 0 <= position < size else (0, 0)
    return max(0, -(position // step)), max(0, min(count, -((position - size) // step)))


def lower_nchw(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    """Return the phases; none if another kernel is faster."""
    found = find_nchw_layout(work)
    if not found:
        return []
    work, arith = found.in_filter_order(), arithmetic_of(work.out.dtype)
    laid = found.image_layout()
    batch, rows, columns, inner = work.sizes
    sizes = BlockSizes.of(arith, columns, work.machine)
    steps, most = laid.block_sizes(found.channels, arith.size, work.machine)
    most = most // sizes.tile.columns * sizes.tile.columns
    if not most:
        return []
    sizes = sizes.with_longer_parts(steps)
    direct = are_columns_contiguous(work.columns)
    stored = type_of_stored_sums(work.out.dtype, work.machine, direct and inner <= steps)
    staged = not direct or (arith.dtype != work.out.dtype and not stored)
    grid = choose_task_grid(
        batch, rows, columns, inner, sizes._replace(columns=most), arith.size, staged, False,
        context.workers, operations_per_ns(arith.size, arith.planes, work.machine), packable=False,
    )  # fmt: skip
    if staged:
        most = min(most, sizes.staged // grid.rows)
    if laid.padding_lines:  # Otherwise no line is copied twice, and blocks are whole tiles.
        parts = context.workers if batch == 1 else 1
        grid = grid._replace(columns=laid.align_block_to_lines(columns, grid.columns, most, parts))
    checked = PatchAccess("rhs", position_pitch=found.position_pitch)
    fields, lists = describe_blocked_product(work, grid, sizes, staged, checked)
    lists["inner_lhs"] = [(loop.extent, loop.lhs) for loop in reversed(found.runs)]
    fields["steps"], lists["image_layout"] = steps, laid.words
    dtypes = work.lhs.dtype, work.rhs.dtype, work.out.dtype
    kernel = packed_gemm_kernel(*dtypes, sizes, checked, stored=stored)
    return [Phase(kernel, encode_record(fields, lists), count_tasks(fields), grid.cost, label)]
