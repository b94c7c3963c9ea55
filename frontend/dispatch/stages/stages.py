"""The results of `lower` and `compile`: a traced program, and the compiled program."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, final

from shardir.cost.communication import Collective, list_collectives
from shardir.cost.op_cost import Cost
from shardir.display.program_html import program_html
from shardir.display.representation import abbreviate
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.numpy_conversion import to_numpy
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.config import resolve_pipeline
from shardir.frontend.dispatch.programs.donation import reusable_parameters, run_with_donation
from shardir.frontend.dispatch.programs.lowering import LoweredProgram
from shardir.frontend.dispatch.programs.runnable import Runnable, default_pipeline
from shardir.frontend.dispatch.stages.argument_check import check_arguments, check_structure
from shardir.frontend.dispatch.stages.cost_analysis import (
    MemoryAnalysis,
    cost_analysis,
    memory_analysis,
)
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import hide_own_frames, traceback_boundary
from shardir.frontend.tracing.parameters import leaf_labels
from shardir.frontend.tracing.trace import TracedFunction
from shardir.ir.module import Loc, Module
from shardir.ops.control_flow.pipelines import pipeline
from shardir.passes.pipeline import Pipeline
from shardir.passes.propagation.propagate import Propagate
from shardir.text.literals import format_name
from shardir.text.printer import print_module

if TYPE_CHECKING:
    from shardir.backends.emission import Emission
    from shardir.frontend.dispatch.stages.emission import BoundaryNames
    from shardir.frontend.dispatch.stages.step_simulation import MachineLike
    from shardir.frontend.pipelines.costs import PipelineCosts
    from shardir.frontend.pipelines.inspection import InspectedPipeline
    from shardir.frontend.profiling.profile_data import Profile
    from shardir.frontend.report.build import ReportInput
    from shardir.frontend.report.program_report import ProgramReport
    from shardir.passes.explain.collective_causes import CollectiveCause
    from shardir.passes.explain.communication import Communication
    from shardir.passes.explain.reports import (
        Conflicts,
        Coverage,
        Difference,
        Explanation,
        OrderSensitivity,
    )
    from shardir.passes.simulation import Simulation


@final
class Lowered:
    """A function traced for given arguments.

    `in_tree` is the structure of its arguments, (positional, named); `out_tree` of its result.
    """

    def __init__(
        self,
        plan: LoweredProgram,
        traced: TracedFunction,
        in_tree: tree.PyTreeDef,
        out_tree: tree.PyTreeDef,
        labels: list[str],
        defined: Loc | None = None,
        donated: Sequence[int] = (),
        static: frozenset[int] = frozenset(),
    ) -> None:
        self._plan, self._traced, self._labels = plan, traced, labels
        self._defined, self._donated, self._static = defined, donated, static
        self.in_tree, self.out_tree = in_tree, out_tree

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return abbreviate(str(self), comment="// ")

    def _repr_html_(self) -> str:
        return program_html(self.as_text(locations=True))

    @property
    def module(self) -> Module:
        """The traced program."""
        return self._plan.module

    @property
    def pipeline(self) -> str:
        """The passes with which the program is compiled, as text."""
        return str(default_pipeline(self._plan))

    @cached_property
    def _device_program(self) -> Module:
        """The program of each device, shared by all simulations; pipelines stay operations."""
        from shardir.frontend.pipelines.inspection import describe_pipelines  # For start-up time.

        return default_pipeline(self._plan)(describe_pipelines(self.module))

    @property
    def donated(self) -> Sequence[int]:
        """The positions of donated arguments among the leaves of all arguments."""
        return self._donated

    @property
    def captured(self) -> Sequence[Array]:
        """The arrays that the function captures; they are the last arguments of the program."""
        return self._traced.captured

    @property
    def user_locations(self) -> dict[tuple[str, str], Loc]:
        """The locations of arguments and results in the user's program: the definition of the
        function."""
        function, place = self.module.main, self._defined
        if place is None:
            return {}
        names = [f"%{format_name(param.name)}" for param in function.body.params]
        names += [f"result {i}" for i in range(len(function.result_shardings))]
        return {(function.name, name): place for name in names}

    @property
    def out_info(self) -> PyTree:
        """The pytree of results with a `ShapeDtypeStruct` for each array."""
        structs = [
            ShapeDtypeStruct(
                result.type.shape, result.type.numpy, sharding=sharding, weak_type=result.weak
            )
            for result, sharding in zip(self._traced.results, self._plan.results, strict=True)
        ]
        return tree.unflatten(self.out_tree, structs)

    @traceback_boundary
    def after(self, stage: str) -> Module:
        """Return the program after the pass named `stage`; raises `PipelineError` that lists the
        passes."""
        *earlier, last = default_pipeline(self._plan).through(stage).passes
        if isinstance(last, Propagate):
            last = replace(last, leave_open=False)  # Only the next pass needs open dimensions.
        return Pipeline((*earlier, last))(self._plan.module)

    def as_text(self, stage: str | None = None, *, locations: bool = False) -> str:
        """Return the text of the traced program, or of the program after the pass named `stage`.

        `locations` adds the line of the user's program to every operation.
        """
        module = self.module if stage is None else self.after(stage)
        return print_module(module, locations=locations)

    @traceback_boundary
    def explain(self, value: str) -> "Explanation":
        """Return the origin of each mesh axis of a value, and why other axes are absent.

        `value` is a name in `as_text()`, or a result of the function such as `result 0`. The
        explanation, and those of the other methods, states the shardings with which the program is
        compiled: it respects the keyword `passes` of `jit`, and the settings.

        Raises `ExplainError` when there is no value of this name.
        """
        from shardir.passes import explain  # For start-up time.

        return explain.explain(self, value)

    @traceback_boundary
    def conflicts(self) -> "Conflicts":
        """Return the conflicts between shardings, how each was resolved, and the communication it
        causes."""
        from shardir.passes import explain  # For start-up time.

        return explain.conflicts(self)

    @traceback_boundary
    def explain_collective(self, collective: "Collective | str") -> "CollectiveCause":
        """Return the cause of a collective, which is given as an object or by the name of its
        result.

        The cause states the reshard that the collective belongs to, the annotations from which its
        axes come, and more expensive alternatives. A collective of a pipeline states its stage in
        `why`. Raises `ExplainError` when there is no such collective.
        """
        # For start-up time.
        from shardir.frontend.pipelines.explain import explain_collective_beside_pipelines
        from shardir.passes import explain
        from shardir.passes.pipeline_parallelism.program import has_pipelines

        if has_pipelines(self.module):
            return explain_collective_beside_pipelines(
                self.module, self._device_program, collective, self.pipeline, self.user_locations
            )
        return explain.explain_collective(self, collective)

    @traceback_boundary
    def what_if(self, *annotations: str, without: Sequence[str] = ()) -> "Difference":
        """Return the changes that annotations such as `%w: f32[128, 256@model]` would make.

        `without` names values (`%w`, `result 0`) whose annotations are removed.
        """
        from shardir.passes import explain  # For start-up time.

        return explain.what_if(self, annotations, without=without)

    @traceback_boundary
    def order_sensitive(self) -> "OrderSensitivity":
        """Return the values whose sharding depends on the order of propagation."""
        from shardir.passes import explain  # For start-up time.

        return explain.order_sensitive(self)

    @traceback_boundary
    def coverage(self) -> "Coverage":
        """Return operations without a factor rule, replicated dimensions, and annotations without
        effect."""
        from shardir.passes import explain  # For start-up time.

        return explain.coverage(self)

    @traceback_boundary
    def simulate(
        self,
        machine: "MachineLike",
        *,
        links: Mapping[str, str] | None = None,
        target: str | None = None,
        memory: int | str | None = None,
    ) -> "Simulation":
        """Return the predicted time and memory of one run; see `Compiled.simulate`.

        The program is partitioned, and not compiled.
        """
        return self.simulate_with_remedies(
            self._device_program, machine, links=links, target=target, memory=memory
        )

    def simulate_with_remedies(
        self,
        partitioned: Module,
        machine: "MachineLike",
        *,
        links: Mapping[str, str] | None,
        target: str | None,
        memory: int | str | None,
    ) -> "Simulation":
        """Return the simulation of the partitioned program, with remedies if it does not fit."""
        # For start-up time.
        from shardir.frontend.dispatch.stages.memory_remedies import RemedySearch
        from shardir.frontend.pipelines.costs import simulate_with_pipelines
        from shardir.frontend.pipelines.inspection import describe_pipelines

        def simulate(module: Module, donated: Sequence[int]) -> "Simulation":
            function = self.module.main
            types = [value.type for value in function.body.returns]
            return simulate_with_pipelines(
                module,
                self.module,
                machine,
                links=links,
                target=target,
                memory=memory,
                donated=reusable_parameters(donated, function, types),
                places=self.user_locations,
            )

        found = simulate(partitioned, self._donated)
        if found.fits is not False:
            return found
        steps = default_pipeline(self._plan)
        search = RemedySearch(
            self._plan,
            partitioned,
            self._labels,
            self.in_tree,
            self._static,
            self._donated,
            lambda module, donated: simulate(steps(describe_pipelines(module)), donated),
        )
        remedies, count = search.find(found)
        return replace(found, remedies=remedies, evaluated_changes=count)

    @traceback_boundary
    def pipelines(self) -> "list[InspectedPipeline]":
        """Return the pipelines of the program, split into stages and scheduled."""
        from shardir.frontend.pipelines import inspection  # For start-up time.

        return inspection.inspect_pipelines(self.module)

    @traceback_boundary
    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        simulation: "Simulation | None" = None,
    ) -> "ProgramReport":
        """Return a report of the program: its stages, shardings, communication and schedule.

        With `path`, write it to this file: a page for a browser, JSON if the name ends with
        `.json`, or text if it ends with `.txt`. With `simulation`, the result of `simulate`, it
        shows the time and memory on that machine.
        """
        from shardir.frontend.report import program_report  # For start-up time.

        found = program_report.report(replace(self._report_input(), simulation=simulation))
        if path is not None:
            found.save(path)
        return found

    def _report_input(self) -> "ReportInput":
        from shardir.frontend.report.build import ReportInput  # For start-up time.

        lanes = {f"pipeline {i}": each.to_text() for i, each in enumerate(self.pipelines())}
        return ReportInput(self.module, self.pipeline, places=self.user_locations, texts=lanes)

    @traceback_boundary
    def emit(
        self,
        target: str,
        directory: str | Path,
        *,
        selftest: bool = False,
        seed: int = 0,
        arguments: Sequence[PyTree] | None = None,
        keywords: Mapping[str, PyTree] | None = None,
        selftest_seconds: float | None = None,
        **options: PyTree,
    ) -> list[Path]:
        """Write the program as source text for `target` ("gpu", "ipu"); return the paths of the
        files.

        `selftest` adds random arguments (from `seed`) and the results of the reference interpreter.
        `arguments`, a tuple, and `keywords`, a dict, are used for the self-test instead of random
        ones. Raises `EmissionError` if the interpreter needs more than `selftest_seconds` (60 by
        default), and for features that the target does not support. `options` are options of the
        target.
        """
        from shardir.frontend.dispatch.stages import emission as emitting  # For start-up time.

        emission = self.emission(
            target,
            selftest=selftest,
            seed=seed,
            arguments=arguments,
            keywords=keywords,
            selftest_seconds=selftest_seconds,
        )
        return emitting.write_files(emission, target, directory, options)

    def emission(
        self,
        target: str,
        *,
        selftest: bool = False,
        seed: int = 0,
        arguments: Sequence[PyTree] | None = None,
        keywords: Mapping[str, PyTree] | None = None,
        selftest_seconds: float | None = None,
    ) -> "Emission":
        """Return the input of the target for `emit`: the program of one device, after the target's
        passes."""
        from shardir.frontend.dispatch.stages import emission  # For start-up time.

        seconds = emission.MAX_SELFTEST_SECONDS if selftest_seconds is None else selftest_seconds
        given = None
        if arguments is not None or keywords is not None:
            given = self._global_arrays(tuple(arguments or ()), dict(keywords or {}))
        steps = default_pipeline(self._plan)
        return emission.make_emission(
            self.module,
            target,
            self.naming,
            steps,
            selftest or given is not None,
            seed,
            given,
            seconds,
        )

    @property
    def naming(self) -> "BoundaryNames":
        """The names of arguments and results in the user's program."""
        from shardir.frontend.dispatch.stages.emission import BoundaryNames  # For start-up time.

        numbered = tree.unflatten(self.out_tree, range(self.out_tree.num_leaves))
        return BoundaryNames(
            tuple(self._labels),
            tuple(leaf_labels("result", numbered)),
            frozenset(self._donated),
            tuple(array.to_numpy_view() for array in self.captured),
        )

    @traceback_boundary
    def compile(self, *, passes: str | None = None) -> "Compiled":
        """Return the compiled program; `passes` is its pipeline, by default that of `jit`."""
        if passes is not None:
            return self.with_passes(passes).compile()
        runnable, _ = self.make_program()
        if self._donated:
            runnable.donate(self._donated)
        return Compiled(self, runnable)

    @traceback_boundary
    def with_passes(self, passes: str) -> "Lowered":
        """Return the program with another pipeline, as the keyword `passes` of `jit` states it."""
        plan = replace(self._plan, passes=resolve_pipeline(passes, "with_passes"))
        return Lowered(
            plan,
            self._traced,
            self.in_tree,
            self.out_tree,
            self._labels,
            self._defined,
            self._donated,
            self._static,
        )

    def make_program(self) -> tuple[Runnable, tree.PyTreeDef]:
        """Return the program as `jit` caches it, and the structure of its result."""
        runnable = Runnable(self._plan, self._traced.results, self._traced.captured)
        return runnable, self.out_tree

    def _global_arrays(self, args: tuple[PyTree, ...], options: dict[str, PyTree]) -> list[PyTree]:
        """Return the global NumPy arrays of a call's arguments, with any placement."""
        leaves = check_structure(self.module.main.name, self.in_tree, args, options)
        return [
            leaf.read()
            if isinstance(leaf, Array)
            else to_numpy(leaf, f"argument {label} of {self.module.main.name}")
            for leaf, label in zip(leaves, self._labels, strict=False)
        ]

    def check_arguments(self, args: tuple[PyTree, ...], options: dict[str, PyTree]) -> list[PyTree]:
        """Return the arrays of a call; raises `ArgumentError` for other types, shardings or
        structures."""
        leaves = check_structure(self.module.main.name, self.in_tree, args, options)
        params = [value.type for value in self._traced.params]
        check_arguments(self.module.main.name, leaves, self._labels, params, self._plan.params)
        return leaves


@final
class Compiled:
    """A function compiled for given arguments. Call it with such arguments."""

    def __init__(self, lowered: Lowered, program: Runnable) -> None:
        self._lowered, self._program = lowered, program

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return abbreviate(str(self), comment="// ")

    def _repr_html_(self) -> str:
        return program_html(self.as_text(locations=True))

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

    def collectives(self) -> list[Collective]:
        """Return every collective of one run: kind, axes, bytes on one device, source line.

        Those of a pipeline are the collectives of all stages, and the sends between them.
        """
        inner = (each for costs in self._pipeline_costs() for each in costs.collectives())
        return [*list_collectives(self.module), *inner]

    def communication(self) -> "Communication":
        """Return tables of the collectives of one run: by kind, by axes, by line of the program."""
        # Imported late for start-up time.
        from shardir.passes.explain.communication import tabulate_collectives

        return tabulate_collectives(self.collectives(), self.module.main.name)

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
        # For start-up time.
        from shardir.frontend.profiling.profile_data import Profile
        from shardir.frontend.report import program_report

        if not isinstance(profile, (Profile, NoneType)):
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
        if host is not None and costs:
            added = sum(each.host_bytes for each in costs)
            host = replace(host, temporaries=host.temporaries + added, peak=host.peak + added)
        return memory_analysis(
            self.module,
            host,
            self._program.donated_bytes(),
            {each.call: sum(each.largest_memory.values()) for each in costs},
        )

    def _pipeline_costs(self) -> "list[PipelineCosts]":
        if not any(op.spec is pipeline for op in self._lowered.module.main.body.ops):
            return []
        from shardir.frontend.pipelines.costs import costs_of_pipelines  # For start-up time.

        return costs_of_pipelines(self.module)

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
