"""Aggressive propagation through one operation: each tensor takes the axes it can, and conflicts
are resolved.

The requested axes of each factor are determined first, ignoring conflicts. Then every tensor
separately, results before operands, is sharded along the factors in one order of preference, as far
as its dimensions and the preceding factors permit. When two factors request one axis, the factor
wins whose axis comes from the larger tensor; then (in elementwise operations) the one with more
shards; then the one whose axes come from an earlier tensor; then the earlier factor. The other
tensors keep their shardings, and a reshard is inserted later.
"""

from collections.abc import Callable, Sequence
from math import prod

from shardir.ir.sharding import Axes, Axis, count_positions
from shardir.ir.sub_axes import is_prefix, is_strict_prefix, truncate_axes
from shardir.passes.propagation.factor_conflicts import (
    agreed_axes,
    part_along_factor,
    part_free_of_other_factors,
    record_axes_behind,
)
from shardir.passes.propagation.factor_projection import ProjectedTensor
from shardir.passes.propagation.priorities import FactorDirections
from shardir.passes.propagation.record import RefusalReason, Refuse


def propagate_aggressive(
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
    requested = [
        agreed_axes(views, operands, factor, direction, refuse)
        for factor, direction in enumerate(directions)
    ]
    if not any(requested):
        return set()
    order = preference_order(views, sizes, requested, elementwise)
    changed = set()
    for number in (*range(operands, len(views)), *range(operands)):
        view = views[number]
        gained: set[int] = set()
        for factor in order:
            factor_sharding = view.factor_shardings.get(factor)
            if factor_sharding is None or not is_strict_prefix(
                factor_sharding.axes, requested[factor]
            ):
                continue
            axes = _possible_axes(
                requested[factor],
                number,
                view,
                factor,
                sizes[factor],
                gained,
                refuse,
                complete_axes,
            )
            if elementwise and number < operands:
                axes = _truncate_to_results(axes, number, views[operands:], factor, refuse)
            if is_strict_prefix(factor_sharding.axes, axes):
                factor_sharding.axes = axes
                gained.add(factor)
                changed.add(number)
    return changed


def preference_order(
    views: Sequence[ProjectedTensor],
    sizes: tuple[int, ...],
    requested: Sequence[Axes],
    elementwise: bool,
) -> list[int]:
    """Return the factors with requested axes, in order of preference."""
    largest = largest_sources(views, sizes, requested)

    def rank(factor: int) -> tuple[int, int, int, int]:
        size, number = largest[factor]
        pieces = count_positions(requested[factor]) if elementwise else 0
        return -size, -pieces, number, factor

    return sorted((factor for factor, request in enumerate(requested) if request), key=rank)


def largest_sources(
    views: Sequence[ProjectedTensor], sizes: tuple[int, ...], requested: Sequence[Axes]
) -> dict[int, tuple[int, int]]:
    """Return for each factor the size and number of the largest tensor with all its requested axes.

    Both are -1 if there is none.
    """
    largest = dict.fromkeys(range(len(sizes)), (-1, -1))
    for number, view in enumerate(views):
        size = prod(sizes[factor] for factor in view.factor_shardings)
        for factor, factor_sharding in view.factor_shardings.items():
            is_complete = is_prefix(requested[factor], factor_sharding.axes)
            if is_complete and size > largest[factor][0]:
                largest[factor] = (size, number)
    return largest


def _possible_axes(
    axes: Axes,
    number: int,
    view: ProjectedTensor,
    factor: int,
    size: int,
    gained: set[int],
    refuse: Refuse | None,
    complete_axes: frozenset[Axis] | None,
) -> Axes:
    """Return the prefix of `axes` that one tensor can take."""
    factor_sharding = view.factor_shardings[factor]

    def can(axis: Axis, pieces: int) -> Axis | None:
        part, reason = part_along_factor(axis, view, factor_sharding, pieces, size)
        if part and complete_axes is not None and part not in complete_axes:
            part, reason = None, RefusalReason.SPLIT
        if refuse and reason:
            refuse(factor, number, axis, reason)
        return part

    def free(axis: Axis, pieces: int) -> Axis | None:
        part = part_free_of_other_factors(axis, view, factor)
        if complete_axes is not None and part != axis:
            part = None
        if refuse and part != axis:
            lost = any(
                a.overlaps(axis) for other in gained for a in view.factor_shardings[other].axes
            )
            refuse(factor, number, axis, RefusalReason.LOST if lost else RefusalReason.USED)
        return part

    result = truncate_axes(axes, can)
    result = (
        truncate_axes(result, free)
        if is_strict_prefix(factor_sharding.axes, result)
        else factor_sharding.axes
    )
    if refuse:
        record_axes_behind(axes, result, factor, number, refuse)
    return result


def _truncate_to_results(
    axes: Axes, number: int, results: Sequence[ProjectedTensor], factor: int, refuse: Refuse | None
) -> Axes:
    """Truncate axes to those that every result takes.

    Sharding an operand of an elementwise operation further than the result would only conflict with
    the other operands.
    """
    for result in results:
        factor_sharding = result.factor_shardings.get(factor)
        if factor_sharding is not None and is_strict_prefix(factor_sharding.axes, axes):
            if refuse:
                for axis in axes[max(len(factor_sharding.axes) - 1, 0) :]:
                    if axis not in factor_sharding.axes:
                        refuse(factor, number, axis, RefusalReason.RESULT)
            axes = factor_sharding.axes
    return axes


PropagationStrategy = Callable[
    [
        Sequence[ProjectedTensor],
        int,
        tuple[int, ...],
        FactorDirections,
        bool,
        Refuse | None,
        frozenset[Axis] | None,
    ],
    set[int],
]
"""Type of `propagate_basic` and `propagate_aggressive`."""
