"""Repeated groups of lines, such as the layers of a model."""

import re
from collections.abc import Sequence

from shardir.frontend.report.records import FoldRecord

MIN_UNIT_LINES = 4
MIN_COPIES = 3
MIN_FOLDED_LINES = 16
SEED_LINES = 4
"""The number of equal lines at which a repetition is suspected."""
MAX_CANDIDATES = 24
"""The maximum number of distances that are tried at a line."""

_NAME = re.compile(r'%(?:[\w.$-]+|"[^"]*")')


def line_shape(line: str) -> str:
    """Return a line without the names of its values."""
    return _NAME.sub("%", line)


def find_folds(lines: Sequence[int]) -> tuple[FoldRecord, ...]:
    """Return the repeated groups of a sequence of line shapes, which are given as numbers.

    Copies follow each other directly, or after a group of other lines that is at most twice as
    long, which is an exception.
    """
    seeds: dict[tuple[int, ...], list[int]] = {}
    for i in range(len(lines) - SEED_LINES + 1):
        seeds.setdefault(tuple(lines[i : i + SEED_LINES]), []).append(i)
    ranks = {i: rank for places in seeds.values() for rank, i in enumerate(places)}
    folds = []
    i = 0
    while i < len(lines):
        fold = None
        if i in ranks:
            places = seeds[tuple(lines[i : i + SEED_LINES])]
            later = places[ranks[i] + 1 : ranks[i] + 1 + MAX_CANDIDATES]
            found = [_fold_at(lines, i, place - i) for place in later]
            fold = max(
                (each for each in found if each is not None),
                key=lambda each: (each.unit * each.count, -each.unit),
                default=None,
            )
        if fold is None:
            i += 1
        else:
            folds.append(fold)
            i += fold.length
    return tuple(folds)


def _fold_at(lines: Sequence[int], start: int, unit: int) -> FoldRecord | None:
    """Return the copies of the `unit` lines from line `start` on, `None` if there are too few."""
    first = lines[start : start + unit]
    if unit < MIN_UNIT_LINES or lines[start + unit : start + 2 * unit] != first:
        return None
    count, at = 2, start + 2 * unit
    exceptions: list[tuple[int, int]] = []
    while True:
        gap = next(
            (
                gap
                for gap in range(2 * unit + 1)
                if lines[at + gap : at + gap + unit] == first
            ),
            None,
        )  # fmt: skip
        if gap is None:
            break
        if gap:
            exceptions.append((at, gap))
        count, at = count + 1, at + gap + unit
    if count < MIN_COPIES or unit * count < MIN_FOLDED_LINES:
        return None
    return FoldRecord(start, at - start, unit, count, tuple(exceptions))
