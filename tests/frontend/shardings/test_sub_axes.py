"""Sub-axes compute the coordinates of devices from their numbers."""

import numpy as np
from hypothesis import given, strategies as st

from shardir.frontend.shardings.sub_axes import (
    SubAxis,
    merge_sub_axes,
    num_shards,
    row_major_sub_axes,
    shard_number,
    split_sub_axes,
)


def test_row_major_sub_axes_are_array_coordinates() -> None:
    digits = row_major_sub_axes((4, 3, 2))
    assert digits == (SubAxis(6, 4), SubAxis(2, 3), SubAxis(1, 2))
    for position in range(24):
        place = np.unravel_index(position, (4, 3, 2))
        assert tuple(digit.coordinate(position) for digit in digits) == place


def test_several_sub_axes_number_shards_in_mixed_radix() -> None:
    digits = (SubAxis(1, 2), SubAxis(4, 2))
    assert [shard_number(digits, i) for i in range(8)] == [0, 2, 0, 2, 1, 3, 1, 3]
    assert num_shards(digits) == 4
    assert (shard_number((), 5), num_shards(())) == (0, 1)


def test_merge() -> None:
    assert merge_sub_axes([SubAxis(4, 2), SubAxis(2, 2), SubAxis(7, 1), SubAxis(1, 2)]) == (
        SubAxis(1, 8),
    )
    assert merge_sub_axes([SubAxis(1, 2), SubAxis(2, 4)]) == (SubAxis(1, 2), SubAxis(2, 4))


def test_split() -> None:
    assert split_sub_axes([SubAxis(1, 12)], (3, 1, 4)) == ((SubAxis(4, 3),), (), (SubAxis(1, 4),))
    assert split_sub_axes([SubAxis(1, 2), SubAxis(2, 3)], (6,)) == ((SubAxis(1, 2), SubAxis(2, 3)),)
    assert split_sub_axes([SubAxis(1, 2), SubAxis(2, 3)], (3, 2)) is None


@given(st.permutations(range(3)), st.lists(st.integers(1, 3), min_size=3, max_size=3))
def test_merging_keeps_the_number_of_shards(order: list[int], sizes: list[int]) -> None:
    digits = [row_major_sub_axes(sizes)[i] for i in order]
    for position in range(num_shards(digits)):
        assert shard_number(merge_sub_axes(digits), position) == shard_number(digits, position)
