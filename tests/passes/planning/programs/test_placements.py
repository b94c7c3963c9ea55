"""The least data that devices send from one placement of a value to another one."""

from fractions import Fraction

import pytest

from shardir.passes.planning.programs.placements import (
    PARTIAL,
    UNSHARDED,
    Placement,
    sent_part,
)


@pytest.mark.parametrize(
    ("source", "target", "sizes", "part"),
    [
        ((UNSHARDED,), (0,), (4,), Fraction(0)),
        ((0,), (UNSHARDED,), (4,), Fraction(3, 4)),
        ((0,), (1,), (4,), Fraction(1, 4) - Fraction(1, 16)),
        ((0, UNSHARDED), (UNSHARDED, UNSHARDED), (4, 2), Fraction(3, 4)),
        ((0, UNSHARDED), (UNSHARDED, PARTIAL), (4, 2), Fraction(3, 8)),
        ((PARTIAL,), (0,), (4,), Fraction(3, 4)),
        ((PARTIAL,), (UNSHARDED,), (4,), Fraction(6, 4)),
    ],
)
def test_each_device_receives_what_it_does_not_have(
    source: Placement, target: Placement, sizes: tuple[int, ...], part: Fraction
) -> None:
    assert sent_part(source, target, sizes) == part
