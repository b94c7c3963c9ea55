"""Gradients of random programs with nested loops and branches."""

import pytest
from hypothesis import given, settings, strategies

from tests.derivatives import check_gradients
from tests.passes.nested_regions import Programs, arguments


@given(seed=strategies.integers(0, 2**32 - 1))
def test_gradients_of_nested_loops_and_branches(seed: int) -> None:
    check_gradients(Programs(seed).function(), arguments(seed), seed=seed)


@pytest.mark.long
@settings(max_examples=30)
@given(seed=strategies.integers(0, 2**32 - 1))
def test_gradients_of_their_gradients(seed: int) -> None:
    check_gradients(Programs(seed).function(), arguments(seed), order=2, seed=seed)
