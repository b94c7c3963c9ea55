"""Arrays are in the memory of their devices; shardings refuse other memory kinds."""

from collections.abc import Callable
from typing import Any

import pytest

import shardir as sd
from shardir.frontend.errors import ShardingError
from shardir.sharding import make_single_device_sharding


def test_the_memory_of_devices_is_the_only_one() -> None:
    sharding = sd.NamedSharding(sd.make_mesh((8,), ("x",)), sd.P("x"), memory_kind="device")
    assert sharding.memory_kind == "device"
    assert sharding.with_memory_kind("device") is sharding
    device = sd.devices()[1]
    assert make_single_device_sharding(device) == sd.SingleDeviceSharding(device)


@pytest.mark.parametrize("kind", ["pinned_host", "unpinned_host", "disk"])
def test_other_memory_kinds_are_refused(kind: str) -> None:
    mesh, device = sd.make_mesh((8,), ("x",)), sd.devices()[0]
    calls: list[Callable[[], Any]] = [
        lambda: sd.NamedSharding(mesh, sd.P("x"), memory_kind=kind),
        lambda: sd.NamedSharding(mesh, sd.P("x")).with_memory_kind(kind),
        lambda: sd.SingleDeviceSharding(device, memory_kind=kind),
        lambda: make_single_device_sharding(device, memory_kind=kind),
    ]
    for call in calls:
        with pytest.raises(ShardingError) as caught:
            call()
        assert str(caught.value).startswith(
            f"the memory kind {kind!r} is not supported: arrays are in the memory of their "
            'devices, "device"; to keep an array in host memory, convert it with numpy.asarray'
        )
