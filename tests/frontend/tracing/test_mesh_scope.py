"""Types on the mesh of a line, and their conversion to another mesh of the same devices."""

import numpy as np
import pytest

import shardir as sd
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.tracing.mesh_scope import MeshScope
from shardir.frontend.tracing.sharding_type import ShardingType, replicated_type
from shardir.sharding import AbstractMesh, AxisType


def mesh(*axes: str, numbers: tuple[int, ...] = (0, 1, 2, 3)) -> Mesh:
    devices = np.array([sd.devices()[number] for number in numbers])
    sizes = (len(numbers) // 2, 2) if len(axes) == 2 else (len(numbers),)
    return Mesh(devices.reshape(sizes), axes, axis_types=(AxisType.Explicit,) * len(axes))


def scope(mesh: Mesh, auto: frozenset[str] = frozenset()) -> MeshScope:
    return MeshScope(mesh, frozenset(mesh.explicit_axes), auto)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (mesh("p", "q"), True),
        (mesh("z", numbers=(1, 0, 2, 3)), False),
        (mesh("z", numbers=(0, 1)), False),
        (AbstractMesh((4,), ("z",)), True),
        (AbstractMesh((2,), ("z",)), False),
    ],
    ids=str,
)
def test_meshes_have_the_same_devices(other: Mesh, expected: bool) -> None:
    """An abstract mesh states their number."""
    own = mesh("x", "y")
    assert scope(own).has_devices_of(other) is expected
    assert scope(own.abstract_mesh).has_devices_of(other) is (other.size == 4)


def test_a_mesh_without_axes_has_no_devices() -> None:
    one = mesh("x", numbers=(0,))
    assert scope(one).has_devices_of(AbstractMesh((1,), ("z",)))
    assert not scope(one).has_devices_of(AbstractMesh((), ()))


def test_types_lack_the_axes_that_the_compiler_determines() -> None:
    type = ShardingType((("x",), ("y",)))
    assert scope(mesh("x", "y")).without_auto_axes(type) is type
    inside = scope(mesh("x", "y"), frozenset("x")).without_auto_axes(type)
    assert inside == ShardingType(((), ("y",)))


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        (ShardingType((("x",), ())), ShardingType((("p",), ()))),
        (ShardingType((("x",), ()), unreduced=frozenset("y")), replicated_type(2)),
        (ShardingType((("x",), ()), reduced=frozenset("y")), replicated_type(2)),
    ],
)
def test_partial_sums_are_replicated_on_another_mesh(
    type: ShardingType, expected: ShardingType
) -> None:
    source, target = scope(mesh("x", "y")), scope(mesh("p", "q"))
    assert target.convert(type, source) == expected
