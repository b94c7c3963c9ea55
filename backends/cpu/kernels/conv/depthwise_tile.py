"""The tile of the depthwise kernel: the sums of several vector lanes of several lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import and_, or_
from typing import NamedTuple

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, vector_type
from shardir.backends.cpu.codegen.narrow_floats import vectors_narrowed_together
from shardir.backends.cpu.kernels.gemm.element_arithmetic import (
    arithmetic_of,
    narrow_to_storage,
    widen,
)
from shardir.backends.cpu.kernels.gemm.microkernel import lane_mask, masked_load, masked_store
from shardir.ir.dtypes import NUMPY_DTYPES

MAX_DEPTHWISE_CHECKED_DIMS = 3
"""Maximum number of checked dimensions."""
TAP_ENTRY_BYTES = 8 * (2 + MAX_DEPTHWISE_CHECKED_DIMS)
"""Bytes of a run of taps in the table: two offsets and its positions."""


class TapRun(NamedTuple):
    """Taps that are unrolled, because they move along the same dimension as lines.

    Tap `t` of line `i` reads row `line_pitch * i + tap_pitch * t` of the left operand, which is
    loaded once for all lines and taps that read it. Without a run, `taps` is 1.
    """

    taps: int = 1
    line_pitch: int = 1
    tap_pitch: int = 0

    def row(self, line: int, tap: int) -> int:
        """Return the row of the left operand that a tap of a line reads."""
        return self.line_pitch * line + self.tap_pitch * tap


class TileShape(NamedTuple):
    """The lines and the vectors of lanes that a tile computes: `planes` lines of the second
    innermost loop, for each of them `height` lines of the innermost loop, and `width` vectors.

    With several planes, lines of the innermost loop are not divided between tiles, and the two
    loops move along different dimensions. With `has_partial_tiles`, some tiles have fewer lines.
    """

    planes: int
    height: int
    width: int
    has_partial_tiles: bool

    @property
    def lines(self) -> int:
        """The number of lines of the tile."""
        return self.planes * self.height

    @property
    def name(self) -> str:
        sizes = f"{self.planes}x" * (self.planes > 1) + f"{self.height}x{self.width}"
        return sizes + "_partial" * self.has_partial_tiles


class LaneLayout(NamedTuple):
    """The layout of lanes, and the dimensions that are checked.

    `checks` dimensions are checked; lanes are positions along the dimension `run_dim` (-1: none),
    and rows move along the dimensions `row_dims`.
    `is_rhs_shared`: all lanes share one element of the right operand. Lanes are every
    `lane_pitch`th element (1 or 2) of the left operand, or `lanes_per_element` lanes share each
    element.
    """

    checks: int
    run_dim: int
    row_dims: tuple[int, ...]
    is_rhs_shared: bool
    lane_pitch: int
    lanes_per_element: int

    @property
    def name(self) -> str:
        more = "_shared" * self.is_rhs_shared + "_every_second" * (self.lane_pitch - 1)
        more += f"_each{self.lanes_per_element}" * (self.lanes_per_element > 1)
        rows = "".join(f"{d + 1}" for d in self.row_dims) or "0"
        return f"{self.checks}_{self.run_dim + 1}_{rows}{more}"


class TileStrides(NamedTuple):
    """Strides in bytes: of a row and a plane of the left operand, of a tap of the right operand,
    and of a line and a plane of the result; and the strides of a row and of a plane in positions of
    the checked dimensions."""

    row: LLVMValue
    plane: LLVMValue
    tap: LLVMValue
    out: LLVMValue
    plane_out: LLVMValue
    row_positions: tuple[LLVMValue, ...]
    plane_positions: tuple[LLVMValue, ...]


class _LaneMasks(NamedTuple):
    """The masks of existing lanes, for the vectors of the right and of the left operand."""

    rhs: list[LLVMValue]
    lhs: list[list[LLVMValue]]


RhsVectors = dict[tuple[int, int], LLVMValue]
"""The loaded vectors of the right operand by tap and number of the vector."""


@dataclass
class DepthwiseTile:
    """The accumulators of some lanes of some lines, for the taps of the table.

    Operands have elements of type `operand`, the result of type `result`.
    """

    f: LLVMFunction
    operand: str
    result: str
    shape: TileShape
    layout: LaneLayout
    run: TapRun
    bounds: list[tuple[LLVMValue, LLVMValue]]
    strides: TileStrides

    def __post_init__(self) -> None:
        self.arith = arithmetic_of(self.result)
        self.item = NUMPY_DTYPES[self.operand].itemsize
        self.result_item = NUMPY_DTYPES[self.result].itemsize
        self.many = self.f.machine.lanes(self.arith.size)
        self.width = self.shape.width
        self.lanes = self.width * self.many
        self.type = vector_type(self.arith.type, self.many)
        self.sums = [
            [self.f.variable(self.type) for _ in range(self.width)] for _ in range(self.shape.lines)
        ]
        self.users: dict[int, list[tuple[int, int]]] = {}
        """The (line, tap) pairs of a plane that read each row of the left operand."""
        for line in range(self.shape.height):
            for tap in range(self.run.taps):
                self.users.setdefault(self.run.row(line, tap), []).append((line, tap))

    def emit(
        self,
        operands: list[LLVMValue],
        position: list[LLVMValue],
        table: LLVMValue,
        runs: LLVMValue,
        lane: LLVMValue,
        stop: LLVMValue,
        adding: LLVMValue,
        count: LLVMValue,
    ) -> None:
        """Emit the sums of the lanes from `lane` for the first `count` lines, over `runs` entries
        of the table."""
        f, item = self.f, self.item
        lhs, rhs, out = operands
        rest = stop - lane
        start = f.offset(
            lhs, lane * (item * self.layout.lane_pitch) // self.layout.lanes_per_element
        )
        to = f.offset(out, lane * self.result_item)
        exists = rest.is_("sge", self.lanes)
        self._set_sums(to, rest, adding, count)
        with f.loop(0, runs) as entry_index:
            entry = f.offset(table, entry_index * TAP_ENTRY_BYTES)
            checks = range(self.layout.checks)
            moves = [f.load(f.offset(entry, 8 * k), "i64") for k in range(2 + len(checks))]
            places = [position[d] + moves[2 + d] + self.bounds[d][0] for d in checks]
            right = f.offset(rhs, moves[1])
            if not self.layout.is_rhs_shared:
                right = f.offset(right, lane * item)
            self._add_run(f.offset(start, moves[0]), right, rest, places, lane, count)
        f.if_else(
            exists,
            lambda: self._store_lines(to, None, count),
            lambda: self._store_lines(to, rest, count),
        )

    def _set_sums(
        self, to: LLVMValue, rest: LLVMValue, adding: LLVMValue, count: LLVMValue
    ) -> None:
        """Set the sums to 0, or to the sums of earlier entries that the result contains."""
        f, many, size = self.f, self.many, self.result_item
        zero = f.splat(f.value(0, self.arith.type), many)
        for row in self.sums:
            for each in row:
                each.set(zero)
        with f.when(adding.is_("ne", 0), seldom=True):
            for line, row in enumerate(self.sums):
                with f.when(count.is_("sgt", line)):
                    for j, each in enumerate(row):
                        at = f.offset(self._line_address(to, line), j * many * size)
                        mask = lane_mask(f, rest - j * many, many)
                        each.set(self._load(at, mask, self.result, many))

    def _store_lines(self, to: LLVMValue, rest: LLVMValue | None, count: LLVMValue) -> None:
        """Store the sums of the first `count` lines; of the first `rest` lanes if not all exist."""
        # Without partial tiles all lines exist, but a block of all stores would take longer: LLVM
        # would convert the sums of all lines before the first store, and spill them.
        f, many, size = self.f, self.many, self.result_item
        together = vectors_narrowed_together(f.machine, self.result)
        if rest is not None or self.width % together:
            together = 1
        for line, row in enumerate(self.sums):
            with f.when(count.is_("sgt", line)):
                for j in range(0, self.width, together):
                    at = f.offset(self._line_address(to, line), j * many * size)
                    sums = row[j].get()
                    if together == 2:
                        sums = f.shuffle(sums, row[j + 1].get(), range(2 * many))
                    value = narrow_to_storage(f, sums, self.result)
                    if rest is None:
                        f.store(value, at, size)
                    else:
                        masked_store(f, value, at, lane_mask(f, rest - j * many, many), size)

    def _line_address(self, to: LLVMValue, line: int) -> LLVMValue:
        """Return the address of the result of a line of the tile."""
        plane, line = divmod(line, self.shape.height)
        distance = self.strides.out * line
        if plane:
            distance = distance + self.strides.plane_out * plane
        return self.f.offset(to, distance)

    def _add_run(
        self,
        left: LLVMValue,
        right: LLVMValue,
        rest: LLVMValue,
        places: list[LLVMValue],
        lane: LLVMValue,
        count: LLVMValue,
    ) -> None:
        """Add the products of a run of taps; `places` are the positions of its first row."""
        f, walked, pace = self.f, self.layout.run_dim, self.layout.lane_pitch
        whole, place = rest.is_("sge", self.lanes), None
        if walked >= 0:
            begin, extent = places[walked] + lane * pace, self.bounds[walked][1]
            last = begin + (self.lanes - 1) * pace
            whole = whole & begin.is_("sge", 0) & last.is_("slt", extent)
            place = begin, extent

        is_plane_inside = [
            self._is_plane_inside(places, plane) & self._exists(plane * self.shape.height, count)
            for plane in range(self.shape.planes)
        ]

        def add_existing_rows(masks: _LaneMasks | None) -> None:
            with f.when(reduce(or_, is_plane_inside)):
                for row in sorted(self.users):
                    first = min(line for line, _ in self.users[row])
                    with f.when(self._is_row_inside(places, row) & self._exists(first, count)):
                        taps: RhsVectors = {}
                        if self.shape.planes == 1:
                            self._add_row(left, right, row, 0, masks, taps)
                            continue
                        for (_, tap), j in product(self.users[row], range(self.width)):
                            self._load_rhs(right, tap, j, masks, taps)
                        for plane, is_inside in enumerate(is_plane_inside):
                            with f.when(is_inside):
                                self._add_row(left, right, row, plane, masks, taps)

        def add_all_rows() -> None:
            taps: RhsVectors = {}
            for row in sorted(self.users):
                for plane in range(self.shape.planes):
                    self._add_row(left, right, row, plane, None, taps)

        def whole_lanes() -> None:
            # Rows are ordered by position: if the first and the last are inside, all are.
            every = self._is_row_inside(places, 0) & self._is_row_inside(places, max(self.users))
            every = reduce(and_, is_plane_inside, every & self._exists(self.shape.lines - 1, count))
            f.if_else(every, add_all_rows, lambda: add_existing_rows(None))

        def some_lanes() -> None:
            masks = [lane_mask(f, rest - j * self.many, self.many) for j in range(self.width)]
            add_existing_rows(_LaneMasks(masks, self._masks(masks, rest, place)))

        f.if_else(whole, whole_lanes, some_lanes)

    def _exists(self, line: int, count: LLVMValue) -> LLVMValue:
        """Return whether a tile of `count` lines has a line."""
        if self.shape.has_partial_tiles:
            return count.is_("sgt", line)
        return self.f.value(1, "i1")

    def _is_row_inside(self, places: list[LLVMValue], row: int) -> LLVMValue:
        """Return whether a row is inside of the image along the dimensions of rows."""
        strides = self.strides.row_positions
        return self._are_inside(places, self.layout.row_dims, strides, row)

    def _is_plane_inside(self, places: list[LLVMValue], plane: int) -> LLVMValue:
        """Return whether a plane is inside of the image along the other dimensions."""
        moved = (*self.layout.row_dims, self.layout.run_dim)
        others = [d for d in range(self.layout.checks) if d not in moved]
        return self._are_inside(places, others, self.strides.plane_positions, plane)

    def _are_inside(
        self,
        places: list[LLVMValue],
        dims: Sequence[int],
        strides: Sequence[LLVMValue],
        steps: int,
    ) -> LLVMValue:
        """Return whether positions, moved by some steps, are inside along all of these
        dimensions."""
        found = self.f.value(1, "i1")
        for d in dims:
            moved = places[d] + strides[d] * steps if steps else places[d]
            found = found & moved.is_("ult", self.bounds[d][1])
        return found

    def _add_row(
        self,
        left: LLVMValue,
        right: LLVMValue,
        row: int,
        plane: int,
        masks: _LaneMasks | None,
        taps: RhsVectors,
    ) -> None:
        """Add the products of a row of a plane with all taps of lines that read it.

        Vectors of the right operand are loaded at their first use, and added to `taps`.
        """
        start = self.f.offset(left, self.strides.row * row)
        if plane:
            start = self.f.offset(start, self.strides.plane * plane)
        for j in range(self.width):
            loaded = self._load_lhs(start, j, masks.lhs if masks else None)
            for line, tap in self.users[row]:
                vector = self._load_rhs(right, tap, j, masks, taps)
                total = self.sums[plane * self.shape.height + line][j]
                total.set(self.arith.add_product(self.f, loaded, vector, total.get()))

    def _load_rhs(
        self, right: LLVMValue, tap: int, j: int, masks: _LaneMasks | None, taps: RhsVectors
    ) -> LLVMValue:
        """Return vector `j` of a tap of the right operand, or its shared element in all lanes; load
        it and add it to `taps` if it is not there."""
        f, many = self.f, self.many
        key = tap, 0 if self.layout.is_rhs_shared else j
        if key not in taps:
            start = f.offset(right, self.strides.tap * tap)
            if self.layout.is_rhs_shared:
                taps[key] = f.splat(self._load(start, None, self.operand, 1), many)
            else:
                mask = masks.rhs[j] if masks else None
                taps[key] = self._load(
                    f.offset(start, j * many * self.item), mask, self.operand, many
                )
        return taps[key]

    def _masks(
        self, masks: list[LLVMValue], rest: LLVMValue, place: tuple[LLVMValue, LLVMValue] | None
    ) -> list[list[LLVMValue]]:
        """Return the masks of existing lanes for each vector that is loaded from the left
        operand."""
        f, many, pace = self.f, self.many, self.layout.lane_pitch
        found, times = [], self.layout.lanes_per_element
        for j in range(self.width):
            found.append([masks[j]])
            if times > 1:
                found[-1] = [lane_mask(f, (rest - j * many) // times, many // times)]
            elif pace > 1 or place:
                found[-1] = []
                for first in self._vector_starts(j):
                    mask = lane_mask(f, rest * pace - (pace - 1 + first), many)
                    if place:
                        mask = mask & self._inside_mask(place[0] + first, place[1])
                    found[-1].append(mask)
        return found

    def _vector_starts(self, j: int) -> tuple[int, ...]:
        """Return the first elements of the vectors that vector `j` is loaded from: every second
        element comes from two vectors, of which the later one ends with the last element."""
        lane, pace = j * self.many // self.layout.lanes_per_element, self.layout.lane_pitch
        return (lane * pace, lane * pace + self.many - 1)[:pace]

    def _load_lhs(self, start: LLVMValue, j: int, masks: list[list[LLVMValue]] | None) -> LLVMValue:
        """Load a vector of the left operand; lanes outside the masks are zero."""
        f, many, times = self.f, self.many, self.layout.lanes_per_element
        found = [
            self._load(
                f.offset(start, first * self.item),
                masks[j][n] if masks else None,
                self.operand,
                many // times,
            )
            for n, first in enumerate(self._vector_starts(j))
        ]
        if times > 1:
            return f.shuffle(found[0], found[0], [lane // times for lane in range(many)])
        if len(found) == 1:
            return found[0]
        return f.shuffle(found[0], found[1], [*range(0, many, 2), *range(many + 1, 2 * many, 2)])

    def _inside_mask(self, begin: LLVMValue, extent: LLVMValue) -> LLVMValue:
        """Return the mask of lanes whose positions are at least 0 and less than the extent."""
        below = lane_mask(self.f, begin * -1, self.many)
        return lane_mask(self.f, extent - begin, self.many) & (below ^ -1)

    def _load(self, at: LLVMValue, mask: LLVMValue | None, dtype: str, count: int) -> LLVMValue:
        """Load `count` elements of a type as elements of the sums."""
        type, size = vector_type(MEMORY_TYPES[dtype], count), NUMPY_DTYPES[dtype].itemsize
        if mask is None:
            loaded = self.f.load(at, type, size)
        else:
            loaded = masked_load(self.f, at, mask, type, size)
        return widen(self.f, loaded, dtype, self.arith)
