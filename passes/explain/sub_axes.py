"""Intersection and difference of sub-axes."""

from collections.abc import Iterable, Sequence

from shardir.ir.sharding import Axis


def intersection(a: Axis, b: Axis) -> Axis | None:
    """Return the sub-axis that both contain, `None` if they are disjoint."""
    if not a.overlaps(b):
        return None
    pre, following = max(a.pre, b.pre), min(a.next, b.next)
    return Axis(a.name, pre, following // pre) if following > pre else None


def difference_of_axes(axis: Axis, taken: Iterable[Axis]) -> list[Axis]:
    """Return the parts of `axis` that overlap none of `taken`, the major first."""
    parts = [axis]
    for other in taken:
        parts = [rest for part in parts for rest in _difference(part, other)]
    return parts


def intersections(axis: Axis, axes: Iterable[Axis]) -> list[Axis]:
    """Return the parts of `axis` that `axes` contain, in their order."""
    parts = (intersection(axis, other) for other in axes)
    return [part for part in parts if part is not None]


def overlaps_any(axis: Axis, axes: Sequence[Axis]) -> bool:
    return any(axis.overlaps(other) for other in axes)


def _difference(axis: Axis, other: Axis) -> list[Axis]:
    both = intersection(axis, other)
    if both is None:
        return [axis]
    sides = (
        Axis(axis.name, axis.pre, both.pre // axis.pre),
        Axis(axis.name, both.next, axis.next // both.next),
    )
    return [side for side in sides if side.size > 1]
