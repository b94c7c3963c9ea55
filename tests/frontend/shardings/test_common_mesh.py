"""A common mesh for shardings of several meshes; results are expressed on the meshes of the
user.
"""

from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.errors import ShardirError
from shardir.frontend.errors import IncompatibleDevicesError, ShardingError
from shardir.frontend.shardings.common_mesh import (
    check_same_devices,
    common_axes,
    express_dimension,
    express_sharding,
    express_sub_axis,
    to_sub_axis,
    to_user_sharding,
)
from shardir.frontend.shardings.devices import Device, devices, virtual_devices
from shardir.frontend.shardings.mesh import Mesh, make_mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, P
from shardir.frontend.shardings.positional_sharding import PositionalSharding
from shardir.frontend.shardings.sharding import NamedSharding, Sharding, SingleDeviceSharding
from shardir.frontend.shardings.sub_axes import SubAxis, merge_sub_axes, split_sub_axes
from shardir.ir.sharding import Axis

MESH = make_mesh((4, 2), ("a", "b"))
AXES = (("a", 4), ("b", 2))
EIGHT = PositionalSharding(devices())
ALL = tuple(devices())


def test_the_mesh_of_the_first_named_sharding_is_the_common_mesh() -> None:
    flat = NamedSharding(make_mesh(8, "x"), P("x"))
    named = NamedSharding(MESH, P("a"))
    assert common_axes([EIGHT, named, flat]) == AXES
    assert common_axes([flat, named]) == (("x", 8),)


def test_positional_shardings_have_a_common_refinement() -> None:
    assert common_axes([EIGHT]) == (("d0", 8),)
    assert common_axes([EIGHT.reshape(4, 2)]) == (("d0", 4), ("d1", 2))
    assert common_axes([EIGHT.reshape(4, 2), EIGHT.reshape(2, 4)]) == (
        ("d0", 2),
        ("d1", 2),
        ("d2", 2),
    )
    assert common_axes([EIGHT.reshape(4, 2).replicate(0), EIGHT]) == (("d0", 4), ("d1", 2))
    assert common_axes([EIGHT.replicate()]) == (("d0", 8),)
    assert common_axes([SingleDeviceSharding(devices()[0])]) == ()


def test_incompatible_shardings_are_errors() -> None:
    six = PositionalSharding(devices()[:6])
    with pytest.raises(ShardingError) as caught:
        common_axes([six.reshape(2, 3), six.reshape(3, 2)])
    assert (
        str(caught.value)
        == """\
the shardings of one program divide its 6 devices into groups of 3 and of 2, which do not nest: \
PositionalSharding([[{CPU 0} {CPU 1} {CPU 2}]
                    [{CPU 3} {CPU 4} {CPU 5}]]), PositionalSharding([[{CPU 0} {CPU 1}]
                    [{CPU 2} {CPU 3}]
                    [{CPU 4} {CPU 5}]]); use shapes whose sizes divide each other"""
    )


def test_sub_axes_are_expressed_on_axes() -> None:
    assert express_sub_axis(SubAxis(2, 4), AXES) == (Axis("a", 1, 4),)
    assert express_sub_axis(SubAxis(4, 2), AXES) == (Axis("a", 1, 2),)
    assert express_sub_axis(SubAxis(1, 4), AXES) == (Axis("a", 2, 2), Axis("b", 1, 2))
    assert express_sub_axis(SubAxis(1, 8), AXES) == (Axis("a", 1, 4), Axis("b", 1, 2))
    assert express_sub_axis(SubAxis(4, 1), AXES) == ()


def test_a_sub_axis_that_does_not_nest_is_an_error() -> None:
    with pytest.raises(ShardingError) as caught:
        express_sub_axis(SubAxis(1, 2), (("a", 2), ("b", 3)))
    assert str(caught.value).partition("\n")[0] == (
        "splitting groups of 2 devices into 2 does not nest in the mesh [a=2, b=3]; use sizes that "
        "divide those of the mesh, or one mesh throughout"
    )


def test_adjacent_sub_axes_are_merged() -> None:
    assert express_dimension((SubAxis(4, 2), SubAxis(2, 2)), (("x", 8),)) == (Axis("x", 1, 4),)
    assert express_dimension((SubAxis(2, 2), SubAxis(4, 2)), (("x", 8),)) == (
        Axis("x", 2, 2),
        Axis("x", 1, 2),
    )


def test_a_sharding_is_expressed_dimension_by_dimension() -> None:
    assert express_sharding(NamedSharding(MESH, P(UNCONSTRAINED, "b")), 3, AXES) == (
        UNCONSTRAINED,
        (Axis("b", 1, 2),),
        (),
    )


def test_a_result_is_expressed_on_the_mesh_of_the_user() -> None:
    seen = [EIGHT, NamedSharding(MESH, P("a"))]
    dims = ((Axis("b", 1, 2), Axis("a", 1, 4)), (), ())
    assert to_user_sharding(dims, AXES, ALL, seen) == NamedSharding(MESH, P(("b", "a")))
    assert to_user_sharding(((), ()), AXES, ALL, seen) == NamedSharding(MESH, P())


def test_a_result_is_expressed_on_a_mesh_that_can_represent_it() -> None:
    other = make_mesh((2, 4), ("x", "y"))
    seen = [NamedSharding(MESH, P("a")), NamedSharding(other, P("x"))]
    assert to_user_sharding(((Axis("a", 1, 2),),), AXES, ALL, seen) == NamedSharding(other, P("x"))


def test_a_result_that_no_mesh_can_represent_splits_the_first_mesh() -> None:
    seen = [NamedSharding(make_mesh(8, "x"), P("x"))]
    split_sharding = to_user_sharding(
        ((Axis("x", 2, 2),), (Axis("x", 4, 2),)), (("x", 8),), ALL, seen
    )
    assert repr(split_sharding) == (
        "NamedSharding(mesh=Mesh('x.0': 2, 'x.1': 2, 'x.2': 2, axis_types=(Auto, Auto, Auto)), "
        "spec=P('x.1', 'x.2'), memory_kind=device)"
    )
    seen = [NamedSharding(MESH, P("a"))]
    assert repr(to_user_sharding(((Axis("b", 1, 2), Axis("a", 1, 2)),), AXES, ALL, seen)) == (
        "NamedSharding(mesh=Mesh('a.0': 2, 'a.1': 2, 'b': 2, axis_types=(Auto, Auto, Auto)), "
        "spec=P(('b', 'a.0'),), memory_kind=device)"
    )


def test_results_without_a_named_mesh_are_positional() -> None:
    axes = common_axes([EIGHT.reshape(4, 2)])
    seen = [EIGHT.reshape(4, 2)]
    assert to_user_sharding((((Axis("d0", 1, 4)),), ()), axes, ALL, seen) == EIGHT.reshape(
        4, 2
    ).replicate(1)
    scalar = to_user_sharding((), axes, ALL, seen)
    assert repr(scalar) == "PositionalSharding({CPU 0, 1, 2, 3, 4, 5, 6, 7})"


def test_results_on_one_device() -> None:
    device = devices()[3]
    single = SingleDeviceSharding(device)
    assert to_user_sharding(((), ()), (), (device,), [single]) == single
    assert to_user_sharding(((), ()), (), (device,), []) == single
    positional = PositionalSharding([device])
    assert repr(to_user_sharding(((), ()), (), (device,), [positional])) == (
        "PositionalSharding([[{CPU 3}]])"
    )


def test_meshes_over_other_devices_are_not_used() -> None:
    elsewhere = NamedSharding(make_mesh(2, "a", devices=devices()[6:]), P("a"))
    assert to_user_sharding(((Axis("a", 1, 4),),), AXES, ALL, [elsewhere, EIGHT]) == (
        PositionalSharding(devices()).reshape(4, 2).replicate(1, keepdims=False)
    )


def test_equal_devices_are_accepted() -> None:
    placed: list[tuple[str, Sharding]] = [("x", EIGHT), ("y", NamedSharding(MESH, P("a")))]
    assert check_same_devices(placed) == ALL


def test_different_devices_are_errors() -> None:
    one, two = PositionalSharding(devices()[:4]), PositionalSharding(devices()[4:])
    with pytest.raises(IncompatibleDevicesError) as caught:
        check_same_devices([("argument x of add", one), ("argument y of add", two)])
    assert str(caught.value).partition("\n")[0] == (
        "devices of all arrays of a computation should be the same: argument x of add has device "
        "ids [0, 1, 2, 3] on platform CPU, and argument y of add has device ids [4, 5, 6, 7] on "
        "platform CPU; move one to the devices of the other with device_put"
    )
    assert isinstance(caught.value, ShardirError)
    assert isinstance(caught.value, ValueError)


def test_equal_devices_in_another_order_are_errors() -> None:
    torus = PositionalSharding([devices()[i] for i in (0, 1, 2, 3, 6, 7, 4, 5)])
    with pytest.raises(IncompatibleDevicesError) as caught:
        check_same_devices([("x", EIGHT), ("y", EIGHT), ("z", torus)])
    assert str(caught.value).partition("\n")[0] == (
        "devices of all arrays of a computation should be the same, in the same order: x has "
        "device ids [0, 1, 2, 3, 4, 5, 6, 7] on platform CPU, and z has device ids "
        "[0, 1, 2, 3, 6, 7, 4, 5] on platform CPU; "
        "move one to the devices of the other with device_put"
    )


@st.composite
def positional(draw: st.DrawFn, pool: tuple[Device, ...]) -> PositionalSharding:
    """Draw a reshaped, transposed and replicated sharding over `pool`, a power of two of
    devices.
    """
    sharding = PositionalSharding(list(pool))
    for _ in range(draw(st.integers(0, 2))):
        rest, shape = sharding.size, []
        while rest > 1:
            shape.append(draw(st.sampled_from([2**k for k in range(1, rest.bit_length())])))
            rest //= shape[-1]
        sharding = sharding.reshape(shape or (1,))
        sharding = sharding.transpose(draw(st.permutations(range(sharding.ndim))))
        if draw(st.booleans()):
            sharding = sharding.replicate(draw(st.integers(0, sharding.ndim - 1)))
    return sharding


@st.composite
def draw_named_sharding(draw: st.DrawFn, pool: tuple[Device, ...]) -> NamedSharding:
    like = draw(positional(pool))
    names = [f"x{i}" for i in range(4)]
    rest = len(pool)
    sizes: list[int] = []
    while rest > 1 and len(sizes) < 3:
        sizes.append(draw(st.sampled_from([2**k for k in range(1, rest.bit_length())])))
        rest //= sizes[-1]
    sizes.append(rest)
    used = names[: len(sizes)]
    mesh = Mesh(np.array(pool, dtype=object).reshape(sizes), used)
    entries: list[list[str]] = [[] for _ in range(like.ndim)]
    for name in draw(st.permutations(used)):
        dimension = draw(st.integers(-1, like.ndim - 1))
        if dimension >= 0:
            entries[dimension].append(name)
    return NamedSharding(mesh, P(*entries))


@given(st.data())
def test_expressing_on_a_common_mesh_is_invertible(data: st.DataObject) -> None:
    pool = tuple(virtual_devices(data.draw(st.sampled_from([1, 2, 4, 8, 16]), label="devices")))
    kinds = st.one_of(positional(pool), draw_named_sharding(pool))
    seen: list[Sharding] = data.draw(st.lists(kinds, min_size=1, max_size=3), label="seen")
    axes = common_axes(seen)
    assert prod(size for _, size in axes) == len(pool)
    for sharding in seen:
        rank = sharding.natural_rank
        dims = express_sharding(sharding, rank, axes)
        closed = [parts for parts in dims if parts is not UNCONSTRAINED]
        back = to_user_sharding(closed, axes, pool, seen)
        assert back.is_equivalent_to(sharding, rank)
        if any(isinstance(each, NamedSharding) for each in seen):
            assert isinstance(back, NamedSharding)
        else:
            assert back == sharding


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_express_and_find_digit_are_inverse(sizes: list[int], data: st.DataObject) -> None:
    axes = tuple((f"x{i}", size) for i, size in enumerate(sizes))
    total = prod(sizes)
    stride = data.draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0]))
    size = data.draw(st.sampled_from([d for d in range(1, total + 1) if total // stride % d == 0]))
    digit = SubAxis(stride, size)
    try:
        parts = express_sub_axis(digit, axes)
    except ShardingError:
        # The sub-axis is inside an axis whose size it does not divide.
        ends = {prod(sizes[i:]) for i in range(len(sizes) + 1)}
        chain = sorted({*ends, digit.stride, digit.span})
        assert any(b % a for a, b in pairwise(chain))
        return
    assert merge_sub_axes(to_sub_axis(part, axes) for part in parts) == merge_sub_axes([digit])
    assert split_sub_axes([digit], [part.size for part in parts]) is not None
