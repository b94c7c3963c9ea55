"""The inspection of a traced program: its text, explanations, simulations, reports, and source code
for other machines.

The modules of these analyses are imported at first use, because few programs need them.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardir._imports.lazy_import import lazy_import
from shardir.cost.communication import Collective
from shardir.display.representation import Printed
from shardir.frontend.absent_members import WithAbsentMembers
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.numpy_conversion import to_numpy
from shardir.frontend.dispatch.programs.donation import reusable_parameters
from shardir.frontend.dispatch.programs.lowering import LoweredProgram
from shardir.frontend.dispatch.programs.runnable import default_pipeline
from shardir.frontend.dispatch.stages.argument_check import check_structure
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.devices import Device
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.function_tracing import TracedFunction
from shardir.frontend.tracing.parameters import leaf_labels
from shardir.ir.module import Loc, Module
from shardir.ops.control_flow.pipelines import has_pipelines
from shardir.passes.pipeline import Pipeline
from shardir.passes.propagation.propagate import Propagate
from shardir.text.literals import format_name
from shardir.text.printer import print_module

if TYPE_CHECKING:
    from shardir.backends.emission import Emission
    from shardir.frontend.dispatch.stages import dialects, emission, memory_remedies
    from shardir.frontend.dispatch.stages.emission import BoundaryNames
    from shardir.frontend.dispatch.stages.step_simulation import MachineLike
    from shardir.frontend.pipelines import collective_explanation, costs, inspection
    from shardir.frontend.pipelines.inspection import InspectedPipeline
    from shardir.frontend.report import build, planning_records, program_report
    from shardir.frontend.report.build import ReportInput
    from shardir.frontend.report.program_report import ProgramReport
    from shardir.frontend.report.records import PlanningRecord
    from shardir.passes import explain
    from shardir.passes.explain.collective_causes import CollectiveCause
    from shardir.passes.explain.reports import (
        Conflicts,
        Coverage,
        Difference,
        Explanation,
        OrderSensitivity,
        Report,
    )
    from shardir.passes.simulation import Simulation
else:
    build = lazy_import("shardir.frontend.report.build")
    collective_explanation = lazy_import("shardir.frontend.pipelines.collective_explanation")
    costs = lazy_import("shardir.frontend.pipelines.costs")
    dialects = lazy_import("shardir.frontend.dispatch.stages.dialects")
    emission = lazy_import("shardir.frontend.dispatch.stages.emission")
    explain = lazy_import("shardir.passes.explain")
    inspection = lazy_import("shardir.frontend.pipelines.inspection")
    memory_remedies = lazy_import("shardir.frontend.dispatch.stages.memory_remedies")
    planning_records = lazy_import("shardir.frontend.report.planning_records")
    program_report = lazy_import("shardir.frontend.report.program_report")


@dataclass(eq=False, repr=False)
class InspectedProgram(WithAbsentMembers, Printed):
    """A traced program, with the methods of `Lowered` that do not compile it."""

    _plan: LoweredProgram
    _traced: TracedFunction
    in_tree: tree.PyTreeDef
    """The structure of the arguments, (positional, named)."""
    out_tree: tree.PyTreeDef
    """The structure of the result."""
    _labels: list[str]
    _defined: Loc | None = None
    _donated: Sequence[int] = ()
    _static: frozenset[int] = frozenset()
    _device: Device | None = None
    """The device to which calls of the compiled program move their arguments."""
    _find_plan: "Callable[[Any], Report] | None" = None
    """Returns the plan that chose shardings that the program does not state."""

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
        return default_pipeline(self._plan)(inspection.describe_pipelines(self.module))

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

    @traceback_boundary
    def after(self, stage: str) -> Module:
        """Return the program after the pass named `stage`; raises `PipelineError` that lists the
        passes."""
        *earlier, last = default_pipeline(self._plan).through(stage).passes
        if isinstance(last, Propagate):
            last = replace(last, leave_open=False)  # Only the next pass needs open dimensions.
        return Pipeline((*earlier, last))(self._plan.module)

    @traceback_boundary
    def as_text(
        self,
        stage: str | None = None,
        *,
        locations: bool = False,
        dialect: str | None = None,
        debug_info: bool = False,
    ) -> str:
        """Return the text of the traced program, or of the program after the pass named `stage`.

        `locations`, or `debug_info` as in JAX, adds the line of the user's program to every
        operation. The dialect "stablehlo", which is also accepted as the first argument, is MLIR
        that XLA runs, with Shardy's shardings; the default is "shardir", the IR of shardir. Raises
        `ArgumentError` for other dialects, and `ExportError` for operations that StableHLO cannot
        express.
        """
        if dialect is None and isinstance(stage, str) and stage in ("shardir", "stablehlo", "hlo"):
            stage, dialect = None, stage
        module = self.module if stage is None else self.after(stage)
        if dialect is None:
            return print_module(module, locations=locations or debug_info)
        return dialects.dialect_text(module, dialect, locations=locations or debug_info)

    @traceback_boundary
    def explain(self, value: str) -> "Explanation":
        """Return the origin of each mesh axis of a value, and why other axes are absent.

        `value` is a name in `as_text()`, or a result of the function such as `result 0`. The
        explanation, and those of the other methods, states the shardings with which the program is
        compiled: it respects the keyword `passes` of `jit`, and the settings.

        Raises `ExplainError` when there is no value of this name.
        """
        return explain.explain(self, value)

    @traceback_boundary
    def conflicts(self) -> "Conflicts":
        """Return the conflicts between shardings, how each was resolved, and the communication it
        causes."""
        return explain.conflicts(self)

    @traceback_boundary
    def explain_collective(self, collective: "Collective | str") -> "CollectiveCause":
        """Return the cause of a collective, which is given as an object or by the name of its
        result.

        The cause states the reshard that the collective belongs to, the annotations from which its
        axes come, and more expensive alternatives. A collective of a pipeline states its stage in
        `why`. Raises `ExplainError` when there is no such collective.
        """
        if has_pipelines(self.module):
            return collective_explanation.explain_collective_beside_pipelines(
                self.module, self._device_program, collective, self.pipeline, self.user_locations
            )
        return explain.explain_collective(self, collective)

    @traceback_boundary
    def what_if(self, *annotations: str, without: Sequence[str] = ()) -> "Difference":
        """Return the changes that annotations such as `%w: f32[128, 256@model]` would make.

        `without` names values (`%w`, `result 0`) whose annotations are removed.
        """
        return explain.what_if(self, annotations, without=without)

    @traceback_boundary
    def order_sensitive(self) -> "OrderSensitivity":
        """Return the values whose sharding depends on the order of propagation."""
        return explain.order_sensitive(self)

    @traceback_boundary
    def coverage(self) -> "Coverage":
        """Return operations without a factor rule, replicated dimensions, and annotations without
        effect."""
        return explain.coverage(self)

    @traceback_boundary
    def plan(self) -> "Report | None":
        """Return the plan that chose shardings of arguments, for functions with `AUTO` and for
        those that `Plan.jit` returned; `None` for other functions.

        For `AUTO`, the search runs again.
        """
        return None if self._find_plan is None else self._find_plan(self)

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

        def simulate(
            module: Module, donated: Sequence[int], offloaded: Mapping[int, int] | None = None
        ) -> "Simulation":
            function = self.module.main
            types = [value.type for value in function.body.returns]
            return costs.simulate_with_pipelines(
                module,
                self.module,
                machine,
                links=links,
                target=target,
                memory=memory,
                donated=reusable_parameters(donated, function, types),
                places=self.user_locations,
                offloaded=offloaded,
            )

        found = simulate(partitioned, self._donated)
        if found.memory_capacity is None or found.fits:
            return found
        steps = default_pipeline(self._plan)

        def simulate_change(changed: "memory_remedies.ChangedProgram") -> "Simulation":
            module = partitioned
            if changed.before or changed.module is not self._plan.module:
                traced = Pipeline.parse(changed.before)(changed.module)
                module = steps(inspection.describe_pipelines(traced))
            module = Pipeline.parse(changed.after)(module)
            return simulate(module, changed.donated, changed.offloaded)

        search = memory_remedies.RemedySearch(
            self._plan,
            partitioned,
            self._labels,
            self.in_tree,
            self._static,
            self._donated,
            found.memory_capacity,
            simulate_change,
        )
        changes = search.find(found)
        return replace(
            found,
            remedies=changes.remedies,
            evaluated_changes=changes.change_count,
            notes=(*found.notes, *changes.notes),
        )

    @traceback_boundary
    def pipelines(self) -> "list[InspectedPipeline]":
        """Return the pipelines of the program, split into stages and scheduled."""
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
        found = program_report.report(replace(self._report_input(), simulation=simulation))
        if path is not None:
            found.save(path)
        return found

    def _report_input(self) -> "ReportInput":
        lanes = {f"pipeline {i}": each.to_text() for i, each in enumerate(self.pipelines())}
        return build.ReportInput(
            self.module,
            self.pipeline,
            places=self.user_locations,
            texts=lanes,
            planning=self.planning_record(),
        )

    def planning_record(self) -> "PlanningRecord | None":
        """Return the plan that chose shardings of arguments, as a part of the report; `None` if the
        program states all shardings."""
        plan = self.plan()
        return None if plan is None else planning_records.planning_record(plan)

    @property
    def naming(self) -> "BoundaryNames":
        """The names of arguments and results in the user's program."""
        numbered = tree.unflatten(self.out_tree, range(self.out_tree.num_leaves))
        return emission.BoundaryNames(
            tuple(self._labels),
            tuple(leaf_labels("result", numbered)),
            frozenset(self._donated),
            tuple(array.to_numpy_view() for array in self.captured),
        )

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
        program = self.emission(
            target,
            selftest=selftest,
            seed=seed,
            arguments=arguments,
            keywords=keywords,
            selftest_seconds=selftest_seconds,
        )
        return emission.write_files(program, target, directory, options)

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

    def _global_arrays(self, args: tuple[PyTree, ...], options: dict[str, PyTree]) -> list[PyTree]:
        """Return the global NumPy arrays of a call's arguments, with any placement."""
        leaves = check_structure(self.module.main.name, self.in_tree, args, options)
        return [
            leaf.read()
            if isinstance(leaf, Array)
            else to_numpy(leaf, f"argument {label} of {self.module.main.name}")
            for leaf, label in zip(leaves, self._labels, strict=False)
        ]
