"""The GPU backend: programs run in this process, and arrays stay on the devices.

Without a GPU, torch on the CPU replaces it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import shardir as sd
import shardir.numpy as snp
from shardir.backends.base import BACKENDS
from shardir.backends.emission import EmissionError
from shardir.backends.gpu import backend as gpu
from shardir.backends.gpu.backend import GPUShards, NoGPUError
from shardir.frontend.errors import DeviceError, ShardingError
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.backends.gpu.device import DEVICE, GPU


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Provide four devices of kind gpu."""
    monkeypatch.setitem(BACKENDS, "gpu", gpu.GPUBackend(DEVICE))
    with sd.config(num_gpu_devices=4):
        yield


def grid() -> Any:
    return sd.Mesh(np.array(sd.devices("gpu")).reshape(2, 2), ("data", "model"))


def small_integers(*shape: int) -> Any:
    """Return small integers as f32, whose sums are exact."""
    return np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)


def host_copy(x: Any) -> Any:
    """Return the copy of an array on the host, or None before the first read."""
    assert isinstance(x.buffers, GPUShards)
    return x.buffers._host


@pytest.mark.usefixtures("four_gpus")
def test_devices_are_gpus() -> None:
    devices = sd.devices("gpu")
    assert [str(device) for device in devices] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert repr(devices[1]) == "CudaDevice(id=1)"
    assert devices[0].platform == "gpu"
    assert devices[0].device_kind == ("cpu" if not GPU else torch.cuda.get_device_name())
    assert devices[0] is sd.devices("gpu")[0]
    assert devices[0] is not sd.devices("cpu")[0]
    assert devices == sd.devices("cuda") == sd.local_devices(backend="gpu")
    assert sd.device_count("gpu") == 4


@pytest.mark.usefixtures("four_gpus")
def test_results_stay_on_the_device_between_calls() -> None:
    @sd.jit(backend="gpu")
    def step(x: Any) -> Any:
        return x * 2 + 1

    first = step(small_integers(3))
    second = step(first)

    assert second.sharding == sd.sharding.SingleDeviceSharding(sd.devices("gpu")[0])
    assert host_copy(first) is None
    assert host_copy(second) is None
    np.testing.assert_allclose(second, (small_integers(3) * 2 + 1) * 2 + 1, rtol=1e-6)
    assert host_copy(second) is not None


@pytest.mark.usefixtures("four_gpus")
def test_arguments_are_copied_to_the_device_once() -> None:
    rows = NamedSharding(grid(), P("data", "model"))
    x = sd.device_put(small_integers(4, 4), rows)
    add = sd.jit(lambda x: x + x)

    add(x)
    tensors = x.buffers.tensors
    add(x)
    assert x.buffers.tensors is tensors
    np.testing.assert_array_equal(np.asarray(x), small_integers(4, 4))


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16", "uint32", "bool", "complex64"])
def test_a_mesh_of_gpus_gives_the_results_of_cpus(dtype: str) -> None:
    def program(x: Any) -> Any:
        return {"turned": x.T, "total": snp.sum(x, axis=0), "last": x[-1]}

    host = snp.asarray(small_integers(4, 6)).astype(dtype)
    placed = sd.device_put(host, NamedSharding(grid(), P("data", "model")))
    for name, expected in sd.jit(program)(host).items():
        got = sd.jit(program)(placed)[name]
        assert isinstance(got.buffers, GPUShards)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


@pytest.mark.usefixtures("four_gpus")
def test_a_training_step_under_two_axes() -> None:
    mesh = grid()

    def loss(w: Any, x: Any) -> Any:
        return snp.mean(sd.nn.gelu(x @ w["in"] / 100) @ w["out"])

    step = sd.jit(sd.value_and_grad(loss))
    w = {"in": small_integers(6, 8), "out": small_integers(8, 2)}
    expected, expected_grads = step(w, small_integers(4, 6))
    placed = {
        "in": sd.device_put(w["in"], NamedSharding(mesh, P(None, "model"))),
        "out": sd.device_put(w["out"], NamedSharding(mesh, P("model", None))),
    }
    value, grads = step(placed, sd.device_put(small_integers(4, 6), NamedSharding(mesh, P("data"))))

    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for name, expected_grad in expected_grads.items():
        np.testing.assert_allclose(grads[name], expected_grad, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("four_gpus")
def test_pmap_runs_on_all_gpus() -> None:
    mean = sd.pmap(lambda x: x - sd.lax.pmean(x, "i"), axis_name="i", backend="gpu")
    result = mean(small_integers(4, 3))
    np.testing.assert_allclose(
        result, small_integers(4, 3) - small_integers(4, 3).mean(0), rtol=1e-6
    )
    assert list(result.sharding.device_assignment) == sd.devices("gpu")


@pytest.mark.usefixtures("four_gpus")
def test_results_of_uneven_shards_have_no_padding() -> None:
    x = sd.device_put(small_integers(5), NamedSharding(grid(), P("data")), uneven="pad")
    got = sd.jit(lambda x: x - 1, uneven="pad")(x)
    np.testing.assert_array_equal(got, small_integers(5) - 1)
    assert [shard.data.shape for shard in got.addressable_shards] == [(3,), (3,), (2,), (2,)]


@pytest.mark.usefixtures("four_gpus")
def test_device_put_copies_between_cpu_and_gpu() -> None:
    there = sd.device_put(small_integers(4), sd.devices("gpu")[2])
    back = sd.device_put(sd.jit(lambda x: -x)(there), sd.devices("cpu")[1])
    np.testing.assert_array_equal(back, -small_integers(4))
    assert back.device is sd.devices("cpu")[1]
    np.testing.assert_array_equal(back + 1, 1 - small_integers(4))


@pytest.mark.usefixtures("four_gpus")
def test_keys_of_four_words_are_those_of_cpus() -> None:
    keys = sd.random.split(sd.random.key(7, impl="rbg"), 4)
    captured = sd.random.split(keys[0], 2)

    def program(keys: Any) -> Any:
        return sd.random.bits(keys[1], (3,)), keys[::2], captured[1]

    expected = sd.jit(program)(keys)
    placed = sd.device_put(keys, NamedSharding(grid(), P("data")))
    for found in (sd.jit(program, backend="gpu")(keys), sd.jit(program)(placed)):
        np.testing.assert_array_equal(found[0], expected[0])
        for a, b in zip(found[1:], expected[1:], strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_array_equal(sd.random.key_data(a), sd.random.key_data(b))


@pytest.mark.usefixtures("four_gpus")
def test_captured_arrays_are_arguments_of_the_program() -> None:
    table = snp.arange(3.0)
    scaled = sd.jit(lambda x: x * table, backend="gpu")
    for _ in range(2):
        np.testing.assert_array_equal(
            scaled(small_integers(3)), small_integers(3) * np.arange(3, dtype="f4")
        )


@pytest.mark.usefixtures("four_gpus")
def test_donated_arguments_are_deleted() -> None:
    step = sd.jit(lambda x: x + 1, donate_argnums=0, backend="gpu")
    x = step(small_integers(3))
    np.testing.assert_array_equal(step(x), small_integers(3) + 2)
    assert x.is_deleted()


@pytest.mark.usefixtures("four_gpus")
def test_block_until_ready_returns_its_argument() -> None:
    x = sd.jit(lambda x: x + 1, backend="gpu")(small_integers(3))
    assert sd.block_until_ready({"x": x})["x"] is x
    assert x.block_until_ready() is x


@pytest.mark.usefixtures("four_gpus")
def test_programs_restore_the_settings_of_torch() -> None:
    import torch

    before = torch.backends.cudnn.conv.fp32_precision
    sd.jit(lambda x: x @ x, backend="gpu")(small_integers(3, 3))
    assert torch.backends.cudnn.conv.fp32_precision == before


@pytest.mark.usefixtures("four_gpus")
def test_arguments_on_another_device_are_rejected() -> None:
    x = sd.device_put(small_integers(3), sd.devices("cpu")[1])
    with pytest.raises(ShardingError) as caught:
        sd.jit(lambda x: x, backend="gpu")(x)
    assert str(caught.value).startswith(
        "lambda must run on backend 'gpu', and argument x of lambda is on CpuDevice(id=1); place "
        "it on devices('gpu')"
    )


@pytest.mark.usefixtures("four_gpus")
def test_unsupported_operations_are_rejected_at_compilation() -> None:
    def call_back(x: Any) -> Any:
        return sd.pure_callback(lambda x: x, sd.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(EmissionError):
        sd.jit(call_back, backend="gpu")(small_integers(3))


def test_a_missing_gpu_raises_an_error_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.version.cuda", None)
    with pytest.raises(NoGPUError) as caught:
        sd.devices("gpu")
    assert str(caught.value).startswith(
        f"torch {torch.__version__}, which is built for CPUs alone, finds no GPU; run on "
        "devices of kind 'cpu', or emit the program for another machine (shardir emit --target gpu)"
    )
    with pytest.raises(NoGPUError):
        sd.jit(lambda x: x, backend="gpu")(small_integers(3))


def test_missing_torch_raises_an_error_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(NoGPUError) as caught:
        sd.devices("gpu")
    assert str(caught.value).startswith(
        "devices of kind 'gpu' are driven by torch, which is not installed; pip install "
        "'shardir[gpu]'"
    )


def test_an_unknown_backend_is_rejected() -> None:
    with pytest.raises(DeviceError) as caught:
        sd.jit(lambda x: x, backend="tpu")(small_integers(3))
    assert str(caught.value).startswith(
        "no devices on platform 'tpu'; the platforms are cpu, gpu, pjrt"
    )
