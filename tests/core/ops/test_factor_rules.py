"""Factor rules agree with Shardy: order, kinds, sizes and blocked factors.

tests/data/factor_rules.json has the rules of Shardy (in jaxlib 0.10.2,
`sdy-populate-op-sharding-rules`) for the StableHLO operations that correspond to ours, without the
initial values of reductions, which have no factors.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from shardir import ops
from shardir.ir.operation import OPS, factor_rule
from shardir.ir.types import TensorType
from shardir.op_rules.factors import FactorRule
from tests.op_sample import t

ROWS = json.loads((Path(__file__).parents[2] / "data" / "factor_rules.json").read_text("utf-8"))


def _type(text: str) -> TensorType:
    dtype, _, shape = text[:-1].partition("[")
    return TensorType(tuple(int(n) for n in shape.split(", ") if n), dtype)


def _as_shardy_writes_it(rule: FactorRule | None) -> str:
    return (
        str(rule)
        .replace(") -> (", ")->(")
        .replace("need-replication", "need_replication")
        .replace("blocked=", "blocked_propagation=")
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{'-'.join(row[1])}")
def test_the_rule_agrees_with_shardy(row: list[Any]) -> None:
    name, operands, attrs, results, expected = row
    attrs = {key: tuple(v) if isinstance(v, list) else v for key, v in attrs.items()}
    types = tuple(map(_type, results))
    rule = factor_rule(OPS[name], tuple(map(_type, operands)), types, tuple(attrs.items()))
    assert rule is not None
    assert _as_shardy_writes_it(rule) == expected


def _rule(name: str, *operands: TensorType, result: Any, **attrs: Any) -> str:
    results = result if isinstance(result, tuple) else (result,)
    return str(factor_rule(OPS[name], operands, results, tuple(attrs.items())))


def test_argmax_has_no_reduction_factor() -> None:
    rule = factor_rule(ops.argmax, (t("f32", 4, 6),), (t("i32", 4),), (("dim", 1),))
    assert rule is not None
    assert str(rule) == "([i, j]) -> ([i]) {i=4, j=6} reduction={j}"
    assert rule.reduction is None


@pytest.mark.parametrize(
    ("name", "joined"),
    [
        ("sum", "add"),
        ("prod", "mul"),
        ("max", "max"),
        ("min", "min"),
        ("any", "or"),
        ("all", "and"),
    ],
)  # fmt: skip
def test_partial_results_combine_by_the_kind_of_reduction(name: str, joined: str) -> None:
    rule = factor_rule(OPS[name], (t("f32", 4, 6),), (t("f32", 6),), (("dims", (0,)),))
    assert rule is not None
    assert rule.reduction == joined


def test_a_full_top_k_needs_replication_but_propagates_other_axes() -> None:
    rule = _rule("top_k", t("f32", 2, 6), result=(t("f32", 2, 6), t("i32", 2, 6)))
    assert rule == "([i, j]) -> ([i, j], [i, j]) {i=2, j=6} need-replication={j}"


def test_a_barrier_has_separate_factors_per_operand() -> None:
    x, y = t("f32", 4), t("i32", 6)
    rule = _rule("optimization_barrier", x, y, result=(x, y))
    assert rule == "([i], [j]) -> ([i], [j]) {i=4, j=6}"


@pytest.mark.parametrize("name", ["constant", "iota", "reshard"])
def test_operations_that_block_propagation(name: str) -> None:
    assert OPS[name].factors is None


def test_an_empty_reshape_has_no_rule() -> None:
    factors = ops.reshape.factors
    assert factors is not None
    assert factors(t("f32", 0, 3), result=t("f32", 3, 0)) is None
