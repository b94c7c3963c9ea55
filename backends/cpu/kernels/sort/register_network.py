"""Sorting networks over lanes of vectors: blocks in registers, several blocks in memory.

A block is rows of keys. Its columns are sorted first, each lane independently; then adjacent
columns are merged until the block is sorted row by row (columns merged in registers: M. Blacher et
al., Vectorized and performance-portable Quicksort, 2022). Several blocks are merged in memory. Both
the network of the columns and the merges are due to K. E. Batcher (Sorting networks and their
applications, 1968).

A merge compares the first keys of one half with the last keys of the other, and then halves of
halves. No half is reversed for that: the order of the keys in the upper half is not specified.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.kernels.sort.sort_keys import SortKeys

BLOCK_ROWS = 16
"""Rows of a block: a power of two, so that a block fits the registers."""

PERMUTE_SUFFIX_BY_BITS = {16: "hi", 32: "si", 64: "di"}
"""The LLVM name of the instruction that permutes lanes of this many bits by an index vector."""


def keys_per_block(keys: SortKeys) -> int:
    """Return the number of keys of a block."""
    return BLOCK_ROWS * keys.lanes


def emit_sort_blocks(module: LLVMModule, keys: SortKeys) -> str:
    """Emit a function that sorts whole blocks (keys in memory, count) and return its name.

    Repeated calls emit the function once.
    """
    name, block = f"sort_blocks_{keys.type}", keys_per_block(keys)
    if any(each.name == name for each in module.functions):
        return name
    each_block = _emit_order_blocks(module, keys)
    f = add_outlined_function(module, name, ("ptr", "i64"))
    start, count = f.params
    f.call(each_block, [start, count, f.value(1, "i1")])
    width = f.variable("i64", 2 * block)
    with f.while_(lambda: (width.get() >> 1).is_("slt", count)):
        whole = width.get()
        half = whole >> 1
        with f.loop(0, count, whole) as low:
            # Keys past the end would be larger than all others.
            past = low + whole - count
            with f.loop(f.select(past.is_("sgt", 0), past, 0), half, keys.lanes) as t:
                _compare_in_memory(f, keys, start, low + t, low + (whole - keys.lanes) - t, True)
        reach = f.variable("i64", half >> 1)
        with f.while_(lambda: reach.get().is_("sge", block)):
            distance = reach.get()
            with f.loop(0, count, distance << 1) as low:
                left = count - low - distance
                with f.loop(
                    0, f.select(left.is_("slt", distance), left, distance), keys.lanes
                ) as t:
                    _compare_in_memory(f, keys, start, low + t, low + distance + t, False)
            reach.set(distance >> 1)
        f.call(each_block, [start, count, f.value(0, "i1")])
        width.set(whole << 1)
    f.ret()
    return name


def _compare_in_memory(
    f: LLVMFunction,
    keys: SortKeys,
    start: LLVMValue,
    near: LLVMValue,
    distance: LLVMValue,
    mirrored: bool,
) -> None:
    a, b = (keys.load(f, start, place) for place in (near, distance))
    if mirrored:
        b = f.shuffle(b, b, range(keys.lanes - 1, -1, -1))
    keys.store(f, f.intrinsic("smin", a, b), start, near)
    keys.store(f, f.intrinsic("smax", a, b), start, distance)


class NetworkStep(NamedTuple):
    """Comparisons of lanes with the lanes whose numbers differ in some bits."""

    lane_xor: int
    """The bits that differ."""
    group: int
    """In groups of this many lanes, the upper half keeps the larger keys; 0: rows are compared with
    other rows, as columns that are merged."""


def _merge_steps(group: int) -> list[NetworkStep]:
    """Return the last steps of a merge, in groups of lanes of every row."""
    steps = []
    while group > 1:
        steps.append(NetworkStep(group // 2, group))
        group //= 2
    return steps


def _sort_steps(count: int) -> list[NetworkStep]:
    """Return the merges of sorted columns until `count` lanes are sorted."""
    steps, group = [], 2
    while group <= count:
        # Columns of half groups are sorted: compare them from both ends, down to a row.
        steps += [
            NetworkStep(group - 1, 0),
            NetworkStep(group - 1, group),
            *_merge_steps(group // 2),
        ]
        group *= 2
    return steps


def _emit_order_blocks(module: LLVMModule, keys: SortKeys) -> str:
    """Emit a function that processes (keys in memory, count, new) and return its name.

    It sorts each block if `new` is set, and otherwise finishes a merge that was begun in memory.
    Its steps are read from tables: unrolled code would take long to compile.
    """
    count, block, name = keys.lanes, keys_per_block(keys), f"order_blocks_{keys.type}"
    sorting, merging = _sort_steps(count), _merge_steps(count)
    steps = [*sorting, *merging]
    places, uppers = f"block_lanes_{keys.type}", f"block_uppers_{keys.type}"
    module.table(
        places, keys.type, [lane ^ each.lane_xor for each in steps for lane in range(count)]
    )
    module.table(uppers, f"i{count}", [_upper_half_mask(each.group, count) for each in steps])
    f = add_outlined_function(module, name, ("ptr", "i64", "i1"))
    start, total, new = f.params
    registers = [f.variable(keys.vector_type) for _ in range(BLOCK_ROWS)]
    first = f.select(new, 0, len(sorting))
    last = f.select(new, len(sorting), len(steps))

    def compare(
        comparisons: Iterable[tuple[int, int]], reversed_lanes: LLVMValue | None = None
    ) -> None:
        rows = [row.get() for row in registers]
        for i, j in comparisons:
            a, b = (
                rows[i],
                rows[j]
                if reversed_lanes is None
                else _permute_lanes(f, keys, rows[j], reversed_lanes),
            )
            rows[i], rows[j] = f.intrinsic("smin", a, b), f.intrinsic("smax", a, b)
        for row, value in zip(registers, rows, strict=True):
            row.set(value)

    def compare_lanes(moved: LLVMValue, upper: LLVMValue) -> None:
        flags = upper.to(vector_type("i1", count), "bitcast")
        for row in registers:
            value = row.get()
            other = _permute_lanes(f, keys, value, moved)
            least, most = f.intrinsic("smin", value, other), f.intrinsic("smax", value, other)
            row.set(f.select(flags, most, least))

    with f.loop(0, total, block) as at:
        for i, row in enumerate(registers):
            row.set(keys.load(f, start, at + i * count))
        f.if_else(
            new,
            partial(compare, _odd_even_merge_pairs(BLOCK_ROWS)),
            partial(compare, _half_pairs(BLOCK_ROWS)),
        )
        with f.loop(first, last) as step:
            moved = f.load(
                f.offset(LLVMValue(f"@{places}", "ptr", f), step, keys.vector_type),
                keys.vector_type,
            )
            upper = f.load(
                f.offset(LLVMValue(f"@{uppers}", "ptr", f), step, f"i{count}"), f"i{count}"
            )
            f.if_else(
                upper.is_("eq", 0),
                partial(compare, _mirrored_pairs(BLOCK_ROWS), moved),
                partial(compare_lanes, moved, upper),
            )
        for i, row in enumerate(registers):
            keys.store(f, row.get(), start, at + i * count)
    f.ret()
    return name


def _upper_half_mask(group: int, count: int) -> int:
    """Return the mask of the lanes in the upper halves of groups."""
    return sum(1 << lane for lane in range(count) if group and lane % group >= group // 2)


def _permute_lanes(f: LLVMFunction, keys: SortKeys, row: LLVMValue, places: LLVMValue) -> LLVMValue:
    """Permute the lanes of a row by the index vector `places`."""
    name = f"llvm.x86.avx512.permvar.{PERMUTE_SUFFIX_BY_BITS[keys.bits]}.512"
    f.module.declare(name, keys.vector_type, [keys.vector_type, keys.vector_type])
    return f.call(name, [row, places], keys.vector_type)


def _mirrored_pairs(count: int) -> Iterator[tuple[int, int]]:
    """Yield comparisons of rows with those at the same distance from the other end, recursively."""
    size = count
    while size > 1:
        for first in range(0, count, size):
            for i in range(size // 2):
                yield first + i, first + size - 1 - i
        size //= 2


def _half_pairs(count: int) -> Iterator[tuple[int, int]]:
    """Yield comparisons of rows with those half the block away, recursively."""
    reach = count // 2
    while reach:
        for i in range(count):
            if not i & reach:
                yield i, i + reach
        reach //= 2


def _odd_even_merge_pairs(count: int) -> Iterator[tuple[int, int]]:
    """Yield the comparisons of Batcher's odd-even merge sort of a power of two."""
    width = 1
    while width < count:
        reach = width
        while reach:
            for first in range(reach % width, count - reach, 2 * reach):
                for i in range(first, min(first + reach, count - reach)):
                    if i // (2 * width) == (i + reach) // (2 * width):
                        yield i, i + reach
            reach //= 2
        width *= 2
