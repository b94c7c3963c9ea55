"""Basic propagation through one operation: only axes without conflicts.

For each factor: take the axes that all tensors agree on, truncate them at conflicts with any tensor
(the axis shards another factor of it, its dimension is closed, ...), and add the rest to every
tensor that has the factor and fewer axes.
"""

from collections.abc import Sequence

from shardir.ir.sharding import Axes, Axis
from shardir.ir.sub_axes import is_strict_prefix, truncate_axes
from shardir.passes.propagation.factor_conflicts import (
    agreed_axes,
    part_along_factor,
    part_free_of_other_factors,
    record_axes_behind,
)
from shardir.passes.propagation.factor_projection import ProjectedTensor
from shardir.passes.propagation.priorities import FactorDirections
from shardir.passes.propagation.record import RefusalReason, Refuse


def propagate_basic(
    views: Sequence[ProjectedTensor],
    operands: int,
    sizes: tuple[int, ...],
    directions: FactorDirections,
    elementwise: bool,
    refuse: Refuse | None = None,
    complete_axes: frozenset[Axis] | None = None,
) -> set[int]:
    """Extend the axes of `views` (operands, then results); return the tensors that changed.

    Only `complete_axes` propagate, if they are given: no parts of axes.
    """
    changed = set()
    for factor, direction in enumerate(directions):
        axes = agreed_axes(views, operands, factor, direction, refuse)
        if axes:
            axes = _truncate_at_conflicts(axes, views, factor, sizes[factor], refuse, complete_axes)
        for number, view in enumerate(views):
            factor_sharding = view.factor_shardings.get(factor)
            if factor_sharding is not None and is_strict_prefix(factor_sharding.axes, axes):
                factor_sharding.axes = axes
                changed.add(number)
    return changed


def _truncate_at_conflicts(
    axes: Axes,
    views: Sequence[ProjectedTensor],
    factor: int,
    size: int,
    refuse: Refuse | None,
    complete_axes: frozenset[Axis] | None,
) -> Axes:
    def keep(axis: Axis, pieces: int) -> Axis | None:
        part = axis
        for number, view in enumerate(views):
            free = part_free_of_other_factors(part, view, factor)
            reason = None if free == part else RefusalReason.USED
            factor_sharding = view.factor_shardings.get(factor)
            if free and factor_sharding is not None:
                free, why = part_along_factor(free, view, factor_sharding, pieces, size)
                reason = why or reason
            if free and complete_axes is not None and free not in complete_axes:
                free, reason = None, RefusalReason.SPLIT
            if refuse and reason:
                refuse(factor, number, axis, reason)
            if free is None:
                return None
            part = free
        return part

    result = truncate_axes(axes, keep)
    if refuse:
        for number, view in enumerate(views):
            if factor in view.factor_shardings:
                record_axes_behind(axes, result, factor, number, refuse)
    return result
