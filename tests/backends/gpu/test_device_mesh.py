"""The mesh arithmetic of emitted programs equals that of the compiler."""

import pytest

from shardir.backends.gpu.runtime_files import axes_text
from shardir.backends.gpu.vendored.device_mesh import Mesh
from shardir.ir import device_groups as compiled
from shardir.ir.mesh import Mesh as CompiledMesh
from shardir.ir.sharding import Axis

MESH = CompiledMesh("m", (("a", 2), ("b", 12), ("c", 3)))
AXES = [
    (Axis("a", 1, 2),),
    (Axis("b", 1, 12),),
    (Axis("b", 2, 3),),
    (Axis("b", 4, 3), Axis("b", 1, 2)),
    (Axis("c", 1, 3), Axis("a", 1, 2)),
    (Axis("a", 1, 2), Axis("b", 1, 12), Axis("c", 1, 3)),
]
SOURCES_AND_TARGETS = [
    ((Axis("a", 1, 2), Axis("c", 1, 3)), (Axis("c", 1, 3), Axis("a", 1, 2))),
    ((Axis("c", 1, 3),), (Axis("b", 4, 3),)),
    ((Axis("a", 1, 2),), (Axis("b", 1, 2),)),
    ((Axis("b", 1, 6),), (Axis("c", 1, 3), Axis("a", 1, 2))),
    ((Axis("b", 1, 2), Axis("b", 2, 3)), (Axis("b", 1, 6),)),
    ((Axis("b", 1, 4), Axis("c", 1, 3)), (Axis("c", 1, 3), Axis("b", 1, 4))),
]


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_positions_and_groups_equal_those_of_the_compiler(axes: tuple[Axis, ...]) -> None:
    mesh, names = Mesh(dict(MESH.axes)), axes_text(axes, MESH)
    assert mesh.count(names) == len(compiled.device_groups(MESH, axes)[0])
    assert mesh.groups(names) == compiled.device_groups(MESH, axes)
    for device, position in enumerate(compiled.device_positions(MESH, axes).tolist()):
        assert mesh.position(device, names) == position
        assert mesh.group(device, names)[position] == device


@pytest.mark.parametrize(("source", "target"), SOURCES_AND_TARGETS, ids=str)
def test_permute_senders_equal_those_of_the_compiler(
    source: tuple[Axis, ...], target: tuple[Axis, ...]
) -> None:
    mesh = Mesh(dict(MESH.axes))
    names = axes_text(source, MESH), axes_text(target, MESH)
    senders = compiled.permute_senders(MESH, source, target).tolist()
    assert [mesh.sender(device, *names) for device in range(mesh.size)] == senders
    for device, sender in enumerate(senders):
        assert sender in mesh.combined_group(device, *names)


def test_an_unknown_axis_is_an_error_with_its_name() -> None:
    with pytest.raises(ValueError, match="has no axis 'z'"):
        Mesh({"a": 2}).count(("z",))
