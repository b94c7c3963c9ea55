"""The axes of each factor of an operation, whose tensors have shardings that may conflict."""

from collections.abc import Sequence
from typing import Any

import pytest

from shardir.passes.resharding.align import (
    align,
    partitioning_rule,
    pending_reduction,
    shardable_factors,
)
from shardir.text.parser import parse
from tests.passes.resharding.factor_rules import factor_rule, format_axes, shardings


def aligned(
    tensors: str,
    places: Sequence[str],
    *,
    cuttable: str | None = None,
    uneven: str = "",
    **factors: Any,
) -> str:
    """Return the axes of the factors; all factors can be sharded unless `cuttable` states some."""
    names = "".join(name for name in factors if len(name) == 1)
    rule = factor_rule(tensors, **factors)
    found = align(
        rule,
        shardings(places),
        tuple(map(names.index, names if cuttable is None else cuttable)),
        tuple(map(names.index, uneven)),
    )
    tensor_axes = [
        tuple(axis for factor in dim for axis in found.factor_axes[factor])
        for mapping in rule.tensors
        for dim in mapping
    ]
    assert format_axes(tensor_axes) == format_axes([a for s in found.tensors for a in s.axes])
    return format_axes(found.factor_axes)


def test_shards_have_equal_sizes_unless_a_factor_may_be_uneven() -> None:
    assert aligned("i -> i", ["y", "y"], i=6) == "y:(1)2"
    assert aligned("i -> i", ["y", "y"], i=6, uneven="i") == "y"
    assert aligned("i -> i", ["y", "y"], i=0, uneven="i") == "-"


def test_axes_that_do_not_divide_a_factor_shard_no_later_one() -> None:
    """The dimension of 96 elements cannot be sharded along its innermost factor only."""
    assert aligned("ijk -> i j k", ["x", "- - y"], i=3, j=4, k=8) == "- - -"


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        pytest.param(["x -", "x -"], "x -", id="agreed"),
        pytest.param(["- y", "x -"], "- y", id="more shards"),
        pytest.param(["x -", "- y"], "- y", id="the other has more shards"),
        pytest.param(["x -", "y -"], "y -", id="more shards of a dimension"),
        pytest.param(["x -", "- x"], "x -", id="the first one"),
    ],
)
def test_one_of_two_tensors_is_followed(places: list[str], expected: str) -> None:
    assert aligned("i j -> i j", places, i=8, j=8) == expected


def test_the_larger_of_two_tensors_is_followed() -> None:
    """The other one adds the axes of factors that the larger one lacks."""
    assert aligned("i j -> i k", ["x -", "y x"], i=8, j=8, k=2) == "x - -"
    assert aligned("i j -> i k", ["x -", "y y"], i=8, j=8, k=4) == "x - y"
    assert aligned("i j -> i k", ["y -", "x -"], i=8, j=2, k=8) == "x - -"


def test_factors_of_one_dimension_are_voted_for() -> None:
    """The larger number of shards is not decisive if it needs axes for the outer factor, too."""
    assert aligned("ij -> i j", ["x", "- y"], i=2, j=8) == "x y"
    assert aligned("ij -> i j", ["-", "- y"], i=2, j=8) == "- -"


def test_axes_of_most_of_the_data_are_taken() -> None:
    assert aligned("i, i -> i", ["y", "x", "x"], i=8) == "x"
    assert aligned("i, i -> i j", ["x", "x", "y -"], i=8, j=8) == "y -"
    assert aligned("i, i -> i", ["xy", "x", "-"], i=8) == "xy"
    assert aligned("i, i -> i", ["xy", "yx", "x"], i=8) == "xy"


def test_factors_that_tensors_do_not_share_have_different_axes() -> None:
    assert aligned("i, j -> k", ["x", "x", "-"], i=8, j=4, k=8) == "x - -"
    assert aligned("i, j -> i j", ["yx", "x", "- -"], i=8, j=8) == "yx -"
    assert aligned("i, j -> i j", ["x", "yx", "- -"], i=8, j=8) == "- yx"
    assert aligned("i, j -> i j", ["yx", "z", "- x"], i=8, j=6) == "y x"


def test_axes_of_a_factor_that_cannot_be_sharded_move_to_a_shared_one() -> None:
    assert aligned("i j -> i j", ["x -", "x -"], i=8, j=8, cuttable="j") == "- x"
    assert aligned("i j -> i j", ["x -", "x -"], i=8, j=8, cuttable="") == "- -"
    assert aligned("i j -> i j", ["- x", "- x"], i=8, j=8, cuttable="") == "- -"
    assert aligned("i j -> i j", ["x -", "x -"], i=8, j=7, cuttable="j") == "- -"
    assert aligned("i j -> i j", ["x -", "x -"], i=8, j=0, cuttable="j") == "- -"
    assert aligned("i j -> i", ["x -", "x"], i=8, j=8, cuttable="j") == "- -"
    assert aligned("i j -> j", ["x -", "-"], i=8, j=8, cuttable="j") == "- -"
    rows: Any = {"permute": "j", "i": 8, "j": 8}
    assert aligned("i j -> i j", ["x -", "x -"], cuttable="j", **rows) == "- -"
    assert aligned("i j k -> i j k", ["x - -", "x - -"], i=8, j=8, k=8, cuttable="jk") == "- x -"


def test_axes_that_other_factors_need_are_given_up_first() -> None:
    """Factor i cannot be sharded: the axis x of j is not replaced by the axes that leave i."""
    assert aligned("i j -> i j", ["xy -", "- x"], i=8, j=8, cuttable="j") == "- x"


def test_uneven_factors_are_voted_for() -> None:
    places = ["y", "y", "x"]
    assert aligned("i, i -> i", places, i=6) == "y:(1)2"
    assert aligned("i, i -> i", places, i=6, uneven="i") == "y"


@pytest.mark.parametrize(
    ("op", "rule", "shardable", "reduction"),
    [
        pytest.param(
            "neg(%x) : f32[8, 4]",
            "([i, j]) -> ([i, j]) {i=8, j=4}",
            "ij",
            "add",
            id="declares nothing",
        ),
        pytest.param(
            "sum(%x, dims=[0]) : f32[4]",
            "([i, j]) -> ([j]) {i=8, j=4} reduction={i}",
            "ij",
            "add",
            id="sum",
        ),
        pytest.param(
            "any(%b, dims=[0]) : bool[4]",
            "([i, j]) -> ([j]) {i=8, j=4} reduction={i}",
            "ij",
            "max",
            id="any",
        ),
        pytest.param(
            "gather(%x, %i, offset_dims=[1], collapsed_dims=[0], start_index_map=[0]) : f32[2, 4]",
            "([k, j], [i, l]) -> ([i, j]) {i=2, j=4, k=8, l=1} reduction={k} need-replication={l}",
            "ijk",
            "add",
            id="a sum of parts",
        ),
        pytest.param(
            "random_bits(%k, scheme=partitionable) : u32[8]",
            "([]) -> ([i]) {i=8}",
            "i",
            "add",
            id="default factors",
        ),
        pytest.param(
            "concatenate(%x, %x, dim=0) : f32[16, 4]",
            "([i, j], [i, j]) -> ([i, j]) {i=16, j=4} need-replication={i}",
            "ij",
            "add",
            id="no reduction",
        ),
        pytest.param(
            "slice(%x, starts=[2, 0], strides=[1, 1]) : f32[4, 4]",
            "([i, j]) -> ([i, j]) {i=8, j=4} permutation={i}",
            "ij",
            "add",
            id="all",
        ),
    ],
)
def test_what_an_operation_declares_for_partitioning(
    op: str, rule: str, shardable: str, reduction: str | None
) -> None:
    module = parse(
        f"func @f(\n  %x: f32[8, 4],\n  %b: bool[8, 4],\n  %k: key[],\n"
        "  %i: i32[2, 1],\n) -> (f32[8, 4]) {\n"
        f"  %y = {op}\n  return %x\n}}\n"
    )
    (made,) = module.main.body.ops
    found = partitioning_rule(made)
    assert found is not None
    assert str(found) == rule
    assert "".join("ijkl"[factor] for factor in shardable_factors(made, found)) == shardable
    assert pending_reduction(made, found) == reduction
