"""Conflicts of axes along a factor.

Three functions consider one factor: `agreed_axes` returns the axes that the tensors agree on,
`part_along_factor` the part of an axis that one tensor can still take along the factor, and
`part_free_of_other_factors` the part that the other factors of the tensor leave. Each result that
is less than the complete axis has a `RefusalReason`.
"""

from collections.abc import Sequence
from itertools import takewhile
from math import gcd

from shardir.ir.sharding import Axes, Axis, Sharding
from shardir.ir.sub_axes import is_major_part, is_prefix, take_disjoint_part
from shardir.passes.propagation.factor_projection import FactorSharding, ProjectedTensor
from shardir.passes.propagation.priorities import PropagationDirection
from shardir.passes.propagation.record import RefusalReason, Refuse


def agreed_axes(
    views: Sequence[ProjectedTensor],
    operands: int,
    factor: int,
    direction: PropagationDirection,
    refuse: Refuse | None = None,
) -> Axes:
    """Return the longest list of axes that is compatible with the axes of every tensor along
    `factor`.

    Tensors that axes move towards (results when moving forward) can only conflict: they come second
    and do not extend the list. `views` are operands, then results.
    """
    if direction is PropagationDirection.NONE:
        return ()
    numbers = range(len(views))
    first: Sequence[int] = numbers[:operands]
    second: Sequence[int] = numbers[operands:]
    if direction is PropagationDirection.BACKWARD:
        first, second = second, first
    axes: Axes = ()
    extend = True
    for group in (first, second):
        if group is second and direction is not PropagationDirection.BOTH:
            extend = False
        for number in group:
            factor_sharding = views[number].factor_shardings.get(factor)
            if factor_sharding is None:
                continue
            axes, extend = _merge_prefixes(axes, factor_sharding.axes, extend)
    if refuse:
        _note_disagreement(views, factor, axes, refuse)
    return axes


def _note_disagreement(
    views: Sequence[ProjectedTensor], factor: int, axes: Axes, refuse: Refuse
) -> None:
    """Record for every tensor that conflicts with another the axes that it stops."""
    lists = {
        i: view.factor_shardings[factor].axes
        for i, view in enumerate(views)
        if factor in view.factor_shardings
    }
    for mine in dict.fromkeys(lists.values()):
        against = [
            number
            for number, theirs in lists.items()
            if not is_prefix(mine, theirs) and not is_prefix(theirs, mine)
        ]
        same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(mine, axes, strict=False))))
        for number in against:
            for axis in mine[same:]:
                refuse(factor, number, axis, RefusalReason.DISAGREE)


def _merge_prefixes(old: Axes, new: Axes, extend: bool) -> tuple[Axes, bool]:
    """Return the common prefix of `old` and `new`, and whether the list may still grow.

    Without `extend`, `new` can only confirm or truncate `old`.
    """
    for i, (a, b) in enumerate(zip(old, new, strict=False)):
        if a == b:
            continue
        if is_major_part(b, a):
            if i + 1 < len(new):
                return (*old[:i], b), False
        elif is_major_part(a, b):
            if not extend or i + 1 < len(old):
                return (*old[:i], a), False
            return (*old[:i], *new[i:]), True
        else:
            return old[:i], False
    return ((*old, *new[len(old) :]), True) if extend else (old, False)


def part_along_factor(
    axis: Axis, view: ProjectedTensor, factor_sharding: FactorSharding, pieces: int, size: int
) -> tuple[Axis | None, RefusalReason | None]:
    """Return the part of `axis` by which the sharding of a tensor along one factor can be extended.

    `factor_sharding` is the present sharding, with `pieces` shards before `axis`; `size` is that of
    the factor.
    """
    part: Axis = axis
    reason: RefusalReason | None = None
    for others, why in _axes_without_dimension(view.sharding):
        left = take_disjoint_part(part, others)
        if left != part:
            reason = why
        if left is None:
            return None, reason
        part = left
    if any(mine.contains(part) for mine in factor_sharding.axes):
        return part, reason
    if not factor_sharding.open:
        reason = RefusalReason.CLOSED
    elif factor_sharding.overflow:
        reason = RefusalReason.OVERFLOW
    elif factor_sharding.last:
        return part, reason
    else:
        if size % pieces == 0:
            common = gcd(size // pieces, part.size)
            if common == part.size:
                return part, reason
            if common > 1:
                return Axis(part.name, part.pre, common), RefusalReason.UNEVEN
        reason = RefusalReason.UNEVEN
    # The list begins with the axes of `factor_sharding`, so only the last of them can be a part of
    # this one.
    if factor_sharding.axes and is_major_part(factor_sharding.axes[-1], part):
        return factor_sharding.axes[-1], reason
    return None, reason


def _axes_without_dimension(
    sharding: Sharding | None,
) -> tuple[tuple[Axes, RefusalReason], ...]:
    """Return the axes that may shard no dimension of a tensor, with the reason."""
    if sharding is None:
        return ()
    replicated, unreduced = RefusalReason.REPLICATED, RefusalReason.UNREDUCED
    return (sharding.replicated, replicated), (sharding.unreduced, unreduced)


def record_axes_behind(
    axes: Axes, truncated: Axes, factor: int, tensor: int, refuse: Refuse
) -> None:
    """Record the axes after the one that was refused or shortened as refused."""
    shortened = bool(truncated) and truncated[-1] != axes[len(truncated) - 1]
    for axis in axes[len(truncated) + (not shortened) :]:
        refuse(factor, tensor, axis, RefusalReason.BEHIND)


def part_free_of_other_factors(axis: Axis, view: ProjectedTensor, factor: int) -> Axis | None:
    """Return the part of `axis` that does not shard the tensor along another factor yet."""
    part: Axis | None = axis
    for other, factor_sharding in view.factor_shardings.items():
        if other != factor and part is not None:
            part = take_disjoint_part(part, factor_sharding.overflow + factor_sharding.axes)
    return part
