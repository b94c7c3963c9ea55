"""Axes as users give them: negative, several, checked."""

from typing import Any

import numpy as np

from shardir.frontend.errors import AxisError
from shardir.frontend.locations import point


def axis_of(axis: Any, rank: int) -> int:
    """The axis counted from the front; raises `AxisError` unless -rank <= axis < rank."""
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
        raise AxisError(point(f"an axis is a whole number, got {axis!r}"))
    if not -rank <= axis < rank:
        raise AxisError(point(f"axis {axis} is out of range for an array of rank {rank}"))
    return int(axis) % rank


def axes_of(axes: Any, rank: int) -> tuple[int, ...]:
    """One axis or several, counted from the front; raises `AxisError`, also when one is twice."""
    given = (axes,) if isinstance(axes, (int, np.integer)) else tuple(axes)
    found = tuple(axis_of(axis, rank) for axis in given)
    if len(set(found)) != len(found):
        raise AxisError(point(f"axes {tuple(given)} name one dimension twice"))
    return found
