"""`device_put` and `device_get` place arrays and keep their elements."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.frontend.arrays.array import Array, from_numpy
from shardir.frontend.arrays.device_transfer import block_until_ready, device_get, device_put
from shardir.frontend.errors import ArgumentError, IndivisibleError, ShardingError
from shardir.frontend.shardings.devices import devices
from shardir.frontend.shardings.mesh import make_mesh
from shardir.frontend.shardings.partition_spec import P
from shardir.frontend.shardings.positional_sharding import PositionalSharding
from shardir.frontend.shardings.sharding import NamedSharding, SingleDeviceSharding

MESH = make_mesh((4, 2), ("a", "b"))
NUMBERS = np.arange(64, dtype=np.int32).reshape(8, 8)
SPECS = [P(), P("a"), P("b", "a"), P(None, ("a", "b")), P(("b", "a"))]


def test_numpy_arrays_and_scalars_are_placed() -> None:
    x = device_put(NUMBERS, NamedSharding(MESH, P("a", "b")))
    assert x.committed
    assert x.sharding.spec == P("a", "b")
    y = device_put(2.0, devices()[3])
    assert (y.sharding, y.weak_type) == (SingleDeviceSharding(devices()[3]), True)


def test_without_a_device_arrays_are_not_committed() -> None:
    x = device_put(NUMBERS)
    assert not x.committed
    assert x.device is devices()[0]
    placed = device_put(NUMBERS, devices()[1])
    assert device_put(placed) is placed


@given(st.sampled_from(SPECS), st.sampled_from(SPECS), st.permutations(range(8)))
def test_moving_keeps_the_elements(first: P, second: P, order: list[int]) -> None:
    other = make_mesh((2, 4), ("b", "a"), devices=[devices()[i] for i in order])
    x = device_put(NUMBERS, NamedSharding(MESH, first))
    y = device_put(x, NamedSharding(other, second))
    assert y.sharding == NamedSharding(other, second)
    np.testing.assert_array_equal(y, NUMBERS)
    for shard in y.addressable_shards:
        np.testing.assert_array_equal(shard.data, NUMBERS[shard.index])


def test_an_array_with_the_requested_sharding_is_not_moved() -> None:
    x = device_put(NUMBERS, NamedSharding(MESH, P("a")))
    assert device_put(x, NamedSharding(MESH, P("a"))) is x
    same = device_put(x, PositionalSharding(devices()).reshape(4, 2).replicate(1))
    assert same.buffers is x.buffers


def test_containers_and_prefixes() -> None:
    tree = {"w": NUMBERS, "b": [NUMBERS[0], 1.0]}
    placed = device_put(tree, NamedSharding(MESH, P()))
    assert placed["b"][1].sharding == NamedSharding(MESH, P())
    by_branch = device_put(tree, {"w": NamedSharding(MESH, P("a")), "b": devices()[2]})
    assert by_branch["w"].sharding.spec == P("a")
    assert by_branch["b"][0].device is devices()[2]
    assert not device_put(tree, {"w": devices()[1], "b": None})["b"][0].committed
    with pytest.raises(ArgumentError, match="the device of device_put has a list of 1"):
        device_put([1, 2], [devices()[0]])


def test_a_dimension_must_divide() -> None:
    with pytest.raises(IndivisibleError) as caught:
        device_put({"x": NUMBERS, "y": np.ones((6, 2))}, NamedSharding(MESH, P("a")))
    assert str(caught.value).startswith(
        "x.y of device_put: dimension 0 of shape (6, 2) has size 6, which is not divisible by 4: "
        "it is sharded over the mesh axis 'a' of size 4; pad it to 8, replicate it, or pass "
        'uneven="pad"\n'
    )
    assert "test_device_transfer.py" in str(caught.value)


def test_a_sharding_must_fit_the_rank() -> None:
    with pytest.raises(ShardingError, match=r"has 2 entries and the value has rank 1"):
        device_put(np.ones(4), NamedSharding(MESH, P("a", "b")))


def test_a_spec_refers_to_the_entered_mesh() -> None:
    with MESH:
        assert device_put(NUMBERS, P("a")).sharding == NamedSharding(MESH, P("a"))
    with pytest.raises(ArgumentError, match=r"names no devices; write NamedSharding"):
        device_put(NUMBERS, P("a"))


def test_values_that_are_not_arrays_are_errors() -> None:
    with pytest.raises(
        TypeError, match="x of device_put is 'text' of type str, which is not an arr"
    ):
        device_put("text", devices()[0])


def test_donated_arrays_are_deleted() -> None:
    x = from_numpy(NUMBERS)
    y = device_put(x, devices()[1], donate=True)
    assert x.is_deleted()
    np.testing.assert_array_equal(y, NUMBERS)


def test_device_get_returns_numpy_arrays() -> None:
    back: Any = device_get({"x": device_put(NUMBERS, devices()[1]), "y": 1.0})
    assert type(back["x"]) is np.ndarray
    np.testing.assert_array_equal(back["x"], NUMBERS)


def test_block_until_ready_returns_the_same_containers() -> None:
    x = from_numpy(NUMBERS)
    assert isinstance(block_until_ready([x])[0], Array)
