"""Pictures of meshes, shardings and arrays, and tables of profiles, for notebooks."""

import re

import numpy as np

import shardir
import shardir.numpy as jnp
from shardir.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
from tests.core.display.test_program_html import read


def cells(html: str) -> list[list[str]]:
    """The texts of the rows of the first table."""
    table = re.search(r"<table.*?</table>", html)
    assert table
    return [
        [re.sub("<.*?>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)]
        for row in re.findall(r"<tr>.*?</tr>", table[0])
    ]


def words(html: object) -> str:
    return read(str(html)).text


def mesh() -> shardir.Mesh:
    return shardir.make_mesh((4, 2), ("data", "model"))


def test_a_mesh_is_a_grid_of_devices() -> None:
    html = mesh()._repr_html_()
    assert cells(html) == [
        ["", "model 0", "model 1"],
        ["data 0", "CPU 0", "CPU 1"],
        ["data 1", "CPU 2", "CPU 3"],
        ["data 2", "CPU 4", "CPU 5"],
        ["data 3", "CPU 6", "CPU 7"],
    ]
    assert "Mesh of 8 devices: data 4 Auto, model 2 Auto" in words(html)


def test_a_mesh_of_one_axis_is_a_row() -> None:
    assert cells(shardir.make_mesh((2,), ("x",))._repr_html_()) == [
        ["", "x 0", "x 1"],
        ["", "CPU 0", "CPU 1"],
    ]


def test_a_mesh_of_three_axes_is_several_grids() -> None:
    html = shardir.make_mesh((2, 2, 2), ("a", "b", "c"))._repr_html_()
    assert html.count("<table") == 2
    assert '<span class="sd-c sd-c0">a</span> 1<table' in html


def test_a_large_mesh_has_no_grid() -> None:
    html = AbstractMesh((64, 32), ("a<b", "model"))._repr_html_()
    assert "<table" not in html
    assert "AbstractMesh of 2048 devices: a<b 64 Auto, model 32 Auto" in words(html)


def test_a_named_sharding_is_a_grid_of_shards() -> None:
    html = NamedSharding(mesh(), P("data", None))._repr_html_()
    assert cells(html) == [
        ["", ":"],
        ["0", "CPU 0,1"],
        ["1", "CPU 2,3"],
        ["2", "CPU 4,5"],
        ["3", "CPU 6,7"],
    ]
    text = words(html)
    assert "NamedSharding (data, None)" in text
    assert "rows: dimension 0 over data; columns: dimension 1" in text


def test_a_sharding_without_dimensions_is_one_box() -> None:
    assert cells(NamedSharding(mesh(), P())._repr_html_()) == [
        ["", ""],
        ["", "CPU 0,1,2,3,4,5,6,7"],
    ]


def test_a_positional_sharding_is_a_grid() -> None:
    html = shardir.PositionalSharding(shardir.devices()).reshape(4, 2)._repr_html_()
    assert cells(html)[:2] == [["", "0", "1"], ["0", "CPU 0", "CPU 1"]]


def test_an_array_shows_its_shards_and_elements() -> None:
    x = shardir.device_put(np.arange(16.0).reshape(4, 4), NamedSharding(mesh(), P("model", "data")))
    html = x._repr_html_()
    assert html is not None
    assert cells(html) == [
        ["", "0:1", "1:2", "2:3", "3:4"],
        ["0:2", "CPU 0", "CPU 2", "CPU 4", "CPU 6"],
        ["2:4", "CPU 1", "CPU 3", "CPU 5", "CPU 7"],
    ]
    text = words(html)
    assert "Array f32[4, 4] NamedSharding (model, data)" in text
    assert "rows: dimension 0, size 4 over model; columns: dimension 1, size 4 over data" in text
    assert text.endswith(repr(x))


def test_an_array_of_higher_rank_lists_its_shards() -> None:
    x = shardir.device_put(np.zeros((4, 2, 3)), NamedSharding(mesh(), P("data", "model")))
    assert cells(str(x._repr_html_()))[:2] == [
        ["[0:1, 0:1, :]", "CPU 0"],
        ["[0:1, 1:2, :]", "CPU 1"],
    ]


def test_an_array_on_one_device_has_no_picture() -> None:
    assert jnp.ones(3)._repr_html_() is None


def test_a_profile_is_a_table() -> None:
    found = shardir.profile(lambda x: jnp.sin(x) @ x, jnp.ones((30, 30)), runs=2)
    html = found._repr_html_()
    text = words(html)
    for row in str(found).strip().split("\n"):
        for word in row.split():
            assert word in text
    assert len(cells(html)) == len(found.rows) + 2


def test_reports_and_programs_have_html() -> None:
    x = shardir.device_put(np.ones((4, 4)), NamedSharding(mesh(), P("model", "data")))
    lowered = shardir.jit(lambda x: x @ x).lower(x)
    for each in (lowered, lowered.compile(), lowered.module):
        assert words(each._repr_html_()).strip() == str(each).strip()
    for report in (lowered.conflicts(), lowered.coverage(), lowered.explain("x")):
        assert words(report._repr_html_()).strip() == str(report).strip()
