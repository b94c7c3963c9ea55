"""Programs for GPUs in this process: arrays stay on the devices, which torch's CPU stands for."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import shardir as sd
import shardir.numpy as snp
from shardir.backends.emission import EmissionError
from shardir.backends.gpu import backend as gpu
from shardir.backends.gpu.backend import GPUShards, NoGPUError
from shardir.frontend.errors import DeviceError, ShardingError
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.backends.gpu.device import DEVICE, GPU


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Four devices of kind gpu."""
    monkeypatch.setattr(gpu, "BACKEND", gpu.GPUBackend(DEVICE))
    with sd.config(num_gpu_devices=4):
        yield


def grid() -> Any:
    return sd.Mesh(np.array(sd.devices("gpu")).reshape(2, 2), ("data", "model"))


def numbers(*shape: int) -> Any:
    """Small whole numbers, of which sums are exact."""
    return np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)


def host_of(x: Any) -> Any:
    """What the host has of an array: nothing, until somebody reads it."""
    assert isinstance(x.held, GPUShards)
    return x.held._host


@pytest.mark.usefixtures("four")
def test_devices_are_gpus() -> None:
    devices = sd.devices("gpu")
    assert [str(device) for device in devices] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    assert repr(devices[1]) == "CudaDevice(id=1)"
    assert devices[0].platform == "gpu"
    assert devices[0].device_kind == ("cpu" if not GPU else torch.cuda.get_device_name())
    assert devices[0] is sd.devices("gpu")[0]
    assert devices[0] is not sd.devices("cpu")[0]
    assert devices == sd.devices("cuda") == sd.local_devices(backend="gpu")
    assert sd.device_count("gpu") == 4


@pytest.mark.usefixtures("four")
def test_results_stay_on_the_device_from_call_to_call() -> None:
    @sd.jit(backend="gpu")
    def step(x: Any) -> Any:
        return x * 2 + 1

    first = step(numbers(3))
    second = step(first)

    assert second.sharding == sd.sharding.SingleDeviceSharding(sd.devices("gpu")[0])
    assert host_of(first) is None
    assert host_of(second) is None
    np.testing.assert_allclose(second, (numbers(3) * 2 + 1) * 2 + 1, rtol=1e-6)
    assert host_of(second) is not None


@pytest.mark.usefixtures("four")
def test_arguments_are_moved_once() -> None:
    rows = NamedSharding(grid(), P("data", "model"))
    x = sd.device_put(numbers(4, 4), rows)
    add = sd.jit(lambda x: x + x)

    add(x)
    tensors = x.held.tensors
    add(x)
    assert x.held.tensors is tensors
    np.testing.assert_array_equal(np.asarray(x), numbers(4, 4))


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16", "uint32", "bool", "complex64"])
def test_a_mesh_of_gpus_computes_what_cpus_do(dtype: str) -> None:
    def program(x: Any) -> Any:
        return {"turned": x.T, "total": snp.sum(x, axis=0), "last": x[-1]}

    host = snp.asarray(numbers(4, 6)).astype(dtype)
    placed = sd.device_put(host, NamedSharding(grid(), P("data", "model")))
    for name, wanted in sd.jit(program)(host).items():
        got = sd.jit(program)(placed)[name]
        assert isinstance(got.held, GPUShards)
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))


@pytest.mark.usefixtures("four")
def test_a_training_step_under_two_axes() -> None:
    mesh = grid()

    def loss(w: Any, x: Any) -> Any:
        return snp.mean(sd.nn.gelu(x @ w["in"] / 100) @ w["out"])

    step = sd.jit(sd.value_and_grad(loss))
    w = {"in": numbers(6, 8), "out": numbers(8, 2)}
    wanted, slopes = step(w, numbers(4, 6))
    placed = {
        "in": sd.device_put(w["in"], NamedSharding(mesh, P(None, "model"))),
        "out": sd.device_put(w["out"], NamedSharding(mesh, P("model", None))),
    }
    value, grads = step(placed, sd.device_put(numbers(4, 6), NamedSharding(mesh, P("data"))))

    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    for name, slope in slopes.items():
        np.testing.assert_allclose(grads[name], slope, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("four")
def test_mapped_functions_run_on_all_gpus() -> None:
    mean = sd.pmap(lambda x: x - sd.lax.pmean(x, "i"), axis_name="i", backend="gpu")
    made = mean(numbers(4, 3))
    np.testing.assert_allclose(made, numbers(4, 3) - numbers(4, 3).mean(0), rtol=1e-6)
    assert list(made.sharding.device_assignment) == sd.devices("gpu")


@pytest.mark.usefixtures("four")
def test_uneven_parts_come_back_without_padding() -> None:
    x = sd.device_put(numbers(5), NamedSharding(grid(), P("data")), uneven="pad")
    got = sd.jit(lambda x: x - 1, uneven="pad")(x)
    np.testing.assert_array_equal(got, numbers(5) - 1)
    assert [shard.data.shape for shard in got.addressable_shards] == [(3,), (3,), (2,), (2,)]


@pytest.mark.usefixtures("four")
def test_arrays_go_from_kind_to_kind() -> None:
    there = sd.device_put(numbers(4), sd.devices("gpu")[2])
    back = sd.device_put(sd.jit(lambda x: -x)(there), sd.devices("cpu")[1])
    np.testing.assert_array_equal(back, -numbers(4))
    assert back.device is sd.devices("cpu")[1]
    np.testing.assert_array_equal(back + 1, 1 - numbers(4))


@pytest.mark.usefixtures("four")
def test_arrays_that_a_function_refers_to_go_along() -> None:
    table = snp.arange(3.0)
    scaled = sd.jit(lambda x: x * table, backend="gpu")
    for _ in range(2):
        np.testing.assert_array_equal(scaled(numbers(3)), numbers(3) * np.arange(3, dtype="f4"))


@pytest.mark.usefixtures("four")
def test_donated_arguments_are_gone() -> None:
    step = sd.jit(lambda x: x + 1, donate_argnums=0, backend="gpu")
    x = step(numbers(3))
    np.testing.assert_array_equal(step(x), numbers(3) + 2)
    assert x.is_deleted()


@pytest.mark.usefixtures("four")
def test_one_waits_for_results() -> None:
    x = sd.jit(lambda x: x + 1, backend="gpu")(numbers(3))
    assert sd.block_until_ready({"x": x})["x"] is x
    assert x.block_until_ready() is x


@pytest.mark.usefixtures("four")
def test_programs_leave_the_settings_of_torch_alone() -> None:
    import torch

    before = torch.backends.cudnn.conv.fp32_precision
    sd.jit(lambda x: x @ x, backend="gpu")(numbers(3, 3))
    assert torch.backends.cudnn.conv.fp32_precision == before


@pytest.mark.usefixtures("four")
def test_arguments_elsewhere_are_refused() -> None:
    x = sd.device_put(numbers(3), sd.devices("cpu")[1])
    with pytest.raises(ShardingError) as caught:
        sd.jit(lambda x: x, backend="gpu")(x)
    assert str(caught.value).startswith(
        "lambda must run on backend 'gpu', and argument x of lambda is on CpuDevice(id=1); place "
        "it on devices('gpu')"
    )


@pytest.mark.usefixtures("four")
def test_what_gpus_cannot_do_is_said_when_it_is_compiled() -> None:
    def shown(x: Any) -> Any:
        return sd.pure_callback(lambda x: x, sd.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(EmissionError):
        sd.jit(shown, backend="gpu")(numbers(3))


def test_without_a_gpu_the_error_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.version.cuda", None)
    with pytest.raises(NoGPUError) as caught:
        sd.devices("gpu")
    assert str(caught.value).startswith(
        f"torch {torch.__version__}, which is built for CPUs alone, sees no GPU; run on devices of "
        "kind 'cpu', or emit the program for another machine (shardir emit --target gpu)"
    )
    with pytest.raises(NoGPUError):
        sd.jit(lambda x: x, backend="gpu")(numbers(3))


def test_without_torch_the_error_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(NoGPUError) as caught:
        sd.devices("gpu")
    assert str(caught.value).startswith(
        "devices of kind 'gpu' are driven by torch, which is not installed; pip install "
        "'shardir[gpu]'"
    )


def test_a_backend_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DeviceError) as caught:
        sd.jit(lambda x: x, backend="tpu")(numbers(3))
    assert str(caught.value).startswith("no devices on platform 'tpu'; the platforms are cpu, gpu")
