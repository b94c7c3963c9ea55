"""A plan never costs more than propagation from the annotations of the user, on all programs of the
test suite, and its costs are those of the program that the passes make."""

from collections.abc import Sequence
from itertools import islice
from random import Random

import pytest

from shardir.cost.communication import list_collectives, sum_collectives
from shardir.errors import PartitionError
from shardir.frontend.stories.pipeline_check import result_difference
from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.planning.programs.assignment import ArgumentAxes, DimAxes
from shardir.passes.planning.programs.evaluation import annotate_arguments
from shardir.passes.planning.programs.plan_program import plan_program
from shardir.passes.planning.programs.planning_request import PlanningRequest, make_evaluator
from shardir.passes.planning.programs.state_pairs import find_state_pairs
from shardir.passes.simulation.memory_use import memory_use
from shardir.passes.simulation.simulate import FUSION_PIPELINE
from tests.passes.planning.programs.program_corpus import FAMILIES, MESHES, plannable_programs

PROGRAMS_OF_TEST = 20
ANNOTATIONS = 2
"""The number of random annotations of each program."""
EVALUATIONS = 3
MAX_EXECUTED_OPERATIONS = 40
"""The number of operations up to which the interpreter executes a program."""


def random_axes(random: Random, value: Value, mesh: Mesh) -> DimAxes:
    """Return axes of the dimensions of a value that divide them."""
    dims: list[tuple[str, ...]] = [()] * value.type.rank
    sizes = list(value.type.shape)
    for axis, size in mesh.axes:
        dim = random.randrange(-1, value.type.rank)
        if dim >= 0 and sizes[dim] and sizes[dim] % size == 0:
            sizes[dim] //= size
            dims[dim] = (*dims[dim], axis)
    return tuple(dims)


def annotate(random: Random, params: Sequence[Value], mesh: Mesh) -> ArgumentAxes:
    return tuple(random_axes(random, value, mesh) for value in params)


def cases() -> list[object]:
    return [
        pytest.param(family, mesh, first, marks=pytest.mark.sample(24)
                     if family in ("operations", "stories", "random") else pytest.mark.long)
        for family, programs in FAMILIES.items()
        for mesh in ("line", "rectangle")
        for first in range(0, len(programs), PROGRAMS_OF_TEST)
    ]  # fmt: skip


@pytest.mark.parametrize(("family", "mesh", "first"), cases())
def test_plans_cost_at_most_as_much_as_annotations(family: str, mesh: str, first: int) -> None:
    names = islice(FAMILIES[family], first, first + PROGRAMS_OF_TEST)
    pipeline, axes = Pipeline.parse(DEFAULT_PIPELINE), MESHES[mesh]
    for name, module in plannable_programs(family, names):
        for seed in range(ANNOTATIONS):
            params = module.main.body.params
            annotated = annotate(Random(f"{name} {seed}"), params, axes)
            request = PlanningRequest(
                module, axes, pipeline, annotated=annotated, max_evaluations=EVALUATIONS
            )
            plan = plan_program(request)
            try:
                given = make_evaluator(request).require(annotated)
            except PartitionError:
                continue  # These annotations cannot be compiled.
            assert plan.chosen.key(None) <= given.key(None), (name, annotated)
            check_program(name, plan.request, plan.chosen.arguments)


def check_program(name: str, request: PlanningRequest, arguments: ArgumentAxes) -> None:
    """Check that the costs of an evaluation are those of the program of each device, which computes
    the same numbers."""
    module = request.module
    pairs = find_state_pairs(module.main, request.count)
    annotated = annotate_arguments(module, request.mesh, arguments, pairs, request.anchors)
    partitioned = request.pipeline(annotated)
    found = make_evaluator(request).require(arguments)
    sent = sum_collectives(list_collectives(partitioned))
    assert (found.bytes_sent, found.collective_count) == (sent.sent, sent.executions), name
    kernels = Pipeline.parse(FUSION_PIPELINE)(partitioned)
    assert found.peak == memory_use(kernels).peak, name
    if len(module.main.body.ops) <= MAX_EXECUTED_OPERATIONS:
        assert result_difference(module, partitioned) == "", name
