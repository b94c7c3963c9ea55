"""Load the rows of a batch into the lanes of vectors, and store them.

If the points of a row are contiguous, square tiles are transposed in registers; if the rows are,
vectors are loaded directly. Other layouts are copied element by element.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, vector_type
from shardir.backends.cpu.kernels.data_movement.transpose_tiles import transpose_tile
from shardir.backends.cpu.kernels.fft.passes import COMPUTE_ITEM_BYTES, fft_lanes, fft_vector_bytes
from shardir.backends.cpu.kernels.gemm.element_arithmetic import (
    Arithmetic,
    interleave_planes,
    load_widened,
    split_planes,
    widen,
)
from shardir.backends.cpu.kernels.gemm.microkernel import lane_mask, masked_load, masked_store
from shardir.backends.cpu.kernels.linalg.scratch_matrix import compute_arithmetic
from shardir.ir.types import NUMPY_DTYPES


def memory_layout(item: int, row: int, step: int) -> str:
    """Return which elements are contiguous in memory: `points`, `rows`, or none (`strided`)."""
    return "points" if step == item else "rows" if row == item else "strided"


@dataclass
class RowBatch:
    """Rows in memory, at most as many as vectors have lanes.

    `row` and `step` are the bytes between rows and between points; there are `count` rows. `planes`
    are the scratch addresses of real and imaginary parts, with one vector for each point.
    """

    f: LLVMFunction
    dtype: str
    layout: str
    address: LLVMValue
    row: LLVMValue
    step: LLVMValue
    count: LLVMValue
    planes: list[LLVMValue]

    def __post_init__(self) -> None:
        self.numbers: Arithmetic = compute_arithmetic(self.dtype)
        self.item = NUMPY_DTYPES[self.dtype].itemsize
        self.part = self.item // self.numbers.planes
        self.lanes, self.width = fft_lanes(self.f.machine), fft_vector_bytes(self.f.machine)
        self.vector = vector_type("double", self.lanes)

    def load_rows(self, points: LLVMValue) -> None:
        """Load the rows; the imaginary parts of real elements, if they have a plane, become
        zero."""
        f = self.f
        if len(self.planes) > self.numbers.planes:
            zero = f.value(0.0, self.vector)
            with f.loop(0, points) as k:
                self.store(1, k, zero)
        if self.layout == "rows":
            with f.loop(0, points) as k:
                self._load_line(k)
        elif self.layout == "strided":
            self._load_elements(points)
        else:
            fits = points.is_("uge", self.lanes)
            f.if_else(fits, lambda: self._load_tiles(points), lambda: self._load_elements(points))

    def store_rows(self, points: LLVMValue, scale: LLVMValue) -> None:
        """Store the rows, multiplied by `scale`."""
        f = self.f
        if self.layout == "rows":
            with f.loop(0, points) as k:
                self._store_line(k, scale)
        elif self.layout == "strided":
            self._store_elements(points, scale)
        else:
            fits = points.is_("uge", self.lanes)
            f.if_else(fits, lambda: self._store_tiles(points, scale),
                     lambda: self._store_elements(points, scale))  # fmt: skip

    def _round_and_join(self, planes: list[LLVMValue]) -> LLVMValue:
        """Round each element to its type in memory and interleave the planes."""
        f = self.f
        if self.part < COMPUTE_ITEM_BYTES:
            kind = MEMORY_TYPES[self.dtype]
            planes = [part.to(part.type.replace("double", kind), "fptrunc") for part in planes]
        return interleave_planes(f, planes)

    def load(self, plane: int, point: LLVMValue) -> LLVMValue:
        f = self.f
        return f.load(f.offset(self.planes[plane], point * self.width), self.vector, self.width)

    def store(self, plane: int, point: LLVMValue, value: LLVMValue) -> None:
        self.f.store(value, self.f.offset(self.planes[plane], point * self.width), self.width)

    def _if_full(self, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """Branch on whether all lanes have rows."""
        self.f.if_else(self.count.is_("eq", self.lanes), yes, no)

    def _load_line(self, k: LLVMValue) -> None:
        f, numbers = self.f, self.numbers
        at = f.offset(self.address, k * self.step)

        def whole() -> None:
            for plane, part in enumerate(load_widened(f, at, self.dtype, numbers, self.lanes)):
                self.store(plane, k, part)

        def some() -> None:
            mask = lane_mask(f, self.count, self.lanes, numbers.planes)
            type = vector_type(MEMORY_TYPES[self.dtype], self.lanes * numbers.planes)
            loaded = masked_load(f, at, mask, type, self.part)
            parts = split_planes(f, loaded) if numbers.planes == 2 else [loaded]
            for plane, part in enumerate(parts):
                self.store(plane, k, widen(f, part, self.dtype, numbers))

        self._if_full(whole, some)

    def _store_line(self, k: LLVMValue, scale: LLVMValue) -> None:
        f, numbers = self.f, self.numbers
        at = f.offset(self.address, k * self.step)
        factor = f.splat(scale, self.lanes)
        result = self._round_and_join(
            [self.load(plane, k) * factor for plane in range(numbers.planes)]
        )

        def some() -> None:
            mask = lane_mask(f, self.count, self.lanes, numbers.planes)
            masked_store(f, result, at, mask, self.part)

        self._if_full(lambda: f.store(result, at, self.part), some)

    def _row_addresses(self) -> list[LLVMValue]:
        """Return the addresses of the rows; lanes without a row have that of the last one."""
        f, last = self.f, self.count - 1
        return [
            f.offset(self.address, f.umin(f.value(i, "i64"), last) * self.row)
            for i in range(self.lanes)
        ]

    def _load_tiles(self, points: LLVMValue) -> None:
        """Load tiles; the last one overlaps the one before it."""
        f, size = self.f, self.lanes
        starts = self._row_addresses()
        with f.loop(0, points, size) as j:
            first = f.umin(j, points - size)
            byte_offset = first * self.item
            tile = [
                f.load(f.offset(start, byte_offset), self._tile_row_type(), self.part)
                for start in starts
            ]
            for i, planes in enumerate(self._transpose_to_points(tile)):
                for plane, value in enumerate(planes):
                    self.store(plane, first + i, value)

    def _tile_row_type(self) -> str:
        """Return the type of a row of a tile; elements of 16 bytes have two parts."""
        if self.item == 2 * COMPUTE_ITEM_BYTES:
            return vector_type("double", 2 * self.lanes)
        return vector_type("double" if self.item == COMPUTE_ITEM_BYTES else "float", self.lanes)

    def _transpose_to_points(self, tile: list[LLVMValue]) -> list[list[LLVMValue]]:
        """Transpose a tile of rows to the planes of its points."""
        f, numbers = self.f, self.numbers
        if self.item == 2 * COMPUTE_ITEM_BYTES:
            pairs = [split_planes(f, row) for row in tile]
            planes = [
                transpose_tile(f, [pair[plane] for pair in pairs], COMPUTE_ITEM_BYTES)
                for plane in (0, 1)
            ]
            return [list(point) for point in zip(*planes, strict=True)]
        lines = transpose_tile(f, tile, self.item)
        if numbers.planes == 1:
            return [[widen(f, line, self.dtype, numbers)] for line in lines]
        pairs = [
            split_planes(f, line.to(vector_type("float", 2 * self.lanes), "bitcast"))
            for line in lines
        ]
        return [[widen(f, part, self.dtype, numbers) for part in pair] for pair in pairs]

    def _transpose_to_rows(self, points: list[list[LLVMValue]]) -> list[LLVMValue]:
        """Transpose a tile of points to its rows as they are in memory."""
        f = self.f
        if self.item == 2 * COMPUTE_ITEM_BYTES:
            tiles = [
                transpose_tile(f, [planes[i] for planes in points], COMPUTE_ITEM_BYTES)
                for i in (0, 1)
            ]
            return [interleave_planes(f, planes) for planes in zip(*tiles, strict=True)]
        lines = [self._round_and_join(planes) for planes in points]
        if self.numbers.planes == 2:
            lines = [line.to(self.vector, "bitcast") for line in lines]
        return transpose_tile(f, lines, self.item)

    def _store_tiles(self, points: LLVMValue, scale: LLVMValue) -> None:
        f, numbers, size = self.f, self.numbers, self.lanes
        starts, factor = self._row_addresses(), f.splat(scale, size)
        with f.loop(0, points, size) as j:
            first = f.umin(j, points - size)
            byte_offset = first * self.item
            points_made = [
                [self.load(plane, first + i) * factor for plane in range(numbers.planes)]
                for i in range(size)
            ]
            lines = self._transpose_to_rows(points_made)
            # Lanes without a row write to the last row first, which its own lane overwrites.
            for start, line in zip(reversed(starts), reversed(lines), strict=True):
                f.store(line, f.offset(start, byte_offset), self.part)

    def _load_elements(self, points: LLVMValue) -> None:
        f, numbers = self.f, self.numbers
        with f.loop(0, self.lanes) as i:
            start = f.offset(self.address, f.umin(i, self.count - 1) * self.row)
            with f.loop(0, points) as k:
                found = load_widened(f, f.offset(start, k * self.step), self.dtype, numbers, 1)
                for plane, part in zip(self.planes, found, strict=False):
                    f.store(part, self._lane_address(plane, k, i), COMPUTE_ITEM_BYTES)

    def _store_elements(self, points: LLVMValue, scale: LLVMValue) -> None:
        f, numbers = self.f, self.numbers
        with f.loop(0, self.count) as i:
            start = f.offset(self.address, i * self.row)
            with f.loop(0, points) as k:
                result = [
                    f.load(self._lane_address(plane, k, i), "double", COMPUTE_ITEM_BYTES) * scale
                    for plane in self.planes[: numbers.planes]
                ]
                f.store(self._round_and_join(result), f.offset(start, k * self.step), self.part)

    def _lane_address(self, plane: LLVMValue, point: LLVMValue, lane: LLVMValue) -> LLVMValue:
        f = self.f
        return f.offset(f.offset(plane, point * self.width), lane * COMPUTE_ITEM_BYTES)
