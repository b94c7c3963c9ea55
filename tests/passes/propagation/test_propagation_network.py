"""Operations and edges that propagation visits: rules of resized operations, groups and loops."""

import pytest

import shardir
from tests.passes.propagation.propagation_result import propagate, types_by_name


@pytest.mark.parametrize(
    ("type", "operation", "propagated", "conservative"),
    [
        ("f32[8]", "neg(%a) : f32[8]", "f32[8@x]", "f32[8@x]"),
        ("f32[8]", "reverse(%a, dims=[0]) : f32[8]", "f32[8@x]", "f32[8@x]"),
        ("f32[8]", "concatenate(%a, %a, dim=0) : f32[16]", "f32[16@x]", "f32[16@-]"),
        ("f32[8, 4]", "concatenate(%a, %a, dim=1) : f32[8, 8]", "f32[8@x, 8@-]", "f32[8@x, 8@-]"),
        ("f32[8]", "slice(%a, starts=[0], strides=[1]) : f32[6]", "f32[6@x]", "f32[6@-]"),
        ("f32[8, 4, 2]", "CONVOLUTION : f32[8, 4, 2]", "f32[8@x, 4@-, 2@-]", "f32[8@x, 4@-, 2@-]"),
        ("f32[4, 8, 2]", "CONVOLUTION : f32[4, 8, 2]", "f32[4@-, 8@x, 2@-]", "f32[4@-, 8@-, 2@-]"),
    ],
)
def test_conservative_propagation_stops_at_resized_dimensions(
    type: str, operation: str, propagated: str, conservative: str
) -> None:
    operation = operation.replace(
        "CONVOLUTION",
        "convolution(%a, %w, strides=[1], padding=[[1, 1]], lhs_dilation=[1], rhs_dilation=[1], "
        'dims="b0f,0io->b0f", groups=1, batch_groups=1)',
    )
    stated = type.replace("8", "8@x", 1)
    text = f"""\
func @f(
  %a: {stated},
  %w: f32[3, 2, 2],
) -> ({operation.rpartition(" : ")[2]}) {{
  %b = {operation}
  return %b
}}
"""
    assert types_by_name(text, border="uneven")["b"] == propagated
    assert types_by_name(text, border="uneven", conservative=True)["b"] == conservative


def test_conservative_propagation_follows_stated_rules_along_resized_dimensions() -> None:
    text = """\
func @f(
  %a: f32[8@x],
) -> (f32[6]) {
  %b = slice(%a, starts=[0], strides=[1]) : f32[6]
  return %b
}
"""
    assert types_by_name(text, conservative=True)["b"] == "f32[6@-]"
    with shardir.rules({"slice": "i -> i"}):
        assert types_by_name(text, conservative=True)["b"] == "f32[6@x]"
    text = text.replace("slice(%a, starts=[0], strides=[1])", "concatenate(%a, %a, dim=0)")
    text = text.replace("f32[6]", "f32[16]")
    assert types_by_name(text, conservative=True)["b"] == "f32[16@-]"
    with shardir.rules({"concatenate": "i, j -> i"}):
        assert types_by_name(text, conservative=True)["b"] == "f32[16@x]"


def test_conservative_propagation_passes_parts_of_axes_along_edges() -> None:
    types = types_by_name(
        """\
func @f(
  %a: f32[8@z:(1)2],
) -> (f32[8], f32[8]) {
  %b = optimization_barrier(%a) : f32[8]
  %c = neg(%a) : f32[8]
  return %b, %c
}
""",
        conservative=True,
    )
    assert (types["b"], types["c"]) == ("f32[8@z:(1)2]", "f32[8@-]")


def test_a_group_operation_is_no_operation_without_a_rule() -> None:
    module = propagate("""\
func @f(
  %a: f32[8@x],
  %b: f32[8],
) -> (f32[8]) {
  sharding_group(%a, group=0)
  sharding_group(%b, group=0)
  %c = opaque(%b, operation="x.y", head="x.y %", attributes="", types="") : f32[8]
  return %c
}
""")
    assert [bool(op.why) for op in module.main.body.ops] == [False, False, True]


def test_the_reason_of_an_operation_is_kept() -> None:
    """It already states why it is in the program."""
    module = propagate("""\
func @f(
  %a: f32[8@x],
) -> (f32[8]) {
  %b = opaque(%a, operation="x.y", head="x.y %", attributes="", types="") : f32[8] why("for a test")
  return %b
}
""")
    assert [op.why for op in module.main.body.ops] == ["for a test"]
