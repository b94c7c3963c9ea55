"""The best solution and bound that a search has found so far."""

from collections.abc import Callable
from typing import Any

import pytest

from shardir.passes.planning.instance import problem_of_json
from shardir.passes.planning.solution import Incumbent, Solution, TimeLimitError, evaluate
from tests.passes.planning.clocks import count_clock_calls
from tests.passes.planning.test_problem import EXAMPLE, example

BETTER, WORSE, TOO_LARGE = (0, 0, 2, 1, 0), (0, 0, 2, 0, 0), (0, 0, 1, 1, 0)


def incumbent(**options: Any) -> Incumbent:
    return Incumbent(problem_of_json(EXAMPLE), 60.0, **options)


@pytest.mark.parametrize(
    ("cost", "bound", "gap"), [(445, None, None), (440, 330, 0.25), (445, 445, 0.0), (0, 0, 0.0)]
)
def test_the_gap_is_relative_to_the_cost(cost: int, bound: int | None, gap: float | None) -> None:
    assert Solution((), cost, 0, bound, 0.0).gap == gap


def test_the_cheapest_solution_is_kept() -> None:
    """An assignment that needs too much memory is none."""
    found = incumbent()
    assert found.cost is None
    assert found.offer(TOO_LARGE) is None
    assert found.best is None
    assert found.offer(WORSE) == 545
    assert found.best == (545, WORSE)
    assert found.offer(BETTER) == 445
    assert found.offer(WORSE) == 545
    assert found.best == (445, BETTER)
    assert found.solution().strategies == BETTER


def test_the_highest_bound_is_kept() -> None:
    found = incumbent(start=BETTER)
    assert not found.is_optimal
    found.raise_bound(400)
    found.raise_bound(300)
    assert found.lower_bound == 400
    assert not found.is_optimal
    found.raise_bound(445)
    assert found.is_optimal
    found.raise_bound(446)
    assert found.solution().lower_bound == 445


def test_a_bound_alone_is_no_proof() -> None:
    found = incumbent()
    found.raise_bound(1000)
    assert not found.is_optimal


def test_improvements_are_reported() -> None:
    """The progress also receives calls without an improvement."""
    reports: list[tuple[int | None, int | None]] = []
    found = incumbent(progress=lambda seconds, cost, bound: reports.append((cost, bound)))
    steps: list[Callable[[], object]] = [
        lambda: found.offer(WORSE),
        lambda: found.offer(TOO_LARGE),
        lambda: found.raise_bound(400),
        lambda: found.raise_bound(400),
        lambda: found.offer(BETTER),
        found.report,
    ]
    for step in steps:
        step()
    assert reports == [(545, None), (545, 400), (445, 400), (445, 400)]


def test_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    count_clock_calls(monkeypatch)
    found = Incumbent(problem_of_json(EXAMPLE), 0.0015)
    found.check_time()
    message = "no solution was found in 0.0015 seconds; allow more time (--seconds)"
    with pytest.raises(TimeLimitError) as error:
        found.check_time()
    assert str(error.value) == message
    with pytest.raises(TimeLimitError) as error:
        found.solution()
    assert str(error.value) == message


def test_memory_without_a_limit() -> None:
    assert evaluate(problem_of_json(example(usage_limit=None)), TOO_LARGE).peak == 55
