"""Tests of many cases for many values, such as shapes and element types: all pairs, or a part."""

from collections.abc import Sequence
from typing import Any

from hypothesis import settings

LONG = settings().max_examples > 200
"""True if pytest runs with `--long`, so that tests may take long."""


def crossed(cases: Sequence[tuple[Any, ...]], values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return each case with each value at its end; unless tests may take long, with one value,
    which is another one for the next case."""
    if LONG:
        return [(*case, value) for case in cases for value in values]
    return [(*case, values[number % len(values)]) for number, case in enumerate(cases)]
