"""The exact engine finds the least cost, and proves it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardir.passes.planning.exact import solve_exactly
from shardir.passes.planning.instance import problem_of_json, read_problem
from shardir.passes.planning.problem import FORBIDDEN, PlanningError
from tests.passes.planning.test_problem import EXAMPLE, brute_force, example

pytestmark = pytest.mark.needs("highspy")


def random_problem(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, 6)
    pairs = [(a, b) for a in range(6) for b in range(6) if a != b and rng.random() < 0.3]
    tables = [rng.integers(0, 50, counts[a] * counts[b]) for a, b in pairs]
    starts = rng.integers(0, 6, 6)
    return example(
        nodes__costs=[rng.integers(0, 50, count).tolist() for count in counts],
        nodes__usages=[rng.integers(0, 9, count).tolist() for count in counts],
        nodes__intervals=[[int(start), int(start + rng.integers(0, 5))] for start in starts],
        edges__nodes=[[int(a), int(b)] for a, b in pairs],
        edges__costs=[
            [FORBIDDEN if rng.random() < 0.2 else int(cost) for cost in table] for table in tables
        ],
        usage_limit=int(rng.integers(8, 22)),
    )


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(40))
def test_solutions_of_random_problems_are_optimal(seed: int) -> None:
    content = random_problem(seed)
    least = brute_force(content)
    if least is None:
        with pytest.raises(PlanningError, match="has no solution"):
            solve_exactly(problem_of_json(content))
        return
    solution = solve_exactly(problem_of_json(content))
    assert (solution.cost, solution.lower_bound, solution.gap) == (least, least, 0.0)


def test_about_half_of_the_random_problems_have_solutions() -> None:
    solved = [brute_force(random_problem(seed)) is not None for seed in range(40)]
    assert 8 < solved.count(True) < 36


def test_the_limit_is_observed_to_the_unit() -> None:
    assert solve_exactly(problem_of_json(EXAMPLE)).peak == 50
    with pytest.raises(PlanningError) as error:
        solve_exactly(problem_of_json(example(usage_limit=49)))
    assert str(error.value) == (
        "the problem 'example' has no solution within its usage limit and its forbidden "
        "strategies; raise the limit, or allow more strategies"
    )


def test_without_a_limit_memory_is_unlimited() -> None:
    content = example(usage_limit=None)
    assert solve_exactly(problem_of_json(content)).cost == brute_force(content)


def test_a_start_must_be_a_solution() -> None:
    problem = problem_of_json(EXAMPLE)
    assert solve_exactly(problem, start=(0, 0, 2, 0, 0)).cost == 445
    with pytest.raises(PlanningError, match="needs 55 of memory"):
        solve_exactly(problem, start=(0, 0, 1, 0, 0))


def test_problems_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardir.passes.planning.exact.MAX_VARIABLES", 10)
    with pytest.raises(PlanningError) as error:
        solve_exactly(problem_of_json(EXAMPLE))
    assert str(error.value) == (
        "the problem 'example' needs more than 10 variables, which the solver cannot handle; "
        "solve a part of it, or one with fewer strategies"
    )


@pytest.mark.long
@pytest.mark.parametrize(("name", "cost"), [("B", 532843), ("G", 217039)])
def test_instances_of_the_contest_are_proven_optimal(name: str, cost: int) -> None:
    solution = solve_exactly(read_problem(Path(__file__).parent / f"{name}.json.gz"), seconds=300)
    assert (solution.cost, solution.gap) == (cost, 0.0)
