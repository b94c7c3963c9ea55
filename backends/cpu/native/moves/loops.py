"""The loops over the elements of several views of one shape, as few as their strides allow."""

from collections.abc import Sequence
from typing import NamedTuple

from shardir.backends.cpu.native.data import View


class Loop(NamedTuple):
    """A walk of `extent` steps, each `strides` bytes further in the views."""

    extent: int
    strides: tuple[int, ...]


class Nest(NamedTuple):
    """Loops, outermost first, from `offsets` on."""

    loops: tuple[Loop, ...]
    offsets: tuple[int, ...]


def nest(views: Sequence[View], fixed: Sequence[int] = (), counters: int = 0) -> Nest:
    """The loops over views of one shape, in the order in which the last view lies in memory.

    Dimensions that lie as one in all views become one; those that the last view walks backwards
    are turned around. Dimensions in `fixed` have no loop. The last `counters` views are none: they
    only say how far a number moves along each dimension.
    """
    offsets = [view.offset for view in views]
    last = len(views) - 1 - counters
    found = []
    for d, extent in enumerate(views[last].shape):
        if extent == 1 or d in fixed:
            continue
        strides = [view.strides[d] for view in views]
        if strides[last] < 0:
            offsets = [o + (extent - 1) * s for o, s in zip(offsets, strides, strict=True)]
            strides = [-s for s in strides]
        found.append(Loop(extent, tuple(strides)))
    found.sort(key=lambda loop: -loop.strides[last])
    return Nest(joined(found), tuple(offsets))


def joined(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    """The same walk in the same order, with loops that lie as one in all views joined."""
    joined: list[Loop] = []
    for loop in loops:
        if loop.extent == 1:
            continue
        if joined and all(
            outer == inner * loop.extent
            for outer, inner in zip(joined[-1].strides, loop.strides, strict=True)
        ):
            joined[-1] = Loop(joined[-1].extent * loop.extent, loop.strides)
        else:
            joined.append(loop)
    return tuple(joined)
