"""Derivative rules of other packages: the types of the tangents and cotangents that they make."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from shardir import parse
from shardir.errors import DifferentiateError
from shardir.extend import FLOAT, define_op, define_unary
from shardir.interpret.interpreter import evaluate
from shardir.ir.module import Function
from shardir.passes.autodiff.jvp import jvp
from shardir.passes.autodiff.vjp import vjp
from tests.registries import restored_registries


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    with restored_registries():
        yield


def scaled(**rules: Any) -> Function:
    """Return a function that applies an operation of two operands with these rules."""
    define_op(
        "scaled",
        type=lambda x, factor, *, result: x,
        reference=lambda x, factor, *, result: x * factor,
        **rules,
    )
    return parse(
        "func @f(%x: f32[2], %factor: f32[]) -> (f32[2]) {\n"
        "  %y = scaled(%x, %factor) : f32[2]\n  return %y\n}\n"
    ).main


@pytest.mark.parametrize(
    ("transform", "rules", "message"),
    [
        (
            vjp,
            {"vjp": lambda b, g, x, factor, y: (b.sum(g, dims=(0,)), None)},
            "the vjp rule of scaled makes f32[] for %x: f32[2]",
        ),
        (
            jvp,
            {"jvp": lambda b, op, tangents: [b.sum(tangents[0], dims=(0,))]},
            "the jvp rule of scaled makes f32[] for %y: f32[2]",
        ),
    ],
)
def test_a_rule_that_makes_another_type_is_named(
    transform: Callable[..., Function], rules: dict[str, Any], message: str
) -> None:
    with pytest.raises(DifferentiateError) as caught:
        transform(scaled(**rules), [0])
    assert str(caught.value).splitlines()[0] == message


@pytest.mark.parametrize("transform", [vjp, jvp])
def test_an_elementwise_operation_without_a_rule_is_named(
    transform: Callable[..., Function],
) -> None:
    define_unary("thrice", FLOAT, lambda x: 3 * x)
    function = parse("func @f(%x: f32[2]) -> (f32[2]) { %y = thrice(%x) : f32[2] return %y }").main
    with pytest.raises(DifferentiateError) as caught:
        transform(function, [0])
    assert str(caught.value).startswith("%y = thrice has no derivative; add the rule: ")


@pytest.mark.parametrize("cotangent", [lambda b, g: None, lambda b, g: b.add(g, g)])
def test_the_cotangent_of_an_operand_without_one_is_ignored(
    cotangent: Callable[[Any, Any], Any],
) -> None:
    def rule(b: Any, g: Any, x: Any, factor: Any, y: Any) -> tuple[Any, ...]:
        return b.mul(g, b.broadcast(factor, dims=(), result=g.type)), cotangent(b, g)

    ones = np.ones(2, np.float32)
    made = evaluate(vjp(scaled(vjp=rule), [0]), [ones, np.float32(3), ones])
    np.testing.assert_array_equal(made, [3 * ones, 3 * ones])


def test_a_result_without_a_tangent_has_zeros() -> None:
    ones = np.ones(2, np.float32)
    ahead = jvp(scaled(jvp=lambda b, op, tangents: [None]), [0])
    made = evaluate(ahead, [ones, np.float32(3), ones])
    np.testing.assert_array_equal(made, [3 * ones, 0 * ones])
