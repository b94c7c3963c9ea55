"""Mesh axes on links: nodes are filled first, large axes are divided, and tori have rings."""

from pathlib import Path

import pytest

from shardir.errors import MachineError
from shardir.machine import load_machine
from shardir.machine.description_files import read_description
from shardir.machine.placement import choose_torus_shape


def levels(
    name: str, axes: dict[str, int], links: dict[str, str] | None = None
) -> dict[str, list[tuple[str, int]]]:
    machine = load_machine(name, axes=axes, links=links)
    return {
        axis: [(level.link.name, level.size) for level in found]
        for axis, found in machine.placement.items()
    }


def test_the_last_axes_fill_the_node() -> None:
    assert levels("a100x8", {"data": 64, "model": 8}) == {
        "data": [("infiniband", 64)],
        "model": [("nvlink", 8)],
    }
    assert levels("a100x8", {"data": 2, "model": 4}) == {
        "data": [("nvlink", 2)],
        "model": [("nvlink", 4)],
    }
    assert levels("a100x8", {"data": 1, "model": 4}) == {"data": [], "model": [("nvlink", 4)]}


def test_an_axis_larger_than_the_node_is_divided() -> None:
    assert levels("a100x8", {"data": 64}) == {"data": [("nvlink", 8), ("infiniband", 8)]}
    assert levels("a100x8", {"pipe": 3, "data": 16, "model": 2}) == {
        "pipe": [("infiniband", 3)],
        "data": [("nvlink", 4), ("infiniband", 4)],
        "model": [("nvlink", 2)],
    }


def test_links_place_axes() -> None:
    assert levels("a100x8", {"data": 4, "model": 2}, {"model": "infiniband"}) == {
        "data": [("nvlink", 4)],
        "model": [("infiniband", 2)],
    }
    assert levels("a100x8", {"data": 16, "model": 4}, {"model": "infiniband"}) == {
        "data": [("nvlink", 8), ("infiniband", 2)],
        "model": [("infiniband", 4)],
    }


@pytest.mark.parametrize(
    ("axes", "links", "message"),
    [
        (
            {"data": 4},
            {"model": "nvlink"},
            "links places the axis 'model', but the mesh has the axes data",
        ),
        (
            {"data": 4},
            {"data": "ethernet"},
            "links places the axis 'data' on 'ethernet', but machine 'a100x8' has the links "
            "nvlink, infiniband",
        ),
        (
            {"data": 16},
            {"data": "nvlink"},
            "the axis 'data' of size 16 does not fit on 'nvlink' of machine 'a100x8': a group has "
            "8 devices, and other axes leave 8; place the axis on another link, or do not name "
            "its link, so that it is divided",
        ),
        (
            {"data": 0},
            None,
            "the axis 'data' has size 0; sizes are positive integers",
        ),
    ],
)
def test_wrong_placements_are_refused(
    axes: dict[str, int], links: dict[str, str] | None, message: str
) -> None:
    with pytest.raises(MachineError) as caught:
        load_machine("a100x8", axes=axes, links=links)
    assert str(caught.value) == message


def test_an_axis_without_a_link_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(
        '[links.bus]\ntopology = "switch"\ngroup_size = 4\nbandwidth = 1e9\nefficiency = 1\n'
        'latency = 1e-6\nhop_latency = 1e-6\nsource = "data sheet"\n',
        encoding="utf-8",
    )
    with pytest.raises(MachineError) as caught:
        load_machine(path, axes={"data": 2, "model": 4})
    assert str(caught.value) == (
        "the axis 'data' of size 2 has no link on machine 'node': bus connects 4 devices, and the "
        f"axes that follow it need some of them; add a link that connects more devices to {path}, "
        "or make the mesh smaller"
    )
    path.write_text("", encoding="utf-8")
    with pytest.raises(MachineError, match="on machine 'node': it has no links; add a link"):
        load_machine(path, axes={"data": 2})


def test_tori() -> None:
    ici = read_description("tpu-v4").links["ici"]
    assert choose_torus_shape(ici, 64) == (4, 4, 4)
    assert choose_torus_shape(ici, 32) == (2, 4, 4)
    machine = load_machine("tpu-v4", axes={"data": 16, "model": 4})
    data, model = machine.placement["data"], machine.placement["model"]
    assert [(level.size, level.is_ring) for level in data] == [(4, True), (4, True)]
    assert [(level.size, level.is_ring) for level in model] == [(4, True)]
    assert {level.dimension for level in (*data, *model)} == {0, 1, 2}
    # Two axes in one dimension: the inner one is a line, the outer one is strided.
    machine = load_machine("tpu-v6e", axes={"a": 4, "b": 4, "c": 16})
    assert [(m.size, m.dimension, m.is_ring) for m in machine.placement["c"]] == [(16, 0, True)]
    assert [(m.size, m.ring_stride, m.is_ring) for m in machine.placement["b"]] == [(4, 1, False)]
    assert [(m.size, m.ring_stride, m.is_ring) for m in machine.placement["a"]] == [(4, 4, False)]
    with pytest.raises(MachineError) as caught:
        load_machine("tpu-v6e", axes={"a": 17})
    assert str(caught.value) == (
        "17 devices are not a slice of the torus 'ici' of at most 16x16; use sizes of axes that "
        "multiply to the sizes of its dimensions"
    )


def test_more_devices_than_a_torus_are_divided() -> None:
    assert levels("tpu-v6e", {"data": 512}) == {"data": [("ici", 16), ("ici", 16), ("dcn", 2)]}


def test_sub_axes() -> None:
    machine = load_machine("a100x8", axes={"data": 64})
    assert [(v.link.name, v.size) for v in machine.levels("data:(1)8")] == [("infiniband", 8)]
    assert [(v.link.name, v.size) for v in machine.levels("data:(8)8")] == [("nvlink", 8)]
    assert [(v.link.name, v.size) for v in machine.levels("data:(4)4")] == [
        ("nvlink", 2),
        ("infiniband", 2),
    ]
    assert [(v.link.name, v.size) for v in machine.levels("data:(2)8")] == [
        ("nvlink", 2),
        ("infiniband", 4),
    ]
    with pytest.raises(MachineError) as caught:
        machine.levels("data:(5)2")
    assert str(caught.value) == "'data:(5)2' is not a sub-axis of 'data' of size 64"
    with pytest.raises(MachineError) as caught:
        machine.levels("model")
    assert str(caught.value) == (
        "machine 'a100x8' has no link for the axis 'model': it was loaded with the axes data; pass "
        "all axes of the mesh to load_machine"
    )
