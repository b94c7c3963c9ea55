"""The exact engine: a mixed integer linear program, solved by HiGHS (extra `exact`).

Each strategy of a node is a binary variable `x`; each allowed pair of strategies of an edge is a
variable `y` of 0 to 1. For each edge, the sums of `y` over the strategies of one node equal the
`x` of the other one (the local polytope of a graphical model, whose relaxation is tighter than that
of the usual `y >= x_a + x_b - 1`). The memory of each maximal set of nodes that are alive together
is one row.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from shardir.errors import ShardirError
from shardir.passes.planning.problem import FORBIDDEN, PlanningError, PlanningProblem
from shardir.passes.planning.solution import Solution, evaluate

MAX_VARIABLES = 2_000_000
"""The maximum number of variables. HiGHS 1.16 takes longer than its time limit for the first
relaxation of larger programs: 10 minutes did not suffice for 34,932 nodes and 54,801 edges."""


MEMORY_SCALE = 1e4
"""The memory limit in the rows of the linear program."""


class SolverMissingError(ShardirError, ImportError):
    """A package that an engine needs is not installed."""


Progress = Callable[[float, int | None, int | None], None]
"""Receives the seconds since the start, the best cost and the lower bound."""


def solve_exactly(
    problem: PlanningProblem,
    *,
    seconds: float = 60.0,
    start: Sequence[int] | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
) -> Solution:
    """Return the best solution that HiGHS finds in about `seconds`, with a proven lower bound.

    `start` is an assignment to begin with. Ctrl-C requests the end of the search with the best
    solution; HiGHS checks for it, and for the time limit, between steps that may take minutes.
    Raises `PlanningError` if there is no solution, or none was found in time, and
    `SolverMissingError` without HiGHS.
    """
    return _Program(problem).solve(seconds, start, progress, threads)


class _Program:
    """The linear program of a problem."""

    def __init__(self, problem: PlanningProblem) -> None:
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
            count += self._add_edge(edge.costs, self.columns[edge.a], self.columns[edge.b], count)
            if count > MAX_VARIABLES:
                raise PlanningError(
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

    def solve(
        self,
        seconds: float,
        start: Sequence[int] | None,
        progress: Progress | None,
        threads: int | None,
    ) -> Solution:
        highspy = _import_highs()
        begun = time.monotonic()
        with _discard_standard_output():  # HiGHS prints its name and version.
            solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("time_limit", float(seconds))
        solver.setOptionValue("mip_rel_gap", 0.0)
        solver.setOptionValue("mip_abs_gap", 0.999)  # Costs are integers.
        if threads is not None:
            solver.setOptionValue("threads", threads)
        solver.passModel(self._model(highspy))
        if start is not None:
            self._set_start(highspy, solver, start)
        if progress is not None:

            def report(event: object) -> None:
                data = event.data_out  # type: ignore[attr-defined]
                best, bound = data.mip_primal_bound, data.mip_dual_bound
                progress(
                    time.monotonic() - begun,
                    None if not np.isfinite(best) else round(best),
                    None if not np.isfinite(bound) else _round_up(bound),
                )

            solver.cbMipLogging += report
        solver.HandleKeyboardInterrupt = True
        solver.solve()
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            raise PlanningError(f"the problem {self.problem.name!r} has no solution")
        info = solver.getInfo()
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            raise PlanningError(
                f"no solution was found in {seconds:g} seconds; allow more time (--seconds)"
            )
        values = np.array(solver.getSolution().col_value[: self.integer_count])
        strategies = tuple(
            int(np.argmax(np.where(numbers >= 0, values[numbers], -1.0)))
            for numbers in self.columns
        )
        bound = _round_up(info.mip_dual_bound) if np.isfinite(info.mip_dual_bound) else None
        solution = evaluate(self.problem, strategies, None, time.monotonic() - begun)
        if status == highspy.HighsModelStatus.kOptimal or (bound or 0) > solution.cost:
            bound = solution.cost
        return evaluate(self.problem, strategies, bound, solution.seconds)

    def _model(self, highspy: ModuleType) -> object:
        model = highspy.HighsLp()
        model.num_col_ = len(self.costs)
        model.num_row_ = len(self.entries)
        model.col_cost_ = self.costs
        model.col_lower_ = np.zeros(len(self.costs))
        model.col_upper_ = np.ones(len(self.costs))
        model.row_lower_ = np.array(self.lower)
        model.row_upper_ = np.array(self.upper)
        kinds = [highspy.HighsVarType.kContinuous] * len(self.costs)
        kinds[: self.integer_count] = [highspy.HighsVarType.kInteger] * self.integer_count
        model.integrality_ = kinds
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        sizes = [len(columns) for columns, _ in self.entries]
        model.a_matrix_.start_ = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        model.a_matrix_.index_ = np.concatenate([c for c, _ in self.entries]).astype(np.int32)
        model.a_matrix_.value_ = np.concatenate([v for _, v in self.entries])
        return model

    def _set_start(self, highspy: ModuleType, solver: Any, start: Sequence[int]) -> None:
        evaluate(self.problem, tuple(start))
        values = np.zeros(self.integer_count)
        values[[self.columns[node][chosen] for node, chosen in enumerate(start)]] = 1.0
        solver.setSolution(
            self.integer_count, np.arange(self.integer_count, dtype=np.int32), values
        )


def _round_up(bound: float) -> int:
    """Return the least integer that is certainly not above the cost of a solution."""
    return math.ceil(bound - 1e-6 - 1e-9 * abs(bound))


@contextmanager
def _discard_standard_output() -> Iterator[None]:
    """Discard what C code writes to standard output."""
    sys.stdout.flush()
    try:
        saved = os.dup(1)
    except OSError:  # Standard output is closed.
        yield
        return
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _import_highs() -> ModuleType:
    try:
        import highspy  # An optional dependency.
    except ImportError:
        raise SolverMissingError(
            "the exact engine needs HiGHS; install it with pip install 'shardir[exact]'"
        ) from None
    module: ModuleType = highspy
    return module
