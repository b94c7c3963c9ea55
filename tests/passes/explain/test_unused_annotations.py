"""Partial replay finds unused annotations; a complete propagation confirms the result."""

import pytest

from shardir.passes.explain.explained_pipeline import ExplainedPipeline
from shardir.passes.explain.propagated_program import propagate_with_history
from shardir.passes.explain.propagation_history.history import stated_annotations
from shardir.passes.explain.unused_annotations import (
    is_unused,
    trial_without_annotations,
    unused_annotations,
)
from shardir.passes.propagation.propagate import Propagate
from shardir.text.parser import parse
from tests.shardy.random_programs.program_builder import Options
from tests.shardy.random_programs.programs import program

LEVELS = ("basic", "aggressive", "op-priority", "user-priority")
PLAIN = Options(size=14, priorities=False, groups=False, manual=False)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(40))
def test_replay_finds_the_same_unused_annotations_as_propagation(seed: int) -> None:
    propagate = Propagate(level=LEVELS[seed % 4])
    propagated = propagate_with_history(
        program(f"idle {seed}", PLAIN), ExplainedPipeline((), propagate, (), ()), {}
    )
    for history in propagated.histories.values():
        trial = trial_without_annotations(propagated, propagate, history)
        assert trial is not None
        for statement in stated_annotations(history):
            unused = trial.is_idle(statement)
            if unused is not None:
                annotation = history.annotation(statement)
                assert unused is is_unused(propagated, propagate, annotation), annotation


@pytest.mark.parametrize("seed", range(20))
def test_replay_starts_from_the_propagated_shardings(seed: int) -> None:
    propagate = Propagate(level=LEVELS[seed % 4])
    propagated = propagate_with_history(
        program(f"idle {seed}", PLAIN), ExplainedPipeline((), propagate, (), ()), {}
    )
    for history in propagated.histories.values():
        trial = trial_without_annotations(propagated, propagate, history)
        assert trial is not None
        size = len(trial.state.cells)
        final = {cell if cell >= 0 else size - 1 - cell: sharding
                 for cell, sharding in history.story.final.items()}  # fmt: skip
        for cell, sharding in final.items():
            assert trial.steppers.shardings[trial.replay.now[cell]] == sharding


@pytest.mark.parametrize("seed", range(12))
def test_propagation_runs_again_where_replay_is_impossible(seed: int) -> None:
    propagate = Propagate()
    propagated = propagate_with_history(
        program(f"any {seed}", Options(size=6)), ExplainedPipeline((), propagate, (), ()), {}
    )
    expected = [
        annotation
        for history in propagated.histories.values()
        for annotation in map(history.annotation, stated_annotations(history))
        if is_unused(propagated, propagate, annotation)
    ]
    assert list(unused_annotations(propagated)) == expected


def test_annotation_of_a_copied_constant_is_used() -> None:
    """Each use has its own copy of the constant, so that the annotation occurs several times."""
    module = parse("""
        mesh @m = [a=2]
        func @f(%x: f32[8], %y: f32[8]) -> (f32[8], f32[8]) {
          %c = constant(value=1.0) : f32[8@a]
          %v = add(%x, %c) : f32[8]
          %w = add(%y, %c) : f32[8]
          return %v, %w
        }""")
    propagate = Propagate()
    propagated = propagate_with_history(module, ExplainedPipeline((), propagate, (), ()), {})
    (history,) = propagated.histories.values()
    trial = trial_without_annotations(propagated, propagate, history)
    assert trial is not None
    (statement,) = stated_annotations(history)
    assert trial.is_idle(statement) is None
    assert list(unused_annotations(propagated)) == []


PLAIN_PROGRAM = """
mesh @m = [a=2]
func @f(%x: f32[8@a], %y: f32[8]) -> (f32[8@a]) {
  %z = add(%x, %y) : f32[8@a]
  return %z
}"""


@pytest.mark.parametrize(
    ("text", "propagate"),
    [
        (PLAIN_PROGRAM.replace("[a=2]", "[a=2]\nmesh @other = [b=2]"), Propagate()),
        (PLAIN_PROGRAM, Propagate(order="fifo")),
        (PLAIN_PROGRAM, Propagate(prepare=False)),
        (
            PLAIN_PROGRAM.replace(
                "  return", "  sharding_group(%y, group=0)\n  sharding_group(%z, group=0)\n  return"
            ),
            Propagate(),
        ),
        (
            PLAIN_PROGRAM.replace(
                "  %z = ",
                "  %m = manual_computation(%y, axes=[a], in_axes=[[[a]]], out_axes=[[[a]]]) "
                ": f32[8] {\n    (%p: f32[4]) =>\n    yield %p\n  }\n  %z = ",
            ),
            Propagate(),
        ),
        (PLAIN_PROGRAM.replace("%x: f32[8@a]", "%x: f32[8@a p1]"), Propagate()),
        (PLAIN_PROGRAM.replace("-> (f32[8@a])", "-> (f32[8@a p1])"), Propagate()),
    ],
    ids=[
        "meshes",
        "order",
        "no preparation",
        "group",
        "manual computation",
        "priority",
        "priority of a result",
    ],
)
def test_programs_that_replay_does_not_support(text: str, propagate: Propagate) -> None:
    """Each annotation is tried by propagation then; the result is the same."""
    for program_text, is_supported in ((PLAIN_PROGRAM, True), (text, False)):
        options = Propagate() if is_supported else propagate
        propagated = propagate_with_history(
            parse(program_text), ExplainedPipeline((), options, (), ()), {}
        )
        (history,) = propagated.histories.values()
        trial = trial_without_annotations(propagated, options, history)
        assert (trial is not None) == is_supported


def test_an_annotation_inside_of_a_loop_is_tried() -> None:
    """The value shares a cell with others that have no annotation."""
    module = parse("""
        mesh @m = [a=2]
        func @f(%x: f32[8@a]) -> (f32[8]) {
          %r = scan(%x, carries=1, length=3, reverse=false) : f32[8] {
            (%c: f32[8@a]) =>
            %d = neg(%c) : f32[8]
            yield %d
          }
          return %r
        }""")
    propagated = propagate_with_history(module, ExplainedPipeline((), Propagate(), (), ()), {})
    assert [each.name for each in unused_annotations(propagated)] == ["%x", "%c"]
