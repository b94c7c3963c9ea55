"""`inline`: regions are replaced by their operations, and checkpoint names by their operands."""

from shardir.passes import Pipeline
from shardir.text.parser import parse
from shardir.verify.verifier import verify


def inlined(text: str) -> str:
    module = Pipeline.parse("inline")(parse(text))
    verify(module)
    return str(module)


def test_a_function_without_regions_is_returned_as_it_is() -> None:
    module = parse("func @f(%x: f32[4]) -> (f32[4]) {\n  %y = exp(%x) : f32[4]\n  return %y\n}\n")
    assert Pipeline.parse("inline")(module).main is module.main


def test_names_of_checkpoints_go() -> None:
    text = """\
func @f(
  %x: f32[4],
  %p: bool[],
) -> (f32[4]) {
  %a = exp(%x) : f32[4]
  %b = checkpoint-name(%a, label="first") : f32[4]
  %c = checkpoint-name(%b, label="second") : f32[4]
  %y = case(%p) : f32[4] {
    %d = checkpoint-name(%c, label="third") : f32[4]
    yield %d
  } {
    yield %x
  }
  return %y
}
"""
    assert (
        inlined(text)
        == """\
func @f(
  %x: f32[4],
  %p: bool[],
) -> (f32[4]) {
  %a = exp(%x) : f32[4]
  %y = case(%p) : f32[4] {
    yield %a
  } {
    yield %x
  }
  return %y
}
"""
    )


def test_regions_in_branches_are_replaced() -> None:
    text = """\
func @f(
  %x: f32[4],
  %p: bool[],
) -> (f32[4]) {
  %y = case(%p) : f32[4] {
    %b = fused(%x) : f32[4] {
      (%c: f32[4]) =>
      %d = sin(%c) : f32[4]
      yield %d
    }
    yield %b
  } {
    yield %x
  }
  return %y
}
"""
    assert "fused" not in inlined(text)
    assert "%b = sin(%x) : f32[4]" in inlined(text)
