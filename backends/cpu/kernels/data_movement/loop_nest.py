"""Loop nests over the elements of several views of one shape, with as few loops as possible."""

from collections.abc import Sequence
from typing import NamedTuple

from shardir.backends.cpu.kernel_api import BufferView


class StridedLoop(NamedTuple):
    """A loop of `extent` steps; each step advances the views by `strides` bytes."""

    extent: int
    strides: tuple[int, ...]


class LoopNest(NamedTuple):
    """Loops, outermost first, that start at `offsets`."""

    loops: tuple[StridedLoop, ...]
    offsets: tuple[int, ...]


def loop_nest_of(
    views: Sequence[BufferView], fixed: Sequence[int] = (), counters: int = 0
) -> LoopNest:
    """Return the loops over views of one shape, in the memory order of the last view.

    Dimensions that are contiguous with each other in all views are merged; a dimension with a
    negative stride in the last view is reversed. Dimensions in `fixed` have no loop. The last
    `counters` views are counters: their strides state how much an index advances per dimension.
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
        found.append(StridedLoop(extent, tuple(strides)))
    found.sort(key=lambda loop: -loop.strides[last])
    return LoopNest(merge_strided_loops(found), tuple(offsets))


def merge_strided_loops(loops: Sequence[StridedLoop]) -> tuple[StridedLoop, ...]:
    """Merge loops that are contiguous with each other in all views; the order is unchanged."""
    joined: list[StridedLoop] = []
    for loop in loops:
        if loop.extent == 1:
            continue
        if joined and all(
            outer == inner * loop.extent
            for outer, inner in zip(joined[-1].strides, loop.strides, strict=True)
        ):
            joined[-1] = StridedLoop(joined[-1].extent * loop.extent, loop.strides)
        else:
            joined.append(loop)
    return tuple(joined)
