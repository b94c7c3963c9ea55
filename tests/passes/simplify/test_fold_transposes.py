"""`fold-transposes`: contractions produce results in the order that their users read."""

from shardir import parse
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.passes import Pipeline
from shardir.verify.verifier import verify
from tests.programs.near_misses import disagreements

BEFORE = """\
func @main(
  %x: f32[2, 3, 4],
  %y: f32[2, 4, 5],
) -> (f32[5, 2, 3], f32[5, 2, 3], f32[2, 3, 5]) {
  %0 = dot(%x, %y, dims="abi,aih->abh") : f32[2, 3, 5]
  %1 = transpose(%0, perm=[2, 0, 1]) : f32[5, 2, 3]
  %2 = exp(%1) : f32[5, 2, 3]
  %3 = dot(%x, %y, dims="abi,aih->abh") : f32[2, 3, 5]
  %4 = transpose(%3, perm=[2, 0, 1]) : f32[5, 2, 3]
  return %2, %4, %3
}
"""
AFTER = """\
func @main(
  %x: f32[2, 3, 4],
  %y: f32[2, 4, 5],
) -> (f32[5, 2, 3], f32[5, 2, 3], f32[2, 3, 5]) {
  %1 = dot(%x, %y, dims="abi,aih->hab") : f32[5, 2, 3]
  %2 = exp(%1) : f32[5, 2, 3]
  %3 = dot(%x, %y, dims="abi,aih->abh") : f32[2, 3, 5]
  %4 = transpose(%3, perm=[2, 0, 1]) : f32[5, 2, 3]
  return %2, %4, %3
}
"""


def test_before_and_after() -> None:
    module = parse(BEFORE)
    made = Pipeline.parse("fold-transposes")(module)
    verify(made)
    assert str(made) == AFTER
    arguments = random_arguments(module, whole=True)
    for want, got in zip(run(module, arguments), run(made, arguments), strict=True):
        assert (want == got).all()


def test_programs_that_resemble_transposed_contractions_keep_their_results() -> None:
    found = disagreements(parse(BEFORE), "fold-transposes")
    assert not found, found[0]


def test_other_operations_stay() -> None:
    """A transpose of another operation, and another operation on a contraction."""
    module = parse("""\
func @main(%x: f32[3, 4], %y: f32[4, 5]) -> (f32[4, 3], f32[3, 5]) {
  %0 = exp(%x) : f32[3, 4]
  %1 = transpose(%0, perm=[1, 0]) : f32[4, 3]
  %2 = dot(%x, %y, dims="mk,kn->mn") : f32[3, 5]
  %3 = exp(%2) : f32[3, 5]
  return %1, %3
}
""")
    assert str(Pipeline.parse("fold-transposes")(module)) == str(module)
