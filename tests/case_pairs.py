"""Parametrization over pairs of a case and a value, such as a shape or a dtype: all pairs, or a
part.
"""

from collections.abc import Sequence
from typing import Any

from hypothesis import settings

LONG = settings().max_examples > 200
"""True if pytest runs with `--long`, so that tests may take long."""


def cross_cases(cases: Sequence[tuple[Any, ...]], values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return every case with every value if `--long` is given, otherwise with one value.

    Consecutive cases get different values.
    """
    if LONG:
        return [(*case, value) for case in cases for value in values]
    return [(*case, values[number % len(values)]) for number, case in enumerate(cases)]
