"""The search without a solver finds the optima of the planning problems of programs, and proves
them; toulbar2 finds the same costs. Both together prove the optima that the search does not prove.

The problems have no memory limit. toulbar2 solves all problems of one test together: the optimum of
independent problems is the sum of their optima, and no cost of the search is below one of them.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pytest

from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.passes.pipeline import Pipeline
from shardir.passes.planning.automatic import solve_automatically
from shardir.passes.planning.exact import is_solver_installed, solve_exactly
from shardir.passes.planning.problem import Edge, PlanningProblem
from shardir.passes.planning.programs.planning_request import PREPARATION
from shardir.passes.planning.programs.state_pairs import find_state_pairs
from shardir.passes.planning.programs.strategy_problem import build_strategy_problem
from shardir.passes.planning.search import load_kernels, solve_by_search
from tests.passes.planning.programs.program_corpus import (
    FAMILIES,
    MESHES,
    plannable_programs,
)

MAX_OPERATIONS = 2000
SECONDS = 900.0
"""The time limit of one search, also on a machine with much other work; a search ends when its
solution is proven optimal."""
SMALL_FAMILIES = {"operations": 40, "stories": 40, "random": 40}
"""The families whose programs are small, with the number of programs of one test."""
UNPROVEN = {
    ("square", "published: language model, tensor parallel"),
    ("square", "workload: MLP step, float32"),
    ("square", "workload: MLP step, bfloat16"),
}
"""The programs whose optimum the search alone does not prove in a minute."""
NOT_COMPARED = {("rectangle", "benchmark: transformer, 8 layers")}
"""The program whose optimum toulbar2 does not prove within 28 s of processor time."""


def problem_of(module: Module, mesh: Mesh) -> PlanningProblem:
    module = Pipeline.parse(PREPARATION)(module)
    return build_strategy_problem(module, mesh, find_state_pairs(module.main)).problem


def unite(problems: Sequence[PlanningProblem]) -> PlanningProblem:
    """Return the problem of several problems that have nothing in common."""
    starts = np.cumsum([0, *(each.node_count for each in problems)]).tolist()
    lives = np.zeros(starts[-1], np.int64)
    return PlanningProblem(
        "several programs",
        lives,
        lives,
        [costs for each in problems for costs in each.costs],
        [usages for each in problems for usages in each.usages],
        [
            Edge(start + edge.a, start + edge.b, edge.costs)
            for start, each in zip(starts, problems, strict=False)
            for edge in each.edges
        ],
        None,
    )


def small_programs(family: str, names: Sequence[str]) -> list[tuple[str, Module]]:
    """Return the programs with some names and at most `MAX_OPERATIONS` operations; skip the test if
    no plan can be made of any of them."""
    programs = [
        (name, module)
        for name, module in plannable_programs(family, names)
        if len(list(module.main.body.walk())) <= MAX_OPERATIONS
    ]
    if not programs:
        pytest.skip("no plan can be made of these programs")
    return programs


def cases() -> Iterator[object]:
    for family, programs in FAMILIES.items():
        size = SMALL_FAMILIES.get(family, 1)
        for mesh in ("line", "square"):
            is_fast = family == "operations" or (family in SMALL_FAMILIES and mesh == "line")
            mark = pytest.mark.sample(16) if is_fast else pytest.mark.long
            for first in range(0, len(programs), size):
                yield pytest.param(family, mesh, first, size, marks=mark)


@pytest.mark.parametrize(("family", "mesh", "first", "size"), list(cases()))
def test_the_search_finds_the_optima_of_programs(
    family: str, mesh: str, first: int, size: int
) -> None:
    names = list(islice(FAMILIES[family], first, first + size))
    load_kernels()
    problems, costs = [], []
    for name, module in small_programs(family, names):
        if (mesh, name) in UNPROVEN:
            pytest.skip("the search does not prove the optimum of this program")
        problem = problem_of(module, MESHES[mesh])
        solution = solve_by_search(problem, seconds=SECONDS)
        assert solution.gap == 0.0, name
        problems.append(problem)
        costs.append(solution.cost)
    if is_solver_installed():
        exact = solve_exactly(unite(problems), seconds=SECONDS)
        assert (exact.cost, exact.gap) == (sum(costs), 0.0)


def cases_of_both_engines() -> Iterator[object]:
    for family, programs in FAMILIES.items():
        if family not in SMALL_FAMILIES:
            for name in programs:
                for mesh in ("square", "rectangle"):
                    is_selected = mesh == "rectangle" or (mesh, name) in UNPROVEN
                    if is_selected and (mesh, name) not in NOT_COMPARED:
                        yield pytest.param(family, mesh, name)


@pytest.mark.long
@pytest.mark.needs("pytoulbar2")
@pytest.mark.parametrize(("family", "mesh", "name"), list(cases_of_both_engines()))
def test_both_engines_prove_the_optima_of_programs(family: str, mesh: str, name: str) -> None:
    load_kernels()
    for _, module in small_programs(family, [name]):
        solution = solve_automatically(problem_of(module, MESHES[mesh]), seconds=SECONDS)
        assert solution.gap == 0.0
