"""The algebra of sub-axes: prefixes, overlaps and compatibility."""

import pytest

from shardir.ir.device_groups import device_positions, merge_axes, permute_senders, refine_axes
from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axes, Axis
from shardir.ir.sub_axes import (
    append_axis,
    can_coexist,
    find_common_prefix,
    find_conflict,
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


def _splits(size: int, pre: int = 1) -> list[tuple[Axis, ...]]:
    """Return all ordered factorizations of the rest of an axis, as consecutive sub-axes."""
    if pre == size:
        return [()]
    return [
        (a(pre, part), *rest)
        for part in range(2, size // pre + 1)
        if size // pre % part == 0
        for rest in _splits(size, pre * part)
    ]


@pytest.mark.parametrize("size", [6, 12, 24])
def test_the_algebra_follows_from_the_splits_of_an_axis(size: int) -> None:
    """Compare each function with its definition, for all pairs of sub-axes.

    A split of the axis contains a sub-axis if consecutive parts of the split form it.
    """
    mesh = Mesh("m", (("a", size),))
    parts_of: list[dict[Axis, tuple[Axis, ...]]] = [
        {
            a(split[i].pre, split[j - 1].next // split[i].pre): split[i:j]
            for i in range(len(split))
            for j in range(i + 1, len(split) + 1)
        }
        for split in _splits(size)
    ]
    axes = sorted({axis for parts in parts_of for axis in parts})
    for x in axes:
        for y in axes:
            splits = [(p[x], p[y]) for p in parts_of if x in p and y in p]
            assert can_coexist(x, y) is bool(splits)
            assert x.contains(y) is any(set(ys) <= set(xs) for xs, ys in splits)
            assert is_major_part(x, y) is any(ys[: len(xs)] == xs for xs, ys in splits)
            assert is_prefix((x,), (y,)) is is_major_part(x, y)
            is_disjoint = any(set(xs).isdisjoint(ys) for xs, ys in splits)
            assert is_overlapping((x,), (y,)) is not is_disjoint
            assert (find_conflict((x, y)) is None) is is_disjoint
            majors = [z for z in axes if is_major_part(z, x)]
            free = [z for z in majors if find_conflict((z, y)) is None]
            assert take_disjoint_part(x, (y,)) == (max(free, default=None) if splits else None)
            common = find_common_prefix((x,), (y,))
            assert common == ((min(x, y),) if is_major_part(x, y) or is_major_part(y, x) else ())
            if not splits:
                with pytest.raises(ValueError, match="no common refinement"):
                    refine_axes((x, y))
                continue
            refined = refine_axes((x, y))
            assert [merge_axes(refined[axis]) for axis in (x, y)] == [(x,), (y,)]
            assert find_conflict(sorted({*refined[x], *refined[y]})) is None
            if x.size == y.size:
                senders = permute_senders(mesh, (x,), (y,))
                assert sorted(senders) == list(range(size))
                positions = device_positions(mesh, (x,))[senders]
                assert positions.tolist() == device_positions(mesh, (y,)).tolist()
