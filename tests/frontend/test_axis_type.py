"""Axis types: what programs that state them may ask for."""

import pytest

from shardir.frontend.abstract_mesh import AbstractMesh
from shardir.frontend.axis_type import AxisType
from shardir.frontend.errors import MeshError
from shardir.frontend.mesh import make_mesh


def test_axes_left_to_the_compiler_may_be_stated() -> None:
    mesh = make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    assert mesh == make_mesh((2, 4), ("x", "y"))
    assert mesh.axis_types == (AxisType.Auto, AxisType.Auto)
    assert repr(mesh.axis_types) == "(Auto, Auto)"
    assert AbstractMesh((2,), ("x",), axis_types=AxisType.Auto).axis_types == (AxisType.Auto,)


def test_other_types_of_axes_are_refused() -> None:
    with pytest.raises(MeshError) as caught:
        make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Explicit))
    assert str(caught.value).partition("\n")[0] == (
        "the axis 'y' of a Mesh is Explicit, and shardings are no part of types here; leave "
        "axis_types out, and use with_sharding_constraint or shard_map"
    )
    with pytest.raises(MeshError) as caught:
        make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,))
    assert str(caught.value).partition("\n")[0] == (
        "a Mesh has axes ('x', 'y') and axis_types (Auto,); give one type for each axis"
    )
