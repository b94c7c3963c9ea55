"""The round in which shardings pass each kind of operation, and in which direction."""

import pytest

from shardir.passes import Propagate
from shardir.text.parser import parse
from tests.passes.propagation.propagation_result import MESH

NEVER = None
OPERATIONS = {
    "neg": ("f32[8]", "%r = neg(%p) : f32[8]", 0, 0),
    "reshape": ("f32[8, 1]", "%r = reshape(%p) : f32[8]", 0, 0),
    "transpose": ("f32[8]", "%r = transpose(%p, perm=[0]) : f32[8]", 0, 0),
    "bitcast to the same shape": ("i32[8]", "%r = bitcast(%p) : f32[8]", 0, 0),
    "bitcast to another shape": ("i16[8, 2]", "%r = bitcast(%p) : f32[8]", 2, 2),
    "dynamic slice": ("f32[8, 4]", "%r = dynamic_slice(%p, %i, %i) : f32[8, 2]", 0, 2),
    "slice": ("f32[8, 4]", "%r = slice(%p, starts=[0, 0], strides=[1, 1]) : f32[8, 2]", 2, 2),
    "sum": ("f32[8, 4]", "%r = sum(%p, dims=[1]) : f32[8]", 2, 2),
    "broadcast": ("f32[8]", "%r = broadcast(%p, dims=[0]) : f32[8, 4]", 4, 2),
    "transfer": ("f32[8]", "%r = opaque(%p, CALL@MoveToHost, TYPES, POINTWISE) : f32[8]", 0, 0),
    "other call": ("f32[8]", "%r = opaque(%p, CALL@mine, TYPES, POINTWISE) : f32[8]", 2, 2),
    "elementwise call": (
        "f32[8]", "%r = opaque(%p, stablehlo.reduce_precision, TYPES, POINTWISE) : f32[8]", 0, 0
    ),
    "barrier": ("f32[8]", "%r = propagation_barrier(%p, direction=none) : f32[8]", NEVER, NEVER),
    "forward barrier": (
        "f32[8]", "%r = propagation_barrier(%p, direction=forward) : f32[8]", 0, NEVER
    ),
}  # fmt: skip


def first_round(text: str, name: str) -> int | None:
    """Return the round in which `%name` gets its axis."""
    _, record = Propagate().run_recorded(parse(text))
    (history,) = record.histories.values()
    (cell,) = (cell for value, cell in history.cells.items() if value.name == name)
    rounds = [
        step.round
        for step in history.steps
        if any(step.cells[gain.tensor] == cell for gain in step.gains)
    ]
    return min(rounds, default=None)


def program(type: str, operation: str, *, forward: bool, uses: int = 1) -> str:
    for old, new in {
        "CALL": "stablehlo.custom_call ",
        "TYPES": 'attributes="", types=": (tensor<8xf32>) -> tensor<8xf32>"',
        "POINTWISE": "pointwise=true",
    }.items():
        operation = operation.replace(old, new)
    if "opaque" in operation:
        name = operation.partition("(%p, ")[2].partition(",")[0]
        operation = operation.replace(name, f'operation="{name}", head="{name}(%)"', 1)
    head, _, result = operation.partition(" : ")
    operand, its_result = type, result
    if forward:
        operand = operand.replace("[8", "[8@x", 1)
    else:
        its_result = its_result.replace("[8", "[8@x", 1)
    others = "".join(f"  %u{i} = neg(%p) : {type}\n" for i in range(uses - 1))
    return (
        f"{MESH}func @f(\n  %p: {operand},\n  %i: i32[],\n) -> ({result}) {{\n"
        f"  {head} : {its_result}\n{others}  return %r\n}}\n"
    )


@pytest.mark.parametrize("kind", OPERATIONS)
def test_each_kind_of_operation_propagates_in_its_round(kind: str) -> None:
    type, operation, forward, backward = OPERATIONS[kind]
    assert first_round(program(type, operation, forward=True), "r") == forward
    assert first_round(program(type, operation, forward=False), "p") == backward


@pytest.mark.parametrize(("kind", "forward", "backward"), [("neg", 1, 1), ("dynamic slice", 1, 2)])
def test_an_operand_with_two_uses_waits_for_the_next_round(
    kind: str, forward: int, backward: int
) -> None:
    type, operation, *_ = OPERATIONS[kind]
    assert first_round(program(type, operation, forward=True, uses=2), "r") == forward
    assert first_round(program(type, operation, forward=False, uses=2), "p") == backward


def test_contracted_dimensions_propagate_after_others() -> None:
    text = f"""{MESH}func @f(
  %a: f32[8@y, 16@x],
  %b: f32[16, 4],
) -> (f32[8, 4]) {{
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[8, 4]
  return %c
}}
"""
    assert (first_round(text, "c"), first_round(text, "b")) == (2, 3)


def test_an_operand_of_a_manual_computation_enters_it_in_the_next_round() -> None:
    """As in OpenXLA Shardy: the sum, which comes second, shards `%a` in the round of its uses."""
    text = f"""{MESH}func @f(
  %a: f32[8],
  %w: f32[8@y?],
) -> (f32[8], f32[8]) {{
  %r = manual_computation(%a, axes=[x], in_axes=[[[]]], out_axes=[[[]]]) : f32[8] {{
    (%p: f32[8]) =>
    yield %p
  }}
  %s = add(%a, %w) : f32[8]
  return %r, %s
}}
"""
    assert (first_round(text, "a"), first_round(text, "p")) == (1, 2)


def test_the_result_of_a_manual_computation_leaves_it_in_the_same_round() -> None:
    """z enters it from `%r2`, and leaves it through `%r1`."""
    text = f"""{MESH}func @f(
  %a: f32[8],
  %w: f32[8@z?],
) -> (f32[8], f32[8], f32[8]) {{
  %r1, %r2 = manual_computation(%a, MANUAL) : f32[8], f32[8] {{
    (%p: f32[8]) =>
    %u = neg(%p) : f32[8]
    %q1 = exp(%u) : f32[8]
    %q2 = sin(%u) : f32[8]
    yield %q1, %q2
  }}
  %s = add(%r2, %w) : f32[8]
  %v = neg(%r2) : f32[8]
  return %s, %r1, %v
}}
""".replace("MANUAL", "axes=[x], in_axes=[[[]]], out_axes=[[[]], [[]]]")
    assert (first_round(text, "r2"), first_round(text, "r1")) == (1, 1)
