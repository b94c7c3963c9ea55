"""`plan_program`: find shardings of the arguments of a traced program.

The result is the best of the assignments that the search evaluated and of the given plans:
replicated, data-parallel, and those of the user's annotations. It is therefore never worse than
any of them in the model, which is the partitioned program itself. A program with many layers is
searched with few of them (`extrapolation.py`), and the best plan is evaluated with all layers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from shardir.display.byte_sizes import show_bytes
from shardir.errors import PartitionError
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module, Value
from shardir.ops.control_flow.pipelines import has_pipelines
from shardir.passes.garbage_collection import paused_garbage_collection
from shardir.passes.pipeline import STAGING_PIPELINE, Pipeline
from shardir.passes.planning.problem import PlanningError
from shardir.passes.planning.programs.anchors import find_anchors
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
from shardir.passes.planning.programs.axis_splits import (
    AxisSplit,
    is_cheaper,
    predict_splits,
)
from shardir.passes.planning.programs.contraction_model import (
    ContractionModel,
    model_contractions,
)
from shardir.passes.planning.programs.dimension_groups import find_dimension_groups
from shardir.passes.planning.programs.evaluation import (
    Evaluation,
    Evaluator,
    ProgramEvaluator,
    annotate_arguments,
)
from shardir.passes.planning.programs.extrapolation import (
    ExtrapolatingEvaluator,
    FoldedPrograms,
    fold_program,
)
from shardir.passes.planning.programs.fold_layers import FoldedProgram
from shardir.passes.planning.programs.repeated_layers import (
    SharedDecisions,
    classify_params,
    share_decisions,
)
from shardir.passes.planning.programs.state_pairs import find_state_pairs
from shardir.passes.propagation.propagate import Propagate
from shardir.passes.rematerialization.remat import BudgetError, Remat
from shardir.passes.resharding.reshard import Reshard
from shardir.passes.simulation import MachineModel

MAX_EVALUATIONS = 400
"""The number of shardings that a search evaluates at most."""

FOLDED_MIN_IMPROVEMENT = 0.002
"""The relative improvement from which on a search with fewer layers accepts a move; its evaluations
take longer than those of small programs."""

PREPARATION = "cse,dce"
"""The passes before a program is searched with few layers, or its lower bound is found: the
compiled program computes equal values once, and no unused ones."""

MAX_REMAT_OPERATIONS = 5000
"""The number of operations of the largest program of which an error states that recomputation makes
it fit; larger ones take too long."""

SPLIT_CANDIDATES_PART = 1 / 32
"""The number of candidates with split axes that are evaluated before one of them is better, as a
part of the number of candidates with whole axes."""
MIN_SPLIT_CANDIDATES = 1
"""The number of candidates with split axes that are evaluated at least."""

REPLICATED, DATA_PARALLEL, ANNOTATED = "replicated", "data parallel", "annotated"


@dataclass(frozen=True)
class PlanningRequest:
    """A program to plan, and the limits of the plan.

    `batch` are the indices of arguments whose first dimension is the batch. `fixed` has the axes of
    arguments that are given, `None` for others; `annotated` those of the user's annotations. Only
    the first `count` parameters are arguments; the others are arrays that the function captures.
    `anchors` are the values inside of the program whose shardings are planned, too. `machine_of`
    returns the machine for a mesh whose axes are parts of those of the mesh; if it is `None`, or if
    the module contains shardings, the plan uses whole axes. With `pads_anchors`, axes need not
    divide the dimensions of anchors.
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
    max_evaluations: int = MAX_EVALUATIONS
    count: int | None = None
    anchors: tuple[Value, ...] = ()
    machine_of: Callable[[Mesh], MachineModel | None] | None = None
    pads_anchors: bool = False
    evaluator: type[ProgramEvaluator] = ProgramEvaluator

    @property
    def pads(self) -> bool:
        """Return whether arguments may have uneven shards."""
        return pads_arguments(self.pipeline)

    def split(self, split: AxisSplit) -> "PlanningRequest":
        """Return the request on the mesh with the parts of an axis."""
        assert self.machine_of is not None
        return replace(
            self,
            mesh=split.mesh,
            machine=self.machine_of(split.mesh),
            fixed=None if self.fixed is None else split.split_arguments(self.fixed),
            annotated=None if self.annotated is None else split.split_arguments(self.annotated),
        )


def pads_arguments(pipeline: Pipeline) -> bool:
    """Return whether passes pad dimensions of arguments that axes do not divide."""
    return any(isinstance(each, Propagate) and each.border == "uneven" for each in pipeline.passes)


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
        request = replace(request, anchors=_find_anchors(request))
    space = _search_space(request, programs)
    plan = _plan_on_mesh(space, progress)
    if request.machine_of is not None and not request.module.meshes and not is_staged:
        plan = _split_axes(space, plan, progress)
    if programs is None and not is_staged:
        plan = _pad_anchors(request, plan, progress)
    check_memory(plan.chosen, request)
    chosen = replace(plan.request, max_evaluations=request.max_evaluations, machine_of=None)
    return replace(plan, request=chosen)


def _plan_on_mesh(
    space: "_SearchSpace", progress: Progress | None, start: Assignment | None = None
) -> ProgramPlan:
    """Return the best plan on the mesh of a search, even if it does not fit into the memory."""
    plan = _with_all_layers(_search(space, progress, start), space)
    limit = space.program.memory_limit
    if limit is not None and plan.chosen.peak > limit >= plan.searched.peak:
        # The peak of all layers is larger than the extrapolated one.
        smaller = space.with_memory_limit(limit * plan.searched.peak // plan.chosen.peak)
        plan = _with_all_layers(_search(smaller, progress, start), space)
    return plan


def _split_axes(space: "_SearchSpace", plan: ProgramPlan, progress: Progress | None) -> ProgramPlan:
    """Return a plan, or a better one on a mesh with two parts of an axis as axes."""
    limit = space.program.memory_limit
    starts = predict_splits(plan.assignment, space.model_contractions(), space.request.mesh)
    best, found = plan.searched, None
    left = max(MIN_SPLIT_CANDIDATES, int(plan.evaluation_count * SPLIT_CANDIDATES_PART))
    spaces: dict[Mesh, _SearchSpace] = {}
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
        if evaluation is not None and is_cheaper(evaluation, best, limit):
            best, found = evaluation, (split, start)
    if found is None:
        return plan
    split, start = found
    parts = spaces[split.mesh]
    others = sum(each.evaluator.count for mesh, each in spaces.items() if mesh != split.mesh)
    rejected = plan.evaluation_count + others
    left = max(1, space.request.max_evaluations - rejected)
    better = _plan_on_mesh(parts.with_max_evaluations(left), progress, start)
    if not is_cheaper(better.chosen, plan.chosen, limit):
        return plan
    return replace(better, rejected=rejected)


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
    anchors = _find_anchors(padding)
    if anchors == request.anchors:
        return plan
    left = max(1, request.max_evaluations - plan.evaluation_count)
    padding = replace(padding, anchors=anchors, max_evaluations=left)
    better = _plan_on_mesh(_search_space(padding, None), progress)
    if not is_cheaper(better.chosen, plan.chosen, request.memory_limit):
        return plan
    return replace(better, rejected=plan.evaluation_count)


@dataclass(frozen=True)
class _SearchSpace:
    """The inputs of a search: the request `program`, the request for the program that it evaluates,
    which may have few of its layers, and the decisions about that program."""

    program: PlanningRequest
    request: PlanningRequest
    folded: FoldedPrograms | None
    evaluator: Evaluator
    whole: ProgramEvaluator
    groups: Mapping[Value, tuple[int, ...]]
    decisions: SharedDecisions

    @cached_property
    def reader(self) -> AssignmentReader:
        """The reader of assignments of the evaluated program."""
        request = self.request
        params = request.module.main.body.params
        return AssignmentReader(
            params,
            self.decisions,
            request.mesh,
            request.fixed or (None,) * len(params),
            len(params) if request.count is None else request.count,
            request.anchors,
            pads=request.pads,
            pads_anchors=request.pads_anchors,
        )

    def expand(self, arguments: ArgumentAxes) -> ArgumentAxes:
        """Return the axes of all arguments, from those of the evaluated program."""
        return arguments if self.folded is None else self.folded.expand(arguments)

    def with_memory_limit(self, limit: int) -> "_SearchSpace":
        """Return the space with another memory limit of the evaluated program."""
        return replace(self, request=replace(self.request, memory_limit=limit))

    def with_max_evaluations(self, count: int) -> "_SearchSpace":
        """Return the space with another number of evaluations."""
        return replace(self, request=replace(self.request, max_evaluations=count))

    def split(self, split: AxisSplit) -> "_SearchSpace":
        """Return the space on the mesh with the parts of an axis."""
        program, request = self.program.split(split), self.request.split(split)
        whole = self.whole.on_mesh(program.mesh, program.machine)
        evaluator: Evaluator = whole
        if self.evaluator is not self.whole:
            evaluator = self.evaluator.on_mesh(program.mesh, program.machine)
        return replace(self, program=program, request=request, evaluator=evaluator, whole=whole)

    def model_contractions(self) -> ContractionModel:
        """Return the model of the contractions of the program."""
        values = self.reader.values
        classes = {
            self.groups[values[number]][dim]: kind
            for kind, dims in enumerate(self.decisions.groups)
            for number, dim in dims
        }
        return model_contractions(self.request.module.main.body, self.groups, classes)


def _search_space(program: PlanningRequest, folded: FoldedPrograms | None) -> _SearchSpace:
    """Return the space of a program, or of one with few of its layers."""
    request, whole = program, make_evaluator(program)
    evaluator: Evaluator = whole
    if folded is not None:
        small = _fold_request(program, folded, folded.small)
        request = _fold_request(program, folded, folded.large)
        evaluator = ExtrapolatingEvaluator(make_evaluator(small), make_evaluator(request), folded)
    params = request.module.main.body.params
    groups = _find_groups(request)
    anchors = dict(enumerate(request.anchors, len(params)))
    decisions = share_decisions(params[: request.count], groups, anchors)
    return _SearchSpace(program, request, folded, evaluator, whole, groups, decisions)


def _fold_request(
    request: PlanningRequest, programs: FoldedPrograms, program: FoldedProgram
) -> PlanningRequest:
    """Return the request for a program with few of the layers of another one."""
    numbers = {number: i for i, number in enumerate(programs.large.arguments)}
    places = [numbers[number] for number in program.arguments]
    fixed, annotated = (
        None if axes is None else tuple(programs.shrink(axes)[i] for i in places)
        for axes in (request.fixed, request.annotated)
    )
    new = {number: i for i, number in enumerate(program.arguments)}
    count = None
    if request.count is not None:
        count = sum(number < request.count for number in program.arguments)
    batch = request.batch
    return replace(
        request,
        module=Pipeline.parse(PREPARATION)(program.module),
        fixed=fixed,
        annotated=annotated,
        batch=None if batch is None else tuple(new[n] for n in batch if n in new),
        donated=tuple(new[n] for n in request.donated if n in new),
        count=count,
    )


def _with_all_layers(plan: ProgramPlan, space: _SearchSpace) -> ProgramPlan:
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
    return replace(
        plan,
        chosen=found,
        state_pairs=whole.state_pairs,
        classes=classify_params(params[: space.program.count]),
    )


def make_evaluator(request: PlanningRequest) -> ProgramEvaluator:
    return request.evaluator(
        request.module,
        request.mesh,
        request.machine,
        request.pipeline,
        find_state_pairs(request.module.main, request.count),
        request.donated,
        request.anchors,
    )


def _find_groups(request: PlanningRequest) -> dict[Value, tuple[int, ...]]:
    """Return the dimension groups of the values of a program."""
    module = request.module
    params = module.main.body.params
    unsharded: ArgumentAxes = tuple(tuple(() for _ in value.type.shape) for value in params)
    with_mesh = annotate_arguments(module, request.mesh, unsharded, {})
    if has_pipelines(module):
        with_mesh = Pipeline.parse(f"{STAGING_PIPELINE},inline-pipelines")(with_mesh)
    groups = find_dimension_groups(with_mesh).of_value
    new_params = zip(params, with_mesh.main.body.params, strict=True)
    return {**groups, **{old: groups[new] for old, new in new_params}}


def _find_anchors(request: PlanningRequest) -> tuple[Value, ...]:
    groups = _find_groups(request)
    body = request.module.main.body
    sizes = [size for _, size in request.mesh.axes if size > 1]
    known = [
        group
        for value in body.params
        for group, dim in zip(groups[value], value.type.shape, strict=True)
        if not request.pads_anchors or any(dim % size == 0 for size in sizes)
    ]
    return find_anchors(body, groups, known, request.mesh, pads=request.pads_anchors)


def _search(
    space: _SearchSpace, progress: Progress | None, start: Assignment | None = None
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


def check_memory(chosen: Evaluation, request: PlanningRequest) -> None:
    """Raise `PlanningError` if a plan exceeds the memory limit, with the smallest limit that is
    known to suffice, and the pass with which the plan fits if there is one."""
    limit = request.memory_limit
    if limit is None or chosen.peak <= limit:
        return
    remedy = f"use a limit of at least {chosen.peak} bytes, more devices, or a smaller batch"
    remat = Remat(f"{limit}B")
    if _fits_with(remat, chosen, request):
        remedy = f"add the pass {remat} to the passes of jit, with which a plan fits, or {remedy}"
    raise PlanningError(
        f"no plan fits into {show_bytes(limit)} on each device: the smallest peak found is "
        f"{show_bytes(chosen.peak)}, {show_bytes(chosen.peak - limit)} more; {remedy}"
    )


def _fits_with(remat: Remat, chosen: Evaluation, request: PlanningRequest) -> bool:
    """Return whether a plan fits into the budget of a pass that computes values again. It
    is false for pipelines, because the pass would not change the programs of their stages."""
    is_large = len(chosen.module.main.body.ops) > MAX_REMAT_OPERATIONS
    if is_large or has_pipelines(request.module):
        return False
    if any(isinstance(each, Remat) for each in request.pipeline.passes):
        return False
    try:
        remat(chosen.module)
    except BudgetError:
        return False
    return True


def _respects(arguments: ArgumentAxes, fixed: Sequence[DimAxes | None]) -> bool:
    return all(
        required is None or found == required
        for found, required in zip(arguments, fixed, strict=False)
    )
