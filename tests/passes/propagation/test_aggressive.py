"""Aggressive propagation: which tensors take which axes if factors conflict."""

import pytest

import shardir
from tests.passes.propagation.propagation_result import types_by_name, types_of_operation

ADD = """\
func @f(
  %a: f32[16@x],
  %b: f32[16],
) -> (f32[16]) {
  %c = add(%a, %b) : f32[16@-]
  return %c
}
"""


def test_an_operand_of_an_elementwise_operation_takes_no_axes_that_the_result_refuses() -> None:
    assert types_by_name(ADD)["b"] == "f32[16@-]"
    rule = "([i], [i]) -> ([i]) {i=16}"
    assert types_of_operation(rule, ["f32[16@x]", "f32[16]"], "f32[16@-]")[1] == "f32[16@x]"


def test_an_operand_takes_axes_along_a_factor_that_the_result_lacks() -> None:
    """A stated rule can give an elementwise operation such a factor."""
    with shardir.rules({"add": "i, i -> j"}):
        assert types_by_name(ADD)["b"] == "f32[16@x]"


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        # Rows of the result take x from a larger tensor than columns: from the largest one that is
        # sharded over x, not from the first, the last or the largest of all.
        (["f32[8, 8]", "f32[8@x, 8]", "f32[8@x]", "f32[8@x, 4]"], "f32[8@x, 8@-]"),
        (["f32[8, 8]", "f32[8@x]", "f32[8@x, 8]", "f32[8@x, 4]"], "f32[8@x, 8@-]"),
        (["f32[8, 8]", "f32[8@-, 8]", "f32[8@x]", "f32[8@x, 4]"], "f32[8@-, 8@x]"),
        (["f32[8, 8]", "f32[8, 8]", "f32[8@x]", "f32[8@x, 4]"], "f32[8@-, 8@x]"),
    ],
)
def test_the_factor_of_the_largest_tensor_with_the_axis_takes_it(
    operands: list[str], expected: str
) -> None:
    shapes = {"f32[8, 8]": "[i, j]", "f32[8@x]": "[i]", "f32[8@x, 4]": "[j, l]"}
    names = ", ".join(shapes.get(each, "[i, k]") for each in operands[1:])
    rule = f"([i, j], {names}) -> ([i, j]) {{i=8, j=8, k=8, l=4}}"
    if "k" not in names:
        rule = rule.replace(", k=8", "")
    assert types_of_operation(rule, operands, "f32[8, 8]", level="aggressive")[-1] == expected


@pytest.mark.parametrize("level", ["basic", "aggressive"])
@pytest.mark.parametrize(
    ("operand", "columns", "conservative", "propagated"),
    [
        ("f32[16@x?]", "16@y?", "x", "x"),
        ("f32[16@z?]", "16@y?", "z", "z"),
        # The columns of the result have a part of z, so that its rows can take only the other one.
        ("f32[16@z?]", "16@z:(2)2?", "", "z:(1)2"),
        ("f32[16@z:(1)2?]", "16@y?", "", "z:(1)2"),
        ("f32[16@(x, z:(1)2)?]", "16@y?", "x", "(x, z:(1)2)"),
    ],
)
def test_conservative_propagation_takes_complete_axes(
    operand: str, columns: str, conservative: str, propagated: str, level: str
) -> None:
    rule, result = "([i]) -> ([i, j]) {i=16, j=16}", f"f32[16, {columns}]"
    for is_conservative, axes in ((True, conservative), (False, propagated)):
        _, after = types_of_operation(
            rule, [operand], result, level=level, keep_open=True, conservative=is_conservative
        )
        assert after == (f"f32[16@{axes}?, {columns}]" if axes else result)
