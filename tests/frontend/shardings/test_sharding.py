"""Shardings map devices to shards, and reject invalid specs."""

import pickle
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.errors import ShardirError
from shardir.frontend.errors import ArgumentError, IndivisibleError, ShardingError
from shardir.frontend.shardings.devices import devices, virtual_devices
from shardir.frontend.shardings.mesh import AbstractMesh, Mesh, make_mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, P, PartitionSpec
from shardir.frontend.shardings.positional_sharding import PositionalSharding
from shardir.frontend.shardings.sharding import NamedSharding, Sharding, SingleDeviceSharding
from shardir.frontend.shardings.sub_axes import SubAxis

MESH = make_mesh((4, 2), ("a", "b"))


def message(make: object) -> str:
    assert callable(make)
    with pytest.raises(ShardingError) as caught:
        make()
    return str(caught.value).partition("\n")[0]


def test_sub_axes_of_a_named_sharding() -> None:
    assert NamedSharding(MESH, P(("b", "a"), None)).sub_axes(3) == (
        (SubAxis(1, 2), SubAxis(2, 4)),
        (),
        (),
    )
    assert NamedSharding(MESH, P(UNCONSTRAINED, "a")).sub_axes(2) == (
        UNCONSTRAINED,
        (SubAxis(2, 4),),
    )


def test_shard_shapes() -> None:
    assert NamedSharding(MESH, P("a", "b")).shard_shape((64, 128)) == (16, 64)
    assert NamedSharding(MESH, P(("a", "b"))).shard_shape((64, 128)) == (8, 128)
    assert NamedSharding(MESH, P()).shard_shape((64, 128)) == (64, 128)
    assert NamedSharding(MESH, P("a")).shard_shape((0, 3)) == (0, 3)
    assert SingleDeviceSharding(devices()[0]).shard_shape((5,)) == (5,)
    assert SingleDeviceSharding(devices()[0]).shard_shape(()) == ()


def test_indices_of_devices() -> None:
    indices = NamedSharding(MESH, P("a")).devices_indices_map((8, 3))
    assert list(indices) == devices()
    assert indices[devices()[0]] == indices[devices()[1]] == (slice(0, 2), slice(None))
    assert indices[devices()[7]] == (slice(6, 8), slice(None))
    assert SingleDeviceSharding(devices()[2]).addressable_devices_indices_map(()) == {
        devices()[2]: ()
    }


def test_device_attributes() -> None:
    sharding = NamedSharding(MESH, P("a"))
    assert sharding.device_assignment == tuple(devices())
    assert sharding.device_set == sharding.addressable_devices == frozenset(devices())
    assert sharding.num_devices == 8
    assert sharding.is_fully_addressable


def test_full_replication() -> None:
    assert NamedSharding(MESH, P()).is_fully_replicated
    assert NamedSharding(make_mesh((8, 1), ("a", "b")), P("b")).is_fully_replicated
    assert SingleDeviceSharding(devices()[0]).is_fully_replicated
    assert not NamedSharding(MESH, P("b")).is_fully_replicated
    assert not NamedSharding(MESH, P(UNCONSTRAINED)).is_fully_replicated


def test_equality_compares_specs() -> None:
    assert NamedSharding(MESH, P("a")) == NamedSharding(make_mesh((4, 2), ("a", "b")), P("a"))
    assert NamedSharding(MESH, P("a")) != NamedSharding(MESH, P("a", None))
    assert SingleDeviceSharding(devices()[1]) == SingleDeviceSharding(devices()[1])
    assert SingleDeviceSharding(devices()[1]) != SingleDeviceSharding(devices()[2])
    assert len({NamedSharding(MESH, P("a")), NamedSharding(MESH, P("a"))}) == 1


@pytest.mark.parametrize(
    "sharding", [NamedSharding(MESH, P("a", ("b",))), SingleDeviceSharding(devices()[3])]
)
def test_copies_are_equal(sharding: Sharding) -> None:
    copied = pickle.loads(pickle.dumps(sharding))
    assert copied == sharding
    assert hash(copied) == hash(sharding)


def test_equivalence_compares_device_assignments() -> None:
    named = NamedSharding(MESH, P("a"))
    assert named.is_equivalent_to(NamedSharding(MESH, P("a", None)), 2)
    other = Mesh(np.array(devices(), dtype=object).reshape(4, 2), ("x", "y"))
    assert named.is_equivalent_to(NamedSharding(other, P("x")), 3)
    assert named.is_equivalent_to(PositionalSharding(devices()).reshape(4, 2).replicate(1), 2)
    flat = NamedSharding(make_mesh(8, "x"), P("x"))
    assert flat.is_equivalent_to(NamedSharding(MESH, P(("a", "b"))), 1)
    assert not flat.is_equivalent_to(NamedSharding(MESH, P(("b", "a"))), 1)
    assert not named.is_equivalent_to(NamedSharding(MESH, P()), 1)
    assert not named.is_equivalent_to(NamedSharding(MESH, P(UNCONSTRAINED)), 1)
    assert not named.is_equivalent_to(SingleDeviceSharding(devices()[0]), 1)


def test_equivalence_ignores_the_order_of_devices() -> None:
    swapped = [devices()[i] for i in (1, 0, 3, 2, 5, 4, 7, 6)]
    other = Mesh(np.array(swapped, dtype=object).reshape(4, 2), ("a", "b"))
    assert NamedSharding(MESH, P("a")).is_equivalent_to(NamedSharding(other, P("a")), 1)
    assert not NamedSharding(MESH, P("b")).is_equivalent_to(NamedSharding(other, P("b")), 1)
    one = NamedSharding(make_mesh(1, "x"), P("x"))
    assert one.is_equivalent_to(SingleDeviceSharding(devices()[0]), 1)


def test_reprs() -> None:
    assert repr(NamedSharding(MESH, P("a", None))) == (
        "NamedSharding(mesh=Mesh('a': 4, 'b': 2, axis_types=(Auto, Auto)), spec=P('a', None), "
        "memory_kind=device)"
    )
    assert repr(NamedSharding(AbstractMesh((4,), "a"), P("a"))) == (
        "NamedSharding(mesh=AbstractMesh('a': 4, axis_types=(Auto,)), spec=P('a',))"
    )
    assert str(AbstractMesh((), ())) == "AbstractMesh((), axis_types=())"
    assert repr(SingleDeviceSharding(devices()[3])) == (
        "SingleDeviceSharding(device=CpuDevice(id=3), memory_kind=device)"
    )


def test_an_indivisible_dimension_is_an_error() -> None:
    with pytest.raises(IndivisibleError) as caught:
        NamedSharding(MESH, P(None, "a")).shard_shape((3, 6))
    assert str(caught.value).partition("\n")[0] == (
        "dimension 1 of shape (3, 6) has size 6, which is not divisible by 4: it is sharded over "
        "the mesh axis 'a' of size 4; pad it to 8, or replicate it"
    )
    assert isinstance(caught.value, ShardirError)
    assert isinstance(caught.value, ValueError)


def test_a_dimension_indivisible_by_two_axes_is_an_error() -> None:
    assert message(lambda: NamedSharding(MESH, P(("a", "b"))).devices_indices_map((4,))) == (
        "dimension 0 of shape (4,) has size 4, which is not divisible by 8: it is sharded over the "
        "mesh axes 'a' of size 4 and 'b' of size 2; pad it to 8, or replicate it"
    )


def test_an_unknown_axis_is_an_error() -> None:
    assert message(lambda: NamedSharding(MESH, P("a", "data"))) == (
        "P('a', 'data') names 'data', which is not an axis of the mesh; its axes are 'a', 'b'"
    )


def test_an_axis_used_twice_is_an_error() -> None:
    assert message(lambda: NamedSharding(MESH, P("a", ("b", "a")))) == (
        "P('a', ('b', 'a')) names 'a' twice; an axis can shard a value only once"
    )


def test_a_spec_longer_than_the_rank_is_an_error() -> None:
    assert message(lambda: NamedSharding(MESH, P("a", None)).shard_shape((8,))) == (
        "P('a', None) has 2 entries and the value has rank 1; "
        "use a spec with an entry for each dimension at most"
    )


def test_an_unconstrained_dimension_has_no_shard_shape() -> None:
    assert message(lambda: NamedSharding(MESH, P("a", UNCONSTRAINED)).shard_shape((8, 8))) == (
        "dimension 1 of NamedSharding(mesh=Mesh('a': 4, 'b': 2, axis_types=(Auto, Auto)), "
        "spec=P('a', UNCONSTRAINED), memory_kind=device) is unconstrained, so the devices of its "
        "shards are unknown; use it in with_sharding_constraint, or name mesh axes"
    )


def test_arguments_of_other_types_are_errors() -> None:
    def named(mesh: object, spec: object) -> object:
        return NamedSharding(mesh, spec)  # type: ignore[arg-type]

    assert message(lambda: named(devices(), P())).startswith(
        "a NamedSharding needs a Mesh, got [CpuDevice(id=0), "
    )
    with pytest.raises(ArgumentError) as caught:
        named(MESH, "a")
    assert str(caught.value).partition("\n")[0] == (
        "a NamedSharding needs a PartitionSpec, got 'a'; "
        "write NamedSharding(mesh, PartitionSpec(...))"
    )
    assert message(lambda: SingleDeviceSharding(0)) == (  # type: ignore[arg-type]
        "a SingleDeviceSharding needs a device, got 0; take one from devices()"
    )


def test_shardings_are_immutable() -> None:
    sharding = NamedSharding(MESH, P("a"))
    assert message(lambda: setattr(sharding, "spec", P())) == (
        "a NamedSharding is frozen, and 'spec' cannot be set; make another one"
    )


@st.composite
def named_shardings(draw: st.DrawFn) -> tuple[NamedSharding, tuple[int, ...]]:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    names = [f"x{i}" for i in range(len(sizes))]
    mesh = make_mesh(sizes, names, devices=virtual_devices(prod(sizes)))
    rank = draw(st.integers(0, 3))
    entries: list[list[str]] = [[] for _ in range(rank)]
    for name in draw(st.permutations(names)):
        dimension = draw(st.integers(-1, rank - 1))
        if dimension >= 0:
            entries[dimension].append(name)
    shape = tuple(
        prod(mesh.shape[name] for name in entry) * draw(st.integers(0, 3)) for entry in entries
    )
    return NamedSharding(mesh, PartitionSpec(*entries)), shape


@given(named_shardings())
def test_shards_cover_every_element_equally_often(
    case: tuple[NamedSharding, tuple[int, ...]],
) -> None:
    sharding, shape = case
    count = np.zeros(shape, dtype=int)
    for index in sharding.devices_indices_map(shape).values():
        assert count[index].shape == sharding.shard_shape(shape)
        count[index] += 1
    pieces = prod(sharding.mesh.shape[name] for name in sharding.spec.mentioned_axes())
    assert np.all(count == sharding.num_devices // pieces)


@given(named_shardings())
def test_the_shard_of_a_device_follows_its_mesh_coordinates(
    case: tuple[NamedSharding, tuple[int, ...]],
) -> None:
    sharding, shape = case
    mesh = sharding.mesh
    places = dict(
        zip(sharding.device_assignment, sharding.shard_positions(len(shape)), strict=True)
    )
    for point in product(*map(range, mesh.axis_sizes)):
        at = dict(zip(mesh.axis_names, point, strict=True))
        for dimension, piece in enumerate(places[mesh.devices[point]]):
            expected = 0
            axes = sharding.spec.axes(dimension)
            assert axes is not UNCONSTRAINED
            for name in axes:
                expected = expected * mesh.shape[name] + at[name]
            assert piece == expected
