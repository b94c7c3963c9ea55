"""Operations that create and arrange elements, in special cases."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir import ops
from shardir.ir.builder import Builder
from shardir.ir.operation import Dense
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
from tests.op_evaluation import apply_op, cotangents, infer_types
from tests.op_sample import t


def test_broadcast_repeats_dimensions_of_size_1() -> None:
    x = np.array([[1], [2]], "f4")
    made = apply_op(ops.broadcast, x, dims=(0, 2), result=t("f32", 2, 3, 2))
    np.testing.assert_array_equal(made[:, 0, 0], [1, 2])
    assert made.shape == (2, 3, 2)


def test_concatenate_joins_in_order() -> None:
    x, y = np.array([[1, 2]]), np.array([[3]])
    np.testing.assert_array_equal(apply_op(ops.concatenate, x, y, dim=1), [[1, 2, 3]])


def test_iota_counts_along_its_dimension() -> None:
    np.testing.assert_array_equal(
        apply_op(ops.iota, dim=1, result=t("i32", 2, 3)), [[0, 1, 2], [0, 1, 2]]
    )


def test_a_long_bf16_iota_is_rounded() -> None:
    made = apply_op(ops.iota, dim=0, result=t("bf16", 300))
    assert float(made[-1]) == 300  # 299 is not representable in bf16


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (-0.0, t("f32", 2)),
        (float("nan"), t("f64")),
        (2**63, t("u64")),
        (True, t("bool", 2)),
        (2.0**70, t("bf16", 2)),
    ],
)
def test_a_splat_fills_the_tensor(value: float, type: TensorType) -> None:
    made = apply_op(ops.constant, value=value, result=type)
    np.testing.assert_array_equal(made, np.full(type.shape, value, type.numpy))
    if type.dtype == "f32":
        assert np.signbit(made).all()


def test_a_splat_is_rounded_once() -> None:
    made = apply_op(ops.constant, value=1 + 2.0**-8 + 2.0**-40, result=t("bf16"))
    assert float(made) == 1 + 2.0**-7
    assert float(apply_op(ops.constant, value=2**70, result=t("bf16"))) == 2.0**70


def test_a_dense_constant_is_its_array() -> None:
    keys = Dense(np.array([2**63 + 1], np.uint64))
    assert apply_op(ops.constant, value=keys, result=t("key", 1))[0] == 2**63 + 1


def test_the_bits_of_one_follow_ieee_754() -> None:
    one = np.ones(1, np.float32)
    assert apply_op(ops.bitcast, one, result=t("u32", 1))[0] == 0x3F800000
    parts = apply_op(ops.bitcast, one, result=t("u8", 1, 4))
    np.testing.assert_array_equal(parts, [[0, 0, 0x80, 0x3F]])
    assert apply_op(ops.bitcast, parts, result=t("f32", 1)) == one


def test_a_key_shows_its_high_word_first() -> None:
    words = np.array([[1, 2]], np.uint32)
    key = apply_op(ops.bitcast, words, result=t("key", 1))
    assert key[0] == (1 << 32) + 2
    b = Builder()
    param = b.param(t("key", 1))
    assert b.bitcast(param, result=t("u32", 1, 2)).type == t("u32", 1, 2)
    assert ops.bitcast.reference is not None
    np.testing.assert_array_equal(ops.bitcast.reference(key, result=t("u32", 1, 2)), words)


def test_slices_agree_with_numpy() -> None:
    x = np.arange(24).reshape(4, 6)
    made = apply_op(ops.slice_, x, starts=(1, 0), strides=(2, 3), result=t("i64", 2, 2))
    np.testing.assert_array_equal(made, x[1:4:2, 0:6:3])


@given(st.integers(0, 4), st.integers(-6, 4), st.integers(-6, 4), st.integers(0, 3))
def test_pad_adds_interior_padding_before_edge_padding(
    size: int, low: int, high: int, interior: int
) -> None:
    """Position i of the result is position i - low of the dilated dimension."""
    spread = size + max(size - 1, 0) * interior
    if spread + low + high < 0:
        return
    expected = []
    for position in range(-low, spread + high):
        index, between = divmod(position, interior + 1)
        expected.append(index + 1 if not between and 0 <= position < spread else 0)
    made = apply_op(ops.pad, np.arange(size) + 1, 0, low=(low,), high=(high,), interior=(interior,))
    np.testing.assert_array_equal(made, expected)


def test_negative_padding_may_exceed_the_size() -> None:
    made = apply_op(ops.pad, np.array([1, 2]), 0, low=(-3,), high=(4,), interior=(0,))
    np.testing.assert_array_equal(made, [0, 0, 0])


@pytest.mark.parametrize(("start", "expected"), [(1, [1, 2]), (9, [3, 4]), (-3, [0, 1])])
def test_a_window_out_of_bounds_is_clamped(start: int, expected: list[int]) -> None:
    x = np.arange(5)
    made = apply_op(ops.dynamic_slice, x, np.int32(start), result=t("i64", 2))
    np.testing.assert_array_equal(made, expected)
    written = apply_op(ops.dynamic_update_slice, x, np.array([70, 80]), np.int32(start))
    changed = np.array(x)
    changed[expected] = [70, 80]
    np.testing.assert_array_equal(written, changed)


def test_unsigned_starts_do_not_wrap() -> None:
    made = apply_op(ops.dynamic_slice, np.arange(5), np.uint8(255), result=t("i64", 2))
    np.testing.assert_array_equal(made, [3, 4])


def test_an_update_does_not_change_its_operand() -> None:
    x = np.zeros(3)
    apply_op(ops.dynamic_update_slice, x, np.ones(1), np.int32(0))
    np.testing.assert_array_equal(x, 0)


def test_the_cotangent_of_a_padding_value_sums_over_the_padding() -> None:
    g = np.arange(6.0)
    x, value = cotangents(ops.pad, np.ones(3), 0.0, low=(1,), high=(-1,), interior=(1,), g=g[:5])
    np.testing.assert_array_equal(x, [1, 3, 0])
    np.testing.assert_array_equal(value, 0 + 2 + 4)


def test_a_barrier_returns_all_operands() -> None:
    x, y = t("f32", 3), t("i32")
    assert infer_types(ops.optimization_barrier, x, y) == (x, y)


def test_the_cotangent_of_a_constraint_has_the_same_constraint() -> None:
    b = Builder()
    sharding = Sharding.fully_replicated("m", 1)
    x, g = b.param(t("f32", 3)), b.param(t("f32", 3))
    y = b.sharding_constraint(x, sharding=sharding)
    assert ops.sharding_constraint.vjp is not None
    (found,) = ops.sharding_constraint.vjp(b, g, x, y)
    assert found is not None
    assert found.sharding == sharding
