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
    folds = []
    i = 0
    while i < len(lines):
        fold = None
        if i in ranks:
            places = seeds[tuple(lines[i : i + SEED_LINES])]
            later = places[ranks[i] + 1 : ranks[i] + 1 + MAX_CANDIDATES]
            repetitions = [_repetition_at(lines, i, position - i, min_unit) for position in later]
            fold = max(
                (each for each in repetitions if each is not None),
                key=lambda each: (each.unit * each.count, -each.unit),
                default=None,
            )
        if fold is None:
            i += 1
        else:
            folds.append(fold)
            i += fold.length
    return tuple(folds)


def _repetition_at(lines: Sequence[int], start: int, unit: int, min_unit: int) -> Repetition | None:
    """Return the copies of the `unit` lines from line `start` on, `None` if there are too few."""
    first = lines[start : start + unit]
    if unit < min_unit or lines[start + unit : start + 2 * unit] != first:
        return None
    count, at = 2, start + 2 * unit
    exceptions: list[tuple[int, int]] = []
    while True:
        gap = next(
            (
                gap
                for gap in range(min(2 * unit, len(lines) - at - unit) + 1)
                # The comparison of one line avoids that of most slices.
                if lines[at + gap] == first[0] and lines[at + gap : at + gap + unit] == first
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
    return Repetition(start, at - start, unit, count, tuple(exceptions))
