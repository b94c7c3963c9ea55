"""Assembly of global arrays from shards that are on their devices."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.sharding import NamedSharding, PartitionSpec as P

X = np.arange(48, dtype="f").reshape(8, 6)


def make_sharding(*spec: Any) -> NamedSharding:
    return NamedSharding(sd.make_mesh((4, 2), ("x", "y")), P(*spec))


@pytest.mark.parametrize("spec", [("x", "y"), ("x",), (None, "y"), (("y", "x"),), ()])
def test_arrays_from_shards_and_from_callbacks(spec: tuple[Any, ...]) -> None:
    sharding = make_sharding(*spec)
    whole = sd.device_put(X, sharding)
    again = sd.make_array_from_single_device_arrays(
        X.shape, sharding, [shard.data for shard in whole.addressable_shards]
    )
    calls = []

    def part(index: Any) -> Any:
        calls.append(index)
        return X[index]

    made = sd.make_array_from_callback(X.shape, sharding, part)
    for array in (again, made, sd.make_array_from_process_local_data(sharding, X)):
        np.testing.assert_array_equal(np.asarray(array), X)
        assert (array.sharding, array.committed) == (sharding, True)
    assert len(calls) == len({str(i) for i in sharding.devices_indices_map(X.shape).values()})


def test_key_arrays_are_assembled_and_fetched() -> None:
    keys = sd.random.split(sd.random.key(0), 4)
    sharding = make_sharding("x")
    parts = [shard.data for shard in sd.device_put(keys, sharding).addressable_shards]
    made = sd.make_array_from_single_device_arrays((4,), sharding, parts)
    for found in (made, sd.device_get(keys)):
        expected = np.asarray(sd.random.key_data(keys))
        np.testing.assert_array_equal(np.asarray(sd.random.key_data(found)), expected)


def test_mismatched_shards_are_errors() -> None:
    sharding = make_sharding("x")
    parts = [shard.data for shard in sd.device_put(X, sharding).addressable_shards]
    make = sd.make_array_from_single_device_arrays
    with pytest.raises(ArgumentError, match="two shards of make_array_from_single_device_arrays"):
        make(X.shape, sharding, [*parts, parts[0]])
    with pytest.raises(ArgumentError, match=r"has no shard on .*; pass one for each device"):
        make(X.shape, sharding, parts[1:])
    with pytest.raises(ShapeError, match=r"is f32\[2, 6\], and it must be f32\[4, 6\]"):
        make((16, 6), sharding, parts)
    with pytest.raises(ArgumentError, match="is on 8 devices"):
        make(X.shape, sharding, [sd.device_put(X, sharding)])
    with pytest.raises(ShapeError, match=r"returned shape \(8, 6\) for a shard of shape \(2, 6\)"):
        sd.make_array_from_callback(X.shape, sharding, lambda index: X)
    with pytest.raises(ShapeError, match=r"hold \(16, 6\) of an array of shape \(16, 6\)"):
        sd.make_array_from_process_local_data(sharding, X, (16, 6))


def test_shape_dtype_structs_of_arrays() -> None:
    array = sd.device_put(X, make_sharding("x"))
    struct = sd.ShapeDtypeStruct.like(array)
    assert (struct.shape, str(struct.dtype)) == ((8, 6), "float32")
    assert struct.sharding == array.sharding
    assert sd.ShapeDtypeStruct.like(sd.numpy.ones(3)).sharding is None
    assert sd.ShapeDtypeStruct.like(X).sharding is None


def test_containers_of_process_local_data() -> None:
    data = {"a": X, "b": X[:4]}
    for shapes in (None, {"a": (8, 6), "b": (4, 6)}):
        made = sd.make_array_from_process_local_data(make_sharding("x", "y"), data, shapes)
        np.testing.assert_array_equal(made["b"], X[:4])
    alone = sd.make_array_from_process_local_data(sd.devices()[3], X, (8, 6))
    assert alone.devices() == {sd.devices()[3]}
    with sd.make_mesh((4, 2), ("x", "y")):
        assert sd.make_array_from_process_local_data(P("x"), X).sharding == make_sharding("x")


def test_shards_must_be_arrays() -> None:
    with pytest.raises(ArgumentError, match=r"^make_array_from_single_device_arrays takes a list "):
        sd.make_array_from_single_device_arrays((8, 6), make_sharding(), X)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"of type Tracer; its shards are concrete arrays on"):
        sd.jit(lambda x: sd.make_array_from_single_device_arrays((8, 6), make_sharding(), [x] * 8))(
            X
        )
