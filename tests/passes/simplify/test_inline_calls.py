"""`inline-calls`: calls are replaced by the operations of their functions."""

from shardir.passes import Pipeline
from shardir.text.parser import parse
from shardir.verify.verifier import verify


def inlined(text: str) -> str:
    module = Pipeline.parse("inline-calls")(parse(text))
    verify(module)
    return str(module)


def test_a_function_without_calls_is_returned_as_it_is() -> None:
    module = parse("func @f(%x: f32[4]) -> (f32[4]) {\n  %y = exp(%x) : f32[4]\n  return %y\n}\n")
    assert Pipeline.parse("inline-calls")(module).main is module.main


def test_calls_inside_of_calls_and_loops() -> None:
    text = """\
func @f(
  %x: f32[4],
) -> (f32[4]) {
  %z = scan(%x, carries=1, length=2) : f32[4] {
    (%c: f32[4]) =>
    %y = call(%c, callee="outer") : f32[4] {
      (%a: f32[4]) =>
      %r = call(%a, callee="inner") : f32[4] {
        (%b: f32[4]) =>
        %s = sin(%b) : f32[4]
        yield %s
      }
      yield %r
    }
    yield %y
  }
  return %z
}
"""
    assert (
        inlined(text)
        == """\
func @f(
  %x: f32[4],
) -> (f32[4]) {
  %z = scan(%x, carries=1, length=2) : f32[4] {
    (%c: f32[4]) =>
    %r = sin(%c) : f32[4]
    yield %r
  }
  return %z
}
"""
    )


def test_results_that_are_parameters_or_equal() -> None:
    """The call returns its operand, and one value twice."""
    text = """\
func @f(
  %x: f32[4],
) -> (f32[4], f32[4], f32[4]) {
  %p, %q, %r = call(%x, callee="g") : f32[4], f32[4], f32[4] {
    (%a: f32[4]) =>
    %s = sin(%a) : f32[4]
    yield %a, %s, %s
  }
  return %p, %q, %r
}
"""
    assert (
        inlined(text)
        == """\
func @f(
  %x: f32[4],
) -> (f32[4], f32[4], f32[4]) {
  %q = sin(%x) : f32[4]
  return %x, %q, %q
}
"""
    )


def test_a_value_without_a_stated_sharding_needs_no_constraint() -> None:
    text = """\
mesh @m = [a=2]

func @f(
  %x: f32[4],
) -> (f32[4]) {
  %y = call(%x, callee="g") : f32[4] {
    (%a: f32[4@a]) =>
    %s = sin(%a) : f32[4@a]
    yield %s
  }
  return %y
}
"""
    assert (
        inlined(text)
        == """\
mesh @m = [a=2]

func @f(
  %x: f32[4],
) -> (f32[4]) {
  %a = sharding_constraint(%x) : f32[4@a]
  %y = sin(%a) : f32[4@a]
  return %y
}
"""
    )
