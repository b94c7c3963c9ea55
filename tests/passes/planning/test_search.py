"""The search engine finds solutions, and lower bounds that are not above the least cost."""

import time

import numpy as np
import pytest

from shardir.passes.planning import search
from shardir.passes.planning.instance import problem_of_json
from shardir.passes.planning.problem import Edge, PlanningError, PlanningProblem
from shardir.passes.planning.search import list_solutions, load_kernels, solve_by_search
from tests.passes.planning.clocks import count_clock_calls
from tests.passes.planning.test_exact import random_problem
from tests.passes.planning.test_problem import EXAMPLE, brute_force, example


@pytest.fixture(autouse=True)
def counting_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the kernels, and count the calls of the clock instead of the time."""
    load_kernels()
    count_clock_calls(monkeypatch)


@pytest.mark.parametrize("seed", range(40))
def test_bounds_are_not_above_the_least_cost_of_random_problems(seed: int) -> None:
    content = random_problem(seed)
    least = brute_force(content)
    if least is None:
        with pytest.raises(PlanningError, match=r"has no solution|no solution was found in"):
            solve_by_search(problem_of_json(content), seconds=1.0)
        return
    solution = solve_by_search(problem_of_json(content), seconds=1.0)
    assert solution.cost == least
    assert solution.lower_bound is not None
    assert solution.lower_bound <= least


def test_the_limit_is_observed_to_the_unit() -> None:
    solution = solve_by_search(problem_of_json(EXAMPLE), seconds=1.0)
    assert (solution.cost, solution.peak) == (445, 50)


def test_without_a_limit_memory_is_unlimited() -> None:
    content = example(usage_limit=None)
    assert solve_by_search(problem_of_json(content), seconds=1.0).cost == brute_force(content)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("eliminates", [True, False])
def test_solutions_in_a_fixed_number_of_steps_are_the_same_ones(
    seed: int, eliminates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with another clock; the cheapest one is optimal."""
    if not eliminates:
        monkeypatch.setattr(search, "find_optimum", lambda problem, check_time: None)
    content = random_problem(seed)
    content["problem"]["usage_limit"] = None
    least = brute_force(content)
    problem = problem_of_json(content)
    if least is None:
        with pytest.raises(PlanningError, match="has no solution"):
            list_solutions(problem)
        return
    found = list_solutions(problem)
    costs = [each.cost for each in found]
    assert costs == sorted(set(costs))
    assert costs[0] == least
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    assert [each.strategies for each in list_solutions(problem)] == [
        each.strategies for each in found
    ]
    assert list_solutions(problem, least) == []
    assert [each.cost for each in list_solutions(problem, least + 1)] == [least]


def test_problems_with_little_memory_have_no_solutions_in_a_fixed_number_of_steps() -> None:
    assert list_solutions(problem_of_json(EXAMPLE)) == []


def test_a_search_ends_at_its_time_limit() -> None:
    begun = time.monotonic()
    solve_by_search(problem_of_json(EXAMPLE), seconds=0.2)
    assert time.monotonic() - begun < 5.0


def test_too_little_memory_for_any_strategy_is_an_error() -> None:
    with pytest.raises(PlanningError) as error:
        solve_by_search(problem_of_json(example(usage_limit=10)), seconds=0.2)
    assert str(error.value) == (
        "the problem 'example' has no solution within its usage limit and its forbidden "
        "strategies; raise the limit, or allow more strategies"
    )


def test_a_cost_that_only_the_limit_makes_positive_is_found() -> None:
    """The bound without prices is 0, and the costs are far above 1."""
    costs, usages = np.array([0, 3, 5, 9]) * 10**9, np.array([100, 60, 40, 20])
    equal = np.where(np.eye(4, dtype=bool), 0, 10**9)
    problem = PlanningProblem(
        "limited",
        np.zeros(40, np.int64),
        np.ones(40, np.int64),
        [costs] * 40,
        [usages * (1 + number % 4) for number in range(40)],
        [Edge(number, number + 1, equal) for number in range(39)],
        6000,
    )
    solution = solve_by_search(problem, seconds=0.5)
    assert solution.peak <= 6000
    assert solution.lower_bound is not None
    assert solution.lower_bound > 0.9 * solution.cost
