"""`PositionalSharding` behaves as an array whose elements are sets of devices."""

import pickle
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.frontend.errors import IndivisibleError, MeshError, ShardingError
from shardir.frontend.shardings.devices import Device, devices, find_device, virtual_devices
from shardir.frontend.shardings.mesh import create_device_mesh
from shardir.frontend.shardings.positional_sharding import PositionalSharding
from shardir.frontend.shardings.sub_axes import SubAxis

EIGHT = PositionalSharding(create_device_mesh((8,)))
# This is the device order of the machine in the tutorials.
TORUS = PositionalSharding([devices()[i] for i in (0, 1, 2, 3, 6, 7, 4, 5)])


def message(make: object) -> str:
    assert callable(make)
    with pytest.raises(ShardingError) as caught:
        make()
    return str(caught.value).partition("\n")[0]


def test_reprs_of_the_tutorials() -> None:
    assert repr(TORUS) == (
        "PositionalSharding([{CPU 0} {CPU 1} {CPU 2} {CPU 3} {CPU 6} {CPU 7} {CPU 4} {CPU 5}])"
    )
    assert (
        repr(TORUS.reshape(8, 1))
        == """\
PositionalSharding([[{CPU 0}]
                    [{CPU 1}]
                    [{CPU 2}]
                    [{CPU 3}]
                    [{CPU 6}]
                    [{CPU 7}]
                    [{CPU 4}]
                    [{CPU 5}]])"""
    )
    assert (
        str(TORUS.reshape(4, 2))
        == """\
PositionalSharding([[{CPU 0} {CPU 1}]
                    [{CPU 2} {CPU 3}]
                    [{CPU 6} {CPU 7}]
                    [{CPU 4} {CPU 5}]])"""
    )
    assert str(TORUS.reshape(1, 8)) == (
        "PositionalSharding([[{CPU 0} {CPU 1} {CPU 2} {CPU 3} {CPU 6} {CPU 7} {CPU 4} {CPU 5}]])"
    )
    assert str(TORUS.reshape(4, 2).replicate(axis=0, keepdims=True)) == (
        "PositionalSharding([[{CPU 0, 2, 4, 6} {CPU 1, 3, 5, 7}]])"
    )


def test_shapes_of_the_tutorials() -> None:
    sharding = EIGHT.reshape(4, 2)
    assert sharding.replicate(0).shape == (1, 2)
    assert sharding.replicate(1).shape == (4, 1)
    assert sharding.replicate(0, keepdims=False).shape == (2,)
    assert sharding.replicate().shape == (1, 1)
    assert sharding.replicate(0).T.shape == (2, 1)
    assert (sharding.ndim, sharding.size) == (2, 8)


def test_lists_and_arrays_of_devices() -> None:
    assert PositionalSharding(devices()) == EIGHT
    assert PositionalSharding(create_device_mesh((4, 2))) == EIGHT.reshape(4, 2)
    assert PositionalSharding([devices()[:2], devices()[2:4]]).shape == (2, 2)
    assert PositionalSharding(devices()[4:]).device_assignment == tuple(devices()[4:])


def test_sub_axes() -> None:
    assert EIGHT.reshape(4, 2).sub_axes(2) == ((SubAxis(2, 4),), (SubAxis(1, 2),))
    assert EIGHT.reshape(4, 2).T.sub_axes(2) == ((SubAxis(1, 2),), (SubAxis(2, 4),))
    assert EIGHT.reshape(4, 2).T.reshape(8).sub_axes(1) == ((SubAxis(1, 2), SubAxis(2, 4)),)
    assert EIGHT.reshape(4, 2).replicate(0).sub_axes(2) == ((), (SubAxis(1, 2),))


def test_one_size_may_be_inferred() -> None:
    assert EIGHT.reshape(-1, 2) == EIGHT.reshape((4, -1)) == EIGHT.reshape(4, 2)


def test_a_reshape_after_a_transpose_that_nests() -> None:
    sharding = EIGHT.reshape(4, 2).T
    assert sharding.reshape(2, 2, 2).T.shape == (2, 2, 2)
    assert sharding.reshape(8).reshape(2, 4) == sharding


def test_values_of_lower_rank_ignore_leading_dimensions() -> None:
    replicated = EIGHT.reshape(4, 2).replicate(0)
    assert replicated.shard_shape((16, 10)) == (16, 5)
    assert replicated.shard_shape((10,)) == (5,)
    assert replicated.devices_indices_map((10,))[devices()[3]] == (slice(5, 10),)


def test_a_replicated_sharding_fits_every_rank() -> None:
    everywhere = EIGHT.reshape(8, 1).replicate()
    assert everywhere.is_fully_replicated
    for shape in ((), (3,), (3, 5), (3, 5, 7)):
        assert everywhere.shard_shape(shape) == shape
    assert PositionalSharding(devices()[:1]).shard_shape((3, 5)) == (3, 5)


def test_shardings_compare_by_devices_shape_and_sets() -> None:
    assert EIGHT.reshape(4, 2).reshape(8) == EIGHT
    assert hash(EIGHT.reshape(4, 2).reshape(8)) == hash(EIGHT)
    assert EIGHT != TORUS
    assert EIGHT.reshape(8, 1) != EIGHT
    assert EIGHT.reshape(4, 2).replicate(0) == EIGHT.reshape(2, 2, 2).replicate((0, 1)).reshape(
        1, 2
    )
    copied = pickle.loads(pickle.dumps(EIGHT.reshape(4, 2).T))
    assert copied == EIGHT.reshape(4, 2).T
    assert hash(copied) == hash(EIGHT.reshape(4, 2).T)


def test_a_value_of_higher_rank_is_an_error() -> None:
    assert message(lambda: EIGHT.shard_shape((8, 8))) == (
        "a PositionalSharding of shape (8,) cannot shard a value of rank 2; add dimensions, as in "
        ".reshape(8, 1)"
    )


def test_a_value_of_lower_rank_that_would_be_sharded_is_an_error() -> None:
    assert message(lambda: EIGHT.reshape(4, 2).shard_shape((8,))) == (
        "a PositionalSharding of shape (4, 2) cannot shard a value of rank 1; reshape it to 1 "
        "dimension, or call .replicate on the first 1"
    )


def test_an_indivisible_dimension_is_an_error() -> None:
    with pytest.raises(IndivisibleError) as caught:
        EIGHT.reshape(4, 2).shard_shape((6, 4))
    assert str(caught.value).partition("\n")[0] == (
        "dimension 0 of shape (6, 4) has size 6, which is not divisible by 4: it is sharded by a "
        "PositionalSharding of shape (4, 2); pad it to 8, or replicate it"
    )


@pytest.mark.parametrize("shape", [(3, 3), (-1, 3), (-1, -1), (-2, -4), (0, -1)])
def test_a_reshape_to_another_size_is_an_error(shape: tuple[int, int]) -> None:
    assert message(lambda: EIGHT.reshape(shape)) == (
        f"a PositionalSharding of shape (8,) has 8 shards and cannot be reshaped to {shape}; "
        "choose sizes whose product is 8"
    )


def test_a_reshape_that_does_not_nest_is_an_error() -> None:
    sharding = PositionalSharding(devices()[:6]).reshape(2, 3).T
    assert message(lambda: sharding.reshape(2, 3)) == (
        "reshaping this PositionalSharding from (3, 2) to (2, 3) would split its dimensions, "
        "because it was transposed or replicated before; reshape first, then transpose and "
        "replicate"
    )


def test_invalid_axes_are_errors() -> None:
    sharding = EIGHT.reshape(4, 2)
    assert message(lambda: sharding.replicate(2)) == (
        "a PositionalSharding of shape (4, 2) has no axis 2 to replicate; its axes are 0 to 1"
    )
    assert message(lambda: sharding.transpose(0, 0)) == (
        "a PositionalSharding of shape (4, 2) cannot be transposed by (0, 0); "
        "name each of its 2 axes once"
    )
    assert message(lambda: sharding.transpose(0, 3)).startswith("a PositionalSharding of shape")
    size: Any = "4"
    assert message(lambda: sharding.reshape(size, 2)) == "sizes and axes are integers, got '4'"


def test_invalid_devices_are_errors() -> None:
    with pytest.raises(MeshError) as caught:
        PositionalSharding(["CPU 0"])
    assert str(caught.value).partition("\n")[0] == (
        "a PositionalSharding needs devices, got 'CPU 0'; take them from devices()"
    )
    with pytest.raises(MeshError, match="needs at least one device, got none"):
        PositionalSharding([])


def test_shardings_are_immutable() -> None:
    with pytest.raises(ShardingError, match="a PositionalSharding is frozen"):
        EIGHT._devices = ()


class Model:
    """A model of PositionalSharding: an array with sets of devices as elements."""

    def __init__(self, count: int) -> None:
        self.sets: np.ndarray[Any, Any] = np.empty(count, dtype=object)
        self.sets[:] = [frozenset({device}) for device in virtual_devices(count)]

    def replicate(self, axes: tuple[int, ...], keepdims: bool) -> None:
        for axis in sorted(axes, reverse=True):
            slices = np.moveaxis(self.sets, axis, 0)
            joined = np.empty(slices.shape[1:], dtype=object)
            for place in np.ndindex(joined.shape):
                joined[place] = frozenset().union(*slices[(slice(None), *place)])
            self.sets = np.expand_dims(joined, axis) if keepdims else joined


def sets_of(sharding: PositionalSharding) -> dict[tuple[int, ...], frozenset[Device]]:
    """Return the sets of devices per shard, read through the public methods."""
    sets: dict[tuple[int, ...], set[Device]] = {}
    for device, index in sharding.devices_indices_map(sharding.shape).items():
        place = tuple(part.start or 0 for part in index)
        sets.setdefault(place, set()).add(device)
    return {place: frozenset(devices) for place, devices in sets.items()}


def factorings(size: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Return shapes with `size` elements."""
    sizes = [each for each in range(1, size + 1) if size % each == 0]
    if size == 1:
        return st.sampled_from([(1,), (1, 1)])
    return st.sampled_from(sizes).flatmap(
        lambda first: (
            st.just((size,))
            if first in (1, size)
            else factorings(size // first).map(lambda rest: (first, *rest))
        )
    )


@given(st.data())
def test_random_programs_agree_with_the_model(data: st.DataObject) -> None:
    count = data.draw(st.sampled_from([1, 2, 6, 8, 12, 16, 24]), label="devices")
    sharding, model = PositionalSharding(virtual_devices(count)), Model(count)
    moved = False
    for step in data.draw(st.lists(st.sampled_from("srT"), max_size=5), label="steps"):
        if step == "s":
            shape = data.draw(factorings(sharding.size), label="reshape")
            try:
                sharding = sharding.reshape(shape)
            except ShardingError:
                # Only a reshape after a transpose can fail to nest.
                assert moved
                continue
            model.sets = model.sets.reshape(shape)
        elif step == "T":
            order = data.draw(st.permutations(range(sharding.ndim)), label="transpose")
            sharding, model.sets = sharding.transpose(order), model.sets.transpose(order)
            moved = True
        else:
            axes = data.draw(st.sets(st.integers(0, sharding.ndim - 1)), label="replicate")
            keepdims = len(axes) == sharding.ndim or data.draw(st.booleans(), label="keepdims")
            sharding = sharding.replicate(tuple(sorted(axes)), keepdims=keepdims)
            model.replicate(tuple(sorted(axes)), keepdims)
            moved = True
        assert sharding.shape == model.sets.shape
        assert sharding.size == prod(model.sets.shape)
        assert sets_of(sharding) == dict(np.ndenumerate(model.sets))


def test_a_device_beyond_this_machine_may_be_used() -> None:
    assert PositionalSharding([find_device(900)]).num_devices == 1
