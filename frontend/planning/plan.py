"""`Plan`: shardings of the arguments of a function, with their predicted cost."""

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, final

from shardir._imports.lazy_import import lazy_import
from shardir.cost.communication import Collective
from shardir.frontend.argument_checks import check_real
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.dispatch.jit_function import JitFunction
from shardir.frontend.dispatch.stages.stages import Lowered
from shardir.frontend.errors import ArgumentError, PipelineCostError
from shardir.frontend.planning import export, plan_rows
from shardir.frontend.planning.plan_comparisons import PlanBound, PlanComparison, PlanDifference
from shardir.frontend.planning.planned_shardings import PlannedShardings
from shardir.frontend.planning.request import spec_of_axes
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.report.planning_records import planning_record
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.ir.module import Module
from shardir.ops.control_flow.pipelines import has_pipelines
from shardir.passes.explain.annotation_edits import add_annotation
from shardir.passes.explain.reports import Report
from shardir.passes.planning.problem import PlanningError
from shardir.passes.planning.programs.assignment import DimAxes, find_problem
from shardir.passes.planning.programs.decision_effects import Decision, measure_decisions
from shardir.passes.planning.programs.evaluation import (
    Evaluation,
    annotate_arguments,
)
from shardir.passes.planning.programs.lower_bound import find_lower_bound
from shardir.passes.planning.programs.pareto import LIMIT_FACTORS, pareto_front
from shardir.passes.planning.programs.plan_program import ProgramPlan, plan_program
from shardir.passes.planning.programs.planning_request import PlanningRequest

if TYPE_CHECKING:
    from shardir.frontend.report import build, program_report
    from shardir.frontend.report.program_report import ProgramReport
else:
    build = lazy_import("shardir.frontend.report.build")
    program_report = lazy_import("shardir.frontend.report.program_report")


@with_method_errors
@final
class Plan(Report):
    """Shardings of the arguments and results of a function, the result of `plan`.

    `jit()` returns the function with these shardings, and `in_shardings` and `out_shardings` are
    arguments of `jit`. The predicted collectives and the predicted peak are those of the program
    that `jit` then compiles.
    """

    __slots__ = ("__dict__", "_found", "_function", "_lowered", "_mesh")

    def __init__(
        self, found: ProgramPlan, lowered: Lowered, mesh: Mesh, function: JitFunction
    ) -> None:
        self._found, self._lowered = found, lowered
        self._mesh, self._function = mesh, function

    @property
    def _request(self) -> PlanningRequest:
        """The request on the mesh of the plan, for further searches."""
        return self._found.request

    @property
    def mesh(self) -> Mesh:
        """The mesh of the shardings: the given one, or one that has two parts of an axis of it as
        axes, `x_0` and `x_1` for the axis `x`."""
        return self._mesh

    @property
    def name(self) -> str:
        """The name of the planned function."""
        return self._lowered.module.main.name

    @property
    def evaluation(self) -> Evaluation:
        """The predicted cost on each device."""
        return self._found.chosen

    @property
    def evaluation_count(self) -> int:
        """The number of candidates that the search partitioned."""
        return self._found.evaluation_count

    @property
    def step_seconds(self) -> float | None:
        """The predicted time of one run in seconds; `None` without a machine."""
        return self._found.chosen.seconds

    @property
    def peak_memory(self) -> int:
        """The predicted peak of the memory of each device, in bytes."""
        return self._found.chosen.peak

    @property
    def memory_limit(self) -> int | None:
        """The memory of each device that the plan may use, in bytes; `None` without a limit."""
        return self._request.memory_limit

    @property
    def machine_name(self) -> str | None:
        """The name of the machine; `None` without one."""
        return None if self._request.machine is None else self._request.machine.name

    @property
    def module(self) -> Module:
        """The traced program with the shardings of the plan."""
        return annotate_arguments(
            self._request.module,
            self._request.mesh,
            self._found.chosen.arguments,
            self._found.state_pairs,
            self._found.anchors,
        )

    def jit(self) -> JitFunction:
        """Return the function with the shardings and constraints of the plan, for arguments of the
        planned types."""
        arguments, results = (
            [None if spec is None else NamedSharding(self.mesh, spec) for spec in specs]
            for specs in (self._specs(), self._result_specs())
        )
        planned = PlannedShardings(
            [value.type for value in self._request.module.main.body.params],
            tuple(each for each in arguments if each is not None),
            tuple(results),
            self._found.constraints,
            self,
        )
        return self._function.with_shardings(planned, None)

    @property
    def constraints(self) -> dict[str, PartitionSpec]:
        """The specs of values inside of the function, by their names in the traced program.

        A plan has them where no argument has a dimension that could be sharded, and where they
        cost less than what propagation from the arguments chooses. `jit()` applies them; for other
        uses, constrain the values with `with_sharding_constraint`.
        """
        return {name: spec_of_axes(axes) for name, axes in self._found.constraints.items()}

    def constraint_rows(self) -> list[tuple[str, str, str, str]]:
        """Return the name, the sharded type and the source line of each constrained value, and how
        the cost changes without the constraint."""
        return plan_rows.list_constraint_rows(self._found)

    def collectives(self) -> list[Collective]:
        """Return the predicted collectives, as `Compiled.collectives` does."""
        return self._found.chosen.collectives

    def _specs(self) -> list[PartitionSpec | None]:
        """Return the spec of each argument."""
        count = self._lowered.in_tree.num_leaves
        return [
            None if axes is None else spec_of_axes(axes)
            for axes in self._found.chosen.arguments[:count]
        ]

    def _result_specs(self) -> list[PartitionSpec | None]:
        """Return the spec of each result, `None` for those that propagation determines."""
        pairs, arguments = self._found.state_pairs, self._found.chosen.arguments
        return [
            None if i not in pairs else spec_of_axes(arguments[pairs[i]] or ())
            for i in range(len(self._lowered.module.main.body.returns))
        ]

    @cached_property
    def in_specs(self) -> tuple[PyTree, ...]:
        """The pytree of arguments with a `PartitionSpec` for each array."""
        positional: tuple[PyTree, ...] = tree.unflatten(self._lowered.in_tree, self._specs())[0]
        return tuple(positional)

    @cached_property
    def out_specs(self) -> PyTree:
        """The pytree of results with a `PartitionSpec` for each array that is the next value of an
        argument, and `None` for others, whose sharding propagation determines."""
        return tree.unflatten(self._lowered.out_tree, self._result_specs())

    @property
    def in_shardings(self) -> tuple[PyTree, ...]:
        """The shardings of the arguments, for `jit`."""
        found: tuple[PyTree, ...] = self._with_mesh(self.in_specs)
        return found

    @property
    def out_shardings(self) -> PyTree:
        """The shardings of the results, for `jit`."""
        return self._with_mesh(self.out_specs)

    def _with_mesh(self, specs: object) -> PyTree:
        return tree.map(
            lambda spec: None if spec is None else NamedSharding(self.mesh, spec),
            specs,
            is_leaf=lambda x: x is None or isinstance(x, PartitionSpec),
        )

    @property
    def search_evaluation(self) -> Evaluation:
        """The cost of the plan in the search, with which the effects of decisions are compared."""
        return self._found.searched

    @property
    def is_extrapolated(self) -> bool:
        """True if the search used a program with fewer layers, as for programs with many layers."""
        return self._found.is_extrapolated

    def compare(self) -> PlanComparison:
        """Return the cost of the plan beside replicated, data-parallel and annotated arguments."""
        return PlanComparison({"plan": self._found.chosen, **self._found.baselines})

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """The decisions of the plan, the one with the largest effect first.

        The effect of a decision is the cost of the plan without it.
        """
        return measure_decisions(self._found, self._request.memory_limit)

    @traceback_boundary
    def why_not(self, annotation: str) -> PlanDifference:
        """Return the difference to the best plan with a given sharding of an argument.

        The annotation is written as in the text of programs: `%w: f32[128, 256@model]`. The search
        runs again with this choice.
        """
        number, axes = self._read(annotation)
        params = self._request.module.main.body.params
        fixed = list(self._request.fixed or (None,) * len(params))
        fixed[number] = axes
        request = replace(self._request, fixed=tuple(fixed), memory_limit=None)
        forced = plan_program(request).chosen
        return PlanDifference(
            ("plan", annotation.strip()),
            self._found.chosen,
            forced,
            plan_rows.list_changes(self._found, forced),
        )

    @traceback_boundary
    def pareto(self) -> PlanComparison:
        """Return the candidates that no other one surpasses in both cost and peak memory.

        The search runs again with one half, one quarter and one eighth of the peak of the plan as
        the memory limit.
        """
        found = self._found.evaluator.evaluate_all()
        for factor in LIMIT_FACTORS:
            limit = int(self._found.searched.peak * factor)
            try:
                smaller = plan_program(replace(self._request, memory_limit=limit))
            except PlanningError:  # No plan fits into this limit, and none into a smaller one.
                break
            found += smaller.evaluator.evaluate_all()
        front = pareto_front(found)
        return PlanComparison({f"candidate {i + 1}": each for i, each in enumerate(front)})

    @traceback_boundary
    def lower_bound(self, seconds: float = 60.0) -> PlanBound:
        """Return a proven lower bound of the flops, the sent bytes and, with a machine, the time,
        and the gap to it.

        The search of the bound ends when it proves the plan optimal, and after `seconds`; a longer
        search can only raise the bound. The bound needs no solver. Raises `PlanningError` for a
        program that is too large, and `PipelineCostError` for one with a pipeline.
        """
        if has_pipelines(self._request.module):
            raise PipelineCostError(
                with_location(
                    f"lower_bound does not include the pipeline in {self.name}; plan one stage as "
                    "a function of its own, on a mesh without the axis of the pipeline, for a "
                    "bound of its cost"
                )
            )
        limit = check_real("seconds of lower_bound", seconds)
        if not 0 < limit < math.inf:
            raise ArgumentError(
                with_location(f"seconds of lower_bound is {limit}; use a positive finite number")
            )
        found = find_lower_bound(self._request, self._found.chosen, limit)
        return PlanBound(self.name, self._found.chosen, found)

    @traceback_boundary
    def diff(self, other: "Plan") -> PlanDifference:
        """Return the difference to another plan of the same function."""
        if not isinstance(other, Plan):
            raise ArgumentError(
                with_location(f"diff compares a plan with another plan, not with {brief(other)}")
            )
        mine, theirs = (
            [(value.name, value.type) for value in plan._lowered.module.main.body.params]
            for plan in (self, other)
        )
        if mine != theirs:
            raise ArgumentError(
                with_location(
                    f"diff compares plans of one function for the same arguments, and the plans "
                    f"are of {self.name} and {other.name} with other arguments"
                )
            )
        return PlanDifference(
            ("this plan", "other plan"),
            self._found.chosen,
            other._found.chosen,
            plan_rows.list_changes(self._found, other._found.chosen),
        )

    @traceback_boundary
    def report(self, path: str | os.PathLike[str] | None = None) -> "ProgramReport":
        """Return a report of the program with the shardings of the plan, with its decisions.

        `path` is that of `Lowered.report`.
        """
        found = program_report.report(
            build.ReportInput(
                self.module,
                self._lowered.pipeline,
                places=self._lowered.user_locations,
                planning=planning_record(self),
            )
        )
        if path is not None:
            found.save(path)
        return found

    @traceback_boundary
    def as_jax(self) -> str:
        """Return Python code that defines the mesh and the specs of arguments and results for JAX.

        `jax.jit(f, in_shardings=in_specs, out_shardings=out_specs)` takes the specs within
        `jax.set_mesh(mesh)`. The code imports the dataclasses and namedtuples of arguments. A
        comment states each constraint, with the source line of the value. Raises `ArgumentError`
        for a plan with uneven shards of arguments, which JAX refuses.
        """
        self._refuse_uneven_arguments()
        return export.jax_code(
            self.mesh, self.in_specs, self.out_specs, self.constraints, self.constraint_rows()
        )

    def _refuse_uneven_arguments(self) -> None:
        """Raise `ArgumentError` if axes do not divide a dimension of an argument."""
        params = self._request.module.main.body.params
        for param, axes in zip(params, self._found.chosen.arguments, strict=False):
            problem = axes and find_problem(axes, param.type.shape, self._request.mesh)
            if problem:
                raise ArgumentError(
                    with_location(
                        f"as_jax cannot write the plan of {self.name}: it "
                        f"{problem.partition(';')[0]} of %{param.name}, and JAX refuses uneven "
                        'arguments; plan the function without uneven="pad", or use as_ir or as_sdy'
                    )
                )

    def as_ir(self) -> str:
        """Return the text of the program with the shardings of the plan."""
        return export.ir_text(self.module)

    def as_sdy(self) -> str:
        """Return the program as StableHLO with the shardings of the plan in the dialect `sdy`.

        Raises `ArgumentError` for a program with a pipeline, which the dialects do not have.
        """
        if has_pipelines(self.module):
            raise ArgumentError(
                with_location(
                    f"as_sdy cannot write the plan of {self.name}: StableHLO and the dialect sdy "
                    "have no pipelines; use as_jax or as_ir"
                )
            )
        return export.sdy_text(self.module)

    def argument_rows(self) -> list[tuple[str, str]]:
        """Return the names of arguments and their sharded type; those of repeated layers with one
        sharding have one row."""
        return plan_rows.list_argument_rows(self._found)

    def describe_dims(self, dims: Sequence[tuple[int, int]]) -> str:
        """Return dimensions of arguments as text; those of repeated layers once."""
        return plan_rows.describe_dims(self._found, dims)

    def _read(self, annotation: str) -> tuple[int, DimAxes]:
        """Return the number of the argument and the axes that an annotation states."""
        annotated = add_annotation(self.module, annotation)
        params = annotated.main.body.params
        before = self.module.main.body.params
        name = annotation.partition(":")[0].strip().removeprefix("%")
        count = self._lowered.in_tree.num_leaves
        numbers = [n for n, value in enumerate(before[:count]) if value.name == name]
        if not numbers:
            raise ArgumentError(
                with_location(
                    f"{annotation!r} states the sharding of no argument of {self.name}; a plan "
                    "decides those of arguments"
                )
            )
        sharding = params[numbers[0]].sharding
        dims = () if sharding is None else sharding.axes
        if any(not axis.is_full(self._request.mesh) for dim in dims for axis in dim):
            raise ArgumentError(
                with_location(
                    f"{annotation!r} has a part of a mesh axis; name an axis of the plan's mesh"
                )
            )
        shape = params[numbers[0]].type.shape
        axes = tuple(tuple(axis.name for axis in dim) for dim in dims) or ((),) * len(shape)
        problem = find_problem(axes, shape, self._request.mesh, pads=self._request.pads)
        if problem is not None:
            raise ArgumentError(with_location(f"{annotation!r} {problem}"))
        return numbers[0], axes
