"""The final form of a program over unsharded arrays: items in execution order, and memory."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.schedule.arena import BufferKind, PlannedBuffer
from shardir.backends.cpu.schedule.items import Item
from shardir.ir.types import TensorType

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
    may share memory if the argument is donated. `bool_arguments` are the arguments that are only
    tested for being nonzero.
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
