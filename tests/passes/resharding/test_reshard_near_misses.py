"""The passes from `reshard` to `partition` keep the results of programs that resemble those that
they change."""

import pytest

from shardir.frontend.stories.pipeline_check import result_difference
from shardir.passes import Partition, ShareReshards
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.text.parser import parse
from tests.passes.resharding.test_shared_reshards import DIAGONAL, LOOP, PADDED, SCALARS, SUMS
from tests.passes.resharding.test_sink_reductions import TWO
from tests.programs.near_misses import disagreements

MESH = "mesh @m = [x=4, y=2]\n\n"
AFTER_PROPAGATE = DEFAULT_PIPELINE.partition(",")[2]
PARTITION_SHARED = "share-reshards,partition"
DOTS = """\
func @f(
  %a: f32[8@x, 4@y],
  %b: f32[4@x, 8@-],
) -> (f32[8@-, 8@y]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[8@x, 8@-]
  %d = exp(%c) : f32[8@y, 8@x]
  %e = add(%c, %d) : f32[8@-, 8@x]
  return %e
}
"""
SHAPES = """\
func @f(
  %a: f32[8@x, 4@-],
) -> (f32[8@-]) {
  %b = sum(%a, dims=[1]) : f32[8@y]
  %c = reshape(%a) : f32[32@(x, y)]
  %s = slice(%c, starts=[3], strides=[2]) : f32[8@x]
  %d = concatenate(%b, %s, dim=0) : f32[16@y]
  %m = max(%d, dims=[0]) : f32[]
  %n = broadcast(%m, dims=[]) : f32[8@x]
  %o = mul(%b, %n) : f32[8@x]
  return %o
}
"""
CONFLICTS = """\
func @f(
  %a: f32[8@x, 4@-],
  %b: f32[8@y, 4@-],
) -> (f32[8, 4]) {
  %c = add(%a, %b) : f32[8, 4]
  %d = dot(%c, %b, dims="ik,jk->ij") : f32[8, 8]
  %e = sum(%d, dims=[0]) : f32[8]
  %r = reshape(%c) : f32[4, 8]
  %g = broadcast(%e, dims=[1]) : f32[4, 8]
  %h = mul(%g, %r) : f32[4, 8]
  %i = reshape(%h) : f32[8, 4]
  return %i
}
"""
TRANSPOSED = """\
  %d = reshard(%d.partial) : f32[8@-, 8@x]
  %t = transpose(%d, perm=[1, 0]) : f32[8@x, 8@-]
  %e = add(%c, %t) : f32[8@x, 8@-]
  return %e
}
"""
COLUMN_SUMS = (
    TWO.replace("-> (f32[8@-, 8@-])", "-> (f32[8@-])")
    + """\
  %s = add(%c, %d) : f32[8@-, 8@-]
  %r = sum(%s, dims=[0]) : f32[8@-]
  return %r
}
"""
)
PROGRAMS = {
    "dots": (DOTS, AFTER_PROPAGATE),
    "shapes": (SHAPES, AFTER_PROPAGATE),
    "conflicts": (CONFLICTS, DEFAULT_PIPELINE),
    "transposed sums": (
        SUMS + TRANSPOSED, "sink-reductions,sink-reshards,share-reshards,partition"
    ),
    "column sums": (COLUMN_SUMS, "sink-reductions,partition"),
    "computed again": (SCALARS + PADDED.replace("FIRST", "z"), PARTITION_SHARED),
    "diagonal": (DIAGONAL + "  return %d\n}\n", PARTITION_SHARED),
    "loop": (LOOP, PARTITION_SHARED),
}  # fmt: skip


@pytest.mark.parametrize(("text", "pipeline"), PROGRAMS.values(), ids=PROGRAMS)
def test_programs_that_resemble_changed_ones_keep_their_results(text: str, pipeline: str) -> None:
    found = disagreements(parse(MESH + text), pipeline)
    assert not found, found[0]


@pytest.mark.parametrize(
    ("start", "length", "is_diagonal"),
    [
        (0, 4, True),
        (2, 2, True),  # Of the first row.
        (2, 3, False),  # The third element is in column 0.
        (4, 4, True),  # Of the first column.
        (5, 3, True),  # Of row 1 and column 1.
        (7, 1, True),
        (7, 2, False),
        (13, 3, True),
        (17, 3, True),
        (16, 3, True),
        (10, 3, False),
    ],
)
def test_only_slices_that_stay_in_one_diagonal_become_masked_sums(
    start: int, length: int, is_diagonal: bool
) -> None:
    module = parse(f"""\
{MESH}\
func @f(
  %w: f32[8@-, 4@x],
) -> (f32[{length}@-]) {{
  %w.unsharded = reshard(%w) : f32[8@-, 4@-]
  %l = reshape(%w.unsharded) : f32[32@-]
  %d = slice(%l, starts=[{start}], strides=[5]) : f32[{length}@-]
  return %d
}}
""")
    shared = ShareReshards()(module)
    assert ("select" in str(shared)) == is_diagonal
    found = result_difference(module, Partition()(shared))
    assert not found, found
