"""Removal of the constraints that a plan does not need."""

from collections.abc import Sequence

import pytest

from shardir.passes.planning.programs.constrained_values import _remove_needless


@pytest.mark.parametrize(
    ("count", "needed"),
    [(0, set()), (1, set()), (1, {0}), (8, {3}), (8, {0, 7}), (9, {2, 3, 8}), (5, set(range(5)))],
)
def test_the_needed_values_remain(count: int, needed: set[int]) -> None:
    tried: list[tuple[int, ...]] = []

    def is_sufficient(kept: Sequence[int]) -> bool:
        tried.append(tuple(kept))
        return needed <= set(kept)

    _remove_needless(range(count), is_sufficient)
    smallest: tuple[int, ...] = tuple(range(count))
    for kept in tried:
        if needed <= set(kept) and len(kept) < len(smallest):
            smallest = kept
    assert set(smallest) == needed
    assert len(tried) <= 2 * count * max(1, len(needed))


def test_the_removal_ends_without_evaluations() -> None:
    """Each question after the first one that is not answered would be another evaluation."""
    answers = iter([False, True, None])
    _remove_needless(range(8), lambda kept: next(answers))
    assert next(answers, "none") == "none"
