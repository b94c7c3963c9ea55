"""Vectorized quicksort of lines of values (`partition`), for processors with compress instructions.

Short ranges are sorted by a network (`register_network`), and so are ranges that were partitioned
too often, which bounds the time for all inputs: keys equal to the lower bound of their range are
written in one pass.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import (
    SCRATCH_BYTES_PER_WORKER,
    BufferView,
    Kernel,
    LoweringContext,
    Phase,
)
from shardir.backends.cpu.kernels.data_movement import element_values
from shardir.backends.cpu.kernels.data_movement.element_cast import fits_before
from shardir.backends.cpu.kernels.data_movement.loop_nest import loop_nest_of
from shardir.backends.cpu.kernels.selection.radix_select import line_starts
from shardir.backends.cpu.kernels.sort.partition import RangeStack, emit_partition
from shardir.backends.cpu.kernels.sort.register_network import emit_sort_blocks, keys_per_block
from shardir.backends.cpu.kernels.sort.sort_keys import SortKeys
from shardir.backends.cpu.kernels.sort.tuning import (
    MAX_NETWORK_BLOCKS,
    MIN_FREQUENT_KEYS,
    PARTITIONS_PER_BIT,
)

MAX_LENGTH_BITS = 31
"""Maximum bits of the line length."""


def emit_quicksort(module: LLVMModule, keys: SortKeys) -> str:
    """Emit a function that sorts the keys on a stack and return its name. Its parameters are
    (target, stack, count, least key, depth limit, requested positions, their number).

    The keys are at the bottom of the stack, which has room for `stack_slack` more, and none is
    below the least key. Their elements are written to the target; if positions are requested, only
    these.
    """
    name = f"sort_waiting_{keys.type}"
    blocks, parts = emit_sort_blocks(module, keys), emit_partition(module, keys)
    are_alike = _emit_are_equal(module, keys)
    params = ("ptr", "ptr", "i64", keys.type, "i64", "ptr", "i64")
    f = add_outlined_function(module, name, params)
    target, stack, total, none_below, levels, ranks, number = f.params
    # Words of a range: its begin in the target, its end on the stack, its count, whether it is on
    # the stack, a lower bound of its keys, and how many more partitions are allowed.
    waiting = RangeStack(f, 6, PARTITIONS_PER_BIT * MAX_LENGTH_BITS + 2)
    waiting.push(0, 0, total, 1, keys.extend(none_below), levels)
    with waiting.pop_each() as (begin, top, count, on_stack, least, depth):
        here, there = keys.address_of(f, target, begin), keys.address_of(f, stack, top)
        source = f.select(on_stack.is_("ne", 0), there, here)
        are_equal = f.call(are_alike, [source, count], "i1")
        with f.when(are_equal):
            keys.fill(f, f.load(source, keys.type), here, count)
        key, parted = f.variable(keys.type, 0), f.variable("i1", 0)
        with f.when(~are_equal & count.is_("sgt", keys_per_block(keys)) & depth.is_("sgt", 0)):
            pivot, equal = _pivot(f, keys, source, count)
            key.set(pivot)
            parted.set(
                count.is_("sgt", MAX_NETWORK_BLOCKS * keys_per_block(keys))
                | equal.is_("sge", MIN_FREQUENT_KEYS)
            )
        with f.when(~(are_equal | parted.get())):
            _pad_to_block(f, keys, source, there, count, on_stack)
            f.call(blocks, [there, _round_up_to_block(keys, count)])
            keys.write(f, there, here, count)
        with f.when(parted.get()):
            pivot = key.get()
            wide = keys.extend(pivot)
            lowest = wide.is_("eq", least)
            bound = f.select(lowest, pivot, pivot - 1)
            left = f.call(parts, [source, count, here, there, bound], "i64")
            with f.when(_has_wanted_position(f, begin + left, count - left, ranks, number)):
                waiting.push(begin + left, top, count - left, 1, wide, depth - 1)
            with f.when(lowest):
                keys.fill(f, pivot, here, left)
            with f.when(~lowest & _has_wanted_position(f, begin, left, ranks, number)):
                waiting.push(begin, top + count - left, left, 0, least, depth - 1)
    f.ret()
    return name


def _emit_are_equal(module: LLVMModule, keys: SortKeys) -> str:
    """Emit a function that returns whether (keys, count) are all equal, and return its name."""
    name = f"are_alike_{keys.type}"
    f = add_outlined_function(module, name, ("ptr", "i64"), "i1")
    source, count = f.params
    at, one = f.variable("i64", 0), f.splat(f.load(source, keys.type), keys.lanes)
    different = f.variable("i1", count.is_("eq", 0))
    with f.while_(lambda: ~different.get() & fits_before(at, count, keys.lanes)):
        others = keys.load(f, source, at.get()).is_("ne", one)
        different.set(keys.any(f, others))
        at.set(at.get() + keys.lanes)
    rest = keys.first_lanes(f, count - at.get())
    with f.when(~different.get()):
        others = keys.masked_load(f, source, at.get(), rest).is_("ne", one) & rest
        different.set(keys.any(f, others))
    f.ret(~different.get())
    return name


def _has_wanted_position(
    f: LLVMFunction, begin: LLVMValue, count: LLVMValue, ranks: LLVMValue, number: LLVMValue
) -> LLVMValue:
    """Return whether a range has requested positions, or all positions are requested."""
    found = f.variable("i1", number.is_("eq", 0))
    with f.loop(0, number) as i:
        place = f.load(f.offset(ranks, i, "i64"), "i64") - begin
        found.set(found.get() | place.is_("ult", count))
    return found.get() & count.is_("ne", 0)


def stack_slack(keys: SortKeys) -> int:
    """Return the number of additional keys that a stack needs room for."""
    return keys_per_block(keys) + keys.lanes


def _round_up_to_block(keys: SortKeys, count: LLVMValue) -> LLVMValue:
    return (count + (keys_per_block(keys) - 1)) & -keys_per_block(keys)


def _pad_to_block(
    f: LLVMFunction,
    keys: SortKeys,
    source: LLVMValue,
    to: LLVMValue,
    count: LLVMValue,
    there: LLVMValue,
) -> None:
    """Copy keys unless they are in place, and fill their last block with the largest key."""
    whole = count & -keys.lanes
    with f.loop(f.select(there.is_("ne", 0), whole, 0), whole, keys.lanes) as i:
        keys.store(f, keys.load(f, source, i), to, i)
    rest = keys.first_lanes(f, count - whole)
    keys.store(f, keys.masked_load(f, source, whole, rest, keys.max_key), to, whole)
    with f.loop(whole + keys.lanes, _round_up_to_block(keys, count), keys.lanes) as i:
        keys.store(f, f.value(keys.max_key, keys.vector_type), to, i)


def _pivot(
    f: LLVMFunction, keys: SortKeys, source: LLVMValue, count: LLVMValue
) -> tuple[LLVMValue, LLVMValue]:
    """Return a key near the median: the median of medians of vectors from the whole range.

    Also return how many keys of these vectors are equal to it.
    """
    step = (count - keys.lanes) >> 2
    a, b, c, d, e = sample = [keys.load(f, source, step * i) for i in range(5)]
    low = f.intrinsic("smax", f.intrinsic("smin", a, b), f.intrinsic("smin", c, d))
    high = f.intrinsic("smin", f.intrinsic("smax", a, b), f.intrinsic("smax", c, d))
    found = _median_of_three(f, low, high, e)
    for distance in (1, 3):
        first, second = (
            f.shuffle(found, found, [(lane + by) % keys.lanes for lane in range(keys.lanes)])
            for by in (distance, 2 * distance)
        )
        found = _median_of_three(f, found, first, second)
    pivot = f.emit(f"extractelement {found.type} {found}, i64 0", keys.type)
    equal = f.value(0, "i64")
    for row in sample:
        equal = equal + keys.count_set(f, row.is_("eq", f.splat(pivot, keys.lanes)))
    return pivot, equal


def _median_of_three(f: LLVMFunction, a: LLVMValue, b: LLVMValue, c: LLVMValue) -> LLVMValue:
    inner = f.intrinsic("smin", f.intrinsic("smax", a, b), c)
    return f.intrinsic("smax", f.intrinsic("smin", a, b), inner)


def quicksort_phases(
    x: BufferView, y: BufferView, dim: int, positions: Sequence[int], context: LoweringContext
) -> list[Phase] | None:
    """Return phases that write the sorted lines of `x` to `y`, several lines per task; if
    `positions` is not empty, only the elements there are correct.

    Return None for lines that exceed a worker's scratch memory or have no constant stride.
    """
    found = strided_lines(x, y, dim)
    keys = sort_keys_of(x.dtype, context.machine)
    if found is None or (x.shape[dim] + stack_slack(keys)) * x.itemsize > SCRATCH_BYTES_PER_WORKER:
        return None
    count, source, target = found
    many = -(-count // (8 * context.workers))
    name = f"moves_quicksort_lines_{x.dtype}"
    record = (
        many,
        count,
        x.shape[dim],
        *source,
        *target,
        max_partitions(x.shape[dim]),
        len(positions),
        *positions,
    )
    kernel = Kernel(name, partial(_lines_text, name, keys))
    rounds = 4 if positions else x.shape[dim].bit_length()
    cost = 100.0 * count + x.nbytes * 0.02 * (4 + rounds)
    label = "select positions" if positions else "sort"
    return [Phase(kernel, record, -(-count // many), cost, label)]


class ContiguousLines(NamedTuple):
    """The address of lines of contiguous elements."""

    slot: int
    offset: int
    line: int
    """Bytes to the next line."""


def max_partitions(steps: int) -> int:
    """Return the maximum number of partitions of the ranges of a line."""
    return PARTITIONS_PER_BIT * steps.bit_length()


def sort_keys_of(dtype: str, machine: HostDescription) -> SortKeys:
    """Return the sort keys of an element type."""
    bits = 8 * element_values.ELEMENT_BYTES[dtype]
    return SortKeys(dtype, bits, machine.lanes(bits // 8))


def strided_lines(
    x: BufferView, y: BufferView, dim: int
) -> tuple[int, ContiguousLines, ContiguousLines] | None:
    """Return the number of lines along a dimension of both views and their addresses, or None if
    they have no constant stride."""
    loops, offsets = loop_nest_of([line_starts(x, dim), line_starts(y, dim)])
    if len(loops) > 1 or (x.strides[dim], y.strides[dim]) != (x.itemsize, y.itemsize):
        return None
    count, from_line, to_line = (loops[0].extent, *loops[0].strides) if loops else (1, 0, 0)
    return (
        count,
        ContiguousLines(x.slot, offsets[0], from_line),
        ContiguousLines(y.slot, offsets[1], to_line),
    )


def _lines_text(name: str, keys: SortKeys, machine: HostDescription) -> str:
    start = start_kernel(name, machine)
    f = start.function
    sort = emit_quicksort(f.module, keys)
    many, lines, steps = (start.word(i) for i in range(3))
    first = start.task * many
    with f.loop(first, f.umin(first + many, lines)) as line:
        keys.read(f, start.line_address(3, line), start.scratch, steps)
        least = f.value(keys.min_key, keys.type)
        target, ranks = start.line_address(6, line), f.offset(start.record, 11, "i64")
        f.call(sort, [target, start.scratch, steps, least, start.word(9), ranks, start.word(10)])
    f.ret()
    return f.module.text()


class KernelStart(NamedTuple):
    """The parameters of a kernel."""

    function: LLVMFunction
    bases: LLVMValue
    record: LLVMValue
    task: LLVMValue
    scratch: LLVMValue
    """The scratch memory of the worker."""

    def word(self, index: int) -> LLVMValue:
        """Return a word of the record."""
        f = self.function
        return f.load(f.offset(self.record, index, "i64"), "i64")

    def buffer(self, slot: LLVMValue) -> LLVMValue:
        """Return the address of a buffer."""
        f = self.function
        return f.load(f.offset(self.bases, slot, "ptr"), "ptr")

    def line_address(self, index: int, number: LLVMValue) -> LLVMValue:
        """Return the address of one of the `ContiguousLines` at a position of the record."""
        slot, offset, line = (self.word(index + i) for i in range(3))
        return self.function.offset(self.buffer(slot), offset + number * line)


def start_kernel(name: str, machine: HostDescription) -> KernelStart:
    """Return the start of a new, empty kernel."""
    f = LLVMFunction(LLVMModule(machine), name, ("ptr", "ptr", "i64", "i64"))
    bases, record, task, worker = f.params
    scratch = f.load(bases, "ptr")
    return KernelStart(f, bases, record, task, f.offset(scratch, worker * SCRATCH_BYTES_PER_WORKER))
