"""Conflicts of axes along a factor.

Three functions consider one factor: `agreed_axes` returns the axes that the tensors agree on,
`within` the part of an axis that one tensor can still take along the factor, and `across` the part
that the other factors of the tensor leave. Each result that is less than the complete axis has a
`Reason`.
"""

from collections.abc import Sequence
from itertools import takewhile
from math import gcd

from shardir.axes import clear_of, is_prefix, starts
from shardir.passes.propagation.directions import Direction
from shardir.passes.propagation.projection import Cut, View
from shardir.passes.propagation.record import Reason, Refuse
from shardir.placement import Axes, Axis


def agreed_axes(
    views: Sequence[View],
    operands: int,
    factor: int,
    direction: Direction,
    refuse: Refuse | None = None,
) -> Axes:
    """Return the longest list of axes that is compatible with the axes of every tensor along
    `factor`.

    Tensors that axes move towards (results when moving forward) can only conflict: they come second
    and do not extend the list. `views` are operands, then results.
    """
    if direction is Direction.NONE:
        return ()
    numbers = range(len(views))
    first: Sequence[int] = numbers[:operands]
    second: Sequence[int] = numbers[operands:]
    if direction is Direction.BACKWARD:
        first, second = second, first
    axes: Axes = ()
    extend = True
    for group in (first, second):
        if group is second and direction is not Direction.BOTH:
            extend = False
        for number in group:
            cut = views[number].cuts.get(factor)
            if cut is None:
                continue
            axes, extend = _fold(axes, cut.axes, extend)
    if refuse:
        _note_disagreement(views, factor, axes, refuse)
    return axes


def _note_disagreement(views: Sequence[View], factor: int, axes: Axes, refuse: Refuse) -> None:
    """Record for every tensor that conflicts with another the axes that it stops."""
    lists = {i: view.cuts[factor].axes for i, view in enumerate(views) if factor in view.cuts}
    for mine in dict.fromkeys(lists.values()):
        against = [
            number
            for number, theirs in lists.items()
            if not is_prefix(mine, theirs) and not is_prefix(theirs, mine)
        ]
        same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(mine, axes, strict=False))))
        for number in against:
            for axis in mine[same:]:
                refuse(factor, number, axis, Reason.DISAGREE)


def _fold(old: Axes, new: Axes, extend: bool) -> tuple[Axes, bool]:
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
        if starts(b, a):
            if i + 1 < len(new):
                return (*old[:i], b), False
        elif starts(a, b):
            if not extend or i + 1 < len(old):
                return (*old[:i], a), False
            return (*old[:i], *new[i:]), True
        else:
            return old[:i], False
    if len(new) > len(old) and extend:
        return (*old, *new[len(old) :]), True
    return old, extend


def within(
    axis: Axis, view: View, cut: Cut, pieces: int, size: int
) -> tuple[Axis | None, Reason | None]:
    """Return the part of `axis` by which the sharding of a tensor along one factor can be extended.

    `cut` is the present sharding, with `pieces` shards before `axis`; `size` is that of the factor.
    """
    part: Axis | None = axis
    reason: Reason | None = None
    if sharding := view.sharding:
        if sharding.replicated:
            part, reason = _less(part, sharding.replicated, Reason.REPLICATED, reason)
        if part and sharding.unreduced:
            part, reason = _less(part, sharding.unreduced, Reason.UNREDUCED, reason)
        if part is None:
            return None, reason
    assert part is not None
    if any(mine.contains(part) for mine in cut.axes):
        return part, reason
    if not cut.open:
        reason = Reason.CLOSED
    elif cut.overflow:
        reason = Reason.OVERFLOW
    elif cut.last:
        return part, reason
    else:
        if size % pieces == 0:
            common = gcd(size // pieces, part.size)
            if common == part.size:
                return part, reason
            if common > 1:
                return Axis(part.name, part.pre, common), Reason.UNEVEN
        reason = Reason.UNEVEN
    # The list begins with the axes of `cut`, so only the last axis of `cut` can be a part of this
    # one.
    if cut.axes and starts(cut.axes[-1], part):
        return cut.axes[-1], reason
    return None, reason


def _less(
    axis: Axis | None, others: Axes, why: Reason, reason: Reason | None
) -> tuple[Axis | None, Reason | None]:
    assert axis is not None
    part = clear_of(axis, others)
    return part, (reason if part == axis else why)


def note_behind(axes: Axes, kept: Axes, factor: int, tensor: int, refuse: Refuse) -> None:
    """Record the axes after the one that was refused or shortened as refused."""
    shortened = bool(kept) and kept[-1] != axes[len(kept) - 1]
    for axis in axes[len(kept) + (not shortened) :]:
        refuse(factor, tensor, axis, Reason.BEHIND)


def across(axis: Axis, view: View, factor: int) -> Axis | None:
    """Return the part of `axis` that does not shard the tensor along another factor yet."""
    part: Axis | None = axis
    for other, cut in view.cuts.items():
        if other == factor or part is None:
            continue
        if cut.overflow:
            part = clear_of(part, cut.overflow)
        if part and cut.axes:
            part = clear_of(part, cut.axes)
    return part
