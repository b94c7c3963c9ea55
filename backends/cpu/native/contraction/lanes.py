"""Products whose operands share a dimension: one sum a lane, as of each feature by itself.

`out[line, lane] = sum over taps of lhs[line, tap, lane] * rhs[line, tap, lane]`, where lanes are
neighbours in the result, neighbours or every second number in the left operand, and neighbours or
the same number in the right one. Taps of patches may lie outside the image, as whole lines or,
where lanes are places of a row, lane by lane.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from shardir.backends.cpu.native.contraction.elements import arithmetic
from shardir.backends.cpu.native.contraction.tile import masked_load, masked_store, within
from shardir.backends.cpu.native.data import SCRATCH_BYTES, Kernel
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Module, Value, Variable, vector

CHECKS = 3
TAPS = 1024
"""Taps that are looked up at a time."""
_NAMES = ("lhs_slot", "lhs_offset", "rhs_slot", "rhs_offset", "out_slot", "out_offset",
          "lanes", "block_lanes", "lane_blocks", "lines", "block_lines", "taps",
          "line_loops", "line_count", "tap_loops", "tap_count",
          "start_0", "size_0", "start_1", "size_1", "start_2", "size_2")  # fmt: skip
_PLACE = {name: i for i, name in enumerate(_NAMES)}
_ENTRY = 8 * (2 + CHECKS)
"""Bytes of a tap in the table: two offsets and its positions."""


def written(
    fields: dict[str, int], lines: Sequence[Sequence[int]], taps: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """The record. Lines and taps are loops (extent, lhs, rhs, out, positions...), innermost
    first."""
    words = [fields.get(name, 0) for name in _NAMES]
    for name, loops in (("line", lines), ("tap", taps)):
        words[_PLACE[f"{name}_loops"]] = len(words)
        words[_PLACE[f"{name}_count"]] = len(loops)
        for loop in loops:
            words += loop
    return tuple(words)


@cache
def lanes_kernel(dtype: str, width: int, walked: int, shared: bool, pace: int) -> Kernel:
    """The kernel for `width` vectors of lanes at a time.

    `walked` is the checked dimension that lanes are places of (-1: none); `shared`: all lanes take
    the same number of the right operand. Lanes are every `pace`th number of the left one: 1 or 2.
    """
    name = f"lanes_{dtype}_{width}_{walked + 1}" + "_shared" * shared + "_every_second" * (pace - 1)
    return Kernel(name, lambda: _text(name, dtype, width, walked, shared, pace))


def _text(name: str, dtype: str, width: int, walked: int, shared: bool, pace: int) -> str:
    module = Module()
    f = Function(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, worker = f.params

    def get(field: str) -> Value:
        return f.load(f.offset(record, 8 * _PLACE[field]), "i64")

    def address(side: str) -> Value:
        base = f.load(f.offset(bases, get(f"{side}_slot"), "ptr"), "ptr")
        return f.offset(base, get(f"{side}_offset"))

    table = f.offset(f.load(bases, "ptr"), worker * SCRATCH_BYTES)
    lhs, rhs, out = address("lhs"), address("rhs"), address("out")
    first_lane = task % get("lane_blocks") * get("block_lanes")
    last_lane = f.least(first_lane + get("block_lanes"), get("lanes"))
    first = task // get("lane_blocks") * get("block_lines")
    last = f.least(first + get("block_lines"), get("lines"))
    taps = get("taps")
    bounds = [(get(f"start_{d}"), get(f"size_{d}")) for d in range(CHECKS)]
    sums = _Sums(f, dtype, width, walked, shared, pace, bounds)
    tap_loops, tap_count = f.offset(record, get("tap_loops"), "i64"), get("tap_count")
    line_loops, line_count = f.offset(record, get("line_loops"), "i64"), get("line_count")
    begun, start = f.variable("i64", 0), f.variable("i64", 0)
    with f.while_(lambda: begun.get().is_("eq", 0) | start.get().is_("slt", taps)):
        here = f.least(taps - start.get(), TAPS)
        with f.loop(0, here) as i:
            found = _decoded(f, tap_loops, tap_count, start.get() + i)
            for k, each in enumerate((found[0], found[1], *found[3:])):
                f.store(each.get(), f.offset(f.offset(table, i * _ENTRY), 8 * k))
        with f.loop(first, last) as line:
            place = [each.get() for each in _decoded(f, line_loops, line_count, line)]
            with f.loop(first_lane, last_lane, sums.lanes) as lane:
                bases_moved = zip((lhs, rhs, out), place[:3], strict=True)
                starts = [f.offset(base, far) for base, far in bases_moved]
                sums.emit(starts, place[3:], table, here, lane, last_lane, begun.get())
        begun.set(1)
        start.set(start.get() + TAPS)
    f.leave()
    return module.text()


def _decoded(f: Function, loops: Value, count: Value, index: Value) -> list[Variable]:
    """What the loops add up to at an index: three offsets, and positions."""
    sums = [f.variable("i64", 0) for _ in range(3 + CHECKS)]
    rest = f.variable("i64", index)
    with f.loop(0, count) as level:
        entry = f.offset(loops, level * (8 * (4 + CHECKS)))
        extent, now = f.load(entry, "i64"), rest.get()
        digit = now % extent
        rest.set(now // extent)
        for k, each in enumerate(sums):
            each.set(each.get() + digit * f.load(f.offset(entry, 8 + 8 * k), "i64"))
    return sums


@dataclass
class _Sums:
    """The sums of some lanes of a line, for the taps of the table."""

    f: Function
    dtype: str
    width: int
    walked: int
    shared: bool
    pace: int
    bounds: list[tuple[Value, Value]]

    def __post_init__(self) -> None:
        self.numbers, self.machine = arithmetic(self.dtype), host()
        self.many = self.machine.lanes(self.numbers.size)
        self.lanes = self.width * self.many
        self.type = vector(self.numbers.type, self.many)
        self.sums = [self.f.variable(self.type) for _ in range(self.width)]

    def emit(
        self, operands: list[Value], position: list[Value], table: Value, taps: Value, lane: Value,
        stop: Value, adding: Value,
    ) -> None:  # fmt: skip
        f, size, many = self.f, self.numbers.size, self.many
        lhs, rhs, out = operands
        rest = stop - lane
        to = f.offset(out, lane * size)
        masks = [within(f, rest - j * many, many) for j in range(self.width)]
        more = f.splat(adding.is_("ne", 0), many)
        for j, each in enumerate(self.sums):
            at = f.offset(to, j * many * size)
            each.set(masked_load(f, at, masks[j] & more, self.type, size))
        with f.loop(0, taps) as tap:
            entry = f.offset(table, tap * _ENTRY)
            moves = [f.load(f.offset(entry, 8 * k), "i64") for k in range(2 + CHECKS)]
            places = [
                line + step + start
                for line, step, (start, _) in zip(position, moves[2:], self.bounds, strict=True)
            ]
            inside = f.value(1, "i1")
            for d, (_, extent) in enumerate(self.bounds):
                if d != self.walked:
                    inside = inside & places[d].is_("ult", extent)
            left = f.offset(f.offset(lhs, moves[0]), lane * (size * self.pace))
            right = f.offset(rhs, moves[1])
            if not self.shared:
                right = f.offset(right, lane * size)
            with f.when(inside):
                self._tap(left, right, masks, rest, places, lane)
        for j, each in enumerate(self.sums):
            masked_store(f, each.get(), f.offset(to, j * many * size), masks[j], size)

    def _tap(
        self, left: Value, right: Value, masks: list[Value], rest: Value, places: list[Value],
        lane: Value,
    ) -> None:  # fmt: skip
        f, size, many = self.f, self.numbers.size, self.many
        whole = rest.is_("sge", self.lanes)
        if self.walked >= 0:
            begin, extent = places[self.walked] + lane * self.pace, self.bounds[self.walked][1]
            last = begin + (self.lanes - 1) * self.pace
            whole = whole & begin.is_("sge", 0) & last.is_("slt", extent)
            place = begin, extent
        else:
            place = None

        def add(full: bool) -> None:
            for j, each in enumerate(self.sums):
                a = self._left(left, j * many, None if full else rest, place)
                if self.shared:
                    b = f.splat(f.load(right, self.numbers.type), many)
                else:
                    b = self._read(f.offset(right, j * many * size), None if full else masks[j])
                each.set(self.numbers.add_product(f, self.machine, a, b, each.get()))

        f.choose(whole, lambda: add(True), lambda: add(False))

    def _left(
        self, start: Value, lane: int, rest: Value | None, place: tuple[Value, Value] | None
    ) -> Value:
        """A vector of the left operand from a lane on; where `rest` lanes are left, what exists."""
        f, many, pace = self.f, self.many, self.pace
        # Every second number comes from two vectors, of which the later one ends with the last.
        found = []
        for first in (lane * pace, lane * pace + many - 1)[:pace]:
            mask = None
            if rest is not None:
                mask = within(f, rest * pace - (pace - 1 + first), many)
                if place:
                    mask = mask & self._existing(place[0] + first, place[1])
            found.append(self._read(f.offset(start, first * self.numbers.size), mask))
        if pace == 1:
            return found[0]
        return f.shuffle(found[0], found[1], [*range(0, many, 2), *range(many + 1, 2 * many, 2)])

    def _existing(self, begin: Value, extent: Value) -> Value:
        """The lanes whose places are at least 0 and less than the extent."""
        f, many = self.f, self.many
        numbers = ", ".join(f"i64 {lane}" for lane in range(many))
        first = f.splat(begin, many)
        places = f.emit(f"add {first.type} {first}, <{numbers}>", first.type)
        return places.is_("ult", f.splat(extent, many))

    def _read(self, at: Value, mask: Value | None) -> Value:
        size = self.numbers.size
        if mask is None:
            return self.f.load(at, self.type, size)
        return masked_load(self.f, at, mask, self.type, size)
