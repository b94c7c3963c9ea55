"""Tests of the backend `pjrt` on eight devices of XLA's CPU platform.

The number of devices is fixed when jaxlib starts, so `test_backend.py` runs this file in a process
of its own.
"""

import dataclasses
import os
import sys
import warnings
from functools import partial
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
import shardir.random
from shardir.backends.pjrt import runtime
from shardir.backends.pjrt.backend import PJRTShards
from shardir.backends.pjrt.program_text import PIPELINE, UnsupportedByPJRTError, write_program
from shardir.backends.pjrt.runtime import PJRTError
from shardir.errors import PipelineError
from shardir.frontend.errors import ArgumentError, BatchError, MeshError, ShardingError
from shardir.ir.dtypes import DTYPES, KEYS, NUMPY_DTYPES, SMALL_DTYPES
from shardir.passes.pipeline import Pipeline
from shardir.sharding import NamedSharding, PartitionSpec as P

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from pjrt import MAX_RELATIVE_ERROR, collective_programs, communicated_library, compare_program


def grid(devices: Any = None) -> Any:
    chosen = sd.devices("pjrt") if devices is None else devices
    return sd.make_mesh((4, 2), ("x", "y"), devices=chosen)


def small_integers(*shape: int) -> Any:
    """Return small integers as f32, whose sums are exact."""
    return np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)


def place(array: Any, *spec: Any, mesh: Any = None) -> Any:
    return sd.device_put(array, NamedSharding(mesh or grid(), P(*spec)))


def addresses(x: Any) -> list[int]:
    """Return the address of each shard in device memory."""
    return [shard.data.unsafe_buffer_pointer() for shard in x.buffers.array.addressable_shards]


@pytest.mark.long
def test_devices_are_those_of_jax() -> None:
    devices = sd.devices("pjrt")
    assert len(devices) == sd.device_count("pjrt") == 8
    assert repr(devices[1]) == "PjrtDevice(id=1)"
    assert (devices[0].platform, devices[0].device_kind) == ("pjrt", "cpu")


def test_several_results_with_collectives_of_each_kind() -> None:
    def program(x: Any) -> Any:
        mapped = sd.shard_map(
            lambda x: sd.lax.ppermute(x, "x", [(i, (i + 1) % 4) for i in range(4)]),
            mesh=x_mesh, in_specs=P("x", "y"), out_specs=P("x", "y"),
        )  # fmt: skip
        return {
            "all-reduce": snp.sum(x),
            "all-gather": x @ x,
            "all-to-all": snp.sort(x, axis=0),
            "collective-permute": mapped(x),
            "argmax": snp.argmax(x, axis=0),
            "compared": x > 3,
        }

    a = small_integers(8, 8)
    x_mesh = grid(sd.devices("cpu")[:8])
    expected = sd.jit(program)(place(a, "x", "y", mesh=x_mesh))
    x_mesh = grid()
    found = sd.jit(program)(place(a, "x", "y"))
    for name, value in expected.items():
        assert isinstance(found[name].buffers, PJRTShards)
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(value))


@pytest.mark.parametrize("order", [slice(None, None, -1), slice(None)])
@pytest.mark.long
def test_meshes_may_have_any_order_of_devices(order: slice) -> None:
    mesh = grid(sd.devices("pjrt")[order])
    x = place(small_integers(8, 6), "x", "y", mesh=mesh)
    y = sd.jit(lambda x: snp.cumsum(x, axis=0))(x)
    np.testing.assert_array_equal(y, small_integers(8, 6).cumsum(0))
    ids = {shard.device.id: shard.data.shape for shard in y.addressable_shards}
    assert ids == dict.fromkeys(range(8), (2, 3))


@pytest.mark.long
def test_a_mesh_may_have_some_of_the_devices() -> None:
    mesh = sd.make_mesh((3,), ("x",), devices=sd.devices("pjrt")[4:7])
    y = sd.jit(lambda x: x - snp.mean(x, 0))(place(small_integers(6, 2), "x", mesh=mesh))
    np.testing.assert_allclose(y, small_integers(6, 2) - small_integers(6, 2).mean(0), rtol=1e-6)
    assert sorted(device.id for device in y.buffers.array.devices()) == [4, 5, 6]


def test_a_program_of_one_device_runs_on_the_device_of_its_argument() -> None:
    x = sd.device_put(small_integers(3), sd.devices("pjrt")[5])
    y = sd.jit(lambda x: x * 2)(x)
    assert [device.id for device in y.buffers.array.devices()] == [5]
    np.testing.assert_array_equal(y, small_integers(3) * 2)
    assert y.device is sd.devices("pjrt")[5]


@pytest.mark.long
def test_numbers_and_arrays_of_numpy_are_arguments() -> None:
    add = sd.jit(lambda x, n: x + n, backend="pjrt")
    array = small_integers(3)
    result = add(array, 1)
    array[:] = 0
    np.testing.assert_array_equal(result, small_integers(3) + 1)


def test_arrays_stay_on_the_devices() -> None:
    x = place(small_integers(8, 4), "x")
    step = sd.jit(lambda x: x + 1)
    first = step(x)
    held = x.buffers
    second = step(first)
    assert isinstance(held, PJRTShards)
    assert step(x) is not first
    assert x.buffers is held
    assert first.buffers._host == [None] * 8
    np.testing.assert_array_equal(second, small_integers(8, 4) + 2)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name not in KEYS])
@pytest.mark.long
def test_all_dtypes(dtype: str) -> None:
    numbers = np.array([[0, 1], [1, 0], [1, 1], [0, 0]]).astype(NUMPY_DTYPES[dtype])

    def program(x: Any) -> Any:
        return x.T, x == x[::-1], snp.where(x == x, x, x)

    with sd.config(enable_x64=True):
        expected = sd.jit(program)(numbers)
        found = sd.jit(program)(place(numbers, "x", "y"))
    for a, b in zip(expected, found, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a).view("u1"), np.asarray(b).view("u1"))


@pytest.mark.parametrize("dtype", [name for name in SMALL_DTYPES if name != "f8e8m0fnu"])
@pytest.mark.long
def test_small_dtypes_compute_as_on_cpus(dtype: str) -> None:
    numbers = np.arange(8).reshape(4, 2).astype(NUMPY_DTYPES[dtype])
    program = sd.jit(lambda x: (x + x, x * x))
    for a, b in zip(program(numbers), program(place(numbers, "x")), strict=True):
        np.testing.assert_array_equal(np.asarray(a).view("u1"), np.asarray(b).view("u1"))


@pytest.mark.long
def test_random_keys_and_bits_are_those_of_cpus() -> None:
    def program(key: Any) -> Any:
        keys = sd.random.split(key, 8)
        return sd.random.normal(keys[1], (8, 4)), sd.random.bits(key, (8,), "uint8"), keys

    key = sd.random.key(7)
    found = sd.jit(program, backend="pjrt")(key)
    expected = sd.jit(program)(key)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_array_equal(found[1], expected[1])
    same = sd.random.key_data(found[2]) == sd.random.key_data(expected[2])
    assert np.asarray(same).all()


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_keys_of_four_words_are_those_of_cpus(impl: str) -> None:
    captured = sd.random.split(sd.random.key(1, impl=impl), 3)

    def program(keys: Any) -> Any:
        bits = sd.vmap(lambda key: sd.random.bits(key, (3,)))(keys)
        return bits, keys[::2], captured[1], sd.random.split(keys[0], 2)

    keys = sd.random.split(sd.random.key(7, impl=impl), 4)
    bits, *made = sd.jit(program)(keys)
    found = sd.jit(program, backend="pjrt")(keys)
    # Keys that are on the devices are arguments of the next program.
    again = sd.jit(lambda keys: keys, backend="pjrt")(found[1])
    sharded = sd.jit(program)(sd.device_put(keys, NamedSharding(grid(), P("x"))))
    np.testing.assert_array_equal(found[0], bits)
    np.testing.assert_array_equal(sharded[0], bits)
    for a, b in zip((*found[1:], again, *sharded[1:]), (*made, made[0], *made), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(sd.random.key_data(a), sd.random.key_data(b))


@pytest.mark.long
def test_the_original_random_scheme_gives_the_bits_of_cpus() -> None:
    with sd.config(threefry_partitionable=False):
        key = sd.random.key(3)
        found = sd.jit(lambda key: sd.random.bits(key, (5,)), backend="pjrt")(key)
        np.testing.assert_array_equal(found, sd.random.bits(key, (5,)))


@pytest.mark.long
def test_uneven_shards_are_padded() -> None:
    x = sd.device_put(small_integers(5), NamedSharding(grid(), P("x")), uneven="pad")
    got = sd.jit(lambda x: x - snp.max(x), uneven="pad")(x)
    np.testing.assert_array_equal(got, small_integers(5) - small_integers(5).max())
    assert [shard.data.shape for shard in got.addressable_shards][::2] == [(2,), (2,), (1,), (0,)]


@pytest.mark.long
def test_pmap_runs_on_all_devices() -> None:
    mean = sd.pmap(lambda x: x - sd.lax.pmean(x, "i"), axis_name="i", backend="pjrt")
    a = small_integers(8, 3)
    result = mean(a)
    np.testing.assert_allclose(result, a - a.mean(0), rtol=1e-6)
    assert list(result.sharding.device_assignment) == sd.devices("pjrt")


@pytest.mark.long
def test_loops_and_branches() -> None:
    def program(x: Any, n: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            carry = sd.lax.cond(snp.sum(row) > 0, lambda c: c + row, lambda c: c - row, carry)
            return carry, snp.max(carry)

        last, most = sd.lax.scan(step, x[0], x)
        return last, most, sd.lax.while_loop(lambda v: v[0] < n, lambda v: (v[0] + 1, v[1] * 2),
                                             (0, last))  # fmt: skip

    a = small_integers(8, 4)
    expected = sd.jit(program)(a, 3)
    found = sd.jit(program)(place(a, None, "x"), 3)
    for want, got in zip(sd.tree.leaves(expected), sd.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["f32", pytest.param("bf16", marks=pytest.mark.long)])
def test_nan_is_the_maximum_and_the_minimum_over_devices(dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal((8, 6)).astype(NUMPY_DTYPES[dtype])
    x[3, :2], x[7, 1], x[:, 2] = np.nan, np.nan, np.nan
    x[:, 3] = -np.inf

    def program(x: Any) -> Any:
        return [f(x, axis=0) for f in (snp.max, snp.min, snp.argmax, snp.argmin)]

    for made, expected in zip(sd.jit(program)(place(x, "x")), sd.jit(program)(x), strict=True):
        found, stated = (np.asarray(each).astype(np.float32) for each in (made, expected))
        np.testing.assert_array_equal(found, stated)  # NumPy compares no NaN of bf16.


def compare_with_cpu(program: Any, x: Any, rtol: float = 1e-6) -> None:
    """Compare the results of a program on one device with those of the backend `cpu`."""
    with sd.config(enable_x64=True):
        results = zip(sd.jit(program)(x), sd.jit(program, backend="pjrt")(x), strict=True)
    for wanted, found in results:
        expected, made = (np.asarray(each).astype(np.float64) for each in (wanted, found))
        np.testing.assert_allclose(made, expected, rtol)


def square(dtype: str) -> Any:
    """Return positive numbers with NaN in the diagonal, as many that XLA would use YNNPACK."""
    x = np.random.default_rng(0).uniform(1, 2, (64, 64)).astype(NUMPY_DTYPES[dtype])
    np.fill_diagonal(x, np.nan)
    return x


EACH_AXIS = pytest.mark.parametrize("axis", [1, pytest.param(0, marks=pytest.mark.long)])


@EACH_AXIS
@pytest.mark.parametrize(
    "dtype", ["f32", *(pytest.param(name, marks=pytest.mark.long) for name in ("f64", "bf16"))]
)
def test_reductions_with_nan_in_each_position(dtype: str, axis: int) -> None:
    def program(x: Any) -> Any:
        positive = sd.nn.relu(x)
        return snp.max(x, axis), snp.min(x, axis), snp.sum(positive, axis)

    compare_with_cpu(program, square(dtype), 1e-2 if dtype == "bf16" else 1e-6)


@EACH_AXIS
@pytest.mark.long
def test_other_maxima_with_nan_in_each_position(axis: int) -> None:
    def program(x: Any) -> Any:
        return [
            snp.argmax(x, axis),
            sd.lax.cummax(x, axis),
            sd.lax.cummin(x, axis),
            snp.sort(x, axis),
            sd.lax.reduce_window(x, -np.inf, sd.lax.max, (3, 3), (1, 1), "SAME"),
            snp.zeros(64, x.dtype).at[snp.arange(64) // 2].min(x[:, 0]),
            snp.sum(snp.minimum(x, 1), axis),
            snp.max(x @ x, axis),
            snp.max(x),
        ]

    compare_with_cpu(program, square("f32"))


@pytest.mark.long
def test_reductions_round_their_operands() -> None:
    x = np.random.default_rng(0).uniform(1, 2, (64, 64)).astype(np.float32)
    compare_with_cpu(lambda x: [snp.sum(x.astype("bfloat16").astype("float32"), 0)], x)


def test_a_forked_process_is_refused() -> None:
    x = place(small_integers(8), "x")
    add = sd.jit(lambda x: x + 1)
    add(x)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 and JAX warn about forks.
        child = os.fork()
    if child == 0:
        try:
            add(x)
        except PJRTError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as text:
        assert text.read().endswith(
            "XLA's threads do not exist in a forked process; start it with "
            "multiprocessing.get_context('spawn')"
        )
    os.waitpid(child, 0)


@pytest.mark.long
def test_sums_of_equal_complex_numbers() -> None:
    def program(x: Any) -> Any:
        return sd.lax.psum(x, "x"), sd.lax.psum(snp.full((3,), 1 + 2j), "y")

    x = place(np.arange(4) * 1j, "x")
    specs: dict[str, Any] = {"in_specs": P("x"), "out_specs": (P(), P())}
    mapped = sd.jit(sd.shard_map(program, mesh=grid(), check_vma=False, **specs))
    total, doubled = mapped(x)
    np.testing.assert_array_equal(total, [6j])
    np.testing.assert_array_equal(doubled, [2 + 4j] * 3)


# Donation


def test_results_overwrite_donated_arguments() -> None:
    step = sd.jit(lambda x: x + snp.sum(x), donate_argnums=0)
    x = step(place(small_integers(8, 4), "x", "y"))
    before = addresses(x)
    y = step(x)
    assert x.is_deleted()
    assert addresses(y) == before
    compiled = step.lower(y).compile()
    assert compiled.memory_analysis().alias_size_in_bytes == 16


@pytest.mark.long
def test_donation_keeps_what_others_refer_to() -> None:
    step = sd.jit(lambda x, y: x + y, donate_argnums=0)
    x = sd.jit(lambda x: x + 1)(place(small_integers(8, 4), "x", "y"))
    other = sd.jit(lambda x: x)(x)
    view = np.asarray(x)
    copy = view.copy()
    np.testing.assert_array_equal(step(x, other), 2 * copy)
    np.testing.assert_array_equal(view, copy)
    np.testing.assert_array_equal(step(other, other), 2 * copy)


@pytest.mark.long
def test_an_argument_that_is_moved_is_not_deleted() -> None:
    step = sd.jit(lambda x: x + 1, donate_argnums=0, backend="pjrt")
    x = snp.asarray(small_integers(3))
    for _ in range(2):
        np.testing.assert_array_equal(step(x), small_integers(3) + 1)
    assert not x.is_deleted()


# Runs


def test_many_runs_in_a_row_do_not_wait_for_each_other() -> None:
    step = sd.jit(lambda x: x - snp.mean(x))
    outs: list[Any] = []

    def repeat() -> None:
        x = place(small_integers(8, 4), "x", "y")
        for _ in range(40):
            x = step(x)
        outs.append(x)

    threads = [Thread(target=repeat) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x in outs:
        np.testing.assert_allclose(np.asarray(x).mean(), 0, atol=1e-6)


@pytest.mark.long
def test_a_compiled_program_states_xlas_text_and_memory() -> None:
    compiled = sd.jit(lambda x: x @ x).lower(place(small_integers(8, 8), "x", "y")).compile()
    text = compiled.as_text("schedule")
    assert text.startswith("HloModule main")
    assert "replica_count=8" in text
    assert text.count(" all-gather(") == 2
    assert compiled.memory_analysis().argument_size_in_bytes == 32
    with pytest.raises(PipelineError) as caught:
        compiled.as_text("fuse")
    assert str(caught.value).split("\n")[0] == (
        "no stage is named 'fuse'; the stages are expand-rbg-keys, inline, widen-small-dtypes, "
        "dce, or schedule"
    )


@pytest.mark.long
def test_arguments_may_be_on_other_devices() -> None:
    there = sd.device_put(small_integers(4), sd.devices("pjrt")[2])
    back = sd.device_put(sd.jit(lambda x: -x)(there), sd.devices("cpu")[1])
    np.testing.assert_array_equal(back + 1, 1 - small_integers(4))
    with pytest.raises(ShardingError) as caught:
        sd.jit(lambda x: x, backend="pjrt")(back)
    assert str(caught.value).startswith(
        "lambda must run on backend 'pjrt', and argument x of lambda is on CpuDevice(id=1); place "
        "it on devices('pjrt')"
    )


# Errors


def test_a_compiled_program_names_the_devices_of_other_arguments() -> None:
    x, other = (place(small_integers(4, 2), "x", mesh=grid(d)) for d in (None, sd.devices()))
    with pytest.raises(ArgumentError) as caught:
        sd.jit(lambda x: x + 1).lower(x).compile()(other)
    given, expected = str(caught.value).split(", and it was compiled for ")
    assert given.endswith(" on cpu:0, cpu:1, cpu:2, cpu:3, cpu:4, cpu:5, cpu:6, cpu:7")
    assert " on pjrt:0, pjrt:1, pjrt:2, pjrt:3, pjrt:4, pjrt:5, pjrt:6, pjrt:7; lower" in expected


def test_unsupported_operations_are_refused_with_their_line() -> None:
    def call_back(x: Any) -> Any:
        return sd.pure_callback(lambda x: x, sd.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(UnsupportedByPJRTError) as caught:
        sd.jit(call_back, backend="pjrt")(small_integers(3))
    lines = str(caught.value).split("\n")
    assert lines[0].startswith("pure-callback %0 (")
    assert "eight_devices.py:" in lines[0]
    assert lines[0].endswith("): backend 'pjrt' does not support the operation")
    assert lines[1].startswith("  | %0 = pure-callback(%x, ")
    assert lines[2] == (
        "PJRT programs call no functions of Python; run the program on devices('cpu'), without "
        "backend='pjrt'"
    )


def test_missing_devices_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    first = runtime.list_devices()[:2]
    x = place(small_integers(8), "x")
    monkeypatch.setattr(runtime, "_load_devices", lambda: tuple(first))
    with pytest.raises(PJRTError) as caught:
        sd.jit(lambda x: x + 2)(x)
    assert str(caught.value) == (
        "the program needs 8 devices of kind 'pjrt', and JAX has 2 of platform 'cpu'; set "
        "XLA_FLAGS=--xla_force_host_platform_device_count=8 in the environment before the program "
        "starts"
    )
    advice = (
        "or set XLA_FLAGS=--xla_force_host_platform_device_count=8 in the environment before the "
        "program starts"
    )
    with pytest.raises(MeshError) as small:
        grid()
    assert str(small.value).split("\n")[0] == (
        "a mesh of shape (4, 2) needs 8 devices, and there are 2; choose sizes whose product is at "
        f"most 2, {advice}"
    )
    with pytest.raises(BatchError) as few:
        sd.pmap(lambda x: x, backend="pjrt")(small_integers(8))
    assert str(few.value).split("\n")[0] == (
        "pmap of lambda maps 8 positions, each on its own device, and there are 2 devices; map "
        f"fewer, with vmap for the rest, {advice}"
    )


@pytest.mark.long
def test_decompositions_are_refused() -> None:
    with pytest.raises(UnsupportedByPJRTError) as caught:
        sd.jit(lambda x: snp.linalg.qr(x)[0], backend="pjrt")(small_integers(3, 3))
    assert str(caught.value).split("\n")[2] == (
        "StableHLO has no such decomposition; run the program on devices('cpu'), without "
        "backend='pjrt'"
    )


@pytest.mark.long
@pytest.mark.parametrize("program", collective_programs(), ids=lambda program: program.name)
def test_xla_keeps_the_collectives(program: Any) -> None:
    found = compare_program(program)
    assert found.error <= MAX_RELATIVE_ERROR
    assert found.verdict == "same"


@pytest.mark.long
@pytest.mark.parametrize("program", collective_programs()[::8], ids=lambda program: program.name)
def test_jax_lowers_the_programs_for_tpus(program: Any) -> None:
    import jax
    from jax import export

    library = communicated_library("pjrt")
    structs = [
        sd.ShapeDtypeStruct(each.shape, np.dtype(each.dtype), sharding=library.sharding(each.spec))
        for each in program.arguments
    ]
    options: dict[str, Any] = {"uneven": "pad"} if program.uneven else {}
    lowered = sd.jit(partial(program.run, library), **options).lower(*structs)
    module = Pipeline.parse(PIPELINE)(lowered.after("dce"))
    body = module.main.body

    def results(*args: Any) -> list[Any]:
        return [jax.numpy.zeros(each.type.shape, each.type.numpy) for each in body.returns]

    params = [jax.ShapeDtypeStruct(each.type.shape, each.type.numpy) for each in body.params]
    stub = export.export(jax.jit(results, keep_unused=True), platforms=("tpu",))(*params)
    artifact = portable_artifact(write_program(module, {}))
    exported = dataclasses.replace(stub, mlir_module_serialized=artifact)
    text = jax.jit(exported.call).trace(*params).lower(lowering_platforms=("tpu",)).as_text()
    kept = [each for each in ("all_reduce", "all_gather", "all_to_all") if each in text]
    assert kept == [each for each in ("all_reduce", "all_gather", "all_to_all")
                    if each in write_program(module, {})]  # fmt: skip


def portable_artifact(text: str) -> bytes:
    """Return StableHLO text as portable bytecode."""
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib import _jax
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    bytecode = BytesIO()
    with make_ir_context():
        ir.Module.parse(text).operation.write_bytecode(bytecode)
    version = stablehlo.get_current_version()
    made: bytes = _jax.mlir.serialize_portable_artifact(bytecode.getvalue(), version, True)
    return made


@pytest.mark.long
def test_errors_of_xla_are_errors_of_this_package() -> None:
    with pytest.raises(PJRTError) as caught:
        runtime.LoadedProgram("f", "module {}", runtime.list_devices()[:1], [])
    assert str(caught.value).startswith("XLA cannot compile the program f: ")


def delete_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from jaxlib import _jax

    monkeypatch.delattr(_jax, "CompileOptions")


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        delete_a_name,
        lambda monkeypatch: monkeypatch.setattr(runtime, "CPU_OPTIONS", {"xla_other": "1"}),
    ],
)
def test_other_interfaces_of_jaxlib_are_recognized(
    change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jaxlib

    change(monkeypatch)
    with pytest.raises(PJRTError) as caught:
        runtime.LoadedProgram(
            "f", "module { func.func @main() { return } }", runtime.list_devices()[:1], []
        )
    assert str(caught.value).startswith(
        f"jaxlib {jaxlib.__version__} has another interface than the tested versions (0.10.1, "
        "0.10.2, 0.11.2, 0.12.0): "
    )
