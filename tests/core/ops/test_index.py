"""Gather and scatter have StableHLO's semantics, element by element, and so do their
derivatives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies

from shardir import ops
from shardir.ir.builder import Builder
from shardir.ir.module import Function
from shardir.ir.operation import Symbol
from shardir.ir.types import NUMPY_DTYPES, TensorType
from tests.derivatives import check_gradients
from tests.op_evaluation import Array, apply_op, infer_types
from tests.op_sample import t


@dataclass(frozen=True)
class Setting:
    """A random indexing operation: types, gather attributes, and indices, some out of range."""

    x: TensorType
    slices: TensorType
    dims: dict[str, tuple[int, ...]]
    indices: Array

    @classmethod
    def random(cls, rng: np.random.Generator) -> "Setting":
        shape = [int(n) for n in rng.integers(1, 6, rng.integers(1, 5))]
        roles = rng.choice(
            ["dropped", "window", "whole", "batch"], len(shape), p=[0.4, 0.3, 0.2, 0.1]
        )
        where = {role: [d for d in range(len(shape)) if roles[d] == role] for role in set(roles)}
        batching, dropped = where.get("batch", []), where.get("dropped", [])
        extents = {
            d: shape[d] if roles[d] == "whole" else int(rng.integers(1, shape[d] + 1))
            for d in range(len(shape))
            if roles[d] in ("window", "whole")
        }
        mapped = [d for d in range(len(shape)) if d not in batching and rng.random() < 0.8]
        # The dimensions of the indices: free dimensions with their sizes, and batching dimensions.
        batch: list[tuple[int | None, int]] = [
            (None, int(n)) for n in rng.integers(1, 4, rng.integers(0, 3))
        ]
        for d in batching:
            batch.insert(int(rng.integers(0, len(batch) + 1)), (d, shape[d]))
        rank = len(batch) + len(extents)
        window = sorted(int(s) for s in rng.choice(rank, len(extents), replace=False))
        sizes, rest = iter(extents.values()), iter([n for _, n in batch])
        dtype = str(rng.choice(["i32", "i64", "i8", "u8", "u32", "u64"]))
        low = 0 if dtype.startswith("u") else -3
        vectors = rng.integers(low, 8, (*(n for _, n in batch), len(mapped)))
        return cls(
            t("f64", *shape),
            t("f64", *(next(sizes) if s in window else next(rest) for s in range(rank))),
            {
                "offset_dims": tuple(window),
                "collapsed_dims": tuple(dropped),
                "start_index_map": tuple(int(d) for d in rng.permutation(mapped)),
                "operand_batching_dims": tuple(batching),
                "indices_batching_dims": tuple(
                    [owner for owner, _ in batch].index(d) for d in batching
                ),
            },
            vectors.astype(NUMPY_DTYPES[dtype]),
        )

    @property
    def scatter_dims(self) -> dict[str, tuple[int, ...]]:
        names = ("update_window_dims", "inserted_window_dims", "scatter_dims")
        (_, window), (_, dropped), (_, mapped), *rest = self.dims.items()
        return dict(zip(names, (window, dropped, mapped), strict=True)) | dict(rest)

    def start(self, place: tuple[int, ...]) -> list[int]:
        """Return the start of the window that contains an element of the slices."""
        batch = tuple(p for s, p in enumerate(place) if s not in self.dims["offset_dims"])
        start = [0] * self.x.rank
        for i, d in enumerate(self.dims["start_index_map"]):
            start[d] = int(self.indices[(*batch, i)])
        for d, i in self._batching:
            start[d] = batch[i]
        return start

    def offset(self, place: tuple[int, ...]) -> list[int]:
        """Return the offset of an element of the slices inside of its window."""
        offset = [0] * self.x.rank
        for s, d in self._windows:
            offset[d] = place[s]
        return offset

    def extent(self, d: int) -> int:
        """Return the size of the windows along a dimension of the operand."""
        return {d: self.slices.shape[s] for s, d in self._windows}.get(d, 1)

    @property
    def _batching(self) -> list[tuple[int, int]]:
        dims = self.dims
        return [*zip(dims["operand_batching_dims"], dims["indices_batching_dims"], strict=True)]

    @property
    def _windows(self) -> list[tuple[int, int]]:
        gone = (*self.dims["collapsed_dims"], *self.dims["operand_batching_dims"])
        free = [d for d in range(self.x.rank) if d not in gone]
        return [*zip(self.dims["offset_dims"], free, strict=True)]


seeds = given(strategies.integers(0, 2**32 - 1))


@seeds
def test_gather_clamps_windows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    s = Setting.random(rng)
    x = rng.normal(size=s.x.shape)
    expected = np.zeros(s.slices.shape)
    for place in product(*map(range, s.slices.shape)):
        start = [
            min(max(begin, 0), s.x.shape[d] - s.extent(d)) for d, begin in enumerate(s.start(place))
        ]
        expected[place] = x[tuple(np.add(start, s.offset(place)))]

    np.testing.assert_array_equal(
        apply_op(ops.gather, x, s.indices, result=s.slices, **s.dims), expected
    )


COMBINE: dict[str, Callable[[float, float], float]] = {
    "add": lambda old, new: old + new,
    "set": lambda old, new: new,
    "mul": lambda old, new: old * new,
    "min": min,
    "max": max,
}
each_op = pytest.mark.parametrize("op", [*COMBINE])


@each_op
@settings(max_examples=max(settings().max_examples // 4, 25))
@seeds
def test_scatter_drops_windows_out_of_bounds(op: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    s = Setting.random(rng)
    x, updates = rng.normal(size=s.x.shape), rng.normal(size=s.slices.shape)
    expected = x.copy()
    for place in product(*map(range, s.slices.shape)):
        at = tuple(np.add(s.start(place), s.offset(place)))
        if all(0 <= i < n for i, n in zip(at, s.x.shape, strict=True)):
            expected[at] = COMBINE[op](expected[at], updates[place])

    got = apply_op(ops.scatter, x, s.indices, updates, op=Symbol(op), **s.scatter_dims)

    np.testing.assert_allclose(got, expected, rtol=1e-14)


def one_op(s: Setting, name: str, **attrs: Any) -> Function:
    b = Builder()
    x, slices = b.param(s.x, "x"), b.param(s.slices, "u")
    indices = b.param(TensorType(s.indices.shape, _dtype(s.indices)), "i")
    if name == "gather":
        made = b.gather(x, indices, result=s.slices, **attrs)
        return Function("f", b.block([x, indices], [made]), (None,))
    made = b.scatter(x, indices, slices, **attrs)
    return Function("f", b.block([x, indices, slices], [made]), (None,))


def _dtype(array: Array) -> str:
    return next(name for name, dtype in NUMPY_DTYPES.items() if dtype == array.dtype)


@settings(max_examples=max(settings().max_examples // 4, 25))
@seeds
def test_derivatives_of_gather(seed: int) -> None:
    """All windows are in bounds, because a window out of bounds has no derivative."""
    rng = np.random.default_rng(seed)
    s = Setting.random(rng)
    last = [s.x.shape[d] - s.extent(d) for d in s.dims["start_index_map"]]
    inside = np.clip(s.indices, 0, np.array(last, s.indices.dtype)).astype(s.indices.dtype)

    check_gradients(one_op(s, "gather", **s.dims), [rng.normal(size=s.x.shape), inside], order=2)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize(("op", "expected"), [("min", True), ("max", False)])
def test_scatter_orders_negative_zero_below_zero(op: str, expected: bool, dtype: str) -> None:
    kind = NUMPY_DTYPES[dtype]
    x, news = np.array([0.0, -0.0, 0.0, 1.0], kind), np.array([-0.0, 0.0, 0.0], kind)
    places = np.array([[0], [1], [2]], np.int32)
    dims: dict[str, Any] = {
        "update_window_dims": (),
        "inserted_window_dims": (0,),
        "scatter_dims": (0,),
    }
    made = apply_op(ops.scatter, x, places, news, op=Symbol(op), **dims)
    np.testing.assert_array_equal(np.signbit(made), [expected, expected, False, False])


@each_op
@settings(max_examples=max(settings().max_examples // 8, 12))
@seeds
def test_derivatives_of_scatter(op: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    s = Setting.random(rng)
    updates = rng.normal(size=s.slices.shape)
    if op == "mul":
        updates[rng.random(updates.shape) < 0.2] = 0
    function = one_op(s, "scatter", op=Symbol(op), **s.scatter_dims)

    check_gradients(function, [rng.normal(size=s.x.shape), s.indices, updates])
    if op != "mul" or updates.all():
        check_gradients(
            function, [rng.normal(size=s.x.shape), s.indices, updates + (updates == 0)], order=2
        )


LINES = {"update_window_dims": (), "inserted_window_dims": (0,), "scatter_dims": (0,)}
ROWS = {"offset_dims": (1,), "collapsed_dims": (0,), "start_index_map": (0,)}


def test_the_last_of_several_updates_is_kept() -> None:
    got = apply_op(
        ops.scatter, [0.0, 0, 0], [[1], [1], [2], [1]], [1.0, 2, 3, 4], op=Symbol("set"), **LINES
    )

    np.testing.assert_array_equal(got, [0, 4, 3])


def test_16_bit_floats_are_added_in_f32() -> None:
    ones = np.ones(1000, ml_dtypes.bfloat16)

    got = apply_op(
        ops.scatter, ones[:2], np.zeros((1000, 1), np.int32), ones, op=Symbol("add"), **LINES
    )

    assert got.dtype == ml_dtypes.bfloat16
    assert got.astype(float).tolist() == [1000.0, 1.0]


def test_huge_indices_are_out_of_range() -> None:
    far = np.array([[2**64 - 1], [2**63], [1]], np.uint64)
    x = np.arange(3.0)

    read = apply_op(ops.gather, x[:, None], far, result=t("f64", 3, 1), **ROWS)
    written = apply_op(ops.scatter, x, far, np.full(3, 9.0), op=Symbol("set"), **LINES)

    assert (read[:, 0].tolist(), written.tolist()) == ([2, 2, 1], [0, 9, 2])


def test_gather_from_an_empty_operand() -> None:
    got = apply_op(
        ops.gather, np.zeros((0, 3)), np.zeros((0, 1), np.int32), result=t("f64", 0, 3), **ROWS
    )
    assert got.shape == (0, 3)

    with pytest.raises(TypeError, match=r"^gather: there is nothing to index in f64\[0, 3\]$"):
        infer_types(ops.gather, t("f64", 0, 3), t("i32", 2, 1), result=t("f64", 2, 3), **ROWS)


x, rows, index = t("f32", 8, 6), t("f32", 4, 6), t("i32", 4, 1)
BATCH = {"operand_batching_dims": (0,), "indices_batching_dims": (0,)}
MISFITS: list[tuple[tuple[TensorType, TensorType], TensorType | None, dict[str, Any], str]] = [
    ((x, index), None, {}, "its result type is not determined; state it with result="),
    ((x, t("f32", 4, 1)), rows, {}, "takes integer operands, got f32[4, 1]"),
    ((x, t("i32")), rows, {},
     "indices have at least one dimension, that of the index vector; reshape"),
    ((x, index), rows, {"offset_dims": (2,)},
     "offset_dims=[2] names 2, not a dimension of f32[4, 6]; it has dimensions 0 to 1"),
    ((x, index), t("f32", 4, 8, 6), {"offset_dims": (2, 1), "collapsed_dims": ()},
     "offset_dims=[2, 1] must be ascending"),
    ((x, index), rows, {"collapsed_dims": ()},
     "offset_dims=[1] names 1 dimension for the 2 of f32[8, 6] that are neither in collapsed_dims "
     "nor in operand_batching_dims"),
    ((x, t("i32", 4, 2)), rows, {},
     "start_index_map=[0] names 1 dimension for index vectors of 2 (i32[4, 2])"),
    ((x, index), t("f32", 5, 6), {},
     "slices f32[5, 6] have the batch sizes [5] where i32[4, 1] has [4]"),
    ((x, index), t("f32", 4, 7), {},
     "a window of 7 (dimension 1 of f32[4, 7]) does not fit dimension 1 of f32[8, 6]"),
    ((x, index), rows, {"operand_batching_dims": (0,)},
     "operand_batching_dims=[0] and indices_batching_dims=[] must have equal lengths"),
    ((x, index), rows, {"operand_batching_dims": (0,), "indices_batching_dims": (1,)},
     "indices_batching_dims=[1] names the last dimension of i32[4, 1], which is the index vector"),
    ((x, index), rows, BATCH, "dimension 0 is in collapsed_dims and operand_batching_dims"),
    ((x, index), rows, {**BATCH, "collapsed_dims": ()},
     "dimension 0 is in start_index_map and operand_batching_dims"),
    ((x, index), rows, {**BATCH, "collapsed_dims": (), "start_index_map": (1,)},
     "batching dimension 0 of f32[8, 6] and dimension 0 of i32[4, 1] differ in size"),
]  # fmt: skip


@pytest.mark.parametrize(("operands", "result", "dims", "message"), MISFITS)
def test_invalid_gathers_are_errors(
    operands: tuple[TensorType, TensorType],
    result: TensorType | None,
    dims: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(TypeError) as caught:
        infer_types(ops.gather, *operands, result=result, **{**ROWS, **dims})

    assert str(caught.value) == f"gather: {message}"


@pytest.mark.parametrize(
    ("dtype", "op", "message"),
    [
        ("f32", "or", "op=or is not one of add, mul, min, max, set"),
        ("key", "add", "takes bool, integer, floating-point or complex operands, got key[8]"),
        ("c64", "max", "takes bool, integer or floating-point operands, got c64[8]"),
    ],
)
def test_unsupported_scatter_combinations_are_errors(dtype: str, op: str, message: str) -> None:
    operands = t(dtype, 8), t("i32", 4, 1), t(dtype, 4)

    with pytest.raises(TypeError) as caught:
        infer_types(ops.scatter, *operands, op=Symbol(op), **LINES)

    assert str(caught.value) == f"scatter: {message}"


def test_keys_are_gathered_and_scattered() -> None:
    keys = np.arange(8, dtype=np.uint64)
    b = Builder()
    x, i, u = b.param(t("key", 8)), b.param(t("i32", 2, 1)), b.param(t("key", 2))
    made = b.scatter(x, i, u, op=Symbol("set"), **LINES)

    assert ops.scatter.reference is not None
    assert made.type == t("key", 8)
    given = ops.scatter.rule_arguments({"op": "set", **LINES})
    moved = np.asarray(
        ops.scatter.reference(keys, np.array([[3], [0]]), keys[6:], result=made.type, **given)
    )
    assert moved.tolist() == [7, 1, 2, 6, 4, 5, 6, 7]
