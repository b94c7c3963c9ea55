"""Groups of devices in HLO text, and the mesh axes along which their devices differ."""

import pytest

from shardir.hlo.groups import axes_of_pairs, name_axes, parse_groups, parse_pairs

MESH = {"a": 2, "b": 3, "c": 2}


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,1},{2,3}}", [{0, 1}, {2, 3}]),
        ("{}", [{0, 1, 2, 3}]),
        ("[2,2]<=[4]", [{0, 1}, {2, 3}]),
        ("[2,2]<=[2,2]T(1,0)", [{0, 2}, {1, 3}]),
        ("mesh['x'=2,'y'=2] {'x'}", [{0, 2}, {1, 3}]),
        ("mesh['x'=2,'y'=2] {'y'}", [{0, 1}, {2, 3}]),
        ("mesh['x'=4] {'x':(1)2}", [{0, 2}, {1, 3}]),
        ("mesh['x'=4] {'x':(2)2}", [{0, 1}, {2, 3}]),
        ("mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'}", [{0, 1}, {2, 3}]),
        ("mesh['x'=2,'y'=2], device_ids=([4]) {'x'}", [{0, 2}, {1, 3}]),
        ("mesh['x'=2,'y'=2], device_ids=(0,3,1,2) {'y'}", [{0, 3}, {1, 2}]),
    ],
)
def test_groups_have_several_forms(text: str, groups: list[set[int]]) -> None:
    assert parse_groups(text, 4) == frozenset(map(frozenset, groups))


@pytest.mark.parametrize(
    "text",
    ["", "{{0,x}}", "[2,2]<=[8]", "[3]<=[3]", "[2,2]<=[2,2]T(0,0)", "mesh['x'=8] {'x'}",
     "mesh['x'=4] {'y'}", "mesh['x'=4] {'x':(1)3}", "mesh['x'=4], device_ids=([8]) {'x'}",
     "mesh['x'=4], device_ids=(0,1,1,2) {'x'}", "mesh['x'=2], device_ids=([4]) {'x'}",
     "mesh['x'=4], device_ids=() {'x'}"],
)  # fmt: skip
def test_other_texts_are_no_groups(text: str) -> None:
    assert parse_groups(text, 4) is None


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("[6,2]<=[12]", ("c",)),
        ("[4,3]<=[2,3,2]T(0,2,1)", ("b",)),
        ("[2,6]<=[12]", ("b", "c")),
        ("[3,4]<=[2,3,2]T(1,0,2)", ("a", "c")),
        ("[1,12]<=[12]", ("a", "b", "c")),
        ("[3,4]<=[12]", None),
    ],
)
def test_groups_are_named_by_the_axes_of_the_mesh(text: str, axes: tuple[str, ...] | None) -> None:
    groups = parse_groups(text, 12)
    assert groups is not None
    assert name_axes(groups, MESH) == axes


def test_pairs_lie_along_the_axes_whose_coordinates_differ() -> None:
    pairs = parse_pairs("{{0,1},{1,0},{2,3}}")
    assert pairs == [(0, 1), (1, 0), (2, 3)]
    assert axes_of_pairs(pairs, MESH) == ("c",)
    assert axes_of_pairs([(0, 6), (0, 2)], MESH) == ("a", "b")
    assert parse_pairs("{{0,1,2}}") is None
    assert parse_pairs("all") is None
