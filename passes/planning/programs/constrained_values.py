"""Constraints of values inside of a program, from the optimum of its planning problem.

The search shards arguments, and propagation determines the shardings of all other values. The
planning problem (`strategy_problem.py`) decides each value on its own, so that its optimum may send
less. That optimum is one more candidate: the shardings of its arguments, and the fewest constraints
of values with which the program still costs as little. The passes and the cost model are those of
all candidates.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.passes.pipeline import Pipeline
from shardir.passes.planning.problem import PlanningError
from shardir.passes.planning.programs.assignment import ArgumentAxes, DimAxes, find_problem
from shardir.passes.planning.programs.evaluation import (
    Evaluation,
    Evaluator,
    annotate_arguments,
)
from shardir.passes.planning.programs.placements import Placement
from shardir.passes.planning.programs.planning_request import (
    PREPARATION,
    PlanningRequest,
    make_evaluator,
)
from shardir.passes.planning.programs.state_pairs import find_state_pairs
from shardir.passes.planning.programs.strategy_problem import build_strategy_problem
from shardir.passes.planning.search import list_solutions
from shardir.passes.propagation.propagate import Propagate

MAX_CONSTRAINT_EVALUATIONS = 48
"""The number of sets of constraints that are evaluated at most for one plan."""
MAX_SOLUTIONS = 4
"""The number of solutions of the planning problem that are evaluated at most, the cheapest ones."""
MAX_CONSTRAINTS = 32
"""The number of constraints with which a solution is evaluated at most."""
MAX_CONSTRAINED_OPERATIONS = 2000
"""The number of operations of the largest program whose values are constrained. The 1,833,000 pairs
of the training step of an attention layer with 853 operations on two axes take 1 s to build and 4 s
to search, on one core of an AMD EPYC processor; larger programs would take longer than the search
with whole axes does."""
MAX_PAIRS_OF_STRATEGIES = 2_000_000
"""The number of pairs of strategies of the largest planning problem that is searched."""


@dataclass(frozen=True)
class ConstrainedPlan:
    """An evaluation with constraints of the anchors of a request."""

    request: PlanningRequest
    evaluator: Evaluator
    evaluation: Evaluation


def constrain_values(
    request: PlanningRequest, chosen: Evaluation, max_evaluations: int
) -> ConstrainedPlan | None:
    """Return the program with the shardings of a solution of its planning problem; `None` if no
    solution that is found is cheaper than the chosen evaluation, or if the program is too large.

    The numbers of operations, of steps of the search for solutions and of evaluations limit the
    time, so that the plan does not depend on the speed of the machine.
    """
    body = request.module.main.body
    if len(body.ops) > MAX_CONSTRAINED_OPERATIONS:
        return None
    anchors = tuple(value for op in body.ops for value in op.results if value.sharding is None)
    request = replace(request, anchors=anchors)
    evaluator = make_evaluator(request)
    limit = request.memory_limit
    max_evaluations = min(max_evaluations, MAX_CONSTRAINT_EVALUATIONS)
    best, best_axes = chosen, None
    for axes in _list_solution_axes(request, chosen):
        if evaluator.count >= max_evaluations:
            break
        found = evaluator.evaluate(_reduce_by_propagation(request, axes), best)
        if found is not None and found.key(limit) < best.key(limit):
            best, best_axes = found, found.arguments
    if best_axes is None:
        return None

    def is_sufficient(kept: Sequence[int]) -> bool | None:
        """Return whether some constraints cost as little; `None` without evaluations left."""
        nonlocal best
        if evaluator.count >= max_evaluations:
            return None
        kept_axes = (axes if i < first or i in kept else None for i, axes in enumerate(best_axes))
        found = evaluator.evaluate(tuple(kept_axes), best)
        if found is None or found.key(limit)[:-1] > best.key(limit)[:-1]:
            return False
        best = found
        return True

    first = len(body.params)
    values = (*body.params, *anchors)
    constrained = [i for i in range(first, len(values)) if best_axes[i] is not None]
    constrained.sort(key=lambda i: not values[i].name.isdigit())
    _remove_needless(constrained, is_sufficient)
    return ConstrainedPlan(request, evaluator, best)


def _list_solution_axes(request: PlanningRequest, chosen: Evaluation) -> Iterator[ArgumentAxes]:
    """Yield the axes of arguments and anchors in the cheapest solutions of the planning problem
    that send less than a plan; `None` for anchors without a placement that a constraint states."""
    module = Pipeline.parse(PREPARATION)(request.module)
    params = module.main.body.params
    try:
        problem = build_strategy_problem(
            module,
            request.mesh,
            find_state_pairs(module.main, request.count),
            request.fixed or (),
            request.count,
            pads=request.pads,
            max_pairs=MAX_PAIRS_OF_STRATEGIES,
        )
        is_divided = problem.flops == chosen.flops
        solutions = list_solutions(problem.problem, chosen.bytes_sent if is_divided else math.inf)
    except PlanningError:  # The problem is too large, or the given shardings leave no solution.
        return
    if problem.flops > chosen.flops:
        return
    count = len(params) if request.count is None else request.count
    for solution in solutions[:MAX_SOLUTIONS]:
        placed = problem.place_values(solution.strategies)
        names = {value.name: placement for value, placement in placed.items()}
        arguments = [
            _axes_of(placed[value], value, request.mesh) if number < count else None
            for number, value in enumerate(params)
        ]
        anchors = [
            _axes_of(names[value.name], value, request.mesh) if value.name in names else None
            for value in request.anchors
        ]
        yield (
            *arguments,
            *(
                axes
                if axes and find_problem(axes, value.type.shape, request.mesh) is None
                else None
                for axes, value in zip(anchors, request.anchors, strict=True)
            ),
        )


def _axes_of(placement: Placement, value: Value, mesh: Mesh) -> DimAxes:
    """Return the axes of each dimension of a value in a placement."""
    names = [name for name, size in mesh.axes if size > 1]
    return tuple(
        tuple(name for name, place in zip(names, placement, strict=True) if place == dim)
        for dim in range(value.type.rank)
    )


def _reduce_by_propagation(request: PlanningRequest, argument_axes: ArgumentAxes) -> ArgumentAxes:
    """Return the axes without those of anchors that propagation from the others chooses."""
    first = len(request.module.main.body.params)
    kept: list[DimAxes | None] = [*argument_axes[:first], *[None] * len(request.anchors)]
    for _ in range(MAX_CONSTRAINTS):
        found = _propagate(request, tuple(kept))
        missing = [
            number
            for number, value in enumerate(request.anchors, first)
            if argument_axes[number] is not None
            and found.get(value.name) != argument_axes[number]
            and kept[number] is None
        ]
        if not missing:
            break
        kept[missing[0]] = argument_axes[missing[0]]
    return tuple(kept)


def _propagate(request: PlanningRequest, axes: ArgumentAxes) -> dict[str, DimAxes]:
    """Return the axes of the values of a program after propagation, by their names."""
    passes = request.pipeline.passes
    last = next((i for i, each in enumerate(passes) if isinstance(each, Propagate)), -1)
    pairs = find_state_pairs(request.module.main, request.count)
    annotated = annotate_arguments(request.module, request.mesh, axes, pairs, request.anchors)
    return {
        value.name: tuple(tuple(axis.name for axis in dim) for dim in value.sharding.axes)
        if value.sharding is not None
        else ((),) * value.type.rank
        for op in Pipeline(passes[: last + 1])(annotated).main.body.ops
        for value in op.results
    }


def _remove_needless(
    values: Sequence[int], is_sufficient: Callable[[Sequence[int]], bool | None]
) -> None:
    """Remove values while the others are sufficient: first all of them, then halves, and so on to
    single ones (A. Zeller and R. Hildebrandt, "Simplifying and isolating failure-inducing input",
    2002). Ends if `is_sufficient` returns `None`."""
    kept, size = list(values), len(values)
    while size:
        start = 0
        while start < len(kept):
            fewer = [*kept[:start], *kept[start + size :]]
            verdict = is_sufficient(fewer)
            if verdict is None:
                return
            if verdict:
                kept = fewer
            else:
                start += size
        size = min(size, len(kept) + 1) // 2
