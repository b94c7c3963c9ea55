"""Conflicts of axes along a factor.

Three functions consider one factor: `agreed_axes` returns the axes that the tensors agree on,
`within` the part of an axis that one tensor can still take along the factor, and `across` the part
that the other factors of the tensor leave. Each result that is less than the complete axis has a
`RefusalReason`.
"""

from collections.abc import Sequence
from itertools import takewhile
from math import gcd

from shardir.ir.sharding import Axes, Axis
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
    if not old:
        return (new if extend else ()), extend
    if not new or old == new:
        return old, extend
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
    if len(new) > len(old) and extend:
        return (*old, *new[len(old) :]), True
    return old, extend


def part_along_factor(
    axis: Axis, view: ProjectedTensor, factor_sharding: FactorSharding, pieces: int, size: int
) -> tuple[Axis | None, RefusalReason | None]:
    """Return the part of `axis` by which the sharding of a tensor along one factor can be extended.

    `factor_sharding` is the present sharding, with `pieces` shards before `axis`; `size` is that of
    the factor.
    """
    part: Axis | None = axis
    reason: RefusalReason | None = None
    if sharding := view.sharding:
        if sharding.replicated:
            part, reason = _subtract_axes(
                part, sharding.replicated, RefusalReason.REPLICATED, reason
            )
        if part and sharding.unreduced:
            part, reason = _subtract_axes(part, sharding.unreduced, RefusalReason.UNREDUCED, reason)
        if part is None:
            return None, reason
    assert part is not None
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


def _subtract_axes(
    axis: Axis | None, others: Axes, why: RefusalReason, reason: RefusalReason | None
) -> tuple[Axis | None, RefusalReason | None]:
    assert axis is not None
    part = take_disjoint_part(axis, others)
    return part, (reason if part == axis else why)


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
        if other == factor or part is None:
            continue
        if factor_sharding.overflow:
            part = take_disjoint_part(part, factor_sharding.overflow)
        if part and factor_sharding.axes:
            part = take_disjoint_part(part, factor_sharding.axes)
    return part
