"""Devices: identity, attributes, and their number."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

import shardir as sd
from shardir.frontend.config import config, cpu_devices
from shardir.frontend.errors import DeviceError
from shardir.frontend.shardings.devices import (
    default_backend,
    device_count,
    devices,
    find_device,
    local_device_count,
    local_devices,
    virtual_devices,
)


def test_attributes_and_repr_of_a_device() -> None:
    device = devices()[3]
    assert (device.id, device.platform, device.device_kind, device.process_index) == (
        3,
        "cpu",
        "cpu",
        0,
    )
    assert device.memory_stats() is None
    assert str(device) == "cpu:3"
    assert repr(device) == "CpuDevice(id=3)"


def test_eight_devices_by_default() -> None:
    assert device_count() == local_device_count() == 8
    assert [device.id for device in devices("cpu")] == list(range(8))
    assert local_devices() == local_devices(process_index=0) == devices()
    assert default_backend() == "cpu"


def test_equal_ids_are_one_object() -> None:
    assert all(a is b for a, b in zip(devices(), local_devices(), strict=True))
    device = devices()[1]
    assert copy.deepcopy(device) is device
    assert pickle.loads(pickle.dumps(device)) is device


def test_threads_get_identical_objects() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(find_device, [70_001] * 64))
    assert all(device is found[0] for device in found)


def test_the_number_of_devices_can_change_at_any_time() -> None:
    first = devices()[0]
    with cpu_devices(16):
        assert device_count() == 16
        assert devices()[0] is first
        last = devices()[15]
    with cpu_devices(2):
        assert devices() == [find_device(0), find_device(1)]
    with cpu_devices(16):
        assert devices()[15] is last


def test_devices_beyond_this_machine_can_be_created() -> None:
    many = virtual_devices(4096)
    assert many[:8] == devices()
    assert str(many[4095]) == "cpu:4095"


def test_devices_are_immutable() -> None:
    with pytest.raises(AttributeError) as caught:
        devices()[0].id = 7
    assert str(caught.value) == "the attributes of a Device cannot be changed"


def test_an_unknown_platform_is_an_error() -> None:
    with pytest.raises(DeviceError) as caught:
        devices("tpu")
    assert (
        str(caught.value).partition("\n")[0]
        == "no devices on platform 'tpu'; the platforms are cpu, gpu, pjrt"
    )


@pytest.mark.parametrize(
    ("platform", "shown", "name"),
    [
        ("gpu", "CudaDevice(id=5)", "cuda:5"),
        ("tpu", "TpuDevice(id=5, process_index=0, coords=(0,1,0), core_on_chip=1)", "tpu:5"),
        ("ipu", "IpuDevice(id=5, num_tiles=1472, version=ipu2)", "ipu:5"),
    ],
)
def test_devices_may_represent_another_platform(platform: str, shown: str, name: str) -> None:
    with config(shown_platform=platform):
        assert default_backend() == platform
        device = devices(platform)[5]
        assert device is devices("cpu")[5]
        assert (device.platform, device.backend) == (platform, "cpu")
        assert (repr(device), str(device)) == (shown, name)
        assert float(sd.jit(lambda x: x + 1)(sd.device_put(1.0, device))) == 2


def test_devices_of_another_process() -> None:
    with pytest.raises(RuntimeError) as caught:
        local_devices(process_index=1)
    assert (
        str(caught.value).partition("\n")[0]
        == "no process has index 1; this program has one, with index 0"
    )
