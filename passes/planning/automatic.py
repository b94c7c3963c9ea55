"""The automatic engine: the search and toulbar2 improve one incumbent at the same time.

The search runs alone for a short time; then a process of toulbar2 starts with its assignment, and
the search goes on. toulbar2 proves most problems of some hundred nodes optimal; the search finds
good solutions of larger ones. Without toulbar2, and for problems that are too large for it, the
search runs alone for the whole time.
"""

from collections.abc import Sequence

from shardir.passes.planning.exact import ProblemSizeError, SolverProcess, is_solver_installed
from shardir.passes.planning.problem import PlanningProblem
from shardir.passes.planning.search import search
from shardir.passes.planning.solution import Incumbent, Progress, Solution

SEARCH_SHARE = 0.05
MAX_SEARCH_SECONDS = 3.0
"""The search runs alone for `SEARCH_SHARE` of the time, and at most for these seconds."""


def solve_automatically(
    problem: PlanningProblem,
    *,
    seconds: float = 60.0,
    start: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Solution:
    """Return the best solution that the search and toulbar2 find in `seconds`, with a lower bound.

    `start` is an assignment to begin with. Ctrl-C ends both with the best solution. Raises
    `PlanningError` if there is no solution, or none was found in time.
    """
    incumbent = Incumbent(problem, seconds, None if start is None else tuple(start), progress)
    engines = Engines(incumbent)
    try:
        search(incumbent, is_done=engines.is_done)
        engines.finish()
    finally:
        engines.close()
    return incumbent.solution()


class Engines:
    """The process of toulbar2 beside the search, which starts after a short time."""

    def __init__(self, incumbent: Incumbent) -> None:
        self.incumbent = incumbent
        self.process: SolverProcess | None = None
        self.is_exact = is_solver_installed()
        """True if toulbar2 runs or is to be started."""

    def is_done(self) -> bool:
        """Start toulbar2 when it is time, receive its lines, and return whether all is proven."""
        incumbent = self.incumbent
        if not self.is_exact or (self.process is not None and self.process.is_done):
            return False
        if self.process is None:
            if incumbent.elapsed_seconds < min(
                SEARCH_SHARE * incumbent.seconds, MAX_SEARCH_SECONDS
            ):
                return False
            try:
                self.process = SolverProcess(incumbent)
            except ProblemSizeError:
                self.is_exact = False
                return False
        self.process.interrupt_in_time()
        self.process.receive()  # If toulbar2 fails, the search goes on.
        return incumbent.is_optimal

    def finish(self) -> None:
        """Receive the last bound of toulbar2 if Ctrl-C has ended the search."""
        incumbent = self.incumbent
        if self.process is not None and incumbent.remaining > 0 and not incumbent.is_optimal:
            self.process.finish()

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.close()
