"""Packs patches of images (im2col), with zeros for positions outside of the image.

A line and a step each have a position along every checked dimension; if their sum is outside the
image, the element is zero. Most of a panel is inside: for each segment the kernel determines which
lines are inside, and the range of steps for which all of them are, so that only the borders are
packed element by element. `pair_packing` packs pairs of contiguous steps.
"""

from dataclasses import dataclass
from typing import NamedTuple

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.kernels.conv.pair_packing import PACK_PAIRS_FUNCTION, emit_pack_pairs
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic, load_widened, widen
from shardir.backends.cpu.kernels.gemm.microkernel import lane_mask, masked_load
from shardir.backends.cpu.kernels.gemm.packing import emit_pack_separate_lines, zeros_constant
from shardir.backends.cpu.kernels.gemm.tuning import PACK_PREFETCH_STEPS
from shardir.ir.types import NUMPY_DTYPES

SECOND_RUN_FUNCTION = "second_run"


def emit_im2col(
    module: LLVMModule,
    name: str,
    lines: int,
    longest: int,
    dtype: str,
    arith: Arithmetic,
    checks: int,
    table_bytes: int,
    has_pairs: bool = False,
) -> None:
    """Emit `name(packed, base, offsets, count, segments, parts, steps, stride, positions, bounds)`.

    The function packs like `emit_pack`, with positions of lines in `checks` tables that are
    `table_bytes` bytes apart. `bounds` are (start, size) of each checked dimension, then the
    dimension along which the innermost loop runs (-1: none) and its step. With `has_pairs`, steps
    are contiguous, segments have an even number of them, and panels consist of pairs of steps.
    """
    item = NUMPY_DTYPES[dtype].itemsize
    if has_pairs:
        emit_pack_pairs(module, lines)
    else:
        emit_pack_separate_lines(module, dtype, arith)
    params = ["ptr noalias", "ptr readonly", "ptr noalias readonly", "i64",
              "ptr noalias readonly", "i64", "i64", "i64", "ptr noalias readonly",
              "ptr noalias readonly"]  # fmt: skip
    f = add_outlined_function(module, name, params)
    packed, base, offsets, count, segments, parts, steps, stride, positions, bounds = f.params
    row, nothing = lines * arith.size, zeros_constant(f, name, longest * item)
    lanes = 1 << (lines - 1).bit_length()
    tables = [f.variable(f"[{lanes} x i64]").address for _ in range(4)]
    place = f.variable("ptr", packed)
    width = 16 + 8 * checks
    with f.loop(0, count, lines) as first:
        table = f.offset(offsets, first, "i64")
        here = f.umin(count - first, lines)
        once = twice = f.value(0, "i64")
        if not has_pairs:
            once, twice = (find_second_run(f, table, here, pace * item) for pace in (1, 2))
        where = [
            f.load(
                f.offset(f.offset(positions, d * table_bytes), first, "i64"),
                vector_type("i64", lanes),
                8,
            )
            for d in range(checks)
        ]
        part = f.variable("ptr", place.get())
        with f.loop(0, parts) as number:
            entry = f.offset(segments, number * width)
            length = f.load(f.offset(entry, 8), "i64")
            origin = f.offset(base, f.load(entry, "i64"))
            panel = _PanelSegment(
                f, lines, dtype, arith, tables[0], tables[1], part.get(), length, stride, here,
                has_pairs,
            )  # fmt: skip
            segment = _SegmentBounds(panel, lanes, origin, table, bounds, tables[2], tables[3])
            segment.find_inside(where, entry)
            if has_pairs:
                segment.pack_pairs(nothing)
            else:
                segment.pack_border(f.value(0, "i64"), segment.begin.get(), nothing)
                segment.pack_inside(once, twice, nothing)
                segment.pack_border(segment.end.get(), length, nothing)
            part.set(f.offset(part.get(), length * row))
        place.set(f.offset(place.get(), steps * row))
    f.ret()


class _PanelSegment(NamedTuple):
    """The steps of one segment of one panel.

    `starts` and `paces` are tables of the addresses of lines and of their strides.
    """

    f: LLVMFunction
    lines: int
    dtype: str
    arith: Arithmetic
    starts: LLVMValue
    paces: LLVMValue
    packed: LLVMValue
    length: LLVMValue
    stride: LLVMValue
    here: LLVMValue
    has_pairs: bool

    @property
    def row(self) -> int:
        """The size in bytes of a step in packed memory."""
        return self.lines * self.arith.size


@dataclass
class _SegmentBounds:
    """A segment of a panel: which lines, and which steps, are inside the image."""

    panel: _PanelSegment
    lanes: int
    origin: LLVMValue
    table: LLVMValue
    bounds: LLVMValue
    lows: LLVMValue
    highs: LLVMValue

    def __post_init__(self) -> None:
        f = self.panel.f
        self.begin: StackVariable = f.variable("i64", 0)
        self.end: StackVariable = f.variable("i64", self.panel.length)
        self.valid: StackVariable = f.variable(vector_type("i1", self.lanes))

    def find_inside(self, where: list[LLVMValue], entry: LLVMValue) -> None:
        """Find the lines that are inside for all steps from `begin` to `end`; other lines never
        are."""
        f, lanes, panel = self.panel.f, self.lanes, self.panel
        many = vector_type("i64", lanes)

        def all_of(number: LLVMValue) -> LLVMValue:
            return f.splat(number, lanes)

        indices = ", ".join(f"i64 {lane}" for lane in range(lanes))
        valid = f.emit(
            f"icmp slt {many} <{indices}>, {all_of(panel.here)}", vector_type("i1", lanes)
        )
        checks = len(where)
        if not checks:
            self._set_valid(valid)
            return
        walked = f.load(f.offset(self.bounds, 16 * checks), "i64")
        along, size = f.variable(many, where[0]), f.variable("i64", 0)
        for d, lines in enumerate(where):
            start = f.load(f.offset(self.bounds, 16 * d), "i64")
            extent = f.load(f.offset(self.bounds, 16 * d + 8), "i64")
            step = f.load(f.offset(entry, 16 + 8 * d), "i64")
            place = lines + all_of(start + step)
            is_run_dim = walked.is_("eq", d)
            valid = valid & (place.is_("ult", all_of(extent)) | all_of(is_run_dim))
            with f.when(is_run_dim):
                along.set(place)
                size.set(extent)
        self._set_valid(valid)
        with f.when(walked.is_("sge", 0)):
            self._restrict_steps(
                along.get(), size.get(), f.load(f.offset(self.bounds, 16 * checks + 8), "i64")
            )

    def _set_valid(self, valid: LLVMValue) -> None:
        """Set the lines that are inside, for all steps."""
        f, lanes = self.panel.f, self.lanes
        nothing = f.value(0, vector_type("i64", lanes))
        self.valid.set(valid)
        if not self.panel.has_pairs:
            return
        f.store(nothing, self.lows, 8)
        f.store(f.select(valid, f.splat(self.panel.length, lanes), nothing), self.highs, 8)

    def _restrict_steps(self, place: LLVMValue, size: LLVMValue, pace: LLVMValue) -> None:
        """Restrict the steps to those inside along the dimension along which the segment runs."""
        f, lanes, length = self.panel.f, self.lanes, self.panel.length
        many = vector_type("i64", lanes)
        nothing = f.value(0, many)

        def least_of(a: LLVMValue, b: LLVMValue) -> LLVMValue:
            return f.intrinsic("smin", a, b)

        low = f.variable(many, f.intrinsic("smax", nothing - place, nothing))
        high = f.variable(many, f.intrinsic("smax", f.splat(size, lanes) - place, nothing))
        with f.when(pace.is_("ne", 1)):
            steps = f.splat(pace, lanes)
            for each in (low, high):
                each.set((each.get() + (steps - 1)) // steps)
        last = f.splat(length, lanes)
        lows, highs = least_of(low.get(), last), least_of(high.get(), last)
        valid = self.valid.get() & lows.is_("slt", highs)
        self.valid.set(valid)
        none = f.select(valid, highs, nothing)
        f.store(lows, self.lows, 8)
        f.store(none, self.highs, 8)
        if self.panel.has_pairs:
            return
        begin = _reduce_vector(f, "smax", f.select(valid, lows, nothing))
        end = _reduce_vector(f, "smin", f.select(valid, highs, last))
        empty = begin.is_("sgt", end)
        self.begin.set(f.select(empty, length, begin))
        self.end.set(f.select(empty, length, end))

    def pack_pairs(self, zeros: LLVMValue) -> None:
        """Pack all steps as pairs."""
        panel = self.panel
        self._set_starts(zeros)
        args = [panel.packed, panel.starts, self.lows, self.highs, panel.length]
        panel.f.call(PACK_PAIRS_FUNCTION, args)

    def _set_starts(self, zeros: LLVMValue) -> None:
        """Set the addresses of lines; that of zeros for lines that are outside."""
        f, lanes = self.panel.f, self.lanes
        offsets = f.load(self.table, vector_type("i64", lanes), 8)
        origin = f.splat(self.origin.to("i64", "ptrtoint"), lanes)
        nothing = f.splat(zeros.to("i64", "ptrtoint"), lanes)
        f.store(f.select(self.valid.get(), origin + offsets, nothing), self.panel.starts, 8)

    def pack_border(self, first: LLVMValue, last: LLVMValue, zeros: LLVMValue) -> None:
        """Pack steps at which only some lines are inside, element by element."""
        f, panel, arith = self.panel.f, self.panel, self.panel.arith
        with f.loop(first, last) as k, f.loop(0, panel.lines) as i:
            at = f.offset(panel.packed, k * panel.row + i * arith.plane_bytes)
            low = f.load(f.offset(self.lows, i, "i64"), "i64")
            high = f.load(f.offset(self.highs, i, "i64"), "i64")

            line = f.load(f.offset(self.table, i, "i64"), "i64")
            there = f.offset(f.offset(self.origin, line), k * panel.stride)
            address = f.select(k.is_("sge", low) & k.is_("slt", high), there, zeros)
            for p, plane in enumerate(load_widened(f, address, panel.dtype, arith, 1)):
                f.store(plane, f.offset(at, p * panel.lines * arith.plane_bytes), arith.plane_bytes)

    def pack_inside(self, once: LLVMValue, twice: LLVMValue, zeros: LLVMValue) -> None:
        """Pack steps at which each line is inside or is never inside.

        Lines that are contiguous (`once`) or every second element (`twice`) form one or two runs:
        see `find_second_run`.
        """
        f, panel = self.panel.f, self.panel
        begin, end = self.begin.get(), self.end.get()

        def pack_separately() -> None:
            self._set_starts(zeros)
            pace = f.splat(panel.stride, self.lanes)
            f.store(f.select(self.valid.get(), pace, f.value(0, pace.type)), panel.paces, 8)
            lines = f.value(panel.lines, "i64")
            tables, zero = [panel.packed, panel.starts, panel.paces], f.value(0, "i64")
            f.call(f"pack_separate_{panel.dtype}", [*tables, panel.stride, lines, begin, end, zero])

        if panel.arith.planes == 2:
            pack_separately()
            return

        def neighbours() -> None:
            f.if_else(
                once.is_("eq", panel.here),
                lambda: self._pack_vectors(begin, end, 1),
                lambda: self._pack_vectors(begin, end, 1, once),
            )

        def others() -> None:
            f.if_else(
                twice.is_("ne", 0),
                lambda: self._pack_vectors(begin, end, 2, twice),
                pack_separately,
            )

        f.if_else(once.is_("ne", 0), neighbours, others)

    def _pack_vectors(
        self, begin: LLVMValue, end: LLVMValue, pace: int, second: LLVMValue | None = None
    ) -> None:
        """Pack lines that are every `pace`th element as vectors, with zeros for lines outside;
        lines from `second` form another run.

        A vector may exceed the rest of the panel: the elements after it are overwritten later.
        """
        f, panel, arith = self.panel.f, self.panel, self.panel.arith
        item = NUMPY_DTYPES[panel.dtype].itemsize
        wide = min(self.lanes, 64 // arith.size)
        type, valid = vector_type(MEMORY_TYPES[panel.dtype], wide), self.valid.get()
        runs = [(f.offset(self.origin, f.load(self.table, "i64")), valid)]
        if second is not None:
            line = f.load(f.offset(self.table, f.umin(second, panel.here - 1), "i64"), "i64")
            start = f.offset(self.origin, line - second * (pace * item))
            earlier = lane_mask(f, second, self.lanes)
            runs = [(runs[0][0], valid & earlier), (start, valid & ~earlier)]
        sources = [f.variable("ptr", f.offset(start, begin * panel.stride)) for start, _ in runs]

        def chosen(mask: LLVMValue, at: int) -> list[LLVMValue]:
            """Return the mask of some lanes for each vector that is loaded for them."""
            some = f.shuffle(mask, mask, range(at, at + wide))
            if pace == 1:
                return [some]
            none = f.value(0, some.type)
            return [
                f.shuffle(some, none, [(at + i) // 2 + i % 2 * wide for i in range(wide)])
                for at in (0, wide)
            ]

        def read(source: LLVMValue, masks: list[LLVMValue], far: int) -> LLVMValue:
            found = [
                masked_load(f, f.offset(source, (far * pace + i * wide) * item), mask, type, item)
                for i, mask in enumerate(masks)
            ]
            if pace == 1:
                return found[0]
            return f.shuffle(found[0], found[1], range(0, 2 * wide, 2))

        places = range(0, panel.lines, wide)
        masks = [[(chosen(mask, at), mask) for _, mask in runs] for at in places]
        with f.loop(begin, end) as k:
            row = f.offset(panel.packed, k * panel.row)
            for at, of_runs in zip(places, masks, strict=True):
                loaded, *more = (
                    read(source.get(), each, at)
                    for source, (each, _) in zip(sources, of_runs, strict=True)
                )
                for other in more:
                    later = f.shuffle(of_runs[1][1], of_runs[1][1], range(at, at + wide))
                    loaded = f.select(later, other, loaded)
                made = widen(f, loaded, panel.dtype, arith)
                f.store(made, f.offset(row, at * arith.size), arith.size)
            prefetch(f, f.offset(sources[0].get(), panel.stride * PACK_PREFETCH_STEPS))
            for source in sources:
                source.set(f.offset(source.get(), panel.stride))


def find_second_run(f: LLVMFunction, table: LLVMValue, count: LLVMValue, item: int) -> LLVMValue:
    """Return the line that begins a second contiguous run: `count` if there is one run, 0 if there
    are more than two."""
    if all(each.name != SECOND_RUN_FUNCTION for each in f.module.functions):
        _emit_second_run(f.module)
    return f.call(SECOND_RUN_FUNCTION, [table, count, f.value(item, "i64")], "i64")


def _emit_second_run(module: LLVMModule) -> None:
    params = ["ptr noalias readonly", "i64", "i64"]
    f = add_outlined_function(module, SECOND_RUN_FUNCTION, params, "i64")
    table, count, item = f.params
    found, breaks = f.variable("i64", count), f.variable("i64", 0)
    before = f.variable("i64", f.load(table, "i64"))
    with f.loop(1, count) as i:
        now = f.load(f.offset(table, i, "i64"), "i64")
        with f.when(now.is_("ne", before.get() + item)):
            found.set(i)
            breaks.set(breaks.get() + 1)
        before.set(now)
    f.ret(f.select(breaks.get().is_("sgt", 1), 0, found.get()))


def _reduce_vector(f: LLVMFunction, how: str, x: LLVMValue) -> LLVMValue:
    return f.intrinsic(f"vector.reduce.{how}", x, result="i64")
