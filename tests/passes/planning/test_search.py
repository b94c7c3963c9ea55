"""The search engine finds solutions, and lower bounds that are not above the least cost."""

import time

import numpy as np
import pytest

from shardir.passes.planning import search
from shardir.passes.planning.instance import problem_of_json
from shardir.passes.planning.problem import FORBIDDEN, Edge, PlanningError, PlanningProblem
from shardir.passes.planning.search import list_solutions, load_kernels, solve_by_search
from shardir.passes.planning.solution import Incumbent
from tests.passes.planning.clocks import count_clock_calls
from tests.passes.planning.test_exact import random_problem
from tests.passes.planning.test_interruption import START, hard_problem
from tests.passes.planning.test_problem import EXAMPLE, brute_force, example


@pytest.fixture(autouse=True)
def counting_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the kernels, and count the calls of the clock instead of the time."""
    load_kernels()
    count_clock_calls(monkeypatch)


@pytest.mark.sample(3)
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


@pytest.mark.sample(3)
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


def limited_problem() -> PlanningProblem:
    costs, usages = np.array([0, 3, 5, 9]) * 10**9, np.array([100, 60, 40, 20])
    equal = np.where(np.eye(4, dtype=bool), 0, 10**9)
    return PlanningProblem(
        "limited",
        np.zeros(40, np.int64),
        np.ones(40, np.int64),
        [costs] * 40,
        [usages * (1 + number % 4) for number in range(40)],
        [Edge(number, number + 1, equal) for number in range(39)],
        6000,
    )


def test_a_cost_that_only_the_limit_makes_positive_is_found() -> None:
    """The bound without prices is 0, and the costs are far above 1. Higher bounds are reported
    during the search."""
    bounds: list[int | None] = []
    solution = solve_by_search(
        limited_problem(), seconds=0.5, progress=lambda _, cost, bound: bounds.append(bound)
    )
    assert solution.peak <= 6000
    assert solution.lower_bound is not None
    assert solution.lower_bound > 0.9 * solution.cost
    assert len(set(bounds)) > 3


def test_another_engine_ends_the_search() -> None:
    """The search would go on for 5,000 calls of the clock."""
    incumbent = Incumbent(limited_problem(), 5.0)
    search.search(incumbent, is_done=lambda: incumbent.lower_bound is not None)
    assert incumbent.elapsed_seconds < 1.0


def test_the_search_ends_with_an_optimum() -> None:
    def prove() -> bool:
        incumbent.raise_bound(10**18)
        return False

    incumbent = Incumbent(limited_problem(), 5.0)
    search.search(incumbent, is_done=prove)
    assert incumbent.is_optimal
    assert incumbent.elapsed_seconds < 1.0


def test_a_search_without_time_finds_nothing() -> None:
    incumbent = Incumbent(hard_problem(), 1e-9)
    search.search(incumbent)
    assert (incumbent.best, incumbent.lower_bound) == (None, None)


def test_interruption_without_a_solution_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(problem: object, check_time: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "find_optimum", interrupt)
    with pytest.raises(PlanningError) as error:
        solve_by_search(hard_problem())
    assert str(error.value) == (
        "Ctrl-C stopped the search before it found a solution; let it run longer"
    )
    assert solve_by_search(hard_problem(), start=START).strategies == START


def different_strategies(limit: int | None) -> PlanningProblem:
    """Return a problem whose three nodes cannot have different strategies of two. A node may have
    each of them."""
    different = np.where(np.eye(2, dtype=bool), FORBIDDEN, 0)
    zeros = np.zeros(3, np.int64)
    return PlanningProblem(
        "triangle", zeros, zeros + 1, [zeros[:2]] * 3, [np.array([0, 9])] * 3,
        [Edge(0, 1, different), Edge(1, 2, different), Edge(0, 2, different)], limit,
    )  # fmt: skip


def test_bounds_without_a_solution_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair of strategies is allowed to the passes of messages."""
    monkeypatch.setattr(search, "find_optimum", lambda problem, check_time: None)
    assert list_solutions(different_strategies(None)) == []


def test_a_bound_above_all_costs_proves_that_there_is_no_solution() -> None:
    """One of two nodes needs more memory than the limit in each pair of strategies that is
    allowed, but in no strategy alone."""
    some = np.array([[FORBIDDEN, 0], [0, 0]])
    zeros = np.zeros(2, np.int64)
    problem = PlanningProblem(
        "pair", zeros, zeros + 1, [zeros] * 2, [np.array([0, 10])] * 2, [Edge(0, 1, some)], 5
    )
    with pytest.raises(PlanningError, match="the problem 'pair' has no solution within"):
        solve_by_search(problem, seconds=5.0)


def test_the_best_candidate_is_improved() -> None:
    """A cheaper one replaces another one, also if it exceeds the memory."""
    problem = limited_problem()
    searching = search._Search(Incumbent(problem, 60.0), 0, lambda: False)
    searching._raise_bound(searching._sweep(False))
    for chosen, expected in ((3, 3), (2, 2), (3, 2), (0, 0), (1, 0)):
        searching.strategies = np.full(40, chosen)
        searching._consider(searching.network.usage_of(searching.strategies))
        assert searching.candidate is not None
        assert searching.candidate.strategies.tolist() == [expected] * 40
