"""Sorts with packed words and in chunks equal the reference."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.backends.numpy import sort_kernels
from shardir.backends.numpy.kernel_table import kernel_of
from shardir.ir.dtypes import KEYS
from shardir.ir.operation import OPS
from shardir.ir.types import NUMPY_DTYPES, TensorType
from tests.backends.cpu.kernels.random_layouts import random_array
from tests.backends.cpu.kernels.reference_check import (
    assert_equal_bits,
    random_operands,
    random_operations,
    reference_results,
)
from tests.backends.cpu.phase_runner import make_op
from tests.dtype_groups import DTYPES

REAL_DTYPES = [name for name in DTYPES if NUMPY_DTYPES[name].kind != "c" and name not in KEYS]


def run_kernel(op: Any, arrays: Any) -> list[Any]:
    found = kernel_of(op)(*arrays)
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("name", ["sort", "top_k"])
@given(st.data())
def test_sorts_equal_the_reference(name: str, data: st.DataObject) -> None:
    op = data.draw(random_operations([name]))
    arrays = random_operands(op, data.draw(st.integers(0, 9)))
    for out, want in zip(run_kernel(op, arrays), reference_results(op, arrays), strict=True):
        assert_equal_bits(out, want)


def test_empty_arrays_are_sorted() -> None:
    for shape in ((0, 3), (3, 0)):
        op = make_op(OPS["sort"], TensorType(shape, "f32"), dim=1)
        (out,) = run_kernel(op, [np.zeros(shape, np.float32)])
        assert out.shape == shape


@pytest.mark.parametrize("dim", [0, 1])
def test_payloads_follow_complex_keys(dim: int) -> None:
    shape = (4, 5)
    x, positions = random_array("c64", shape), np.indices(shape)[dim].astype(np.int32)
    op = make_op(OPS["sort"], TensorType(shape, "c64"), TensorType(shape, "i32"), dim=dim)
    keys, payload = run_kernel(op, [x, positions])
    assert_equal_bits(keys, np.sort(x, axis=dim))
    assert_equal_bits(payload, np.argsort(x, axis=dim, stable=True).astype(np.int32))


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", REAL_DTYPES)
@pytest.mark.parametrize("dim", [0, 1])
def test_lines_divided_between_threads_are_sorted(
    dtype: str, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data have many equal elements, zeros of both signs and NaN; positions are a second
    operand."""
    monkeypatch.setattr(sort_kernels, "MIN_PARALLEL_ELEMENTS", 100)
    monkeypatch.setattr(sort_kernels, "MAX_CHUNK_ELEMENTS", 300)
    shape = (40, 60)
    type, x = TensorType(shape, dtype), random_array(dtype, shape)
    positions = np.indices(shape)[dim].astype(np.int32)
    for op, arrays in (
        (make_op(OPS["sort"], type, dim=dim), [x]),
        (make_op(OPS["sort"], type, TensorType(shape, "i32"), dim=dim), [x, positions]),
    ):
        for out, want in zip(run_kernel(op, arrays), reference_results(op, arrays), strict=True):
            assert_equal_bits(out, want)
    if type.dtype != "bool":
        top_k_types = (type.with_shape((40, 7)), TensorType((40, 7), "i32"))
        op = make_op(OPS["top_k"], type, result=top_k_types)
        for out, want in zip(run_kernel(op, [x]), reference_results(op, [x]), strict=True):
            assert_equal_bits(out, want)


@pytest.mark.parametrize("dtype", [*REAL_DTYPES, "c64"])
def test_long_lines_are_sorted_in_runs_and_merged(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sort_kernels, "MIN_RUN_SORT_ELEMENTS", 16)
    type, x = TensorType((3, 101), dtype), random_array(dtype, (3, 101))
    op = make_op(OPS["sort"], type, dim=1)
    assert_equal_bits(run_kernel(op, [x])[0], reference_results(op, [x])[0])


@pytest.mark.parametrize("names", [("f32", "i32"), ("bool", "f64", "f16"), ("i64", "u8", "f32")])
def test_several_keys_are_sorted_lexicographically(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are sorted from the last to the first with stable sorts; NaN and zeros of both signs are
    equal."""
    monkeypatch.setattr(sort_kernels, "MIN_RUN_SORT_ELEMENTS", 16)
    shape = (5, 90)
    arrays = [random_array(name, shape) for name in names]
    arrays.append(np.indices(shape)[1].astype(np.int32))
    types = [TensorType(shape, name) for name in (*names, "i32")]
    for keys in range(1, len(names) + 1):
        op = make_op(OPS["sort"], *types, dim=1, keys=keys)
        for out, want in zip(run_kernel(op, arrays), reference_results(op, arrays), strict=True):
            assert_equal_bits(out, want)
