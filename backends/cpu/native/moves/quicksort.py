"""Vectorized quicksort of lines of values (`partition`), for processors with compress instructions.

Short ranges are sorted by a network (`register_network`), and so are ranges that were partitioned
too often, which bounds the time for all inputs: keys equal to the lower bound of their range are
written in one pass.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from shardir.backends.cpu.native.data import SCRATCH_BYTES, Context, Kernel, Phase, View
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value
from shardir.backends.cpu.native.moves import numbers
from shardir.backends.cpu.native.moves.blocks import block_of, sorts_blocks
from shardir.backends.cpu.native.moves.casting import fits
from shardir.backends.cpu.native.moves.keys import Keys
from shardir.backends.cpu.native.moves.loops import nest
from shardir.backends.cpu.native.moves.partition import Waiting, parts_keys
from shardir.backends.cpu.native.moves.picking import line_starts

SHORT = 4
"""Ranges of at most this many blocks are sorted by a network."""
FREQUENT = 6
"""Minimum equal keys in a sample of five vectors for which even short ranges are partitioned."""
OFTEN = 2
"""Maximum number of partitions of a range, per bit of the line length."""
LEVELS = 31
"""Maximum bits of the line length."""


def sorts_waiting(module: Module, keys: Keys) -> str:
    """Emit a function that sorts the keys on a stack and return its name. Its parameters are
    (target, stack, count, least key, depth limit, wanted positions, their number).

    The keys are at the bottom of the stack, which has room for `stack_slack` more, and none is
    below the least key. Their elements are written to the target; if positions are wanted, only
    these.
    """
    name = f"sort_waiting_{keys.type}"
    blocks, parts = sorts_blocks(module, keys), parts_keys(module, keys)
    are_alike = _sees_whether_alike(module, keys)
    params = ("ptr", "ptr", "i64", keys.type, "i64", "ptr", "i64")
    f = Function(module, name, params, attributes=APART, internal=True)
    target, stack, total, none_below, levels, ranks, number = f.params
    # Words of a range: its begin in the target, its end on the stack, its count, whether it is on
    # the stack, a lower bound of its keys, and how many more partitions are allowed.
    waiting = Waiting(f, 6, OFTEN * LEVELS + 2)
    waiting.push(0, 0, total, 1, keys.wide(none_below), levels)
    with waiting.each() as (begin, top, count, on_stack, least, depth):
        here, there = keys.at(f, target, begin), keys.at(f, stack, top)
        source = f.select(on_stack.is_("ne", 0), there, here)
        are_equal = f.call(are_alike, [source, count], "i1")
        with f.when(are_equal):
            keys.fill(f, f.load(source, keys.type), here, count)
        key, parted = f.variable(keys.type, 0), f.variable("i1", 0)
        with f.when(~are_equal & count.is_("sgt", block_of(keys)) & depth.is_("sgt", 0)):
            pivot, equal = _pivot(f, keys, source, count)
            key.set(pivot)
            parted.set(count.is_("sgt", SHORT * block_of(keys)) | equal.is_("sge", FREQUENT))
        with f.when(~(are_equal | parted.get())):
            _settle(f, keys, source, there, count, on_stack)
            f.call(blocks, [there, _padded(keys, count)])
            keys.write(f, there, here, count)
        with f.when(parted.get()):
            pivot = key.get()
            wide = keys.wide(pivot)
            lowest = wide.is_("eq", least)
            bound = f.select(lowest, pivot, pivot - 1)
            left = f.call(parts, [source, count, here, there, bound], "i64")
            with f.when(_are_wanted(f, begin + left, count - left, ranks, number)):
                waiting.push(begin + left, top, count - left, 1, wide, depth - 1)
            with f.when(lowest):
                keys.fill(f, pivot, here, left)
            with f.when(~lowest & _are_wanted(f, begin, left, ranks, number)):
                waiting.push(begin, top + count - left, left, 0, least, depth - 1)
    f.leave()
    return name


def _sees_whether_alike(module: Module, keys: Keys) -> str:
    """Emit a function that returns whether (keys, count) are all equal, and return its name."""
    name = f"are_alike_{keys.type}"
    f = Function(module, name, ("ptr", "i64"), "i1", APART, True)
    source, count = f.params
    at, one = f.variable("i64", 0), f.splat(f.load(source, keys.type), keys.lanes)
    different = f.variable("i1", count.is_("eq", 0))
    with f.while_(lambda: ~different.get() & fits(at, count, keys.lanes)):
        others = keys.load(f, source, at.get()).is_("ne", one)
        different.set(keys.any(f, others))
        at.set(at.get() + keys.lanes)
    rest = keys.first(f, count - at.get())
    with f.when(~different.get()):
        others = keys.load_some(f, source, at.get(), rest).is_("ne", one) & rest
        different.set(keys.any(f, others))
    f.leave(~different.get())
    return name


def _are_wanted(f: Function, begin: Value, count: Value, ranks: Value, number: Value) -> Value:
    """Return whether a range has wanted positions, or all positions are wanted."""
    found = f.variable("i1", number.is_("eq", 0))
    with f.loop(0, number) as i:
        place = f.load(f.offset(ranks, i, "i64"), "i64") - begin
        found.set(found.get() | place.is_("ult", count))
    return found.get() & count.is_("ne", 0)


def slack(keys: Keys) -> int:
    """Return the number of additional keys that a stack needs room for."""
    return block_of(keys) + keys.lanes


def _padded(keys: Keys, count: Value) -> Value:
    return (count + (block_of(keys) - 1)) & -block_of(keys)


def _settle(f: Function, keys: Keys, source: Value, to: Value, count: Value, there: Value) -> None:
    """Copy keys unless they are in place, and fill their last block with the largest key."""
    whole = count & -keys.lanes
    with f.loop(f.select(there.is_("ne", 0), whole, 0), whole, keys.lanes) as i:
        keys.store(f, keys.load(f, source, i), to, i)
    rest = keys.first(f, count - whole)
    keys.store(f, keys.load_some(f, source, whole, rest, keys.largest), to, whole)
    with f.loop(whole + keys.lanes, _padded(keys, count), keys.lanes) as i:
        keys.store(f, f.value(keys.largest, keys.whole), to, i)


def _pivot(f: Function, keys: Keys, source: Value, count: Value) -> tuple[Value, Value]:
    """Return a key near the median: the median of medians of vectors from the whole range.

    Also return how many keys of these vectors are equal to it.
    """
    step = (count - keys.lanes) >> 2
    a, b, c, d, e = sample = [keys.load(f, source, step * i) for i in range(5)]
    low = f.intrinsic("smax", f.intrinsic("smin", a, b), f.intrinsic("smin", c, d))
    high = f.intrinsic("smin", f.intrinsic("smax", a, b), f.intrinsic("smax", c, d))
    found = _middle(f, low, high, e)
    for distance in (1, 3):
        first, second = (
            f.shuffle(found, found, [(lane + by) % keys.lanes for lane in range(keys.lanes)])
            for by in (distance, 2 * distance)
        )
        found = _middle(f, found, first, second)
    pivot = f.emit(f"extractelement {found.type} {found}, i64 0", keys.type)
    equal = f.value(0, "i64")
    for row in sample:
        equal = equal + keys.number_of(f, row.is_("eq", f.splat(pivot, keys.lanes)))
    return pivot, equal


def _middle(f: Function, a: Value, b: Value, c: Value) -> Value:
    inner = f.intrinsic("smin", f.intrinsic("smax", a, b), c)
    return f.intrinsic("smax", f.intrinsic("smin", a, b), inner)


def line_phases(
    x: View, y: View, dim: int, wanted: Sequence[int], context: Context
) -> list[Phase] | None:
    """Return phases that write the sorted lines of `x` to `y`, several lines per task; if positions
    are `wanted`, only these are correct.

    Return None for lines that exceed a worker's scratch memory or have no constant stride.
    """
    found = even_lines(x, y, dim)
    keys = keys_of(x.dtype)
    if found is None or (x.shape[dim] + slack(keys)) * x.itemsize > SCRATCH_BYTES:
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
        allowed(x.shape[dim]),
        len(wanted),
        *wanted,
    )
    kernel = Kernel(name, partial(_lines_text, name, keys))
    rounds = 4 if wanted else x.shape[dim].bit_length()
    cost = 100.0 * count + x.nbytes * 0.02 * (4 + rounds)
    label = "select positions" if wanted else "sort"
    return [Phase(kernel, record, -(-count // many), cost, label)]


class Lines(NamedTuple):
    """The address of lines of contiguous elements."""

    slot: int
    offset: int
    line: int
    """Bytes to the next line."""


def allowed(steps: int) -> int:
    """Return the maximum number of partitions of the ranges of a line."""
    return OFTEN * steps.bit_length()


def keys_of(dtype: str) -> Keys:
    """Return the sort keys of an element type."""
    return Keys(dtype, 8 * numbers.SIZES[dtype])


def even_lines(x: View, y: View, dim: int) -> tuple[int, Lines, Lines] | None:
    """Return the number of lines along a dimension of both views and their addresses, or None if
    they have no constant stride."""
    loops, offsets = nest([line_starts(x, dim), line_starts(y, dim)])
    if len(loops) > 1 or (x.strides[dim], y.strides[dim]) != (x.itemsize, y.itemsize):
        return None
    count, from_line, to_line = (loops[0].extent, *loops[0].strides) if loops else (1, 0, 0)
    return count, Lines(x.slot, offsets[0], from_line), Lines(y.slot, offsets[1], to_line)


def _lines_text(name: str, keys: Keys) -> str:
    start = started(name)
    f = start.function
    sort = sorts_waiting(f.module, keys)
    many, lines, steps = (start.word(i) for i in range(3))
    first = start.task * many
    with f.loop(first, f.least(first + many, lines)) as line:
        keys.read(f, start.line(3, line), start.scratch, steps)
        least = f.value(keys.least, keys.type)
        target, ranks = start.line(6, line), f.offset(start.record, 11, "i64")
        f.call(sort, [target, start.scratch, steps, least, start.word(9), ranks, start.word(10)])
    f.leave()
    return f.module.text()


class Start(NamedTuple):
    """The parameters of a kernel."""

    function: Function
    bases: Value
    record: Value
    task: Value
    scratch: Value
    """The scratch memory of the worker."""

    def word(self, index: int) -> Value:
        """Return a word of the record."""
        f = self.function
        return f.load(f.offset(self.record, index, "i64"), "i64")

    def base(self, slot: Value) -> Value:
        """Return the address of a buffer."""
        f = self.function
        return f.load(f.offset(self.bases, slot, "ptr"), "ptr")

    def line(self, index: int, number: Value) -> Value:
        """Return the address of one of the `ContiguousLines` at a position of the record."""
        slot, offset, line = (self.word(index + i) for i in range(3))
        return self.function.offset(self.base(slot), offset + number * line)


def started(name: str) -> Start:
    """Return the start of a new, empty kernel."""
    f = Function(Module(), name, ("ptr", "ptr", "i64", "i64"))
    bases, record, task, worker = f.params
    scratch = f.load(bases, "ptr")
    return Start(f, bases, record, task, f.offset(scratch, worker * SCRATCH_BYTES))
