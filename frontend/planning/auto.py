"""`AUTO`: `jit` plans the shardings of arguments when it first compiles a program."""

from dataclasses import dataclass
from functools import partial
from typing import final

from shardir.display.byte_sizes import parse_bytes
from shardir.frontend.config import config
from shardir.frontend.dispatch.jit_function import JitFunction
from shardir.frontend.dispatch.stages.stages import Lowered
from shardir.frontend.dispatch.stages.step_simulation import (
    MachineLike,
    check_machine,
    resolve_machine,
)
from shardir.frontend.errors import ArgumentError, NoMeshError
from shardir.frontend.planning import plan_text as plan_text  # Registers the text of plans.
from shardir.frontend.planning.pipeline_evaluator import evaluator_of
from shardir.frontend.planning.plan import Plan
from shardir.frontend.planning.request import (
    check_stated_axes,
    memory_limit,
    planned_mesh,
    spec_of_axes,
    stated_axes,
)
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.deferred_sharding import (
    ChosenShardings,
    DeferredSharding,
    UnshardedProgram,
)
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.passes.pipeline import Pipeline
from shardir.passes.planning.programs.evaluation import annotate_values
from shardir.passes.planning.programs.plan_program import plan_program
from shardir.passes.planning.programs.planning_request import PlanningRequest, pads_arguments


@final
@dataclass(frozen=True, slots=True)
class AutoSharding(DeferredSharding):
    """A request for shardings that a plan determines; write `AUTO` in `in_shardings` of `jit`.

    `AUTO(mesh, machine, memory)` states what the plan uses: by default the mesh of other shardings
    of the call or the entered one, the setting `machine`, and the capacity of the machine.
    """

    mesh: Mesh | None = None
    machine: MachineLike | None = None
    memory: int | str | None = None

    @traceback_boundary
    def __call__(
        self,
        mesh: Mesh | None = None,
        machine: MachineLike | None = None,
        memory: int | str | None = None,
    ) -> "AutoSharding":
        """Return a request for a plan on a mesh, for a machine and a memory limit."""
        if mesh is not None and not isinstance(mesh, Mesh):
            raise ArgumentError(
                with_location(f"the mesh of AUTO is {brief(mesh)}, which is not a mesh")
            )
        if machine is not None:
            check_machine(machine, "AUTO")
        if memory is not None:
            parse_bytes(memory)
        return AutoSharding(mesh, machine, memory)

    def __repr__(self) -> str:
        options = (
            [] if self.mesh is None else [repr(self.mesh)],
            [] if self.machine is None else [f"machine={brief(self.machine)}"],
            [] if self.memory is None else [f"memory={self.memory!r}"],
        )
        text = ", ".join(part for parts in options for part in parts)
        return f"AUTO({text})" if text else "AUTO"

    def choose(self, program: UnshardedProgram) -> ChosenShardings:
        """Return the shardings of a plan."""
        module = program.module
        name = module.main.name
        mesh = self._mesh_of(program)
        params, results = module.main.body.params, module.main.body.returns
        for given in program.stated:
            if not (given is None or isinstance(given, NamedSharding)):
                raise ArgumentError(
                    with_location(
                        f"in_shardings of {name} has AUTO and {given!r}; use a NamedSharding "
                        "beside AUTO"
                    )
                )
        count = len(program.stated)
        if mesh.size == 1:
            replicated = NamedSharding(mesh, spec_of_axes(()))
            return ChosenShardings((replicated,) * count, (None,) * len(results))
        word = f"in_shardings of {name}"
        stated = [
            stated_axes(sharding, param.type.rank, mesh, word)
            for sharding, param in zip(program.stated, params, strict=False)
        ]
        machine = config.machine if self.machine is None else self.machine
        found = (
            None if machine is None else resolve_machine(machine, dict(mesh.shape), None, "AUTO")
        )
        axes = planned_mesh(module, mesh, word)
        pipeline = Pipeline.parse(program.pipeline)
        check_stated_axes(stated, module, axes, word, pads=pads_arguments(pipeline))
        request = PlanningRequest(
            module,
            axes,
            pipeline,
            found,
            memory_limit(self.memory, found),
            fixed=(*stated, *[None] * (len(params) - count)),
            donated=program.donated,
            count=count,
            evaluator=evaluator_of(module),
        )
        plan = plan_program(request)
        chosen = [
            given or NamedSharding(mesh, spec_of_axes(axes or ()))
            for given, axes in zip(program.stated, plan.chosen.arguments, strict=False)
        ]
        return ChosenShardings(
            tuple(chosen),
            tuple(
                chosen[plan.state_pairs[i]] if i in plan.state_pairs else None
                for i in range(len(results))
            ),
            partial(annotate_values, constraints=plan.constraints) if plan.constraints else None,
            partial(_find_plan, request, mesh),
        )

    def _mesh_of(self, program: UnshardedProgram) -> Mesh:
        name = program.module.main.name
        mesh = self.mesh or program.mesh
        if mesh is None:
            raise NoMeshError(
                with_location(
                    f"in_shardings of {name} has AUTO, and no mesh is known; write AUTO(mesh), or "
                    f"call {name} inside `with mesh:`"
                )
            )
        if mesh.has_explicit_axes:
            raise ArgumentError(
                with_location(
                    f"in_shardings of {name} has AUTO, and the mesh has axes of AxisType.Explicit, "
                    "whose shardings are part of types; use a mesh of AxisType.Auto"
                )
            )
        return mesh


def _find_plan(
    request: PlanningRequest, mesh: Mesh, function: JitFunction, lowered: Lowered
) -> Plan:
    """Return the plan of a lowered function. The search runs again, because the candidates of all
    calls of a function would use much memory."""
    return Plan(plan_program(request), lowered, mesh, function)


AUTO = AutoSharding()
"""The shardings that a plan determines, for `in_shardings` of `jit`."""
