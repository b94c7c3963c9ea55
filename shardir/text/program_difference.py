"""The difference between the texts of two programs, as a unified diff.

Passes preserve the names of values, so a line that defines values is identified by their names, and
any other line by its text. Lines whose identity occurs once in each program correspond if they have
the same order in both; other lines correspond only between two such lines. This is the patience
diff of Bram Cohen, with names instead of texts. Its time is O(n log n) in the number of lines n,
while `difflib` takes quadratic time if a pass changes a line of each layer.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shardir.text.literals import STRING, VALUE_NAME

NUM_CONTEXT_LINES = 3
"""The number of equal lines that a diff shows before and after a changed line."""

_DEFINITION = re.compile(rf"\s*((?:{VALUE_NAME}(?:, )?)+)(?: =|:)")
_FUNCTION = re.compile(rf"(?:spmd )?func @([\w.]+|{STRING})\(")


class LineIdentity(NamedTuple):
    """The function of a line, and the values that the line defines, or its text."""

    function: str
    text: str


class ChangedRange(NamedTuple):
    """Consecutive lines that other lines replace: two ranges of line numbers, without the ends."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def identify_line(line: str) -> str:
    """Return the values that a line defines, as `%a, %b`, or its text if it defines none."""
    defined = _DEFINITION.match(line) if line[:1] == " " else None
    return line if defined is None else defined[1]


def function_parts(lines: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the lines of each function of a program, after its name.

    The lines before the first function have an empty name.
    """
    starts = {0: ""}
    for number, line in enumerate(lines):
        if line[:1] not in (" ", "}") and (found := _FUNCTION.match(line)):
            starts[number] = found[1]
    ends = [*starts, len(lines)][1:]
    yield from (
        (name, lines[start:end]) for (start, name), end in zip(starts.items(), ends, strict=True)
    )


def identify_lines(lines: Sequence[str]) -> list[LineIdentity]:
    """Return the identity of each line of a program."""
    return [
        LineIdentity(function, identify_line(line))
        for function, part in function_parts(lines)
        for line in part
    ]


def unified_diff(
    before: Sequence[str], after: Sequence[str], old_title: str, new_title: str
) -> Iterator[str]:
    """Yield the lines of the unified diff of two programs; none if the programs are equal."""
    hunks = list(_group_ranges(find_changed_ranges(before, after)))
    if hunks:
        yield from (f"--- {old_title}", f"+++ {new_title}")
    for hunk in hunks:
        yield from _format_hunk(hunk, before, after)


def find_changed_ranges(before: Sequence[str], after: Sequence[str]) -> list[ChangedRange]:
    """Return the ranges of lines that differ between two programs, in order."""
    old_start = new_start = 0
    ranges = []
    for old, new in [*_match_lines(before, after), (len(before), len(after))]:
        is_end = old == len(before) and new == len(after)
        if not is_end and before[old] != after[new]:
            continue
        if (old_start, new_start) != (old, new):
            ranges.append(ChangedRange(old_start, old, new_start, new))
        old_start, new_start = old + 1, new + 1
    return ranges


def _match_lines(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of corresponding lines, in increasing order."""
    old, new = identify_lines(before), identify_lines(after)
    old_start = new_start = 0
    for old_end, new_end in [*_match_unique(old, new), (len(old), len(new))]:
        between = _match_between(old[old_start:old_end], new[new_start:new_end])
        yield from ((old_start + i, new_start + j) for i, j in between)
        if old_end < len(old):
            yield old_end, new_end
        old_start, new_start = old_end + 1, new_end + 1


def _match_between(
    old: Sequence[LineIdentity], new: Sequence[LineIdentity]
) -> Iterator[tuple[int, int]]:
    """Yield the corresponding lines between two pairs of corresponding lines.

    These are equal lines at the beginning and at the end, and lines between with the same identity
    and the same number of earlier lines of this identity.
    """
    shorter = min(len(old), len(new))
    first = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    rest = shorter - first
    last = next((i for i in range(rest) if old[-1 - i] != new[-1 - i]), rest)
    yield from ((i, i) for i in range(first))
    middle = _match_unique(
        _number_occurrences(old[first : len(old) - last]),
        _number_occurrences(new[first : len(new) - last]),
    )
    yield from ((first + i, first + j) for i, j in middle)
    yield from ((len(old) - i, len(new) - i) for i in range(last, 0, -1))


def _number_occurrences(
    identities: Sequence[LineIdentity],
) -> list[tuple[LineIdentity, int]]:
    counts: Counter[LineIdentity] = Counter()
    numbered = []
    for identity in identities:
        numbered.append((identity, counts[identity]))
        counts[identity] += 1
    return numbered


def _match_unique(old: Sequence[object], new: Sequence[object]) -> list[tuple[int, int]]:
    """Return the numbers of items that occur once in each sequence, in increasing order in both."""
    old_counts, new_counts = Counter(old), Counter(new)
    new_numbers = {item: j for j, item in enumerate(new) if new_counts[item] == 1}
    return _longest_increasing(
        [
            (i, new_numbers[item])
            for i, item in enumerate(old)
            if old_counts[item] == 1 and item in new_numbers
        ]
    )


def _longest_increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return a longest subsequence of pairs whose second numbers increase (patience sorting)."""
    ends: list[int] = []
    """The least last number of an increasing subsequence of each length."""
    end_pairs: list[int] = []
    previous: list[int] = []
    for at, (_, number) in enumerate(pairs):
        length = bisect_left(ends, number)
        previous.append(end_pairs[length - 1] if length else -1)
        ends[length : length + 1] = [number]
        end_pairs[length : length + 1] = [at]
    chosen = []
    at = end_pairs[-1] if end_pairs else -1
    while at >= 0:
        chosen.append(pairs[at])
        at = previous[at]
    return chosen[::-1]


def _group_ranges(ranges: Sequence[ChangedRange]) -> Iterator[list[ChangedRange]]:
    """Yield the ranges of each hunk: those whose context lines touch or overlap."""
    hunk: list[ChangedRange] = []
    for each in ranges:
        if hunk and each.old_start - hunk[-1].old_end > 2 * NUM_CONTEXT_LINES:
            yield hunk
            hunk = []
        hunk.append(each)
    if hunk:
        yield hunk


def _format_hunk(
    hunk: Sequence[ChangedRange], before: Sequence[str], after: Sequence[str]
) -> Iterator[str]:
    head = min(NUM_CONTEXT_LINES, hunk[0].old_start)
    tail = min(NUM_CONTEXT_LINES, len(before) - hunk[-1].old_end)
    old_lines = _format_range(hunk[0].old_start - head, hunk[-1].old_end + tail)
    new_lines = _format_range(hunk[0].new_start - head, hunk[-1].new_end + tail)
    yield f"@@ -{old_lines} +{new_lines} @@"
    shown = hunk[0].old_start - head
    for each in hunk:
        yield from (f" {line}" for line in before[shown : each.old_start])
        yield from (f"-{line}" for line in before[each.old_start : each.old_end])
        yield from (f"+{line}" for line in after[each.new_start : each.new_end])
        shown = each.old_end
    yield from (f" {line}" for line in before[shown : shown + tail])


def _format_range(start: int, end: int) -> str:
    """Return a range of lines as a unified diff states it: the first line, and their number."""
    if end - start == 1:
        return str(start + 1)
    return f"{start + 1 if end > start else start},{end - start}"
