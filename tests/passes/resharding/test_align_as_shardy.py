"""The axes of each factor of an operation, as OpenXLA Shardy decides for them."""

from collections.abc import Sequence
from math import prod
from typing import Any

import pytest

from shardir.passes.resharding.align_as_shardy import align_as_shardy
from tests.passes.resharding.factor_rules import factor_rule, format_axes, shardings


def aligned(tensors: str, places: Sequence[str], *, reshapes: bool = False, **factors: Any) -> str:
    """Return the axes of the factors."""
    rule = factor_rule(tensors, **factors)
    sizes = [factor.size for factor in rule.factors]
    elements = tuple(
        prod(sizes[factor] for dim in mapping for factor in dim) for mapping in rule.tensors
    )
    return format_axes(align_as_shardy(rule, shardings(places), elements, reshapes).factor_axes)


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        pytest.param(["x -", "x -"], "x -", id="agreed"),
        pytest.param(["- y", "x -"], "- y", id="more shards"),
        pytest.param(["x -", "- y"], "- y", id="the other has more shards"),
        pytest.param(["x -", "- x"], "x -", id="the first one"),
    ],
)
def test_one_of_two_tensors_is_followed(places: list[str], expected: str) -> None:
    assert aligned("i j -> i j", places, i=8, j=8) == expected


def test_the_larger_of_two_tensors_is_followed() -> None:
    assert aligned("i j -> i k", ["x -", "y x"], i=8, j=8, k=2) == "x - -"
    assert aligned("i j -> i k", ["x -", "y y"], i=8, j=8, k=4) == "x - y"
    assert aligned("i j -> i k", ["y -", "x -"], i=8, j=2, k=8) == "x - -"


def test_a_tensor_with_rows_to_exchange_is_not_followed() -> None:
    assert aligned("i j -> i j", ["y -", "- x"], permute="i", i=8, j=8) == "- x"
    assert aligned("i j -> i", ["- y", "x"], permute="j", i=8, j=8) == "x y"
    assert aligned("i j -> i j", ["y -", "- x"], i=8, j=8) == "y -"


def test_axes_of_most_of_the_data_are_taken() -> None:
    assert aligned("i, i -> i", ["y", "x", "x"], i=8) == "x"
    assert aligned("i, i -> i j", ["x", "x", "y -"], i=8, j=8) == "y -"
    assert aligned("i, j -> k", ["x", "x", "-"], i=8, j=4, k=8) == "x - -"


def test_axes_count_whole_when_they_have_no_part_of_taken_ones() -> None:
    """The axes y and x compete with z and w after z is taken."""
    places = ["- wy:(1)2zx -", "wz x y", "z x yw"]
    assert aligned("i j k, i j k -> i j k", places, i=96, j=96, k=96) == "z x yw"


def test_axes_of_a_factor_that_must_be_unsharded_move_to_a_shared_one() -> None:
    places = ["x -", "x -"]
    assert aligned("i j -> i j", places, replicate="i", i=8, j=8) == "- x"
    assert aligned("i j -> i j", places, replicate="i", i=8, j=7) == "- -"
    assert aligned("i j -> i j", places, replicate="i", i=8, j=0) == "- -"
    assert aligned("i j -> i", ["x -", "x"], replicate="i", i=8, j=8) == "- -"
    assert aligned("i j -> j", ["x -", "-"], replicate="i", i=8, j=8) == "- -"
    assert aligned("i j -> i j", ["xz -", "xz -"], replicate="i", i=6, j=8) == "- x"
    assert aligned("i j -> i j", ["x y", "x y"], replicate="i", i=8, j=9) == "- y"


def test_a_reshape_has_the_axes_of_the_side_with_more_shards() -> None:
    """The axis y shares no divisor with the factor of size 3."""
    assert aligned("ij k -> ij k", ["yzw x", "- -"], reshapes=True, i=3, j=12, k=2) == "z yw x"
    assert aligned("k i j -> k ij", ["- - -", "- w"], reshapes=True, k=0, i=4, j=2) == "- - -"
    assert aligned("ijk -> i jk", ["wy", "- x"], reshapes=True, i=2, j=4, k=1) == "- - -"
    # Other operations, and reshapes without such axes, take the axes of most of the data.
    assert aligned("ij, i -> i j", ["y", "-", "- x"], i=3, j=4) == "- -"
    assert aligned("ij -> i j", ["x", "- y"], reshapes=True, i=2, j=8) == "x y"


def test_factors_after_axes_that_share_no_divisor_can_be_sharded() -> None:
    places = ["- y zwx -", "y z"]
    factors = {"i": 3, "j": 2, "k": 6, "l": 12}
    assert aligned("i j k l -> ijk l", places, reshapes=True, **factors) == "z y:(1)2 - -"
