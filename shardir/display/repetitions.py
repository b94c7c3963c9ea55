"""Repeated groups of lines, such as the layers of a model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MIN_UNIT_LINES = 4
MIN_COPIES = 3
MIN_FOLDED_LINES = 16
SEED_LINES = 4
"""The number of equal lines at which a repetition is suspected."""
MAX_CANDIDATES = 24
"""The maximum number of distances that are tried at a line."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """Lines that repeat a group of lines.

    The `length` lines from line `start` on are `count` copies of the first `unit` lines, and
    `exceptions`: (start, length) of groups in between that differ.
    """

    start: int
    length: int
    unit: int
    count: int
    exceptions: tuple[tuple[int, int], ...]

    def parts(self) -> Iterator[tuple[int, int]]:
        """Yield (start, length) of each copy and each exception."""
        exceptions = dict(self.exceptions)
        at = self.start
        while at < self.start + self.length:
            length = exceptions.get(at, self.unit)
            yield at, length
            at += length


def find_repetitions(
    lines: Sequence[int], min_unit: int = MIN_UNIT_LINES
) -> tuple[Repetition, ...]:
    """Return the repeated groups of a sequence of lines, which are given as integers: equal lines
    have equal integers. A group has at least `min_unit` lines.

    Copies follow each other directly, or after a group of other lines that is at most twice as
    long, which is an exception.
    """
    seeds: dict[tuple[int, ...], list[int]] = {}
    for i in range(len(lines) - SEED_LINES + 1):
        seeds.setdefault(tuple(lines[i : i + SEED_LINES]), []).append(i)
    ranks = {i: rank for places in seeds.values() for rank, i in enumerate(places)}
    # By distance, the end of the lines that equal those at this distance. The lines before the end
    # need no further comparison, so the search is linear in the number of lines.
    ends: dict[int, int] = {}
    folds = []
    i = 0
    while i < len(lines):
        fold = None
        if i in ranks:
            places = seeds[tuple(lines[i : i + SEED_LINES])]
            found = []
            for position in places[ranks[i] + 1 : ranks[i] + 1 + MAX_CANDIDATES]:
                unit = position - i
                end = ends.get(unit, 0)
                if end <= i:
                    end = ends[unit] = _end_of_equal_lines(lines, i, unit)
                if end >= position and unit >= min_unit:
                    found.append(_repetition_at(lines, i, unit))
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


def _end_of_equal_lines(lines: Sequence[int], start: int, distance: int) -> int:
    """Return the first line from `start` on that differs from the line at a distance after it."""
    last = len(lines) - distance

    def are_equal(end: int, count: int) -> bool:
        other = end + distance
        return end + count <= last and lines[end : end + count] == lines[other : other + count]

    end, count = start, 1
    while are_equal(end, count):
        end, count = end + count, 2 * count
    while count:
        if are_equal(end, count):
            end += count
        count //= 2
    return end


def _repetition_at(lines: Sequence[int], start: int, unit: int) -> Repetition | None:
    """Return the copies of the `unit` lines from line `start` on, which follow each other at least
    once; `None` if there are too few."""
    first = lines[start : start + unit]
    count, at = 2, start + 2 * unit
    exceptions: list[tuple[int, int]] = []
    while (position := _find_copy(lines, first, at)) is not None:
        if position > at:
            exceptions.append((at, position - at))
        count, at = count + 1, position + unit
    if count < MIN_COPIES or unit * count < MIN_FOLDED_LINES:
        return None
    return Repetition(start, at - start, unit, count, tuple(exceptions))


def _find_copy(lines: Sequence[int], first: Sequence[int], start: int) -> int | None:
    """Return the position of the next copy of a group of lines, `None` if the lines before it are
    more than two copies long."""
    unit = len(first)
    at, last = start, min(start + 2 * unit, len(lines) - unit)
    while at <= last:
        try:
            at = lines.index(first[0], at, last + 1)
        except ValueError:
            return None
        # The comparison of one more line avoids that of most slices.
        if lines[at + unit - 1] == first[-1] and lines[at : at + unit] == first:
            return at
        at += 1
    return None
