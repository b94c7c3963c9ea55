"""The algebra of sub-axes: prefixes, overlaps and compatibility."""

import pytest

from shardir.ir.sharding import Axes, Axis
from shardir.ir.sub_axes import (
    append_axis,
    can_coexist,
    find_common_prefix,
    is_major_part,
    is_overlapping,
    is_prefix,
    is_strict_prefix,
    take_disjoint_part,
    take_dividing_prefix,
)


def a(pre: int, size: int) -> Axis:
    return Axis("a", pre, size)


B = Axis("b", 1, 4)


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (a(1, 8), a(2, 2), True),
        (a(1, 2), a(2, 4), True),
        (a(1, 2), a(4, 2), True),
        (a(1, 4), a(2, 4), True),
        (a(1, 2), a(3, 2), False),
        (a(2, 3), a(1, 4), False),
        (a(1, 2), Axis("b", 3, 2), True),
    ],
)
def test_sub_axes_coexist_if_one_reshape_contains_both(
    first: Axis, second: Axis, together: bool
) -> None:
    assert can_coexist(first, second) is together
    assert can_coexist(second, first) is together


@pytest.mark.parametrize(
    ("axis", "others", "left"),
    [
        (a(1, 8), (), a(1, 8)),
        (a(1, 8), (B,), a(1, 8)),
        (a(1, 8), (a(4, 2),), a(1, 4)),
        (a(1, 8), (a(4, 2), a(2, 2)), a(1, 2)),
        (a(2, 4), (a(1, 4),), None),
        (a(1, 2), (a(1, 2),), None),
        (a(1, 2), (a(3, 2),), None),
    ],
)
def test_the_part_disjoint_from_other_axes_is_the_major_part(
    axis: Axis, others: Axes, left: Axis | None
) -> None:
    assert take_disjoint_part(axis, others) == left


def test_a_major_part_is_a_prefix() -> None:
    assert is_major_part(a(2, 2), a(2, 4))
    assert is_major_part(a(2, 2), a(2, 2))
    assert not is_major_part(a(1, 2), a(2, 4))
    assert not is_major_part(a(2, 4), a(2, 2))


def test_adjacent_sub_axes_are_merged() -> None:
    assert append_axis((B, a(1, 2)), a(2, 4)) == (B, a(1, 8))
    assert append_axis((a(2, 4),), a(1, 2)) == (a(2, 4), a(1, 2))
    assert append_axis((), B) == (B,)


@pytest.mark.parametrize(
    ("axes", "of", "strict"),
    [
        ((), (B,), True),
        ((a(1, 2),), (a(1, 4), B), True),
        ((a(1, 4),), (a(1, 4), B), True),
        ((B, a(1, 2)), (B, a(1, 4)), True),
        ((B,), (B,), False),
        ((), (), False),
    ],
)
def test_a_prefix_may_end_in_a_sub_axis(axes: Axes, of: Axes, strict: bool) -> None:
    assert is_prefix(axes, of)
    assert is_strict_prefix(axes, of) is strict


@pytest.mark.parametrize(
    ("axes", "of"),
    [((B,), ()), ((a(1, 2), B), (a(1, 4), B)), ((a(2, 2),), (a(1, 4),)), ((B,), (a(1, 4),))],
)
def test_a_sub_axis_inside_a_list_is_no_prefix(axes: Axes, of: Axes) -> None:
    assert not is_prefix(axes, of)


def test_a_common_prefix_ends_with_the_smaller_sub_axis() -> None:
    assert find_common_prefix((B, a(1, 4)), (B, a(1, 2))) == (B, a(1, 2))
    assert find_common_prefix((a(1, 2), B), (a(1, 4), B)) == (a(1, 2),)
    assert find_common_prefix((B,), (a(1, 2),)) == ()


@pytest.mark.parametrize(
    ("axes", "size", "even"),
    [
        ((B, a(1, 2)), 8, (B, a(1, 2))),
        ((B, a(1, 2)), 4, (B,)),
        ((a(1, 2), B), 4, (a(1, 2), Axis("b", 1, 2))),
        ((B,), 6, (Axis("b", 1, 2),)),
        ((B, a(1, 2)), 6, (Axis("b", 1, 2),)),
        ((B,), 3, ()),
        ((B,), 0, (B,)),
    ],
)
def test_indivisible_axes_are_trimmed(axes: Axes, size: int, even: Axes) -> None:
    assert take_dividing_prefix(axes, size) == even


def test_lists_overlap_when_any_of_their_axes_do() -> None:
    assert is_overlapping((B, a(1, 4)), (a(2, 4),))
    assert not is_overlapping((B, a(1, 2)), (a(2, 4),))
