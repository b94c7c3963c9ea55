"""Profile programs on the CPU: one span for each task of a native kernel and for each NumPy call.

Spans of native code come from the ring buffers of its threads, spans of NumPy calls from marks.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, final

from shardir.backends.cpu.availability import unavailable_reason
from shardir.backends.numpy.marks import Mark, record_marks
from shardir.backends.numpy.threads import thread_count
from shardir.cost.op_cost import cost_of
from shardir.ir.module import Op

if TYPE_CHECKING:
    from shardir.backends.cpu.dispatch.program_table import LoadedProgram
    from shardir.backends.cpu.kernel_api import BufferView
    from shardir.backends.cpu.threads.roofline import Roofline
    from shardir.backends.cpu.threads.task_recording import RecordedTask, TaskRecording

PYTHON_THREAD = -1
"""The thread number of spans that Python code recorded."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The subject of spans: an operation or a copy, its memory traffic in bytes, and its FLOPs.

    Equal activities share one key.
    """

    key: int
    op: Op | None
    why: str
    memory: int
    flops: int


@dataclass(frozen=True, slots=True)
class Span:
    """The time from `begin` to `end` (of `time.monotonic_ns`) that a thread spent on an activity.

    Thread 0 is the calling thread, threads from 1 on are workers, those from 1000 on are concurrent
    callers, and `PYTHON_THREAD` marks Python code. `task` counts within the phase named `label`;
    `starts_activity` states whether the activity begins with this task.
    """

    activity: Activity
    label: str
    thread: int
    task: int
    begin: int
    end: int
    starts_activity: bool


@final
class ActivityRecorder:
    """Spans recorded so far; `take` returns and clears them.

    `dropped_tasks` counts the tasks between the last two calls that did not fit into the buffers.
    """

    def __init__(self, marks: list[Mark], record: "TaskRecording | None") -> None:
        self._marks, self._record = marks, record
        self.dropped_tasks = 0

    def take(self) -> list[Span]:
        """Return the spans in order of their begin."""
        marks = [*self._marks]
        del self._marks[: len(marks)]  # Other threads may append marks meanwhile.
        spans = [_span_of_mark(each) for each in marks]
        if self._record is not None:
            phases = _Phases()
            spans += [phases.span_of(each) for each in self._record.take()]
            self.dropped_tasks = self._record.dropped_tasks
        return sorted(spans, key=lambda span: span.begin)


@contextmanager
def record_activities() -> Iterator[ActivityRecorder]:
    """Record the activities of all programs of this process inside of the block."""
    with ExitStack() as stack:
        record = None
        if unavailable_reason() is None:
            # The module imports llvmlite, an optional dependency.
            from shardir.backends.cpu.threads.task_recording import record_tasks

            record = stack.enter_context(record_tasks())
        yield ActivityRecorder(stack.enter_context(record_marks()), record)


def machine_limits() -> "tuple[int, Roofline] | None":
    """Return the number of workers and their roofline; `None` without the native backend."""
    if unavailable_reason() is not None:
        return None
    # The module imports llvmlite, an optional dependency.
    from shardir.backends.cpu.threads.roofline import roofline

    return thread_count(), roofline()


def _span_of_mark(mark: Mark) -> Span:
    op: Op = mark.subject
    cost = cost_of(op)
    activity = Activity(id(op), op, op.why, cost.memory, cost.flops)
    return Span(activity, f"numpy {op.name}", PYTHON_THREAD, 0, mark.begin, mark.end, True)


@final
class _Phases:
    """The common data of the spans of a phase, computed once for all of its tasks."""

    def __init__(self) -> None:
        self._known: dict[tuple[LoadedProgram, int], tuple[Activity, str, bool]] = {}

    def span_of(self, task: "RecordedTask") -> Span:
        key = task.program, task.phase
        common = self._known.get(key)
        if common is None:
            common = self._known[key] = _of_phase(*key)
        activity, label, first = common
        starts = first and task.task == 0
        return Span(activity, label, task.thread, task.task, task.begin, task.end, starts)


def _of_phase(program: "LoadedProgram", number: int) -> tuple[Activity, str, bool]:
    """The activity of a phase, its label, and whether the activity begins with it."""
    phase = program.phases[number]
    label = phase.label or phase.kernel.name
    cause: object = program.causes[number] if program.causes else None
    if cause is None:
        return Activity(id(phase), None, label, 0, 0), label, True
    first = number == 0 or program.causes[number - 1] is not cause
    return _activity_of(cause), label, first


def _activity_of(cause: Any) -> Activity:
    op: Op | None = getattr(cause, "op", None)
    if op is None:
        views = (cause.source, cause.target)
        return Activity(id(cause), None, f"copy: {cause.why}", _nbytes(views), 0)
    memory = _nbytes((*cause.operands, *cause.results))
    return Activity(id(cause), op, op.why, memory, cost_of(op).flops)


def _nbytes(views: "Sequence[BufferView]") -> int:
    """Return the bytes that views address; broadcast elements count once."""
    return sum(
        view.itemsize
        * prod(size for size, step in zip(view.shape, view.strides, strict=True) if step)
        for view in views
    )
