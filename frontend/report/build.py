"""Build the data of a report from a program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardir.cost.communication import name_counted_function
from shardir.cost.op_cost import cost_of_block
from shardir.errors import ShardirError
from shardir.frontend.profiling.profile_data import Profile
from shardir.frontend.report.findings import (
    collective_records,
    conflict_records,
    dependence_records,
    revision_records,
    short_line,
    total_record,
    total_records,
    unruled_records,
    unsharded_records,
)
from shardir.frontend.report.measured_run import run_record
from shardir.frontend.report.records import MeshRecord, PlanningRecord, ReportData
from shardir.frontend.report.simulated_schedule import simulation_record
from shardir.frontend.report.stages import (
    Stage,
    StageRecorder,
    definition_records,
    stage_records,
)
from shardir.frontend.report.tables import ReportTables, Table
from shardir.frontend.report.timeline import Timeline
from shardir.frontend.report.values import ValueTables
from shardir.ir.module import Loc, Module
from shardir.ops.control_flow.pipelines import has_pipelines
from shardir.passes.explain.collective_causes import CollectiveCauses
from shardir.passes.explain.communication import communication
from shardir.passes.explain.conflicts import conflicts_of
from shardir.passes.explain.coverage import coverage_of
from shardir.passes.explain.explained_pipeline import ExplainedPipeline
from shardir.passes.explain.order_sensitivity import order_sensitivity_of
from shardir.passes.explain.propagated_program import PropagatedProgram, propagate_with_history
from shardir.passes.explain.reports import Coverage
from shardir.passes.pipeline import Pipeline
from shardir.passes.simulation import Simulation

INLINED_NOTE = (
    "after the pass inline-pipelines, every device computes all operations of a pipeline; "
    "all numbers are those of that program"
)


@dataclass(frozen=True)
class ReportInput:
    """A program to report on.

    `module` is the traced program, `pipeline` the passes to the program of each device, and
    `backend_pipeline` those after it. `places` are the lines of values without a line of their own,
    `sources` the texts of files that cannot be read by name. `texts` are shown as further stages.
    `profile` is a profile of the program, whose last run is shown, and `simulation` a simulation of
    it. `planning` is the plan that chose its shardings.
    """

    module: Module
    pipeline: str
    backend_pipeline: str = ""
    places: Mapping[tuple[str, str], Loc] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    profile: Profile | None = None
    simulation: Simulation | None = None
    planning: PlanningRecord | None = None


def build_report(given: ReportInput) -> ReportData:
    """Return the data of the report of a program."""
    tables = ReportTables(given.sources)
    passes = _record_passes(given)
    run, device_program = passes.run, passes.device_program
    histories = list(run.histories.values()) if run else []
    values = ValueTables(tables)
    value_records = tuple(
        values.record(history, value) for history in histories for value in history.values.values()
    )
    whole = passes.whole_program
    causes = CollectiveCauses(whole, histories[0]) if whole and histories else None
    traffic = communication(device_program, places=given.places)
    collectives = tuple(collective_records(traffic, causes, tables))
    coverage = coverage_of(run) if run else Coverage((), (), ())
    order = order_sensitivity_of(run) if run else None
    conflicts = [row for history in histories for row in conflicts_of(history)]

    timeline = Timeline(device_program, given.places, tables)
    schedule = timeline.schedule()
    cost = cost_of_block(device_program.main.body)
    tensors = [v for history in histories for v in history.made.values() if v.type.rank]
    texts: Table[str] = Table()
    stage_list = stage_records(passes.stages, given.texts, texts)
    made = ReportData(
        name=given.module.main.name,
        pipeline=given.pipeline,
        meshes=tuple(
            MeshRecord(m.name, tuple(m.axes), m.size, tuple(m.device_ids or ()))
            for m in given.module.meshes
        ),
        files=(),
        texts=texts.items,
        stages=stage_list,
        tensors=len(tensors),
        sharded=sum(1 for v in tensors if v.sharding and any(v.sharding.axes)),
        flops=cost.flops,
        memory=cost.memory,
        annotations=(),
        links=values.links,
        origins=tuple(values.origins),
        absences=values.absences,
        values=value_records,
        revisions=tuple(revision_records(histories)),
        definitions=definition_records(passes.stages, given.places, tables),
        collectives=collectives,
        by_kind=total_records(traffic.by_kind),
        by_axes=total_records(traffic.by_axes),
        by_line=(),
        total=total_record("", traffic.total),
        conflicts=tuple(conflict_records(conflicts, tables)),
        unruled=tuple(unruled_records(coverage, tables)),
        unsharded=tuple(unsharded_records(coverage)),
        idle=tables.annotation_numbers(coverage.idle),
        dependences=tuple(dependence_records(order.rows if order else (), tables)),
        source=tuple(timeline.source_lines(schedule)),
        schedule=schedule,
        run=None if given.profile is None else run_record(given.profile),
        notes=passes.notes,
        simulation=None if given.simulation is None else simulation_record(given.simulation),
        planning=given.planning,
    )
    files = tables.files
    lines = {str(row.loc): row.loc for row in traffic.rows if row.loc}
    by_line = [(short_line(lines.get(word), tables), total) for word, total in traffic.by_line]
    return replace(
        made, files=files, annotations=tables.annotations, by_line=total_records(by_line)
    )


@dataclass(frozen=True)
class _RecordedPasses:
    """The passes of a program: the recorded propagation, if it has shardings, the program after
    each pass, the program before it is partitioned, that of each device, and notes about them."""

    run: PropagatedProgram | None
    stages: Sequence[Stage]
    whole_program: Module | None
    device_program: Module
    notes: tuple[str, ...]


def _record_passes(given: ReportInput) -> _RecordedPasses:
    """Run the passes of a program."""
    notes: list[str] = []
    unexplained: list[str] = []
    recorder = StageRecorder(given.module)
    run = _propagate(given, recorder, unexplained)
    if run is None:
        parted = _run(given.pipeline, given.module, recorder, notes)
    else:
        parted = _run(str(Pipeline(run.pipeline.partitioning)), run.decided, recorder, notes)
    device_program = parted if parted is not None else recorder.stages[-1].module
    stages = list(recorder.stages)
    if given.backend_pipeline:
        last = StageRecorder(device_program)
        _run(given.backend_pipeline, device_program, last, notes)
        stages += last.stages[1:]
    notes += unexplained
    pipelined = recorder.before("inline-pipelines")
    if pipelined is not None and has_pipelines(pipelined):
        notes.append(INLINED_NOTE)
    if counted := name_counted_function(device_program):
        notes.append(f"communication, schedule and costs are those of {counted}")
    return _RecordedPasses(run, stages, recorder.before("partition"), device_program, tuple(notes))


def _run(pipeline: str, module: Module, recorder: StageRecorder, notes: list[str]) -> Module | None:
    """Return the program after a pipeline, `None` with a note if a pass rejects it."""
    if module.main.spmd is not None and not _is_backend_pipeline(pipeline):
        notes.append("the program has been partitioned: propagation is not shown")
        return module
    try:
        return Pipeline.parse(pipeline)(module, recorder.observe)
    except ShardirError as error:
        notes.append(f"the passes stop: {error}")
        return None


def _is_backend_pipeline(pipeline: str) -> bool:
    return "propagate" not in [step.name for step in Pipeline.parse(pipeline).passes]


def _propagate(
    given: ReportInput, recorder: StageRecorder, notes: list[str]
) -> PropagatedProgram | None:
    """Return the recorded propagation, `None` for a program without shardings."""
    stages = list(recorder.stages)
    try:
        pipeline = ExplainedPipeline.divide(given.pipeline)
        return propagate_with_history(given.module, pipeline, given.places, recorder.observe)
    except ShardirError as error:
        notes.append(f"shardings are not explained: {error}")
        recorder.stages[:] = stages
        return None
