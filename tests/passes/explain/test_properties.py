"""In random programs every axis originates from an annotation, and every absent axis has a
reason.
"""

from itertools import pairwise

import pytest

from shardir.ir.sharding import Axes, Axis, Sharding
from shardir.ir.sub_axes import append_axis
from shardir.passes.explain.conflicts import conflicts_of
from shardir.passes.explain.explained_pipeline import ExplainedPipeline
from shardir.passes.explain.explanation import explanation
from shardir.passes.explain.propagated_program import pipeline_of, propagate_with_history
from shardir.passes.explain.propagation_history.axis_origins import origins_of
from shardir.passes.explain.propagation_history.history import FunctionHistory
from shardir.passes.explain.propagation_history.sub_axes import difference_of_axes, overlaps_any
from shardir.passes.pipeline import Pipeline
from shardir.passes.propagation.finish import sharding_axes
from shardir.passes.propagation.propagate import Propagate
from shardir.passes.propagation.record import RefusalReason
from tests.shardy.random_programs.programs import program

pytestmark = pytest.mark.sample(5)

LEVELS = ("basic", "aggressive", "user-priority")
SEEDS = range(60)


def histories(seed: int, level: str) -> list[FunctionHistory]:
    explained = propagate_with_history(
        program(seed), ExplainedPipeline((), Propagate(level=level), (), ()), {}
    )
    return list(explained.histories.values())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_axis_comes_from_an_annotation(seed: int, level: str) -> None:
    for history in histories(seed, level):
        for value, written in history.story.written.items():
            cell = history.story.cells[value]
            for dim, cut in enumerate(written.sharding.dims if written.sharding else ()):
                for axis in cut.axes:
                    found = origins_of(history).paths(cell, dim, axis)
                    assert difference_of_axes(axis, [way.axis for way in found]) == []
                    for way in found:
                        cells = [hop.step.cells[hop.source] for hop in way.hops]
                        cells += [cell]
                        assert cells[0] == way.origin.cell
                        assert overlaps_any(way.axis, list(way.origin.sharding.used_axes()))
                        assert all(
                            hop.step.cells[hop.target] == after
                            for hop, after in zip(way.hops, cells[1:], strict=True)
                        )
                        positions = [history.story.steps.index(hop.step) for hop in way.hops]
                        assert all(a < b for a, b in pairwise(positions))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_missing_axis_has_a_reason(seed: int, level: str) -> None:
    for history in histories(seed, level):
        for value, written in history.story.written.items():
            explained = explanation(history, history.explained_value(value))
            mesh = history.mesh(written.sharding)
            used = list(written.sharding.used_axes()) if written.sharding else []
            free = [
                part
                for name, size in mesh.axes
                for part in difference_of_axes(Axis(name, 1, size), used)
            ]
            names = {absence.axis for absence in explained.absences}
            assert {history.axis(part, mesh) for part in free} <= names


@pytest.mark.parametrize("seed", SEEDS)
def test_an_axis_without_a_path_is_on_no_connected_value(seed: int) -> None:
    for history in histories(seed, "user-priority"):
        for value in history.story.written:
            for absence in explanation(history, history.explained_value(value)).absences:
                if absence.reason is RefusalReason.UNCONNECTED and not absence.op:
                    cell = history.story.cells[value]
                    near = connected_axes(history, cell, value.type.rank)
                    assert not any(axis_text(history, axes) == absence.axis for axes in near)


def connected_axes(history: FunctionHistory, cell: int, rank: int) -> list[Axis]:
    """Return all axes of values that factors connect with a value."""
    seen = {(cell, dim): None for dim in range(rank)}
    waiting = list(seen)
    found: list[Axis] = []
    while waiting:
        cell, dim = waiting.pop()
        for step, tensor in history.final_visits.get(cell, ()):
            for factor in step.rule.tensors[tensor][dim]:
                for other, mapping in enumerate(step.rule.tensors):
                    place = next((d for d, fs in enumerate(mapping) if factor in fs), None)
                    sharding = step.before[other]
                    if place is None or (step.cells[other], place) in seen:
                        continue
                    seen[step.cells[other], place] = None
                    waiting.append((step.cells[other], place))
                    found += sharding.dims[place].axes if sharding else ()
    return found


def axis_text(history: FunctionHistory, axis: Axis) -> str:
    return history.axis(axis, history.mesh(None))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_reshard_with_communication_has_a_conflict(seed: int) -> None:
    """A value is resharded only because of a conflict, or because an operation has no rule."""
    module = program(seed)
    explained = propagate_with_history(module, pipeline_of(module), {})
    rows = [row for history in explained.histories.values() for row in conflicts_of(history)]
    resharded = Pipeline.parse("reshard")(explained.decided)
    moves = [op for op in resharded.main.body.walk() if op.name == "reshard"]
    unruled = any(history.story.impassable for history in explained.histories.values())
    assert not rows or moves
    costly = [op for op in moves if not _free(op.operands[0].sharding, op.results[0].sharding)]
    assert rows or unruled or not costly


def _free(source: Sharding | None, target: Sharding | None) -> bool:
    """Return whether a reshard only takes a part of local data, or completes a sum."""
    if source is None or target is None or source.unreduced:
        return True
    return all(
        _merge_axes(sharding_axes(after))[: len(sharding_axes(before))]
        == _merge_axes(sharding_axes(before))
        for before, after in zip(source.axes, target.axes, strict=True)
    )


def _merge_axes(axes: Axes) -> Axes:
    joined: Axes = ()
    for axis in axes:
        joined = append_axis(joined, axis)
    return joined
