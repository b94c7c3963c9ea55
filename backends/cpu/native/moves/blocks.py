"""Keys in order by networks whose lines are lanes of vectors: blocks in registers, more in memory.

A block is rows of keys. Its columns are sorted first, every lane by itself; then neighbouring ones
are merged, until the block is in order row by row (columns merged in registers: M. Blacher and
others, Vectorized and performance-portable Quicksort, 2022). Several blocks are merged in memory.
Both the network of the columns and the merges are K. E. Batcher's (Sorting networks and their
applications, 1968).

A merge compares the first keys of one half with the last ones of the other, and then halves of
halves. No half is turned around for that: what it leaves in the upper half may lie in the one
direction or in the other.
"""

from collections.abc import Callable, Iterator

from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value, lanes, vector
from shardir.backends.cpu.native.moves.keys import Keys

ROWS = 16
"""Of a block: a power of two, which registers hold."""

Order = Callable[[Function, list[Value]], None]
"""Puts the rows of a block in order."""


def block_of(keys: Keys) -> int:
    """How many keys a block has."""
    return ROWS * keys.lanes


def sorts_blocks(module: Module, keys: Keys) -> str:
    """The name of a function in the module that sorts (keys in memory, how many): whole blocks.

    It is there once, however often it is asked for.
    """
    name, block = f"sort_blocks_{keys.type}", block_of(keys)
    if any(each.name == name for each in module.functions):
        return name
    f = Function(module, name, ("ptr", "i64"), attributes=APART, internal=True)
    start, count = f.params
    _each_block(f, keys, start, count, _sort)
    width = f.variable("i64", 2 * block)
    with f.while_(lambda: (width.get() >> 1).is_("slt", count)):
        whole = width.get()
        half = whole >> 1
        with f.loop(0, count, whole) as low:
            # What would lie past the end is larger than everything.
            past = low + whole - count
            with f.loop(f.select(past.is_("sgt", 0), past, 0), half, keys.lanes) as t:
                _compare_in_memory(f, keys, start, low + t, low + (whole - keys.lanes) - t, True)
        reach = f.variable("i64", half >> 1)
        with f.while_(lambda: reach.get().is_("sge", block)):
            far = reach.get()
            with f.loop(0, count, far << 1) as low:
                left = count - low - far
                with f.loop(0, f.select(left.is_("slt", far), left, far), keys.lanes) as t:
                    _compare_in_memory(f, keys, start, low + t, low + far + t, False)
            reach.set(far >> 1)
        _each_block(f, keys, start, count, _end_merge)
        width.set(whole << 1)
    f.leave()
    return name


def _compare_in_memory(
    f: Function, keys: Keys, start: Value, near: Value, far: Value, mirrored: bool
) -> None:
    a, b = (keys.load(f, start, place) for place in (near, far))
    pair = [a, b]
    _compare(f, pair, 0, 1, keys.lanes if mirrored else 1)
    for value, place in zip(pair, (near, far), strict=True):
        keys.store(f, value, start, place)


def _each_block(f: Function, keys: Keys, start: Value, count: Value, order: Order) -> None:
    with f.loop(0, count, block_of(keys)) as at:
        places = [at + row * keys.lanes for row in range(ROWS)]
        rows = [keys.load(f, start, place) for place in places]
        order(f, rows)
        for place, row in zip(places, rows, strict=True):
            keys.store(f, row, start, place)


def _sort(f: Function, rows: list[Value]) -> None:
    for i, j in _merge_exchange(len(rows)):
        _compare(f, rows, i, j)
    group = 2
    while group <= lanes(rows[0].type):
        # The columns of halves of groups are in order: compare them from both ends, down to a row.
        size = len(rows)
        while size > 1:
            for first in range(0, len(rows), size):
                for i in range(size // 2):
                    _compare(f, rows, first + i, first + size - 1 - i, group)
            size //= 2
        _compare_lanes(f, rows, group, group - 1)
        _halves_of_rows(f, rows, group // 2)
        group *= 2


def _end_merge(f: Function, rows: list[Value]) -> None:
    """The last comparisons of a merge that was begun in memory."""
    reach = len(rows) // 2
    while reach:
        for i in range(len(rows)):
            if not i & reach:
                _compare(f, rows, i, i + reach)
        reach //= 2
    _halves_of_rows(f, rows, lanes(rows[0].type))


def _merge_exchange(count: int) -> Iterator[tuple[int, int]]:
    """The comparisons of Batcher's odd-even merge sort of a power of two."""
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


def _compare(f: Function, rows: list[Value], i: int, j: int, group: int = 1) -> None:
    """Rows, of which the lanes of groups in the second are turned around."""
    a, b = rows[i], _moved(f, rows[j], group - 1)
    rows[i], rows[j] = f.intrinsic("smin", a, b), f.intrinsic("smax", a, b)


def _halves_of_rows(f: Function, rows: list[Value], group: int) -> None:
    while group > 1:
        _compare_lanes(f, rows, group, group // 2)
        group //= 2


def _compare_lanes(f: Function, rows: list[Value], group: int, change: int) -> None:
    """Each lane with that whose number has other bits: the smaller to the lower half of groups."""
    count = lanes(rows[0].type)
    upper = ", ".join(f"i1 {int(lane % group >= group // 2)}" for lane in range(count))
    flags = Value(f"<{upper}>", vector("i1", count), f)
    for i, row in enumerate(rows):
        other = _moved(f, row, change)
        least, most = f.intrinsic("smin", row, other), f.intrinsic("smax", row, other)
        rows[i] = f.select(flags, most, least)


def _moved(f: Function, row: Value, change: int) -> Value:
    """Lanes, those whose numbers have other bits in each other's place."""
    if not change:
        return row
    return f.shuffle(row, row, [lane ^ change for lane in range(lanes(row.type))])
