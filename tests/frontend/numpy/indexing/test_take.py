"""Functions that take, choose and find elements against NumPy; traced results have a static
`size`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import shardir as sd
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.errors import IndexingError, TracedValueError
from shardir.frontend.numpy import api as snp
from tests.namespace import check, eagerly, ops, run, same

pytestmark = pytest.mark.sample(5)

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ROW = np.array([3, 1, 4, 1, 5], np.int32)
PLACES = np.array([[0, -1], [2, 1]], np.int32)
ORDER = np.array([[2, 0, 1, 1], [0, 0, -1, 2]], np.int32)[:, None, :]


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("places", [PLACES % 2, 1, -1, np.zeros((0,), np.int32), [1, 0]], ids=str)
def test_take(axis: Any, places: Any) -> None:
    check("take", X, places, axis)
    same(eagerly(snp.take, X, places, axis), np.take(X, places, axis))


def test_take_out_of_range() -> None:
    places = np.array([0, 5, -1, -5, 2], np.int32)
    for expected in (run, eagerly):
        got = expected(lambda x, i: snp.take(x, i, 1), X, places)
        assert np.isnan(got[:, [1, 3]]).all()
        same(got[:, [0, 2, 4]], X[:, [0, 2, 2]])
        same(
            expected(lambda x, i: snp.take(x, i, mode="clip"), ROW, places),
            np.take(ROW, places, mode="clip"),
        )
        same(
            expected(lambda x, i: snp.take(x, i, mode="wrap"), ROW, places),
            np.take(ROW, places, mode="wrap"),
        )
    same(run(lambda x: snp.take(x, np.array([0, 9, -9]), fill_value=7), ROW),
         np.array([3, 7, 7], np.int32))  # fmt: skip
    low = np.iinfo(np.int32).min
    assert np.isnan(run(lambda x: snp.take(x[:0], 0, 0), X)).all()
    same(run(lambda x: snp.take(x, np.array([0, 9])), ROW), np.array([3, low], np.int32))
    assert ops(lambda x: snp.take(x, np.array([0, -1]), 1), X) == ["constant", "reshape", "gather"]


@given(st.data())
def test_take_and_put_along_an_axis(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    size = data.draw(st.integers(0, 4))
    dim = axis % len(shape)
    around = [n if d == dim or data.draw(st.booleans()) else 1 for d, n in enumerate(shape)]
    around[dim] = size
    many = int(np.prod(around))
    numbers = data.draw(st.lists(st.integers(-shape[dim], shape[dim] - 1), min_size=many,
                                 max_size=many))  # fmt: skip
    index = np.array(numbers, np.int32).reshape(around)
    check("take_along_axis", x, index, axis)
    thin = x.sum(tuple(d for d in range(x.ndim) if d != dim and around[d] != 1), keepdims=True)
    check("take_along_axis", thin, index, axis)
    changed = x.copy()
    np.put_along_axis(changed, index.astype(np.int64), np.float32(-1), axis)
    same(run(lambda x, i: snp.put_along_axis(x, i, -1, axis), x, index), changed)


def test_along_an_axis_out_of_range_and_flat() -> None:
    index = np.array([[[7], [-9], [1]]], np.int32)
    got = run(lambda x, i: snp.take_along_axis(x, i, 2), X, index)
    assert np.isnan(got[:, :2]).all()
    same(got[:, 2], X[:, 2, 1:2])
    same(run(lambda x, i: snp.take_along_axis(x, i, 2, mode="clip"), X, index)[:, :2, 0],
         X[:, [0, 1], [3, 0]])  # fmt: skip
    changed = X.copy()
    changed[:, 2, 1] = 9
    same(run(lambda x, i: snp.put_along_axis(x, i, 9, 2), X, index), changed)
    check("take_along_axis", X, ROW, None)
    changed = X.copy()
    np.put_along_axis(changed, ROW.astype(np.int64), np.arange(5), None)
    same(run(lambda x, i: snp.put_along_axis(x, i, np.arange(5, dtype="f"), None), X, ROW), changed)
    same(eagerly(lambda x, i: snp.take_along_axis(x, i), X, ORDER),
         np.take_along_axis(X, ORDER, -1))  # fmt: skip


def test_choose() -> None:
    which = np.array([[0, 2], [1, 0]], np.int32)
    choices = [np.full((2, 2), 5, np.int32), np.array([6, 7], np.int32), np.array(8, np.int32)]
    same(run(lambda c: snp.choose(which, c), choices), np.choose(which, choices))
    same(eagerly(lambda w, c: snp.choose(w, c), which, choices), np.choose(which, choices))
    wild = np.array([-1, 0, 3, 7], np.int32)
    flat = [np.arange(4, dtype=np.int32) + 10 * i for i in range(3)]
    for mode in ("clip", "wrap"):
        check("choose", wild, flat, mode=mode)


def test_compress_and_extract() -> None:
    cases: list[tuple[Any, Any]] = [
        (None, [True, False, True]), (1, [False, True, True]), (0, [1, 0])
    ]  # fmt: skip
    for axis, condition in cases:
        expected = np.compress(condition, X, axis)
        same(run(lambda x, c=condition, a=axis: snp.compress(c, x, a), X), expected)
        same(eagerly(snp.compress, np.array(condition), X, axis), expected)
        size = expected.shape[axis or 0]
        traced = np.array(condition)
        same(run(lambda c, x, a=axis, n=size: snp.compress(c, x, a, size=n), traced, X), expected)
        more = run(lambda c, x, a=axis, n=size: snp.compress(c, x, a, size=n + 1, fill_value=-1),
                   traced, X)  # fmt: skip
        same(np.delete(more, -1, axis or 0), expected)
        assert (np.take(more, -1, axis or 0) == -1).all()
    same(eagerly(lambda x: snp.extract(x > 5, x), X), X[X > 5])
    same(run(lambda x: snp.extract(x > 20, x, size=4), X), np.array([21, 22, 23, 0], np.float32))


MASKS = [
    X % 5 == 0, X > 99, X >= 0, np.array([True]), np.zeros((0, 3), bool), ROW % 2,
    np.array([[0.0, np.nan], [-0.0, 1]], np.float32),
]  # fmt: skip


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: f"{mask.dtype}{mask.shape}")
def test_nonzero(mask: Any) -> None:
    expected = tuple(i.astype(np.int32) for i in np.nonzero(mask))
    same(eagerly(snp.nonzero, mask), expected)
    same(eagerly(snp.where, mask), expected)
    same(eagerly(snp.argwhere, mask), np.argwhere(mask).astype(np.int32))
    same(eagerly(snp.flatnonzero, mask), np.flatnonzero(mask).astype(np.int32))
    count = len(expected[0])
    same(run(lambda m: snp.nonzero(m, size=count), mask), expected)
    same(run(lambda m: snp.where(m, size=count), mask), expected)
    same(run(lambda m: snp.argwhere(m, size=count), mask), np.argwhere(mask).astype(np.int32))
    more = run(lambda m: snp.nonzero(m, size=count + 2, fill_value=-1), mask)
    same(more, tuple(np.append(i, np.array([-1, -1], np.int32)) for i in expected))
    fewer = run(lambda m: snp.nonzero(m, size=max(count - 1, 0)), mask)
    same(fewer, tuple(i[: max(count - 1, 0)] for i in expected))


def test_nonzero_fills_each_dimension() -> None:
    got = run(lambda x: snp.nonzero(x > 22, size=2, fill_value=(7, 8, 9)), X)
    same(got, tuple(np.array(p, np.int32) for p in ([1, 7], [2, 8], [3, 9])))


def test_rows_and_columns() -> None:
    for args in ([[0, 1], [2, 0, 1]], [[True, False], [1, 1], [3, 0]], [[], [1]]):
        same(eagerly(lambda a=args: snp.ix_(*a)), tuple(i.astype(np.int32) for i in np.ix_(*args)))
    same(run(lambda x, i: x[snp.ix_(i, [2, 0])], X, np.array([1, 0])), X[np.ix_([1, 0], [2, 0])])


def test_flat_indices() -> None:
    flat = np.array([[0, 5], [23, 11]], np.int32)
    check("unravel_index", flat, (2, 3, 4))
    check("unravel_index", ROW, 6)
    same(run(lambda i: snp.unravel_index(i, (2, 3)), np.array([-1, 9], np.int32)),
         (np.array([1, 1], np.int32), np.array([2, 2], np.int32)))  # fmt: skip
    several = tuple(i.astype(np.int32) for i in np.unravel_index(flat, (2, 3, 4)))
    same(eagerly(lambda i: snp.ravel_multi_index(i, (2, 3, 4)), several), flat)
    wild = (np.array([3, -1], np.int32), np.array([9, 2], np.int32))
    for mode in ("clip", "wrap", ("clip", "wrap")):
        for order in ("C", "F"):
            check("ravel_multi_index", wild, (2, 3), mode, order)


def test_diagonals_and_triangles() -> None:
    cases: list[tuple[str, tuple[Any, ...]]] = [
        ("diag_indices", (3,)), ("diag_indices", (2, 3)), ("tril_indices", (3,)),
        ("tril_indices", (3, -1)), ("tril_indices", (3, 1, 4)), ("triu_indices", (4, 1, 3)),
        ("diag_indices_from", (X[0, :, :3],)), ("tril_indices_from", (X[0], 1)),
        ("triu_indices_from", (X[0],)),
    ]  # fmt: skip
    for name, args in cases:
        expected = tuple(i.astype(np.int32) for i in getattr(np, name)(*args))
        same(eagerly(getattr(snp, name), *args), expected)
        same(run(getattr(snp, name), *args), expected)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (5, 2), (7, 2), (3, 3, 3)], ids=str)
def test_fill_diagonal(shape: tuple[int, ...]) -> None:
    x = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    for value in (np.float32(-1), np.array([-1, -2], np.float32)):
        for wrap in (False, True):
            changed = x.copy()
            np.fill_diagonal(changed, value, wrap)
            got = run(lambda x, v=value, w=wrap: snp.fill_diagonal(x, v, w, inplace=False), x)
            same(got, changed)


def test_put_and_place() -> None:
    changed = X.copy()
    np.put(changed, [1, -1, 5], [-1, -2])
    same(run(lambda x: snp.put(x, [1, -1, 5], [-1.0, -2.0], inplace=False), X), changed)
    for mode in ("clip", "wrap"):
        changed = X.copy()
        np.put(changed, [1, 30, -40], [-1, -2, -3], mode)
        same(run(lambda x, m=mode: snp.put(x, [1, 30, -40], [-1.0, -2, -3], m), X), changed)
    changed = X.copy()
    np.place(changed, X % 3 == 0, [-1, -2, -3])
    new = np.array([-1, -2, -3], np.float32)
    same(run(lambda x, v: snp.place(x, x % 3 == 0, v, inplace=False), X, new), changed)


FAULTS: list[tuple[Any, type[Exception], str]] = [
    (lambda x: snp.nonzero(x), TracedValueError,
     "the number of elements that are not zero depends on traced values; state "
     "a maximum with size=, or select with snp.where(condition, x, y)"),
    (lambda x: snp.choose(x.astype(int), [x, x]), TracedValueError,
     "choose checks that its indices are in range, which are traced; pass mode='clip' or "
     "mode='wrap'"),
    (lambda x: snp.take(x, 0, mode="no"), TypeError,
     "take has no mode 'no'; its modes are fill, clip, wrap, promise_in_bounds"),
    (lambda x: snp.take(x, x), IndexingError, "take takes integers as indices, got f32"),
    (lambda x: snp.take(x[:0], 0, 0, mode="clip"), IndexingError,
     "take has indices, and axis 0 has no elements; pass an empty array of indices, or "
     "mode='fill'"),
    (lambda x: snp.take_along_axis(x[:0], np.zeros((1, 3, 4), int), 0, mode="clip"),
     IndexingError,
     "take_along_axis has indices, and axis 0 has no elements; pass an empty array of indices, or "
     "mode='fill'"),
    (lambda x: snp.take(x, 0, 5), IndexError, "axis 5 is out of range for an array of rank 3"),
    (lambda x: snp.take_along_axis(x, np.array([0]), 0), TypeError,
     "take_along_axis takes indices with as many dimensions as the array, got shape (1,) for "
     "shape (2, 3, 4)"),
    (lambda x: snp.put(x, [0], [1.0], inplace=True), TypeError,
     "put cannot write into an array; take the result and pass inplace=False"),
    (lambda x: snp.fill_diagonal(x, 1), TypeError,
     "fill_diagonal takes a matrix, or more dimensions of one size, got shape (2, 3, 4)"),
    (lambda x: snp.diag_indices_from(x), TypeError,
     "diag_indices_from takes an array of equal dimensions, got shape (2, 3, 4)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), FAULTS)
def test_invalid_arguments_are_errors(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        run(call, X)
    first, *rest = str(caught.value).split("\n")
    assert first == message
    assert "test_take.py" in rest[0]


def test_eager_choices_out_of_range_are_errors() -> None:
    computes: list[Callable[[], Any]] = [
        lambda: snp.choose(from_numpy(np.array([2])), [1, 2]),
        lambda: snp.ravel_multi_index((np.array([2]), np.array([0])), (2, 3)),
    ]
    for compute in computes:
        with pytest.raises(IndexingError, match="invalid entry in the indices of"):
            compute()


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex64", "bfloat16"])
def test_masks_select_as_in_numpy(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = snp.asarray(rng.integers(0, 9, (6, 7)), dtype)
    mask = rng.random((6, 7)) < 0.5
    expected = np.asarray(x)[mask]
    for which in (mask, snp.asarray(mask)):
        for made in (x[which], snp.extract(which, x)):
            assert made.dtype == x.dtype
            np.testing.assert_array_equal(np.asarray(made), expected)
    inside = np.asarray(sd.jit(lambda x: x[mask])(x))
    np.testing.assert_array_equal(inside, expected)
    assert x[np.zeros((6, 7), bool)].shape == (0,)


@pytest.mark.parametrize("times", [1, 2, 3, 5, 8, 9])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "complex64"])
def test_repeated_elements_are_contiguous(dtype: str, times: int) -> None:
    rng = np.random.default_rng(times)
    for shape in ((5, 7), (3, 64), (2, 3, 33), (40, 130)):
        x = rng.integers(0, 99, shape).astype(dtype)
        for axis in range(len(shape)):
            made = snp.repeat(snp.asarray(x), times, axis)
            np.testing.assert_array_equal(np.asarray(made), np.repeat(x, times, axis))
        made = snp.repeat(snp.asarray(x).T, times, 0)
        np.testing.assert_array_equal(np.asarray(made), np.repeat(x.T, times, 0))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("mode", ["fill", "clip", "wrap"])
def test_long_rows_at_indices_out_of_range(dtype: str, axis: int, mode: Any) -> None:
    """The fill mode fills some, all, or none of the rows."""
    x = np.random.default_rng(0).integers(0, 100, (40, 50)).astype(dtype)
    size = x.shape[axis]
    for indices in (
        np.array([0, size, -size - 1, size - 1, -1, 2**31 - 1, -(2**31), 3], np.int32),
        np.arange(size, dtype=np.int32),
        np.full(20, size, np.int32),
        np.array([[0, size, 3], [-size - 1, 1, 2]], np.int32),
    ):
        got = np.asarray(snp.take(snp.asarray(x), snp.asarray(indices), axis=axis, mode=mode))
        if mode == "fill":
            expected = x.take(indices % size, axis)
            outside = (indices < -size) | (indices >= size)
            fill: Any = np.nan if x.dtype.kind in "fc" else x.dtype.type(1)
            if x.dtype.kind in "iu":
                ends = np.iinfo(dtype)
                fill = ends.min if x.dtype.kind == "i" else ends.max
            expected[(slice(None),) * axis + (outside,)] = fill
        elif mode == "wrap":  # NumPy's `wrap` takes a step for each multiple of the size.
            expected = x.take(indices % size, axis)
        else:
            expected = x.take(indices, axis, mode=mode)
        np.testing.assert_array_equal(got, expected)


def test_filled_rows_are_written_once() -> None:
    x, i = np.ones((64, 64), np.float32), np.arange(64, dtype=np.int32)
    text = sd.jit(lambda x, i: snp.take(x, i, axis=0)).lower(x, i).compile().as_text("schedule")
    assert "scatter: 1 task" in text
    assert "copy" not in text
