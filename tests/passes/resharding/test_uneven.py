"""The factors along which an operation can run on uneven shards."""

from dataclasses import replace

import pytest

from shardir.op_rules.factor_rule_text import parse_rule
from shardir.passes.resharding.uneven import paddable_factors, uneven_dims
from shardir.text.parser import parse

SUM = "%y = sum(%x, dims=[0]) : f32[]"
REVERSE = "%y = reverse(%x, dims=[0]) : f32[6]"
RESHAPE = "%y = reshape(%x) : f32[6, 1]"
NEGATE = "%y = neg(%x) : f32[6]"


@pytest.mark.parametrize(
    ("line", "rule", "reduction", "expected"),
    [
        (NEGATE, "([i])->([i]) {i=6}", None, (0,)),
        (NEGATE, "([i])->([i]) {i=3}", None, ()),
        (NEGATE, "([ij])->([ij]) {i=6, j=1}", None, ()),
        (RESHAPE, "([ij])->([i, j]) {i=6, j=1}", None, ()),
        (SUM, "([i])->([]) {i=6} reduction={i}", "add", (0,)),
        (SUM, "([i])->([]) {i=6} reduction={i}", None, ()),
        (SUM, "([i])->([]) {i=6} need_replication={i}", "add", ()),
        (REVERSE, "([i])->([i]) {i=6} permutation={i}", None, (0,)),
        (REVERSE, "([i])->([i]) {i=3} permutation={i}", None, (0,)),
        (REVERSE, "([i])->([i]) {i=1} permutation={i}", None, ()),
        (REVERSE, "([ij])->([ij]) {i=3, j=2} permutation={i, j}", None, ()),
    ],
)
def test_factors_that_can_be_padded(
    line: str, rule: str, reduction: str | None, expected: tuple[int, ...]
) -> None:
    """A factor is a whole dimension, or positions that a declared rule moves."""
    result = line.partition(" : ")[2]
    op = parse(f"func @f(%x: f32[6]) -> ({result}) {{\n  {line}\n  return %y\n}}\n").main.body.ops[
        0
    ]
    assert paddable_factors(op, replace(parse_rule(rule), reduction=reduction)) == expected


def test_a_value_without_sharding_is_even() -> None:
    assert uneven_dims(None, (3,)) == ()
