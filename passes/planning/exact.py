"""The exact engine: a cost function network, solved by toulbar2 (extra `exact`).

Each node is a variable whose values are its strategies; the costs of nodes and edges are cost
functions of one and two variables. The memory of each maximal set of nodes that are alive together
is a linear constraint. toulbar2 (D. Allouche et al., "Anytime Hybrid Best-First Search with Tree
Decomposition for Weighted CSP", 2015; M. C. Cooper et al., "Soft arc consistency revisited", 2010)
computes bounds by virtual arc consistency, and searches with branch and bound.

toulbar2 runs in a process of its own (`toulbar2_process.py`), which ends at the time limit and at
Ctrl-C; the solutions and bounds that it has sent until then remain.
"""

import importlib.util
import math
import os
import pickle
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from shardir.caller_warnings import warn_caller
from shardir.errors import ShardirError
from shardir.passes.planning.network import find_allowed_strategies
from shardir.passes.planning.problem import (
    FORBIDDEN,
    Ints,
    PlanningError,
    PlanningProblem,
    infeasible_problem_error,
    interrupted_search_error,
)
from shardir.passes.planning.solution import Incumbent, Progress, Solution, TimeLimitError

REPORT_INTERVAL_SECONDS = 0.2
"""The maximum time between two reports of the progress."""

STOP_SECONDS = 0.5
STOP_SHARE = 0.1
"""toulbar2 has these seconds, and at most this share of the time limit, to send its last bound."""

MAX_COEFFICIENTS = 10_000_000
"""The maximum number of pairs of strategies and of usages in memory constraints."""

MAX_TOTAL = 2**52
"""The limit of the sum of all costs that toulbar2 receives: it is below 2**53, to which doubles are
exact, and below the largest cost of toulbar2."""

BOUND_LINE = re.compile(
    r"(?:Initial lower and upper bounds: \[|Optimality gap: \[|Dual bound: )(-?\d+)\b"
)
"""The lines of toulbar2 that state a lower bound."""

SOLUTION_LINE = re.compile(r"(?: \d+)+")


class SolverMissingError(ShardirError, ImportError):
    """A package that an engine needs is not installed."""


class ProblemSizeError(PlanningError):
    """A problem that is too large for the exact engine."""


def solve_exactly(
    problem: PlanningProblem,
    *,
    seconds: float = 60.0,
    start: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Solution:
    """Return the best solution that toulbar2 finds in `seconds`, with a proven lower bound.

    `start` is an assignment to begin with. Ctrl-C ends the search with the best solution. Raises
    `PlanningError` if there is no solution, or none was found in time, and `SolverMissingError`
    without toulbar2. Warns if toulbar2 fails after it has found a solution.
    """
    incumbent = Incumbent(problem, seconds, None if start is None else tuple(start), progress)
    if problem.node_count == 0:
        incumbent.offer(())  # toulbar2 returns no assignment without variables.
    process = None
    try:
        process = SolverProcess(incumbent)
        while incumbent.remaining > 0 and not process.is_done:
            process.interrupt_in_time()
            process.receive(min(incumbent.remaining, REPORT_INTERVAL_SECONDS))
            incumbent.report()
        if process.failure is not None:
            if incumbent.best is None:
                raise PlanningError(process.failure)
            warn_caller(process.failure, RuntimeWarning)
    except TimeLimitError:
        pass
    except KeyboardInterrupt:
        if process is not None:
            process.finish()
        if incumbent.best is None:
            raise interrupted_search_error() from None
    finally:
        if process is not None:
            process.close()
    return incumbent.solution()


def is_solver_installed() -> bool:
    """Return whether toulbar2 is installed."""
    return importlib.util.find_spec("pytoulbar2") is not None


class SolverProcess:
    """A process in which toulbar2 improves an incumbent.

    The process has a session of its own, so that Ctrl-C reaches only this one. Raises
    `SolverMissingError` without toulbar2, and `ProblemSizeError` for problems that are too large.
    """

    def __init__(self, incumbent: Incumbent) -> None:
        if not is_solver_installed():
            raise SolverMissingError(
                "the exact engine needs toulbar2; install it with pip install 'shardir[exact]'",
                name="pytoulbar2",
            )
        self.incumbent = incumbent
        self.is_done = False
        """True if toulbar2 has ended."""
        self.failure: str | None = None
        """The reason if toulbar2 has ended with an error."""
        self._is_interrupted = False
        self._network = CostFunctionNetwork(incumbent)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(
            # -P: no module of this folder hides one of another package.
            [sys.executable, "-P", str(Path(__file__).with_name("toulbar2_process.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
        )
        try:
            threading.Thread(target=self._read, daemon=True).start()
            self._write(self._network.model(incumbent))
        except BaseException:
            self.close()
            raise

    def _write(self, model: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump(model, self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:  # The process has ended; `receive` raises the error.
            pass

    def _read(self) -> None:
        """Move the lines of the process to the queue."""
        assert self._process.stdout is not None
        with suppress(OSError, ValueError):
            for line in self._process.stdout:
                self._lines.put(line.decode("utf-8", "replace").rstrip("\n"))
        self._lines.put("error the process ended unexpectedly")

    def receive(self, seconds: float = 0.0) -> None:
        """Apply all lines to the incumbent; wait up to `seconds` for the first one."""
        with suppress(queue.Empty):
            self._apply(self._lines.get(timeout=max(seconds, 0.0)))
            while not self.is_done:
                self._apply(self._lines.get_nowait())

    def interrupt_in_time(self) -> None:
        """Let toulbar2 end before the time limit, so that its last bound arrives."""
        incumbent = self.incumbent
        if incumbent.remaining < min(STOP_SECONDS, STOP_SHARE * incumbent.seconds):
            self.interrupt()

    def interrupt(self) -> None:
        """Let toulbar2 send its last bound and end."""
        if not self._is_interrupted:
            self._is_interrupted = True
            self._process.send_signal(signal.SIGINT)

    def finish(self) -> None:
        """Interrupt toulbar2, and receive its last bound if it arrives soon."""
        self.interrupt()
        end = time.monotonic() + STOP_SECONDS
        while not self.is_done and time.monotonic() < end:
            self.receive(end - time.monotonic())

    def _apply(self, line: str) -> None:
        incumbent = self.incumbent
        if SOLUTION_LINE.fullmatch(line):
            strategies = self._network.strategies_of_problem([int(each) for each in line.split()])
            if incumbent.offer(strategies) is None:
                self._fail("it returned an assignment that is not a solution")
        elif found := BOUND_LINE.match(line):
            incumbent.raise_bound(self._network.unit * int(found[1]))
        elif line.startswith("error "):
            self._fail(line.removeprefix("error "))
        elif line.startswith("end "):
            self.is_done = True
            if line == "end optimal" and incumbent.best is None:
                raise infeasible_problem_error(incumbent.problem.name)

    def _fail(self, reason: str) -> None:
        self.is_done = True
        if not self._is_interrupted:
            self.failure = (
                f"toulbar2 failed for the problem {self.incumbent.problem.name!r}: {reason}"
            )

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(OSError, ValueError):
                stream.close()


class CostFunctionNetwork:
    """A problem as a cost function network, without the strategies that no solution has.

    `kept[n]` holds the strategies of the problem that the values of variable `n` stand for. Costs
    are divided by `unit` and rounded down: a bound of the network, multiplied by `unit`, is a bound
    of the problem.
    """

    def __init__(self, incumbent: Incumbent) -> None:
        self.problem = problem = incumbent.problem
        _check_size(problem)
        is_allowed = find_allowed_strategies(problem, incumbent.check_time)
        self.kept = [np.flatnonzero(each) for each in is_allowed]
        tables = [*problem.costs, *(edge.costs for edge in problem.edges)]
        self.total = sum(int(each.max(where=each < FORBIDDEN, initial=0)) for each in tables)
        self.unit = -(-self.total // MAX_TOTAL) or 1

    def model(self, incumbent: Incumbent) -> dict[str, Any]:
        """Return the model that `toulbar2_process` reads."""
        kept, problem = self.kept, self.problem
        return {
            "costs": [self._divide(row[own]) for row, own in zip(problem.costs, kept, strict=True)],
            "edges": [
                (edge.a, edge.b, self._divide(edge.costs[np.ix_(kept[edge.a], kept[edge.b])]))
                for edge in problem.edges
            ],
            "memory": self._memory(),
            "upper_bound": self._upper_bound(incumbent.cost),
            "seconds": math.ceil(min(incumbent.remaining, 1e6)) + 1,
        }

    def _divide(self, costs: Ints) -> np.ndarray:
        return np.where(costs >= FORBIDDEN, np.inf, costs // self.unit)

    def _upper_bound(self, known_cost: int | None) -> int:
        """Return a number that the costs of all better solutions in the network are below."""
        if known_cost is not None and self.unit == 1:
            return known_cost
        return (self.total if known_cost is None else known_cost) // self.unit + 1

    def _limited_cliques(self) -> Iterator[Ints]:
        """Yield the maximal sets of nodes that are alive together and can exceed the limit."""
        problem, limit = self.problem, self.problem.usage_limit
        if limit is None:
            return
        most = np.array(
            [row[own].max() for row, own in zip(problem.usages, self.kept, strict=True)], np.int64
        )
        for clique in problem.maximal_cliques():
            if most[clique].sum() > limit:
                yield clique[most[clique] > 0]

    def _memory(self) -> list[tuple[list[int], list[Ints], int | None]]:
        """Return the nodes, their usages and the limit of each memory constraint."""
        limit = self.problem.usage_limit
        usages = [row[own] for row, own in zip(self.problem.usages, self.kept, strict=True)]
        cliques = (clique.tolist() for clique in self._limited_cliques())
        return [(clique, [usages[node] for node in clique], limit) for clique in cliques]

    def strategies_of_problem(self, values: Sequence[int]) -> tuple[int, ...]:
        """Return the assignment of some values of the variables."""
        return tuple(int(own[value]) for own, value in zip(self.kept, values, strict=True))


def _check_size(problem: PlanningProblem) -> None:
    """Raise `ProblemSizeError` for a problem that is too large."""
    strategy_counts = np.array([len(row) for row in problem.costs], np.int64)
    count = sum(edge.costs.size for edge in problem.edges)
    if problem.usage_limit is not None:
        lives = problem.point_lifetimes
        most = np.array([row.max() for row in problem.usages], np.int64)
        is_limited = lives.sum_over_points(most) > problem.usage_limit
        constraints = np.concatenate([[0], is_limited.cumsum()])
        count += int(
            ((constraints[lives.ends] - constraints[lives.starts]) * strategy_counts).sum()
        )
    if count > MAX_COEFFICIENTS:
        raise ProblemSizeError(
            f"the problem {problem.name!r} needs more than {MAX_COEFFICIENTS:,} coefficients, "
            "which the solver cannot handle; solve a part of it, or one with fewer strategies"
        )
