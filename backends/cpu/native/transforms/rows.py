"""Load the rows of a batch into the lanes of vectors, and store them.

If the points of a row are contiguous, square tiles are transposed in registers; if the rows are,
vectors are loaded directly. Other layouts are copied element by element.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shardir.backends.cpu.native.contraction.elements import (
    Arithmetic,
    joined,
    read,
    split,
    stored,
    widened,
)
from shardir.backends.cpu.native.contraction.tile import masked_load, masked_store, within
from shardir.backends.cpu.native.llvm.text import Function, Value, vector
from shardir.backends.cpu.native.matrices.held import wide
from shardir.backends.cpu.native.moves.tiles import turned
from shardir.backends.cpu.native.transforms.passes import ITEM, lanes, width
from shardir.types import NUMPY_DTYPES


def lying(item: int, row: int, step: int) -> str:
    """Return which elements are contiguous in memory: `points`, `rows`, or none (`apart`)."""
    return "points" if step == item else "rows" if row == item else "apart"


@dataclass
class Rows:
    """Rows in memory, at most as many as vectors have lanes.

    `row` and `step` are the bytes between rows and between points; there are `count` rows. `planes`
    are the scratch addresses of real and imaginary parts, with one vector for each point.
    """

    f: Function
    dtype: str
    lying: str
    address: Value
    row: Value
    step: Value
    count: Value
    planes: list[Value]

    def __post_init__(self) -> None:
        self.numbers: Arithmetic = wide(self.dtype)
        self.item = NUMPY_DTYPES[self.dtype].itemsize
        self.part = self.item // self.numbers.planes
        self.lanes, self.width = lanes(), width()
        self.vector = vector("double", self.lanes)

    def bring(self, points: Value) -> None:
        """Load the rows; the imaginary parts of real elements, if they have a plane, become
        zero."""
        f = self.f
        if len(self.planes) > self.numbers.planes:
            zero = f.value(0.0, self.vector)
            with f.loop(0, points) as k:
                self.store(1, k, zero)
        if self.lying == "rows":
            with f.loop(0, points) as k:
                self._bring_line(k)
        elif self.lying == "apart":
            self._bring_one_by_one(points)
        else:
            fits = points.is_("uge", self.lanes)
            f.choose(
                fits, lambda: self._bring_tiles(points), lambda: self._bring_one_by_one(points)
            )

    def put(self, points: Value, scale: Value) -> None:
        """Store the rows, multiplied by `scale`."""
        f = self.f
        if self.lying == "rows":
            with f.loop(0, points) as k:
                self._put_line(k, scale)
        elif self.lying == "apart":
            self._put_one_by_one(points, scale)
        else:
            fits = points.is_("uge", self.lanes)
            f.choose(fits, lambda: self._put_tiles(points, scale),
                     lambda: self._put_one_by_one(points, scale))  # fmt: skip

    def _made(self, planes: list[Value]) -> Value:
        """Round each element to its type in memory and interleave the planes."""
        f = self.f
        if self.part < ITEM:
            kind = stored(self.dtype)
            planes = [part.to(part.type.replace("double", kind), "fptrunc") for part in planes]
        return joined(f, planes)

    def load(self, plane: int, point: Value) -> Value:
        f = self.f
        return f.load(f.offset(self.planes[plane], point * self.width), self.vector, self.width)

    def store(self, plane: int, point: Value, value: Value) -> None:
        self.f.store(value, self.f.offset(self.planes[plane], point * self.width), self.width)

    def _whole(self, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """Branch on whether all lanes have rows."""
        self.f.choose(self.count.is_("eq", self.lanes), yes, no)

    def _bring_line(self, k: Value) -> None:
        f, numbers = self.f, self.numbers
        at = f.offset(self.address, k * self.step)

        def whole() -> None:
            for plane, part in enumerate(read(f, at, self.dtype, numbers, self.lanes)):
                self.store(plane, k, part)

        def some() -> None:
            mask = within(f, self.count, self.lanes, numbers.planes)
            type = vector(stored(self.dtype), self.lanes * numbers.planes)
            loaded = masked_load(f, at, mask, type, self.part)
            parts = split(f, loaded) if numbers.planes == 2 else [loaded]
            for plane, part in enumerate(parts):
                self.store(plane, k, widened(f, part, self.dtype, numbers))

        self._whole(whole, some)

    def _put_line(self, k: Value, scale: Value) -> None:
        f, numbers = self.f, self.numbers
        at = f.offset(self.address, k * self.step)
        factor = f.splat(scale, self.lanes)
        result = self._made([self.load(plane, k) * factor for plane in range(numbers.planes)])

        def some() -> None:
            mask = within(f, self.count, self.lanes, numbers.planes)
            masked_store(f, result, at, mask, self.part)

        self._whole(lambda: f.store(result, at, self.part), some)

    def _starts(self) -> list[Value]:
        """Return the addresses of the rows; lanes without a row have that of the last one."""
        f, last = self.f, self.count - 1
        return [
            f.offset(self.address, f.least(f.value(i, "i64"), last) * self.row)
            for i in range(self.lanes)
        ]

    def _bring_tiles(self, points: Value) -> None:
        """Load tiles; the last one overlaps the one before it."""
        f, size = self.f, self.lanes
        starts = self._starts()
        with f.loop(0, points, size) as j:
            first = f.least(j, points - size)
            byte_offset = first * self.item
            tile = [
                f.load(f.offset(start, byte_offset), self._line(), self.part) for start in starts
            ]
            for i, planes in enumerate(self._points(tile)):
                for plane, value in enumerate(planes):
                    self.store(plane, first + i, value)

    def _line(self) -> str:
        """Return the type of a row of a tile; elements of 16 bytes have two parts."""
        if self.item == 2 * ITEM:
            return vector("double", 2 * self.lanes)
        return vector("double" if self.item == ITEM else "float", self.lanes)

    def _points(self, tile: list[Value]) -> list[list[Value]]:
        """Transpose a tile of rows to the planes of its points."""
        f, numbers = self.f, self.numbers
        if self.item == 2 * ITEM:
            pairs = [split(f, row) for row in tile]
            planes = [turned(f, [pair[plane] for pair in pairs], ITEM) for plane in (0, 1)]
            return [list(point) for point in zip(*planes, strict=True)]
        lines = turned(f, tile, self.item)
        if numbers.planes == 1:
            return [[widened(f, line, self.dtype, numbers)] for line in lines]
        pairs = [split(f, line.to(vector("float", 2 * self.lanes), "bitcast")) for line in lines]
        return [[widened(f, part, self.dtype, numbers) for part in pair] for pair in pairs]

    def _lines(self, points: list[list[Value]]) -> list[Value]:
        """Transpose a tile of points to its rows as they are in memory."""
        f = self.f
        if self.item == 2 * ITEM:
            tiles = [turned(f, [planes[i] for planes in points], ITEM) for i in (0, 1)]
            return [joined(f, planes) for planes in zip(*tiles, strict=True)]
        lines = [self._made(planes) for planes in points]
        if self.numbers.planes == 2:
            lines = [line.to(self.vector, "bitcast") for line in lines]
        return turned(f, lines, self.item)

    def _put_tiles(self, points: Value, scale: Value) -> None:
        f, numbers, size = self.f, self.numbers, self.lanes
        starts, factor = self._starts(), f.splat(scale, size)
        with f.loop(0, points, size) as j:
            first = f.least(j, points - size)
            byte_offset = first * self.item
            points_made = [
                [self.load(plane, first + i) * factor for plane in range(numbers.planes)]
                for i in range(size)
            ]
            lines = self._lines(points_made)
            # Lanes without a row write to the last row first, which its own lane overwrites.
            for start, line in zip(reversed(starts), reversed(lines), strict=True):
                f.store(line, f.offset(start, byte_offset), self.part)

    def _bring_one_by_one(self, points: Value) -> None:
        f, numbers = self.f, self.numbers
        with f.loop(0, self.lanes) as i:
            start = f.offset(self.address, f.least(i, self.count - 1) * self.row)
            with f.loop(0, points) as k:
                found = read(f, f.offset(start, k * self.step), self.dtype, numbers, 1)
                for plane, part in zip(self.planes, found, strict=False):
                    f.store(part, self._lane(plane, k, i), ITEM)

    def _put_one_by_one(self, points: Value, scale: Value) -> None:
        f, numbers = self.f, self.numbers
        with f.loop(0, self.count) as i:
            start = f.offset(self.address, i * self.row)
            with f.loop(0, points) as k:
                result = [
                    f.load(self._lane(plane, k, i), "double", ITEM) * scale
                    for plane in self.planes[: numbers.planes]
                ]
                f.store(self._made(result), f.offset(start, k * self.step), self.part)

    def _lane(self, plane: Value, point: Value, lane: Value) -> Value:
        f = self.f
        return f.offset(f.offset(plane, point * self.width), lane * ITEM)
