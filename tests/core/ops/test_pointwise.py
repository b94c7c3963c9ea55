"""Elementwise operations have StableHLO's semantics, including special cases."""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir import ops
from shardir.ir.operation import OpSpec
from shardir.ir.types import NUMPY_DTYPES, TensorType
from tests.op_evaluation import Array, apply_op, cotangents

INF, NAN = np.inf, np.nan
BF16 = ml_dtypes.bfloat16


def _same(made: Array, expected: Array) -> None:
    """Check that arrays are equal, with equal signs of zeros and NaN at the same positions."""
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made, expected)
    if expected.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(made)[numbers], np.signbit(expected)[numbers])


def _each(spec: OpSpec, dtype: Any, *operands: list[Any], to: Any = None) -> Array:
    made: Array = apply_op(spec, *(np.array(x, dtype) for x in operands), result=to)
    return made


# Integers


WIDTHS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


def _wrap(value: int, dtype: str) -> int:
    bits = int(dtype[1:])
    value %= 1 << bits
    return value - (1 << bits) if dtype[0] == "i" and value >> (bits - 1) else value


def _limits(dtype: str) -> tuple[int, int]:
    limits = np.iinfo(NUMPY_DTYPES[dtype])
    return int(limits.min), int(limits.max)


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[str, int, int]:
    dtype = draw(st.sampled_from(WIDTHS))
    low, high = _limits(dtype)
    number = st.integers(low, high) | st.sampled_from([low, high, 0, 1, max(low, -1), 2, 3])
    return dtype, draw(number), draw(number)


def _quotient(x: int, y: int) -> int:
    return -1 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def _remainder(x: int, y: int) -> int:
    return x if y == 0 else x - _quotient(x, y) * y


def _power(x: int, y: int) -> int:
    if y >= 0:
        return pow(x, y, 1 << 64)
    return 1 if x == 1 else (1 if y % 2 == 0 else -1) if x == -1 else 0


MEANINGS: dict[OpSpec, Callable[[int, int], int]] = {
    ops.add: lambda x, y: x + y,
    ops.sub: lambda x, y: x - y,
    ops.mul: lambda x, y: x * y,
    ops.div: _quotient,
    ops.rem: _remainder,
    ops.pow_: _power,
    ops.maximum: max,
    ops.minimum: min,
    ops.and_: lambda x, y: x & y,
    ops.or_: lambda x, y: x | y,
    ops.xor: lambda x, y: x ^ y,
}


@given(_pairs())
def test_integers_wrap_around(pair: tuple[str, int, int]) -> None:
    dtype, x, y = pair
    for spec, meaning in MEANINGS.items():
        made = _each(spec, NUMPY_DTYPES[dtype], [x], [y])
        assert (spec.name, int(made[0])) == (spec.name, _wrap(meaning(x, y), dtype))


@given(_pairs())
def test_shifts_by_any_amount(pair: tuple[str, int, int]) -> None:
    dtype, x, amount = pair
    bits = int(dtype[1:])
    amount = amount % (1 << bits)
    raw, near = x % (1 << bits), min(amount, 2 * bits)
    top = raw >> (bits - 1)
    expected = {
        ops.shift_left: raw << near if amount < bits else 0,
        ops.shift_right_logical: raw >> near,
        ops.shift_right_arithmetic: (raw - (top << bits)) >> near,
    }
    for spec, value in expected.items():
        made = _each(spec, NUMPY_DTYPES[dtype], [x], [_wrap(amount, dtype)])
        assert int(made[0]) == _wrap(value, dtype)


@given(_pairs())
def test_bits_are_counted(pair: tuple[str, int, int]) -> None:
    dtype, x, _ = pair
    bits = int(dtype[1:])
    raw = x % (1 << bits)
    assert int(_each(ops.popcnt, NUMPY_DTYPES[dtype], [x])[0]) == raw.bit_count()
    assert int(_each(ops.clz, NUMPY_DTYPES[dtype], [x])[0]) == bits - raw.bit_length()
    assert int(_each(ops.not_, NUMPY_DTYPES[dtype], [x])[0]) == _wrap(~x, dtype)


def test_negation_of_the_minimum_wraps_around() -> None:
    least = [-(2**31)]
    _same(_each(ops.neg, "i4", least), np.array(least, "i4"))
    _same(_each(ops.abs_, "i4", least), np.array(least, "i4"))
    _same(_each(ops.div, "i4", least, [-1]), np.array(least, "i4"))
    _same(_each(ops.rem, "i4", least, [-1]), np.array([0], "i4"))


# Floats


def test_extremes_order_zeros_and_propagate_nan() -> None:
    x, y = [0.0, -0.0, -0.0, NAN, 1.0, 2.0, -INF], [-0.0, 0.0, -0.0, 1.0, NAN, 3.0, INF]
    highest = np.array([0.0, 0.0, -0.0, NAN, NAN, 3.0, INF], "f4")
    lowest = np.array([-0.0, -0.0, -0.0, NAN, NAN, 2.0, -INF], "f4")
    _same(_each(ops.maximum, "f4", x, y), highest)
    _same(_each(ops.minimum, "f4", x, y), lowest)


def test_round_goes_to_even() -> None:
    x = [0.5, 1.5, 2.5, -0.5, -1.5, 0.2, -0.2, NAN, INF]
    _same(_each(ops.round_, "f4", x), np.array([0, 2, 2, -0.0, -2, 0, -0.0, NAN, INF], "f4"))


def test_sign_preserves_zeros_and_nan() -> None:
    _same(_each(ops.sign, "f4", [-0.0, 0.0, NAN, -INF, 3]), np.array([-0.0, 0, NAN, -1, 1], "f4"))


def test_the_sign_of_a_complex_number_has_modulus_one() -> None:
    made = _each(ops.sign, "c8", [3 + 4j, 0, -2j])
    np.testing.assert_allclose(made, np.array([0.6 + 0.8j, 0, -1j], "c8"), rtol=1e-6)


def test_remainders_have_the_sign_of_the_dividend() -> None:
    x, y = [5.5, -5.5, 5.5, -0.0, 1.0, INF, 2.0], [2, 2, -2, 3, 0, 1, INF]
    _same(_each(ops.rem, "f4", x, y), np.array([1.5, -1.5, 1.5, -0.0, NAN, NAN, 2.0], "f4"))


def test_division_by_zero_is_infinite() -> None:
    x, y = [1, -1, 0, 1], [0.0, 0.0, 0.0, -0.0]
    _same(_each(ops.div, "f4", x, y), np.array([INF, -INF, NAN, -INF], "f4"))


def test_powers() -> None:
    x, y = [-8, 0, 0, NAN, 1, 4, -2], [1 / 3, 0, -1, 0, NAN, 0.5, 3]
    _same(_each(ops.pow_, "f8", x, y), np.array([NAN, 1, INF, 1, 1, 2, -8], "f8"))


def test_logistic_saturates() -> None:
    made = _each(ops.logistic, "f4", [-INF, -100, 0, 100, INF, NAN])
    expected = np.array([0, np.exp(-100.0), 0.5, 1, 1, NAN], "f4")
    np.testing.assert_allclose(made, expected, rtol=1e-6)
    assert made[1] > 0


def test_rsqrt_of_special_values() -> None:
    expected = np.array([INF, -INF, 0, NAN, 0.5], "f4")
    _same(_each(ops.rsqrt, "f4", [0.0, -0.0, INF, -1, 4]), expected)


def test_next_after_uses_the_spacing_of_the_dtype() -> None:
    _same(_each(ops.nextafter, "f4", [0.0], [1.0]), np.array([2.0**-149], "f4"))
    assert _each(ops.nextafter, BF16, [1.0], [2.0])[0] == BF16(1 + 2.0**-7)
    assert _each(ops.nextafter, "f2", [1.0], [0.0])[0] == np.float16(1 - 2.0**-11)


def test_comparisons_with_nan_are_false() -> None:
    for spec in (ops.eq, ops.lt, ops.le, ops.gt, ops.ge):
        assert not _each(spec, "f4", [NAN, 1, NAN], [NAN, NAN, 1]).any()
    assert _each(ops.ne, "f4", [NAN, 1], [NAN, NAN]).all()
    assert _each(ops.eq, "f4", [0.0], [-0.0]).all()


def test_clamp_prefers_the_upper_bound_and_propagates_nan() -> None:
    made = apply_op(ops.clamp, np.float32(2), np.array([0, 1.5, NAN], "f4"), np.float32(1))
    _same(made, np.array([1, 1, NAN], "f4"))


def test_select_with_a_scalar_predicate() -> None:
    x, y = np.arange(3), np.arange(3) + 10
    _same(apply_op(ops.select, np.array(False), x, y), y)


def test_complex_parts_round_trip() -> None:
    real, imag = np.array([INF, -0.0, 1], "f4"), np.array([NAN, INF, -0.0], "f4")
    whole = apply_op(ops.complex_, real, imag)
    _same(apply_op(ops.real, whole), real)
    _same(apply_op(ops.imag, whole), imag)
    _same(apply_op(ops.imag, apply_op(ops.conj, whole)), -imag)


# Rounding


@cache
def _positive(dtype: Any) -> tuple[Array, Array]:
    """Return the finite positive numbers of a narrow dtype in ascending order, and the same in
    f64.
    """
    numbers = np.arange(1 << 15, dtype=np.uint16).view(dtype)
    numbers = numbers[np.isfinite(numbers.astype(np.float32))]
    return numbers, numbers.astype(np.float64)


def _exactly(value: Fraction, dtype: Any) -> Array:
    """Return the nearest number of a narrow dtype to an exact value, ties to even."""
    numbers, wide = _positive(dtype)
    size = abs(value)
    start = max(int(np.searchsorted(wide, float(size))) - 2, 0)
    best = min(range(start, start + 4), key=lambda i: (abs(Fraction(float(wide[i])) - size), i % 2))
    nearest: Array = -numbers[best] if value < 0 else numbers[best]
    return nearest


@pytest.mark.parametrize("dtype", [BF16, np.float16], ids=["bf16", "f16"])
@given(data=st.data())
def test_narrow_arithmetic_is_rounded_once(dtype: Any, data: st.DataObject) -> None:
    number = st.floats(0.0078125, 100, width=32).map(lambda x: dtype(x))
    x, y = data.draw(number), data.draw(number)
    left, right = Fraction(float(x)), Fraction(float(y))
    for spec, value in (
        (ops.add, left + right),
        (ops.sub, left - right),
        (ops.mul, left * right),
        (ops.div, left / right),
    ):
        if value:
            assert _each(spec, dtype, [x], [y])[0] == _exactly(value, dtype)


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**7).map(lambda n: (257 << 54) + n - 64))
def test_integers_become_bf16_in_one_rounding(number: int) -> None:
    made = apply_op(ops.convert, np.array([number]), result=TensorType((1,), "bf16"))
    assert made[0] == _exactly(Fraction(number), BF16)


@given(st.floats(0.01, 100))
def test_f64_becomes_bf16_in_one_rounding(number: float) -> None:
    for x in (number, float(BF16(number)) * (1 + 2.0**-9) + 2.0**-50):
        made = apply_op(ops.convert, np.array([x]), result=TensorType((1,), "bf16"))
        assert made[0] == _exactly(Fraction(x), BF16)


# Conversions


def _convert(x: Any, to: str) -> Array:
    array = np.asarray(x)
    made: Array = apply_op(ops.convert, array, result=TensorType(array.shape, to))
    return made


def test_floats_become_integers_towards_zero_and_saturate() -> None:
    x = np.array([1.9, -1.9, 3e9, -3e9, NAN, INF, -INF], "f4")
    least, most = -(2**31), 2**31 - 1
    expected = np.array([1, -1, most, least, 0, most, least], "i4")
    _same(_convert(x, "i32"), expected)
    _same(_convert(x[:4], "u8"), np.array([1, 0, 255, 0], "u1"))
    _same(_convert(np.array([2.0**63, -(2.0**63)]), "i64"), np.array([2**63 - 1, -(2**63)]))
    _same(_convert(np.array([2.0**64 - 2048]), "u64"), np.array([2**64 - 2048], "u8"))


def test_integers_wrap_into_narrower_ones() -> None:
    _same(_convert(np.array([-1, 300], "i4"), "u8"), np.array([255, 44], "u1"))


def test_every_number_except_zero_is_true() -> None:
    _same(_convert(np.array([0.0, -0.0, NAN, 0.1]), "bool"), np.array([0, 0, 1, 1], "?"))
    _same(_convert(np.array([0, 1j]), "bool"), np.array([False, True]))


def test_the_imaginary_part_is_dropped() -> None:
    _same(_convert(np.array([1.5 + 2j], "c8"), "f32"), np.array([1.5], "f4"))
    _same(_convert(np.array([1.5 + 2j], "c8"), "i32"), np.array([1], "i4"))


def test_large_numbers_become_infinite() -> None:
    _same(_convert(np.array([1e300, -1e300]), "f32"), np.array([INF, -INF], "f4"))
    assert np.isinf(_convert(np.array([3.4e38], "f4"), "bf16")).all()


# Derivatives at points where several values are valid


def test_equal_operands_of_extremes_share_the_cotangent() -> None:
    x, y = np.array([1.0, 2, 3]), np.array([1.0, 3, 2])
    for spec, wins in ((ops.maximum, [0.5, 0, 1]), (ops.minimum, [0.5, 1, 0])):
        first, second = cotangents(spec, x, y)
        np.testing.assert_array_equal(first, wins)
        np.testing.assert_array_equal(second, 1 - np.array(wins))


def test_powers_have_the_zero_derivatives_of_jax() -> None:
    in_base, in_exponent = cotangents(ops.pow_, np.array([0.0, 0, 2]), np.array([0.0, 2, 0]))
    np.testing.assert_array_equal(in_base, [0, 0, 0])
    np.testing.assert_array_equal(in_exponent, [0, 0, np.log(2.0)])


def test_abs_has_the_derivative_of_jax_at_zero() -> None:
    (real,) = cotangents(ops.abs_, np.array([0.0, -2]))
    (whole,) = cotangents(ops.abs_, np.array([0j]))
    np.testing.assert_array_equal(real, [1, -1])
    np.testing.assert_array_equal(whole, [0])


def test_the_cotangent_of_a_scalar_bound_is_a_sum() -> None:
    low, inner, high = cotangents(ops.clamp, 0.0, np.array([-2.0, -1, 0.5, 3, 0, 1]), 1.0)
    np.testing.assert_array_equal(inner, [0, 0, 1, 0, 0, 0])
    np.testing.assert_array_equal(np.array([low, high]), [2, 1])


def test_no_cotangent_flows_through_stop_gradient() -> None:
    assert cotangents(ops.stop_gradient, np.ones(3)) == [None]


def test_conversion_to_integers_and_back_has_zero_derivative() -> None:
    made = TensorType((2,), "i32")
    assert cotangents(ops.convert, np.ones(2), result=made) == [None]


def test_a_real_operand_of_a_complex_result_has_a_real_cotangent() -> None:
    (found,) = cotangents(
        ops.convert, np.ones(1), g=np.array([3 + 4j]), result=TensorType((1,), "c128")
    )
    np.testing.assert_array_equal(found, [3.0])
