"""Cumulative operations equal the reference bit by bit in every layout."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernels.scan.cumulative import RULES
from shardir.ir.operation import OPS
from shardir.ir.types import NUMPY_DTYPES, TensorType
from tests.backends.cpu.kernels.random_layouts import random_array
from tests.backends.cpu.kernels.reference_check import (
    assert_equal_bits,
    check_against_reference,
    random_operations,
    reference_results,
)
from tests.backends.cpu.machine_descriptions import ZEN_5
from tests.backends.cpu.phase_runner import lower_and_run, make_op, run_rule, selected_kernel_names

pytestmark = pytest.mark.sample(3)


@pytest.mark.parametrize("name", sorted(RULES))
@settings(max_examples=60)
@given(st.data())
def test_cumulative_operations_equal_the_reference(name: str, data: st.DataObject) -> None:
    op = data.draw(random_operations([name]))
    assert check_against_reference(data, RULES, op)


@pytest.mark.parametrize("dtype", ["i8", "u16", "i32", "u64"])
@pytest.mark.parametrize("name", ["cumsum", "cummax", "cummin"])
@pytest.mark.parametrize("shape", [(1000,), (3, 129)])
def test_vectorized_integer_scans_equal_the_reference(
    name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    """Sums wrap around; lines end within a vector."""
    op = make_op(OPS[name], TensorType(shape, dtype), dim=len(shape) - 1, reverse=False)
    kind = NUMPY_DTYPES[dtype]
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    x = np.random.default_rng(2).integers(low, high, shape, kind, endpoint=True)
    out = np.empty_like(x)
    phases = lower_and_run(RULES[name], op, [x], [out])
    assert phases is not None
    assert all("_line_" in each for each in selected_kernel_names(RULES[name], op, ZEN_5))
    assert_equal_bits(out, reference_results(op, [x])[0])


@pytest.mark.parametrize("shape", [(100, 70), (3, 300), (17, 5, 33)])
@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_cumulative_complex_products_match_the_reference(
    dtype: str, shape: tuple[int, ...]
) -> None:
    x = random_array(dtype, shape)
    for dim in range(len(shape)):
        op = make_op(OPS["cumprod"], TensorType(shape, dtype), dim=dim, reverse=dim == 1)
        (out,) = run_rule(RULES["cumprod"], op, [x])
        assert_equal_bits(out, reference_results(op, [x])[0])


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64", "i32", "u8"])
@pytest.mark.parametrize("shape", [(100, 70), (3, 300), (17, 5, 33)])
def test_long_scans_match_the_reference(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    type = TensorType(shape, dtype)
    x = random_array(dtype, shape)
    if dtype in ("bf16", "f16", "f32", "f64"):
        x = np.random.default_rng(1).standard_normal(shape).astype(NUMPY_DTYPES[dtype])
    for dim in range(len(shape)):
        op = make_op(OPS[name], type, dim=dim, reverse=dim == 1)
        (out,) = run_rule(RULES[name], op, [x])
        assert_equal_bits(out, reference_results(op, [x])[0])


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("name", ["cumsum", "cummax"])
@pytest.mark.parametrize("dim", [0, 1])
def test_large_scans_use_streaming_stores(name: str, dim: int, shift: int) -> None:
    """The target memory is aligned to cache lines, or not aligned."""
    shape, type = (70, 128), TensorType((70, 128), "f32")
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    op = make_op(OPS[name], type, dim=dim, reverse=False)
    memory = np.zeros(type.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + 4 * shift
    out = memory[start : start + type.nbytes].view(np.float32).reshape(shape)
    phases = lower_and_run(
        RULES[name], op, [x], [out], machine=replace(host_machine(), shared_cache_bytes=1024)
    )
    assert phases is not None
    assert (
        "streaming"
        in selected_kernel_names(RULES[name], op, replace(ZEN_5, shared_cache_bytes=1024))[0]
    )
    assert "streaming" not in selected_kernel_names(RULES[name], op, ZEN_5)[0]
    assert_equal_bits(out, reference_results(op, [x])[0])
