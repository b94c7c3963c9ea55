"""Measure the engines of `shardir solve` on instances of the IOPDDL contest.

    python benchmarks/planning.py FILE.json.gz ... [--seconds N] [--engine NAME ...]

Prints a Markdown table: cost, lower bound, gap, and the seconds until the last better solution and
until the end. Each row is one run; the time limit includes the construction of the model.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from shardir.passes.planning.automatic import solve_automatically
from shardir.passes.planning.exact import solve_exactly
from shardir.passes.planning.instance import read_problem
from shardir.passes.planning.problem import PlanningError, PlanningProblem
from shardir.passes.planning.search import load_kernels, solve_by_search
from shardir.passes.planning.solution import Solution

ENGINES: dict[str, Callable[..., Solution]] = {
    "auto": solve_automatically,
    "exact": solve_exactly,
    "search": solve_by_search,
}


def measure(problem: PlanningProblem, engine: str, seconds: float) -> str:
    """Return the cells of the result of one engine."""
    best, last = None, 0.0

    def record(now: float, cost: int | None, bound: int | None) -> None:
        nonlocal best, last
        if cost is not None and cost != best:
            best, last = cost, now

    try:
        solution = ENGINES[engine](problem, seconds=seconds, progress=record)
    except PlanningError as error:
        return f"{error} | | | | "
    bound, gap = solution.lower_bound, solution.gap
    return (
        f"{solution.cost:,} | {'none' if bound is None else format(bound, ',')} | "
        f"{'unknown' if gap is None else format(gap, '.2%')} | {last:.1f} | {solution.seconds:.1f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--engine", nargs="*", choices=list(ENGINES), default=list(ENGINES))
    options = parser.parse_args()
    load_kernels()
    print("| instance | nodes | engine | cost | lower bound | gap | found after (s) | time (s) |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for file in options.files:
        problem = read_problem(file)
        name = file.name.split(".", 1)[0]
        for engine in options.engine:
            cells = measure(problem, engine, options.seconds)
            print(f"| {name} | {problem.node_count:,} | {engine} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
