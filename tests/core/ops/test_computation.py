"""Contractions, reductions, cumulative operations and sorts, in special cases."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir import ops
from shardir.ir.operation import OpSpec
from tests.op_evaluation import Array, apply_op, cotangents
from tests.op_sample import t

INF, NAN = np.inf, np.nan


def test_16_bit_products_are_summed_in_f32() -> None:
    """A sum of 4097 ones in bf16 would stop at 256."""
    ones = np.ones(4096, ml_dtypes.bfloat16)
    assert float(apply_op(ops.dot, ones, ones, dims="i,i->")) == 4096
    assert float(apply_op(ops.sum_, ones, dims=(0,))) == 4096
    assert float(apply_op(ops.cumsum, ones, dim=0, reverse=False)[-1]) == 4096


def test_a_stated_dtype_is_the_dtype_of_the_sum() -> None:
    bytes_ = np.full(8, 200, np.uint8)
    assert apply_op(ops.dot, bytes_, bytes_, dims="i,i->") == (8 * 200 * 200) % 256
    wide = apply_op(ops.dot, bytes_, bytes_, dims="i,i->", result=t("i32"))
    assert wide == 8 * 200 * 200


def test_a_letter_of_one_operand_is_summed() -> None:
    x, y = np.arange(6.0).reshape(2, 3), np.array([1.0, 10])
    made = apply_op(ops.dot, x, y, dims="ij,i->i")
    np.testing.assert_array_equal(made, x.sum(1) * y)
    left, right = cotangents(ops.dot, x, y, dims="ij,i->i")
    np.testing.assert_array_equal(left, np.repeat(y[:, None], 3, 1))
    np.testing.assert_array_equal(right, x.sum(1))


def test_integer_sums_wrap_around() -> None:
    assert apply_op(ops.sum_, np.array([200, 100], np.uint8), dims=(0,)) == 44
    assert apply_op(ops.prod, np.array([100, 3], np.int8), dims=(0,)) == 44


@pytest.mark.parametrize(
    ("spec", "dtype", "expected"),
    [
        (ops.sum_, "f4", 0),
        (ops.prod, "f4", 1),
        (ops.max_, "f4", -INF),
        (ops.min_, "f4", INF),
        (ops.max_, "i1", -128),
        (ops.min_, "u1", 255),
        (ops.max_, "?", False),
        (ops.any_, "?", False),
        (ops.all_, "?", True),
    ],
)
def test_an_empty_reduction_gives_the_identity(spec: OpSpec, dtype: str, expected: float) -> None:
    assert apply_op(spec, np.zeros((0, 2), dtype), dims=(0, 1)) == expected


def test_extremes_keep_nan_and_order_zeros() -> None:
    assert np.isnan(apply_op(ops.max_, np.array([1, NAN, 3]), dims=(0,)))
    for order in ([0.0, -0.0], [-0.0, 0.0]):
        assert not np.signbit(apply_op(ops.max_, np.array(order), dims=(0,)))
        assert np.signbit(apply_op(ops.min_, np.array(order), dims=(0,)))
    assert np.signbit(apply_op(ops.max_, np.array([-0.0, -1]), dims=(0,)))
    assert not np.signbit(apply_op(ops.min_, np.array([0.0, 1]), dims=(0,)))


def test_argmax_returns_the_first_extreme_or_nan() -> None:
    x = np.array([[1, 3, 3], [NAN, 9, NAN]])
    np.testing.assert_array_equal(apply_op(ops.argmax, x, dim=1, result=t("i32", 2)), [1, 0])
    np.testing.assert_array_equal(apply_op(ops.argmin, -x, dim=1, result=t("u8", 2)), [1, 0])


def test_equal_extremes_share_the_cotangent() -> None:
    x = np.array([3.0, 1, 3, 3])
    (most,) = cotangents(ops.max_, x, dims=(0,), g=6.0)
    (least,) = cotangents(ops.min_, -x, dims=(0,), g=6.0)
    np.testing.assert_array_equal(most, [2, 0, 2, 2])
    np.testing.assert_array_equal(least, [2, 0, 2, 2])


@pytest.mark.parametrize(
    ("x", "expected"),
    [([2.0, 3, 4], [12, 8, 6]), ([0.0, 3, 4], [12, 0, 0]), ([0.0, 3, 0], [0, 0, 0])],
)
def test_products_have_cotangents_at_zero(x: list[float], expected: list[float]) -> None:
    (found,) = cotangents(ops.prod, np.array(x), dims=(0,))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative_products_have_cotangents_at_zero(reverse: bool) -> None:
    x, g = np.array([2.0, 0, 5, 0, 3]), np.array([1.0, 2, 3, 4, 5])
    if reverse:
        x, g = x[::-1], g[::-1]
    (found,) = cotangents(ops.cumprod, x, dim=0, reverse=reverse, g=g)
    assert found is not None
    found = found[::-1] if reverse else found
    # y = a, ab, abc, abcd, abcde with b = d = 0
    np.testing.assert_array_equal(found, [1 + 0, 2 * 2 + 2 * 5 * 3, 0, 0, 0])


def test_cumulative_extremes_propagate_nan() -> None:
    x = np.array([1, 3, 2, NAN, 4])
    np.testing.assert_array_equal(
        apply_op(ops.cummax, x, dim=0, reverse=False), [1, 3, 3, NAN, NAN]
    )
    np.testing.assert_array_equal(
        apply_op(ops.cummin, x, dim=0, reverse=True), [NAN, NAN, NAN, NAN, 4]
    )


def test_cumulative_logsumexp_does_not_overflow() -> None:
    x = np.array([-INF, -1e4, 1e4, -INF, INF])
    made = apply_op(ops.cumlogsumexp, x, dim=0, reverse=False)
    np.testing.assert_array_equal(made, [-INF, -1e4, 1e4, 1e4, INF])


def test_cumulative_logsumexp_has_finite_cotangents() -> None:
    x = np.array([-INF, -INF, 0.0, 1000.0, 1000.0])
    (found,) = cotangents(ops.cumlogsumexp, x, dim=0, reverse=False, g=np.array([0.0, 0, 1, 1, 1]))
    assert found is not None
    np.testing.assert_allclose(found, np.array([0, 0, 1, 1.5, 0.5]), atol=1e-12)


def test_sort_puts_nan_last_and_is_stable() -> None:
    x = np.array([NAN, 1, -0.0, -INF, 0.0, NAN, INF])
    made, places = apply_op(ops.sort, x, np.arange(7), dim=0)
    np.testing.assert_array_equal(made, [-INF, -0.0, 0.0, 1, INF, NAN, NAN])
    np.testing.assert_array_equal(places, [3, 2, 4, 1, 6, 0, 5])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12))
def test_several_keys_sort_lexicographically(pairs: list[tuple[int, int]]) -> None:
    columns = [np.array([pair[i] for pair in pairs], np.int32) for i in (0, 1)]
    made = apply_op(ops.sort, *columns, np.arange(len(pairs)), dim=0, keys=2)
    order = sorted(range(len(pairs)), key=lambda i: pairs[i])
    np.testing.assert_array_equal(made[2], order)


def test_top_k_uses_the_total_order() -> None:
    x = np.array([0.0, -0.0, NAN, INF, 1, -0.0, 0.0, -NAN], np.float32)
    values, places = apply_op(ops.top_k, x, result=(t("f32", 8), t("i32", 8)))
    np.testing.assert_array_equal(places, [2, 3, 4, 0, 6, 1, 5, 7])
    np.testing.assert_array_equal(values, x[places])


def test_top_k_is_stable() -> None:
    x = np.array([[1, 3, 3, 2], [5, 5, 5, 5]], np.uint8)
    values, places = apply_op(ops.top_k, x, result=(t("u8", 2, 2), t("i32", 2, 2)))
    np.testing.assert_array_equal(values, [[3, 3], [5, 5]])
    np.testing.assert_array_equal(places, [[1, 2], [0, 1]])


@given(st.integers(1, 7), st.integers(1, 7))
def test_sums_are_those_of_exact_arithmetic(rows: int, columns: int) -> None:
    x: Array = np.random.default_rng(rows * 8 + columns).normal(size=(rows, columns))
    x = x.astype(np.float32)
    made = apply_op(ops.sum_, x, dims=(1,))
    exact = [math.fsum(map(float, row)) for row in x]
    np.testing.assert_array_equal(made, np.array(exact, np.float32))
