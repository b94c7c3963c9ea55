"""Groups of devices that communicate along mesh axes and sub-axes."""

import pytest

from shardir.ir.device_groups import (
    device_groups,
    device_positions,
    merge_axes,
    permute_senders,
    refine_axes,
)
from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axis

MESH = Mesh("m", (("x", 4), ("y", 2)))
X, Y = Axis("x", 1, 4), Axis("y", 1, 2)
MAJOR, MINOR = Axis("x", 1, 2), Axis("x", 2, 2)


def test_positions_count_along_the_axes_major_to_minor() -> None:
    assert device_positions(MESH, (X,)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert device_positions(MESH, (Y,)).tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert device_positions(MESH, (Y, X)).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert device_positions(MESH, ()).tolist() == [0] * 8


def test_sub_axes_have_separate_positions() -> None:
    assert device_positions(MESH, (MAJOR,)).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert device_positions(MESH, (MINOR,)).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert device_positions(MESH, (MAJOR, MINOR)).tolist() == device_positions(MESH, (X,)).tolist()


def test_groups_contain_devices_that_differ_only_along_the_axes() -> None:
    assert device_groups(MESH, (Y,)) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert device_groups(MESH, (X,)) == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert device_groups(MESH, (MINOR, MAJOR)) == ((0, 4, 2, 6), (1, 5, 3, 7))


def test_a_shard_comes_from_the_device_at_its_source_position() -> None:
    sender = permute_senders(MESH, (X,), (MINOR, MAJOR))
    assert (
        device_positions(MESH, (X,))[sender].tolist()
        == device_positions(MESH, (MINOR, MAJOR)).tolist()
    )


@pytest.mark.parametrize(
    ("source", "target"),
    [((X,), (Y, MINOR)), ((MAJOR,), (Y,)), ((X, Y), (Y, X)), ((MAJOR, Y), (MINOR, MAJOR))],
)
def test_every_device_sends_exactly_once(
    source: tuple[Axis, ...], target: tuple[Axis, ...]
) -> None:
    sender = permute_senders(MESH, source, target)
    assert sorted(sender.tolist()) == list(range(8))
    assert (
        device_positions(MESH, source)[sender].tolist() == device_positions(MESH, target).tolist()
    )


def test_axes_split_where_another_one_starts_or_ends() -> None:
    assert refine_axes((X, MINOR)) == {X: (MAJOR, MINOR), MINOR: (MINOR,)}
    assert merge_axes((MAJOR, MINOR, Y)) == (X, Y)
    assert merge_axes((MINOR, MAJOR)) == (MINOR, MAJOR)


def test_halves_and_thirds_of_an_axis_have_no_common_sub_axes() -> None:
    with pytest.raises(ValueError, match=r"z:\(1\)2 and z:\(1\)3 have no common refinement"):
        refine_axes((Axis("z", 1, 2), Axis("z", 1, 3)))
