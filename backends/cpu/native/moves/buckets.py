"""Samplesort of long lines by all workers: a sample determines the bounds of buckets.

Every part of a line is partitioned by all bounds within the L2 cache. The counts of its keys per
bucket determine where the buckets begin; then each bucket is gathered from all parts and sorted by
`quicksort`. If several bounds are equal, a bucket has only keys equal to them. (W. D. Frazer and A.
C. McKellar, Samplesort: a sampling approach to minimal storage tree sorting, 1970.)
"""

from collections.abc import Callable, Sequence
from functools import partial

from shardir.backends.cpu.native.data import SCRATCH_BYTES, Context, Kernel, Phase, View
from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.moves.blocks import block_of, sorts_blocks
from shardir.backends.cpu.native.moves.keys import Keys, packs
from shardir.backends.cpu.native.moves.partition import Waiting, parts_keys
from shardir.backends.cpu.native.moves.quicksort import (
    Lines,
    Start,
    allowed,
    even_lines,
    keys_of,
    line_phases,
    slack,
    sorts_waiting,
    started,
)
from shardir.backends.cpu.native.moves.zeros import zeros_phases

FEW_LINES = 4
SHARED_BYTES = 1 << 18
"""Minimum bytes of lines that all workers sort together if there are few lines."""
LEAST = 1 << 15
"""Minimum elements of a line that is split into buckets."""
PART_BYTES = 1 << 18
"""Bytes of a part of a line; the L2 cache holds two of them."""
BUCKET_BYTES = 1 << 17
FEW, MANY = 8, 128
"""Minimum and maximum number of buckets of a line."""
LEVELS = 10
"""An upper bound of the bits of the number of buckets."""
SAMPLES = 64
"""Sampled keys per bucket."""
SPREAD = 0x9E3779B97F4A7C15
"""Multiples of this constant are distributed evenly over 64 bits."""


def packed_phases(
    x: View, y: View, dim: int, wanted: Sequence[int], context: Context
) -> list[Phase] | None:
    """Return phases that write the sorted lines of `x` to `y` with compress instructions; if
    positions are `wanted`, only these are correct.

    Return None if the processor has none, for many lines of at most one block of the network, and
    for lines without a constant stride.
    """
    steps, keys = x.shape[dim], keys_of(x.dtype)
    lines = x.size // steps
    if not packs(x.itemsize, context.machine) or (lines >= FEW_LINES and steps <= block_of(keys)):
        return None
    if wanted:
        return line_phases(x, y, dim, wanted, context)
    phases = None
    if lines < 4 * context.workers and x.nbytes >= SHARED_BYTES:
        phases = bucket_phases(x, y, dim, context)
    phases = phases or line_phases(x, y, dim, (), context) or bucket_phases(x, y, dim, context)
    return phases and [*phases, *zeros_phases(x, y, dim)]


def bucket_phases(x: View, y: View, dim: int, context: Context) -> list[Phase] | None:
    """Return phases that write the sorted lines of `x` to `y`, parts of lines for each task.

    Return None for short lines and lines without a constant stride.
    """
    found, keys, steps, size = even_lines(x, y, dim), keys_of(x.dtype), x.shape[dim], x.itemsize
    if found is None or steps < LEAST:
        return None
    count, source, target = found
    wanted = max(steps * size // BUCKET_BYTES, 4 * context.workers, FEW)
    buckets = min(1 << (wanted - 1).bit_length(), MANY)
    parts = max(-(-steps * size // PART_BYTES), min(4 * context.workers, FEW))
    each = -(-steps // parts // 64) * 64
    parts = -(-steps // each)
    bounds = context.temporary(8 * count * buckets)
    starts = context.temporary(8 * count * parts * (buckets + 1))
    parted = context.temporary(count * steps * size)
    room = (steps + buckets * slack(keys)) * size
    stacks = context.temporary(count * room)
    record = (
        parts, buckets, steps, each, bounds, starts,
        *source, *Lines(parted, 0, steps * size), *target, *Lines(stacks, 0, room), allowed(steps),
    )  # fmt: skip

    def phase(what: str, text: Text, tasks: int, cost: float, samples: int = 0) -> Phase:
        name = f"moves_quicksort_{what}_{x.dtype}"
        kernel = Kernel(name, partial(text, name, keys))
        return Phase(kernel, (*record, samples), count * tasks, count * cost, "sort")

    levels = buckets.bit_length()
    weight = steps * size * 0.02
    return [
        phase("buckets", _sort_text, 1, buckets * SAMPLES * 4.0, buckets * SAMPLES),
        phase("parts", _parts_text, parts, weight * levels),
        phase("buckets", _sort_text, buckets, weight * (steps.bit_length() - levels + 4)),
    ]


Text = Callable[[str, Keys], str]


class _Words:
    """Reads the record of the kernels; the constants are the positions of its `Lines` and
    limits."""

    SOURCE, PARTED, TARGET, STACK, ALLOWED, SAMPLES = 6, 9, 12, 15, 18, 19

    def __init__(self, start: Start) -> None:
        self._f = start.function
        self.parts, self.buckets, self.steps, self.each = (start.word(i) for i in range(4))
        self._bounds, self._starts = (start.base(start.word(i)) for i in (4, 5))

    def bound(self, line: Value, bucket: Value) -> Value:
        """Return the address of the upper bound of the keys of a bucket."""
        return self._f.offset(self._bounds, line * self.buckets + bucket, "i64")

    def start(self, line: Value, part: Value, bucket: Value) -> Value:
        """Return the address of the index where a bucket starts in a part."""
        row = (line * self.parts + part) * (self.buckets + 1)
        return self._f.offset(self._starts, row + bucket, "i64")


def _sort_text(name: str, keys: Keys) -> str:
    """Return the text of the kernel that selects the bounds of a line, or sorts a bucket."""
    start = started(name)
    f = start.function
    f.choose(
        start.word(_Words.SAMPLES).is_("ne", 0),
        partial(_choose_bounds, start, keys),
        partial(_sort_bucket, start, keys),
    )
    f.leave()
    return f.module.text()


def _choose_bounds(start: Start, keys: Keys) -> None:
    """Sort a sample of the keys of a line, and select the bounds of the buckets from it."""
    f, line, sample = start.function, start.task, start.scratch
    words, source = _Words(start), start.line(_Words.SOURCE, start.task)
    sort = sorts_blocks(f.module, keys)
    count = start.word(_Words.SAMPLES)
    sample_stride = words.steps // count
    with f.loop(0, count) as i:
        place = i * sample_stride + ((i * f.value(SPREAD, "i64")) >> 33) % sample_stride
        found = f.load(keys.at(f, source, place), keys.type)
        f.store(keys.of(f, found), keys.at(f, sample, i))
    f.call(sort, [sample, count])

    def quantile(bucket: Value) -> Value:
        place = f.select(bucket.is_("slt", 0), 0, (bucket + 1) * SAMPLES - 1)
        return keys.wide(f.load(keys.at(f, sample, place), keys.type))

    last = words.buckets - 1
    with f.loop(0, last) as bucket:
        before, bound, after = (quantile(bucket + i) for i in (-1, 0, 1))
        # The first of equal bounds is decremented, so that the next bucket has only keys equal to
        # it.
        first = bucket.is_("eq", 0) | before.is_("ne", bound)
        several = first & after.is_("eq", bound) & bound.is_("ne", keys.least)
        f.store(f.select(several, bound - 1, bound), words.bound(line, bucket))
    f.store(f.value(keys.largest, "i64"), words.bound(line, last))


def _parts_text(name: str, keys: Keys) -> str:
    """Partition the keys of a part of a line by all bounds, the middle ones first."""
    start = started(name)
    f, stack, words = start.function, start.scratch, _Words(start)
    parts_them = parts_keys(f.module, keys)
    line, part = start.task // words.parts, start.task % words.parts
    first = part * words.each
    extent = f.least(words.each, words.steps - first)
    keys.read(f, keys.at(f, start.line(words.SOURCE, line), first), stack, extent)
    target = keys.at(f, start.line(words.PARTED, line), first)
    waiting = Waiting(f, 6, LEVELS)
    waiting.push(0, 0, extent, 1, 0, words.buckets)
    with waiting.each() as (begin, top, count, on_stack, low, high):
        here, there = keys.at(f, target, begin), keys.at(f, stack, top)
        is_single_bucket, waits = (high - low).is_("eq", 1), on_stack.is_("ne", 0)
        with f.when(is_single_bucket):
            f.store(begin, words.start(line, part, low))
            with f.when(waits):
                keys.copy(f, there, here, count)
        with f.when(~is_single_bucket):
            middle = (low + high) >> 1
            bound = keys.narrow(f.load(words.bound(line, middle - 1), "i64"))
            source = f.select(waits, there, here)
            left = f.call(parts_them, [source, count, here, there, bound], "i64")
            waiting.push(begin + left, top, count - left, 1, middle, high)
            waiting.push(begin, top + count - left, left, 0, low, middle)
    f.store(extent, words.start(line, part, words.buckets))
    f.leave()
    return f.module.text()


def _sort_bucket(start: Start, keys: Keys) -> None:
    """Gather the keys of a bucket and sort them to the start of the bucket in its line."""
    f, words = start.function, _Words(start)
    sort = sorts_waiting(f.module, keys)
    line, bucket = start.task // words.buckets, start.task % words.buckets
    begin, end = f.variable("i64", 0), f.variable("i64", 0)
    with f.loop(0, words.parts) as part:
        begin.set(begin.get() + f.load(words.start(line, part, bucket), "i64"))
        end.set(end.get() + f.load(words.start(line, part, bucket + 1), "i64"))
    count = end.get() - begin.get()
    target = keys.at(f, start.line(words.TARGET, line), begin.get())
    least = f.variable("i64", keys.least)
    with f.when(bucket.is_("ne", 0)):
        least.set(f.load(words.bound(line, bucket - 1), "i64") + 1)
    most = f.load(words.bound(line, bucket), "i64")
    one = least.get().is_("eq", most)
    with f.when(one):
        keys.fill(f, keys.narrow(most), target, count)
    with f.when(~one):
        line_stack = start.line(words.STACK, line)
        line_stack = keys.at(f, line_stack, begin.get() + bucket * slack(keys))
        room = SCRATCH_BYTES // (keys.bits // 8) - slack(keys)
        stack = f.select(count.is_("sle", room), start.scratch, line_stack)
        source, at = start.line(words.PARTED, line), f.variable("i64", 0)
        with f.loop(0, words.parts) as part:
            first, behind = (f.load(words.start(line, part, bucket + i), "i64") for i in range(2))
            piece = keys.at(f, source, part * words.each + first)
            keys.copy(f, piece, keys.at(f, stack, at.get()), behind - first)
            at.set(at.get() + behind - first)
        often, no_positions = start.word(_Words.ALLOWED), [f.value(0, "ptr"), f.value(0, "i64")]
        f.call(sort, [target, stack, count, keys.narrow(least.get()), often, *no_positions])
