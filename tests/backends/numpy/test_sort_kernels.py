"""Sorting by words and in chunks: what the reference gives."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.backends.numpy import sort_kernels
from shardir.backends.numpy.kernel_table import kernel_of
from shardir.ir.operation import OPS
from shardir.ir.types import NUMPY_DTYPES, TensorType
from tests.backends.cpu.kernels.random_layouts import random_of
from tests.backends.cpu.kernels.reference_check import (
    assert_same_bits,
    expected,
    operands_of,
    operations,
)
from tests.backends.cpu.phase_runner import op_on

REAL = [name for name, dtype in NUMPY_DTYPES.items() if dtype.kind != "c" and name != "key"]


def made(op: Any, arrays: Any) -> list[Any]:
    found = kernel_of(op)(*arrays)
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("name", ["sort", "top_k"])
@given(st.data())
def test_as_the_reference(name: str, data: st.DataObject) -> None:
    op = data.draw(operations([name]))
    arrays = operands_of(op, data.draw(st.integers(0, 9)))
    for out, want in zip(made(op, arrays), expected(op, arrays), strict=True):
        assert_same_bits(out, want)


def test_nothing_to_sort() -> None:
    for shape in ((0, 3), (3, 0)):
        op = op_on(OPS["sort"], TensorType(shape, "f32"), dim=1)
        (out,) = made(op, [np.zeros(shape, np.float32)])
        assert out.shape == shape


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("dim", [0, 1])
def test_lines_shared_by_threads(dtype: str, dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many equal elements, zeros of both signs and NaN, with their places along."""
    monkeypatch.setattr(sort_kernels, "MIN_PARALLEL_ELEMENTS", 100)
    monkeypatch.setattr(sort_kernels, "MAX_CHUNK_ELEMENTS", 300)
    shape = (40, 60)
    type, x = TensorType(shape, dtype), random_of(dtype, shape)
    places = np.indices(shape)[dim].astype(np.int32)
    for op, arrays in (
        (op_on(OPS["sort"], type, dim=dim), [x]),
        (op_on(OPS["sort"], type, TensorType(shape, "i32"), dim=dim), [x, places]),
    ):
        for out, want in zip(made(op, arrays), expected(op, arrays), strict=True):
            assert_same_bits(out, want)
    if type.dtype != "bool":
        some = (type.with_shape((40, 7)), TensorType((40, 7), "i32"))
        op = op_on(OPS["top_k"], type, result=some)
        for out, want in zip(made(op, [x]), expected(op, [x]), strict=True):
            assert_same_bits(out, want)


@pytest.mark.parametrize("dtype", [*REAL, "c64"])
def test_long_lines_are_sorted_in_runs(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort_kernels, "MIN_RUN_SORT_ELEMENTS", 16)
    type, x = TensorType((3, 101), dtype), random_of(dtype, (3, 101))
    op = op_on(OPS["sort"], type, dim=1)
    assert_same_bits(made(op, [x])[0], expected(op, [x])[0])


@pytest.mark.parametrize("names", [("f32", "i32"), ("bool", "f64", "f16"), ("i64", "u8", "f32")])
def test_several_keys(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of them first, each stable; NaN and zeros of both signs are equal."""
    monkeypatch.setattr(sort_kernels, "MIN_RUN_SORT_ELEMENTS", 16)
    shape = (5, 90)
    arrays = [random_of(name, shape) for name in names]
    arrays.append(np.indices(shape)[1].astype(np.int32))
    types = [TensorType(shape, name) for name in (*names, "i32")]
    for keys in range(1, len(names) + 1):
        op = op_on(OPS["sort"], *types, dim=1, keys=keys)
        for out, want in zip(made(op, arrays), expected(op, arrays), strict=True):
            assert_same_bits(out, want)
