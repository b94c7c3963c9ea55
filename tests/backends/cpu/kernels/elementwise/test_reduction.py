"""Reductions alone, and groups with reductions, in every layout."""

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
from shardir.ir.operation import OPS
from shardir.ir.types import COMPLEX, DTYPES, FLOATS, TensorType
from shardir.ops.control_flow.fused import fused
from shardir.passes.fusion.fuse import Fuse
from tests.backends.cpu.kernels.elementwise.fused_execution import (
    apart,
    computed,
    dense,
    flipped,
    from_line,
)
from tests.backends.cpu.phase_runner import lower_and_run, make_op

CASES = [
    ((5, 7), (0,)), ((5, 70), (1,)), ((5, 70), (0,)), ((3, 5, 33), (1,)), ((3, 5, 33), (0, 2)),
    ((3, 5, 33), (0, 1, 2)), ((4, 64), (1,)), ((64, 32), (0,)), ((2, 1, 3), (1,)),
]  # fmt: skip
TOLERANCE = {"f16": 1e-3, "bf16": 1e-2, "f32": 2e-7, "f64": 1e-14, "c64": 1e-6, "c128": 1e-14}


def takes(name: str, dtype: str) -> bool:
    if name in ("any", "all"):
        return dtype == "bool"
    if name in ("max", "min"):
        return dtype not in ("key", *COMPLEX)
    return dtype not in ("bool", "key")


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all"])
def test_a_reduction_is_its_reference(name: str) -> None:
    rng = np.random.default_rng(0)
    for dtype in DTYPES:
        if not takes(name, dtype):
            continue
        for number, (shape, dims) in enumerate(CASES if dtype == "f32" else CASES[2:5]):
            op = make_op(OPS[name], TensorType(shape, dtype), dims=dims)
            real = rng.normal(size=shape) * 3
            kind = op.operands[0].type.numpy
            # What a negative float is without a sign differs between processors.
            real = real.astype(np.int64) if kind.kind == "u" else real
            x = np.asarray(real > 0 if dtype == "bool" else real).astype(kind)
            if name in ("max", "min") and dtype in FLOATS and number % 2 == 0:
                x.ravel()[3::20] = np.nan
            for lay in (dense, flipped, apart) if dtype == "f32" else (dense,):
                out = np.zeros(op.result.type.shape, op.result.type.numpy)
                assert lower_and_run(lower_loop_nest, op, [lay(x)], [out]), (dtype, shape)
                wanted = np.asarray(apply_op(op, [x]))
                if dtype in TOLERANCE:
                    a, b = out.astype(np.complex128), wanted.astype(np.complex128)
                    np.testing.assert_allclose(a, b, TOLERANCE[dtype], TOLERANCE[dtype])
                else:
                    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("length", [63, 64, 65, 127, 129, 255, 256, 257, 300, 511, 513, 1000])
def test_the_last_vector_of_narrow_elements_is_cut(length: int) -> None:
    """A vector has up to 256 of them, more than one word of a mask says."""
    for name, dtype in (("all", "bool"), ("any", "bool"), ("min", "i8"), ("max", "i16")):
        op = make_op(OPS[name], TensorType((2, length), dtype), dims=(1,))
        numpy = op.operands[0].type.numpy
        low, high = (-5, -3) if name == "max" else (3, 5)
        x = np.full((2, length), name == "all" if dtype == "bool" else low).astype(numpy)
        x[1, -1] = name != "all" if dtype == "bool" else high
        out = np.zeros(2, numpy)
        assert lower_and_run(lower_loop_nest, op, [x], [out]), (name, dtype)
        np.testing.assert_array_equal(out, np.asarray(apply_op(op, [x])))


def test_signed_zeros_have_an_order() -> None:
    for name, wanted in (("max", 0.0), ("min", -0.0)):
        x = np.array([[-0.0, 0.0] * 20, [0.0, -0.0] * 20], np.float32)
        out = np.zeros(2, np.float32)
        lower_and_run(
            lower_loop_nest, make_op(OPS[name], TensorType((2, 40), "f32"), dims=(1,)), [x], [out]
        )
        assert [np.signbit(v) for v in out] == [np.signbit(np.float32(wanted))] * 2


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


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_walk_cut_into_phases(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all of these were large: partial results, and what combines them."""
    monkeypatch.setattr(reduction, "MIN_SPLIT_ELEMENTS", 1)
    monkeypatch.setattr(reduction, "MIN_UNSPLIT_BLOCKS", 1 << 40)
    monkeypatch.setattr(split_reduction, "BLOCK_ELEMENTS", 300)
    rng = np.random.default_rng(number)
    for shape in ((33, 70), (2, 2000), (7, 5)):
        x = rng.normal(size=shape).astype(np.float32)
        made = Fuse()(sd.jit(PROGRAMS[number]).lower(x).compile().module)
        wanted = run(made, [x])
        for lay in (dense, flipped):
            for want, got in zip(wanted, computed(made, [x], lay), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_the_number_of_workers_changes_no_bit() -> None:
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


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_chain_of_rows_or_columns(number: int) -> None:
    """Each program of small and of larger arrays, which cross the ends of vectors and blocks."""
    rng = np.random.default_rng(number)
    for shape in ((33, 70), (7, 64), (300, 5), (3, 1500)):
        x = rng.normal(size=shape).astype(np.float32)
        module = sd.jit(PROGRAMS[number]).lower(x).compile().module
        made = Fuse()(module)
        wanted = run(module, [x])
        for lay in (dense, flipped, apart):
            for want, got in zip(wanted, computed(made, [x], lay), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("shape", [(9, 256), (9, 250)])
@pytest.mark.parametrize("number", [0, 2, 7, 9, 13])
def test_large_results_along_rows_are_streamed(shape: tuple[int, int], number: int) -> None:
    """As if these were large; wherever they begin, the bits are those of small ones."""
    x = np.random.default_rng(number).normal(size=shape).astype(np.float32)
    module = Fuse()(sd.jit(PROGRAMS[number]).lower(x).compile().module)
    wanted = computed(module, [x])
    machine = replace(host_machine(), shared_cache_bytes=1)
    for skip in (0, 1):
        got = computed(module, [x], partial(from_line, skip=skip), machine=machine)
        assert [a.tobytes() for a in got] == [a.tobytes() for a in wanted]


@pytest.mark.parametrize("rows", [1, 3000])
def test_rows_come_from_memory_while_others_are_computed(rows: int) -> None:
    """Where there are so many that they do not lie in a cache; the result is whole and right."""
    x = np.random.default_rng(0).normal(size=(rows, 640)).astype(np.float32)
    module = Fuse()(sd.jit(nn.softmax).lower(x).compile().module)
    op = next(op for op in module.main.body.ops if op.spec is fused)
    out = np.zeros_like(x)
    (phase,) = (
        lower_and_run(
            lower_loop_nest, op, [x], [out], machine=replace(host_machine(), l2_bytes=1 << 20)
        )
        or ()
    )
    assert ("llvm.prefetch" in phase.kernel.text()) == (rows > 1)
    (wanted,) = run(module, [x])
    np.testing.assert_allclose(out, wanted, rtol=1e-5)


@pytest.mark.parametrize("rows", [70, 71, 3])
def test_rows_come_from_memory_while_those_before_are_added(rows: int) -> None:
    """Nothing behind the last one is touched for good: it is at the end of its memory."""
    x = np.random.default_rng(0).normal(size=(100, 640)).astype(np.float32)[100 - rows :]
    op, out = make_op(OPS["sum"], TensorType((rows, 640), "f32"), dims=(0,)), np.zeros(640, "f4")
    (phase,) = lower_and_run(lower_loop_nest, op, [x], [out]) or ()
    assert ("llvm.prefetch" in phase.kernel.text()) == (rows > register_reduction.MAX_REGISTER_ROWS)
    np.testing.assert_allclose(out, x.sum(0, np.float64), rtol=1e-5, atol=1e-5)


def test_what_streams_is_large_and_begins_lines() -> None:
    op = make_op(OPS["sub"], TensorType((64, 64), "f32"), TensorType((64, 64), "f32"))
    x, out = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)

    def text(cache_bytes: int) -> str:
        machine = replace(host_machine(), shared_cache_bytes=cache_bytes)
        (phase,) = lower_and_run(lower_loop_nest, op, [x, x], [out], machine=machine) or ()
        return phase.kernel.text()

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


@pytest.mark.parametrize("number", range(len(FEW_ROWS)))
@pytest.mark.parametrize("columns", [300, 40_000])
def test_few_rows_are_reduced_in_registers(
    number: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bits of sums that wait in scratch memory, wherever results begin."""
    x = np.random.default_rng(number).normal(size=(6, columns)).astype(np.float32)
    module = Fuse()(sd.jit(FEW_ROWS[number]).lower(x).compile().module)
    made = [computed(module, [x], workers=workers) for workers in (1, 3)]
    machine = replace(host_machine(), shared_cache_bytes=1)
    made += [
        computed(module, [x], partial(from_line, skip=skip), machine=machine) for skip in (0, 1)
    ]
    monkeypatch.setattr(register_reduction, "MAX_REGISTER_ROWS", 0)
    monkeypatch.setattr(reduction, "MIN_SPLIT_ELEMENTS", 1 << 40)
    wanted = computed(module, [x])
    for got in made:
        assert [a.tobytes() for a in got] == [a.tobytes() for a in wanted]
    for want, got in zip(run(module, [x]), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_rows_are_few_in_registers_alone() -> None:
    """The walk of few rows has no accumulators in scratch memory; that of more rows has some."""
    stores = []
    for rows in (register_reduction.MAX_REGISTER_ROWS, register_reduction.MAX_REGISTER_ROWS + 1):
        op = make_op(OPS["sum"], TensorType((rows, 64), "f32"), dims=(0,))
        (phase,) = (
            lower_and_run(
                lower_loop_nest, op, [np.ones((rows, 64), np.float32)], [np.zeros(64, np.float32)]
            )
            or ()
        )
        stores.append("x double>, ptr" in phase.kernel.text())
    assert stores == [False, True]
