"""The strategies that solutions may have, and the arrays of the others."""

from dataclasses import replace

import numpy as np
import pytest

from shardir.passes.planning.instance import problem_of_json
from shardir.passes.planning.network import Network, find_allowed_strategies
from shardir.passes.planning.problem import FORBIDDEN, InfeasibleProblemError, PlanningProblem
from tests.passes.planning.test_problem import example


def check_time() -> None:
    """Permit any time."""


def path_problem(*tables: list[int], costs: list[list[int]]) -> PlanningProblem:
    """Return a problem of nodes with an edge to the next node each."""
    return problem_of_json(
        example(
            nodes__costs=costs,
            nodes__usages=[[0] * len(row) for row in costs],
            nodes__intervals=[[0, 1]] * len(costs),
            edges__nodes=[[node, node + 1] for node in range(len(tables))],
            edges__costs=[list(table) for table in tables],
        )
    )


NO = FORBIDDEN


def test_strategies_without_a_partner_are_removed_along_paths() -> None:
    """The second strategy of the last node is forbidden, so that the first node has one left."""
    equal = [0, NO, NO, 0]
    problem = path_problem(equal, equal, costs=[[1, 2], [1, 2], [1, NO]])
    allowed = [each.tolist() for each in find_allowed_strategies(problem, check_time)]
    assert allowed == [[True, False]] * 3
    network = Network(problem, check_time)
    assert network.counts.tolist() == [1, 1, 1]
    assert network.strategies_of_problem(np.zeros(3, np.int64)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("tables", "costs"),
    [
        ([], [[NO, NO]]),
        ([[NO, NO]], [[1], [1, 2]]),
        ([[0, NO]], [[1], [NO, 2]]),
        ([[0, NO, 0, NO], [NO, 0, 0, 0]], [[1, 2], [3, 4], [5, NO]]),
    ],
    ids=["a node", "an edge", "a node and an edge", "a path"],
)
def test_a_node_without_allowed_strategies_is_an_error(
    tables: list[list[int]], costs: list[list[int]]
) -> None:
    with pytest.raises(InfeasibleProblemError) as error:
        find_allowed_strategies(path_problem(*tables, costs=costs), check_time)
    assert str(error.value) == (
        "the problem 'example' has no solution within its usage limit and its forbidden "
        "strategies; raise the limit, or allow more strategies"
    )


def test_the_least_positive_cost() -> None:
    problem = path_problem([0, 7, 9, NO], costs=[[0, 8], [0, 6]])
    assert Network(problem, check_time).least_positive_cost() == 6.0
    problem = path_problem([0, 0, 5, NO], costs=[[0, 8], [0, 6]])
    assert Network(problem, check_time).least_positive_cost() == 5.0
    problem = path_problem([0, 0, 0, 0], costs=[[0, 0], [0, 0]])
    assert Network(problem, check_time).least_positive_cost() == 1.0


def test_edges_with_equal_costs_share_a_table() -> None:
    problem = path_problem([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 5], costs=[[0, 0]] * 4)
    network = Network(problem, check_time)
    assert network.tables_of.tolist() == [0, 0, 4]
    assert network.tables.tolist() == [1, 2, 3, 4, 1, 2, 3, 5, 0]


def test_too_little_memory_for_the_smallest_strategies_is_an_error() -> None:
    """Three nodes that are alive together use at least 50, because a strategy that uses less is
    forbidden."""
    problem = problem_of_json(
        example(
            nodes__costs=[[15], [55, NO], [25, 45, 35], [85, 75], [95]],
            nodes__usages=[[10], [25, 0], [15, 20, 15], [10, 10], [15]],
        )
    )
    assert Network(problem, check_time).limit == 50
    with pytest.raises(InfeasibleProblemError):
        Network(replace(problem, usage_limit=49), check_time)
