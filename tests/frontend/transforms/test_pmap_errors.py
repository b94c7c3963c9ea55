"""Errors of `pmap`, with their exact texts."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir import (
    cpu_devices,
    device_put_sharded,
    devices,
    lax,
    pmap,
)
from shardir.frontend.errors import (
    ArgumentError,
    AxisError,
    AxisNameError,
    BatchError,
    NotAnArrayError,
    PermutationError,
    ShapeError,
)
from tests.error_assertions import error_line, raw

N = 8
X: npt.NDArray[np.float32] = np.random.default_rng(0).standard_normal((N, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def _eight() -> Iterator[None]:
    with cpu_devices(N):
        yield


def f(x: Any, y: Any = 0) -> Any:
    return x + y


def test_mismatched_sizes_are_errors() -> None:
    assert error_line(BatchError, lambda: pmap(f)(np.ones((16, 2)))) == (
        "pmap of f maps 16 positions, each on its own device, and there are 8 devices; map fewer, "
        "with vmap for the rest, or add devices with set_cpu_devices(16)"
    )
    assert error_line(BatchError, lambda: pmap(f)(X, X[:4])) == (
        "pmap of f maps axes of different sizes: axis 0 of x is 8, axis 0 of y is 4; choose others "
        "with in_axes, or None for arguments that all devices share"
    )
    assert error_line(BatchError, lambda: pmap(f, in_axes=None)(X)) == (
        "pmap of f maps nothing: no argument has an axis in in_axes; give one, or state axis_size"
    )
    assert error_line(BatchError, lambda: pmap(f, axis_size=4)(X)) == (
        "pmap of f maps axes of different sizes: axis_size is 4, axis 0 of x is 8; choose others "
        "with in_axes, or None for arguments that all devices share"
    )
    assert error_line(BatchError, lambda: pmap(f, devices=devices()[:4])(X)) == (
        "pmap of f maps 8 positions, and the number of its devices is 4; give one device for each"
    )
    assert error_line(BatchError, lambda: pmap(f, devices=devices())(X[:4])) == (
        "pmap of f maps 4 positions, and the number of its devices is 8; give one device for each"
    )
    with pytest.raises(ValueError, match="maps 16 positions"):
        pmap(f)(np.ones(16))


def test_invalid_axes_are_errors() -> None:
    assert error_line(BatchError, lambda: pmap(f, in_axes=(0,))(X, X)) == (
        "in_axes of pmap of f has 1 entry, and it was called with 2 positional arguments; give "
        "one entry for each, or one number for all"
    )
    assert error_line(AxisError, lambda: pmap(f, in_axes=2)(X)) == (
        "pmap of f maps axis 2 of x, which is f32[8, 3]; give it another axis in in_axes, or None "
        "to replicate it on every device"
    )
    assert error_line(AxisError, lambda: pmap(f, out_axes=3)(X)) == (
        "out_axes has axis 3 for the result of f, which is f32[3] on each device; the mapped axis "
        "can be 0 or 1"
    )
    assert error_line(ArgumentError, lambda: pmap(f, in_axes=raw("x"))) == (
        "in_axes of pmap of f has 'x' of type str; its entries are axis numbers, and None for an "
        "argument that all devices share"
    )
    assert error_line(NotAnArrayError, lambda: pmap(f)(X, "sum")) == (
        "argument y of f is 'sum' of type str, which is not an array; list it in "
        "static_broadcasted_argnums"
    )
    assert error_line(ArgumentError, lambda: pmap(raw(3))) == "pmap takes a function, got 3"
    assert error_line(ArgumentError, lambda: pmap(f, axis_name=raw(3))) == (
        "axis_name of pmap of f is 3, which is not a string"
    )


def test_static_arguments_are_positional() -> None:
    def f(x: Any, y: Any, z: Any = 0) -> Any:
        return x

    text = "argument{} All static broadcasted arguments must be passed positionally."
    assert error_line(ArgumentError, lambda: pmap(f, static_broadcasted_argnums=(1,))(X, y=1)) == (
        "pmapped function has static_broadcasted_argnums=(1,) but was called with only 1 "
        "positional " + text.format(".")
    )
    assert error_line(ArgumentError, lambda: pmap(f, static_broadcasted_argnums=(2, 1))(X, 1)) == (
        "pmapped function has static_broadcasted_argnums=(1, 2) but was called with only 2 "
        "positional " + text.format("s.")
    )


def test_invalid_axis_names_and_permutations_are_errors() -> None:
    assert error_line(AxisNameError, lambda: pmap(lambda x: lax.psum(x, "j"), "i")(X)) == (
        "psum is along 'j', which is not bound at this line (bound axes: 'i'); name one with "
        "axis_name= of vmap or pmap, or in the mesh of shard_map"
    )
    assert error_line(
        PermutationError, lambda: pmap(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 1)]), "i")(X)
    ) == (
        "perm of ppermute has the target 1 twice; every position sends once and receives once at "
        "most"
    )
    assert error_line(ArgumentError, lambda: pmap(lambda x: lax.pbroadcast(x, "i", 8), "i")(X)) == (
        "source of pbroadcast is 8; the positions along 'i' are 0 to 7"
    )


def test_mismatched_shards_are_errors() -> None:
    assert error_line(ArgumentError, lambda: device_put_sharded([X, X], devices())) == (
        "device_put_sharded got 2 shards for 8 devices; pass one each"
    )
    assert error_line(ShapeError, lambda: device_put_sharded([X, X[:1]], devices()[:2])) == (
        "shard 1 of device_put_sharded is f32[1, 3], and shard 0 is f32[8, 3]; all shards of an "
        "array need one type"
    )
    assert error_line(
        ArgumentError, lambda: device_put_sharded([{"a": X}, {"b": X}], devices()[:2])
    ) == (
        "shards 0 and 1 of device_put_sharded have different structures; pass pytrees of the same "
        "structure"
    )


def test_devices_of_an_inner_pmap_are_an_error() -> None:
    inner = pmap(lambda x: x, devices=devices()[:2])
    assert error_line(ArgumentError, lambda: pmap(inner)(np.ones((2, 2)))) == (
        "pmap of lambda is inside another and has devices; pass them to the outermost, enough for "
        "every pair of positions"
    )
    assert error_line(BatchError, lambda: pmap(pmap(f))(np.ones((4, 4)))) == (
        "pmap of f maps 4 by 4 positions, each on its own device, and there are 8 devices; map "
        "fewer, with vmap for the rest, or add devices with set_cpu_devices(16)"
    )
