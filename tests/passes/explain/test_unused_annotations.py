"""Annotations without effect are found by repeating what differs; propagating again agrees."""

import pytest

from shardir.passes.explain.propagated_program import propagate_with_history
from shardir.passes.explain.unused_annotations import (
    is_unused,
    stated_annotations,
    trial_without_annotations,
    unused_annotations,
)
from shardir.passes.propagation.propagate import Propagate
from shardir.text.parser import parse
from tests.shardy.random_programs.program_builder import Options
from tests.shardy.random_programs.programs import program

LEVELS = ("basic", "aggressive", "op-priority", "user-priority")
PLAIN = Options(size=14, priorities=False, groups=False, manual=False)


@pytest.mark.parametrize("seed", range(40))
def test_a_replay_decides_as_a_run_of_its_own(seed: int) -> None:
    propagate = Propagate(level=LEVELS[seed % 4])
    told = propagate_with_history(program(f"idle {seed}", PLAIN), propagate, {})
    for history in told.histories.values():
        trial = trial_without_annotations(told, propagate, history)
        assert trial is not None
        for said in stated_annotations(history):
            found = trial.is_idle(said)
            if found is not None:
                annotation = history.annotation(said)
                assert found is is_unused(told, propagate, annotation), annotation


@pytest.mark.parametrize("seed", range(20))
def test_a_replay_begins_with_the_run_itself(seed: int) -> None:
    propagate = Propagate(level=LEVELS[seed % 4])
    told = propagate_with_history(program(f"idle {seed}", PLAIN), propagate, {})
    for history in told.histories.values():
        trial = trial_without_annotations(told, propagate, history)
        assert trial is not None
        size = len(trial.state.cells)
        final = {cell if cell >= 0 else size - 1 - cell: sharding
                 for cell, sharding in history.story.final.items()}  # fmt: skip
        for cell, sharding in final.items():
            assert trial.steppers.shardings[trial.replay.now[cell]] == sharding


@pytest.mark.parametrize("seed", range(12))
def test_what_is_not_replayed_is_run_again(seed: int) -> None:
    propagate = Propagate()
    told = propagate_with_history(program(f"any {seed}", Options(size=6)), propagate, {})
    wanted = [
        annotation
        for history in told.histories.values()
        for annotation in map(history.annotation, stated_annotations(history))
        if is_unused(told, propagate, annotation)
    ]
    assert list(unused_annotations(told, propagate)) == wanted


def test_a_constant_speaks_through_its_copies() -> None:
    """Each user has a constant of its own, so that its annotation is said several times."""
    module = parse("""
        mesh @m = [a=2]
        func @f(%x: f32[8], %y: f32[8]) -> (f32[8], f32[8]) {
          %c = constant(value=1.0) : f32[8@a]
          %v = add(%x, %c) : f32[8]
          %w = add(%y, %c) : f32[8]
          return %v, %w
        }""")
    propagate = Propagate()
    told = propagate_with_history(module, propagate, {})
    (history,) = told.histories.values()
    trial = trial_without_annotations(told, propagate, history)
    assert trial is not None
    (said,) = stated_annotations(history)
    assert trial.is_idle(said) is None
    assert list(unused_annotations(told, propagate)) == []
