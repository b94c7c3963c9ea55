"""Requests of plans: a program, a mesh, a machine, and the limits of the plan."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from shardir.ir.mesh import Mesh
from shardir.ir.module import Module, Value
from shardir.passes.pipeline import Pipeline
from shardir.passes.planning.programs.assignment import ArgumentAxes, DimAxes
from shardir.passes.planning.programs.axis_splits import AxisSplit
from shardir.passes.planning.programs.evaluation import ProgramEvaluator
from shardir.passes.planning.programs.state_pairs import find_state_pairs
from shardir.passes.propagation.propagate import Propagate
from shardir.passes.simulation import MachineModel

MAX_EVALUATIONS = 400
"""The number of shardings that a search evaluates at most."""

PREPARATION = "cse,dce"
"""The passes before a program is searched with few layers, or its lower bound is found: the
compiled program computes equal values once, and no unused ones."""


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


def make_evaluator(request: PlanningRequest) -> ProgramEvaluator:
    """Return the evaluator of shardings of the arguments of a program."""
    return request.evaluator(
        request.module,
        request.mesh,
        request.machine,
        request.pipeline,
        find_state_pairs(request.module.main, request.count),
        request.donated,
        request.anchors,
    )
