"""`plan_program`: find shardings of the arguments of a traced program.

The result is the best of the assignments that the search evaluated and of the given plans:
replicated, data-parallel, and those of the user's annotations. It is therefore never worse than
any of them in the model, which is the partitioned program itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardir.display.byte_sizes import show_bytes
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.passes.pipeline import Pipeline
from shardir.passes.planning.problem import PlanningError
from shardir.passes.planning.programs.assignment import (
    ArgumentAxes,
    Assignment,
    AssignmentReader,
    DimAxes,
)
from shardir.passes.planning.programs.assignment_search import (
    AssignmentSearch,
    Progress,
    group_starts,
)
from shardir.passes.planning.programs.dimension_groups import find_dimension_groups
from shardir.passes.planning.programs.evaluation import (
    Evaluation,
    ProgramEvaluator,
    annotate_arguments,
)
from shardir.passes.planning.programs.repeated_layers import SharedDecisions, share_decisions
from shardir.passes.planning.programs.state_pairs import find_state_pairs
from shardir.passes.simulation import MachineModel
from shardir.passes.simulation.simulate import FUSION_PIPELINE

MOST_EVALUATIONS = 400
"""The number of shardings that a search evaluates at most."""

REPLICATED, DATA_PARALLEL, ANNOTATED = "replicated", "data parallel", "annotated"


@dataclass(frozen=True)
class PlanningRequest:
    """A program to plan, and the limits of the plan.

    `batch` are the numbers of arguments whose first dimension is the batch. `fixed` has the axes of
    arguments that are given, `None` for others; `annotated` those of the user's annotations. Only
    the first `count` parameters are arguments; the others are arrays that the function captures.
    """

    module: Module
    mesh: Mesh
    pipeline: Pipeline
    machine: MachineModel | None = None
    memory_limit: int | None = None
    batch: tuple[int, ...] | None = None
    fixed: tuple[DimAxes | None, ...] | None = None
    annotated: ArgumentAxes | None = None
    donated: tuple[int, ...] = ()
    fusion: str = FUSION_PIPELINE
    most_evaluations: int = MOST_EVALUATIONS
    count: int | None = None


@dataclass(frozen=True)
class ProgramPlan:
    """The chosen evaluation, and those of the plans that it is compared with, by name."""

    chosen: Evaluation
    baselines: Mapping[str, Evaluation]
    evaluation_count: int
    state_pairs: Mapping[int, int]
    decisions: SharedDecisions
    assignment: Assignment
    evaluator: ProgramEvaluator
    reader: AssignmentReader


def plan_program(request: PlanningRequest, progress: Progress | None = None) -> ProgramPlan:
    """Return the best plan found; raise `PlanningError` if none fits into the memory."""
    module, mesh = request.module, request.mesh
    params = module.main.body.params
    pairs = find_state_pairs(module.main.body)
    count = len(params) if request.count is None else request.count
    unsharded: ArgumentAxes = tuple(tuple(() for _ in value.type.shape) for value in params)
    with_mesh = annotate_arguments(module, mesh, unsharded, {})
    groups = find_dimension_groups(with_mesh)
    by_param = {
        old: groups.of_value[new]
        for old, new in zip(params, with_mesh.main.body.params, strict=True)
    }
    decisions = share_decisions(params[:count], by_param)
    fixed = request.fixed or (None,) * len(params)
    reader = AssignmentReader(params, decisions, mesh, fixed, count)
    evaluator = ProgramEvaluator(
        module, mesh, request.machine, request.pipeline, pairs, request.donated, request.fusion
    )
    batch = find_batch(request, pairs)
    axes = [name for name, size in mesh.axes if size > 1]
    batch_groups = find_batch_groups(batch, decisions)
    starts = list(group_starts(batch_groups, axes))
    search = AssignmentSearch(
        evaluator, reader, request.memory_limit, request.most_evaluations, progress
    )
    best = search.run(starts)
    baselines = {}
    candidates: dict[str, ArgumentAxes] = {REPLICATED: reader.axes_of(Assignment())}
    if batch_groups and axes:
        candidates[DATA_PARALLEL] = reader.axes_of(starts[1])
    if request.annotated is not None:
        candidates[ANNOTATED] = request.annotated
    for name, arguments in candidates.items():
        found = evaluator.evaluate(arguments)
        if found is not None:
            baselines[name] = found
    allowed = [found for found in baselines.values() if _respects(found.arguments, fixed)]
    everything = [*([] if best is None else [best]), *allowed]
    if not everything:
        raise PlanningError(
            f"no sharding of the arguments of @{module.main.name} can be partitioned"
        )
    chosen = min(everything, key=lambda found: found.key(request.memory_limit))
    check_memory(chosen, request.memory_limit)
    return ProgramPlan(
        chosen,
        baselines,
        evaluator.count,
        pairs,
        decisions,
        search.best_assignment,
        evaluator,
        reader,
    )


def find_batch(request: PlanningRequest, state_pairs: Mapping[int, int]) -> tuple[int, ...]:
    """Return the numbers of the batch arguments: those given, or the ones that are not state of a
    program that returns the next value of some state."""
    if request.batch is not None:
        return request.batch
    if not state_pairs:
        return ()
    state = set(state_pairs.values())
    params = request.module.main.body.params[: request.count]
    return tuple(n for n, value in enumerate(params) if n not in state and value.type.rank)


def find_batch_groups(batch: Sequence[int], decisions: SharedDecisions) -> tuple[int, ...]:
    """Return the groups with the first dimension of the batch arguments."""
    first = {(number, 0) for number in batch}
    return tuple(n for n, dims in enumerate(decisions.groups) if not first.isdisjoint(dims))


def check_memory(chosen: Evaluation, limit: int | None) -> None:
    """Raise `PlanningError` if a plan exceeds the memory limit, with the smallest limit that is
    known to suffice."""
    if limit is not None and chosen.peak > limit:
        raise PlanningError(
            f"no plan fits into {show_bytes(limit)} on each device: the smallest peak found is "
            f"{show_bytes(chosen.peak)}, {show_bytes(chosen.peak - limit)} more; use a limit of at "
            f"least {chosen.peak} bytes, more devices, or a smaller batch"
        )


def _respects(arguments: ArgumentAxes, fixed: Sequence[DimAxes | None]) -> bool:
    return all(
        wanted is None or found == wanted for found, wanted in zip(arguments, fixed, strict=True)
    )
