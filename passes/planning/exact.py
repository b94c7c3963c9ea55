"""The exact engine: a mixed integer linear program, solved by HiGHS (extra `exact`).

Each strategy of a node is a binary variable `x`; each allowed pair of strategies of an edge is a
variable `y` of 0 to 1. For each edge, the sums of `y` over the strategies of one node equal the
`x` of the other one (the local polytope of a graphical model, whose relaxation is tighter than that
of the usual `y >= x_a + x_b - 1`). The memory of each maximal set of nodes that are alive together
is one row.

HiGHS runs in a process of its own (`highs_process.py`), which ends at the time limit and at Ctrl-C;
the solutions and bounds that it has sent until then remain.
"""

import importlib.util
import math
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from shardir.errors import ShardirError
from shardir.passes.planning.problem import (
    FORBIDDEN,
    PlanningError,
    PlanningProblem,
    infeasible_problem_error,
    interrupted_search_error,
)
from shardir.passes.planning.solution import Incumbent, Progress, Solution, TimeLimitError

MAX_VARIABLES = 2_000_000
"""The maximum number of variables. HiGHS 1.16 takes longer than its time limit for the first
relaxation of larger programs: 10 minutes did not suffice for 34,932 nodes and 54,801 edges."""

REPORT_INTERVAL_SECONDS = 0.2
"""The maximum time between two reports of the progress."""

MEMORY_SCALE = 1e4
"""The memory limit in the rows of the linear program."""


class SolverMissingError(ShardirError, ImportError):
    """A package that an engine needs is not installed."""


class ProblemSizeError(PlanningError):
    """A problem that has too many variables for the exact engine."""


def solve_exactly(
    problem: PlanningProblem,
    *,
    seconds: float = 60.0,
    start: Sequence[int] | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
) -> Solution:
    """Return the best solution that HiGHS finds in `seconds`, with a proven lower bound.

    `start` is an assignment to begin with. Ctrl-C ends the search with the best solution. Raises
    `PlanningError` if there is no solution, or none was found in time, and `SolverMissingError`
    without HiGHS. Warns if HiGHS fails after it has found a solution.
    """
    incumbent = Incumbent(problem, seconds, None if start is None else tuple(start), progress)
    process = None
    try:
        process = HighsProcess(incumbent, threads)
        while incumbent.remaining > 0 and not process.is_done:
            process.receive(min(incumbent.remaining, REPORT_INTERVAL_SECONDS))
            incumbent.report()
        if process.failure is not None:
            if incumbent.best is None:
                raise PlanningError(process.failure)
            warnings.warn(process.failure, RuntimeWarning, stacklevel=2)
    except TimeLimitError:
        pass
    except KeyboardInterrupt:
        if incumbent.best is None:
            raise interrupted_search_error() from None
    finally:
        if process is not None:
            process.close()
    return incumbent.solution()


def is_solver_installed() -> bool:
    """Return whether HiGHS is installed."""
    return importlib.util.find_spec("highspy") is not None


class HighsProcess:
    """A process in which HiGHS improves an incumbent.

    The process has a session of its own, so that Ctrl-C reaches only this one. Raises
    `SolverMissingError` without HiGHS, and `PlanningError` for problems that are too large.
    """

    def __init__(self, incumbent: Incumbent, threads: int | None = None) -> None:
        if not is_solver_installed():
            raise SolverMissingError(
                "the exact engine needs HiGHS; install it with pip install 'shardir[exact]'"
            )
        self.incumbent = incumbent
        self.is_done = False
        """True if HiGHS has ended."""
        self.failure: str | None = None
        """The reason if HiGHS has ended with an error."""
        self._solution: int | None = None
        """The cost of the last solution of HiGHS."""
        program = _Program(incumbent.problem, incumbent.check_time)
        self._columns = program.columns
        self._messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(
            # -P: no module of this folder hides one of another package.
            [sys.executable, "-P", str(Path(__file__).with_name("highs_process.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
        )
        try:
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()
            self._write(program.model(incumbent, threads))
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
        """Move the messages of the process to the queue."""
        assert self._process.stdout is not None
        try:
            while True:
                self._messages.put(pickle.load(self._process.stdout))
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            self._messages.put(("error", "the process ended unexpectedly"))

    def receive(self, seconds: float = 0.0) -> None:
        """Apply all messages to the incumbent; wait up to `seconds` for the first one."""
        try:
            self._apply(*self._messages.get(timeout=max(seconds, 0.0)))
            while not self.is_done:
                self._apply(*self._messages.get_nowait())
        except queue.Empty:
            pass

    def _apply(self, kind: str, content: Any) -> None:
        incumbent = self.incumbent
        if kind == "solution":
            self._solution = incumbent.offer(self._strategies(content))
        elif kind == "bound":
            incumbent.raise_bound(_round_up(content))
        elif kind == "error":
            self.is_done = True
            self.failure = f"HiGHS failed for the problem {incumbent.problem.name!r}: {content}"
        else:
            self.is_done = True
            if content == "infeasible":
                raise infeasible_problem_error(incumbent.problem.name)
            if content == "optimal" and self._solution is not None:
                incumbent.raise_bound(self._solution)

    def _strategies(self, values: np.ndarray) -> tuple[int, ...]:
        return tuple(
            int(np.argmax(np.where(numbers >= 0, values[numbers], -1.0)))
            for numbers in self._columns
        )

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(OSError, ValueError):
                stream.close()


class _Program:
    """The linear program of a problem."""

    def __init__(self, problem: PlanningProblem, check_time: Callable[[], None]) -> None:
        self.problem = problem
        self.columns: list[np.ndarray] = []
        """The number of the variable of each strategy of each node; -1 for forbidden strategies."""
        costs, count = [], 0
        for node_costs in problem.costs:
            is_allowed = node_costs < FORBIDDEN
            numbers = np.where(is_allowed, count + is_allowed.cumsum() - 1, -1)
            self.columns.append(numbers)
            costs.append(node_costs[is_allowed])
            count += int(is_allowed.sum())
        self.integer_count = count
        self.rows: list[np.ndarray] = []
        self.entries: list[tuple[np.ndarray, np.ndarray]] = []
        self.lower: list[float] = []
        self.upper: list[float] = []
        for numbers in self.columns:
            allowed = numbers[numbers >= 0]
            self._add_row(allowed, np.ones(len(allowed)), 1.0, 1.0)
        for edge in problem.edges:
            check_time()
            count += self._add_edge(edge.costs, self.columns[edge.a], self.columns[edge.b], count)
            if count > MAX_VARIABLES:
                raise ProblemSizeError(
                    f"the problem {problem.name!r} needs more than {MAX_VARIABLES:,} variables, "
                    "which the solver cannot handle; solve a part of it, or one with fewer "
                    "strategies"
                )
            costs.append(self.edge_costs)
        self._add_memory_rows()
        self.costs = np.concatenate(costs).astype(np.float64)

    def _add_row(self, columns: np.ndarray, values: np.ndarray, lower: float, upper: float) -> None:
        self.entries.append((columns, values))
        self.lower.append(lower)
        self.upper.append(upper)

    def _add_edge(self, costs: np.ndarray, a: np.ndarray, b: np.ndarray, first: int) -> int:
        """Add the variables and rows of an edge; return the number of variables."""
        is_allowed = (costs < FORBIDDEN) & (a >= 0)[:, None] & (b >= 0)[None, :]
        numbers = np.where(is_allowed, first + is_allowed.cumsum().reshape(costs.shape) - 1, -1)
        self.edge_costs = costs[is_allowed]
        for table, nodes in ((numbers, a), (numbers.T, b)):
            for pairs, node in zip(table, nodes, strict=True):
                if node >= 0:
                    pairs = pairs[pairs >= 0]
                    values = np.append(np.ones(len(pairs)), -1.0)
                    self._add_row(np.append(pairs, node), values, 0.0, 0.0)
        return int(is_allowed.sum())

    def _add_memory_rows(self) -> None:
        limit = self.problem.usage_limit
        if limit is None:
            return
        usages = self.problem.usages
        for clique in self.problem.maximal_cliques():
            if sum(int(usages[node].max()) for node in clique) <= limit:
                continue
            columns = np.concatenate([self.columns[node] for node in clique])
            values = np.concatenate([usages[node] for node in clique]).astype(np.float64)
            is_used = (columns >= 0) & (values > 0)
            # HiGHS accepts rows that are exceeded by 1e-6: the scale makes that less than a unit.
            scale = MEMORY_SCALE / max(limit, 1)
            self._add_row(columns[is_used], values[is_used] * scale, -np.inf, limit * scale)

    def model(self, incumbent: Incumbent, threads: int | None) -> dict[str, Any]:
        """Return the model that `highs_process` reads."""
        sizes = [len(columns) for columns, _ in self.entries]
        return {
            "costs": self.costs,
            "lower": np.array(self.lower),
            "upper": np.array(self.upper),
            "row_starts": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
            "columns": np.concatenate([c for c, _ in self.entries]).astype(np.int32),
            "values": np.concatenate([v for _, v in self.entries]),
            "integer_count": self.integer_count,
            "start": None if incumbent.best is None else self._start(incumbent.best[1]),
            "threads": threads,
            "end": time.time() + incumbent.remaining,
        }

    def _start(self, strategies: Sequence[int]) -> np.ndarray:
        values = np.zeros(self.integer_count)
        values[[self.columns[node][chosen] for node, chosen in enumerate(strategies)]] = 1.0
        return values


def _round_up(bound: float) -> int:
    """Return the least integer that is certainly not above the cost of a solution."""
    return math.ceil(bound - 1e-6 - 1e-9 * abs(bound))
