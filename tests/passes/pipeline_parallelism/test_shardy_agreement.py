"""Stages, orders and transfers equal those of Shardy's MPMD partitioner."""

from collections import Counter

import pytest

from shardir.passes.pipeline import Pipeline
from shardir.passes.pipeline_parallelism.actions import Action, ActionKind
from shardir.passes.pipeline_parallelism.named_schedules import make_schedule
from shardir.passes.pipeline_parallelism.program import staged_pipelines
from shardir.passes.pipeline_parallelism.progress import RECEIVE_OF, matching_transfer
from shardir.passes.pipeline_parallelism.transfers import add_transfers
from shardir.text.parser import parse
from tests.passes.pipeline_parallelism.shardy_schedules import ACTIVATION, partition, perceptron

pytest.importorskip("jaxlib")

NAMES = {"gpipe": "GPipe", "1f1b": "1F1B", "zb-h1": "ZeroBubbleH1"}


def rows_of(name: str, ranks: int, microbatches: int) -> list[list[str]]:
    """Return the passes of a schedule of shardir, in the form of Shardy.

    Shardy splits the backward pass of a stage that sends a gradient; the first one sends none.
    """
    made = make_schedule(name, ranks=ranks, microbatches=microbatches)
    first, *rest = [[str(action) for action in row if action] for row in made.rows]
    for i in range(microbatches if name == "zb-h1" else 0):
        start = first.index(f"0I{i}")
        assert first[start + 1] == f"0W{i}"
        first[start : start + 2] = [f"0B{i}"]
    return [first, *rest]


def ordered(rows: list[list[str]], microbatches: int) -> list[list[str]]:
    """Return the passes that Shardy orders.

    It runs the weight gradient of a microbatch in stage i after the input gradient of the i-th
    following microbatch. It does not order the last ones, which have no such microbatch.
    """
    return [
        [text for text in row if "W" not in text or int(text.partition("W")[2]) < microbatches - i]
        for i, row in enumerate(rows)
    ]


# The RFC of the partitioner shows 1F1B with two stages and two microbatches.
@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 2), (2, 4), (4, 8)])
@pytest.mark.parametrize("name", NAMES)
def test_orders_and_transfers(name: str, ranks: int, microbatches: int) -> None:
    theirs = partition(perceptron(ranks, microbatches), ranks, NAMES[name])
    rows = rows_of(name, ranks, microbatches)
    assert ordered(rows, microbatches) == ordered(theirs.rows, microbatches)
    assert [sorted(row) for row in rows] == [sorted(row) for row in theirs.rows]
    ours = add_transfers(make_schedule(name, ranks=ranks, microbatches=microbatches))
    sends = [
        (action.stage, matching_transfer(action).stage, ACTIVATION)
        for row in ours.rows
        for action in row
        if isinstance(action, Action) and action.kind in RECEIVE_OF
    ]
    assert Counter(sends) == theirs.transfers


def test_operations_without_a_mark_are_in_the_stages_of_shardy() -> None:
    """The first example of the RFC: a product and a quotient outside of the two layers."""
    theirs = partition(
        """
func.func public @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %h = mpmd.named_computation<"stage0"> (%x) (%a: tensor<4xf32>) {
    %b = stablehlo.add %a, %a : tensor<4xf32>
    mpmd.return %b : tensor<4xf32>
  } : (tensor<4xf32>) -> tensor<4xf32>
  %k = mpmd.named_computation<"stage1"> (%h) (%a: tensor<4xf32>) {
    %b = stablehlo.add %a, %a : tensor<4xf32>
    mpmd.return %b : tensor<4xf32>
  } : (tensor<4xf32>) -> tensor<4xf32>
  %p = stablehlo.multiply %h, %h : tensor<4xf32>
  %q = stablehlo.divide %k, %k : tensor<4xf32>
  return %p, %q : tensor<4xf32>, tensor<4xf32>
}""",
        stages=2,
    )
    assert theirs.transfers == {(0, 1, "tensor<4xf32>"): 1}
    module = parse("""
mesh @m = [pipe=2]

func @f(%batch: f32[4]) -> (f32[], f32[1, 4]) {
  %loss, %product = pipeline(%batch, microbatches=1, schedule="gpipe", axis="pipe", batched=[0])
      : f32[], f32[1, 4] {
    (%x: f32[4]) =>
    %a = pipeline-stage(%x, stage=0) : f32[4]
    %b = add(%a, %a) : f32[4]
    %h = pipeline-stage(%b, stage=0) : f32[4]
    %c = pipeline-stage(%h, stage=1) : f32[4]
    %d = add(%c, %c) : f32[4]
    %k = pipeline-stage(%d, stage=1) : f32[4]
    %p = mul(%h, %h) : f32[4]
    %q = div(%k, %k) : f32[4]
    %e = sum(%q, dims=[0]) : f32[]
    yield %e, %p
  }
  return %loss, %product
}
""")
    (ours,) = staged_pipelines(Pipeline.parse("split-stages")(module))
    assert [len(sent) for sent in ours.forward] == [1]
    words = {"mul": "multiply", "div": "divide"}
    assert theirs.operations == [
        [
            words.get(op.name, op.name)
            for op in ours.fragments[stage, ActionKind.FORWARD].block.ops
            if op.name != "sum"
        ]
        for stage in (0, 1)
    ]
