"""A bitonic sorting network over rows of memory; each lane of the vectors is sorted independently.

All comparisons of the network point upwards: a merge of two sorted halves compares rows from both
ends, then halves of halves, down to 16 rows, which are held in registers. Rows past the end would
be larger than all others, so that their comparisons are omitted.
"""

from collections.abc import Sequence

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue

REGISTER_ROWS = 16
"""Rows that are compared in registers."""


def sort_rows(f: LLVMFunction, rows: LLVMValue, count: LLVMValue, row_type: str) -> None:
    """Sort `count` rows of words, a multiple of `REGISTER_ROWS`, in every lane."""
    _sort_runs(f, rows, count, row_type, (2, 4, 8, 16))
    width = f.variable("i64", 2 * REGISTER_ROWS)
    with f.while_(lambda: (width.get() >> 1).is_("slt", count)):
        whole = width.get()
        half = whole >> 1
        with f.loop(0, count, whole) as start:
            skipped = start + whole - count
            begin = f.select(skipped.is_("sgt", 0), skipped, 0)
            _compare_rows(f, rows, row_type, begin, half, start, start + (whole - 1), True)
        reach = f.variable("i64", half >> 1)
        with f.while_(lambda: reach.get().is_("sge", REGISTER_ROWS)):
            distance = reach.get()
            with f.loop(0, count, distance << 1) as start:
                stop = f.umin(
                    distance,
                    f.select((count - start).is_("sgt", distance), count - start - distance, 0),
                )
                _compare_rows(
                    f, rows, row_type, f.value(0, "i64"), stop, start, start + distance, False
                )
            reach.set(distance >> 1)
        _sort_runs(f, rows, count, row_type, ())
        width.set(whole << 1)


def _compare_rows(
    f: LLVMFunction,
    rows: LLVMValue,
    row_type: str,
    begin: LLVMValue,
    stop: LLVMValue,
    low: LLVMValue,
    high: LLVMValue,
    mirrored: bool,
) -> None:
    """Compare rows `low` + t with `high` + t, or with `high` - t if `mirrored`, four at a time."""
    with f.loop(begin, stop, 4) as t:
        pairs = []
        for k in range(4):
            near = f.offset(rows, low + t + k, row_type)
            distance = f.offset(rows, high - t - k if mirrored else high + t + k, row_type)
            pairs.append((near, distance, f.load(near, row_type, 1), f.load(distance, row_type, 1)))
        for near, distance, a, b in pairs:
            f.store(f.intrinsic("smin", a, b), near, 1)
            f.store(f.intrinsic("smax", a, b), distance, 1)


def _sort_runs(
    f: LLVMFunction, rows: LLVMValue, count: LLVMValue, row_type: str, merges: Sequence[int]
) -> None:
    """Sort every run of rows by merges of these widths, or only finish a merge if there are
    none."""
    with f.loop(0, count, REGISTER_ROWS) as start:
        places = [f.offset(rows, start + i, row_type) for i in range(REGISTER_ROWS)]
        registers = [f.load(place, row_type, 1) for place in places]

        def compare(i: int, j: int) -> None:
            registers[i], registers[j] = (
                f.intrinsic("smin", registers[i], registers[j]),
                f.intrinsic("smax", registers[i], registers[j]),
            )

        def halves(reach: int) -> None:
            while reach:
                for i in range(REGISTER_ROWS):
                    if not i & reach:
                        compare(i, i + reach)
                reach >>= 1

        for width in merges:
            for i in range(REGISTER_ROWS):
                if i % width < width // 2:
                    compare(i, i - i % width + width - 1 - i % width)
            halves(width // 4)
        if not merges:
            halves(REGISTER_ROWS // 2)
        for place, value in zip(places, registers, strict=True):
            f.store(value, place, 1)
