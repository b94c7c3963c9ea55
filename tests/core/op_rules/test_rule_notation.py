"""The text notation of factor rules: factors of tensors with given shapes, and errors."""

from typing import Any

import pytest

from shardir.errors import RuleError, ShardirError
from shardir.op_rules.factor_rule_text import parse_rule, show_shardy
from shardir.op_rules.rule_notation import sharding_rule

Shapes = list[tuple[int, ...]]

MEANINGS: list[tuple[str, dict[str, Any], Shapes, Shapes, str]] = [
    (
        "i j, j k -> i k", {"reduction": "j"}, [(8, 16), (16, 4)], [(8, 4)],
        "([i, j], [j, k]) -> ([i, k]) {i=8, j=16, k=4} reduction={j}",
    ),
    (
        "(h d) m -> m h d", {}, [(6, 5)], [(5, 2, 3)],
        "([ij, k]) -> ([k, i, j]) {i=2, j=3, k=5}",
    ),
    (
        "(i j) -> (j i)", {"sizes": {"i": 2, "j": 3}}, [(6,)], [(6,)],
        "([ij]) -> ([ji]) {i=2, j=3}",
    ),
    (
        "(i j) k -> (i j) {i=2, j=4} reduction={k}", {"need_replication": ("j",)}, [(8, 3)], [(8,)],
        "([ij, k]) -> ([ij]) {i=2, j=4, k=3} reduction={k} need-replication={j}",
    ),
    (
        "... i, ... -> ... i", {"permutation": "i"}, [(2, 3, 4), (2, 3)], [(2, 3, 4)],
        "([i, j, k], [i, j]) -> ([i, j, k]) {i=2, j=3, k=4} permutation={k}",
    ),
    (
        "... i, ...1 j -> i j", {"blocked": "i j"}, [(4,), (2, 3)], [(4, 3)],
        "([i], [j, k]) -> ([i, k]) {i=4, j=2, k=3} blocked={i, k}",
    ),
    ("i, -> i", {}, [(4,), ()], [(4,)], "([i], []) -> ([i]) {i=4}"),
    (" -> i", {}, [], [(4,)], "() -> ([i]) {i=4}"),
    ("i -> i", {}, [(4,)], [(8,)], "([i]) -> ([i]) {i=4}"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kinds", "operands", "results", "meaning"), MEANINGS)
def test_a_rule_has_the_stated_factors(
    text: str, kinds: dict[str, Any], operands: Shapes, results: Shapes, meaning: str
) -> None:
    rule = sharding_rule(text, **kinds)
    found = rule.for_shapes(operands, results)

    assert str(found) == meaning
    assert sharding_rule(str(rule)) == rule
    assert parse_rule(str(found)) == parse_rule(show_shardy(found)) == found
    assert rule.for_shapes(operands, results) is found


def test_a_rule_is_printed_as_it_is_parsed() -> None:
    rule = sharding_rule(
        "...1 (i j) k,  -> ...1 k", reduction="i", permutation=["k"], blocked=("k", "i"),
        sizes={"i": 2, "j": 3},
    )  # fmt: skip

    assert (
        str(rule)
        == "...1 (i j) k,  -> ...1 k {i=2, j=3} reduction={i} permutation={k} blocked={k, i}"
    )


WRONG: list[tuple[str, dict[str, Any], str]] = [
    (
        "i j", {},
        "the rule 'i j' has no ->; write operands -> results, as in i j, j k -> i k",
    ),
    (
        "i -> i -> i", {},
        "the rule 'i -> i -> i' has more than one ->; write operands -> results, as in "
        "i j, j k -> i k",
    ),
    (
        "i 2 -> i", {},
        "'2' in the rule 'i 2 -> i' is not a factor name; names begin with a letter, and the "
        "other symbols of a rule are ( ) , -> and ...",
    ),
    ("i ... -> i", {}, "'...' in the rule 'i ... -> i' is not in front of a tensor"),
    ("(i (j k)) -> i", {}, "the brackets of the rule '(i (j k)) -> i' do not match; they are not "
                           "nested"),
    ("(i j -> i", {}, "the brackets of the rule '(i j -> i' do not match; they are not nested"),
    ("i) -> i", {}, "the brackets of the rule 'i) -> i' do not match; they are not nested"),
    ("(i) -> i", {}, "brackets in the rule '(i) -> i' hold fewer than two factors"),
    ("i i -> i", {}, "'i' occurs twice in 'i i' of the rule 'i i -> i'"),
    (
        "i j -> i", {"reduction": "k"},
        "reduction names 'k', which is not a factor of 'i j -> i'; it has i, j",
    ),
    (" -> ", {"blocked": "k"}, "blocked names 'k', which is not a factor of '->'; it has none"),
    (
        "i j -> i", {"reduction": "j", "permutation": "j"},
        "'j' is in reduction and in permutation; a factor is of one kind",
    ),
    ("i j -> i", {"reduction": "j j"}, "reduction names 'j' twice"),
    (
        "i -> i", {"sizes": {"k": 2}},
        "sizes names 'k', which is not a factor of 'i -> i'; it has i",
    ),
    (
        "i j -> (i j)", {"sizes": {"i": 2}},
        "'i' is a whole dimension in the rule 'i j -> (i j)', which states its size; leave it out "
        "of sizes",
    ),
    (
        "(i j) -> i", {},
        "'j' is never a whole dimension in the rule '(i j) -> i', so that none states its size; "
        "add sizes={'j': ...}",
    ),
    ("(i j) -> i {j=0}", {}, "the size of 'j' is 0; it must be at least 1"),
    ("i -> i {i}", {}, "'i' is not a factor size; write it as i=2"),
    (
        "i -> i reduce={i}", {},
        "'reduce={i}' behind the rule 'i -> i' is neither sizes such as {i=2, j=4} nor one of "
        "reduction, need_replication, permutation, blocked such as reduction={j}",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kinds", "message"), WRONG)
def test_invalid_text_is_an_error(text: str, kinds: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError) as raised:
        sharding_rule(text, **kinds)

    assert str(raised.value) == message
    assert isinstance(raised.value, ShardirError)
    assert isinstance(raised.value, ValueError)


MISFITS: list[tuple[str, Shapes, Shapes, str]] = [
    ("i -> i", [(4,), (4,)], [(4,)], "the rule 'i -> i' has 1 operand, not 2"),
    ("i -> i, i", [(4,)], [(4,)], "the rule 'i -> i, i' has 2 results, not 1"),
    ("i -> i", [(4, 4)], [(4,)], "operand 0 has 2 dimensions, but the rule 'i -> i' gives it 1"),
    (
        "i -> ... i j", [(4,)], [(4,)],
        "result 0 has 1 dimension, but the rule 'i -> ... i j' gives it at least 2",
    ),
    (
        "... i, ... -> i", [(2, 4), (2, 2)], [(4,)],
        "'...' in the rule '... i, ... -> i' stands for 1 dimension and, in operand 1, for 2; "
        "number groups that differ, as in ...1",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "operands", "results", "message"), MISFITS)
def test_a_rule_that_does_not_match_the_shapes_is_an_error(
    text: str, operands: Shapes, results: Shapes, message: str
) -> None:
    with pytest.raises(RuleError) as raised:
        sharding_rule(text).for_shapes(operands, results)

    assert str(raised.value) == message


def test_factors_that_do_not_multiply_to_a_dimension_are_errors() -> None:
    with pytest.raises(RuleError) as raised:
        sharding_rule("(i j) -> i j").for_shapes([(8,)], [(2, 3)])

    assert str(raised.value) == (
        "dimension 0 of operand 0 has size 8, but the rule '(i j) -> i j' maps it to i of 2 "
        "and j of 3"
    )
