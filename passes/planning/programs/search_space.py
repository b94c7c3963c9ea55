"""The space in which a plan is searched: the program that is evaluated, which may have few of the
layers of the planned one, and the decisions about it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from shardir.ir.module import Value
from shardir.ops.control_flow.pipelines import has_pipelines
from shardir.passes.pipeline import STAGING_PIPELINE, Pipeline
from shardir.passes.planning.programs.anchors import find_anchors
from shardir.passes.planning.programs.assignment import ArgumentAxes, AssignmentReader
from shardir.passes.planning.programs.axis_splits import AxisSplit
from shardir.passes.planning.programs.contraction_model import (
    ContractionModel,
    model_contractions,
)
from shardir.passes.planning.programs.dimension_groups import find_dimension_groups
from shardir.passes.planning.programs.evaluation import (
    Evaluator,
    ProgramEvaluator,
    annotate_arguments,
)
from shardir.passes.planning.programs.extrapolation import ExtrapolatingEvaluator, FoldedPrograms
from shardir.passes.planning.programs.fold_layers import FoldedProgram
from shardir.passes.planning.programs.planning_request import (
    PREPARATION,
    PlanningRequest,
    make_evaluator,
)
from shardir.passes.planning.programs.repeated_layers import SharedDecisions, share_decisions


@dataclass(frozen=True)
class SearchSpace:
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
        """Return the axes of all arguments, from those of the evaluated program. Those that are
        given may differ between layers that few layers stand for."""
        if self.folded is None:
            return arguments
        expanded = self.folded.expand(arguments)
        fixed = self.program.fixed or (None,) * len(expanded)
        return tuple(
            own if given is None else given for own, given in zip(expanded, fixed, strict=True)
        )

    def with_memory_limit(self, limit: int) -> "SearchSpace":
        """Return the space with another memory limit of the evaluated program."""
        return replace(self, request=replace(self.request, memory_limit=limit))

    def with_max_evaluations(self, count: int) -> "SearchSpace":
        """Return the space with another number of evaluations."""
        return replace(self, request=replace(self.request, max_evaluations=count))

    def split(self, split: AxisSplit) -> "SearchSpace":
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


def make_search_space(program: PlanningRequest, folded: FoldedPrograms | None) -> SearchSpace:
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
    return SearchSpace(program, request, folded, evaluator, whole, groups, decisions)


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


def find_search_anchors(request: PlanningRequest) -> tuple[Value, ...]:
    """Return the values inside of the program whose shardings a search decides."""
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
