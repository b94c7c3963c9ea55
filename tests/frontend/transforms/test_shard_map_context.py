"""Inside `shard_map`, its mesh is the current mesh for specs and for nested `shard_map`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from shardir import (
    Mesh,
    NamedSharding,
    PartitionSpec as P,
    cpu_devices,
    device_put,
    jit,
    lax,
    make_mesh,
    shard_map,
)
from shardir.frontend.errors import ShardingError
from shardir.frontend.shardings.mesh import current_mesh

X = np.arange(32.0, dtype="float32").reshape(8, 4)


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    with cpu_devices(8):
        yield make_mesh((4, 2), ("x", "y"))


def test_specs_inside_refer_to_free_axes(mesh: Mesh) -> None:
    @jit
    def f(x: Any) -> Any:
        def doubled(piece: Any) -> Any:
            return lax.with_sharding_constraint(piece * 2, P(None, "y"))

        return shard_map(doubled, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})(x)

    made = f(device_put(X, NamedSharding(mesh, P("x"))))
    np.testing.assert_array_equal(made, X * 2)
    assert made.sharding.is_equivalent_to(NamedSharding(mesh, P("x", "y")), 2)
    assert current_mesh() is None


def test_nested_shard_map_uses_the_current_mesh(mesh: Mesh) -> None:
    def inner(x: Any) -> Any:
        return lax.psum(x, "y")

    def outer(x: Any) -> Any:
        return shard_map(inner, in_specs=P(None, "y"), out_specs=P(), axis_names={"y"})(x)

    made = shard_map(outer, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})(X)
    np.testing.assert_array_equal(made, X[:, :2] + X[:, 2:])


def test_an_abstract_mesh_stands_for_the_mesh_of_the_arguments(mesh: Mesh) -> None:
    placed = device_put(X, NamedSharding(mesh, P("x", "y")))

    def pair(x: Any, y: Any) -> Any:
        return 2 * x, y

    mapped = shard_map(pair, mesh=mesh.abstract_mesh, in_specs=P("x"), out_specs=P("x"))
    for result, expected in zip(mapped(X, placed), (2 * X, X), strict=True):
        np.testing.assert_array_equal(result, expected)
        assert result.sharding == NamedSharding(mesh, P("x"))
    with pytest.raises(ShardingError, match=r"which has no devices, and no argument is on a mesh"):
        mapped(X, X)
    other = device_put(X, NamedSharding(make_mesh((8,), ("z",)), P("z")))
    with pytest.raises(ShardingError, match=r"and an argument is on Mesh\('z': 8"):
        mapped(X, other)
