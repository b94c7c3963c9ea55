"""The automatic engine returns the best solution and bound of the search and of toulbar2."""

import time

import pytest

from shardir.passes.planning import automatic, exact
from shardir.passes.planning.automatic import Engines, solve_automatically
from shardir.passes.planning.exact import ProblemSizeError
from shardir.passes.planning.instance import problem_of_json
from shardir.passes.planning.problem import PlanningError
from shardir.passes.planning.search import load_kernels
from shardir.passes.planning.solution import Incumbent
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


class Process:
    """A process of toulbar2 whose calls are recorded."""

    def __init__(self, incumbent: Incumbent) -> None:
        self.is_done = False
        self.calls: list[str] = []

    def interrupt_in_time(self) -> None:
        self.calls.append("interrupt_in_time")

    def receive(self) -> None:
        self.calls.append("receive")

    def finish(self) -> None:
        self.calls.append("finish")


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    """Return engines of a search of 20 calls of the clock, of which toulbar2 starts after 1."""
    count_clock_calls(monkeypatch)
    monkeypatch.setattr(automatic, "SolverProcess", Process)
    return Engines(Incumbent(problem_of_json(EXAMPLE), 20e-3, (0, 0, 2, 0, 0)))


def process_of(engines: Engines) -> Process:
    assert isinstance(engines.process, Process)
    return engines.process


def test_toulbar2_starts_after_a_part_of_the_time(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic, "SEARCH_SHARE", 2.5 / 20)
    assert [engines.is_done() for _ in range(2)] == [False, False]
    assert engines.process is None
    assert not engines.is_done()
    assert process_of(engines).calls == ["interrupt_in_time", "receive"]


def test_an_optimum_is_the_end_of_both(engines: Engines) -> None:
    assert not engines.is_done()
    engines.incumbent.raise_bound(545)
    assert engines.is_done()
    engines.finish()
    assert "finish" not in process_of(engines).calls


def test_a_process_that_has_ended_receives_nothing(engines: Engines) -> None:
    assert not engines.is_done()
    process = process_of(engines)
    process.is_done = True
    process.calls.clear()
    assert not engines.is_done()
    assert process.calls == []


@pytest.mark.parametrize("reason", ["missing", "large"])
def test_no_process_starts_without_toulbar2_or_for_large_problems(
    reason: str, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(incumbent: Incumbent) -> None:
        calls.append(incumbent)
        raise ProblemSizeError("large")

    calls: list[Incumbent] = []
    monkeypatch.setattr(automatic, "SolverProcess", refuse)
    if reason == "missing":
        monkeypatch.setattr(automatic, "is_solver_installed", lambda: False)
        engines = Engines(engines.incumbent)
    assert [engines.is_done() for _ in range(3)] == [False] * 3
    assert len(calls) == (reason == "large")
    engines.finish()


def test_the_last_bound_is_received_while_there_is_time(engines: Engines) -> None:
    engines.finish()
    assert not engines.is_done()
    engines.finish()
    assert process_of(engines).calls == ["interrupt_in_time", "receive", "finish"]
    for _ in range(20):
        time.monotonic()
    engines.finish()
    assert process_of(engines).calls == ["interrupt_in_time", "receive", "finish"]
