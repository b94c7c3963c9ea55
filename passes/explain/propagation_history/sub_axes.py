"""Intersection and difference of sub-axes."""

from collections.abc import Iterable, Sequence

from shardir.ir.sharding import Axis
from shardir.ir.sub_axes import can_coexist


def intersection(a: Axis, b: Axis) -> Axis | None:
    """Return the sub-axis that both contain, `None` if they are disjoint or cannot coexist."""
    if a.name != b.name or not can_coexist(a, b):
        return None
    pre, following = max(a.pre, b.pre), min(a.next, b.next)
    if following <= pre:
        return None
    if pre == a.pre and following == a.next:
        return a
    return Axis(a.name, pre, following // pre)


def difference_of_axes(axis: Axis, taken: Iterable[Axis]) -> list[Axis]:
    """Return the parts of `axis` that overlap none of `taken`, the major first."""
    parts = [axis]
    for other in taken:
        parts = [rest for part in parts for rest in _difference(part, other)]
    return parts


def intersections(axis: Axis, axes: Iterable[Axis]) -> list[Axis]:
    """Return the parts of `axis` that `axes` contain, in their order."""
    return [part for other in axes if (part := intersection(axis, other)) is not None]


def overlaps_any(axis: Axis, axes: Sequence[Axis]) -> bool:
    for other in axes:  # noqa: SIM110  A generator would take twice as long.
        if axis.overlaps(other):
            return True
    return False


def _difference(axis: Axis, other: Axis) -> list[Axis]:
    both = intersection(axis, other)
    if both is None:
        return [axis]
    if both is axis:
        return []
    sides = (
        Axis(axis.name, axis.pre, both.pre // axis.pre),
        Axis(axis.name, both.next, axis.next // both.next),
    )
    return [side for side in sides if side.size > 1]
