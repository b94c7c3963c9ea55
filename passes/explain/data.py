"""What is found out about a program's shardings, as plain data.

Values are written as in the text of the program (`%h`), shardings as types (`f32[64@data, 128]`),
axes as in them. Every report reads well with `str`.
"""

from dataclasses import dataclass
from enum import Enum

from shardir.ir import Loc
from shardir.passes.propagation.record import Reason


class Report:
    """Something that can be printed."""

    __slots__ = ()

    def __str__(self) -> str:
        from shardir.passes.explain.text import show

        return show(self)


class Subject(Enum):
    """What an annotation is about."""

    ARGUMENT = "argument"
    RESULT = "result"
    CONSTRAINT = "constraint"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Annotation:
    """A sharding that somebody wrote down.

    `name` is the value it is written on, or the number of the result of `function`; `type` what
    is written, `loc` where.
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
    """One step on the way of an axis: `op` moved it along `loop` from `source` to `target`.

    `way` is `forwards`, `backwards` or `across` (from operand to operand, or result to result);
    `priority` and `round` say when.
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
    """How `axis` came to cut dimension `dim`: from `annotation` through `links`."""

    axis: str
    dim: int
    annotation: Annotation
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Absence:
    """Why `axis` does not cut a value.

    `dim` is the dimension it could have cut, `None` where it is none in particular. `tensor` is
    whose fault it is, at operation `op`; empty where none is involved. `far`
    tells that the axis stopped there on its way, before it came to the value.
    """

    axis: str
    dim: int | None
    reason: Reason
    tensor: str
    op: str
    loc: Loc | None
    detail: str
    far: bool


@dataclass(frozen=True, slots=True)
class Explanation(Report):
    """Why a value is cut as it is."""

    value: str
    type: str
    function: str
    loc: Loc | None
    chains: tuple[Chain, ...]
    absences: tuple[Absence, ...]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a tensor wanted a loop to be cut along (`-` for nothing), and who said so.

    `annotations` are where its axes come from, or what keeps them away.
    """

    value: str
    loop: str
    axes: str
    elements: int
    annotations: tuple[Annotation, ...]


class Verdict(Enum):
    """Why one of two wishes was granted."""

    STATED = "asked for here"
    CANNOT = "cannot run in pieces"
    LARGER = "larger tensor"
    FINER = "more pieces"
    EARLIER_TENSOR = "earlier tensor"
    EARLIER_LOOP = "earlier loop"
    FIRST = "there first"
    FOLLOWED = "larger of two"
    MAJORITY = "more data is cut so"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two wishes that an operation cannot grant together.

    `verdict` says why `kept` won, `detail` with numbers. The tensor of `given_up` pays `reshard`
    (the collectives, in order), which brings `nbytes` bytes to each device.
    """

    op: str
    function: str
    loc: Loc | None
    kept: Wish
    given_up: Wish
    verdict: Verdict
    detail: str
    reshard: tuple[str, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
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
    """How much a program communicates: (kind, how often, bytes on one device) of collectives.

    What a `while` does is counted once. `error` says why a program cannot be partitioned.
    """

    kinds: tuple[tuple[str, int, int], ...]
    error: str = ""

    @property
    def nbytes(self) -> int:
        return sum(nbytes for _, _, nbytes in self.kinds)

    @property
    def count(self) -> int:
        return sum(count for _, count, _ in self.kinds)


@dataclass(frozen=True, slots=True)
class Difference(Report):
    """What other annotations would change. `edits` say what was tried."""

    edits: tuple[str, ...]
    changes: tuple[Change, ...]
    before: Traffic
    after: Traffic


@dataclass(frozen=True, slots=True)
class Dependence:
    """A value whose sharding depends on the order of the work list.

    `annotations` are those whose axes differ.
    """

    value: str
    function: str
    lifo: str
    fifo: str
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True, slots=True)
class OrderSensitivity(Report):
    rows: tuple[Dependence, ...]


@dataclass(frozen=True, slots=True)
class Unruled:
    """An operation without a factor rule, and the axes that cut what goes in or comes out."""

    op: str
    function: str
    loc: Loc | None
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """A dimension that is whole although `axes`, which cut nothing of the value, divide it."""

    value: str
    function: str
    dim: int
    size: int
    axes: tuple[str, ...]
    nbytes: int
    """Of the value on each device."""


@dataclass(frozen=True, slots=True)
class Coverage(Report):
    """What propagation left out. The whole dimensions of the largest values come first."""

    unruled: tuple[Unruled, ...]
    whole: tuple[Whole, ...]
    idle: tuple[Annotation, ...]
    """Annotations that change nothing."""


@dataclass(frozen=True, slots=True)
class Summary(Report):
    """A program in numbers. `nbytes` are what a device holds if all values were alive at once."""

    annotations: tuple[Annotation, ...]
    values: int
    cut: int
    conflicts: tuple[Conflict, ...]
    dependent: int
    unruled: int
    traffic: Traffic
