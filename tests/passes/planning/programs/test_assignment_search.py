"""The search over assignments, with costs that are given for each of them."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from shardir.errors import PartitionError
from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.ir.types import TensorType
from shardir.passes.planning.programs.assignment import ArgumentAxes, Assignment, AssignmentReader
from shardir.passes.planning.programs.assignment_search import (
    MOVES_AFTER_IMPROVEMENT,
    WORSE,
    AssignmentSearch,
    group_starts,
)
from shardir.passes.planning.programs.evaluation import Cost, Evaluation, Evaluator
from shardir.passes.planning.programs.repeated_layers import share_decisions
from shardir.text.parser import parse

MODULE = parse("func @f(%x: f32[4]) -> (f32[4]) {\n  return %x\n}\n")
Costs = Callable[[ArgumentAxes], tuple[int, int] | None]
"""Returns the flops and the peak with some axes; `None` if they cannot be compiled."""


def evaluation(flops: int, peak: int = 0, arguments: ArgumentAxes = ()) -> Evaluation:
    return Evaluation(arguments, None, flops, 0, 0, peak, {}, MODULE)


class GivenCosts(Evaluator):
    def __init__(self, costs: Costs) -> None:
        super().__init__()
        self.costs = costs

    def on_mesh(self, mesh: Mesh, machine: object) -> "GivenCosts":
        return self

    def steps(
        self, arguments: ArgumentAxes, worst: Evaluation | None = None
    ) -> Iterator[Cost | Evaluation]:
        found = self.costs(arguments)
        if found is None:
            raise PartitionError("uneven")
        yield evaluation(*found, arguments=arguments)


def search_of(
    costs: Costs,
    groups: Sequence[tuple[int, ...]],
    *,
    limit: int | None = None,
    evaluations: int = 10_000,
    min_improvement: float = 0.0,
    max_starts: int | None = None,
    axes: tuple[tuple[str, int], ...] = (("x", 2),),
) -> AssignmentSearch:
    """Return a search for parameters with these groups, whose dimensions have 8 elements."""
    params = [Value(TensorType((8,) * len(own), "f32"), f"v{i}") for i, own in enumerate(groups)]
    decisions = share_decisions(params, dict(zip(params, groups, strict=True)), {})
    reader = AssignmentReader(params, decisions, Mesh("m", axes), [None] * len(params), len(params))
    return AssignmentSearch(
        GivenCosts(costs), reader, limit, evaluations,
        min_improvement=min_improvement, max_starts=max_starts,
    )  # fmt: skip


def sharded(arguments: ArgumentAxes) -> set[int]:
    """Return the numbers of the arguments that have an axis."""
    return {number for number, axes in enumerate(arguments) if axes and any(axes)}


def halves(arguments: ArgumentAxes) -> tuple[int, int]:
    """Return half of the flops for each sharded argument."""
    return 1024 >> len(sharded(arguments)), 0


def test_decisions_are_added_while_they_improve_the_plan() -> None:
    search = search_of(halves, [(0,), (1,), (2,)])
    found = search.run([Assignment()])
    assert found is not None
    assert (found.flops, sharded(found.arguments)) == (128, {0, 1, 2})
    assert search.best == found


def test_small_improvements_are_not_accepted() -> None:
    def costs(arguments: ArgumentAxes) -> tuple[int, int]:
        return 1000 - 100 * len(sharded(arguments)), 0

    search = search_of(costs, [(0,), (1,)], min_improvement=0.11)
    search.run([Assignment()])
    assert search.best is not None
    assert search.best.flops == 900  # The best evaluation, from which no search goes on.
    assert len(sharded(search.best.arguments)) == 1


def test_the_number_of_evaluations_is_limited() -> None:
    for evaluations in (1, 3, 5):
        search = search_of(halves, [(n,) for n in range(9)], evaluations=evaluations)
        search.run([Assignment()])
        assert search.evaluator.count == evaluations


def test_the_best_starts_are_improved() -> None:
    """One that cannot be compiled is left out."""

    def costs(arguments: ArgumentAxes) -> tuple[int, int] | None:
        found = sharded(arguments)
        return None if found == {0} else (100 - 10 * len(found) - 50 * (found == {1, 2}), 0)

    starts = [Assignment(((0, "x"),)), Assignment(((1, "x"),)), Assignment()]
    search = search_of(costs, [(0,), (1,), (2,)], max_starts=1, evaluations=5)
    search.run(starts)
    assert search.best is not None
    assert sharded(search.best.arguments) == {1, 2}


def test_a_move_that_helps_later_is_tried_again() -> None:
    """It is the last one of many known moves without effect."""

    def costs(arguments: ArgumentAxes) -> tuple[int, int]:
        found = sharded(arguments)
        return (25 if 11 in found else 50) if 0 in found else 100, 0

    search = search_of(costs, [(n,) for n in range(12)])
    found = search.run([Assignment()])
    assert found is not None
    assert {0, 11} <= sharded(found.arguments)


def test_few_known_moves_are_evaluated_after_an_improving_one() -> None:
    """After the first move, each of the others halves the flops, too."""
    groups = [(n,) for n in range(20)]
    search = search_of(halves, groups)
    current = Assignment(((0, "x"),))
    stale: dict[object, float] = {("append", (n, "x")): -0.5 for n in range(1, 20)}
    search._evaluate(current)
    moves = (each for each in search._group_additions(current) if each[0][0] == "append")  # type: ignore[index]
    assert search._best_move(current, moves, stale) is not None
    assert search.evaluator.count == 1 + MOVES_AFTER_IMPROVEMENT


def test_moves_change_an_assignment() -> None:
    """Each axis of each group is added before and after the others, exchanged and removed."""
    search = search_of(halves, [(0, 1), (2,)], axes=(("x", 2), ("y", 2)))
    current = Assignment(((0, "x"), (2, "y")))
    additions = [name for name, _ in search._group_additions(current)]
    assert additions == [
        (kind, pair)
        for pair in ((0, "y"), (1, "x"), (1, "y"), (2, "x"))
        for kind in ("append", "prepend")
    ]
    names = [name for name, _ in search._changes(current) if isinstance(name, tuple)]
    assert [name[1:] for name in names if name[0] == "change"] == [
        (0, 1, "x"), (0, 2, "x"), (2, 0, "y"), (2, 1, "y")
    ]  # fmt: skip
    both = Assignment(((0, "x"), (1, "x")))
    names = [name for name, _ in search._changes(both) if isinstance(name, tuple)]
    assert [name[1:] for name in names if name[0] == "change"] == [(0, 2, "x"), (1, 2, "x")]
    exchanged = dict(search._changes(current))["exchange", "x", "y"]
    assert exchanged.groups == ((0, "y"), (2, "x"))


@pytest.mark.parametrize(
    ("now", "found", "rank"),
    [
        ((100, 5), (50, 9), -0.5),
        ((100, 5), (100, 4), -0.2),
        ((100, 5), (100, 5), WORSE),
        ((100, 5), (101, 1), WORSE),
        ((100, 20), (100, 15), -1 - 0.5 / 0.01),
        ((100, 20), (200, 10), -1 - 1 / 1.01),
        ((100, 20), (50, 15), -1 - 0.5 / 0.01),
        ((100, 20), (50, 20), WORSE),
        ((100, 20), (50, 21), WORSE),
        ((0, 5), (1, 1), WORSE),
    ],
)
def test_ranks_of_moves(now: tuple[int, int], found: tuple[int, int], rank: float) -> None:
    """Each pair has the flops and the peak; the memory limit is 10. A plan that exceeds it is
    improved by the excess that a move removes for each unit of its cost."""
    search = search_of(halves, [(0,)], limit=10)
    after = evaluation(*found)
    assert search._rank(evaluation(*now), after) == (pytest.approx(rank), *after.key(10))


def test_a_plan_that_exceeds_the_memory_is_searched_further() -> None:
    """Candidates that cost more are evaluated until one fits."""

    def costs(arguments: ArgumentAxes) -> tuple[int, int]:
        found = len(sharded(arguments))
        return 100 + 10 * found, 40 - 10 * found

    search = search_of(costs, [(0,), (1,), (2,)], limit=20)
    found = search.run([Assignment()])
    assert found is not None
    assert (found.flops, found.peak) == (120, 20)


def test_starts_are_replicated_and_data_parallel() -> None:
    starts = list(group_starts((0, 2), ("x", "y")))
    assert [each.groups for each in starts] == [
        (),
        ((0, "x"), (0, "y"), (2, "x"), (2, "y")),
        ((0, "x"), (2, "x")),
        ((0, "y"), (2, "y")),
        ((0, "y"), (2, "y")),
        ((0, "x"), (2, "x")),
    ]
