"""What a program over whole arrays is in the end: what runs when, and what lies where."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.native.schedule.items import Item
from shardir.backends.cpu.native.schedule.memory import Buffer, Kind
from shardir.types import TensorType

ARENA = 1
"""The slot of the arena."""

Source = tuple[Kind, int]
"""Whose memory a result of the program is: the argument's or the result's of this number."""


@dataclass(frozen=True)
class Schedule:
    """A program ready to be loaded.

    `slots` counts its slots. `types` are those of its results. Of the arena's `arena_bytes`, each
    of `pinned` (slot, offset) has a slot of its own, temporaries included; `constants` are the
    numbers of those slots. `offered` are (argument, result) that may share memory if nobody else
    needs the argument. `truths` are the arguments that are read as truth alone.
    """

    items: tuple[Item, ...]
    slots: int
    types: tuple[TensorType, ...]
    argument_bytes: int
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    result_bytes: tuple[int, ...]
    sources: tuple[Source, ...]
    constants: tuple[tuple[int, npt.NDArray[np.generic]], ...]
    pinned: tuple[tuple[int, int], ...]
    arena_bytes: int
    buffers: tuple[Buffer, ...]
    offered: tuple[tuple[int, int], ...]
    truths: tuple[int, ...]
