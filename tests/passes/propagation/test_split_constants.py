"""Which values count as constants, and are duplicated for each use."""

import pytest

from tests.passes.propagation.propagation_result import propagate


def lines(body: str) -> list[str]:
    """Return the operations after propagation, without types."""
    text = f"""\
func @f(
  %a: f32[4],
  %s: f32[],
) -> (f32[4]) {{
{body}
  return %a
}}
"""
    return [line.strip().partition(" : ")[0] for line in str(propagate(text)).splitlines()]


@pytest.mark.parametrize(
    ("operation", "is_copied"),
    [
        ("iota(dim=0) : i32[8]", True),
        ("neg(%k) : f32[4]", True),
        ("broadcast(%k, dims=[1]) : f32[8, 4]", True),
        ("reshape(%k) : f32[2, 2]", True),
        ("slice(%k, starts=[0], strides=[1]) : f32[2]", True),
        ("broadcast(%s, dims=[]) : f32[4]", True),
        ("stop_gradient(%k) : f32[4]", False),
        ("sharding_constraint(%k) : f32[4@x]", False),
        ("concatenate(%k, %k, dim=0) : f32[8]", False),
        ("broadcast(%a, dims=[1]) : f32[8, 4]", False),
        ("neg(%a) : f32[4]", False),
        ("add(%a, %k) : f32[4]", False),
    ],
)
def test_each_use_of_a_constant_gets_a_copy(operation: str, is_copied: bool) -> None:
    type = operation.partition(" : ")[2].replace("@x", "")
    found = lines(f"""\
  %k = constant(value=1.0) : f32[4]
  %c = {operation}
  %y = optimization_barrier(%c) : {type}
  %z = optimization_barrier(%c) : {type}""")
    assert "%y = optimization_barrier(%c)" in found
    assert ("%z = optimization_barrier(%c.1)" in found) == is_copied


def test_scalars_are_shared_by_the_copies_of_their_users() -> None:
    found = lines("""\
  %k = constant(value=2.0) : f32[]
  %c = broadcast(%k, dims=[]) : f32[4]
  %u = neg(%k) : f32[]
  %y = add(%c, %a) : f32[4]
  %z = clamp(%u, %c, %k) : f32[4]""")
    assert found[-8:-2] == [
        "%k = constant(value=2.0)",
        "%c = broadcast(%k, dims=[])",
        "%c.1 = broadcast(%k, dims=[])",
        "%u = neg(%k)",
        "%y = add(%c, %a)",
        "%z = clamp(%u, %c.1, %k)",
    ]


@pytest.mark.parametrize(
    "user",
    [
        "%u = reshape(%k) : f32[]\n  %q = optimization_barrier(%u) : f32[]",
        "%u = neg(%k) : f32[1]",
        'opaque(%k, operation="x.y", head="x.y %", attributes="", types="")',
    ],
)
def test_scalars_unused_constants_and_operations_without_results_are_uses(user: str) -> None:
    found = lines(f"""\
  %k = constant(value=2.0) : f32[1]
  {user}
  %y = broadcast(%a, dims=[0]) : f32[4, 1]
  %z = reshape(%k) : f32[1, 1]
  %v = optimization_barrier(%z) : f32[1, 1]""")
    assert user.partition(" : ")[0] in found
    assert "%z = reshape(%k.1)" in found
