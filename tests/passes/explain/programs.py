"""Example programs of the explain tests, and their explanations with source positions."""

from typing import Any

from shardir.passes.explain import explain
from shardir.text.definition_locations import find_definition_locations
from shardir.text.parser import parse

MLP = """\
mesh @grid = [data=2, model=4]

func @mlp(
  %x: f32[64@data, 128@-],
  %w1: f32[128, 256@model],
  %b1: f32[256],
  %w2: f32[256, 128@data],
) -> (f32[64, 128]) {
  %a = dot(%x, %w1, dims="bi,ih->bh") : f32[64, 256]
  %b = broadcast(%b1, dims=[1]) : f32[64, 256]
  %c = add(%a, %b) : f32[64, 256]
  %h = tanh(%c) : f32[64, 256]
  %y = dot(%h, %w2, dims="bh,ho->bo") : f32[64, 128]
  return %y
}
"""

LOOP = """\
mesh @m = [a=2, b=2]

func @loop(
  %x: f32[8@a, 4],
) -> (f32[8, 4@b]) {
  %r = scan(%x, carries=1, length=3, reverse=false) : f32[8, 4] {
    (%c: f32[8, 4]) =>
    %d = neg(%c) : f32[8, 4]
    yield %d
  }
  %k = sharding_constraint(%r) : f32[8@-, 4@-]
  return %k
}
"""

FRAGILE = """\
mesh @m = [a=2, b=2]

func @f(
  %p: f32[8],
) -> (f32[8], f32[8], f32[8]) {
  %q = neg(%p) : f32[8]
  %r = neg(%q) : f32[8@a?]
  %s = exp(%p) : f32[8@b?]
  return %q, %r, %s
}
"""

SORTED = """\
mesh @m = [a=2, b=2]

func @f(
  %x: f32[8@a, 4@-],
  %y: f32[8@a, 4@-],
) -> (f32[8, 4]) {
  %z = add(%x, %y) : f32[8, 4]
  %m = reshard(%z) : f32[8, 4]
  return %m
}
"""

CONFLICT = """
mesh @m = [x=2, y=4]
func @f(%a: f32[64@x, 8], %b: f32[64@y, 8]) -> (f32[64, 8]) {
  %c = add(%a, %b) : f32[64, 8]
  return %c
}
"""


def program(params: str, result: str, *lines: str, mesh: str = "mesh @m = [a=2, b=2]") -> str:
    """Return the text of a function @f with the lines."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"{mesh}\nfunc @f({params}) -> ({result}) {{\n{body}\n}}\n"


def explained(text: str, name: str, **options: Any) -> list[str]:
    """Return the paragraphs of the explanation of a value."""
    places = find_definition_locations(text, "f.ir")
    return str(explain(parse(text), name, places=places, **options)).split("\n\n")
