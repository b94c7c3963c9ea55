"""Reports about the shardings of a program, as plain data.

Values are written as in the text of the program (`%h`), shardings as types (`f32[64@data, 128]`),
and axes as in these. Every report is readable with `str`.
"""

from dataclasses import dataclass
from enum import Enum
from functools import singledispatch

from shardir.display.program_html import report_html
from shardir.display.representation import abbreviate
from shardir.ir.module import Loc
from shardir.passes.propagation.record import RefusalReason


class Report:
    """Base class of printable reports."""

    __slots__ = ()

    def __str__(self) -> str:
        return report_text(self)

    def __repr__(self) -> str:
        return abbreviate(str(self))

    def _repr_html_(self) -> str:
        return report_html(str(self))


@singledispatch
def report_text(report: Report) -> str:
    """Return a report as text, without a newline at the end.

    `passes.explain.report_text` registers an implementation for each class of report.
    """
    raise NotImplementedError(type(report).__name__)


class Subject(Enum):
    """The kind of object that an annotation applies to."""

    ARGUMENT = "argument"
    RESULT = "result"
    CONSTRAINT = "constraint"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Annotation:
    """A sharding that the program states.

    `name` is the annotated value, or the index of the result of `function`; `type` the stated type,
    `loc` its location.
    """

    subject: Subject
    name: str
    type: str
    function: str
    loc: Loc | None

    def __str__(self) -> str:
        return f"{self.subject.value} {self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class Link:
    """One step of the path of an axis: `op` moved it along `loop` from `source` to `target`.

    `way` is `forwards`, `backwards` or `across` (from operand to operand, or result to result);
    `priority` and `round` state when.
    """

    source: str
    target: str
    op: str
    loop: str
    way: str
    priority: int
    round: int
    loc: Loc | None


@dataclass(frozen=True, slots=True)
class Chain:
    """The path by which `axis` came to shard dimension `dim`: from `annotation` through `links`."""

    axis: str
    dim: int
    annotation: Annotation
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Absence:
    """Why `axis` does not shard a value.

    `dim` is the dimension that it could shard, `None` if no particular one. `tensor` is the tensor
    that prevents it, at operation `op`; empty if there is none. `far` states that the axis stopped
    there before it reached the value.
    """

    axis: str
    dim: int | None
    reason: RefusalReason
    tensor: str
    op: str
    loc: Loc | None
    detail: str
    far: bool


@dataclass(frozen=True, slots=True)
class Revision:
    """A change of the sharding of a value by the pass `by`, after propagation; shardings are shown
    as types."""

    by: str
    before: str
    after: str
    why: str


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Report):
    """Explanation of the sharding of a value, or of a result of the function.

    `type` shows the sharding with which the program is partitioned. `revisions` are the changes
    that passes after propagation have made; `chains` are the origin of the other axes.
    """

    value: str
    type: str
    function: str
    loc: Loc | None
    chains: tuple[Chain, ...]
    absences: tuple[Absence, ...]
    revisions: tuple[Revision, ...] = ()


@dataclass(frozen=True, slots=True)
class AxesRequest:
    """The axes that a tensor requested for a factor (`-` for none), and their origin.

    `annotations` are the origin of its axes, or those that keep it unsharded.
    """

    value: str
    loop: str
    axes: str
    elements: int
    annotations: tuple[Annotation, ...]


class Verdict(Enum):
    """Why one of two requests was kept."""

    STATED = "stated here"
    CANNOT = "cannot be sharded"
    LARGER = "larger tensor"
    FINER = "more shards"
    EARLIER_TENSOR = "earlier tensor"
    EARLIER_LOOP = "earlier factor"
    FIRST = "arrived first"
    FOLLOWED = "larger of two"
    CHEAPER = "fewer bytes"
    EQUAL = "as many bytes"
    FEWER = "fewer collectives"
    LESS_WORK = "less computation"
    NOT_TRIED = "not tried"
    LATER_PASS = "a later pass"
    MAJORITY = "more data has this sharding"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two requests that an operation cannot satisfy together.

    `verdict` states why `kept` was chosen, `detail` with numbers. The tensor of `given_up` is
    resharded by `reshard` (the collectives, in order), which brings `nbytes` bytes to each device.
    """

    op: str
    function: str
    loc: Loc | None
    kept: AxesRequest
    given_up: AxesRequest
    verdict: Verdict
    detail: str
    reshard: tuple[str, ...]
    nbytes: int


@dataclass(frozen=True, slots=True, repr=False)
class Conflicts(Report):
    rows: tuple[Conflict, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """The sharding of a value in two versions of a program."""

    value: str
    function: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Traffic:
    """The communication of a program: (kind, count, bytes on one device) of collectives.

    The body of a `while` is counted once. `error` states why a program cannot be partitioned,
    `counted` the function that communicates if the program has several.
    """

    kinds: tuple[tuple[str, int, int], ...]
    error: str = ""
    counted: str = ""

    @property
    def nbytes(self) -> int:
        return sum(nbytes for _, _, nbytes in self.kinds)

    @property
    def count(self) -> int:
        return sum(count for _, count, _ in self.kinds)


@dataclass(frozen=True, slots=True, repr=False)
class Difference(Report):
    """The effect of other annotations.

    `edits` are the changes that were tried, and `refused` explains the values that lack axes which
    these state. If nothing changes, `unchanged` states the shardings of the other edited values.
    """

    edits: tuple[str, ...]
    changes: tuple[Change, ...]
    before: Traffic
    after: Traffic
    refused: tuple[Explanation, ...] = ()
    unchanged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dependence:
    """A value whose sharding depends on the order of the worklist.

    `annotations` are those whose axes differ.
    """

    value: str
    function: str
    lifo: str
    fifo: str
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True, slots=True, repr=False)
class OrderSensitivity(Report):
    rows: tuple[Dependence, ...]


@dataclass(frozen=True, slots=True)
class UnruledOperation:
    """An operation without a factor rule, and the axes that shard its operands and results."""

    op: str
    function: str
    loc: Loc | None
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnshardedDim:
    """An unsharded dimension that `axes`, which do not shard the value otherwise, divide."""

    value: str
    function: str
    dim: int
    size: int
    axes: tuple[str, ...]
    nbytes: int
    """Bytes of the value on each device."""


@dataclass(frozen=True, slots=True, repr=False)
class Coverage(Report):
    """Parts of a program without effect on propagation. Unsharded dimensions of the largest values
    come first."""

    unruled: tuple[UnruledOperation, ...]
    whole: tuple[UnshardedDim, ...]
    idle: tuple[Annotation, ...]
    """Annotations without effect."""


@dataclass(frozen=True, slots=True, repr=False)
class Summary(Report):
    """The annotations, conflicts and communication of a program.

    `sharded` of its `values` have a sharded dimension, and the shardings of `dependent` depend on
    the order of the worklist. `unruled` operations have no factor rule.
    """

    annotations: tuple[Annotation, ...]
    values: int
    sharded: int
    conflicts: tuple[Conflict, ...]
    dependent: int
    unruled: int
    traffic: Traffic
