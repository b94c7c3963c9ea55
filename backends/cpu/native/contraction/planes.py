"""Images laid out in planes, so that columns are vectors wherever a window is: features first.

Columns of such a product are places, which are neighbours in the result. For each tap of a row of a
window a task copies the lines of the image that it needs, with zeros around them, so that places of
all lines are one run: vectors begin wherever a row of a window does, and cross from line to line.
Rows of a window read the same plane some lines further on; of a stride, each remainder has a plane.
Where images are small, places of several are one run, and each tap of a window has a plane.

The filter is read in the order in which it lies. Numbers are summed in that order, whatever the
blocks are.
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
"""Places of an image from which on it is a product by itself: so many, or more than few where not
many rows make up for planes for all taps."""
PACES = (1, 2)
"""How many numbers further on the next place of a line may be."""
REMAINDERS = 4
"""Remainders of lines that a stride may have."""
LEAST_STEPS, LEAST_COLUMNS = 128, 256
"""What a part of a sum should have, to be worth reading the result once more, and a block."""
AROUND = 8
"""Lines that a block should have for each that is laid out beside."""
ENDLESS = 1 << 40
"""Lines of an image, where there is one."""


class Plane(NamedTuple):
    """Where a plane begins in the image of a channel, in bytes; from which to which its places of a
    line, and its lines, lie inside."""

    start: int
    first_place: int
    last_place: int
    first_line: int
    last_line: int


class Laid(NamedTuple):
    """How an image is laid out.

    Steps of the sum are those of `taps` for each channel; of a tap it is said which plane it has,
    and how many lines, and places, further on it begins there. An image has `lines` lines of
    `width` places; `strides` lead to the next line, image and channel. Planes have `more` lines
    than places need.
    """

    width: int
    lines: int
    more: int
    strides: tuple[int, int, int]
    planes: tuple[Plane, ...]
    taps: tuple[tuple[int, int, int], ...]

    @property
    def words(self) -> tuple[tuple[int, ...], ...]:
        """What the record holds."""
        sizes = self.width, self.lines, self.more, len(self.planes), len(self.taps)
        return (*sizes, *self.strides), *self.planes, *self.taps

    def blocks(self, channels: int, size: int, machine: Machine) -> tuple[int, int]:
        """Steps of a part of the sum, and columns of a block at most, whose planes the second cache
        has room for; no columns if there are none."""
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
        """Columns whose planes have so many bytes."""
        line = channels * len(self.planes) * self.width * size
        around = channels * len(self.planes) * 3 * LINE + 4 * LINE
        return max(0, (nbytes - around) // line - self.more - 1) * self.width

    def whole_lines(self, count: int, columns: int, most: int, parts: int) -> int:
        """How many of `count` columns blocks have that should have about so many, and no more than
        `most`: whole lines, and enough of them to make up for those around, if as many parts are
        left; all parts have as many blocks."""
        lines = -(-count // self.width)
        least = min(AROUND * self.more, -(-lines // parts))
        some = min(max(-(-columns // self.width), least), most // self.width)
        if not some:
            return columns
        blocks = -(-lines // some)
        return -(-lines // (-(-blocks // parts) * parts)) * self.width


class Lying(NamedTuple):
    """The loops of a product whose right operand is to be laid out: of places of a line, of lines,
    of images; of the sum, `down` a window, if planes are shared, from channel to channel, and all
    others with `down`, in the order of the filter."""

    work: Product
    near: Loop
    line: Loop
    image: Loop | None
    down: Loop | None
    channel: Loop | None
    taps: tuple[Loop, ...]

    @property
    def pace(self) -> int:
        """How many numbers further on the next place is."""
        return self.near.rhs // self.work.rhs.itemsize

    @property
    def channels(self) -> int:
        return self.channel.extent if self.channel else 1

    def ordered(self) -> Product:
        """The product with its steps in the order of the filter, channels outermost."""
        outer = (self.channel,) if self.channel else ()
        return self.work._replace(inner=(*outer, *self.taps))

    @property
    def runs(self) -> tuple[Loop, ...]:
        """The steps as they lie in the filter."""
        return merged(Loop(loop.extent, loop.lhs, 0, 0) for loop in self.ordered().inner)

    def laid(self) -> Laid:
        """How it is laid out."""
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
        """How many lines of the image further on the next place, and the next tap, is."""
        if not self.down:
            return 1, 0
        step = gcd(self.line.rhs, self.down.rhs)
        return self.line.rhs // step, self.down.rhs // step

    def _plane(
        self, patches: Patches, taps: Sequence[tuple[int, Loop]], rest: int, stride: int
    ) -> Plane:
        """The plane of some taps, for lines that leave a remainder."""
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
    """The loops of a product whose right operand may be laid out in planes; none if it may not."""
    patches, numbers = work.patches, arithmetic(work.out.dtype)
    if not (patches and patches.side == "rhs" and work.columns and work.inner):
        return None
    if numbers.planes > 1 or work.rhs.dtype in COMPLEX or not converts(work.rhs.dtype, numbers):
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
    """Large images are products by themselves."""
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
    """Whether columns of the result are neighbours, all of them."""
    pairs = pairwise(columns)
    return all(outer.out == inner.out * inner.extent for outer, inner in pairs)


def loop_down(work: Product, line: Loop) -> Loop | None:
    """The loop of the sum that goes from line to line, if it goes through few of them."""
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
    """The loop of the sum that goes from one set of planes to the next."""
    far = near.rhs * near.extent
    found = [
        loop
        for loop in work.inner
        if loop is not down and not any(loop.steps) and abs(loop.rhs) >= far
    ]
    return max(found, key=lambda loop: abs(loop.rhs), default=None)


def inside_of(position: int, step: int, size: int, count: int) -> tuple[int, int]:
    """From which to which of `count` positions they are at least 0 and less than `size`."""
    if not step:
        return (0, count) if 0 <= position < size else (0, 0)
    return max(0, -(position // step)), max(0, min(count, -((position - size) // step)))
