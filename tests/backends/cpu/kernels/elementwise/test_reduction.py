"""Reductions, and fused groups with reductions, in every layout."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir import nn
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernels.elementwise import reduction, register_reduction, split_reduction
from shardir.backends.cpu.kernels.elementwise.rules import lower_loop_nest
from shardir.interpret.interpreter import apply_op, run
from shardir.ir.dtypes import KEYS
from shardir.ir.operation import OPS
from shardir.ir.types import COMPLEX, TensorType
from shardir.ops.control_flow.fused import fused
from shardir.passes.fusion.fuse import Fuse
from tests.backends.cpu.kernels.elementwise.fused_execution import (
    dense,
    offset_from_cache_line,
    reversed_dims,
    run_with_kernels,
    strided,
)
from tests.backends.cpu.phase_runner import lower_and_run, make_op
from tests.dtype_groups import DTYPES, FLOATS

pytestmark = pytest.mark.sample(5)

CASES = [
    ((5, 7), (0,)), ((5, 70), (1,)), ((5, 70), (0,)), ((3, 5, 33), (1,)), ((3, 5, 33), (0, 2)),
    ((3, 5, 33), (0, 1, 2)), ((4, 64), (1,)), ((64, 32), (0,)), ((2, 1, 3), (1,)),
]  # fmt: skip
CPUS = ["znver3", "znver4"]
"""Processors for which kernels prefetch operands, and do not if they have little arithmetic."""
TOLERANCE = {"f16": 1e-3, "bf16": 1e-2, "f32": 2e-7, "f64": 1e-14, "c64": 1e-6, "c128": 1e-14}


def is_supported(name: str, dtype: str) -> bool:
    if name in ("any", "all"):
        return dtype == "bool"
    if name in ("max", "min"):
        return dtype not in (*KEYS, *COMPLEX)
    return dtype not in ("bool", *KEYS)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all"])
def test_reductions_match_the_reference(name: str) -> None:
    rng = np.random.default_rng(0)
    for dtype in DTYPES:
        if not is_supported(name, dtype):
            continue
        for program_index, (shape, dims) in enumerate(CASES if dtype == "f32" else CASES[2:5]):
            op = make_op(OPS[name], TensorType(shape, dtype), dims=dims)
            real = rng.normal(size=shape) * 3
            kind = op.operands[0].type.numpy
            # Conversions of negative floats to unsigned integers differ between processors.
            real = real.astype(np.int64) if kind.kind == "u" else real
            x = np.asarray(real > 0 if dtype == "bool" else real).astype(kind)
            if name in ("max", "min") and dtype in FLOATS and program_index % 2 == 0:
                x.ravel()[3::20] = np.nan
            for layout in (dense, reversed_dims, strided) if dtype == "f32" else (dense,):
                out = np.zeros(op.result.type.shape, op.result.type.numpy)
                assert lower_and_run(lower_loop_nest, op, [layout(x)], [out]), (dtype, shape)
                expected = np.asarray(apply_op(op, [x]))
                if dtype in TOLERANCE:
                    a, b = out.astype(np.complex128), expected.astype(np.complex128)
                    np.testing.assert_allclose(a, b, TOLERANCE[dtype], TOLERANCE[dtype])
                else:
                    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("length", [63, 64, 65, 127, 129, 255, 256, 257, 300, 511, 513, 1000])
def test_the_last_vector_of_narrow_elements_is_masked(length: int) -> None:
    """A vector has up to 256 elements, more than the bits of one mask word."""
    for name, dtype in (("all", "bool"), ("any", "bool"), ("min", "i8"), ("max", "i16")):
        op = make_op(OPS[name], TensorType((2, length), dtype), dims=(1,))
        numpy = op.operands[0].type.numpy
        low, high = (-5, -3) if name == "max" else (3, 5)
        x = np.full((2, length), name == "all" if dtype == "bool" else low).astype(numpy)
        x[1, -1] = name != "all" if dtype == "bool" else high
        out = np.zeros(2, numpy)
        assert lower_and_run(lower_loop_nest, op, [x], [out]), (name, dtype)
        np.testing.assert_array_equal(out, np.asarray(apply_op(op, [x])))


def test_extrema_order_signed_zeros() -> None:
    for name, expected in (("max", 0.0), ("min", -0.0)):
        x = np.array([[-0.0, 0.0] * 20, [0.0, -0.0] * 20], np.float32)
        out = np.zeros(2, np.float32)
        lower_and_run(
            lower_loop_nest, make_op(OPS[name], TensorType((2, 40), "f32"), dims=(1,)), [x], [out]
        )
        assert [np.signbit(v) for v in out] == [np.signbit(np.float32(expected))] * 2


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    return (x - mean) / jnp.sqrt(jnp.var(x, axis=-1, keepdims=True) + 1e-5) * scale + shift


def batch_norm(x: Any) -> Any:
    return (x - jnp.mean(x, 0)) / jnp.sqrt(jnp.var(x, 0) + 1e-5)


PROGRAMS: list[Callable[..., Any]] = [
    nn.softmax,
    lambda x: nn.softmax(x, axis=0),
    lambda x: layer_norm(x, x[0], x[1]),
    sd.grad(lambda x: jnp.sum(layer_norm(x, x[0], x[1]) ** 2)),
    lambda x: jnp.log(jnp.sum(jnp.exp(x - jnp.max(x, 0)), 0)),
    batch_norm,
    sd.grad(lambda x: jnp.sum(jnp.sin(batch_norm(x)))),
    lambda x: jnp.tanh(x) / jnp.sum(jnp.tanh(x)),
    lambda x: x / jnp.sqrt(jnp.sum(x * x)),
    lambda x: (jnp.sum(jnp.exp(x), 1), jnp.exp(x)),
    sd.grad(lambda x: jnp.sum(nn.gelu(x) * nn.softmax(x))),
    sd.grad(lambda x: -jnp.mean(nn.log_softmax(x)[:, 3])),
    lambda x: jnp.sum(x * jnp.arange(x.shape[1]), 1) + jnp.arange(x.shape[0]),
    lambda x: jnp.where(jnp.all(x > -5, 1)[:, None], x, 0.0) * jnp.max(x),
]


@pytest.mark.parametrize("program_index", range(len(PROGRAMS)))
def test_split_reductions_match_the_reference(
    program_index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All reductions are split into partial results and their combination, as if they were
    large."""
    monkeypatch.setattr(reduction, "MIN_SPLIT_ELEMENTS", 1)
    monkeypatch.setattr(reduction, "MIN_UNSPLIT_BLOCKS", 1 << 40)
    monkeypatch.setattr(split_reduction, "BLOCK_ELEMENTS", 300)
    rng = np.random.default_rng(program_index)
    for shape in ((33, 70), (2, 2000), (7, 5)):
        x = rng.normal(size=shape).astype(np.float32)
        made = Fuse()(sd.jit(PROGRAMS[program_index]).lower(x).compile().module)
        expected = run(made, [x])
        for layout in (dense, reversed_dims):
            for want, got in zip(expected, run_with_kernels(made, [x], layout), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_reductions_do_not_depend_on_the_worker_count() -> None:
    rng = np.random.default_rng(3)
    for shape, dims in (((1 << 18,), (0,)), ((700, 400), (0,)), ((3, 90_000), (1,))):
        x = rng.normal(size=shape).astype(np.float32)
        op = make_op(OPS["sum"], TensorType(shape, "f32"), dims=dims)
        bits = set()
        for workers in (1, 2, 7):
            out = np.zeros(op.result.type.shape, np.float32)
            lower_and_run(lower_loop_nest, op, [x], [out], workers)
            bits.add(out.tobytes())
            np.testing.assert_allclose(out, x.sum(dims, np.float64), rtol=1e-6, atol=1e-6)
        assert len(bits) == 1


@pytest.mark.parametrize("program_index", range(len(PROGRAMS)))
def test_fused_reductions_match_the_reference(program_index: int) -> None:
    """Every program runs on small arrays and on arrays larger than vectors and blocks."""
    rng = np.random.default_rng(program_index)
    for shape in ((33, 70), (7, 64), (300, 5), (3, 1500)):
        x = rng.normal(size=shape).astype(np.float32)
        module = sd.jit(PROGRAMS[program_index]).lower(x).compile().module
        made = Fuse()(module)
        expected = run(module, [x])
        for layout in (dense, reversed_dims, strided):
            for want, got in zip(expected, run_with_kernels(made, [x], layout), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("shape", [(9, 256), (9, 250)])
@pytest.mark.parametrize("program_index", [0, 2, 7, 9, 13])
def test_streaming_kernels_give_the_same_bits(shape: tuple[int, int], program_index: int) -> None:
    """Streaming kernels give the bits of ordinary kernels for any alignment."""
    x = np.random.default_rng(program_index).normal(size=shape).astype(np.float32)
    module = Fuse()(sd.jit(PROGRAMS[program_index]).lower(x).compile().module)
    expected = run_with_kernels(module, [x])
    machine = replace(host_machine(), shared_cache_bytes=1)
    for skip in (0, 1):
        got = run_with_kernels(
            module, [x], partial(offset_from_cache_line, skip=skip), machine=machine
        )
        assert [a.tobytes() for a in got] == [a.tobytes() for a in expected]


def center(x: Any) -> Any:
    return x - jnp.mean(x, -1, keepdims=True)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("function", [nn.softmax, center])
@pytest.mark.parametrize("rows", [1, 3000])
def test_rows_are_prefetched_during_row_computations(
    rows: int, function: Callable[[Any], Any], cpu: str
) -> None:
    """Rows are prefetched if the array is larger than the cache, on a Zen 4 only during much
    arithmetic; the result is complete and correct."""
    x = np.random.default_rng(0).normal(size=(rows, 640)).astype(np.float32)
    module = Fuse()(sd.jit(function).lower(x).compile().module)
    machine = replace(host_machine(), l2_bytes=1 << 20, cpu=cpu)
    op = next(op for op in module.main.body.ops if op.spec is fused)
    out = np.zeros_like(x)
    (phase,) = lower_and_run(lower_loop_nest, op, [x], [out], machine=machine) or ()
    pays_off = cpu != "znver4" or function is nn.softmax
    assert ("llvm.prefetch" in phase.kernel.text(machine)) == (rows > 1 and pays_off)
    (expected,) = run(module, [x])
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("rows", [70, 71, 3])
def test_rows_are_prefetched_during_column_sums(rows: int, cpu: str) -> None:
    """Prefetches beyond the last row do no harm, although the array ends there."""
    machine = replace(host_machine(), cpu=cpu)
    x = np.random.default_rng(0).normal(size=(100, 640)).astype(np.float32)[100 - rows :]
    op, out = make_op(OPS["sum"], TensorType((rows, 640), "f32"), dims=(0,)), np.zeros(640, "f4")
    (phase,) = lower_and_run(lower_loop_nest, op, [x], [out], machine=machine) or ()
    assert ("llvm.prefetch" in phase.kernel.text(machine)) == (
        rows > register_reduction.MAX_REGISTER_ROWS and cpu != "znver4"
    )
    np.testing.assert_allclose(out, x.sum(0, np.float64), rtol=1e-5, atol=1e-5)


def test_columns_of_arrays_in_memory_are_read_row_by_row() -> None:
    """A step adds several rows of an array in the caches; fewer if it prefetches later rows."""
    x = np.random.default_rng(0).normal(size=(71, 640)).astype(np.float32)
    op = make_op(OPS["sum"], TensorType(x.shape, "f32"), dims=(0,))
    for cpu, cached_bytes, rows in (
        (CPUS[0], 1 << 20, 2 + 1), (CPUS[0], 1 << 17, 1), ("znver4", 1 << 17, 8 + 1),
    ):  # fmt: skip
        machine = replace(host_machine(), cpu=cpu, shared_cache_bytes=cached_bytes)
        out = np.zeros(640, np.float32)
        (phase,) = lower_and_run(lower_loop_nest, op, [x], [out], machine=machine) or ()
        # Sums of the f64 elements of a vector of each row of a step, and of a remaining row.
        assert phase.kernel.text(machine).count("= fadd ") in (rows, 2 * rows)
        np.testing.assert_allclose(out, x.sum(0, np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cpu", CPUS)
def test_values_of_columns_are_stored_row_by_row(cpu: str) -> None:
    """A softmax stores its exponentials until their sum is known."""
    x = np.random.default_rng(0).normal(size=(71, 640)).astype(np.float32)
    module = Fuse()(sd.jit(lambda x: nn.softmax(x, 0)).lower(x).compile().module)
    op = next(op for op in module.main.body.ops if op.spec is fused)
    out, machine = np.zeros_like(x), replace(host_machine(), cpu=cpu)
    assert lower_and_run(lower_loop_nest, op, [x], [out], machine=machine)
    (expected,) = run(module, [x])
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 70_000), (40, 5250)])
@pytest.mark.parametrize(("is_cached", "cpu"), [(True, CPUS[0]), *((False, cpu) for cpu in CPUS)])
def test_reductions_of_rows_prefetch_operands_larger_than_the_cache(
    shape: tuple[int, int], is_cached: bool, cpu: str
) -> None:
    """Prefetches beyond the last row do no harm, although the array ends there."""
    x = np.random.default_rng(0).normal(size=(shape[0] + 1, shape[1])).astype(np.float32)[1:]
    op, out = make_op(OPS["sum"], TensorType(shape, "f32"), dims=(1,)), np.zeros(shape[0], "f4")
    machine = replace(host_machine(), l2_bytes=x.nbytes - (not is_cached), cpu=cpu)
    phases = lower_and_run(lower_loop_nest, op, [x], [out], machine=machine) or ()
    prefetches = not is_cached and cpu != "znver4"
    assert any("llvm.prefetch" in each.kernel.text(machine) for each in phases) == prefetches
    np.testing.assert_allclose(out, x.sum(1, np.float64), rtol=1e-5, atol=1e-4)


def test_only_large_aligned_results_use_streaming_stores() -> None:
    op = make_op(OPS["sub"], TensorType((64, 64), "f32"), TensorType((64, 64), "f32"))
    x, out = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)

    def text(cache_bytes: int) -> str:
        machine = replace(host_machine(), shared_cache_bytes=cache_bytes)
        (phase,) = lower_and_run(lower_loop_nest, op, [x, x], [out], machine=machine) or ()
        return phase.kernel.text(host_machine())

    assert "!nontemporal" not in text(4 * out.nbytes)
    assert "!nontemporal" in text(3 * out.nbytes)
    out = np.zeros((64, 65), np.float32)[:, :64]
    assert "!nontemporal" not in text(3 * x.nbytes)


FEW_ROWS: list[Callable[..., Any]] = [
    lambda x: jnp.sum(x, 0),
    lambda x: jnp.max(x * 2, 0) - x[0],
    lambda x: (jnp.sum(x * jnp.arange(x.shape[1]), 0), jnp.min(x, 0)),
    lambda x: jnp.mean((x - x[1]) ** 2, 0) * jnp.arange(x.shape[0])[:, None],
    lambda x: jnp.sum(x.reshape(2, x.shape[0] // 2, -1), 1),
]


@pytest.mark.parametrize("program_index", range(len(FEW_ROWS)))
@pytest.mark.parametrize("columns", [300, 40_000])
def test_few_rows_are_reduced_in_registers(
    program_index: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bits equal those of sums in scratch memory for any alignment of the results."""
    x = np.random.default_rng(program_index).normal(size=(6, columns)).astype(np.float32)
    module = Fuse()(sd.jit(FEW_ROWS[program_index]).lower(x).compile().module)
    made = [run_with_kernels(module, [x], workers=workers) for workers in (1, 3)]
    machine = replace(host_machine(), shared_cache_bytes=1)
    made += [
        run_with_kernels(module, [x], partial(offset_from_cache_line, skip=skip), machine=machine)
        for skip in (0, 1)
    ]
    monkeypatch.setattr(register_reduction, "MAX_REGISTER_ROWS", 0)
    monkeypatch.setattr(reduction, "MIN_SPLIT_ELEMENTS", 1 << 40)
    expected = run_with_kernels(module, [x])
    for got in made:
        assert [a.tobytes() for a in got] == [a.tobytes() for a in expected]
    for want, got in zip(run(module, [x]), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_only_few_rows_use_registers_without_scratch_memory() -> None:
    """The loop for few rows has no accumulators in scratch memory; the loop for more rows has
    some."""
    stores = []
    for rows in (register_reduction.MAX_REGISTER_ROWS, register_reduction.MAX_REGISTER_ROWS + 1):
        op = make_op(OPS["sum"], TensorType((rows, 64), "f32"), dims=(0,))
        (phase,) = (
            lower_and_run(
                lower_loop_nest, op, [np.ones((rows, 64), np.float32)], [np.zeros(64, np.float32)]
            )
            or ()
        )
        stores.append("x double>, ptr" in phase.kernel.text(host_machine()))
    assert stores == [False, True]
