"""`shardir solve` solves planning problems of the IOPDDL contest."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from shardir.errors import os_error_reason
from shardir.frontend.cli.options import CommandError
from shardir.passes.planning.automatic import solve_automatically
from shardir.passes.planning.exact import solve_exactly
from shardir.passes.planning.instance import read_problem
from shardir.passes.planning.problem import PlanningProblem
from shardir.passes.planning.search import solve_by_search
from shardir.passes.planning.solution import Solution, evaluate

ENGINES: dict[str, Callable[..., Solution]] = {
    "auto": solve_automatically,
    "exact": solve_exactly,
    "search": solve_by_search,
}


def solve_instance(
    file: Path,
    seconds: float,
    start: Path | None,
    output: Path | None,
    evaluate_only: bool,
    engine: str,
) -> None:
    """Solve the problem of a file, or evaluate the assignment in `start`, and print the result."""
    if not 0 < seconds < float("inf"):
        raise CommandError(f"--seconds is {seconds}; it must be a positive number")
    if engine not in ENGINES:
        raise CommandError(f"--engine is {engine!r}; it must be one of {', '.join(ENGINES)}")
    problem = read_problem(file)
    assignment = None if start is None else _read_assignment(start)
    if evaluate_only:
        if assignment is None:
            raise CommandError("--evaluate needs an assignment; name its file with --start")
        solution = evaluate(problem, assignment)
    else:
        solution = _solve(problem, seconds, assignment, engine)
    typer.echo(describe(problem, solution))
    if output is not None:
        try:
            output.write_text(json.dumps(solution.strategies) + "\n", encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = os_error_reason(error)
            raise CommandError(f"cannot write {str(output)!r}: {reason}") from None


def describe(problem: PlanningProblem, solution: Solution) -> str:
    """Return a solution as text: cost, peak and limit, lower bound, gap and time."""
    limit = problem.usage_limit
    share = f" of {limit:,} ({solution.peak / limit:.1%})" if limit else ""
    bound, gap = "unknown", "unknown"
    if solution.lower_bound is not None and solution.gap is not None:
        bound = f"{solution.lower_bound:,}"
        gap = f"{solution.gap:.2%}" if solution.gap else "0 % (optimal)"
    strategies = sum(len(costs) for costs in problem.costs)
    lines = [
        f"{problem.name or 'problem'}: {problem.node_count:,} nodes, {len(problem.edges):,} edges, "
        f"{strategies:,} strategies",
        f"cost         {solution.cost:,}",
        f"peak         {solution.peak:,}{share}",
        f"lower bound  {bound}",
        f"gap          {gap}",
        f"time         {solution.seconds:.1f} s",
    ]
    return "\n".join(lines)


def _read_assignment(path: Path) -> tuple[int, ...]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {str(path)!r}: {os_error_reason(error)}") from None
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{str(path)!r} is not valid JSON: {error}") from None
    if not isinstance(content, list) or not all(type(each) is int for each in content):
        raise CommandError(f"{str(path)!r} must be a JSON list with the strategy of each node")
    return tuple(content)


def _solve(
    problem: PlanningProblem, seconds: float, start: tuple[int, ...] | None, engine: str
) -> Solution:
    """Solve a problem with a progress bar, if standard error is a terminal."""
    console = Console(stderr=True)
    with ExitStack() as stack:
        if not console.is_terminal:
            return ENGINES[engine](problem, seconds=seconds, start=start)
        bar = stack.enter_context(
            Progress(
                TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console
            )
        )
        task = bar.add_task("searching (Ctrl-C returns the best solution so far)", total=seconds)

        def show(now: float, cost: int | None, bound: int | None) -> None:
            parts = [f"{name} {number:,}" for name, number in (("cost", cost), ("bound", bound))
                     if number is not None]  # fmt: skip
            bar.update(
                task, completed=min(now, seconds), description=", ".join(parts) or "searching"
            )

        return ENGINES[engine](problem, seconds=seconds, start=start, progress=show)
