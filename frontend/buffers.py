"""Parts of arrays: NumPy arrays, one for each device, shared by devices that hold the same.

All parts of an array have one shape. Where a dimension does not divide, the last parts have
padding at their ends, of which nothing is known.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.frontend.shardings import Sharding
from shardir.types import TensorType

Buffer = npt.NDArray[Any]


def words_of(keys: Buffer) -> Buffer:
    """Each key as its two 32-bit words, high word first."""
    high, low = keys >> np.uint64(32), keys & np.uint64(0xFFFFFFFF)
    return np.stack([high, low], -1).astype(np.uint32)


def joined(parts: Sequence[Buffer], sharding: Sharding, type: TensorType) -> Buffer:
    """All numbers in one array, which is a part's own when that is all of them."""
    if all(part is parts[0] for part in parts) and parts[0].shape == type.shape:
        return parts[0].view()
    whole = np.empty(type.shape, type.numpy)
    done: set[tuple[tuple[int | None, int | None], ...]] = set()
    for index, part in zip(sharding.stored_indices_map(type.shape).values(), parts, strict=True):
        # Not by the part: several places may have the very same numbers.
        place = tuple((s.start, s.stop) for s in index)
        if place not in done:
            done.add(place)
            whole[index] = held(part, whole[index].shape)
    return whole


def held(part: Buffer, shape: tuple[int, ...]) -> Buffer:
    """A part without its padding."""
    return part if part.shape == shape else part[tuple(map(slice, shape))]


def cut(whole: Buffer, sharding: Sharding) -> list[Buffer]:
    """The part of each device, devices with the same part sharing one."""
    stored = sharding.stored_shape(whole.shape)
    made: dict[tuple[tuple[int | None, int | None], ...], Buffer] = {}
    parts = []
    for index in sharding.stored_indices_map(whole.shape).values():
        place = tuple((s.start, s.stop) for s in index)
        if place not in made:
            part = np.ascontiguousarray(whole[index]).reshape(whole[index].shape)
            if part.shape != stored:
                longer = np.zeros(stored, part.dtype)
                longer[tuple(map(slice, part.shape))] = part
                part = longer
            made[place] = part
        parts.append(made[place])
    return parts
