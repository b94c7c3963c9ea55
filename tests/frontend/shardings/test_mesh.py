"""Meshes arrange devices along named axes."""

import pickle
import threading

import numpy as np
import pytest

from shardir.frontend.errors import MeshError
from shardir.frontend.shardings.devices import Device, devices, virtual_devices
from shardir.frontend.shardings.mesh import Mesh, create_device_mesh, current_mesh, make_mesh


def message(make: object) -> str:
    assert callable(make)
    with pytest.raises(MeshError) as caught:
        make()
    return str(caught.value).partition("\n")[0]


def test_a_mesh_has_a_repr() -> None:
    mesh = make_mesh((4, 2), ("data", "model"))
    assert mesh.shape == {"data": 4, "model": 2}
    assert list(mesh.shape) == ["data", "model"]
    assert mesh.axis_names == ("data", "model")
    assert (mesh.axis_sizes, mesh.size, mesh.ndim, mesh.empty) == ((4, 2), 8, 2, False)
    assert mesh.shape_tuple == mesh.abstract_mesh.shape_tuple == tuple(mesh.shape.items())
    assert mesh.strides == {"data": 2, "model": 1}
    assert mesh.devices[1, 0] is devices()[2]
    assert mesh.device_ids == tuple(range(8))
    assert repr(mesh) == "Mesh('data': 4, 'model': 2)"


def test_the_repr_shows_another_device_order() -> None:
    mesh = Mesh([devices()[1], devices()[0]], "x")
    assert repr(mesh) == "Mesh('x': 2, device_ids=[1, 0])"


def test_meshes_compare_by_devices_shape_and_names() -> None:
    one = make_mesh((4, 2), ("a", "b"))
    same = Mesh(np.array(devices(), dtype=object).reshape(4, 2), ("a", "b"))
    assert one == same
    assert hash(one) == hash(same)
    assert one != make_mesh((4, 2), ("a", "c"))
    assert one != make_mesh((2, 4), ("a", "b"))
    assert one != Mesh(np.array(devices()[::-1], dtype=object).reshape(4, 2), ("a", "b"))
    assert pickle.loads(pickle.dumps(one)) == one


def test_meshes_are_immutable() -> None:
    mesh = make_mesh(8, "x")
    assert message(lambda: setattr(mesh, "axis_names", ("y",))) == (
        "a Mesh is frozen, and 'axis_names' cannot be set; make another Mesh"
    )
    with pytest.raises(ValueError, match="read-only"):
        mesh.devices[0] = devices()[1]


def test_a_mesh_is_the_current_mesh_inside_its_block() -> None:
    outer, inner = make_mesh(8, "x"), make_mesh((4, 2), ("a", "b"))
    assert current_mesh() is None
    with outer as entered:
        assert entered is outer
        with inner, outer:
            assert current_mesh() is outer
        assert current_mesh() is outer
        seen = []
        thread = threading.Thread(target=lambda: seen.append(current_mesh()))
        thread.start()
        thread.join()
        assert seen == [None]
    assert current_mesh() is None


def test_device_meshes_keep_the_order_of_devices() -> None:
    assert create_device_mesh((4, 2)).tolist() == [devices()[i : i + 2] for i in range(0, 8, 2)]
    assert create_device_mesh(8).tolist() == devices()
    assert create_device_mesh((2,), devices()[6:]).tolist() == devices()[6:]


def test_a_mesh_may_use_a_subset_of_devices() -> None:
    assert make_mesh((2, 2), ("a", "b")).device_ids == (0, 1, 2, 3)
    assert make_mesh(2, "a", devices=devices()[5:]).device_ids == (5, 6)


def test_a_mesh_larger_than_this_machine() -> None:
    mesh = make_mesh((64, 64), ("a", "b"), devices=virtual_devices(4096))
    assert mesh.size == 4096
    assert mesh.devices[63, 63].id == 4095


def test_the_empty_mesh() -> None:
    mesh = Mesh(np.array(devices()[0], dtype=object), ())
    assert mesh.empty
    assert (mesh.size, mesh.shape, repr(mesh)) == (1, {}, "Mesh()")


def test_too_few_devices_are_an_error() -> None:
    expected = (
        "a mesh of shape (4, 4) needs 16 devices, and there are 8; choose sizes whose product is "
        "at most 8, or add devices with set_cpu_devices(16) or SHARDIR_CPU_DEVICES=16"
    )
    assert message(lambda: create_device_mesh((4, 4))) == expected
    assert message(lambda: make_mesh((4, 4), ("a", "b"))) == expected
    assert message(lambda: make_mesh((3,), "a", devices=devices()[:2])) == (
        "a mesh of shape (3,) needs 3 devices, and there are 2; choose sizes whose product is "
        "at most 2, or pass 3 devices"
    )


def test_too_many_devices_are_an_error() -> None:
    assert message(lambda: create_device_mesh((2, 2))) == (
        "a device mesh of shape (2, 2) has 4 positions, and there are 8 devices; pass 4 of them, "
        "as in devices=devices()[:4]"
    )


def test_invalid_shapes_are_errors() -> None:
    assert message(lambda: create_device_mesh((8, 0))) == (
        "a mesh has shape (8, 0); every size must be an integer above 0"
    )


def test_invalid_devices_are_errors() -> None:
    assert message(lambda: Mesh([0, 1], "x")) == (
        "a Mesh needs devices, got 0; take them from devices()"
    )
    assert message(lambda: Mesh([], "x")) == "a Mesh needs at least one device, got none"
    assert message(lambda: Mesh(devices()[:1] * 2, "x")) == (
        "a Mesh has cpu:0 more than once; list every device once"
    )


def test_invalid_names_are_errors() -> None:
    assert message(lambda: Mesh(devices(), ("a", "b"))) == (
        "the devices of a Mesh are arranged in 1 dimension (8,), "
        "and its axes are named ('a', 'b'); name every dimension"
    )
    assert message(lambda: make_mesh((4, 2), ("a", "a"))) == (
        "the axes of a Mesh are ('a', 'a'); every name may occur only once; rename one axis"
    )
    assert message(lambda: Mesh(devices(), ("",))) == (
        "an axis of a Mesh is named ''; a name is a nonempty string"
    )


def test_equal_meshes_are_one_object() -> None:
    assert make_mesh((4, 2), ("a", "b")) is Mesh(np.array(devices()).reshape(4, 2), ("a", "b"))
    mesh = make_mesh((2,), ("only-here",))
    assert pickle.loads(pickle.dumps(mesh)) is mesh


def test_a_mesh_without_devices() -> None:
    mesh = Mesh(np.empty((), dtype=object), [])
    assert (mesh.empty, mesh.size, mesh.shape) == (True, 0, {})
    assert (mesh.abstract_mesh.empty, mesh.abstract_mesh.size) == (True, 0)


def test_the_abstract_mesh_has_the_axes() -> None:
    mesh = make_mesh((4, 2), ("a", "b"))
    assert mesh.abstract_mesh.shape == mesh.shape
    assert mesh.abstract_mesh is mesh.abstract_mesh
    assert str(mesh) == "Mesh('a': 4, 'b': 2, axis_types=(Auto, Auto))"


def test_local_devices_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = Mesh(np.array(devices()[::-1]).reshape(2, 4), ("a", "b"))
    assert mesh.local_devices == devices()[::-1]
    assert not mesh.is_multi_process
    monkeypatch.setattr(Device, "process_index", property(lambda device: device.id // 4))
    assert mesh.local_devices == devices()[3::-1]
    assert mesh.is_multi_process
