"""Digits read the coordinates of devices off their numbers."""

import numpy as np
from hypothesis import given, strategies as st

from shardir.frontend.digits import Digit, merge, pieces, read, row_major, split


def test_row_major_digits_are_the_coordinates_of_an_array() -> None:
    digits = row_major((4, 3, 2))
    assert digits == (Digit(6, 4), Digit(2, 3), Digit(1, 2))
    for position in range(24):
        place = np.unravel_index(position, (4, 3, 2))
        assert tuple(digit.read(position) for digit in digits) == place


def test_several_digits_count_in_a_mixed_radix() -> None:
    digits = (Digit(1, 2), Digit(4, 2))
    assert [read(digits, i) for i in range(8)] == [0, 2, 0, 2, 1, 3, 1, 3]
    assert pieces(digits) == 4
    assert (read((), 5), pieces(())) == (0, 1)


def test_merge() -> None:
    assert merge([Digit(4, 2), Digit(2, 2), Digit(7, 1), Digit(1, 2)]) == (Digit(1, 8),)
    assert merge([Digit(1, 2), Digit(2, 4)]) == (Digit(1, 2), Digit(2, 4))


def test_split() -> None:
    assert split([Digit(1, 12)], (3, 1, 4)) == ((Digit(4, 3),), (), (Digit(1, 4),))
    assert split([Digit(1, 2), Digit(2, 3)], (6,)) == ((Digit(1, 2), Digit(2, 3)),)
    assert split([Digit(1, 2), Digit(2, 3)], (3, 2)) is None


@given(st.permutations(range(3)), st.lists(st.integers(1, 3), min_size=3, max_size=3))
def test_merging_does_not_change_the_count(order: list[int], sizes: list[int]) -> None:
    digits = [row_major(sizes)[i] for i in order]
    for position in range(pieces(digits)):
        assert read(merge(digits), position) == read(digits, position)
