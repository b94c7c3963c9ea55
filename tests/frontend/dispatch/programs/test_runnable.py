"""Arguments of compiled programs: their memory, their padding, and their shards."""

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.base import get_backend
from shardir.backends.device_shards import DeviceExecutable, DeviceShards
from shardir.backends.storage import Storage
from shardir.errors import PipelineError
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.dispatch.programs import runnable
from shardir.frontend.dispatch.programs.runnable import default_pipeline
from shardir.frontend.errors import (
    ArgumentError,
    IndivisibleError,
    NumberRangeError,
    ShardingError,
)
from shardir.frontend.shardings.devices import Device
from shardir.passes.pipeline import DEFAULT_PIPELINE, SHARDY_PIPELINE
from shardir.sharding import Mesh, NamedSharding, PartitionSpec as P
from tests.backends.cpu.guard_pages import copy_before_guard_page
from tests.error_assertions import assert_raises_exactly

MESH = sd.make_mesh((4,), ("a",))
SHARDED = NamedSharding(MESH, P("a"))
ROWS = np.arange(5 * 1024, dtype=np.float32).reshape(5, 1024)


def array_before_guard_page(x: Any) -> Any:
    made: Any = snp.asarray(x)
    made.buffers = Storage.of(copy_before_guard_page(x))
    return made


@pytest.mark.parametrize("make", [copy_before_guard_page, array_before_guard_page])
def test_padding_reads_no_memory_behind_an_argument(make: Any) -> None:
    twice = sd.jit(lambda x: x * 2, in_shardings=SHARDED, uneven="pad")
    for _ in range(3):
        made = twice(make(ROWS))
        np.testing.assert_array_equal(made, ROWS * 2)
        np.testing.assert_array_equal(twice(made), ROWS * 4)


def test_padded_results_are_arguments_of_functions_that_do_not_pad() -> None:
    made = sd.jit(lambda x: x + 1, in_shardings=SHARDED, uneven="pad")(ROWS)
    for function in (sd.jit(snp.sum), sd.jit(snp.sum, in_shardings=SHARDED)):
        assert function(made) == (ROWS + 1).sum()


@pytest.mark.parametrize("requested", [None, SHARDED])
def test_shapes_that_do_not_divide_are_errors_when_a_function_is_lowered(requested: Any) -> None:
    function = sd.jit(lambda x: x, in_shardings=requested)
    assert_raises_exactly(
        partial(function.lower, sd.ShapeDtypeStruct((3,), np.float32, sharding=SHARDED)),
        IndivisibleError,
        "argument x of lambda: dimension 0 of shape (3,) has size 3, which is not divisible by 4: "
        "it is sharded over the mesh axis 'a' of size 4; pad it to 4, replicate it, or pass "
        'uneven="pad"',
    )


def test_the_order_of_devices_is_part_of_the_sharding_of_an_argument() -> None:
    reversed_mesh = Mesh(np.array(sd.devices()[3::-1]), ("a",))
    x = sd.device_put(np.arange(4), NamedSharding(reversed_mesh, P()))
    function = sd.jit(lambda x: x + 1, in_shardings=NamedSharding(MESH, P()))
    replicated = "spec=P(), memory_kind=device"
    order = "device_ids=[3, 2, 1, 0]"
    given = f"NamedSharding(mesh=Mesh('a': 4, {order}, axis_types=(Auto,)), {replicated})"
    expected = f"NamedSharding(mesh=Mesh('a': 4, axis_types=(Auto,)), {replicated})"
    assert_raises_exactly(
        partial(function, x),
        ShardingError,
        f"argument x of lambda is placed as {given}, and in_shardings requests {expected}; move it "
        "there with device_put, or set its entry of in_shardings to None",
    )
    assert_raises_exactly(
        partial(function.lower(np.arange(4)).compile(), x),
        ArgumentError,
        f"argument x of lambda is i32[4] placed as {given}, and it was compiled for i32[4] placed "
        f"as {expected}; lower it for such arguments",
    )


@pytest.mark.parametrize("isolated", [False, True])
def test_sharding_an_argument_leaves_the_array_as_it_is(isolated: bool) -> None:
    with sd.config(isolated=isolated):
        sharded = sd.jit(lambda x: x * 2, in_shardings=SHARDED)
        single = sd.jit(lambda x: x * 3)
        x, expected = snp.arange(8), np.arange(8)
        for _ in range(3):
            np.testing.assert_array_equal(sharded(x), expected * 2)
            np.testing.assert_array_equal(single(x), expected * 3)
            np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({}, DEFAULT_PIPELINE),
        ({"passes": "default,cse"}, f"{DEFAULT_PIPELINE},cse"),
        ({"shardy_exact": True}, SHARDY_PIPELINE),
    ],
)
def test_the_default_pipeline_without_a_program_is_that_of_the_settings(
    settings: dict[str, Any], steps: str
) -> None:
    with sd.config(**settings):
        assert str(default_pipeline()) == steps


def test_the_pipeline_of_a_program_depends_on_its_uneven_arguments() -> None:
    twice = sd.jit(lambda x: x * 2)
    assert twice.lower(ROWS).pipeline == DEFAULT_PIPELINE
    padded = sd.jit(lambda x: x + 1, in_shardings=SHARDED, uneven="pad")(ROWS)
    assert twice.lower(sd.device_put(ROWS[:4], SHARDED)).pipeline == DEFAULT_PIPELINE
    stated = DEFAULT_PIPELINE.replace("leave_open=true", "leave_open=true,border=stated")
    assert twice.lower(padded).pipeline == stated
    np.testing.assert_array_equal(twice(padded), (ROWS + 1) * 2)


def test_a_pass_may_add_a_mesh_axis_of_one_position() -> None:
    function = sd.jit(lambda x: x + 1, passes="split-batch{microbatches=1},default")
    np.testing.assert_array_equal(function(ROWS), ROWS + 1)
    assert "mesh @microbatches = [microbatch=1]" in function.lower(ROWS).compile().as_text()


def test_the_numpy_backend_has_no_schedule() -> None:
    function = sd.jit(lambda x: x + 1)
    assert "schedule of @lambda" in function.lower(ROWS).compile().as_text("schedule")
    with sd.config(isolated=True):
        compiled = function.lower(ROWS).compile()
        assert_raises_exactly(
            partial(compiled.as_text, "schedule"),
            PipelineError,
            "there is no schedule: NumPy runs this program operation by operation",
        )
        memory = compiled.memory_analysis()
        assert (memory.argument_size_in_bytes, memory.output_size_in_bytes) == (ROWS.nbytes,) * 2


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("requested", [None, SHARDED])
def test_an_integer_that_does_not_fit_is_an_error(isolated: bool, requested: Any) -> None:
    with sd.config(isolated=isolated):
        assert_raises_exactly(
            partial(sd.jit(lambda x: x + 1, in_shardings=requested), np.array([1, 2, 3, 2**40])),
            NumberRangeError,
            "%x has the number 1099511627776, which does not fit into int32; "
            "shardir.enable_x64() allows 64-bit integers",
        )


class PartsInDevices(DeviceShards):
    """Shards in memory that stands for that of devices."""

    def __init__(self, parts: Any) -> None:
        self.parts = [np.array(part) for part in parts]

    def __getitem__(self, index: Any) -> Any:
        return self.parts[index]

    def __len__(self) -> int:
        return len(self.parts)

    def wait(self) -> None:
        return


class ExecutableOnDevices(DeviceExecutable):
    """A program of the NumPy backend that counts which arguments are copied to the devices."""

    def __init__(self, module: Any, devices: Any) -> None:
        self.program: Any = get_backend("numpy").compile(module)
        self.copied: list[tuple[int, ...]] = []
        self.references: list[int] = []

    def to_device(self, shards: Any) -> Any:
        if isinstance(shards, PartsInDevices):
            return shards
        self.copied.append(shards[0].shape)
        return PartsInDevices(shards)

    def run(self, args: Any) -> Any:
        self.references = [sys.getrefcount(args[i]) for i in range(len(args))]
        return [PartsInDevices(parts) for parts in self.program([list(arg) for arg in args])]


@pytest.fixture
def on_devices(monkeypatch: pytest.MonkeyPatch) -> list[ExecutableOnDevices]:
    """Compile programs for devices with separate memory; return these programs."""
    made: list[ExecutableOnDevices] = []

    def compile_module(module: Any, devices: Any) -> ExecutableOnDevices:
        made.append(ExecutableOnDevices(module, devices))
        return made[-1]

    monkeypatch.setattr(runnable, "compile_module", compile_module)
    return made


def test_arrays_stay_in_the_memory_of_a_device(on_devices: list[ExecutableOnDevices]) -> None:
    x, large = (from_numpy(np.arange(size, dtype="f")) for size in (8, 2000))
    function = sd.jit(lambda x, y, z: x + y + z + large[:8])
    expected = np.arange(8) * 3.0 + 2
    for _ in range(2):
        np.testing.assert_array_equal(function(x, np.arange(8, dtype="f"), 2.0), expected)
    (program,) = on_devices
    # The arrays are copied once, the NumPy array and the number at each call.
    assert program.copied == [(2000,), (8,), (8,), (), (8,), ()]


def test_arrays_on_a_mesh_stay_in_the_memory_of_its_devices(
    on_devices: list[ExecutableOnDevices],
) -> None:
    plain = from_numpy(np.arange(8, dtype="f"))
    sharded = sd.device_put(plain, SHARDED)
    function = sd.jit(lambda x, y, z: x + y + z, in_shardings=SHARDED)
    for _ in range(2):
        made = function(sharded, plain, np.arange(8, dtype="f"))
        np.testing.assert_array_equal(made, np.arange(8) * 3.0)
    (program,) = on_devices
    # The sharded array is copied once. The plain one stays an array of one device.
    assert len(program.copied) == 5
    assert set(program.copied) == {(2,)}
    np.testing.assert_array_equal(sd.jit(lambda x: x + 1)(plain), np.arange(8) + 1.0)


def test_only_the_program_refers_to_donated_arguments(
    on_devices: list[ExecutableOnDevices],
) -> None:
    function = sd.jit(lambda x, y: (x + y, y * 2), donate_argnums=0)
    x, y = (from_numpy(np.arange(8, dtype="f")) for _ in range(2))
    function(x, y)
    (program,) = on_devices
    assert program.references[0] < program.references[1]
    assert x.is_deleted()
    assert not y.is_deleted()


def test_a_program_on_one_device_of_another_process_takes_no_shards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = from_numpy(ROWS)
    lowered = sd.jit(lambda x: x + 1).lower(x)
    here, _ = lowered.make_program()
    assert [len(here._argument_shards(each, 0)) for each in (ROWS, x)] == [1, 1]
    monkeypatch.setattr(Device, "process_index", property(lambda device: 1))
    there, _ = lowered.make_program()
    assert there._argument_shards(ROWS, 0) == []


def test_random_keys_of_jax_are_passed_as_their_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/frontend/interop/test_keys.py` passes keys of JAX itself."""
    program, _ = sd.jit(lambda x: x + 1).lower(ROWS).make_program()
    key, words = object(), ROWS * 2
    monkeypatch.setattr(runnable, "jax_key_storage", lambda x: words if x is key else None)
    np.testing.assert_array_equal(program([key])[0], words + 1)
    np.testing.assert_array_equal(program([ROWS])[0], ROWS + 1)
