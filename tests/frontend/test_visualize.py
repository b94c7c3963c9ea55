"""Drawings of shardings as in JAX's tutorials, and the text for shardings that have no drawing."""

import json
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shardir.frontend.errors import ShardingError
from shardir.frontend.shardings.devices import devices, virtual_devices
from shardir.frontend.shardings.mesh import Mesh, make_mesh
from shardir.frontend.shardings.partition_spec import P
from shardir.frontend.shardings.positional_sharding import PositionalSharding
from shardir.frontend.shardings.sharding import NamedSharding, Sharding, SingleDeviceSharding
from shardir.frontend.visualize import (
    ASCII_TRANSLATION,
    draw_sharding,
    visualize_array_sharding,
    visualize_sharding,
)

DRAWINGS: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "data" / "visualize_reference.json").read_text("utf-8")
)


def sharding_of(drawing: dict[str, Any]) -> Sharding:
    if "mesh" not in drawing:
        return SingleDeviceSharding(devices()[0])
    chosen = np.array([devices()[id] for id in drawing["ids"]], dtype=object)
    mesh = Mesh(chosen.reshape(drawing["mesh"]), drawing["axes"])
    return NamedSharding(mesh, P(*drawing["spec"]))


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings_equal_those_of_the_tutorials(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    drawing = DRAWINGS[name]
    visualize_sharding(drawing["shape"], sharding_of(drawing))
    assert capsys.readouterr().out == drawing["text"]


def test_the_reference_has_nineteen_drawings() -> None:
    assert len(DRAWINGS) == 19


def test_an_array_is_drawn_by_its_sharding(capsys: pytest.CaptureFixture[str]) -> None:
    sharding = PositionalSharding(devices()).reshape(4, 2).replicate(0).T
    visualize_array_sharding(SimpleNamespace(shape=(8192, 8192), sharding=sharding))
    assert (
        capsys.readouterr().out
        == """\
┌───────────────────────┐
│                       │
│      CPU 0,2,4,6      │
│                       │
│                       │
├───────────────────────┤
│                       │
│      CPU 1,3,5,7      │
│                       │
│                       │
└───────────────────────┘
"""
    )


def test_a_batch_with_many_rows() -> None:
    sharding = PositionalSharding(devices()).reshape(4, 2).replicate(1)
    assert (
        draw_sharding((8192, 784), sharding)
        == """\
┌───────┐
│CPU 0,1│
├───────┤
│CPU 2,3│
├───────┤
│CPU 4,5│
├───────┤
│CPU 6,7│
└───────┘"""
    )


def test_rank_0_is_one_box() -> None:
    assert (
        draw_sharding((), SingleDeviceSharding(devices()[3]))
        == """\
┌───────┐
│ CPU 3 │
└───────┘"""
    )


def test_a_value_without_elements() -> None:
    drawn = draw_sharding((0, 4), NamedSharding(make_mesh((2,), "x"), P(None, "x")))
    assert drawn.splitlines()[5] == "│  CPU 0   │  CPU 1   │"


def test_narrow_boxes_keep_labels_that_fit() -> None:
    drawn = draw_sharding((100, 330), NamedSharding(make_mesh((2,), "x"), P(None, "x")))
    assert drawn.splitlines()[5] == (
        "│" + " " * 17 + "CPU 0" + " " * 17 + "│" + " " * 16 + "CPU 1" + " " * 17 + "│"
    )
    assert {len(line) for line in drawn.splitlines()} == {80}


def test_a_row_of_many_boxes_has_the_width_of_its_labels() -> None:
    mesh = make_mesh((32,), "x", devices=virtual_devices(32))
    drawn = draw_sharding((32,), NamedSharding(mesh, P("x"))).splitlines()
    assert drawn[1] == "│" + "│".join(f"CPU {i}" for i in range(32)) + "│"
    assert {len(line) for line in drawn} == {len(drawn[1])}


def test_higher_ranks_are_listed() -> None:
    sharding = NamedSharding(make_mesh((4, 2), ("a", "b")), P("a", None, None))
    assert (
        draw_sharding((40, 3, 2), sharding)
        == """\
[0:10, :, :]   CPU 0,1
[10:20, :, :]  CPU 2,3
[20:30, :, :]  CPU 4,5
[30:40, :, :]  CPU 6,7"""
    )


def test_uneven_shards_are_listed() -> None:
    sharding = NamedSharding(make_mesh((4,), "a"), P("a"))
    assert (
        draw_sharding((5, 3, 2), sharding)
        == """\
[0:2, :, :]  CPU 0
[2:4, :, :]  CPU 1
[4:5, :, :]  CPU 2
[5:5, :, :]  CPU 3"""
    )


def test_colour_does_not_change_the_text() -> None:
    sharding = NamedSharding(make_mesh((2,), "a"), P("a"))
    assert (
        draw_sharding((2,), sharding, colored=True)
        == """\
┌───────┬───────┐
│\x1b[30;48;5;117m CPU 0 \x1b[0m│\x1b[30;48;5;215m CPU 1 \x1b[0m│
└───────┴───────┘"""
    )


def test_values_without_devices_are_errors() -> None:
    with pytest.raises(ShardingError) as caught:
        visualize_array_sharding(np.zeros(3))
    assert str(caught.value).splitlines()[0] == (
        "a value of type ndarray is not placed on devices, so there is nothing to draw; "
        "place it with device_put"
    )


def test_lines_are_ascii_if_the_output_encoding_requires_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = NamedSharding(make_mesh((2,), ("x",), devices=devices()[:2]), P("x"))
    drawings = []
    for encoding in ("ascii", "utf-8"):
        binary = BytesIO()
        monkeypatch.setattr(sys, "stdout", TextIOWrapper(binary, encoding=encoding))
        visualize_sharding((4, 2), chosen)
        sys.stdout.flush()
        drawings.append(binary.getvalue().decode())
    monkeypatch.undo()
    plain, drawn = drawings
    assert plain.splitlines()[0] == "+----------+"
    assert drawn.splitlines()[0] == "┌──────────┐"
    assert plain == drawn.translate(ASCII_TRANSLATION)
