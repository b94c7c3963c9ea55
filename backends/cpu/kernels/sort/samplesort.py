"""Samplesort of long lines by all workers: a sample determines the bounds of buckets.

Every part of a line is partitioned by all bounds within the L2 cache. The counts of its keys per
bucket determine where the buckets begin; then each bucket is gathered from all parts and sorted by
`quicksort`. If several bounds are equal, a bucket has only keys equal to them. (W. D. Frazer and A.
C. McKellar, Samplesort: a sampling approach to minimal storage tree sorting, 1970.)
"""

from collections.abc import Callable, Sequence
from functools import partial

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import (
    SCRATCH_BYTES_PER_WORKER,
    BufferView,
    Kernel,
    LoweringContext,
    Phase,
)
from shardir.backends.cpu.kernels.sort.partition import RangeStack, emit_partition
from shardir.backends.cpu.kernels.sort.quicksort import (
    ContiguousLines,
    KernelStart,
    emit_quicksort,
    max_partitions,
    quicksort_phases,
    sort_keys_of,
    stack_slack,
    start_kernel,
    strided_lines,
)
from shardir.backends.cpu.kernels.sort.register_network import emit_sort_blocks, keys_per_block
from shardir.backends.cpu.kernels.sort.signed_zeros import signed_zero_phases
from shardir.backends.cpu.kernels.sort.sort_keys import SortKeys, has_compress
from shardir.backends.cpu.kernels.sort.tuning import (
    BUCKET_BYTES,
    MAX_BUCKETS,
    MAX_NETWORK_ELEMENTS_BEFORE_QUICKSORT,
    MAX_NETWORK_ELEMENTS_PER_LINE,
    MIN_BUCKETS,
    MIN_NETWORK_LINES,
    MIN_SAMPLESORT_ELEMENTS,
    MIN_SHARED_LINE_BYTES,
    PART_BYTES,
    SAMPLES_PER_BUCKET,
)

MAX_BUCKET_BITS = 10
"""An upper bound of the bits of the number of buckets."""
SAMPLE_HASH_MULTIPLIER = 0x9E3779B97F4A7C15
"""Multiples of this constant are distributed evenly over 64 bits."""


def is_compress_sort_faster(
    dtype: str, lines: int, steps: int, is_partial: bool, context: LoweringContext
) -> bool:
    """Return whether the processor has compress instructions, and sorts lines faster with them than
    with the network of rows. For partial sorts, quicksort does less."""
    keys = sort_keys_of(dtype, context.machine)
    size = keys.bits // 8
    if not has_compress(size, context.machine):
        return False
    most = MAX_NETWORK_ELEMENTS_BEFORE_QUICKSORT[size]
    if is_partial:
        most = min(most, keys_per_block(keys))
    return lines < MIN_NETWORK_LINES or steps > min(most, MAX_NETWORK_ELEMENTS_PER_LINE * lines)


def compress_sort_phases(
    x: BufferView, y: BufferView, dim: int, positions: Sequence[int], context: LoweringContext
) -> list[Phase] | None:
    """Return phases that write the sorted lines of `x` to `y` with compress instructions; if
    `positions` is not empty, only the elements there are correct.

    Return None if the processor has none, and for lines without a constant stride.
    """
    lines = x.size // x.shape[dim]
    if not has_compress(x.itemsize, context.machine):
        return None
    if positions:
        return quicksort_phases(x, y, dim, positions, context)
    phases = None
    if lines < 4 * context.workers and x.nbytes >= MIN_SHARED_LINE_BYTES:
        phases = samplesort_phases(x, y, dim, context)
    phases = (
        phases or quicksort_phases(x, y, dim, (), context) or samplesort_phases(x, y, dim, context)
    )
    return phases and [*phases, *signed_zero_phases(x, y, dim)]


def samplesort_phases(
    x: BufferView, y: BufferView, dim: int, context: LoweringContext
) -> list[Phase] | None:
    """Return phases that write the sorted lines of `x` to `y`, parts of lines for each task.

    Return None for short lines and lines without a constant stride.
    """
    found, keys, steps, size = (
        strided_lines(x, y, dim),
        sort_keys_of(x.dtype, context.machine),
        x.shape[dim],
        x.itemsize,
    )
    if found is None or steps < MIN_SAMPLESORT_ELEMENTS:
        return None
    count, source, target = found
    bucket_target = max(steps * size // BUCKET_BYTES, 4 * context.workers, MIN_BUCKETS)
    buckets = min(1 << (bucket_target - 1).bit_length(), MAX_BUCKETS)
    parts = max(-(-steps * size // PART_BYTES), min(4 * context.workers, MIN_BUCKETS))
    each = -(-steps // parts // 64) * 64
    parts = -(-steps // each)
    bounds = context.temporary(8 * count * buckets)
    starts = context.temporary(8 * count * parts * (buckets + 1))
    parted = context.temporary(count * steps * size)
    room = (steps + buckets * stack_slack(keys)) * size
    stacks = context.temporary(count * room)
    record = (
        parts,
        buckets,
        steps,
        each,
        bounds,
        starts,
        *source,
        *ContiguousLines(parted, 0, steps * size),
        *target,
        *ContiguousLines(stacks, 0, room),
        max_partitions(steps),
    )

    def phase(what: str, text: KernelText, tasks: int, cost: float, samples: int = 0) -> Phase:
        name = f"moves_quicksort_{what}_{x.dtype}"
        kernel = Kernel(name, partial(text, name, keys))
        return Phase(kernel, (*record, samples), count * tasks, count * cost, "sort")

    levels = buckets.bit_length()
    weight = steps * size * 0.02
    return [
        phase(
            "buckets",
            _sort_text,
            1,
            buckets * SAMPLES_PER_BUCKET * 4.0,
            buckets * SAMPLES_PER_BUCKET,
        ),
        phase("parts", _parts_text, parts, weight * levels),
        phase("buckets", _sort_text, buckets, weight * (steps.bit_length() - levels + 4)),
    ]


KernelText = Callable[[str, SortKeys, HostDescription], str]


class _BucketRecord:
    """Reads the record of the kernels; the constants are the positions of its
    `ContiguousLines` and limits."""

    SOURCE, PARTED, TARGET, STACK, ALLOWED, SAMPLES = 6, 9, 12, 15, 18, 19

    def __init__(self, start: KernelStart) -> None:
        self._f = start.function
        self.parts, self.buckets, self.steps, self.each = (start.word(i) for i in range(4))
        self._bounds, self._starts = (start.buffer(start.word(i)) for i in (4, 5))

    def bound_address(self, line: LLVMValue, bucket: LLVMValue) -> LLVMValue:
        """Return the address of the upper bound of the keys of a bucket."""
        return self._f.offset(self._bounds, line * self.buckets + bucket, "i64")

    def start_address(self, line: LLVMValue, part: LLVMValue, bucket: LLVMValue) -> LLVMValue:
        """Return the address of the index where a bucket starts in a part."""
        row = (line * self.parts + part) * (self.buckets + 1)
        return self._f.offset(self._starts, row + bucket, "i64")


def _sort_text(name: str, keys: SortKeys, machine: HostDescription) -> str:
    """Return the text of the kernel that selects the bounds of a line, or sorts a bucket."""
    start = start_kernel(name, machine)
    f = start.function
    f.if_else(
        start.word(_BucketRecord.SAMPLES).is_("ne", 0),
        partial(_choose_bounds, start, keys),
        partial(_sort_bucket, start, keys),
    )
    f.ret()
    return f.module.text()


def _choose_bounds(start: KernelStart, keys: SortKeys) -> None:
    """Sort a sample of the keys of a line, and select the bounds of the buckets from it."""
    f, line, sample = start.function, start.task, start.scratch
    words, source = _BucketRecord(start), start.line_address(_BucketRecord.SOURCE, start.task)
    sort = emit_sort_blocks(f.module, keys)
    count = start.word(_BucketRecord.SAMPLES)
    sample_stride = words.steps // count
    with f.loop(0, count) as i:
        place = (
            i * sample_stride + ((i * f.value(SAMPLE_HASH_MULTIPLIER, "i64")) >> 33) % sample_stride
        )
        found = f.load(keys.address_of(f, source, place), keys.type)
        f.store(keys.from_elements(f, found), keys.address_of(f, sample, i))
    f.call(sort, [sample, count])

    def quantile(bucket: LLVMValue) -> LLVMValue:
        place = f.select(bucket.is_("slt", 0), 0, (bucket + 1) * SAMPLES_PER_BUCKET - 1)
        return keys.extend(f.load(keys.address_of(f, sample, place), keys.type))

    last = words.buckets - 1
    with f.loop(0, last) as bucket:
        before, bound, after = (quantile(bucket + i) for i in (-1, 0, 1))
        # The first of equal bounds is decremented, so that the next bucket has only keys equal to
        # it.
        first = bucket.is_("eq", 0) | before.is_("ne", bound)
        several = first & after.is_("eq", bound) & bound.is_("ne", keys.min_key)
        f.store(f.select(several, bound - 1, bound), words.bound_address(line, bucket))
    f.store(f.value(keys.max_key, "i64"), words.bound_address(line, last))


def _parts_text(name: str, keys: SortKeys, machine: HostDescription) -> str:
    """Partition the keys of a part of a line by all bounds, the middle ones first."""
    start = start_kernel(name, machine)
    f, stack, words = start.function, start.scratch, _BucketRecord(start)
    parts_them = emit_partition(f.module, keys)
    line, part = start.task // words.parts, start.task % words.parts
    first = part * words.each
    extent = f.umin(words.each, words.steps - first)
    keys.read(f, keys.address_of(f, start.line_address(words.SOURCE, line), first), stack, extent)
    target = keys.address_of(f, start.line_address(words.PARTED, line), first)
    waiting = RangeStack(f, 6, MAX_BUCKET_BITS)
    waiting.push(0, 0, extent, 1, 0, words.buckets)
    with waiting.pop_each() as (begin, top, count, on_stack, low, high):
        here, there = keys.address_of(f, target, begin), keys.address_of(f, stack, top)
        is_single_bucket, waits = (high - low).is_("eq", 1), on_stack.is_("ne", 0)
        with f.when(is_single_bucket):
            f.store(begin, words.start_address(line, part, low))
            with f.when(waits):
                keys.copy(f, there, here, count)
        with f.when(~is_single_bucket):
            middle = (low + high) >> 1
            bound = keys.truncate(f.load(words.bound_address(line, middle - 1), "i64"))
            source = f.select(waits, there, here)
            left = f.call(parts_them, [source, count, here, there, bound], "i64")
            waiting.push(begin + left, top, count - left, 1, middle, high)
            waiting.push(begin, top + count - left, left, 0, low, middle)
    f.store(extent, words.start_address(line, part, words.buckets))
    f.ret()
    return f.module.text()


def _sort_bucket(start: KernelStart, keys: SortKeys) -> None:
    """Gather the keys of a bucket and sort them to the start of the bucket in its line."""
    f, words = start.function, _BucketRecord(start)
    sort = emit_quicksort(f.module, keys)
    line, bucket = start.task // words.buckets, start.task % words.buckets
    begin, end = f.variable("i64", 0), f.variable("i64", 0)
    with f.loop(0, words.parts) as part:
        begin.set(begin.get() + f.load(words.start_address(line, part, bucket), "i64"))
        end.set(end.get() + f.load(words.start_address(line, part, bucket + 1), "i64"))
    count = end.get() - begin.get()
    target = keys.address_of(f, start.line_address(words.TARGET, line), begin.get())
    least = f.variable("i64", keys.min_key)
    with f.when(bucket.is_("ne", 0)):
        least.set(f.load(words.bound_address(line, bucket - 1), "i64") + 1)
    most = f.load(words.bound_address(line, bucket), "i64")
    one = least.get().is_("eq", most)
    with f.when(one):
        keys.fill(f, keys.truncate(most), target, count)
    with f.when(~one):
        line_stack = start.line_address(words.STACK, line)
        line_stack = keys.address_of(f, line_stack, begin.get() + bucket * stack_slack(keys))
        room = SCRATCH_BYTES_PER_WORKER // (keys.bits // 8) - stack_slack(keys)
        stack = f.select(count.is_("sle", room), start.scratch, line_stack)
        source, at = start.line_address(words.PARTED, line), f.variable("i64", 0)
        with f.loop(0, words.parts) as part:
            first, behind = (
                f.load(words.start_address(line, part, bucket + i), "i64") for i in range(2)
            )
            piece = keys.address_of(f, source, part * words.each + first)
            keys.copy(f, piece, keys.address_of(f, stack, at.get()), behind - first)
            at.set(at.get() + behind - first)
        often, no_positions = (
            start.word(_BucketRecord.ALLOWED),
            [f.value(0, "ptr"), f.value(0, "i64")],
        )
        f.call(sort, [target, stack, count, keys.truncate(least.get()), often, *no_positions])
