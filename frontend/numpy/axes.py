"""Axes and shapes as users give them: negative, several, one number for one, checked."""

from typing import Any

import numpy as np

from shardir.frontend.amounts import several, whole
from shardir.frontend.errors import AxisError, ShapeError
from shardir.frontend.locations import point
from shardir.frontend.quoting import brief


def axis_of(axis: Any, rank: int) -> int:
    """The axis counted from the front; raises `AxisError` unless -rank <= axis < rank."""
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
        raise AxisError(point(f"an axis is a whole number, got {axis!r}"))
    if not -rank <= axis < rank:
        raise AxisError(point(f"axis {axis} is out of range for an array of rank {rank}"))
    return int(axis) % rank


def axes_of(axes: Any, rank: int) -> tuple[int, ...]:
    """One axis or several, counted from the front, as given; `None` means all.

    Raises `AxisError`, also when one is twice.
    """
    if axes is None:
        return tuple(range(rank))
    given = several(axes)
    found = tuple(axis_of(axis, rank) for axis in given)
    if len(set(found)) != len(found):
        raise AxisError(point(f"axes {tuple(given)} name one dimension twice"))
    return found


def shape_of(shape: Any) -> tuple[int, ...]:
    """A shape from a number or several; raises `ShapeError` unless they are whole and not negative.

    A traced number says itself why it cannot be a size.
    """
    given = several(shape)
    sizes = []
    for size in given:
        found = whole(size)
        if found is None:
            raise ShapeError(
                point(f"shape {brief(given)} has the size {size!r}, which is no whole number")
            )
        sizes.append(found)
    if min(sizes, default=0) < 0:
        raise ShapeError(point(f"shape {tuple(sizes)} has a negative size"))
    return tuple(sizes)
