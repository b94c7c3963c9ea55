"""Elements of values in a `shard_map` that is called outside of `jit`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from shardir import (
    Mesh,
    PartitionSpec as P,
    cpu_devices,
    debug,
    device_put,
    devices,
    grad,
    jit,
    lax,
    make_mesh,
    shard_map,
)
from shardir.frontend.errors import ShardingError, TracedTruthError

X = np.arange(4, dtype=np.float32).reshape(2, 2)


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    with cpu_devices(4):
        yield make_mesh((2, 2), ("x", "y"))


def total(x: Any) -> Any:
    return lax.psum(x.sum(), ("x", "y"))


def halve(x: Any) -> Any:
    """Return `x` divided by the power of two for which the sum over all devices is at most 1."""
    while total(x) > 1:
        x = x / 2
    return x


def test_python_branches_on_values_that_all_devices_share(mesh: Mesh) -> None:
    cut = shard_map(halve, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    np.testing.assert_array_equal(cut(X), X / 8)
    np.testing.assert_array_equal(cut(4 * X), X / 8)  # The loop has more iterations.

    def along_one_axis(x: Any) -> Any:
        return x + int(lax.psum(x.sum(), "x")) + lax.axis_size("x")

    cut = shard_map(along_one_axis, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    np.testing.assert_array_equal(cut(X), X + 8)


def test_nested_regions_and_derivatives_have_elements(mesh: Mesh) -> None:
    def outer(x: Any) -> Any:
        def inner(y: Any) -> Any:
            shared = total(y)
            return -y if shared > 5 else y

        scale = grad(lambda s: s * s if s > 5 else s)(total_of_rows(x))
        return scale * shard_map(inner, in_specs=P(None, "y"), out_specs=P(None, "y"))(x)

    def total_of_rows(x: Any) -> Any:
        return lax.psum(x.sum(), "x")

    cut = shard_map(outer, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    np.testing.assert_array_equal(cut(X), -12 * X)


def test_values_that_differ_between_devices_have_no_truth_value(mesh: Mesh) -> None:
    def differs(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    def with_an_effect(x: Any) -> Any:
        debug.callback(calls.append, x)
        return halve(x)

    cut = shard_map(differs, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    with pytest.raises(TracedTruthError, match="no truth value while differs is traced"):
        cut(X)
    unchecked = shard_map(
        halve, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False
    )
    with pytest.raises(TracedTruthError, match="no truth value while halve is traced"):
        unchecked(X)
    with pytest.raises(TracedTruthError, match="no truth value while halve is traced"):
        jit(shard_map(halve, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y")))(X)
    calls: list[object] = []
    cut = shard_map(with_an_effect, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    np.testing.assert_array_equal(cut(X), X / 8)
    assert len(calls) == 4  # Each device has the effect once.


def test_text_of_a_value_shows_the_elements_of_each_device(mesh: Mesh) -> None:
    texts = []

    def show(x: Any) -> Any:
        texts.append(f"{x}")
        return x

    shard_map(show, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False)(X)
    shard_map(show, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})(X)
    jit(shard_map(show, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(X)
    assert texts == [
        "On cpu:0 at mesh coordinates (x, y) = (0, 0):\n[[0.]]\n\n"
        "On cpu:1 at mesh coordinates (x, y) = (0, 1):\n[[1.]]\n\n"
        "On cpu:2 at mesh coordinates (x, y) = (1, 0):\n[[2.]]\n\n"
        "On cpu:3 at mesh coordinates (x, y) = (1, 1):\n[[3.]]\n",
        "On the devices at mesh coordinates (x) = (0):\n[[0. 1.]]\n\n"
        "On the devices at mesh coordinates (x) = (1):\n[[2. 3.]]\n",
        "Tracer(f32[1, 2])",
    ]


def test_device_put_does_not_leave_the_devices_of_the_mesh(mesh: Mesh) -> None:
    cut = shard_map(
        lambda x: device_put(x, devices()[3]) + device_put(1),
        mesh=mesh,
        in_specs=P("x", "y"),
        out_specs=P("x", "y"),
    )
    message = (
        "device_put to cpu:3 inside of shard_map, where each device of the mesh runs this line on "
        "its shard; omit the device"
    )
    with pytest.raises(ShardingError, match=f"^{message}"):
        cut(X)
    np.testing.assert_array_equal(jit(cut)(X), X + 1)
