"""The tile of the depthwise kernel: the sums of some lanes of some lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, vector_type
from shardir.backends.cpu.kernels.gemm.element_arithmetic import arithmetic_of
from shardir.backends.cpu.kernels.gemm.microkernel import lane_mask, masked_load, masked_store

MAX_DEPTHWISE_CHECKED_DIMS = 3
"""Maximum number of checked dimensions."""
TAP_ENTRY_BYTES = 8 * (2 + MAX_DEPTHWISE_CHECKED_DIMS)
"""Bytes of a tap in the table: two offsets and its positions."""


class LaneLayout(NamedTuple):
    """The layout of lanes.

    `checks` dimensions are checked; lanes are positions along the dimension `run_dim` (-1: none).
    `is_rhs_shared`: all lanes share one element of the right operand. Lanes are every
    `lane_pitch`th element (1 or 2) of the left operand, or `lanes_per_element` lanes share each
    element.
    """

    checks: int
    run_dim: int
    is_rhs_shared: bool
    lane_pitch: int
    lanes_per_element: int

    @property
    def name(self) -> str:
        more = "_shared" * self.is_rhs_shared + "_every_second" * (self.lane_pitch - 1)
        more += f"_each{self.lanes_per_element}" * (self.lanes_per_element > 1)
        return f"{self.checks}_{self.run_dim + 1}{more}"


@dataclass
class DepthwiseTile:
    """The accumulators of some lanes of some lines, for the taps of the table."""

    f: LLVMFunction
    dtype: str
    height: int
    width: int
    layout: LaneLayout
    bounds: list[tuple[LLVMValue, LLVMValue]]
    strides: list[LLVMValue]

    def __post_init__(self) -> None:
        self.arith = arithmetic_of(self.dtype)
        self.many = self.f.machine.lanes(self.arith.size)
        self.lanes = self.width * self.many
        self.type = vector_type(self.arith.type, self.many)
        self.sums = [
            [self.f.variable(self.type) for _ in range(self.width)] for _ in range(self.height)
        ]

    def emit(
        self,
        operands: list[LLVMValue],
        position: list[LLVMValue],
        table: LLVMValue,
        taps: LLVMValue,
        lane: LLVMValue,
        stop: LLVMValue,
        adding: LLVMValue,
        count: LLVMValue,
    ) -> None:
        """Emit the sums of the lanes from `lane`; missing lines repeat the last line and are not
        stored."""
        f, size, many = self.f, self.arith.size, self.many
        lhs, rhs, out = operands
        rest = stop - lane
        which = [f.umin(count - 1, i) if i else f.value(0, "i64") for i in range(self.height)]
        start = f.offset(
            lhs, lane * (size * self.layout.lane_pitch) // self.layout.lanes_per_element
        )
        lines = [f.offset(start, i * self.strides[0]) for i in which]
        to = f.offset(out, lane * size)
        masks = [lane_mask(f, rest - j * many, many) for j in range(self.width)]
        more = f.splat(adding.is_("ne", 0), many)
        for i, row in zip(which, self.sums, strict=True):
            for j, each in enumerate(row):
                at = f.offset(f.offset(to, i * self.strides[2]), j * many * size)
                each.set(masked_load(f, at, masks[j] & more, self.type, size))
        with f.loop(0, taps) as tap:
            entry = f.offset(table, tap * TAP_ENTRY_BYTES)
            checks = range(self.layout.checks)
            moves = [f.load(f.offset(entry, 8 * k), "i64") for k in range(2 + len(checks))]
            places = [position[d] + moves[2 + d] + self.bounds[d][0] for d in checks]
            right = f.offset(rhs, moves[1])
            if not self.layout.is_rhs_shared:
                right = f.offset(right, lane * size)
            self._tap(lines, moves[0], right, masks, rest, places, lane, which)
        for n, row in enumerate(self.sums):
            with f.when(count.is_("sgt", n)):
                for j, each in enumerate(row):
                    at = f.offset(f.offset(to, self.strides[2] * n), j * many * size)
                    masked_store(f, each.get(), at, masks[j], size)

    def _tap(
        self,
        lines: list[LLVMValue],
        move: LLVMValue,
        right: LLVMValue,
        masks: list[LLVMValue],
        rest: LLVMValue,
        places: list[LLVMValue],
        lane: LLVMValue,
        which: list[LLVMValue],
    ) -> None:
        f, walked, pace = self.f, self.layout.run_dim, self.layout.lane_pitch
        whole, place = rest.is_("sge", self.lanes), None
        if walked >= 0:
            begin, extent = places[walked] + lane * pace, self.bounds[walked][1]
            last = begin + (self.lanes - 1) * pace
            whole = whole & begin.is_("sge", 0) & last.is_("slt", extent)
            place = begin, extent

        def inside(i: LLVMValue) -> LLVMValue:
            found = f.value(1, "i1")
            for d, at in enumerate(places):
                if d != walked:
                    moved = at + i * self.strides[3 + d]
                    found = found & moved.is_("ult", self.bounds[d][1])
            return found

        def add(rows: Sequence[int], full: bool) -> None:
            some = self._masks(masks, rest, place) if not full else None
            vectors = self._load_rhs(right, None if full else masks)
            for i in rows:
                for j, each in enumerate(self.sums[i]):
                    a = self._load_lhs(f.offset(lines[i], move), j, some)
                    each.set(self.arith.add_product(f, a, vectors[j], each.get()))

        def all_rows() -> None:
            rows = range(self.height)
            f.if_else(whole, lambda: add(rows, True), lambda: add(rows, False))

        def each_row() -> None:
            for row in range(self.height):
                with f.when(inside(which[row])):
                    add([row], False)

        # Lines are ordered by position: if the first and the last are inside, all are.
        if self.height == 1:
            with f.when(inside(which[0])):
                all_rows()
        else:
            f.if_else(inside(which[0]) & inside(which[-1]), all_rows, each_row)

    def _load_rhs(self, right: LLVMValue, masks: list[LLVMValue] | None) -> list[LLVMValue]:
        """Load the vectors of the right operand, or broadcast its shared element."""
        f, size, many = self.f, self.arith.size, self.many
        if self.layout.is_rhs_shared:
            return [f.splat(f.load(right, self.arith.type), many)] * self.width
        return [
            self._read(f.offset(right, j * many * size), masks[j] if masks else None)
            for j in range(self.width)
        ]

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
        type = vector_type(self.arith.type, many // times)
        found = [
            self._read(
                f.offset(start, first * self.arith.size), masks[j][n] if masks else None, type
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
        f, many = self.f, self.many
        indices = ", ".join(f"i64 {lane}" for lane in range(many))
        first = f.splat(begin, many)
        places = f.emit(f"add {first.type} {first}, <{indices}>", first.type)
        return places.is_("ult", f.splat(extent, many))

    def _read(self, at: LLVMValue, mask: LLVMValue | None, type: str = "") -> LLVMValue:
        type, size = type or self.type, self.arith.size
        if mask is None:
            return self.f.load(at, type, size)
        return masked_load(self.f, at, mask, type, size)
