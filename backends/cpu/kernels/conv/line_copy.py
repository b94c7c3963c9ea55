"""Kernel function that copies image lines to a padded layout.

`nchw_layout` (a plane for each tap of a window row) and `padded_nhwc` (one plane) define which
lines are copied and where the K steps are in the copy.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES
from shardir.backends.cpu.kernels.conv.tuning import MIN_LOOP_VECTORS
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic, widen
from shardir.backends.cpu.kernels.gemm.microkernel import masked_load
from shardir.ir.types import NUMPY_DTYPES

LAYOUT_FUNCTION = "copy_layout"
_HEAD_WORDS, _PLANE_WORDS, _TAP_WORDS = 8, 5, 3
"""Words of the layout in the record: of its head, of a plane and of a tap."""


def emit_layout_copy(module: LLVMModule, dtype: str, arith: Arithmetic, pace: int) -> None:
    """Emit `copy_layout(to, base, words, table, first, steps, column, columns)`.

    The function copies the lines that `columns` columns from `column` need for `steps` steps from
    `first`, which are those of whole channels. `table` receives the byte offset from `to` of the
    first column of each step. `words` are those of `ImageLayout.words`; positions of a line are
    every `pace`th element.
    """
    params = ["ptr noalias", "ptr readonly", "ptr noalias readonly", "ptr noalias", "i64", "i64",
              "i64", "i64"]  # fmt: skip
    f = add_outlined_function(module, LAYOUT_FUNCTION, params)
    to, base, words, table, first, steps, column, columns = f.params
    head = [f.load(f.offset(words, i, "i64"), "i64") for i in range(_HEAD_WORDS)]
    width, lines, more, planes, taps, line, image, channel = head
    first_line = column // width
    count = (column + columns - 1) // width - first_line + (more + 1)
    row = width * arith.plane_bytes
    # Vectors may exceed the last line; an odd number of cache lines avoids conflicts in the caches.
    pitch = (
        count * row + (2 * CACHE_LINE_BYTES - 1)
    ) // CACHE_LINE_BYTES * CACHE_LINE_BYTES | CACHE_LINE_BYTES
    list_of_planes = f.offset(words, _HEAD_WORDS, "i64")
    list_of_taps = f.offset(list_of_planes, planes * _PLANE_WORDS, "i64")
    lead = column % width * arith.plane_bytes
    first_channel, channels = first // taps, steps // taps
    first_image, first_inside = first_line // lines, first_line % lines
    with f.loop(0, channels) as number:
        before = number * planes
        with f.loop(0, taps) as tap:
            entry = f.offset(list_of_taps, tap * _TAP_WORDS, "i64")
            plane, shift, shift_columns = (
                f.load(f.offset(entry, i, "i64"), "i64") for i in range(_TAP_WORDS)
            )
            at = (before + plane) * pitch + shift * row + shift_columns * arith.plane_bytes + lead
            f.store(at, f.offset(table, number * taps + tap, "i64"))
        there = f.offset(base, (first_channel + number) * channel)
        with f.loop(0, planes) as plane:
            entry = f.offset(list_of_planes, plane * _PLANE_WORDS, "i64")
            start, *bounds = (f.load(f.offset(entry, i, "i64"), "i64") for i in range(_PLANE_WORDS))
            at = f.offset(there, start + first_image * image + first_inside * line)
            place = f.offset(to, (before + plane) * pitch)
            columns_of = _PlaneCopy(f, dtype, arith, pace, at, place, (bounds[0], bounds[1]))
            columns_of.copy_all(width, (line, image, channel), row, count,
                                (first_inside, lines), bounds[2:])  # fmt: skip
    f.ret()


@dataclass
class _PlaneCopy:
    """Vectors of positions of a plane; `bounds` is the range of positions inside the image."""

    f: LLVMFunction
    dtype: str
    arith: Arithmetic
    pace: int
    source: LLVMValue
    to: LLVMValue
    bounds: tuple[LLVMValue, LLVMValue]

    def __post_init__(self) -> None:
        self.many = self.f.machine.lanes(self.arith.plane_bytes)
        self.item = NUMPY_DTYPES[self.dtype].itemsize

    def copy_all(
        self,
        width: LLVMValue,
        strides: tuple[LLVMValue, LLVMValue, LLVMValue],
        row: LLVMValue,
        count: LLVMValue,
        images: tuple[LLVMValue, LLVMValue],
        inside: Sequence[LLVMValue],
    ) -> None:
        """Copy `count` lines to rows that are `row` bytes apart.

        `strides` are those of source lines, images and channels; the next channel is prefetched.
        `images` is the first line within an image, and the number of lines of an image; `inside`
        the range of these lines that are inside.
        """
        f = self.f
        first, last = f.value(self.many, "i64"), (width - 1) // self.many * self.many
        begin, end = self._between_borders(last)
        few = (end - begin).is_("slt", self.many * MIN_LOOP_VECTORS)
        begin, end = f.select(few, first, begin), f.select(few, first, end)
        with f.when(begin.is_("slt", end)):
            self._copy(begin, strides, row, count, images, inside, end)
        # The last vectors overlap the next lines, whose first vectors are written later.
        at = f.variable("i64", last)
        with f.while_(lambda: at.get().is_("sge", 0)):
            self._copy(at.get(), strides, row, count, images, inside)
            now = at.get()
            at.set(f.select(now.is_("eq", end), begin, now) - self.many)

    def _between_borders(self, last: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        """Return the range of positions whose vectors are entirely inside, except first and
        last."""
        f, (begin, end) = self.f, self.bounds
        first = f.intrinsic("smax", begin + (self.many - 1), f.value(self.many, "i64"))
        stop = f.intrinsic("smin", end - (self.pace - 1), last)
        stop = f.intrinsic("smax", stop, f.value(0, "i64"))
        return first // self.many * self.many, stop // self.many * self.many

    def _copy(
        self,
        first: LLVMValue,
        strides: tuple[LLVMValue, LLVMValue, LLVMValue],
        row: LLVMValue,
        count: LLVMValue,
        images: tuple[LLVMValue, LLVMValue],
        inside: Sequence[LLVMValue],
        last: LLVMValue | None = None,
    ) -> None:
        """Copy the vectors at the positions from `first`; if `last` is given, all vectors before
        it, which are inside."""
        f, (line, image, channel), (begin, lines), (low, high) = self.f, strides, images, inside
        masks = self._masks(first) if last is None else None
        source = f.variable("ptr", f.offset(self.source, first * (self.pace * self.item)))
        to = f.variable("ptr", f.offset(self.to, first * self.arith.plane_bytes))
        done, place = f.variable("i64", 0), f.variable("i64", begin)
        count_of_vectors = (last - first) // self.many if last else 0

        def some(stop: LLVMValue, read: Callable[[LLVMValue], LLVMValue]) -> None:
            """Copy the lines of an image before `stop`."""
            now = place.get()
            with f.loop(now, stop):
                with f.loop(0, count_of_vectors) if last else nullcontext(f.value(0, "i64")) as j:
                    at = f.offset(source.get(), j * (self.many * self.pace * self.item))
                    there = f.offset(to.get(), j * (self.many * self.arith.plane_bytes))
                    f.store(read(at), there, self.arith.plane_bytes)
                    prefetch(f, f.offset(at, channel))
                to.set(f.offset(to.get(), row))
                source.set(f.offset(source.get(), line))
            place.set(f.intrinsic("smax", now, stop))

        def outside(_: LLVMValue) -> LLVMValue:
            return f.value(0, vector_type(self.arith.type, self.many))

        with f.while_(lambda: done.get().is_("slt", count)):
            now = place.get()
            end = f.umin(lines, now + (count - done.get()))
            some(f.intrinsic("smin", low, end), outside)
            some(f.intrinsic("smin", high, end), lambda at: self._read(at, masks))
            some(end, outside)
            done.set(done.get() + (end - now))
            place.set(0)
            source.set(f.offset(source.get(), image - lines * line))

    def _masks(self, first: LLVMValue) -> list[LLVMValue]:
        """Return the masks of elements inside; for pace 2, the masks of two vectors."""
        begin, end = self.bounds
        return [
            _range_mask(
                self.f,
                [(at + i) // self.pace if i % self.pace == 0 else -1 for i in range(self.many)],
                begin - first,
                end - first,
            )
            for at in range(0, self.pace * self.many, self.many)
        ]

    def _read(self, source: LLVMValue, masks: list[LLVMValue] | None) -> LLVMValue:
        """Load a vector of positions, zeros outside; without masks all positions are inside."""
        f, type = self.f, vector_type(MEMORY_TYPES[self.dtype], self.many)
        places = [f.offset(source, i * self.many * self.item) for i in range(self.pace)]
        if masks:
            loads = zip(places, masks, strict=True)
            found = [masked_load(f, at, mask, type, self.item) for at, mask in loads]
        else:
            found = [f.load(at, type, self.item) for at in places]
        made = found[0]
        if self.pace == 2:
            made = f.shuffle(found[0], found[1], range(0, 2 * self.many, 2))
        return widen(f, made, self.dtype, self.arith)


def _range_mask(f: LLVMFunction, places: list[int], begin: LLVMValue, end: LLVMValue) -> LLVMValue:
    """Return the mask of positions in `[begin, end)`; -1 is never in the range."""
    many = len(places)
    type = vector_type("i32", many)
    numbered = LLVMValue(f"<{', '.join(f'i32 {place}' for place in places)}>", type, f)
    low, high = (
        f.splat(f.intrinsic("smin", f.intrinsic("smax", x, f.value(0, "i64")), f.value(many, "i64"))
                .to("i32", "trunc"), many)
        for x in (begin, end)
    )  # fmt: skip
    return numbered.is_("sge", low) & numbered.is_("slt", high)
