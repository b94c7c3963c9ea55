"""What programs on the CPU did while somebody watched: a span for each task and each NumPy call.

Where machine code runs, spans come from the rings of its threads; what NumPy did comes from marks.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, final

from shardir.backends.cpu.marks import Mark, marking
from shardir.backends.cpu.native.availability import obstacle
from shardir.cost import cost_of
from shardir.ir import Op

if TYPE_CHECKING:
    from shardir.backends.cpu.native.data import View
    from shardir.backends.cpu.native.runtime.program import Program
    from shardir.backends.cpu.native.runtime.recording import Recording, Task
    from shardir.backends.cpu.native.runtime.roofline import Roofline

PYTHON = -1
"""The thread of spans that Python code left."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What spans are for: an operation or a copy, the bytes that it must read and write, and its
    arithmetic. Equal ones are one."""

    key: int
    op: Op | None
    why: str
    memory: int
    flops: int


@dataclass(frozen=True, slots=True)
class Span:
    """From `begin` to `end` (of `time.monotonic_ns`), `thread` worked on an activity.

    Thread 0 called, those from 1 on are workers, those from 1000 on called beside it, and `PYTHON`
    is code in Python. `task` counts within the phase called `label`; `starts` says whether the
    activity began anew with it.
    """

    activity: Activity
    label: str
    thread: int
    task: int
    begin: int
    end: int
    starts: bool


@final
class Watching:
    """What happened so far; `take` hands it out and begins anew.

    `lost` are the tasks that were too many to be kept between the last two.
    """

    def __init__(self, marks: list[Mark], record: "Recording | None") -> None:
        self._marks, self._record = marks, record
        self.lost = 0

    def take(self) -> list[Span]:
        """The spans in order of their begins."""
        marks = [*self._marks]
        del self._marks[: len(marks)]  # Others may leave some meanwhile.
        spans = [_of_mark(each) for each in marks]
        if self._record is not None:
            phases = _Phases()
            spans += [phases.span_of(each) for each in self._record.take()]
            self.lost = self._record.lost
        return sorted(spans, key=lambda span: span.begin)


@contextmanager
def watching() -> Iterator[Watching]:
    """Watch all programs of this process while in the block."""
    with ExitStack() as stack:
        record = None
        if obstacle() is None:
            from shardir.backends.cpu.native.runtime.recording import recording

            record = stack.enter_context(recording())
        yield Watching(stack.enter_context(marking()), record)


def limits() -> "tuple[int, Roofline] | None":
    """How many workers there are, and what they can do at most; `None` without machine code."""
    if obstacle() is not None:
        return None
    from shardir.backends.cpu.native.runtime.roofline import roofline
    from shardir.backends.cpu.native.runtime.workers import worker_count

    return worker_count(), roofline()


def _of_mark(mark: Mark) -> Span:
    op: Op = mark.what
    cost = cost_of(op)
    activity = Activity(id(op), op, op.why, cost.memory, cost.flops)
    return Span(activity, f"numpy {op.name}", PYTHON, 0, mark.begin, mark.end, True)


@final
class _Phases:
    """What the spans of a phase have in common, worked out once however many tasks it has."""

    def __init__(self) -> None:
        self._known: dict[tuple[Program, int], tuple[Activity, str, bool]] = {}

    def span_of(self, task: "Task") -> Span:
        key = task.program, task.phase
        common = self._known.get(key)
        if common is None:
            common = self._known[key] = _of_phase(*key)
        activity, label, first = common
        starts = first and task.task == 0
        return Span(activity, label, task.thread, task.task, task.begin, task.end, starts)


def _of_phase(program: "Program", number: int) -> tuple[Activity, str, bool]:
    """The activity of a phase, its label, and whether the activity begins with it."""
    phase = program.phases[number]
    label = phase.label or phase.kernel.name
    cause: Any = program.causes[number] if program.causes else None
    if cause is None:
        return Activity(id(phase), None, label, 0, 0), label, True
    first = number == 0 or program.causes[number - 1] is not cause
    return _activity(cause), label, first


def _activity(cause: Any) -> Activity:
    op: Op | None = getattr(cause, "op", None)
    if op is None:
        views = (cause.source, cause.target)
        return Activity(id(cause), None, f"copy: {cause.why}", _nbytes(views), 0)
    memory = _nbytes((*cause.operands, *cause.results))
    return Activity(id(cause), op, op.why, memory, cost_of(op).flops)


def _nbytes(views: "Sequence[View]") -> int:
    """Bytes of what views show, what they repeat counted once."""
    return sum(
        view.itemsize
        * prod(size for size, step in zip(view.shape, view.strides, strict=True) if step)
        for view in views
    )
