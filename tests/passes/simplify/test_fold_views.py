"""`fold-views`: simplified reshapes, transposes and broadcasts."""

import pytest
from hypothesis import assume, given, settings

from shardir import parse
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.passes import Pipeline
from shardir.verify.verifier import verify
from tests.passes.merge_verification import compare_merged
from tests.passes.random_cases import Case, cases
from tests.programs.near_misses import disagreements

FOLDING = "merge-devices,fold-reductions,fold-views,cse,dce"

EXAMPLES = {
    "what is split and joined again was never apart": (
        """\
  %x: f32[64, 8],
) -> (f32[64, 8]) {
  %0 = reshape(%x) : f32[4, 16, 8]
  %1 = transpose(%0, perm=[1, 0, 2]) : f32[16, 4, 8]
  %2 = exp(%1) : f32[16, 4, 8]
  %3 = transpose(%2, perm=[1, 0, 2]) : f32[4, 16, 8]
  %4 = reshape(%3) : f32[64, 8]
  return %4
""",
        """\
  %x: f32[64, 8],
) -> (f32[64, 8]) {
  %2 = exp(%x) : f32[64, 8]
  return %2
""",
    ),
    "loops that lie one behind the other are one": (
        """\
  %x: f32[64, 784],
  %w: f32[784, 256],
) -> (f32[64, 256]) {
  %0 = reshape(%x) : f32[4, 16, 784]
  %1 = reshape(%w) : f32[784, 2, 128]
  %2 = transpose(%1, perm=[1, 0, 2]) : f32[2, 784, 128]
  %3 = dot(%0, %2, dims="abi,mih->ambh") : f32[4, 2, 16, 128]
  %4 = transpose(%3, perm=[0, 2, 1, 3]) : f32[4, 16, 2, 128]
  %5 = reshape(%4) : f32[64, 256]
  return %5
""",
        """\
  %x: f32[64, 784],
  %w: f32[784, 256],
) -> (f32[64, 256]) {
  %3 = dot(%x, %w, dims="bi,ih->bh") : f32[64, 256]
  return %3
""",
    ),
    "an operand that repeats has one loop less": (
        """\
  %x: f32[4, 16, 8],
  %w: f32[8, 5],
) -> (f32[4, 16, 5]) {
  %0 = broadcast(%w, dims=[1, 2]) : f32[4, 8, 5]
  %1 = dot(%x, %0, dims="abi,aih->abh") : f32[4, 16, 5]
  return %1
""",
        """\
  %x: f32[4, 16, 8],
  %w: f32[8, 5],
) -> (f32[4, 16, 5]) {
  %1 = dot(%x, %w, dims="abi,ih->abh") : f32[4, 16, 5]
  return %1
""",
    ),
    "what repeats is computed once": (
        """\
  %x: f32[8],
) -> (f32[4, 8]) {
  %0 = broadcast(%x, dims=[1]) : f32[4, 8]
  %1 = constant(value=2.0) : f32[4, 8]
  %2 = mul(%0, %1) : f32[4, 8]
  %3 = tanh(%2) : f32[4, 8]
  return %3
""",
        """\
  %x: f32[8],
) -> (f32[4, 8]) {
  %4 = constant(value=2.0) : f32[8]
  %2 = mul(%x, %4) : f32[8]
  %3 = tanh(%2) : f32[8]
  %5 = broadcast(%3, dims=[1]) : f32[4, 8]
  return %5
""",
    ),
    "rows are cut where they are": (
        """\
  %x: f32[8, 12],
) -> (f32[4, 8, 1]) {
  %0 = reshape(%x) : f32[8, 4, 3]
  %1 = transpose(%0, perm=[1, 0, 2]) : f32[4, 8, 3]
  %2 = slice(%1, starts=[0, 0, 2], strides=[1, 1, 1]) : f32[4, 8, 1]
  return %2
""",
        """\
  %x: f32[8, 12],
) -> (f32[4, 8, 1]) {
  %3 = reshape(%x) : f32[8, 4, 3]
  %2 = slice(%3, starts=[0, 0, 2], strides=[1, 1, 1]) : f32[8, 4, 1]
  %4 = reshape(%2) : f32[8, 4]
  %5 = transpose(%4, perm=[1, 0]) : f32[4, 8]
  %6 = reshape(%5) : f32[4, 8, 1]
  return %6
""",
    ),
    "a window moves along its own dimension": (
        """\
  %cache: f32[8, 12],
  %new: f32[1, 12],
  %at: i32[],
) -> (f32[8, 12]) {
  %o = constant(value=0) : i32[]
  %0 = reshape(%cache) : f32[8, 4, 3]
  %1 = transpose(%0, perm=[1, 0, 2]) : f32[4, 8, 3]
  %2 = reshape(%new) : f32[1, 4, 3]
  %3 = transpose(%2, perm=[1, 0, 2]) : f32[4, 1, 3]
  %4 = dynamic_update_slice(%1, %3, %o, %at, %o) : f32[4, 8, 3]
  %5 = transpose(%4, perm=[1, 0, 2]) : f32[8, 4, 3]
  %6 = reshape(%5) : f32[8, 12]
  return %6
""",
        """\
  %cache: f32[8, 12],
  %new: f32[1, 12],
  %at: i32[],
) -> (f32[8, 12]) {
  %7 = constant(value=0) : i32[]
  %4 = dynamic_update_slice(%cache, %new, %at, %7) : f32[8, 12]
  return %4
""",
    ),
    "equals are not added up one by one": (
        """\
  %x: f32[8, 3],
) -> (f32[8], f32[8]) {
  %0 = broadcast(%x, dims=[1, 2]) : f32[4, 8, 3]
  %1 = sum(%0, dims=[0, 2]) : f32[8]
  %2 = max(%0, dims=[0, 2]) : f32[8]
  return %1, %2
""",
        """\
  %x: f32[8, 3],
) -> (f32[8], f32[8]) {
  %3 = sum(%x, dims=[1]) : f32[8]
  %4 = constant(value=4) : f32[8]
  %1 = mul(%3, %4) : f32[8]
  %2 = max(%x, dims=[1]) : f32[8]
  return %1, %2
""",
    ),
    "looking up rows leaves their columns together": (
        """\
  %table: f32[32, 8],
  %rows: i32[6, 1],
) -> (f32[6, 8]) {
  %0 = reshape(%table) : f32[32, 2, 4]
  %1 = transpose(%0, perm=[1, 0, 2]) : f32[2, 32, 4]
  %2 = gather(%1, %rows, offset_dims=[0, 2], collapsed_dims=[1], start_index_map=[1]) : f32[2, 6, 4]
  %3 = exp(%2) : f32[2, 6, 4]
  %4 = transpose(%3, perm=[1, 0, 2]) : f32[6, 2, 4]
  %5 = reshape(%4) : f32[6, 8]
  return %5
""",
        """\
  %table: f32[32, 8],
  %rows: i32[6, 1],
) -> (f32[6, 8]) {
  %2 = gather(%table, %rows, offset_dims=[1], collapsed_dims=[0], start_index_map=[0]) : f32[6, 8]
  %3 = exp(%2) : f32[6, 8]
  return %3
""",
    ),
    "what a loop carries keeps its layout": (
        """\
  %x: f32[6, 8],
) -> (f32[6, 8]) {
  %0 = reshape(%x) : f32[6, 2, 4]
  %1 = transpose(%0, perm=[1, 0, 2]) : f32[2, 6, 4]
  %2 = scan(%1, carries=1, length=3) : f32[2, 6, 4] {
    (%c: f32[2, 6, 4]) =>
    %3 = exp(%c) : f32[2, 6, 4]
    yield %3
  }
  %4 = transpose(%2, perm=[1, 0, 2]) : f32[6, 2, 4]
  %5 = reshape(%4) : f32[6, 8]
  return %5
""",
        """\
  %x: f32[6, 8],
) -> (f32[6, 8]) {
  %2 = scan(%x, carries=1, length=3) : f32[6, 8] {
    (%c: f32[6, 8]) =>
    %3 = exp(%c) : f32[6, 8]
    yield %3
  }
  return %2
""",
    ),
    "operands that are laid out in two ways meet in the way of most": (
        """\
  %x: f32[8, 4],
  %y: f32[8, 4],
  %z: f32[4, 8],
) -> (f32[8, 4]) {
  %0 = transpose(%x, perm=[1, 0]) : f32[4, 8]
  %1 = transpose(%y, perm=[1, 0]) : f32[4, 8]
  %2 = clamp(%0, %z, %1) : f32[4, 8]
  %3 = transpose(%2, perm=[1, 0]) : f32[8, 4]
  return %3
""",
        """\
  %x: f32[8, 4],
  %y: f32[8, 4],
  %z: f32[4, 8],
) -> (f32[8, 4]) {
  %4 = transpose(%z, perm=[1, 0]) : f32[8, 4]
  %2 = clamp(%x, %4, %y) : f32[8, 4]
  return %2
""",
    ),
}


@pytest.mark.parametrize(("before", "after"), EXAMPLES.values(), ids=EXAMPLES)
def test_before_and_after(before: str, after: str) -> None:
    module = parse(f"func @main(\n{before}}}\n")
    made = Pipeline.parse("fold-views,cse,dce")(module)
    verify(made)
    assert str(made) == f"func @main(\n{after}}}\n"
    arguments = random_arguments(module, whole=True)
    assert are_close(run(module, arguments), run(made, arguments), tolerance_of(module))


@pytest.mark.parametrize(("before", "_"), EXAMPLES.values(), ids=EXAMPLES)
def test_programs_that_resemble_examples_keep_their_results(before: str, _: str) -> None:
    found = disagreements(parse(f"func @main(\n{before}}}\n"), "fold-views,cse,dce")
    assert not found, found[0]


@settings(max_examples=settings().max_examples // 5)
@given(cases())
def test_random_programs_of_many_devices(case: Case) -> None:
    assume(compare_merged(case, FOLDING))


def test_slices_of_nested_scans_are_computed_in_place() -> None:
    # The reshape is inside of the outer loop, and its operand is defined outside.
    module = parse(
        """\
func @main(
  %x: f32[40, 5],
  %y: f32[5, 5],
) -> (f32[5, 5, 8]) {
  %3 = scan(%y, carries=0, length=5, reverse=false) : f32[5, 5, 8] {
    (%x.1: f32[5]) =>
    %0 = reshape(%x) : f32[8, 5, 5]
    %1 = transpose(%0, perm=[1, 0, 2]) : f32[5, 8, 5]
    %2 = scan(%1, carries=0, length=5, reverse=false) : f32[5, 8] {
      (%x.2: f32[8, 5]) =>
      %4 = dot(%x.2, %x.1, dims="ai,i->a") : f32[8]
      yield %4
    }
    yield %2
  }
  return %3
}
"""
    )
    folded = Pipeline.parse("fold-views")(module)
    verify(folded)
    arguments = random_arguments(module)
    assert are_close(run(module, arguments), run(folded, arguments), tolerance_of(module))
