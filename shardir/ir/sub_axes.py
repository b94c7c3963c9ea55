"""Sub-axes: relations between parts of mesh axes.

An axis of size n, seen as a reshape to [pre, size, n / (pre * size)], has the sub-axis (pre)size in
the middle. Two sub-axes of one axis *coexist* if one reshape contains both; only then can one
tensor be sharded along both. A list of axes shards a dimension from major to minor, so the common
part of two lists is a prefix. The last axis of a prefix may be a major part of the corresponding
axis: (a, b:(1)2) is a prefix of (a, b).

The algebra is that of OpenXLA Shardy, where a full axis corresponds to the sub-axis (1)n here.
Shardy compares sizes where this module requires divisibility: (1)2 is a prefix of (1)3 there, but
no reshape contains both.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import gcd

from shardir.ir.sharding import Axes, Axis, count_positions


def can_coexist(a: Axis, b: Axis) -> bool:
    """Return whether one reshape of the axis contains both (always true for different axes)."""
    if a.name != b.name:
        return True
    low, high = sorted((a.pre, b.pre))
    end, far = sorted((a.next, b.next))
    if end > high:
        return end % high == 0 and high % low == 0 and far % end == 0
    return high % end == 0


def is_major_part(a: Axis, b: Axis) -> bool:
    """Return whether `a` is `b` or a major part of it."""
    return a.name == b.name and a.pre == b.pre and b.size % a.size == 0


def take_disjoint_part(axis: Axis, others: Iterable[Axis]) -> Axis | None:
    """Return the largest major part of `axis` that overlaps none of `others`.

    The result is `None` if there is none, or if `axis` cannot coexist with one of `others`.
    """
    for other in others:
        if other.name != axis.name:
            continue
        if not can_coexist(axis, other):
            return None
        if axis.overlaps(other):
            if axis.pre >= other.pre:
                return None
            axis = Axis(axis.name, axis.pre, other.pre // axis.pre)
    return axis


def find_conflict(axes: Sequence[Axis]) -> str | None:
    """Return why no tensor can be sharded along all of `axes`, such as "a part of 'x' twice"."""
    for a, b in combinations(axes, 2):
        if a.overlaps(b):
            return f"a part of {a.name!r} twice"
        if not can_coexist(a, b):
            return f"{a} and {b}, which are not parts of one split of {a.name!r}"
    return None


def is_overlapping(axes: Iterable[Axis], others: Axes) -> bool:
    """Return whether no tensor can be sharded along all of `axes` and `others`."""
    return any(a.overlaps(b) or not can_coexist(a, b) for a in axes for b in others)


def append_axis(axes: Axes, axis: Axis) -> Axes:
    """Return `axes` followed by `axis`, merged with the last axis if it continues that one."""
    if axes and axes[-1].name == axis.name and axes[-1].next == axis.pre:
        last = axes[-1]
        return (*axes[:-1], Axis(last.name, last.pre, last.size * axis.size))
    return (*axes, axis)


def is_prefix(axes: Axes, of: Axes) -> bool:
    """Return whether `axes` is a prefix of `of` or equal to it."""
    if not axes:
        return True
    last = len(axes) - 1
    return last < len(of) and axes[:last] == of[:last] and is_major_part(axes[last], of[last])


def is_strict_prefix(axes: Axes, of: Axes) -> bool:
    """Return whether `axes` is a prefix of `of` and differs from it."""
    return is_prefix(axes, of) and axes != of


def find_common_prefix(first: Axes, second: Axes) -> Axes:
    """Return the longest common prefix."""
    common: list[Axis] = []
    for a, b in zip(first, second, strict=False):
        if a == b:
            common.append(a)
            continue
        if is_major_part(a, b) or is_major_part(b, a):
            common.append(min(a, b))
        break
    return tuple(common)


def truncate_axes(axes: Axes, keep: Callable[[Axis, int], Axis | None]) -> Axes:
    """Return the axes up to the first one that `keep` shortens or rejects.

    `keep` receives an axis and the number of shards along the axes before it. It returns the axis,
    a part of it (which then ends the list), or `None` to reject it.
    """
    result: list[Axis] = []
    pieces = 1
    for axis in axes:
        part = keep(axis, pieces)
        if part is None:
            break
        result.append(part)
        if part != axis:
            break
        pieces *= axis.size
    return tuple(result)


def take_disjoint_prefix(axes: Axes, others: Sequence[Axis]) -> Axes:
    """Return the longest prefix of `axes` that overlaps none of `others`."""
    return truncate_axes(axes, lambda axis, _: take_disjoint_part(axis, others))


def take_dividing_prefix(axes: Axes, size: int) -> Axes:
    """Return the longest prefix whose number of shards divides `size`."""
    if size % count_positions(axes) == 0:
        return axes

    def keep(axis: Axis, pieces: int) -> Axis | None:
        common = gcd(axis.size, size // pieces)
        return Axis(axis.name, axis.pre, common) if common > 1 else None

    return truncate_axes(axes, keep)
