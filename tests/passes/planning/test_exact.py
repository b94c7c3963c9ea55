"""The exact engine finds the least cost, and proves it."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shardir.passes.planning import exact, toulbar2_process
from shardir.passes.planning.exact import (
    MAX_TOTAL,
    CostFunctionNetwork,
    ProblemSizeError,
    SolverMissingError,
    SolverProcess,
    solve_exactly,
)
from shardir.passes.planning.instance import problem_of_json, read_problem
from shardir.passes.planning.problem import FORBIDDEN, InfeasibleProblemError, PlanningError
from shardir.passes.planning.solution import Incumbent, TimeLimitError
from tests.passes.planning.test_problem import EXAMPLE, brute_force, example

needs_solver = pytest.mark.needs("pytoulbar2")


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


@needs_solver
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


@needs_solver
@pytest.mark.parametrize("limit", [0, 7])
def test_a_limit_that_one_node_exceeds_has_no_solution(limit: int) -> None:
    """toulbar2 finds this without a search, when it reads the limit."""
    content = example(
        nodes__costs=[[1]], nodes__usages=[[8]], nodes__intervals=[[0, 2]],
        edges__nodes=[], edges__costs=[], usage_limit=limit,
    )  # fmt: skip
    with pytest.raises(InfeasibleProblemError) as error:
        solve_exactly(problem_of_json(content))
    assert str(error.value) == (
        "the problem 'example' has no solution within its usage limit and its forbidden "
        "strategies; raise the limit, or allow more strategies"
    )


def test_about_half_of_the_random_problems_have_solutions() -> None:
    solved = [brute_force(random_problem(seed)) is not None for seed in range(40)]
    assert 8 < solved.count(True) < 36


@needs_solver
def test_the_limit_is_observed_to_the_unit() -> None:
    assert solve_exactly(problem_of_json(EXAMPLE)).peak == 50
    with pytest.raises(PlanningError) as error:
        solve_exactly(problem_of_json(example(usage_limit=49)))
    assert str(error.value) == (
        "the problem 'example' has no solution within its usage limit and its forbidden "
        "strategies; raise the limit, or allow more strategies"
    )


@needs_solver
def test_without_a_limit_memory_is_unlimited() -> None:
    content = example(usage_limit=None)
    assert solve_exactly(problem_of_json(content)).cost == brute_force(content)


@needs_solver
def test_a_start_must_be_a_solution() -> None:
    problem = problem_of_json(EXAMPLE)
    assert solve_exactly(problem, start=(0, 0, 2, 0, 0)).cost == 445
    with pytest.raises(PlanningError, match="needs 55 of memory"):
        solve_exactly(problem, start=(0, 0, 1, 0, 0))


@needs_solver
def test_problems_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardir.passes.planning.exact.MAX_COEFFICIENTS", 10)
    with pytest.raises(PlanningError) as error:
        solve_exactly(problem_of_json(EXAMPLE))
    assert str(error.value) == (
        "the problem 'example' needs more than 10 coefficients, which the solver cannot handle; "
        "solve a part of it, or one with fewer strategies"
    )


@needs_solver
def test_costs_above_the_exact_integers_of_doubles_have_a_bound_that_no_solution_is_below() -> None:
    content = example(
        nodes__costs=[[15], [55, 65], [25, 45, 35], [10**17 + 85, 10**17 + 75], [95]],
        edges__costs=[
            [10**16 + 30, 10**16 + 41],
            [50, 10, 40],
            [90, 10, 20, 80],
            [60, 20, 30],
            [70, 60],
        ],
    )
    problem = problem_of_json(content)
    unit = CostFunctionNetwork(Incumbent(problem, 1.0)).unit
    assert unit > 10
    least = brute_force(content)
    solution = solve_exactly(problem)
    assert least is not None
    assert solution.lower_bound is not None
    # Each of the 10 costs of a solution is rounded down by less than a unit.
    assert solution.lower_bound <= least <= solution.cost < least + 10 * unit
    assert least - 10 * unit < solution.lower_bound
    again = solve_exactly(problem, start=solution.strategies)
    assert again.cost <= solution.cost
    assert again.lower_bound is not None
    assert again.lower_bound <= least


@pytest.mark.parametrize("total", [1, MAX_TOTAL - 1, MAX_TOTAL, MAX_TOTAL + 1, 9 * 10**17])
def test_the_sum_of_the_costs_of_a_network_is_limited(total: int) -> None:
    content = example(
        nodes__costs=[[total]], nodes__usages=[[0]], nodes__intervals=[[0, 0]],
        edges__nodes=[], edges__costs=[],
    )  # fmt: skip
    incumbent = Incumbent(problem_of_json(content), 60.0)
    network = CostFunctionNetwork(incumbent)
    (costs,) = network.model(incumbent)["costs"]
    assert costs[0] <= MAX_TOTAL
    assert int(costs[0]) == total // network.unit
    assert network.unit == (1 if total <= MAX_TOTAL else -(-total // MAX_TOTAL))


@needs_solver
def test_two_runs_return_the_same_strategies() -> None:
    contents = (random_problem(seed) for seed in range(10))
    problem = next(problem_of_json(each) for each in contents if brute_force(each) is not None)
    assert solve_exactly(problem).strategies == solve_exactly(problem).strategies


@needs_solver
def test_a_problem_without_nodes_costs_nothing() -> None:
    empty = example(
        nodes__costs=[], nodes__usages=[], nodes__intervals=[], edges__nodes=[], edges__costs=[]
    )
    solution = solve_exactly(problem_of_json(empty))
    assert (solution.strategies, solution.cost, solution.gap) == ((), 0, 0.0)


@needs_solver
def test_the_process_does_not_start_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pytoulbar2 imports mpi4py if it is installed, and then divides its work over all ranks."""
    imported = tmp_path / "imported"
    (tmp_path / "mpi4py.py").write_text(f"open({str(imported)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert solve_exactly(problem_of_json(EXAMPLE)).cost == 445
    assert not imported.exists()


@needs_solver
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (" 0 0 1 0 0", "it returned an assignment that is not a solution"),
        ("error RuntimeError: out of memory", "RuntimeError: out of memory"),
    ],
)
def test_a_failure_of_the_solver_is_an_error(
    line: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The assignment of the first case needs more memory than the limit."""
    monkeypatch.setattr(SolverProcess, "_read", lambda self: self._lines.put(line))
    with pytest.raises(PlanningError) as error:
        solve_exactly(problem_of_json(EXAMPLE))
    assert str(error.value) == f"toulbar2 failed for the problem 'example': {reason}"


@needs_solver
def test_a_solver_that_stops_without_a_solution_proves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SolverProcess, "_read", lambda self: self._lines.put("end stopped"))
    with pytest.raises(TimeLimitError, match="no solution was found in 60 seconds"):
        solve_exactly(problem_of_json(EXAMPLE))


@needs_solver
def test_interruption_without_a_solution_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: object, seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SolverProcess, "receive", interrupt)
    monkeypatch.setattr(SolverProcess, "finish", lambda self: None)
    with pytest.raises(PlanningError) as error:
        solve_exactly(problem_of_json(EXAMPLE))
    assert str(error.value) == (
        "Ctrl-C stopped the search before it found a solution; let it run longer"
    )
    start = (0, 0, 2, 0, 0)
    assert solve_exactly(problem_of_json(EXAMPLE), start=start).strategies == start


@pytest.mark.parametrize(
    ("factor", "start", "bound"),
    [
        (1, None, 15 + 65 + 45 + 85 + 95 + 40 + 50 + 90 + 60 + 70 + 1),
        (1, (0, 0, 2, 0, 0), 545),
        (2**46, (0, 0, 2, 0, 0), 545 * 2**46 // 10 + 1),
    ],
)
def test_better_solutions_cost_less_than_the_upper_bound(
    factor: int, start: tuple[int, ...] | None, bound: int
) -> None:
    """Rounded costs may be as high as that of the known solution."""
    nodes, edges = EXAMPLE["problem"]["nodes"], EXAMPLE["problem"]["edges"]
    content = example(
        nodes__costs=[[cost * factor for cost in row] for row in nodes["costs"]],
        edges__costs=[[cost * factor for cost in row] for row in edges["costs"]],
    )
    incumbent = Incumbent(problem_of_json(content), 60.0, start)
    network = CostFunctionNetwork(incumbent)
    assert network.unit == (1 if factor == 1 else 10)
    assert network.model(incumbent)["upper_bound"] == bound


@pytest.mark.parametrize("is_limited", [True, False])
def test_only_a_complete_search_is_a_proof(
    is_limited: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Network:
        Option = SimpleNamespace(limited=is_limited)

        def __init__(self, upper_bound: int, vac: int, verbose: int) -> None:
            self.upper_bound = upper_bound

        def Solve(self, showSolutions: int, timeLimit: int) -> None:
            return None

    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setitem(sys.modules, "pytoulbar2", SimpleNamespace(CFN=Network))
    model = {"upper_bound": 7, "seconds": 1, "costs": [], "edges": [], "memory": []}
    assert toulbar2_process._solve(model) == ("stopped" if is_limited else "optimal")
    assert capsys.readouterr().out == ("" if is_limited else "Dual bound: 7\n")


def test_a_missing_solver_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "is_solver_installed", lambda: False)
    with pytest.raises(SolverMissingError) as error:
        solve_exactly(problem_of_json(EXAMPLE))
    assert str(error.value) == (
        "the exact engine needs toulbar2; install it with pip install 'shardir[exact]'"
    )
    assert error.value.name == "pytoulbar2"


@pytest.mark.parametrize(("limit", "count"), [(5, 6), (6, 0), (None, 0)])
def test_usages_count_where_nodes_together_can_exceed_the_limit(
    limit: int | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three nodes are alive together, and a fourth one later."""
    content = example(
        nodes__costs=[[1, 2]] * 4, nodes__usages=[[1, 2]] * 4,
        nodes__intervals=[[0, 3], [1, 3], [2, 5], [6, 8]],
        edges__nodes=[], edges__costs=[], usage_limit=limit,
    )  # fmt: skip
    monkeypatch.setattr(exact, "MAX_COEFFICIENTS", count)
    network = CostFunctionNetwork(Incumbent(problem_of_json(content), 60.0))
    rows = network.model(Incumbent(problem_of_json(content), 60.0))["memory"]
    assert [nodes for nodes, _, _ in rows] == ([[0, 1, 2]] if count else [])
    if count:
        monkeypatch.setattr(exact, "MAX_COEFFICIENTS", count - 1)
        with pytest.raises(ProblemSizeError):
            CostFunctionNetwork(Incumbent(problem_of_json(content), 60.0))


@needs_solver
@pytest.mark.long
@pytest.mark.parametrize(("name", "cost"), [("B", 532843), ("G", 217039)])
def test_instances_of_the_contest_are_proven_optimal(name: str, cost: int) -> None:
    solution = solve_exactly(read_problem(Path(__file__).parent / f"{name}.json.gz"), seconds=300)
    assert (solution.cost, solution.gap) == (cost, 0.0)
