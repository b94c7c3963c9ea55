"""The automatic engine returns the best solution and bound of the search and of toulbar2."""

import time

import pytest

from shardir.passes.planning import automatic, exact
from shardir.passes.planning.automatic import solve_automatically
from shardir.passes.planning.instance import problem_of_json
from shardir.passes.planning.problem import PlanningError
from shardir.passes.planning.search import load_kernels
from tests.passes.planning.clocks import count_clock_calls
from tests.passes.planning.test_exact import random_problem
from tests.passes.planning.test_interruption import START, hard_problem
from tests.passes.planning.test_problem import EXAMPLE, brute_force

pytestmark = pytest.mark.needs("pytoulbar2")


@pytest.fixture(autouse=True)
def compiled() -> None:
    """Compile the kernels before a search, whose time limit includes the compilation."""
    load_kernels()


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(10))
def test_solutions_of_random_problems_are_optimal(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """toulbar2 starts at once, and ends with a proof."""
    monkeypatch.setattr(automatic, "MAX_SEARCH_SECONDS", 0.0)
    content = random_problem(seed)
    least = brute_force(content)
    if least is None:
        with pytest.raises(PlanningError, match="has no solution"):
            solve_automatically(problem_of_json(content), seconds=300.0)
        return
    solution = solve_automatically(problem_of_json(content), seconds=300.0)
    assert (solution.cost, solution.lower_bound, solution.gap) == (least, least, 0.0)


def test_the_search_runs_alone_without_toulbar2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "is_solver_installed", lambda: False)
    count_clock_calls(monkeypatch)
    assert solve_automatically(problem_of_json(EXAMPLE), seconds=2.0).cost == 445


def test_the_search_runs_alone_if_the_problem_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "MAX_COEFFICIENTS", 10)
    count_clock_calls(monkeypatch)
    assert solve_automatically(problem_of_json(EXAMPLE), seconds=2.0).cost == 445


def test_both_end_at_the_time_limit() -> None:
    """toulbar2 takes minutes for the problem; other processes may delay this one by seconds."""
    begun = time.monotonic()
    solution = solve_automatically(hard_problem(), seconds=1.0, start=START)
    assert time.monotonic() - begun < 30.0
    assert solution.lower_bound is not None
