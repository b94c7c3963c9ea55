"""Callbacks inside of `shard_map` and `pmap` run once per device, with the shard of the device."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

X = np.arange(24, dtype=np.float32).reshape(8, 3)
METHODS = (None, "sequential", "sequential_unrolled", "expand_dims", "broadcast_all",
           "legacy_vectorized")  # fmt: skip


def mesh() -> Mesh:
    return sd.make_mesh((4,), ("a",))


class Host:
    """A host function that records the shapes of its arguments."""

    def __init__(self) -> None:
        self.shapes: list[tuple[tuple[int, ...], ...]] = []

    def __call__(self, *xs: Any) -> Any:
        self.shapes.append(tuple(np.shape(x) for x in xs))
        return np.asarray(sum(np.asarray(x) for x in xs)) * 2


def called(host: Host, *xs: Any, method: str | None = None) -> Any:
    result = sd.ShapeDtypeStruct(xs[0].shape, xs[0].dtype)
    return sd.pure_callback(host, result, *xs, vmap_method=method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("check_vma", [True, False])
def test_each_device_passes_its_shard(method: str | None, check_vma: bool) -> None:
    host = Host()
    mapped = sd.shard_map(
        lambda x: called(host, x, method=method),
        mesh=mesh(), in_specs=P("a"), out_specs=P("a"), check_vma=check_vma,
    )  # fmt: skip
    np.testing.assert_array_equal(sd.jit(mapped)(X), X * 2)
    assert host.shapes == [((2, 3),)] * 4


def test_each_device_of_pmap_passes_its_slice() -> None:
    host = Host()
    np.testing.assert_array_equal(sd.pmap(lambda x: called(host, x))(X), X * 2)
    assert host.shapes == [((3,),)] * 8


@pytest.mark.parametrize(
    ("method", "shapes"),
    [
        ("expand_dims", [((2, 3), (1, 3))]),
        ("broadcast_all", [((2, 3), (2, 3))]),
        ("legacy_vectorized", [((2, 3), (3,))]),
        ("sequential", [((3,), (3,))] * 2),
    ],
)
def test_vmap_inside_maps_the_examples_of_each_device(
    method: str, shapes: list[tuple[tuple[int, ...], ...]]
) -> None:
    host = Host()
    y = np.ones(3, np.float32)

    def local(x: Any, y: Any) -> Any:
        return sd.vmap(lambda x: called(host, x, y, method=method))(x)

    mapped = sd.shard_map(local, mesh=mesh(), in_specs=(P("a"), P()), out_specs=P("a"))
    np.testing.assert_array_equal(sd.jit(mapped)(X, y), (X + y) * 2)
    assert host.shapes == shapes * 4


def test_vmap_inside_requires_a_vmap_method() -> None:
    mapped = sd.shard_map(
        lambda x: sd.vmap(lambda x: called(Host(), x))(x),
        mesh=mesh(), in_specs=P("a"), out_specs=P("a"),
    )  # fmt: skip
    with pytest.raises(sd.ShardirError) as caught:
        mapped(X)
    assert isinstance(caught.value, NotImplementedError)
    assert str(caught.value).startswith(
        "Host is called with one example at a time; state with vmap_method= how it is to be "
        "called: 'sequential', 'expand_dims' or 'broadcast_all'"
    )


def test_one_call_per_shard_on_a_mesh_of_two_axes() -> None:
    host = Host()
    both = sd.make_mesh((2, 2), ("a", "b"))
    x = X[:, :2]
    mapped = sd.shard_map(
        lambda x: called(host, x), mesh=both, in_specs=P("a", "b"), out_specs=P("a", "b")
    )
    np.testing.assert_array_equal(sd.jit(mapped)(x), x * 2)
    assert host.shapes == [((4, 1),)] * 4


def in_scan(call: Callable[[Any], Any], x: Any) -> Any:
    return lax.scan(lambda c, _: (call(c), None), x, None, length=2)[0]


def in_while(call: Callable[[Any], Any], x: Any) -> Any:
    return lax.while_loop(lambda c: c[1] < 2, lambda c: (call(c[0]), c[1] + 1), (x, 0))[0]


def in_cond(call: Callable[[Any], Any], x: Any) -> Any:
    return lax.cond(True, lambda x: call(call(x)), lambda x: x, x)


def in_loop_of_its_own(call: Callable[[Any], Any], x: Any) -> Any:
    """Run loops with different numbers of iterations on the devices: 1, 2, 2 and 2."""
    last = snp.minimum(lax.axis_index("a") + 1, 2)
    return lax.while_loop(lambda c: c[1] < last, lambda c: (call(c[0]), c[1] + 1), (x, 0))[0]


def in_condition_of_its_own(call: Callable[[Any], Any], x: Any) -> Any:
    """Call in the condition of a loop: a device calls once more than it iterates, and not after its
    end.
    """
    last = snp.minimum(lax.axis_index("a") + 1, 2)
    return lax.while_loop(
        lambda c: (c[1] < last) & (call(c[0]).sum() >= 0), lambda c: (c[0] * 2, c[1] + 1), (x, 0)
    )[0]


def in_branch_of_its_own(call: Callable[[Any], Any], x: Any) -> Any:
    return lax.cond(lax.axis_index("a") % 2 == 0, call, lambda x: x, x)


@pytest.mark.parametrize(
    ("body", "factors", "calls"),
    [
        (in_scan, [4] * 4, 8),
        (in_while, [4] * 4, 8),
        (in_cond, [4] * 4, 8),
        (in_loop_of_its_own, [2, 4, 4, 4], 7),
        (in_condition_of_its_own, [2, 4, 4, 4], 11),
        (in_branch_of_its_own, [2, 1, 2, 1], 2),
    ],
)
def test_loops_and_branches_call_on_the_devices_that_execute_them(
    body: Callable[..., Any], factors: list[int], calls: int
) -> None:
    host = Host()
    mapped = sd.shard_map(
        lambda x: body(lambda x: called(host, x), x),
        mesh=mesh(), in_specs=P("a"), out_specs=P("a"), check_vma=False,
    )  # fmt: skip
    np.testing.assert_array_equal(sd.jit(mapped)(X), X * np.repeat(factors, 2)[:, None])
    assert host.shapes == [((2, 3),)] * calls


def test_a_callback_with_a_rule_is_differentiated_in_shard_map() -> None:
    @sd.custom_jvp
    def double(x: Any) -> Any:
        return called(Host(), x)

    double.defjvp(lambda primals, tangents: (double(*primals), 2 * tangents[0]))
    mapped = sd.shard_map(double, mesh=mesh(), in_specs=P("a"), out_specs=P("a"))
    found = sd.grad(lambda x: (mapped(x) ** 2).sum())(X)
    np.testing.assert_allclose(found, 8 * X)


def test_a_derivative_of_a_callback_is_an_error_in_shard_map() -> None:
    mapped = sd.shard_map(
        lambda x: called(Host(), x), mesh=mesh(), in_specs=P("a"), out_specs=P("a")
    )
    with pytest.raises(sd.ShardirError, match="pure-callback"):
        sd.grad(lambda x: mapped(x).sum())(X)


@pytest.mark.parametrize("call", [sd.pure_callback, sd.io_callback])
def test_a_callback_may_have_a_single_device_sharding(call: Callable[..., Any]) -> None:
    host, where = Host(), SingleDeviceSharding(sd.devices()[1])
    result = sd.ShapeDtypeStruct(X.shape, X.dtype)
    cut = NamedSharding(mesh(), P("a"))
    run = sd.jit(
        lambda x: call(host, result, x, sharding=where), in_shardings=cut, out_shardings=cut
    )
    np.testing.assert_array_equal(run(X), X * 2)
    assert host.shapes == [((8, 3),)]


@pytest.mark.parametrize("call", [sd.pure_callback, sd.io_callback])
def test_other_shardings_of_a_callback_are_errors(call: Callable[..., Any]) -> None:
    result = sd.ShapeDtypeStruct(X.shape, X.dtype)
    with pytest.raises(sd.ShardirError) as caught:
        call(Host(), result, X, sharding=NamedSharding(mesh(), P("a")))
    assert isinstance(caught.value, NotImplementedError)
    assert str(caught.value).startswith(
        f"the sharding of {call.__name__} is NamedSharding(mesh=Mesh('a': 4, axis_types=(Auto,)), "
        "spec... of type NamedSharding; it names the one device that calls the function, so it is "
        "a SingleDeviceSharding"
    )


@pytest.mark.parametrize("call", [sd.pure_callback, sd.io_callback])
def test_a_sharding_of_a_callback_inside_shard_map_is_an_error(call: Callable[..., Any]) -> None:
    result = sd.ShapeDtypeStruct((2, 3), X.dtype)
    where = SingleDeviceSharding(sd.devices()[0])
    mapped = sd.shard_map(
        lambda x: call(Host(), result, x, sharding=where),
        mesh=mesh(), in_specs=P("a"), out_specs=P("a"), check_vma=False,
    )  # fmt: skip
    with pytest.raises(sd.ShardirError) as caught:
        mapped(X)
    assert str(caught.value).startswith(
        f"{call.__name__} has a sharding inside of shard_map or pmap, where each device calls it "
        "separately; omit sharding="
    )


@pytest.mark.parametrize("last", [1, 3])
def test_effects_execute_on_the_devices_that_reach_them(last: int) -> None:
    """Devices run in lock step; a device in another branch, or after the end of a loop, calls
    nothing.
    """
    seen: list[tuple[int, int]] = []

    def note(device: Any, turn: Any) -> None:
        seen.append((int(device), int(turn)))

    def local(x: Any) -> Any:
        me = lax.axis_index("a")

        def turn(carry: Any) -> Any:
            x, i = carry
            lax.cond(me == i, lambda: sd.debug.callback(note, me, i), lambda: None)
            return x + 1, i + 1

        return lax.while_loop(lambda c: c[1] < snp.minimum(me + 1, last), turn, (x, 0))[0]

    mapped = sd.shard_map(local, mesh=mesh(), in_specs=P("a"), out_specs=P("a"), check_vma=False)
    turns = np.minimum(np.arange(4) + 1, last)
    np.testing.assert_array_equal(sd.jit(mapped)(X), X + np.repeat(turns, 2)[:, None])
    assert seen == [(i, i) for i in range(last)]
