"""`plan_program`: find shardings of the arguments of a traced program.

The result is the best of the assignments that the search evaluated and of the given plans:
replicated, data-parallel, and those of the user's annotations. It is therefore never worse than
any of them in the model, which is the partitioned program itself. A program with many layers is
searched with few of them (`extrapolation.py`), and the best plan is evaluated with all layers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from shardir.errors import PartitionError
from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.ops.control_flow.pipelines import has_pipelines
from shardir.passes.garbage_collection import paused_garbage_collection
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
from shardir.passes.planning.programs.axis_splits import predict_splits
from shardir.passes.planning.programs.constrained_values import constrain_values
from shardir.passes.planning.programs.contraction_model import MIN_IMPROVEMENT
from shardir.passes.planning.programs.evaluation import Evaluation, Evaluator
from shardir.passes.planning.programs.extrapolation import ExtrapolatingEvaluator, fold_program
from shardir.passes.planning.programs.memory_remedies import check_memory
from shardir.passes.planning.programs.planning_request import PlanningRequest
from shardir.passes.planning.programs.repeated_layers import SharedDecisions, classify_params
from shardir.passes.planning.programs.search_space import (
    SearchSpace,
    find_search_anchors,
    make_search_space,
)
from shardir.passes.planning.programs.state_pairs import find_state_pairs
from shardir.passes.rematerialization.remat import BudgetError
from shardir.passes.resharding.reshard import Reshard

FOLDED_MIN_IMPROVEMENT = 0.002
"""The relative improvement from which on a search with fewer layers accepts a move; its evaluations
take longer than those of small programs."""

SPLIT_CANDIDATES_PART = 1 / 32
"""The number of candidates with split axes that are evaluated before one of them is better, as a
part of the number of candidates with whole axes."""
MIN_SPLIT_CANDIDATES = 1
"""The number of candidates with split axes that are evaluated at least."""

CONSTRAINT_CANDIDATES_PART = 1 / 8
"""The number of candidates with constraints that a search evaluates if it has reached its limit of
candidates, as a part of this limit."""

REPLICATED, DATA_PARALLEL, ANNOTATED = "replicated", "data parallel", "annotated"


@dataclass(frozen=True)
class ProgramPlan:
    """The chosen evaluation, and those of the plans that it is compared with, by name.

    A program with many layers is searched with fewer of them: `searched` is the evaluation of the
    chosen plan in the search, and the baselines are extrapolated. `expand` returns the axes of all
    arguments from those in the search. Otherwise `searched` is `chosen`. `classes` has the indices
    of the arguments that differ in the number of a layer only. `anchors` are the values whose axes
    follow those of the arguments. `request` is the request on the mesh of the plan, which may have
    two parts of an axis of the given mesh as axes. `rejected` is the
    number of candidates on other meshes.
    """

    request: PlanningRequest
    chosen: Evaluation
    searched: Evaluation
    baselines: Mapping[str, Evaluation]
    state_pairs: Mapping[int, int]
    classes: tuple[tuple[int, ...], ...]
    assignment: Assignment
    evaluator: Evaluator
    reader: AssignmentReader
    expand: Callable[[ArgumentAxes], ArgumentAxes]
    anchors: tuple[Value, ...] = ()
    rejected: int = 0

    @property
    def evaluation_count(self) -> int:
        """The number of candidates that the search evaluated."""
        return self.evaluator.count + self.rejected

    @property
    def constraints(self) -> dict[str, DimAxes]:
        """The axes of anchors with a sharding, by their names."""
        axes = self.chosen.arguments[len(self.reader.params) :]
        named = zip(self.anchors, axes, strict=False)
        return {value.name: stated for value, stated in named if stated is not None}

    @property
    def is_extrapolated(self) -> bool:
        """Return whether the search used a program with fewer layers."""
        return self.searched is not self.chosen


@paused_garbage_collection()
def plan_program(request: PlanningRequest, progress: Progress | None = None) -> ProgramPlan:
    """Return the best plan found; raise `PlanningError` if none fits into the memory."""
    # The stages of a pipeline are partitioned on their own.
    is_staged = has_pipelines(request.module)
    programs = None if is_staged else fold_program(request.module)
    if programs is None and not is_staged:
        request = replace(request, anchors=find_search_anchors(request))
    space = make_search_space(request, programs)
    plan = _plan_on_mesh(space, progress)
    if request.machine_of is not None and not request.module.meshes and not is_staged:
        plan = _split_axes(space, plan, progress)
    if programs is None and not is_staged:
        plan = _constrain_values(_pad_anchors(request, plan, progress))
    check_memory(plan.chosen, request)
    chosen = replace(plan.request, max_evaluations=request.max_evaluations, machine_of=None)
    return replace(plan, request=chosen)


def _plan_on_mesh(
    space: SearchSpace, progress: Progress | None, start: Assignment | None = None
) -> ProgramPlan:
    """Return the best plan on the mesh of a search, even if it does not fit into the memory."""
    plan = _with_all_layers(_search(space, progress, start), space)
    limit = space.program.memory_limit
    if limit is not None and plan.chosen.peak > limit >= plan.searched.peak:
        # The peak of all layers is larger than the extrapolated one.
        smaller = space.with_memory_limit(limit * plan.searched.peak // plan.chosen.peak)
        plan = _with_all_layers(_search(smaller, progress, start), space)
    return plan


def _split_axes(space: SearchSpace, plan: ProgramPlan, progress: Progress | None) -> ProgramPlan:
    """Return a plan, or a better one on a mesh with two parts of an axis as axes."""
    limit = space.program.memory_limit
    starts = predict_splits(plan.assignment, space.model_contractions(), space.request.mesh)
    best, found = plan.searched, None
    left = max(MIN_SPLIT_CANDIDATES, int(plan.evaluation_count * SPLIT_CANDIDATES_PART))
    spaces: dict[Mesh, SearchSpace] = {}
    for split, start in starts:
        if left == 0:
            break
        left -= 1
        if split.mesh not in spaces:
            spaces[split.mesh] = space.split(split)
        parts = spaces[split.mesh]
        evaluation = parts.evaluator.evaluate(
            parts.reader.axes_of(start), None if best.excess(limit) else best
        )
        if evaluation is not None and _is_cheaper(evaluation, best, limit):
            best, found = evaluation, (split, start)
    if found is None:
        return plan
    split, start = found
    parts = spaces[split.mesh]
    others = sum(each.evaluator.count for mesh, each in spaces.items() if mesh != split.mesh)
    rejected = plan.evaluation_count + others
    left = max(1, space.request.max_evaluations - rejected)
    better = _plan_on_mesh(parts.with_max_evaluations(left), progress, start)
    if not _is_cheaper(better.chosen, plan.chosen, limit):
        return plan
    return replace(better, rejected=rejected)


def _is_cheaper(found: Evaluation, best: Evaluation, memory_limit: int | None) -> bool:
    """Return whether a plan is better than another one by more than `MIN_IMPROVEMENT`: it fits into
    the memory better, or costs less."""
    before, after = (each.excess(memory_limit) for each in (best, found))
    if before != after:
        return after < before
    for old, new in zip(best.cost, found.cost, strict=True):
        if new != old:
            return new < old * (1 - MIN_IMPROVEMENT)
    return False


def _pad_anchors(
    request: PlanningRequest, plan: ProgramPlan, progress: Progress | None
) -> ProgramPlan:
    """Return a plan, or a better one that shards values inside of the program whose dimensions no
    axis divides. Only plans with devices that do the same arithmetic as others are improved."""
    replicated = plan.baselines.get(REPLICATED)
    is_divided = (
        replicated is None or plan.chosen.flops * request.mesh.size <= replicated.flops * 1.01
    )
    if is_divided or not any(
        isinstance(each, Reshard) and each.uneven == "pad" for each in request.pipeline.passes
    ):
        return plan
    padding = replace(request, pads_anchors=True)
    anchors = find_search_anchors(padding)
    if anchors == request.anchors:
        return plan
    left = max(1, request.max_evaluations - plan.evaluation_count)
    padding = replace(padding, anchors=anchors, max_evaluations=left)
    better = _plan_on_mesh(make_search_space(padding, None), progress)
    if not _is_cheaper(better.chosen, plan.chosen, request.memory_limit):
        return plan
    return replace(better, rejected=plan.evaluation_count)


def _constrain_values(plan: ProgramPlan) -> ProgramPlan:
    """Return a plan, or a better one with the optimum of the planning problem of the program."""
    maximum = plan.request.max_evaluations
    left = max(int(maximum * CONSTRAINT_CANDIDATES_PART), maximum - plan.evaluation_count)
    found = constrain_values(plan.request, plan.chosen, left)
    if found is None or not _is_cheaper(found.evaluation, plan.chosen, plan.request.memory_limit):
        return plan
    return replace(
        plan,
        request=found.request,
        chosen=found.evaluation,
        searched=found.evaluation,
        evaluator=found.evaluator,
        anchors=found.request.anchors,
        rejected=plan.evaluation_count,
    )


def _with_all_layers(plan: ProgramPlan, space: SearchSpace) -> ProgramPlan:
    """Return a plan with the evaluation of all layers."""
    plan = replace(plan, request=space.program)
    if space.folded is None:
        return plan
    whole = space.whole
    name, params = whole.module.main.name, whole.module.main.body.params
    try:
        found = whole.require(space.expand(plan.searched.arguments))
    except (PartitionError, BudgetError) as error:
        raise PlanningError(
            f"the plan of @{name} that was found with {space.folded.kept} of its "
            f"{space.folded.layers} layers cannot be compiled with all of them: {error}"
        ) from None
    searched, baselines = plan.searched, dict(plan.baselines)
    annotated = space.program.annotated
    given = None if annotated is None else whole.evaluate(annotated)
    if given is not None:
        # Few layers do not stand for annotations that differ between layers.
        baselines[ANNOTATED] = given
        limit = space.program.memory_limit
        if _respects(given.arguments, space.program.fixed or ()) and given.key(limit) < found.key(
            limit
        ):
            found, searched = given, replace(given)
    return replace(
        plan,
        chosen=found,
        searched=searched,
        baselines=baselines,
        state_pairs=whole.state_pairs,
        classes=classify_params(params[: space.program.count]),
    )


def _search(
    space: SearchSpace, progress: Progress | None, start: Assignment | None = None
) -> ProgramPlan:
    """Return the best of the plans that a search finds and of those that are given. The search
    begins with `start`, by default with replicated and data-parallel arguments."""
    request, evaluator, reader = space.request, space.evaluator, space.reader
    pairs = find_state_pairs(request.module.main, request.count)
    is_folded = isinstance(evaluator, ExtrapolatingEvaluator)
    axes = [name for name, size in request.mesh.axes if size > 1]
    batch_groups = find_batch_groups(find_batch(request, pairs), space.decisions)
    starts = list(group_starts(batch_groups, axes))
    search = AssignmentSearch(
        evaluator,
        reader,
        request.memory_limit,
        request.max_evaluations,
        progress,
        min_improvement=FOLDED_MIN_IMPROVEMENT if is_folded else 0.0,
        max_starts=1 if is_folded else None,
    )
    best = search.run(starts if start is None else [start])
    candidates: dict[str, ArgumentAxes] = {REPLICATED: reader.axes_of(Assignment())}
    if batch_groups and axes:
        candidates[DATA_PARALLEL] = reader.axes_of(starts[1])
    if request.annotated is not None:
        candidates[ANNOTATED] = (*request.annotated, *[None] * len(request.anchors))
    baselines = {}
    for name, arguments in candidates.items():
        found = evaluator.evaluate(arguments)
        if found is not None:
            baselines[name] = found
    fixed = reader.fixed
    allowed = [found for found in baselines.values() if _respects(found.arguments, fixed)]
    everything = [*([] if best is None else [best]), *allowed]
    if not everything:
        arguments, error = evaluator.failure
        if space.whole.evaluate(space.expand(arguments)) is None:
            _, error = space.whole.failure  # With the budget that all layers need.
        raise PlanningError(
            f"no sharding of the arguments of @{request.module.main.name} can be compiled: {error}"
        )
    chosen = min(everything, key=lambda found: found.key(request.memory_limit))
    return ProgramPlan(
        request,
        chosen,
        chosen,
        baselines,
        pairs,
        space.decisions.params,
        search.best_assignment,
        evaluator,
        reader,
        space.expand,
        request.anchors,
    )


def find_batch(request: PlanningRequest, state_pairs: Mapping[int, int]) -> tuple[int, ...]:
    """Return the indices of the batch arguments: those given, or the ones that are not state of a
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


def _respects(arguments: ArgumentAxes, fixed: Sequence[DimAxes | None]) -> bool:
    return all(
        required is None or found == required
        for found, required in zip(arguments, fixed, strict=False)
    )
