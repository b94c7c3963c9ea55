"""The items of a lowered program, before and after their phases are known.

A `Schedule` is the final form of a program over unsharded arrays: items in execution order, and
memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView, Phase
from shardir.backends.cpu.schedule.arena import BufferKind, PlannedBuffer
from shardir.ir.module import Op
from shardir.ir.types import TensorType


class WorkItem(NamedTuple):
    """An operation with the views of its operands and results."""

    op: Op
    operands: tuple[BufferView, ...]
    results: tuple[BufferView, ...]


class GatherElements(NamedTuple):
    """A gather of single elements by indices that may be negative to count from the end.

    `fill` holds the bits that replace elements out of bounds; `None` clamps the indices instead.
    """

    op: Op
    operands: tuple[BufferView, ...]
    results: tuple[BufferView, ...]
    fill: int | None


class CopyItem(NamedTuple):
    """A copy of elements to another place; `why` is its reason."""

    source: BufferView
    target: BufferView
    why: str


class RowPointer(NamedTuple):
    """The slot `row` points to successive rows of `start`, with a stride of `step` bytes."""

    row: int
    start: BufferView
    step: int


class ScanItem(NamedTuple):
    """A scan of `length` iterations, from the last row on if `backwards`.

    After each iteration the slots of each pair in `swaps` swap their addresses: what was written is
    read next. `op` is `None` in schedules from disk.
    """

    op: Op | None
    length: int
    backwards: bool
    rows: tuple[RowPointer, ...]
    swaps: tuple[tuple[int, int], ...]
    body: "Items"


class WhileItem(NamedTuple):
    """A loop that runs while the items of its condition write true to `going`."""

    op: Op | None
    condition: "Items"
    going: BufferView
    swaps: tuple[tuple[int, int], ...]
    body: "Items"


@dataclass(frozen=True, slots=True)
class BranchItem:
    """One of several lists of items, selected by the integer at `index`."""

    op: Op | None
    index: BufferView
    branches: tuple["Items", ...]


@dataclass(slots=True)
class Segment:
    """Phases that run in one native call, and the cause of each."""

    phases: list[Phase] = field(default_factory=list)
    causes: list[WorkItem | GatherElements | CopyItem] = field(default_factory=list)


class NumPyCall(NamedTuple):
    """An operation without a native rule, which NumPy runs."""

    op: Op
    operands: tuple[BufferView, ...]
    results: tuple[BufferView, ...]


Item = (
    WorkItem | GatherElements | CopyItem | ScanItem | WhileItem | BranchItem | Segment | NumPyCall
)
Items = Sequence[Item]


ARENA_SLOT = 1
"""The slot of the arena."""

ResultSource = tuple[BufferKind, int]
"""The memory of a result of the program: the kind and the number of its buffer."""


@dataclass(frozen=True)
class Schedule:
    """A program ready to be loaded.

    `slots` is the number of slots. `types` are the types of its results. Each (slot, offset) of
    `pinned` is a part of the `arena_bytes` with a slot of its own, temporaries included;
    `constants` are the values of constant slots. `donation_pairs` are (argument, result) pairs that
    may share memory if the argument is donated, the preferred pairs first; an argument or a result
    may occur in several of them. `bool_arguments` are the arguments that are only tested for being
    nonzero. `machine` describes the machine that the kernels were selected for.
    """

    items: tuple[Item, ...]
    slots: int
    types: tuple[TensorType, ...]
    argument_bytes: int
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    result_bytes: tuple[int, ...]
    sources: tuple[ResultSource, ...]
    constants: tuple[tuple[int, npt.NDArray[np.generic]], ...]
    pinned: tuple[tuple[int, int], ...]
    arena_bytes: int
    buffers: tuple[PlannedBuffer, ...]
    donation_pairs: tuple[tuple[int, int], ...]
    bool_arguments: tuple[int, ...]
    machine: HostDescription
