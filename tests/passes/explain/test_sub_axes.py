"""Intersection and difference of all pairs of sub-axes of one axis."""

import pytest

from shardir.ir.sharding import Axis, count_positions
from shardir.ir.sub_axes import can_coexist, find_conflict
from shardir.passes.explain.propagation_history.sub_axes import difference_of_axes, intersection


@pytest.mark.parametrize("size", [6, 12, 24])
def test_an_axis_consists_of_its_intersection_and_difference(size: int) -> None:
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    axes = [Axis("a", pre, end // pre) for pre in divisors for end in divisors if end > pre
            if end % pre == 0]  # fmt: skip
    for a in axes:
        for b in axes:
            common, rest = intersection(a, b), difference_of_axes(a, [b])
            shared = [z for z in axes if a.contains(z) and b.contains(z)]
            if not can_coexist(a, b):
                assert (common, rest) == (None, [a])
                continue
            assert common == max(shared, key=lambda z: z.size, default=None)
            parts = [*rest, *([common] if common else [])]
            assert count_positions(parts) == a.size
            assert find_conflict([*rest, b]) is None
