"""Comparison of the output of a cell with the output in its document."""

import re
from collections.abc import Sequence

RENAMED = (
    (r"<class '[\w.]*Array(?:Impl)?'>", "<class 'Array'>"),
    (r"\b(?:Sharded)?DeviceArray\(", "Array("),
)
"""Types whose names have changed over the years."""

NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")


def verdict(ours: str, shown: Sequence[str]) -> str:
    """Return how `ours` compares with the lines below a cell; "" if there is nothing to compare.

    The lines may end with prose.
    """
    lines = _lines(ours.splitlines())
    theirs = _lines(shown)[: len(lines)]
    if not lines:
        return ""
    if lines == theirs:
        return "same output"
    words, others = _words(lines), _words(_lines(shown))[: len(_words(lines))]
    if words == others:
        return "same output but for spaces"
    if len(words) == len(others) and all(map(_near, words, others)):
        return "same output but for rounding"
    return "other output"


def _lines(lines: Sequence[str]) -> list[str]:
    found = []
    for line in lines:
        for pattern, name in RENAMED:
            line = re.sub(pattern, name, line)
        if line.strip():
            found.append(line.rstrip())
    return found


def _words(lines: Sequence[str]) -> list[str]:
    return re.sub(r"([\[\](),=])", r" \1 ", " ".join(lines)).split()


def _near(one: str, other: str) -> bool:
    if one == other:
        return True
    if not (NUMBER.fullmatch(one) and NUMBER.fullmatch(other)):
        return False
    a, b = float(one), float(other)
    return abs(a - b) <= 1e-5 * max(abs(a), abs(b))
