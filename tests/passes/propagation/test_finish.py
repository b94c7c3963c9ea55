"""Shardings that are written at the boundaries of functions and of manual computations."""

import pytest

from shardir.passes.propagation.finish import without_unit_axes
from shardir.text.parser import parse
from shardir.text.printer import Printer
from tests.passes.propagation.propagation_result import types_by_name

ADD = """\
func @f(
  %a: f32[6],
  %b: f32[6@z],
  %c: f32[6@x],
) -> (f32[6], f32[6@z]) {
  %d = add(%a, %b) : f32[6]
  %e = neg(%c) : f32[6]
  return %d, %e
}
"""


@pytest.mark.parametrize(
    ("border", "expected"),
    [
        ("even", ["f32[6@-]", "f32[6@z:(1)2]", "f32[6@x]", "f32[6@-]", "f32[6@z:(1)2]"]),
        ("stated", ["f32[6@-]", "f32[6@z]", "f32[6@x]", "f32[6@-]", "f32[6@z]"]),
        ("uneven", ["f32[6@z]", "f32[6@z]", "f32[6@x]", "f32[6@z]", "f32[6@z]"]),
    ],
)
def test_parameters_and_results_keep_uneven_axes_only_if_requested(
    border: str, expected: list[str]
) -> None:
    """z has size 4; an open dimension of a parameter or result keeps no part of an axis."""
    types = types_by_name(ADD, border=border)
    assert [types[name] for name in ("a", "b", "c", "->0", "->1")] == expected
    assert types["d"] == "f32[6@z]"


def test_boundaries_of_manual_computations_keep_parts_of_axes() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8@z:(1)2],
) -> (f32[8]) {
  %b = neg(%a) : f32[8]
  %r = manual_computation(%b, axes=[x], in_axes=[[[]]], out_axes=[[[]]]) : f32[8] {
    (%p: f32[8]) =>
    %q = neg(%p) : f32[8]
    yield %q
  }
  return %r
}
""")
    assert types["p"] == types["r"] == "f32[8@z:(1)2]"
    assert types["->0"] == "f32[8@-]"


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("f32[8@(one, x)]", "f32[8@x]"),
        ("f32[8@(one, x) p1]", "f32[8@x p1]"),
        ("f32[8@one? p1]", "f32[8@? p1]"),
        ("f32[8@one p1]", "f32[8@-]"),
        ("f32[8@x] replicated(one)", "f32[8@x]"),
        ("f32[8@x] unreduced(one)", "f32[8@x]"),
        ("f32[8@x] replicated(y) unreduced(z)", "f32[8@x] replicated(y) unreduced(z)"),
    ],
)
def test_axes_of_size_1_are_removed(stated: str, expected: str) -> None:
    """A dimension that is closed and unsharded afterwards has no priority."""
    module = parse(
        f"mesh @m = [one=1, x=2, y=2, z=2]\n\nfunc @f(%a: {stated}) -> (f32[8]) {{\n"
        "  return %a\n}\n"
    )
    (param,) = module.main.body.params
    assert param.sharding is not None
    printer = Printer(module.meshes, False)
    assert printer.sharded_type(param.type, without_unit_axes(param.sharding)) == expected


def test_axes_of_size_1_are_removed_from_results() -> None:
    types = types_by_name("""\
mesh @m = [one=1, x=2]

func @f(
  %a: f32[8],
) -> (f32[8@(one, x)]) {
  %b = neg(%a) : f32[8]
  return %b
}
""")
    assert types["->0"] == types["a"] == "f32[8@x]"


def test_an_unreduced_scalar_has_a_sharding() -> None:
    text = """\
func @f(
  %a: f32[] unreduced(x),
  %b: f32[],
) -> (f32[], f32[]) {
  %c = neg(%b) : f32[] replicated(x)
  return %a, %c
}
"""
    types = types_by_name(text)
    assert (types["a"], types["c"]) == ("f32[] unreduced(x)", "f32[]")


def test_unreached_dimensions_can_be_left_open() -> None:
    types = types_by_name(
        "func @f(\n  %a: f32[8],\n  %b: f32[8@x],\n) -> (f32[8], f32[8]) {\n  return %a, %b\n}\n",
        leave_open=True,
    )
    assert (types["a"], types["->0"], types["b"]) == (
        "f32[8] on @m",
        "f32[8] on @m",
        "f32[8@x]",
    )
