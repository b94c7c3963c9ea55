"""Basic propagation through one operation: only axes without conflicts.

For each factor: take the axes that all tensors agree on, truncate them at conflicts with any tensor
(the axis shards another factor of it, its dimension is closed, ...), and add the rest to every
tensor that has the factor and fewer axes.
"""

from collections.abc import Sequence

from shardir.axes import is_strict_prefix, truncate
from shardir.passes.propagation.conflicts import across, agreed_axes, note_behind, within
from shardir.passes.propagation.directions import Directions
from shardir.passes.propagation.projection import View
from shardir.passes.propagation.record import Reason, Refuse
from shardir.placement import Axes, Axis


def propagate_basic(
    views: Sequence[View],
    operands: int,
    sizes: tuple[int, ...],
    directions: Directions,
    elementwise: bool,
    refuse: Refuse | None = None,
) -> set[int]:
    """Extend the axes of `views` (operands, then results); return the tensors that changed."""
    changed = set()
    for factor, direction in enumerate(directions):
        axes = agreed_axes(views, operands, factor, direction, refuse)
        if axes:
            axes = _unopposed(axes, views, factor, sizes[factor], refuse)
        for number, view in enumerate(views):
            cut = view.cuts.get(factor)
            if cut is not None and is_strict_prefix(cut.axes, axes):
                cut.axes = axes
                changed.add(number)
    return changed


def _unopposed(
    axes: Axes, views: Sequence[View], factor: int, size: int, refuse: Refuse | None
) -> Axes:
    def keep(axis: Axis, pieces: int) -> Axis | None:
        part = axis
        for number, view in enumerate(views):
            free = across(part, view, factor)
            reason = None if free == part else Reason.USED
            cut = view.cuts.get(factor)
            if free and cut is not None:
                free, why = within(free, view, cut, pieces, size)
                reason = why or reason
            if refuse and reason:
                refuse(factor, number, axis, reason)
            if free is None:
                return None
            part = free
        return part

    kept = truncate(axes, keep)
    if refuse and kept != axes:
        for number, view in enumerate(views):
            if factor in view.cuts:
                note_behind(axes, kept, factor, number, refuse)
    return kept
