"""The data of a report: plain records of numbers, texts and indices.

References between records are indices into the tables of `ReportData`. Locations are `(file, line,
column)`, where `file` is an index into `files`. Values are written as in the text of the program
(`%h`); all byte counts without another statement are those of one device.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, NamedTuple

from shardir.display.repetitions import Repetition

FORMAT = "shardir-report"
VERSION = 6
"""The version of the structure; it changes when a field changes or disappears."""


class Index(NamedTuple):
    """The marker of a field that is an index into a table of the report, such as `files`."""

    table: str


FileIndex = Annotated[int, Index("files")]
AnnotationIndex = Annotated[int, Index("annotations")]
LinkIndex = Annotated[int, Index("links")]
OriginIndex = Annotated[int, Index("origins")]
AbsenceIndex = Annotated[int, Index("absences")]
LaneIndex = Annotated[int, Index("schedule.lanes")]
RunLaneIndex = Annotated[int, Index("run.lanes")]
ActivityIndex = Annotated[int, Index("run.activities")]
Location = tuple[FileIndex, int, int]


@dataclass(frozen=True)
class MeshRecord:
    """A mesh with the names and sizes of its axes; `device_ids` are the devices at its positions,
    the last axis fastest, and empty if these are in order."""

    name: str
    axes: tuple[tuple[str, int], ...]
    devices: int
    device_ids: tuple[int, ...]


@dataclass(frozen=True)
class FileRecord:
    """A source file. `name` is the shortest end of its path that is unique in the report; `text`
    is empty if the file could not be read."""

    name: str
    text: str


@dataclass(frozen=True)
class StageRecord:
    """The program after one pass. `step` is the pass with its options, empty for the first stage.

    The lines are consecutive parts of the table `texts`: `line_runs` are (first line, number).
    `operations` includes those of nested blocks.
    `added`, `removed` and `changed` count lines relative to the stage before: lines that define the
    same values in both stages are the same line.
    """

    name: str
    step: str
    operations: int
    added: int
    removed: int
    changed: int
    line_runs: tuple[tuple[int, int], ...]
    folds: tuple[Repetition, ...]

    @cached_property
    def lines(self) -> tuple[int, ...]:
        """The lines as indices into the table `texts`."""
        return tuple(
            number for first, count in self.line_runs for number in range(first, first + count)
        )


@dataclass(frozen=True)
class AnnotationRecord:
    """A sharding that the program states. `subject` is argument, result, constraint or value."""

    subject: str
    name: str
    type: str
    function: str
    location: Location | None

    def __str__(self) -> str:
        return f"{self.subject} {self.name}: {self.type}"


@dataclass(frozen=True)
class LinkRecord:
    """One step of propagation: `op` moved an axis along `loop` from `source` to `target`."""

    source: str
    target: str
    op: str
    loop: str
    way: str
    priority: int
    round: int
    location: Location | None


@dataclass(frozen=True)
class StatedPart:
    """A part of an axis (all of it if `pre` is 1 and `size` that of the axis) that `annotation`
    states."""

    axis: str
    pre: int
    size: int
    annotation: AnnotationIndex


@dataclass(frozen=True)
class OriginRecord:
    """The origin of an axis at a dimension: parts that are stated there, and parts that came by
    `hops`: (link, origin of the axis at the source of the link)."""

    stated: tuple[StatedPart, ...]
    hops: tuple[tuple[LinkIndex, OriginIndex], ...]


@dataclass(frozen=True)
class AbsenceRecord:
    """Why `axis` does not shard a value; `dim` is -1 for no particular dimension."""

    axis: str
    dim: int
    reason: str
    tensor: str
    op: str
    location: Location | None
    detail: str
    far: bool


@dataclass(frozen=True)
class ValueRecord:
    """A value of the traced program after propagation.

    `shards` is the number of shards in each dimension, `copies` the number of devices that hold the
    same shard. `origins` are (dimension, index of an origin); `absences` are indices.
    """

    function: str
    name: str
    type: str
    location: Location | None
    nbytes: int
    total_nbytes: int
    shards: tuple[int, ...]
    copies: int
    origins: tuple[tuple[int, OriginIndex], ...]
    absences: tuple[AbsenceIndex, ...]


@dataclass(frozen=True)
class RevisionRecord:
    """A change of the sharding of a value by the pass `by`, after propagation; `before` and `after`
    are types, and `why` is the reason of the pass."""

    function: str
    name: str
    by: str
    before: str
    after: str
    why: str


@dataclass(frozen=True)
class DefinitionRecord:
    """The source line of a value of any stage, and the reason (`why`) if a pass made it."""

    function: str
    name: str
    location: Location | None
    why: str


@dataclass(frozen=True)
class TotalRecord:
    """A sum over collectives with the same `word`: their number, and their executions, result bytes
    and sent bytes in one run."""

    word: str
    count: int
    executions: int
    nbytes: int
    sent: int


@dataclass(frozen=True)
class PlanRecord:
    """A sequence of collectives from one sharding to another, by way of `middle` if not empty."""

    steps: tuple[str, ...]
    nbytes: int
    middle: str


@dataclass(frozen=True)
class CollectiveRecord:
    """A collective of the per-device program; `executions` is -1 inside of a `while`.

    `move` is the reshard that it belongs to, with the plan that was `chosen` and the more expensive
    ones that were `rejected`. `annotations` are those that its axes come from.
    """

    value: str
    kind: str
    axes: str
    group_size: int
    nbytes: int
    sent: int
    executions: int
    location: Location | None
    why: str
    move: str
    chosen: PlanRecord | None
    rejected: tuple[PlanRecord, ...]
    annotations: tuple[AnnotationIndex, ...]


@dataclass(frozen=True)
class RequestRecord:
    """The axes that a tensor requested for a factor, and the annotations behind them."""

    value: str
    loop: str
    axes: str
    annotations: tuple[AnnotationIndex, ...]


@dataclass(frozen=True)
class ConflictRecord:
    """Two requests that an operation cannot satisfy together; `reshard` moves the other tensor."""

    op: str
    function: str
    location: Location | None
    kept: RequestRecord
    given_up: RequestRecord
    verdict: str
    detail: str
    reshard: tuple[str, ...]
    nbytes: int


@dataclass(frozen=True)
class UnruledRecord:
    """An operation without a factor rule, which stops `axes`."""

    op: str
    location: Location | None
    axes: tuple[str, ...]


@dataclass(frozen=True)
class UnshardedRecord:
    """A dimension that is not sharded although `axes` are free and divide it."""

    value: str
    dim: int
    size: int
    axes: tuple[str, ...]
    nbytes: int


@dataclass(frozen=True)
class DependenceRecord:
    """A value whose sharding depends on the order of propagation."""

    value: str
    lifo: str
    fifo: str
    annotations: tuple[AnnotationIndex, ...]


@dataclass(frozen=True)
class SourceLineRecord:
    """The costs of a line in one run on each device. `peak` are bytes of values that are alive at
    the peak. The operations without a line have `line` 0."""

    file: int
    line: int
    flops: int
    memory: int
    sent: int
    peak: int


@dataclass(frozen=True)
class BoxRecord:
    """An operation of the body of the per-device program in the estimated schedule.

    `lane` is an index into `lanes`; times are nanoseconds. `alive` are the bytes that are alive
    while it runs, with the arguments. `waits` are the nanoseconds before its start in which the
    lane `compute` waits for a transfer.
    """

    name: str
    op: str
    lane: LaneIndex
    start: int
    duration: int
    waits: int
    alive: int


@dataclass(frozen=True)
class AliveRecord:
    """A value that is alive at the peak; `role` is argument, value, or block for nested values."""

    name: str
    type: str
    nbytes: int
    role: str
    location: Location | None


@dataclass(frozen=True)
class ScheduleRecord:
    """The estimated schedule of one device, and the memory that it needs.

    `machine` are the assumed operations, bytes of memory and bytes sent per second, and the seconds
    of latency. `peak_box` is the index of the operation at which most bytes are alive.
    """

    machine: tuple[tuple[str, float], ...]
    lanes: tuple[str, ...]
    boxes: tuple[BoxRecord, ...]
    total: int
    waiting: int
    arguments: int
    results: int
    temporaries: int
    peak: int
    peak_box: int
    alive_at_peak: tuple[AliveRecord, ...]


@dataclass(frozen=True)
class ActivityRecord:
    """An operation or a copy in a measured run: its text (`%y = dot`), its kernel, its lines.

    `collective` states whether it belongs to a collective. The lines are empty where none are
    known.
    """

    name: str
    kernel: str
    where: str
    collective: bool


@dataclass(frozen=True)
class TaskRecord:
    """A task that a thread executed; `activity` and `lane` are indices of the run.

    Times are nanoseconds, from the beginning of the run.
    """

    activity: ActivityIndex
    lane: RunLaneIndex
    start: int
    duration: int


@dataclass(frozen=True)
class RunRecord:
    """The last run of a profile: the tasks of each thread, which is a lane.

    `busy` are the number of tasks and the busy nanoseconds of each lane, `total` the nanoseconds of
    the run, and `lost` the number of tasks at its beginning that were not recorded.
    """

    lanes: tuple[str, ...]
    busy: tuple[tuple[int, int], ...]
    activities: tuple[ActivityRecord, ...]
    tasks: tuple[TaskRecord, ...]
    total: int
    lost: int


@dataclass(frozen=True)
class TableRecord:
    """A table, with the words of each cell."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SimulationRecord:
    """The simulated time and memory of a step: a title, tables, and sentences. `lanes` are the
    schedules of pipelines as text, with a line for each rank."""

    title: str
    tables: tuple[TableRecord, ...]
    sentences: tuple[str, ...]
    lanes: tuple[str, ...]


@dataclass(frozen=True)
class PlanningRecord:
    """A plan of the shardings: a title, tables of what it decided and of the alternatives with
    their costs, and sentences."""

    title: str
    tables: tuple[TableRecord, ...]
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class ReportData:
    """All data of a report. `sharded` of the `tensors` are sharded."""

    name: str
    pipeline: str
    meshes: tuple[MeshRecord, ...]
    files: tuple[FileRecord, ...]
    texts: tuple[str, ...]
    stages: tuple[StageRecord, ...]
    tensors: int
    sharded: int
    flops: int
    memory: int
    annotations: tuple[AnnotationRecord, ...]
    links: tuple[LinkRecord, ...]
    origins: tuple[OriginRecord, ...]
    absences: tuple[AbsenceRecord, ...]
    values: tuple[ValueRecord, ...]
    revisions: tuple[RevisionRecord, ...]
    definitions: tuple[DefinitionRecord, ...]
    collectives: tuple[CollectiveRecord, ...]
    by_kind: tuple[TotalRecord, ...]
    by_axes: tuple[TotalRecord, ...]
    by_line: tuple[TotalRecord, ...]
    total: TotalRecord
    conflicts: tuple[ConflictRecord, ...]
    unruled: tuple[UnruledRecord, ...]
    unsharded: tuple[UnshardedRecord, ...]
    idle: tuple[AnnotationIndex, ...]
    dependences: tuple[DependenceRecord, ...]
    source: tuple[SourceLineRecord, ...]
    schedule: ScheduleRecord
    run: RunRecord | None = None
    """The measured run, if the report has a profile."""
    notes: tuple[str, ...] = field(default=())
    """Parts that are missing, with the reason."""
    simulation: SimulationRecord | None = None
    """The simulated step, if the report has one."""
    planning: PlanningRecord | None = None
    """The plan that chose the shardings, if the report is that of a plan."""
