"""`annotate-partial-sorts`: marks sorts of which only a few positions are read."""

from typing import Any

import pytest

from shardir import parse
from shardir.errors import ShardirError
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.passes import Pipeline
from shardir.passes.simplify.annotate_partial_sorts import MAX_READ_POSITIONS
from shardir.verify.verifier import verify
from tests.programs.near_misses import disagreements

BEFORE = """\
func @main(
  %x: f32[9, 40],
) -> (f32[2, 40], f32[1, 30], f32[9, 40], f32[9, 20], f32[9, 40]) {
  %0 = sort(%x, dim=0, keys=1, stable=true) : f32[9, 40]
  %1 = slice(%0, starts=[2, 0], strides=[5, 1]) : f32[2, 40]
  %2 = slice(%0, starts=[4, 5], strides=[1, 1]) : f32[1, 30]
  %3 = sort(%x, dim=0, keys=1, stable=true) : f32[9, 40]
  %4 = slice(%3, starts=[2, 0], strides=[1, 1]) : f32[1, 40]
  %5 = sort(%x, dim=1, keys=1, stable=true) : f32[9, 40]
  %6 = slice(%5, starts=[0, 3], strides=[1, 1]) : f32[9, 20]
  %7, %8 = sort(%x, %x, dim=0, keys=1, stable=true) : f32[9, 40], f32[9, 40]
  %9 = slice(%7, starts=[2, 0], strides=[1, 1]) : f32[1, 40]
  return %1, %2, %3, %6, %8
}
"""
FIRST = "  %0 = sort(%x, dim=0, keys=1, stable=true"


def test_before_and_after() -> None:
    module = parse(BEFORE)
    made = Pipeline.parse("annotate-partial-sorts")(module)
    verify(made)
    # Returned sorts, sorts with many read positions, and sorts of several operands are not marked.
    assert str(made) == str(module).replace(FIRST, f"{FIRST}, positions=[2, 4, 7]")
    arguments = random_arguments(module, whole=True)
    for want, got in zip(run(module, arguments), run(made, arguments), strict=True):
        assert (want == got).all()
    assert str(Pipeline.parse("annotate-partial-sorts")(made)) == str(made)


def test_programs_that_resemble_partial_sorts_keep_their_results() -> None:
    found = disagreements(parse(BEFORE), "annotate-partial-sorts")
    assert not found, found[0]


@pytest.mark.parametrize("count", [MAX_READ_POSITIONS, MAX_READ_POSITIONS + 1])
def test_many_positions_are_not_annotated(count: int) -> None:
    text = f"""\
func @main(%x: i32[99]) -> (i32[{count}]) {{
  %0 = sort(%x, dim=0, keys=1, stable=true) : i32[99]
  %1 = slice(%0, starts=[3], strides=[2]) : i32[{count}]
  return %1
}}
"""
    (op, _) = Pipeline.parse("annotate-partial-sorts")(parse(text)).main.body.ops
    want: Any = (
        tuple(range(3, 3 + 2 * MAX_READ_POSITIONS, 2)) if count == MAX_READ_POSITIONS else None
    )
    assert op.attrs.get("positions") == want


def test_positions_are_in_bounds() -> None:
    text = "func @main(%x: i32[9]) -> (i32[9]) {\n  %0 = sort(%x, dim=0, positions=[9]) : i32[9]\n"
    with pytest.raises(
        ShardirError, match=r"positions=\[9\] has positions that dimension 0 of i32\[9\]"
    ):
        verify(parse(f"{text}  return %0\n}}\n"))


def test_an_order_of_which_positions_are_read_is_annotated() -> None:
    text = """\
func @main(%x: f32[9, 40]) -> (i32[9, 40], i32[9, 40], i32[9, 40]) {
  %0 = iota(dim=1) : i32[9, 40]
  %1, %2 = sort(%x, %0, dim=1, keys=1, stable=true) : f32[9, 40], i32[9, 40]
  %3, %4 = sort(%x, %0, dim=0, keys=1, stable=true) : f32[9, 40], i32[9, 40]
  %5, %6 = sort(%x, %0, dim=1, keys=2, stable=true) : f32[9, 40], i32[9, 40]
  return %2, %4, %6
}
"""
    module = parse(text)
    made = Pipeline.parse("annotate-partial-sorts")(module)
    verify(made)
    # Operands along another dimension, and keys, are no order.
    first = "sort(%x, %0, dim=1, keys=1, stable=true"
    assert str(made) == str(module).replace(first, f"{first}, order=1")
    arguments = random_arguments(module, whole=True)
    for want, got in zip(run(module, arguments), run(made, arguments), strict=True):
        assert (want == got).all()
    assert str(Pipeline.parse("annotate-partial-sorts")(made)) == str(made)


def test_an_order_follows_the_keys() -> None:
    text = "func @main(%x: i32[9]) -> (i32[9]) {\n  %0 = sort(%x, dim=0, order=0) : i32[9]\n"
    message = r"order=0 must name an i32 operand of positions after the keys"
    with pytest.raises(ShardirError, match=message):
        verify(parse(f"{text}  return %0\n}}\n"))


def test_a_function_without_sorts_is_returned_as_it_is() -> None:
    module = parse("func @main(%x: f32[9]) -> (f32[9]) {\n  return %x\n}\n")
    assert Pipeline.parse("annotate-partial-sorts")(module).main is module.main


@pytest.mark.parametrize(
    "body",
    [
        # A slice of another operation.
        """\
func @main(%x: f32[9]) -> (f32[1], f32[9]) {
  %0 = exp(%x) : f32[9]
  %1 = slice(%0, starts=[2], strides=[1]) : f32[1]
  %2 = sort(%x, dim=0, keys=1, stable=true) : f32[9]
  return %1, %2
}
""",
        # The second result of another operation.
        """\
func @main(%x: f32[9]) -> (i32[3], f32[9]) {
  %0, %1 = top_k(%x) : f32[3], i32[3]
  %2 = sort(%x, dim=0, keys=1, stable=true) : f32[9]
  return %1, %2
}
""",
        # The permutation and another result.
        """\
func @main(%x: f32[9]) -> (i32[9], f32[9]) {
  %0 = iota(dim=0) : i32[9]
  %1, %2, %3 = sort(%x, %0, %x, dim=0, keys=1, stable=true) : f32[9], i32[9], f32[9]
  return %2, %3
}
""",
        # No result.
        """\
func @main(%x: f32[9]) -> (f32[9]) {
  %0 = iota(dim=0) : i32[9]
  %1, %2 = sort(%x, %0, dim=0, keys=1, stable=true) : f32[9], i32[9]
  return %x
}
""",
        # Indices of a type that is not `i32`.
        """\
func @main(%x: f32[9]) -> (f32[9]) {
  %0 = iota(dim=0) : f32[9]
  %1, %2 = sort(%x, %0, dim=0, keys=1, stable=true) : f32[9], f32[9]
  return %2
}
""",
    ],
)
def test_other_operations_stay(body: str) -> None:
    module = parse(body)
    assert str(Pipeline.parse("annotate-partial-sorts")(module)) == str(module)
