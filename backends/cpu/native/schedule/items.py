"""What a lowered program consists of, before and after its phases are known."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shardir.backends.cpu.native.data import Phase, View
from shardir.ir import Op


class Work(NamedTuple):
    """An operation and where its operands and results lie."""

    op: Op
    operands: tuple[View, ...]
    results: tuple[View, ...]


class LookUp(NamedTuple):
    """A gather of single elements by indices that may count from the end, and the bits of what
    stands for those out of range; `None`: the nearest element does."""

    op: Op
    operands: tuple[View, ...]
    results: tuple[View, ...]
    fill: int | None


class Copy(NamedTuple):
    """Elements that must lie elsewhere: for `why`."""

    source: View
    target: View
    why: str


class Rows(NamedTuple):
    """The slot `row` shows one row after the other of what begins at `start`."""

    row: int
    start: View
    step: int


class Loop(NamedTuple):
    """A scan: `length` rounds, from the last if `backwards`.

    After each round the slots of each pair in `swaps` change places: what was written becomes
    what is read. `op` is not known of what was kept on disk.
    """

    op: Op | None
    length: int
    backwards: bool
    rows: tuple[Rows, ...]
    swaps: tuple[tuple[int, int], ...]
    body: "Items"


class While(NamedTuple):
    """Rounds as long as the condition's items leave true in `going`."""

    op: Op | None
    condition: "Items"
    going: View
    swaps: tuple[tuple[int, int], ...]
    body: "Items"


@dataclass(frozen=True, slots=True)
class Branch:
    """One of several lists of items, by the number that lies in `index`."""

    op: Op | None
    index: View
    branches: tuple["Items", ...]


@dataclass(slots=True)
class Segment:
    """Phases that run in one native call, and for each what it is part of."""

    phases: list[Phase] = field(default_factory=list)
    causes: list[Work | LookUp | Copy] = field(default_factory=list)


class Host(NamedTuple):
    """An operation that NumPy does: no kernel is known for it."""

    op: Op
    operands: tuple[View, ...]
    results: tuple[View, ...]


Item = Work | LookUp | Copy | Loop | While | Branch | Segment | Host
Items = Sequence[Item]
