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

from shardir.backends.cpu.native.contraction.einsum import Loop, Patches, Product, merged
from shardir.backends.cpu.native.contraction.elements import arithmetic, converts
from shardir.backends.cpu.native.contraction.sizes import LINES, RIGHT, STEPS, shares
from shardir.backends.cpu.native.contraction.tile import LINE
from shardir.backends.cpu.native.llvm.target import Machine
from shardir.types import COMPLEX

SMALL, FEW, MANY = 512, 64, 128
"""Minimum output positions of an image that is a product by itself: the first number, or the second
if there are fewer rows than the third, which would not amortize planes of all taps."""
PACES = (1, 2)
"""Supported distances in elements of adjacent output positions of a line."""
REMAINDERS = 4
"""Maximum number of remainders of lines of a stride."""
LEAST_STEPS, LEAST_COLUMNS = 128, 256
"""Minimum K steps of a part, so that rereading the result pays off, and minimum columns of a
block."""
AROUND = 8
"""Minimum lines of a block for each padding line."""
ENDLESS = 1 << 40
"""Number of lines of an image if there is one image."""


class Plane(NamedTuple):
    """A plane of a channel: its start offset in bytes, and the ranges of positions of a line and of
    lines that are inside the image."""

    start: int
    first_place: int
    last_place: int
    first_line: int
    last_line: int


class Laid(NamedTuple):
    """The layout of an image in planes.

    K steps are the `taps` for each channel; a tap has a plane, a line offset and a position offset.
    An image has `lines` lines of `width` positions; `strides` lead to the next line, image and
    channel. Planes have `more` lines than there are output lines.
    """

    width: int
    lines: int
    more: int
    strides: tuple[int, int, int]
    planes: tuple[Plane, ...]
    taps: tuple[tuple[int, int, int], ...]

    @property
    def words(self) -> tuple[tuple[int, ...], ...]:
        """The words of the layout in the record."""
        sizes = self.width, self.lines, self.more, len(self.planes), len(self.taps)
        return (*sizes, *self.strides), *self.planes, *self.taps

    def blocks(self, channels: int, size: int, machine: Machine) -> tuple[int, int]:
        """Return the K steps of a part and the maximum columns of a block whose planes fit the L2
        cache; 0 columns if none fit."""
        least = max(LEAST_COLUMNS, AROUND // 2 * self.more * self.width)
        for parts in range(1, channels + 1):
            some = shares(channels, -(-channels // parts), 1)
            steps = some * len(self.taps)
            if steps > STEPS:
                continue
            enough = steps <= LEAST_STEPS or some == 1
            most = RIGHT if enough else min(RIGHT, machine.l2_bytes)
            columns = self._columns(some, size, most)
            if enough or columns >= least:
                return steps, min(columns, LINES)
        return 0, 0

    def _columns(self, channels: int, size: int, nbytes: int) -> int:
        """Return the number of columns whose planes take `nbytes` bytes."""
        line = channels * len(self.planes) * self.width * size
        around = channels * len(self.planes) * 3 * LINE + 4 * LINE
        return max(0, (nbytes - around) // line - self.more - 1) * self.width

    def whole_lines(self, count: int, columns: int, most: int, parts: int) -> int:
        """Return the columns of a block of whole lines, near `columns` and at most `most` of
        `count`.

        Blocks have enough lines to amortize the padding lines if there are at least `parts` blocks;
        all parts have the same number of blocks.
        """
        lines = -(-count // self.width)
        least = min(AROUND * self.more, -(-lines // parts))
        some = min(max(-(-columns // self.width), least), most // self.width)
        if not some:
            return columns
        blocks = -(-lines // some)
        return -(-lines // (-(-blocks // parts) * parts)) * self.width


class Lying(NamedTuple):
    """The loops of a product whose right operand can be laid out in planes.

    `near` runs over positions of a line, `line` over lines, `image` over images. Of the K loops,
    `down` runs along a window from line to line if planes are shared, `channel` from channel to
    channel; `taps` are all others and `down`, in filter order.
    """

    work: Product
    near: Loop
    line: Loop
    image: Loop | None
    down: Loop | None
    channel: Loop | None
    taps: tuple[Loop, ...]

    @property
    def pace(self) -> int:
        """The distance in elements of adjacent output positions."""
        return self.near.rhs // self.work.rhs.itemsize

    @property
    def channels(self) -> int:
        """The number of channels."""
        return self.channel.extent if self.channel else 1

    def ordered(self) -> Product:
        """Return the product with its K steps in filter order, channels outermost."""
        outer = (self.channel,) if self.channel else ()
        return self.work._replace(inner=(*outer, *self.taps))

    @property
    def runs(self) -> tuple[Loop, ...]:
        """The K steps as loops over the filter."""
        return merged(Loop(loop.extent, loop.lhs, 0, 0) for loop in self.ordered().inner)

    def laid(self) -> Laid:
        """Return the layout of the image."""
        patches = self.work.patches
        assert patches is not None
        planes: dict[tuple[int, ...], tuple[int, Plane]] = {}
        taps = []
        stride, pace = self._paces()
        for place in product(*(range(loop.extent) for loop in self.taps)):
            shift, rest = 0, 0
            others = []
            for at, loop in zip(place, self.taps, strict=True):
                if loop is self.down:
                    shift, rest = divmod(at * pace, stride)
                else:
                    others.append((at, loop))
            key = (*(at for at, _ in others), rest)
            new = len(planes), self._plane(patches, others, rest, stride)
            taps.append((planes.setdefault(key, new)[0], shift, 0))
        return Laid(
            self.near.extent,
            self.line.extent if self.image else ENDLESS,
            max(shift for _, shift, _ in taps),
            (
                self.line.rhs,
                self.image.rhs if self.image else 0,
                self.channel.rhs if self.channel else 0,
            ),
            tuple(plane for _, plane in planes.values()),
            tuple(taps),
        )

    def _paces(self) -> tuple[int, int]:
        """Return the distance in lines of the image of adjacent output positions, and of adjacent
        taps."""
        if not self.down:
            return 1, 0
        step = gcd(self.line.rhs, self.down.rhs)
        return self.line.rhs // step, self.down.rhs // step

    def _plane(
        self, patches: Patches, taps: Sequence[tuple[int, Loop]], rest: int, stride: int
    ) -> Plane:
        """Return the plane of some taps, for lines with remainder `rest`."""
        near, line, down = self.near, self.line, self.down
        lines = (line.extent - 1) * stride
        lines += (down.extent - 1) * self._paces()[1] if down else 0
        places, inside = (0, near.extent), (0, (lines - rest) // stride + 1)
        for d, (begin, size) in enumerate(zip(patches.starts, patches.sizes, strict=True)):
            position = begin + sum(at * loop.steps[d] for at, loop in taps)
            position += rest * line.steps[d] // stride
            if near.steps[d]:
                places = inside_of(position, near.steps[d], size, near.extent)
            else:
                low, high = inside_of(position, line.steps[d], size, inside[1])
                inside = max(inside[0], low), high
        start = sum(at * loop.rhs for at, loop in taps) + rest * (line.rhs // stride)
        return Plane(start, *places, *inside)


def lying(work: Product) -> Lying | None:
    """Return the loops of a product whose right operand can be laid out in planes, or None."""
    patches, arith = work.patches, arithmetic(work.out.dtype)
    if not (patches and patches.side == "rhs" and work.columns and work.inner):
        return None
    if arith.planes > 1 or work.rhs.dtype in COMPLEX or not converts(work.rhs.dtype, arith):
        return None
    work = _with_batch(work)
    *others, near = work.columns
    item, line = work.rhs.itemsize, others[-1] if others else Loop(1, 0, 0, 0, (0,) * len(near[4]))
    if near.rhs not in [pace * item for pace in PACES] or near.out != work.out.itemsize:
        return None
    if (
        len(others) > 2
        or line.rhs < 0
        or any(a and b for a, b in zip(near[4], line[4], strict=True))
    ):
        return None
    if any(any(loop.steps) for loop in (*others[:-1], *work.batch)):
        return None
    down = loop_down(work, line) if len(others) == 1 else None
    channel = _channel(work, near, down)
    taps = sorted(
        (loop for loop in work.inner if loop is not channel), key=lambda loop: -abs(loop.lhs)
    )
    if not 0 < prod(loop.extent for loop in taps) <= min(STEPS, near.extent * line.extent):
        return None
    image = others[0] if len(others) == 2 else None
    return Lying(work, near, line, image, down, channel, tuple(taps))


def _with_batch(work: Product) -> Product:
    """Turn the loop over large images into a batch loop."""
    enough = SMALL if work.sizes[1] >= MANY else FEW
    while (
        len(work.columns) > 1
        and not any(work.columns[0].steps)
        and prod(loop.extent for loop in work.columns[1:]) >= enough
        and not one_run(work.columns)
    ):
        work = work._replace(batch=(work.columns[0], *work.batch), columns=work.columns[1:])
    return work


def one_run(columns: Sequence[Loop]) -> bool:
    """Return whether all columns of the result are contiguous."""
    pairs = pairwise(columns)
    return all(outer.out == inner.out * inner.extent for outer, inner in pairs)


def loop_down(work: Product, line: Loop) -> Loop | None:
    """Return the K loop that runs from line to line, if it spans few lines."""
    found = []
    for loop in work.inner:
        if loop.rhs <= 0 or not line.rhs:
            continue
        step = gcd(line.rhs, loop.rhs)
        stride, pace = line.rhs // step, loop.rhs // step
        like = all(a * pace == b * stride for a, b in zip(line.steps, loop.steps, strict=True))
        near = (loop.extent - 1) * pace // stride <= line.extent
        if like and near and stride <= REMAINDERS and not any(x % stride for x in line.steps):
            found.append(loop)
    return min(found, key=lambda loop: loop.rhs, default=None)


def _channel(work: Product, near: Loop, down: Loop | None) -> Loop | None:
    """Return the K loop that runs from one set of planes to the next."""
    far = near.rhs * near.extent
    found = [
        loop
        for loop in work.inner
        if loop is not down and not any(loop.steps) and abs(loop.rhs) >= far
    ]
    return max(found, key=lambda loop: abs(loop.rhs), default=None)


def inside_of(position: int, step: int, size: int, count: int) -> tuple[int, int]:
    """Return the range of `count` positions that are at least 0 and less than `size`."""
    if not step:
        return (0, count) if 0 <= position < size else (0, 0)
    return max(0, -(position // step)), max(0, min(count, -((position - size) // step)))
