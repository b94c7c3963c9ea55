"""`ProgramDiff`: the difference of the programs before and after passes."""

import re

import pytest

from shardir.errors import PipelineError
from shardir.passes import Pipeline
from shardir.passes.pipeline import combine_observers
from shardir.passes.program_diff import ProgramDiff
from shardir.text.parser import parse

TEXT = """\
mesh @m = [x=2]

func @f(
  %a: f32[4@x],
) -> (f32[]) {
  %b = neg(%a) : f32[4]
  %c = neg(%a) : f32[4]
  %d = add(%b, %c) : f32[4]
  %s = sum(%d, dims=[0]) : f32[]
  return %s
}
"""
PIPELINE = "cse,propagate{level=basic},reshard,partition,cse,dce"


def difference(selection: str, pipeline: str = PIPELINE) -> str:
    module, passes = parse(TEXT), Pipeline.parse(pipeline)
    diff = ProgramDiff(selection, passes, module)
    passes(module, combine_observers(diff))
    return diff.text()


def test_one_pass_is_compared_with_the_pass_before_it() -> None:
    assert (
        difference("reshard")
        == """\
--- after propagate{level=basic}
+++ after reshard
@@ -5,6 +5,7 @@
 ) -> (f32[]) {
   %b = neg(%a) : f32[4@x]
   %d = add(%b, %b) : f32[4@x]
-  %s = sum(%d, dims=[0]) : f32[]
+  %s.partial = sum(%d, dims=[0]) : f32[] unreduced(x)
+  %s = reshard(%s.partial) : f32[]
   return %s
 }
"""
    )


def test_each_run_of_a_pass_is_compared() -> None:
    assert (
        difference("cse")
        == """\
--- traced
+++ after cse
@@ -4,8 +4,7 @@
   %a: f32[4@x],
 ) -> (f32[]) {
   %b = neg(%a) : f32[4]
-  %c = neg(%a) : f32[4]
-  %d = add(%b, %c) : f32[4]
+  %d = add(%b, %b) : f32[4]
   %s = sum(%d, dims=[0]) : f32[]
   return %s
 }
no difference between 'after partition' and 'after cse'
"""
    )


@pytest.mark.parametrize(
    ("selection", "titles"),
    [
        ("propagate..partition", ("after propagate{level=basic}", "after partition")),
        ("traced .. reshard", ("traced", "after reshard")),
        ("traced..cse", ("traced", "after cse")),
    ],
)
def test_a_range_compares_the_programs_after_two_passes(
    selection: str, titles: tuple[str, str]
) -> None:
    before, after, *lines = difference(selection).splitlines()
    assert (before, after) == (f"--- {titles[0]}", f"+++ {titles[1]}")
    last = titles[1].removeprefix("after ")
    final = Pipeline.parse(PIPELINE).through(last)(parse(TEXT))
    shown = [line[1:] for line in lines if re.match(r"[ +]", line)]
    assert shown
    assert set(shown) <= set(str(final).splitlines())


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (
            "partition..propagate",
            "the pipeline 'propagate,partition' does not run 'propagate' after 'partition'; write "
            "the earlier pass first",
        ),
        (
            "traced..traced",
            "'traced..traced' names the same program twice; name two programs, such as "
            "traced..partition, or one pass to compare the programs before and after it",
        ),
        (
            "reshard",
            "the pipeline 'propagate,partition' has no pass called 'reshard'; it has propagate, "
            "partition",
        ),
        (
            "propagate..",
            "'propagate..' does not name the programs to compare; name a pass, such as reshard, or "
            "two programs, such as traced..partition",
        ),
        (
            "",
            "'' does not name the programs to compare; name a pass, such as reshard, or two "
            "programs, such as traced..partition",
        ),
        (
            "traced..partition..cse",
            "the pipeline 'propagate,partition' has no pass called 'partition..cse'; it has "
            "propagate, partition",
        ),
    ],
)
def test_a_selection_without_programs_is_an_error(selection: str, message: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(message)):
        ProgramDiff(selection, Pipeline.parse("propagate,partition"), parse(TEXT))


def test_former_names_of_passes_select_programs() -> None:
    with pytest.warns(DeprecationWarning, match="'delay-sums' is now called 'sink-reductions'"):
        text = difference("delay-sums", "propagate,reshard,sink-reductions")
    assert text == "no difference between 'after reshard' and 'after sink-reductions'\n"
