"""The results of `lower` and `compile`: a traced program, and the compiled program."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, Never, final

from shardir._imports.lazy_import import lazy_import
from shardir.cost.communication import Collective, list_collectives
from shardir.cost.op_cost import Cost, cost_of_block
from shardir.display.representation import Printed, ir_text
from shardir.frontend.absent_members import raise_unknown_member
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.call_signatures import with_method_errors, with_signature_errors
from shardir.frontend.config import resolve_pipeline
from shardir.frontend.dispatch.programs.donation import run_with_donation
from shardir.frontend.dispatch.programs.runnable import Runnable
from shardir.frontend.dispatch.stages.argument_check import check_arguments, check_structure
from shardir.frontend.dispatch.stages.cost_analysis import (
    MemoryAnalysis,
    cost_analysis,
    memory_analysis,
)
from shardir.frontend.dispatch.stages.program_inspection import InspectedProgram
from shardir.frontend.dispatch.stages.typed_module import (
    TypedModule,
    types_of_arguments,
    types_of_results,
)
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import hide_own_frames, traceback_boundary
from shardir.frontend.tracing.promotion import user_dtype
from shardir.ir.dtypes import NumpyDType
from shardir.ir.module import Module
from shardir.ops.control_flow.pipelines import has_pipelines
from shardir.passes.simplify.inline_calls import inline_calls
from shardir.text.printer import print_module

if TYPE_CHECKING:
    from shardir.frontend.dispatch.stages.step_simulation import MachineLike
    from shardir.frontend.pipelines import costs
    from shardir.frontend.pipelines.costs import PipelineCosts
    from shardir.frontend.profiling import profile_data
    from shardir.frontend.profiling.profile_data import Profile
    from shardir.frontend.report import program_report
    from shardir.frontend.report.program_report import ProgramReport
    from shardir.passes import explain
    from shardir.passes.explain.collective_causes import CollectiveCause
    from shardir.passes.explain.communication import CollectiveList, Communication
    from shardir.passes.simulation import Simulation
else:
    costs = lazy_import("shardir.frontend.pipelines.costs")
    explain = lazy_import("shardir.passes.explain")
    profile_data = lazy_import("shardir.frontend.profiling.profile_data")
    program_report = lazy_import("shardir.frontend.report.program_report")


@dataclass(frozen=True, slots=True)
class ArgInfo:
    """Shape and element type of an argument, and `donated`: the program may use its memory."""

    shape: tuple[int, ...]
    """The shape of the argument."""
    dtype: NumpyDType
    """The element type of the argument."""
    donated: bool
    """True if the program may use the memory of the argument."""


@final
class Lowered(InspectedProgram):
    """A function traced for given arguments."""

    @property
    def args_info(self) -> PyTree:
        """The pytree of arguments, (positional, named), with an `ArgInfo` for each array."""
        params = self.module.main.body.params
        donated = frozenset(self.donated)
        infos = [
            ArgInfo(param.type.shape, param.type.numpy, i in donated)
            for i, param in enumerate(params[: self.in_tree.num_leaves])
        ]
        return tree.unflatten(self.in_tree, infos)

    @property
    def in_avals(self) -> PyTree:
        """The pytree of arguments, (positional, named), with the type of each array."""
        return tree.unflatten(
            self.in_tree, types_of_arguments(self._traced, self.in_tree.num_leaves)
        )

    @property
    def out_avals(self) -> PyTree:
        """The pytree of results with the type of each array."""
        return tree.unflatten(self.out_tree, types_of_results(self._traced))

    @property
    def typed_module(self) -> TypedModule:
        """The traced program with the types of its arguments and results."""
        return TypedModule(
            self.module.meshes,
            self.module.functions,
            types_of_arguments(self._traced, self.in_tree.num_leaves),
            types_of_results(self._traced),
        )

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The positions of donated arguments among the leaves of all arguments."""
        return tuple(sorted(self.donated))

    @property
    def out_info(self) -> PyTree:
        """The pytree of results with a `ShapeDtypeStruct` for each array."""
        structs = [
            ShapeDtypeStruct(
                result.type.shape,
                user_dtype(result.type.dtype),
                sharding=sharding,
                weak_type=result.weak,
            )
            for result, sharding in zip(self._traced.results, self._plan.results, strict=True)
        ]
        return tree.unflatten(self.out_tree, structs)

    @with_signature_errors
    def cost_analysis(self) -> dict[str, int]:
        """Return the cost of one run of the traced program, before it is partitioned.

        The keys are `flops` and `bytes accessed`: arithmetic operations, and the operands and
        results of all operations, of all devices together. `Compiled.cost_analysis` states those of
        each device.
        """
        cost = cost_of_block(inline_calls(self.module).main.body)
        return {"flops": cost.flops, "bytes accessed": cost.memory}

    @traceback_boundary
    def compile(self, *, passes: str | None = None) -> "Compiled":
        """Return the compiled program; `passes` is its pipeline, by default that of `jit`."""
        if passes is not None:
            return self._with_pipeline(resolve_pipeline(passes, "compile")).compile()
        runnable, _ = self.make_program()
        return Compiled(self, runnable)

    @traceback_boundary
    def with_passes(self, passes: str) -> "Lowered":
        """Return the program with another pipeline, as the keyword `passes` of `jit` states it."""
        return self._with_pipeline(resolve_pipeline(passes, "with_passes"))

    def _with_pipeline(self, passes: str | None) -> "Lowered":
        return replace(self, _plan=replace(self._plan, passes=passes))

    def make_program(self) -> tuple[Runnable, tree.PyTreeDef]:
        """Return the program as `jit` caches it, and the structure of its result."""
        runnable = Runnable(self._plan, self._traced.results, self._traced.captured)
        if self._donated:
            runnable.donate(self._donated)
        return runnable, self.out_tree

    def check_arguments(self, args: tuple[PyTree, ...], options: dict[str, PyTree]) -> list[PyTree]:
        """Return the arrays of a call; raises `ArgumentError` for other types, shardings or
        structures."""
        leaves = check_structure(self.module.main.name, self.in_tree, args, options)
        if self._device is not None:
            leaves = [
                device_put(leaf, self._device) if isinstance(leaf, Array) else leaf
                for leaf in leaves
            ]
        params = [value.type for value in self._traced.params]
        check_arguments(self.module.main.name, leaves, self._labels, params, self._plan.params)
        return leaves


@with_method_errors
@final
class Compiled(Printed):
    """A function compiled for given arguments. Call it with such arguments."""

    def __init__(self, lowered: Lowered, program: Runnable) -> None:
        self._lowered, self._program = lowered, program

    if not TYPE_CHECKING:  # Type checkers would accept any attribute.

        def __getattr__(self, name: str) -> Never:
            """Raise `AttributeError`, which names `lowered` if that has the attribute."""
            if name.startswith("_") or not hasattr(Lowered, name):
                raise_unknown_member(self, name)
            raise AttributeError(
                f"'Compiled' object has no attribute {name!r}; use .lowered.{name} of this object",
                name=name,
                obj=self,
            )

    def __reduce__(self) -> str:
        """Refuse copies: the compiled code and its memory belong to this object."""
        raise TypeError(
            "a compiled function cannot be copied or pickled; compile the function again, or "
            "serialize its program with shardir.export"
        )

    @property
    def lowered(self) -> Lowered:
        """The lowered function from which it was compiled."""
        return self._lowered

    @property
    def module(self) -> Module:
        """The program of each device."""
        return self._program.module

    def as_text(self, stage: str | None = None, *, locations: bool = False) -> str:
        """Return the text of the program of each device, with its collectives.

        `stage` is the name of a pass that the backend of this machine adds (`merge-devices`,
        `fuse`), or `schedule`, for the order of operations and the memory layout.
        """
        if stage is None:
            return print_module(self.module, locations=locations)
        return self._program.as_text(stage, locations=locations)

    def runtime_executable(self) -> "RuntimeExecutable":
        """Return the program that devices run, with the methods of JAX's executables that describe
        it."""
        return RuntimeExecutable(self)

    def collectives(self) -> "CollectiveList":
        """Return every collective of one run: kind, axes, bytes on one device, source line.

        Those of a pipeline are the collectives of all stages, and the sends between them.
        """
        inner = (each for costs in self._pipeline_costs() for each in costs.collectives())
        return explain.CollectiveList([*list_collectives(self.module), *inner])

    def communication(self) -> "Communication":
        """Return tables of the collectives of one run: by kind, by axes, by line of the program."""
        return explain.tabulate_collectives(self.collectives(), self.module.main.name)

    def explain(self, collective: "Collective | str") -> "CollectiveCause":
        """Return the cause of a collective; see `Lowered.explain_collective`."""
        return self._lowered.explain_collective(collective)

    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        profile: "Profile | None" = None,
        simulation: "Simulation | None" = None,
    ) -> "ProgramReport":
        """Return a report of the program; see `Lowered.report`.

        It includes the passes of the backend, and the schedule of its workers. With `profile`, the
        result of `shardir.profile`, it shows which thread executed which kernel in the last run.
        With `simulation`, the result of `simulate`, it shows the time and memory on that machine.
        """
        if not isinstance(profile, (profile_data.Profile, NoneType)):
            raise ArgumentError(
                with_location(
                    f"the profile of a report is a result of shardir.profile, not {brief(profile)}"
                )
            )
        lowered = self._lowered._report_input()
        given = replace(
            lowered,
            backend_pipeline="" if self._program.is_abstract else self._program.backend_passes(),
            texts={**lowered.texts, **self._program.stage_texts()},
            profile=profile,
            simulation=simulation,
        )
        found = program_report.report(given)
        if path is not None:
            found.save(path)
        return found

    def cost_analysis(self) -> dict[str, PyTree]:
        """Return the cost of one run on each device.

        The keys are `flops`, `bytes accessed`, `bytes sent`, and for the last one `bytes sent by
        kind` of collective and `bytes sent by axes`. With pipelines, they are those of the devices
        of the row with the most arithmetic operations.
        """
        costs = self._pipeline_costs()
        return cost_analysis(
            self.module,
            sum((each.largest_cost for each in costs), Cost()),
            [row for each in costs for row in each.collectives_of(each.largest_rank)],
        )

    def memory_analysis(self) -> MemoryAnalysis:
        """Return the bytes that one run allocates on each device, and in this process.

        With a pipeline, they are those of a device of the row that needs most.
        """
        costs = self._pipeline_costs()
        host = self._program.memory()
        if host is not None:
            added = sum(each.host_bytes for each in costs)
            host = replace(host, temporaries=host.temporaries + added, peak=host.peak + added)
        return memory_analysis(
            self.module,
            host,
            self._program.donated_bytes(),
            {each.call: sum(each.largest_memory.values()) for each in costs},
        )

    def _pipeline_costs(self) -> "list[PipelineCosts]":
        if not has_pipelines(self._lowered.module):
            return []
        return costs.costs_of_pipelines(self.module)

    @traceback_boundary
    def simulate(
        self,
        machine: "MachineLike",
        *,
        links: Mapping[str, str] | None = None,
        target: str | None = None,
        memory: int | str | None = None,
    ) -> "Simulation":
        """Return the predicted time and memory of one run on a machine.

        `machine` is the name of a description (`"a100x8"`), the path of one, or a result of
        `shardir.machine.load_machine`. `links` names the link of a mesh axis
        (`{"model": "nvlink"}`). `target` is a target of `emit`, whose passes form kernels. `memory`
        is a capacity such as `"80GiB"`: the result states whether the program fits, and has
        `remedies` if it does not.
        """
        return self._lowered.simulate_with_remedies(
            self.module, machine, links=links, target=target, memory=memory
        )

    @property
    def args_info(self) -> PyTree:
        """The pytree of arguments, (positional, named), with an `ArgInfo` for each array."""
        return self._lowered.args_info

    @property
    def in_avals(self) -> PyTree:
        """The pytree of arguments, (positional, named), with the type of each array."""
        return self._lowered.in_avals

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The positions of donated arguments among the leaves of all arguments."""
        return self._lowered.donate_argnums

    @property
    def in_tree(self) -> tree.PyTreeDef:
        """The structure of the arguments, (positional, named)."""
        return self._lowered.in_tree

    @property
    def out_tree(self) -> tree.PyTreeDef:
        """The structure of the result."""
        return self._lowered.out_tree

    @property
    def out_info(self) -> PyTree:
        """The pytree of results with a `ShapeDtypeStruct` and its sharding for each array."""
        kinds = tree.leaves(self._lowered.out_info)
        return tree.unflatten(
            self.out_tree,
            [
                kind.update(sharding=sharding)
                for kind, sharding in zip(kinds, self._program.results, strict=True)
            ],
        )

    @property
    def input_shardings(self) -> PyTree:
        """The pytree of arguments, (positional, named), with the sharding of each array."""
        count = self.in_tree.num_leaves
        return tree.unflatten(self.in_tree, self._program.params[:count])

    @property
    def output_shardings(self) -> PyTree:
        """The pytree of results with the sharding of each array."""
        return tree.unflatten(self.out_tree, self._program.results)

    def __call__(self, *args: PyTree, **options: PyTree) -> PyTree:
        """Call the function; arguments must have the types and shardings for which it was compiled.

        Arguments that `jit` was to donate are deleted.
        """
        try:
            leaves = self._lowered.check_arguments(args, options)
            run, donated = self._program, self._program.donated
            name = self._lowered.module.main.name
            devices = run.plan.devices
            results = (
                run_with_donation(run, leaves, donated, name, devices) if donated else run(leaves)
            )
            return tree.unflatten(self.out_tree, results)
        except Exception as error:
            hide_own_frames(error)
            raise


@final
@dataclass(frozen=True, slots=True)
class RuntimeExecutable:
    """The program of a compiled function that devices run.

    JAX's object has the program in HLO; this one has it in the text of shardir, in which
    collectives have the same names: `all-gather`, `all-reduce`.
    """

    compiled: Compiled

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.compiled.module.main.name

    def hlo_modules(self) -> list["DeviceModule"]:
        """Return the program of each device, which is the same for all devices, as one module."""
        return [DeviceModule(self.name, self.compiled.module)]


@final
@dataclass(frozen=True, slots=True)
class DeviceModule:
    """The program of each device."""

    name: str
    module: Module

    def to_string(self) -> str:
        """Return the text of the program, as `Compiled.as_text`."""
        return print_module(self.module)


@ir_text.register(Lowered)
@ir_text.register(Compiled)
def _program_text(program: Lowered | Compiled, *, locations: bool = False) -> str:
    return program.as_text(locations=locations)
