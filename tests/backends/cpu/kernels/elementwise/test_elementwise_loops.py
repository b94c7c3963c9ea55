"""Every elementwise operation for every element type and array layout."""

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir import ops as ops  # declares the operations
from shardir.backends.cpu.kernels.elementwise.rules import has_instructions, lower_loop_nest
from shardir.frontend.random_programs.pointwise import POINTWISE
from shardir.interpret.interpreter import apply_op
from shardir.ir.dtypes import KEYS
from shardir.ir.operation import OPS
from shardir.ir.types import COMPLEX, REAL_OF, TensorType
from tests.backends.cpu.phase_runner import lower_and_run, make_op
from tests.dtype_groups import DTYPES, FLOATS

pytestmark = pytest.mark.sample(5)

Array = npt.NDArray[Any]
SUPPORTED = [
    (name, dtype, arity)
    for name, taken in POINTWISE.items()
    if name not in ("propagation_barrier", "checkpoint-name", "reshard")
    for arity, dtype in taken
]
LAYOUTS = ("dense", "strided", "backwards", "column", "broadcast", "transposed", "odd")
TOLERANCE = {"f16": 1e-3, "bf16": 1e-2, "f32": 1e-6, "f64": 1e-14, "c64": 1e-5, "c128": 1e-13}


def random_elements(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    """Return random elements, with zeros, infinities and NaN among floats."""
    rng = np.random.default_rng(seed)
    type = TensorType(shape, dtype)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in COMPLEX:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(type.numpy)
    if dtype in FLOATS:
        made = rng.normal(size=shape) * 2
        made.ravel()[::7] = rng.choice([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
        return made.astype(type.numpy)
    low = -20 if type.numpy.kind == "i" else 0
    return rng.integers(low, 100, shape).astype(type.numpy)


def array_with_layout(layout: str, name: str, dtype: str, seed: int) -> Array:
    """Return a 5 x 67 array with a layout."""
    if layout == "strided":
        return random_elements(dtype, (10, 201), seed)[::2, ::3]
    if layout == "backwards":
        return random_elements(dtype, (5, 67), seed)[::-1, ::-1]
    if layout == "column":
        return np.broadcast_to(random_elements(dtype, (5, 1), seed), (5, 67))
    if layout == "broadcast":
        return np.broadcast_to(random_elements(dtype, (67,), seed), (5, 67))
    if layout == "transposed":
        return random_elements(dtype, (67, 5), seed).T
    if layout == "odd":
        return random_elements(dtype, (5, 68), seed)[:, 1:]
    return random_elements(dtype, (5, 67), seed)


def assert_agreement(made: Array, expected: Array, dtype: str, exact: bool) -> None:
    """Assert that arrays are equal or as close as two accurate functions; NaN payloads are
    ignored."""
    if exact or made.dtype.kind in "biu":
        if dtype in FLOATS:
            nan = np.isnan(made) & np.isnan(expected)
            made, expected = (np.where(nan, np.ones_like(each), each) for each in (made, expected))
        np.testing.assert_array_equal(made.view(np.uint8), expected.view(np.uint8))
        return
    if dtype in REAL_OF:
        scale = np.maximum(np.abs(expected), 1)
        assert np.nanmax(np.abs(made - expected) / scale) < TOLERANCE[dtype] * 10
        return
    a, b = made.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(a, b, rtol=4 * TOLERANCE[dtype], atol=TOLERANCE[dtype] / 10)


@pytest.mark.parametrize(("name", "dtype", "arity"), SUPPORTED, ids=lambda part: str(part))
def test_operations_match_the_reference_in_every_layout(name: str, dtype: str, arity: int) -> None:
    """The operands have one layout and the result has the next one, so that all pairs of kinds
    occur."""
    type = TensorType((5, 67), dtype)
    op = make_op(OPS[name], *[type] * arity)
    if not has_instructions(name, (), (dtype,) * arity, op.result.type.dtype):
        return
    seed = zlib.crc32(f"{name} {dtype}".encode())
    first = seed % len(LAYOUTS)
    for i, layout in enumerate(LAYOUTS):
        if (i - first) % len(LAYOUTS) > 2 and name not in ("add", "neg", "lt", "select"):
            continue
        arrays = [array_with_layout(LAYOUTS[i - k], name, dtype, seed + k) for k in range(arity)]
        expected = np.asarray(apply_op(op, arrays))
        to = op.result.type.dtype
        kinds = [kind for kind in LAYOUTS if kind not in ("column", "broadcast")]
        out = array_with_layout(kinds[i % len(kinds)], "out", to, 0)
        out.flags.writeable = True
        assert lower_and_run(lower_loop_nest, op, arrays, [out]), layout
        exact = name in EXACT_OPERATIONS and dtype not in COMPLEX
        assert_agreement(np.ascontiguousarray(out), np.ascontiguousarray(expected), to, exact)


EXACT_OPERATIONS = frozenset(
    (
        "neg", "abs", "floor", "ceil", "round", "add", "sub", "mul", "div", "maximum",
        "minimum", "sqrt", "sign", "complex",
    )
)  # fmt: skip


@pytest.mark.parametrize("source", [dtype for dtype in DTYPES if dtype not in KEYS])
def test_conversions_match_the_reference(source: str) -> None:
    for to in DTYPES:
        if to in KEYS:
            continue
        type = TensorType((3, 41), source)
        op = make_op(OPS["convert"], type, result=type.with_dtype(to))
        x = random_elements(source, (3, 41), 7)
        out = np.zeros((3, 41), op.result.type.numpy)
        assert lower_and_run(lower_loop_nest, op, [x], [out]), to
        expected = np.asarray(apply_op(op, [x]))
        same = (out == expected) | ((out != out) & (expected != expected))
        assert same.all(), (to, x[~same], out[~same], expected[~same])


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype not in ("bool", *KEYS)])
def test_iota_matches_the_reference(dtype: str) -> None:
    for shape in ((300,), (1, 5), (5, 1), (7, 33), (33, 7)):
        for dim in range(len(shape)):
            op = make_op(OPS["iota"], dim=dim, result=TensorType(shape, dtype))
            out = np.zeros(shape, op.result.type.numpy)
            assert lower_and_run(lower_loop_nest, op, [], [out])
            np.testing.assert_array_equal(out, np.asarray(apply_op(op, [])))


@pytest.mark.parametrize("dtype", ["f32", "bool", "c64", "key", "i8"])
def test_select_with_a_scalar_predicate_matches_numpy(dtype: str) -> None:
    type = TensorType((9, 21), dtype)
    x, y = (random_elements(dtype if dtype != "key" else "u64", (9, 21), i) for i in (1, 2))
    op = make_op(OPS["select"], TensorType((), "bool"), type, type)
    for pred in (True, False):
        out = np.zeros((9, 21), type.numpy)
        assert lower_and_run(lower_loop_nest, op, [np.array(pred), x, y], [out])
        np.testing.assert_array_equal(out, x if pred else y)


def test_empty_arrays_have_no_phase() -> None:
    type = TensorType((0, 3), "f32")
    x = np.zeros((0, 3), np.float32)
    assert lower_and_run(lower_loop_nest, make_op(OPS["add"], type, type), [x, x], [x]) == []


def test_in_place_operations_are_correct() -> None:
    x = np.arange(1001, dtype=np.float32)
    type = TensorType((1001,), "f32")
    lower_and_run(lower_loop_nest, make_op(OPS["add"], type, type), [x, x], [x])
    np.testing.assert_array_equal(x, 2 * np.arange(1001, dtype=np.float32))


def test_shapes_of_equal_layout_share_kernels() -> None:
    names = set()
    for shape in ((100,), (7, 9), (3, 5, 11)):
        x = np.ones(shape, np.float32)
        type = TensorType(shape, "f32")
        phases = lower_and_run(lower_loop_nest, make_op(OPS["mul"], type, type), [x, x], [x.copy()])
        assert phases is not None
        names |= {phase.kernel.name for phase in phases}
    assert len(names) == 1


def test_large_results_use_streaming_stores_and_are_correct() -> None:
    whole = np.zeros((1 << 23) + 64, np.float32)
    start = -whole.ctypes.data % 64 // 4
    out = whole[start : start + (1 << 23)].reshape(2048, 4096)
    x = np.arange(1 << 23, dtype=np.float32).reshape(2048, 4096)
    op = make_op(OPS["add"], TensorType((2048, 4096), "f32"), TensorType((2048, 4096), "f32"))
    lower_and_run(lower_loop_nest, op, [x, np.broadcast_to(x[0], x.shape)], [out])
    np.testing.assert_array_equal(out, x + x[0])
    odd = whole[start + 3 : start + 3 + (1 << 23)].reshape(2048, 4096)
    lower_and_run(lower_loop_nest, op, [x, np.broadcast_to(x[1], x.shape)], [odd])
    np.testing.assert_array_equal(odd, x + x[1])


@pytest.mark.parametrize("dtype", ["f32", "bool", "bf16", "c128", "i64"])
def test_transposed_operands_are_copied_to_row_major_order(dtype: str) -> None:
    type = TensorType((12, 70, 50), dtype)
    x = random_elements(dtype, (50, 70, 12), 1).T
    y = random_elements(dtype, (12, 70, 50), 2)
    op = make_op(OPS["add"], type, type)
    for out in (np.zeros((12, 70, 50), type.numpy), np.zeros((50, 12, 70), type.numpy)):
        to = out if out.shape == y.shape else out.transpose(1, 2, 0)
        phases = lower_and_run(lower_loop_nest, op, [x, y], [to])
        assert phases is not None
        assert len(phases) > 1
        expected = np.asarray(apply_op(op, [x, y]))
        same = (to == expected) | ((to != to) & (expected != expected))
        assert same.all()
