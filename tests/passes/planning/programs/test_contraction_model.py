"""The model of contractions with which splits of axes are predicted."""

from collections.abc import Mapping

import pytest

from shardir.passes.planning.programs.contraction_model import (
    ContractionModel,
    Prediction,
    model_contractions,
)
from shardir.text.parser import parse


def model_of(text: str, groups: Mapping[str, tuple[int, ...]]) -> ContractionModel:
    """Return the model of a function with groups of values by their names, which an assignment can
    shard except for the group 9."""
    body = parse(text).main.body
    of_value = {value: groups[value.name] for value in body.values() if value.name in groups}
    return model_contractions(body, of_value, {group: group for group in range(9)})


PRODUCTS = """
func @f(%a: f32[4, 8], %b: f32[8, 16], %d: f32[6, 16]) -> (f32[4, 16], f32[4, 6]) {
  %c = dot(%a, %b, dims="ij,jk->ik") : f32[4, 16]
  %t = tanh(%c) : f32[4, 16]
  %e = dot(%t, %d, dims="ik,lk->il") : f32[4, 6]
  return %t, %e
}
"""
GROUPS = {"a": (9, 0), "b": (0, 9), "c": (9, 9), "t": (9, 1), "d": (2, 1), "e": (9, 2)}


@pytest.mark.parametrize(
    ("mine", "other", "expected"),
    [
        ((98, 500), (100, 100), True),
        ((99.5, 100), (100, 100), False),
        ((99.5, 98), (100, 100), True),
        ((100, 98), (100, 100), True),
        ((100, 99.5), (100, 100), False),
        ((101, 0), (100, 100), False),
    ],
)
def test_flops_come_before_bytes(
    mine: tuple[float, float], other: tuple[float, float], expected: bool
) -> None:
    assert Prediction(*mine).is_better_than(Prediction(*other)) == expected


def test_the_flops_and_bytes_of_contractions() -> None:
    """Along a dimension that a product sums over, its result is all-reduced; along two dimensions,
    an operand is gathered."""
    model = model_of(PRODUCTS, GROUPS)
    first, second = 2 * 4 * 8 * 16, 2 * 4 * 6 * 16
    assert model.predict([]) == Prediction(first + second, 0)
    assert model.predict([(frozenset({0}), 2)]) == Prediction(first / 2 + second, 4 * 16 * 4)
    assert model.predict([(frozenset({2}), 2)]) == Prediction(first + second / 2, 0)
    gathered = 6 * 16 * 4 + 4 * 16 * 4
    reduced = 2 * 4 * 6 * 4
    assert model.predict([(frozenset({1, 2}), 2)]) == Prediction(
        first + second / 2, min(gathered, reduced + 6 * 16 * 4) / 2
    )


def test_only_contractions_with_groups_are_modelled() -> None:
    assert len(model_of(PRODUCTS, GROUPS).contractions) == 2
    without = {name: own for name, own in GROUPS.items() if name != "e"}
    assert len(model_of(PRODUCTS, without).contractions) == 1


def test_divisors_are_those_of_all_dimensions_of_a_group() -> None:
    groups = {**GROUPS, "d": (0, 1)}
    assert dict(model_of(PRODUCTS, groups).divisors) == {0: 2, 1: 16, 2: 6}


def test_a_cover_has_the_cheapest_group_of_each_contraction() -> None:
    """The group 1, which is found first, needs an all-reduce, and the group 2 nothing."""
    model = model_of(PRODUCTS, GROUPS)
    assert model.list_covers(2) == [frozenset({0, 2}), frozenset({0, 1})]
    assert model.list_covers(4) == [frozenset({0, 1})]
    assert model.list_covers(5) == []
    for order in ((0, 1, 2), (0, 2, 1)):
        assert model._extend(frozenset({0}), order, 2) == {0, 2}
