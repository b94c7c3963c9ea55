"""Comparison of modules: equality, and the first difference."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from shardir.ir.equality import are_attrs_equal, are_equal, find_difference
from shardir.ir.module import Module
from shardir.ir.operation import Dense, Symbol
from shardir.text.parser import parse
from shardir.text.printer import print_module
from tests.programs.strategies import any_modules

PROGRAM = """\
mesh @m = [x=2]

func @f(
  %a: f32[8@x],
  %b: f32[8],
) -> (f32[8]) {
  %c = transpose(%a, perm=[0]) : f32[8]
  %d = scan(%c, carries=1, length=2) : f32[8] {
    (%e: f32[8]) =>
    %g = add(%e, %b) : f32[8]
    yield %g
  }
  return %d
}
"""


@given(any_modules())
def test_a_module_equals_its_copy(module: Module) -> None:
    copy = parse(print_module(module, locations=True))

    assert are_equal(module, module)
    assert are_equal(module, copy, locations=True)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[x=2]", "[x=4]", "a mesh differs\n  mesh @m = [x=2]\n  mesh @m = [x=4]"),
        ("@f", "@g", "a function differs\n  @f\n  @g"),
        ("%a: f32[8@x]", "%a: f32[8]", "@f: a parameter differs\n  %a: f32[8@x]\n  %a: f32[8]"),
        (
            "%e, %b",
            "%e, %c",
            "@f: the operands differ\n  %g = add(%e, %b) : f32[8]\n  %g = add(%e, %c) : f32[8]",
        ),
        (
            "add(",
            "sub(",
            "@f: the operation differs\n  %g = add(%e, %b) : f32[8]\n  %g = sub(%e, %b) : f32[8]",
        ),
        (
            "length=2",
            "length=3",
            "@f: the attributes differ\n"
            "  %d = scan(%c, carries=1, length=2) : f32[8]\n"
            "  %d = scan(%c, carries=1, length=3) : f32[8]",
        ),
        (
            ", perm=[0]) : f32[8]",
            ", perm=[0]) : f32[8@x]",
            "@f: a result differs\n"
            "  %c = transpose(%a, perm=[0]) : f32[8]\n"
            "  %c = transpose(%a, perm=[0]) : f32[8@x]",
        ),
        ("yield %g", "yield %e", "@f: the returned values differ\n  %g\n  %e"),
        (
            "(f32[8])",
            "(f32[8@x])",
            "@f: the signature differs\n"
            "  func @f( %a: f32[8@x], %b: f32[8], ) -> (f32[8]) {\n"
            "  func @f( %a: f32[8@x], %b: f32[8], ) -> (f32[8@x]) {",
        ),
        (
            "  return",
            "  %h = neg(%d) : f32[8]\n  return",
            "@f: only the second has\n  %h = neg(%d) : f32[8]",
        ),
        (
            "  %b: f32[8],\n",
            "  %b: f32[8],\n  %h: f32[],\n",
            "the number of parameters of @f differs\n  2\n  3",
        ),
    ],
)
def test_the_first_difference_is_reported(old: str, new: str, expected: str) -> None:
    module, other = parse(PROGRAM), parse(PROGRAM.replace(old, new, 1))

    assert find_difference(module, other) == expected
    assert not are_equal(module, other)


def test_names_are_compared_unless_ignored() -> None:
    module, other = parse(PROGRAM), parse(PROGRAM.replace("%c", "%z"))

    assert find_difference(module, other) == (
        "@f: a result differs\n"
        "  %c = transpose(%a, perm=[0]) : f32[8]\n"
        "  %z = transpose(%a, perm=[0]) : f32[8]"
    )
    assert are_equal(module, other, names=False)


def test_locations_are_compared_on_request() -> None:
    at = PROGRAM.replace("length=2) : f32[8]", 'length=2) : f32[8] loc("a.py":1:2)')
    module, other = parse(PROGRAM), parse(at)

    assert are_equal(module, other)
    assert find_difference(module, other, locations=True) == (
        "@f: the origin differs\n"
        "  %d = scan(%c, carries=1, length=2) : f32[8]\n"
        '  %d = scan(%c, carries=1, length=2) : f32[8] loc("a.py":1:2)'
    )


def test_numbers_of_functions_are_compared() -> None:
    module = parse(PROGRAM)

    assert find_difference(module, Module(module.meshes, ())) == (
        "the number of functions differs\n  1\n  0"
    )
    assert find_difference(Module((), ()), Module(module.meshes, ())) == (
        "the number of meshes differs\n  0\n  1"
    )


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, False),
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        (complex(0, -0.0), complex(0, 0.0), False),
        ("add", Symbol("add"), False),
        ((1, (2.0,)), (1, (2.0,)), True),
        ((1, (2.0,)), (1, (2,)), False),
        ((1,), (1, 1), False),
        (Dense(np.array([np.nan])), Dense(np.array([np.nan])), True),
        (Dense(np.array([0.0])), Dense(np.array([-0.0])), False),
    ],
)
def test_attributes_are_compared_bitwise(a: Any, b: Any, same: bool) -> None:
    assert are_attrs_equal(a, b) is same
