"""Programs on abstract meshes are traced, lowered and partitioned without devices."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from shardir.frontend.arrays.array import ShapeDtypeStruct
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import DeviceError, MeshError
from shardir.frontend.lax.api import psum
from shardir.frontend.numpy import api as snp
from shardir.frontend.shardings.mesh import AbstractMesh, make_mesh
from shardir.frontend.shardings.partition_spec import PartitionSpec as P
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.transforms.manual.shard_map import shard_map

POD = AbstractMesh((16, 16, 8), ("data", "model", "pipe"))


def make_struct(shape: tuple[int, ...], *spec: Any) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(POD, P(*spec)))


def test_a_program_on_two_thousand_abstract_devices() -> None:
    lowered = jit(lambda x, w: snp.tanh(x @ w).sum(0)).lower(
        make_struct((4096, 4096), "data", "model"), make_struct((4096, 8192), "model", "pipe")
    )
    assert "mesh @mesh = [data=16, model=16, pipe=8]" in lowered.as_text()
    compiled = lowered.compile()
    assert compiled.module.main.body.params[0].type.shape == (256, 256)
    assert [each.kind for each in compiled.collectives()] == ["all-reduce", "all-reduce"]
    assert compiled.output_shardings == NamedSharding(POD, P("pipe"))
    assert compiled.memory_analysis().output_size_in_bytes == 1024 * 4


def test_manual_programs_on_an_abstract_mesh() -> None:
    total = shard_map(lambda x: psum(x, "data"), mesh=POD, in_specs=P("data"), out_specs=P())
    compiled = jit(total).lower(make_struct((64, 4), "data")).compile()
    assert "all-reduce" in compiled.as_text()


def test_abstract_meshes_compare_by_sizes_and_names() -> None:
    assert AbstractMesh((16, 16, 8), ("data", "model", "pipe")) == POD
    assert AbstractMesh(4, "x") == AbstractMesh((4,), ("x",))
    assert AbstractMesh(8, "x") != make_mesh(8, "x")
    types = "axis_types=(Auto, Auto, Auto)"
    assert repr(POD) == str(POD) == f"AbstractMesh('data': 16, 'model': 16, 'pipe': 8, {types})"
    assert repr(POD.devices[0, 0, 3]) == "AbstractDevice(id=3)"
    assert (POD.size, POD.shape["pipe"]) == (2048, 8)
    for again in (copy.deepcopy(POD), pickle.loads(pickle.dumps(POD))):
        assert again == POD
        assert again.devices[0, 0, 1] is POD.devices[0, 0, 1]


REST = "2048 abstract devices, which have no memory and run no programs; use a Mesh of devices() "
PLACED = NamedSharding(POD, P("data"))


@pytest.mark.parametrize(
    ("run", "start"),
    [
        (lambda: jit(double).lower(make_struct((16,), "data")).compile()(snp.ones(16)),
         "double was compiled for "),
        (lambda: jit(double, out_shardings=PLACED)(snp.ones(16)), "double was compiled for "),
        (lambda: device_put(snp.ones(16), PLACED), "device_put cannot place an array on "),
    ],
)  # fmt: skip
def test_execution_on_an_abstract_mesh_is_an_error(run: Callable[[], Any], start: str) -> None:
    with pytest.raises(DeviceError) as caught:
        run()
    assert str(caught.value).startswith(f"{start}{REST}instead of the AbstractMesh\n")


def double(x: Any) -> Any:
    return x + x


@pytest.mark.parametrize(
    ("sizes", "names", "message"),
    [
        ((2, 0), ("a", "b"),
         "a mesh has shape (2, 0); every size must be an integer above 0"),
        ((2,), ("a", "b"),
         "an AbstractMesh has sizes (2,) and axes ('a', 'b'); name every dimension"),
        ((2, 2), ("a", "a"),
         "the axes of a Mesh are ('a', 'a'); every name may occur only once; rename one axis"),
    ],
)  # fmt: skip
def test_invalid_abstract_meshes_are_errors(sizes: Any, names: Any, message: str) -> None:
    with pytest.raises(MeshError) as caught:
        AbstractMesh(sizes, names)
    assert str(caught.value).partition("\n")[0] == message
