"""Elimination of nodes finds and proves optima of problems without a memory limit."""

import numpy as np
import pytest

from shardir.passes.planning import elimination
from shardir.passes.planning.elimination import find_optimum
from shardir.passes.planning.instance import problem_of_json
from shardir.passes.planning.kernel_compiler import Ints
from shardir.passes.planning.network import Network
from shardir.passes.planning.problem import (
    FORBIDDEN,
    Edge,
    InfeasibleProblemError,
    PlanningProblem,
)
from shardir.passes.planning.restriction import SlackProblem
from shardir.passes.planning.search import solve_by_search
from shardir.passes.planning.solution import TimeLimitError
from tests.passes.planning.test_exact import random_problem
from tests.passes.planning.test_interruption import hard_problem
from tests.passes.planning.test_problem import EXAMPLE, brute_force


def check_time() -> None:
    """Permit any time."""


@pytest.mark.parametrize("seed", range(40))
def test_optima_of_random_problems(seed: int) -> None:
    content = random_problem(seed)
    content["problem"]["usage_limit"] = None
    least, problem = brute_force(content), problem_of_json(content)
    if least is None:
        with pytest.raises(InfeasibleProblemError):
            find_optimum(problem, check_time)
        return
    found = find_optimum(problem, check_time)
    assert found is not None
    assert problem.cost_of(found) == least


def test_a_limit_that_can_be_exceeded_is_not_solved() -> None:
    problem = problem_of_json(EXAMPLE)
    assert find_optimum(problem, check_time) is None
    problem = problem_of_json({"problem": {**EXAMPLE["problem"], "usage_limit": 60}})
    assert find_optimum(problem, check_time) == (0, 0, 1, 1, 0)


def test_costs_whose_sum_could_be_forbidden_are_not_solved() -> None:
    def problem_with(cost: int) -> PlanningProblem:
        lives: Ints = np.zeros(2, np.int64)
        costs = [np.array([cost, 0]), np.array([cost, 0])]
        return PlanningProblem("large", lives, lives, costs, costs, [], None)

    assert find_optimum(problem_with(FORBIDDEN // 2), check_time) is None
    assert find_optimum(problem_with(FORBIDDEN // 2 - 1), check_time) == (1, 1)


def test_large_tables_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the three nodes of a triangle has a table of eight entries at first."""
    ones: Ints = np.ones((2, 2), np.int64)
    pairs = [(0, 1), (1, 2), (0, 2)]
    lives: Ints = np.zeros(3, np.int64)
    problem = PlanningProblem(
        "triangle", lives, lives, [ones[0]] * 3, [ones[0]] * 3,
        [Edge(a, b, ones) for a, b in pairs], None,
    )  # fmt: skip
    for entries, is_solved in ((8, True), (7, False)):
        monkeypatch.setattr(elimination, "MAX_TABLE_ENTRIES", entries)
        assert (find_optimum(problem, check_time) is not None) == is_solved
    monkeypatch.setattr(elimination, "MAX_TABLE_ENTRIES", 8)
    for entries, is_solved in ((8 + 4 + 2, True), (8 + 4 + 1, False)):
        monkeypatch.setattr(elimination, "MAX_ENTRIES", entries)
        assert (find_optimum(problem, check_time) is not None) == is_solved


def test_the_time_limit_ends_elimination() -> None:
    def fail() -> None:
        raise TimeLimitError("late")

    problem = problem_of_json({"problem": {**EXAMPLE["problem"], "usage_limit": None}})
    with pytest.raises(TimeLimitError, match="late"):
        find_optimum(problem, fail)


def clique(seed: int, nodes: int, strategies: int) -> PlanningProblem:
    """Return a problem with an edge between each pair of nodes."""
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for a in range(nodes) for b in range(a)]
    return PlanningProblem(
        "clique",
        np.zeros(nodes, np.int64),
        np.ones(nodes, np.int64),
        [rng.integers(0, 100, strategies) for _ in range(nodes)],
        [np.ones(strategies, np.int64)] * nodes,
        [Edge(a, b, rng.integers(0, 100, (strategies, strategies))) for a, b in pairs],
        None,
    )


def test_a_restricted_problem_has_all_assignments_near_the_bound() -> None:
    problem = clique(0, 6, 3)
    network = Network(problem, check_time)
    messages = np.random.default_rng(1).integers(-9, 9, network.message_count).astype(float)
    restricted = SlackProblem(problem, network, messages)
    costs = [problem.cost_of(each) for each in np.ndindex(*[3] * 6)]
    least = min(cost for cost in costs if cost is not None)
    assert restricted.bound < least
    for threshold in (least - restricted.bound, 2 * (least - restricted.bound)):
        found = restricted.find_near(threshold, check_time)
        assert found is not None
        assert problem.cost_of(found) == least
    with pytest.raises(InfeasibleProblemError):
        restricted.find_near(1.0, check_time)


def test_the_search_proves_optima_of_restricted_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three nodes have equal strategies, which costs 10; the bound of message passing is 0.
    The tables of the whole problem are too large, and those without expensive strategies are not.
    """
    costs = np.array([0, 0, *[100] * 6])
    equal = np.where(np.eye(8, dtype=bool), 10, 0)
    problem = PlanningProblem(
        "triangle", np.zeros(3, np.int64), np.zeros(3, np.int64), [costs] * 3, [costs] * 3,
        [Edge(0, 1, equal), Edge(1, 2, equal), Edge(0, 2, equal)], None,
    )  # fmt: skip
    monkeypatch.setattr(elimination, "MAX_TABLE_ENTRIES", 8)
    assert find_optimum(problem, check_time) is None
    found = solve_by_search(problem, seconds=60.0)
    assert (found.cost, found.lower_bound) == (10, 10)
    assert found.seconds < 60.0


def test_dense_problems_are_searched() -> None:
    assert find_optimum(hard_problem(), check_time) is None
