"""Sorting and searching functions against NumPy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.numpy import api as snp
from tests.error_assertions import error_line
from tests.namespace import check, eagerly, ops, run, same

ODD = np.array([3.0, np.nan, -0.0, 0.0, np.inf, -np.inf, 3.0, -1.5, np.nan], np.float32)
TABLE = np.array([1.0, 2.0, 2.0, 4.0, np.inf, np.nan], np.float32)
QUERIES = np.array([[0.0, 1.0, 2.0], [3.0, np.inf, np.nan], [9.0, -np.inf, -0.0]], np.float32)

NUMBERS = arrays(np.int32, array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5),
                 elements=st.integers(-3, 3))  # fmt: skip


@given(NUMBERS, st.data())
def test_sorting(x: Any, data: st.DataObject) -> None:
    axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1))
    check("sort", x, axis)
    flat, dim = (x.reshape(-1), 0) if axis is None else (x, axis)
    order = np.argsort(flat, dim, kind="stable").astype(np.int32)
    same(run(snp.argsort, x, axis), order)
    falling = run(lambda x: snp.sort(x, axis, descending=True), x)
    same(falling, np.flip(np.sort(flat, dim), dim))
    back = np.flip(flat.shape[dim] - 1 - np.argsort(np.flip(flat, dim), dim, kind="stable"), dim)
    same(run(lambda x: snp.argsort(x, axis, descending=True), x), back.astype(np.int32))


@pytest.mark.parametrize("dtype", ["f2", "f4", "i1", "u4", "?", "c8"])
def test_sorting_every_dtype(dtype: str) -> None:
    numbers = np.array([3, -1, 4, 1, -5, 9, 2, 6]) - 3
    x = (abs(numbers) if dtype in ("u4", "?") else numbers).astype(dtype)
    check("sort", x)
    same(eagerly(snp.sort, x), np.sort(x))


def test_nan_is_sorted_last() -> None:
    check("sort", ODD)
    same(eagerly(snp.argsort, ODD), np.argsort(ODD, kind="stable").astype(np.int32))
    check("sort_complex", np.array([2 + 1j, 1 - 1j, 1 + 2j], np.complex64))
    check("sort_complex", np.array([3, 1, 2], np.int32), dtype="c64")


@given(st.data())
def test_lexsort(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=2)))
    count = data.draw(st.integers(1, 3))
    keys = [data.draw(arrays(np.int32, shape, elements=st.integers(0, 2))) for _ in range(count)]
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    same(run(lambda keys: snp.lexsort(keys, axis), keys), np.lexsort(keys, axis).astype(np.int32))
    whole = np.stack(keys)
    same(run(lambda keys: snp.lexsort(keys, axis), whole), np.lexsort(whole, axis).astype(np.int32))


def test_partition_order() -> None:
    x = np.array([[7, 3, 9, 1, 5], [2, 8, 6, 4, 0]], np.int32)
    for kth in (0, 2, -1):
        got = run(lambda x, k=kth: snp.partition(x, k), x)
        same(np.sort(got), np.sort(x))
        same(got[:, kth], np.sort(x)[:, kth])
        order = run(lambda x, k=kth: snp.argpartition(x, k), x)
        same(np.take_along_axis(x, order, 1)[:, kth], np.sort(x)[:, kth])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("method", [None, "scan", "compare_all", "sort"])
def test_searchsorted(side: Any, method: str | None) -> None:
    for table in (TABLE, TABLE[:1], TABLE[-1:], TABLE[:5], np.zeros(0, np.float32)):
        expected = np.searchsorted(table, QUERIES, side).astype(np.int32)
        same(
            run(lambda a, v: snp.searchsorted(a, v, side, method=method), table, QUERIES), expected
        )
    same(eagerly(lambda a, v: snp.searchsorted(a, v, side, method=method), TABLE, QUERIES),
         np.searchsorted(TABLE, QUERIES, side).astype(np.int32))  # fmt: skip


@given(arrays(np.int32, st.integers(0, 40), elements=st.integers(-5, 5)),
       arrays(np.int32, st.integers(0, 10), elements=st.integers(-7, 7)))  # fmt: skip
def test_searchsorted_methods_agree(table: Any, queries: Any) -> None:
    table = np.sort(table)
    for side in ("left", "right"):
        for method in ("scan", "compare_all"):
            got = run(lambda a, v, s=side, m=method: snp.searchsorted(a, v, s, method=m), table,
                      queries)  # fmt: skip
            same(got, np.searchsorted(table, queries, side).astype(np.int32))


def test_searchsorted_with_sorter() -> None:
    table = np.array([3, 1, 2], np.int32)
    order = np.argsort(table).astype(np.int32)
    same(run(lambda a, o: snp.searchsorted(a, 2, sorter=o), table, order), np.array(1, np.int32))
    many = np.arange(300, dtype=np.int32)
    assert "scan" in ops(snp.searchsorted, many, many)
    same(run(snp.searchsorted, many, many), many)


def test_digitize() -> None:
    x = np.array([0.2, 6.4, 3.0, 1.6, 10.0, -1, np.nan], np.float32)
    for bins in ([0.0, 1.0, 2.5, 3.0, 10.0], [10.0, 3.0, 2.5, 1.0, 0.0], [1.0]):
        for right in (False, True):
            edges = np.array(bins, np.float32)
            expected = np.digitize(x, edges, right).astype(np.int32)
            same(run(lambda x, b, r=right: snp.digitize(x, b, r), x, edges), expected)
            same(eagerly(lambda x, b, r=right: snp.digitize(x, b, r), x, edges), expected)


def test_interp() -> None:
    x = np.array([-1.0, 0.0, 0.5, 1.0, 2.25, 3.0, 7.0, np.nan], np.float32)
    xp, fp = np.array([0.0, 1.0, 3.0], np.float32), np.array([3.0, 2.0, 5.0], np.float32)
    check("interp", x, xp, fp, dtype="f32")
    check("interp", x, xp, fp, -9.0, 9.0, dtype="f32")
    check("interp", x, xp[:1], fp[:1], dtype="f32")
    check("interp", x, xp[::-1].copy(), fp, period=4.0, dtype="f32")
    same(run(lambda x: snp.interp(x, [0, 2], [0.0, 1.0]), np.array([1, 3])),
         np.array([0.5, 1.0], np.float32))  # fmt: skip
    got = run(lambda x, xp, fp: snp.interp(x, xp, fp, "extrapolate", "extrapolate"), x, xp, fp)
    same(got[[0, 6]], np.array([4.0, 11.0], np.float32))
    same(eagerly(snp.interp, x, xp, fp), np.interp(x, xp, fp).astype(np.float32))


COUNTED = np.array([1, 3, 3, 0, 7], np.int32)


def test_bincount() -> None:
    weights = np.array([0.5, 1, 2, 3, 4], np.float32)
    for minlength in (0, 10):
        same(eagerly(snp.bincount, COUNTED, None, minlength),
             np.bincount(COUNTED, None, minlength).astype(np.int32))  # fmt: skip
        same(run(lambda x, n=minlength: snp.bincount(x, minlength=n, length=8), COUNTED),
             np.bincount(COUNTED, None, 8).astype(np.int32))  # fmt: skip
    same(eagerly(snp.bincount, COUNTED, weights), np.bincount(COUNTED, weights).astype(np.float32))
    same(run(lambda x: snp.bincount(x, length=4), COUNTED), np.array([1, 1, 0, 2], np.int32))
    same(eagerly(snp.bincount, COUNTED[:0]), np.zeros(0, np.int32))


SAMPLE = (np.arange(40) * 7 % 23 / 4).astype(np.float32)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weights", [None, np.arange(40, dtype=np.float32)], ids=["ones", "more"])
def test_histogram(density: bool, weights: Any) -> None:
    for bins, bounds in ((10, None), (4, (0, 3)), ([0.0, 1.0, 2.0, 5.5], None)):
        counts, edges = np.histogram(SAMPLE, bins, bounds, density=density, weights=weights)
        expected = counts.astype(np.float32), np.asarray(edges).astype(np.float32)
        options = {"density": density, "weights": weights}
        same(run(snp.histogram, SAMPLE, bins, bounds, **options), expected)
        same(eagerly(snp.histogram, SAMPLE, bins, bounds, **options), expected)
    same(run(snp.histogram, np.ones(3, np.float32), 2),
         tuple(np.asarray(x, np.float32) for x in np.histogram(np.ones(3), 2)))  # fmt: skip
    same(run(snp.histogram_bin_edges, SAMPLE, 5),
         np.histogram_bin_edges(SAMPLE, 5).astype(np.float32))  # fmt: skip


@pytest.mark.parametrize("density", [False, True])
def test_histogramdd(density: bool) -> None:
    """The counts are integers, as in JAX."""
    y, kind = np.flip(SAMPLE).copy(), np.float32 if density else np.int32
    counts, xs, ys = np.histogram2d(SAMPLE, y, [3, 4], density=density)
    same(run(lambda x, y: snp.histogram2d(x, y, [3, 4], density=density), SAMPLE, y),
         (counts.astype(kind), xs.astype(np.float32), ys.astype(np.float32)))  # fmt: skip
    points = np.stack([SAMPLE, y, SAMPLE * y], 1)
    counts, edges = np.histogramdd(points, 3, density=density)
    same(run(lambda p: snp.histogramdd(p, 3, density=density), points),
         (counts.astype(kind), [e.astype(np.float32) for e in edges]))  # fmt: skip


FAULTS: list[tuple[Any, str]] = [
    (lambda x: snp.sort(x[0]), "sort takes at least one dimension, got a scalar"),
    (lambda x: snp.sort(x, 1), "axis 1 is out of range for an array of rank 1"),
    (lambda x: snp.lexsort([x, x[1:]]), "lexsort takes keys of one shape, got (9,), (8,)"),
    (lambda x: snp.searchsorted(x, 1, side="middle"),
     "side 'middle' is unknown; it is 'left' or 'right'"),
    (lambda x: snp.searchsorted(x, 1, method="fast"),
     "method 'fast' is unknown; the methods are scan, scan_unrolled, sort, compare_all"),
    (lambda x: snp.searchsorted(x[None], 1),
     "searchsorted takes a vector as the table, got shape (1, 9)"),
    (lambda x: snp.bincount(x.astype(int)),
     "the length of bincount depends on values that are traced; state it with length="),
    (lambda x: snp.bincount(x, length=3), "bincount takes a vector of integers, got f32[9]"),
    (lambda x: snp.interp(x, x, x[1:]),
     "interp takes points as two vectors of one size, got (9,) and (8,)"),
    (lambda x: snp.interp(x, x, x, left="no"), "left='no' is unknown; it is a number or "
     "'extrapolate'"),
    (lambda x: snp.histogram(x, "auto"),
     "bins='auto' is unknown; it is a number of bins or a vector of edges"),
    (lambda x: snp.partition(x, 9), "axis 9 is out of range for an array of rank 9"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_invalid_arguments_are_errors(call: Any, message: str) -> None:
    with pytest.raises((OperationTypeError, TypeError, ValueError)) as caught:
        run(call, ODD)
    first, *rest = str(caught.value).split("\n")
    assert first == message
    assert "test_sort_functions.py" in rest[0]


def test_sorting_keys_is_an_error() -> None:
    from shardir.frontend.random import api as random

    keys = random.split(random.key(0), 3)
    with pytest.raises(OperationTypeError, match="random keys have no order"):
        snp.sort(keys)
    assert snp.sort(from_numpy(ODD)).shape == (9,)


def test_argsort_returns_indices_of_the_requested_dtype() -> None:
    x = np.array([3, 1, 2], np.float32)
    assert run(lambda x: snp.argsort(x, dtype="int8"), x).tolist() == [1, 2, 0]
    assert run(lambda x: snp.argsort(x, dtype="int8"), x).dtype == np.int8
    assert error_line(OperationTypeError, lambda: snp.argsort(np.ones(300), dtype="int8")) == (
        "argsort returns indices below 300, which dtype=i8 cannot represent"
    )


def test_axes_are_integers_of_any_kind_and_several_for_size() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    axes: list[Any] = [np.array(1), np.int8(1), 1]
    for axis in axes:
        np.testing.assert_array_equal(snp.sort(x, axis), x)
    assert snp.size(x, (0, 1)) == 6
    assert snp.size(x, ()) == 1
    counts = run(lambda x: snp.bincount(x, length=2), x[0] > 1)
    np.testing.assert_array_equal(counts, [2, 1])
