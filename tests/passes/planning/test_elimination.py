"""Elimination of nodes finds and proves optima of problems without a memory limit."""

import numpy as np
import pytest

from shardir.passes.planning import elimination, search
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
from shardir.passes.planning.solution import Incumbent, TimeLimitError
from tests.passes.planning.test_exact import random_problem
from tests.passes.planning.test_interruption import hard_problem
from tests.passes.planning.test_problem import EXAMPLE, brute_force


def check_time() -> None:
    """Permit any time."""


@pytest.mark.sample(3)
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


def sparse_problem(seed: int) -> PlanningProblem:
    rng = np.random.default_rng(seed)
    counts = rng.integers(2, 4, 9)
    pairs = [(a, b) for a in range(9) for b in range(a) if rng.random() < 0.4]
    lives: Ints = np.zeros(9, np.int64)
    costs = [rng.integers(0, 9, count) for count in counts]
    edges = [Edge(a, b, rng.integers(0, 9, (counts[a], counts[b]))) for a, b in pairs]
    return PlanningProblem("sparse", lives, lives, costs, costs, edges, None)


@pytest.mark.parametrize(("seed", "entries"), [(13, 18), (15, 36), (26, 24), (29, 81)])
def test_the_better_one_of_two_orders_is_used(
    seed: int, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes with small tables come first in the order for the seeds 15 and 26, and nodes that add
    few edges in that for the others; the other order needs larger tables."""
    problem = sparse_problem(seed)
    optimum = find_optimum(problem, check_time)
    assert optimum is not None
    for limit, is_solved in ((entries, True), (entries - 1, False)):
        monkeypatch.setattr(elimination, "MAX_TABLE_ENTRIES", limit)
        found = find_optimum(problem, check_time)
        assert (found is not None) == is_solved
        if found is not None:
            assert problem.cost_of(found) == problem.cost_of(optimum)


def test_a_problem_whose_pairs_are_all_consistent_may_have_no_solution() -> None:
    """Three nodes cannot have different strategies of two."""
    different = np.where(np.eye(2, dtype=bool), FORBIDDEN, 0)
    zeros: Ints = np.zeros(3, np.int64)
    problem = PlanningProblem(
        "triangle", zeros, zeros, [zeros[:2]] * 3, [zeros[:2]] * 3,
        [Edge(0, 1, different), Edge(1, 2, different), Edge(0, 2, different)], None,
    )  # fmt: skip
    with pytest.raises(InfeasibleProblemError) as caught:
        find_optimum(problem, check_time)
    assert str(caught.value) == (
        "the problem 'triangle' has no solution within its usage limit and its forbidden "
        "strategies; raise the limit, or allow more strategies"
    )


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


def test_a_restricted_problem_has_all_assignments_near_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    monkeypatch.setattr(elimination, "MAX_TABLE_ENTRIES", 3**4)
    assert restricted.find_near(1e9, check_time) is None


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


@pytest.mark.parametrize(("same", "start"), [(10, (0, 0, 1)), (FORBIDDEN, None)])
def test_too_small_restricted_problems_prove_nothing(
    same: int, start: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal strategies of two nodes cost 10, or are forbidden. Without the strategies of cost 1,
    the optimum is 10, or there is no solution; with them, it is 1."""
    costs = np.array([0, 0, *[1] * 6])
    equal = np.where(np.eye(8, dtype=bool), same, 0)
    zeros: Ints = np.zeros(3, np.int64)
    problem = PlanningProblem(
        "triangle", zeros, zeros, [costs] * 3, [costs] * 3,
        [Edge(0, 1, equal), Edge(1, 2, equal), Edge(0, 2, equal)], None,
    )  # fmt: skip
    monkeypatch.setattr(elimination, "MAX_TABLE_ENTRIES", 8)
    incumbent = Incumbent(problem, 600.0, start)
    searching = search._Search(incumbent, 0, lambda: False)
    searching._raise_bound(searching._sweep(False))
    searching._solve_restricted()
    assert incumbent.lower_bound == 0
    assert incumbent.cost == (None if start is None else 10)


def test_dense_problems_are_searched() -> None:
    assert find_optimum(hard_problem(), check_time) is None
