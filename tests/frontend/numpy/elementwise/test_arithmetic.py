"""Binary functions against NumPy: values, promotion, broadcasting and emitted operations."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
from shardir.errors import OperationTypeError
from shardir.frontend.config import config
from shardir.frontend.numpy import api as snp
from shardir.ir.types import NUMPY_DTYPES, dtype_name
from tests.namespace import check, eagerly, numpy_result, ops, run, same, words

pytestmark = pytest.mark.sample(5)

GENERATOR = np.random.default_rng(3)
FLOATS = (GENERATOR.normal(size=(3, 4)) * 3).astype("f")
ROW = (GENERATOR.normal(size=(4,)) * 3).astype("f")
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, 3.5, -3.5, 1.0, 1e-40], "f")
WHOLE = np.array([-(2**31), -7, -3, -1, 0, 1, 3, 7, 2**31 - 1], "i4")
BYTES = np.array([0, 1, 2, 3, 7, 254, 255], "u1")
TRUTH = np.array([True, False])
PLANE = (GENERATOR.normal(size=(2, 3)) + 1j * GENERATOR.normal(size=(2, 3))).astype("c8")

RING = words("add subtract multiply")
RATIO = words("floor_divide remainder mod fmod divmod")
COMPLEX_REFUSAL = (
    r"^{} takes no complex numbers, got c64\[2, 3\]; pass .real, .imag or abs\n  --> tests/"
)
"""The error of a function of real numbers."""


def quotient(x: Any, y: Any) -> Any:
    """Return NumPy's quotient of integers; for division by zero, JAX's quotient
    (`docs/numerics.md`).
    """
    found = np.floor_divide(x, y)
    if np.issubdtype(found.dtype, np.signedinteger):
        by_zero = np.where(np.broadcast_to(x, found.shape) == 0, -1, -2).astype(found.dtype)
    elif np.issubdtype(found.dtype, np.unsignedinteger):
        by_zero = np.full(found.shape, np.iinfo(found.dtype).max, found.dtype)
    else:
        return found
    return np.where(np.broadcast_to(y, found.shape) == 0, by_zero, found)


QUOTIENTS: dict[str, Any] = {
    "floor_divide": quotient,
    "divmod": lambda x, y: (quotient(x, y), np.remainder(x, y)),
}
ORDER = words("maximum minimum fmax fmin")
COMPARE = words("equal not_equal less less_equal greater greater_equal")
LOGIC = words("logical_and logical_or logical_xor")
BITS = words("bitwise_and bitwise_or bitwise_xor")
FLOAT = words("""divide true_divide arctan2 hypot logaddexp logaddexp2 copysign nextafter heaviside
    float_power power""")


@pytest.mark.parametrize("name", RING + RATIO + ORDER + COMPARE + LOGIC + FLOAT)
@pytest.mark.parametrize(
    ("x", "y"),
    [(FLOATS, FLOATS[::-1].copy()), (FLOATS, ROW), (FLOATS[:, :1].copy(), ROW), (ROW[:0], ROW[:0])],
    ids=["equal shapes", "row", "outer", "empty"],
)
def test_floats(name: str, x: Any, y: Any) -> None:
    if "power" in name:
        x = np.abs(x)
    check(name, x, y, dtype="f32" if name == "float_power" else None)


@pytest.mark.parametrize("name", RING + RATIO + ORDER + COMPARE + LOGIC + FLOAT)
def test_special_floats(name: str) -> None:
    """Compare every pair of special values."""
    check(name, ODD[:, None].copy(), ODD, dtype="f32" if name == "float_power" else None)


@pytest.mark.parametrize("name", RING + RATIO + ORDER + COMPARE + LOGIC + BITS)
@pytest.mark.parametrize("x", [WHOLE, BYTES], ids=["i32", "u8"])
def test_integers(name: str, x: Any) -> None:
    """Compare every pair of integers, including zero as a divisor."""
    check(name, x[:, None].copy(), x, reference=QUOTIENTS.get(name))


@pytest.mark.parametrize("name", FLOAT)
def test_integers_become_floats(name: str) -> None:
    if name == "power":
        return
    x, y = WHOLE[3:7, None].copy(), WHOLE[4:7]
    check(name, x, y, reference=lambda a, b: getattr(np, name)(a.astype("f"), b.astype("f")),
          dtype="f32")  # fmt: skip


@pytest.mark.parametrize("name", ["add", "multiply", *ORDER, *COMPARE, *LOGIC, *BITS])
def test_bools(name: str) -> None:
    check(name, TRUTH[:, None].copy(), TRUTH)


@pytest.mark.parametrize("name", [*RING, "divide", "power", "equal", "not_equal", *LOGIC])
def test_complex_numbers(name: str) -> None:
    check(name, PLANE, PLANE[::-1].copy())


@pytest.mark.parametrize("name", COMPARE + ORDER)
def test_complex_numbers_compare_lexicographically(name: str) -> None:
    """The order is by the real part, then by the imaginary part."""
    x = np.array([1 + 1j, 1 - 1j, 2, np.nan, 1 + 1j], "c8")
    with np.errstate(invalid="ignore"):
        check(name, x[:, None].copy(), x[:3])


@pytest.mark.parametrize("name", ["arctan2", "hypot", "heaviside"])
def test_functions_of_real_numbers(name: str) -> None:
    with pytest.raises(OperationTypeError, match=COMPLEX_REFUSAL.format(name)):
        run(getattr(snp, name), PLANE, 1.0)


def test_bools_are_divided_as_integers() -> None:
    got = run(snp.floor_divide, TRUTH, TRUTH[:1])
    assert got.tolist() == [1, 0]
    assert got.dtype == np.int32
    assert run(snp.square, TRUTH).dtype == np.int32
    assert run(snp.bitwise_count, TRUTH).dtype == np.uint8


@pytest.mark.parametrize("number", [1, 2, 3, 7])
@pytest.mark.parametrize("name", RATIO)
@pytest.mark.parametrize("x", [WHOLE, BYTES, FLOATS, ODD], ids=["i32", "u8", "f32", "odd"])
def test_division_by_a_positive_constant(name: str, x: Any, number: int) -> None:
    check(name, x, number)


@pytest.mark.parametrize("number", [-3, -1])
@pytest.mark.parametrize("name", RATIO)
@pytest.mark.parametrize("x", [WHOLE, FLOATS], ids=["i32", "f32"])
def test_division_by_a_negative_constant(name: str, x: Any, number: int) -> None:
    check(name, x, number)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2"])
def test_division_of_8_and_16_bit_integers_by_a_runtime_scalar(dtype: str) -> None:
    """All bytes by all bytes; of longer ones the ends, and where a power of two is passed."""
    limits = np.iinfo(dtype)
    every = range(limits.min, limits.max + 1)
    near = {
        side * (1 << bit) + step for bit in range(16) for side in (-1, 1) for step in (-1, 0, 1)
    }
    divisors = every if limits.bits == 8 else sorted(near & set(every))
    step = 1 if limits.bits == 8 else 17
    x = np.array([*every][::step], dtype)
    for divisor in divisors:
        y = np.full(x.shape, divisor, dtype)
        for name in ("floor_divide", "remainder"):
            expected = numpy_result(QUOTIENTS.get(name, getattr(np, name)), x, y)
            same(getattr(snp, name)(snp.asarray(x), divisor), expected)


@pytest.mark.parametrize("dtype", ["i4", "u4"])
def test_division_of_32_bit_integers_by_a_runtime_scalar(dtype: str) -> None:
    """The ends, where a power of two is passed, and where a multiple is."""
    limits = np.iinfo(dtype)
    signs = (1,) if dtype == "u4" else (1, -1)
    near = {sign * (1 << bit) + step for bit in range(32) for sign in signs for step in (-1, 0, 1)}
    known = {7, 10, 641, 65537, 1_000_000_007, *near}
    divisors = sorted(n for n in known if n and limits.min <= n <= limits.max)
    for divisor in divisors:
        last = limits.max // divisor * divisor
        ends = {limits.min, limits.max, *(last + step for step in (-1, 0, 1))}
        ends |= {divisor * k + step for k in (1, 2, 3, 1000) for step in (-1, 0, 1)} | near
        x = np.array(sorted(n for n in ends if limits.min <= n <= limits.max), dtype)
        for name in ("floor_divide", "remainder"):
            function = QUOTIENTS.get(name, getattr(np, name))
            expected = numpy_result(function, x, np.full(x.shape, divisor, dtype))
            number = divisor if divisor < 1 << 31 else np.array(divisor, dtype)
            same(getattr(snp, name)(snp.asarray(x), number), expected)


def test_division_by_a_scalar_that_wraps_around_or_becomes_zero() -> None:
    """The divisor is the scalar converted to the dtype of the array."""
    x = WHOLE.astype("i1")
    for name in RATIO:
        expected = numpy_result(getattr(np, name), x, np.int8(200 - 256))
        same(run(getattr(snp, name), x, 200), expected)
        expected = numpy_result(getattr(np, name), ODD, np.float32(0))
        same(run(getattr(snp, name), ODD, 1e-60), expected)


@pytest.mark.parametrize("exponent", [-3, -1, 0, 1, 2, 3, 7, 20, 100, 0.5, -1.5])
def test_floats_to_a_constant_power(exponent: float) -> None:
    check("power", np.abs(FLOATS), exponent, rtol=1e-4)


@pytest.mark.parametrize("exponent", [0, 1, 2, 5, 31, 70])
def test_integers_to_a_constant_power(exponent: int) -> None:
    check("power", WHOLE[1:-1], exponent)


def test_integers_to_powers() -> None:
    check("power", WHOLE[1:-1, None].copy(), np.array([0, 1, 2, 5], "i4"))


def test_integers_to_a_constant_negative_power_are_errors() -> None:
    with pytest.raises(
        OperationTypeError, match="integers cannot be raised to the power -2; use float_power"
    ):
        run(lambda x: x**-2, WHOLE)


@pytest.mark.parametrize("name", ["left_shift", "right_shift"])
@pytest.mark.parametrize("x", [WHOLE, BYTES], ids=["i32", "u8"])
def test_shifts(name: str, x: Any) -> None:
    check(name, x[:, None].copy(), np.array([0, 1, 5], x.dtype))


@pytest.mark.parametrize("x", [WHOLE[1:], BYTES, WHOLE.astype("i1")], ids=["i32", "u8", "i8"])
def test_bit_count_and_bitwise_not(x: Any) -> None:
    check("bitwise_count", x)
    check("invert", x)


@pytest.mark.parametrize("name", ["gcd", "lcm"])
@pytest.mark.parametrize("x", [WHOLE[1:-1] * 6, BYTES[:5] * 3], ids=["i32", "u8"])
def test_gcd_and_lcm(name: str, x: Any) -> None:
    check(name, x[:, None].copy(), x[::-1].copy())


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4"])
def test_gcd_of_the_minimum_is_positive(dtype: str) -> None:
    least = np.iinfo(dtype).min
    x = np.array([least, 3, 5, -6, 12, -1, 1, 64], dtype)
    check("gcd", x[:, None].copy(), x)


KINDS = words("bool u8 u16 u32 i8 i16 i32 f16 bf16 f32 c64")
JAX_PROMOTION = """
bool u8   u16  u32  i8   i16  i32  f16  bf16 f32  c64
u8   u8   u16  u32  i16  i16  i32  f16  bf16 f32  c64
u16  u16  u16  u32  i32  i32  i32  f16  bf16 f32  c64
u32  u32  u32  u32  i32  i32  i32  f16  bf16 f32  c64
i8   i16  i32  i32  i8   i16  i32  f16  bf16 f32  c64
i16  i16  i32  i32  i16  i16  i32  f16  bf16 f32  c64
i32  i32  i32  i32  i32  i32  i32  f16  bf16 f32  c64
f16  f16  f16  f16  f16  f16  f16  f16  f32  f32  c64
bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  c64
f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  c64
c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64
"""
"""jax.numpy.add of every pair, jax 0.10.2, without 64-bit types."""


@pytest.mark.parametrize("row", range(len(KINDS)), ids=KINDS)
def test_promotion_agrees_with_jax(row: int) -> None:
    table = [line.split() for line in JAX_PROMOTION.strip().splitlines()]
    x = np.ones(2, NUMPY_DTYPES[KINDS[row]])
    for column, kind in enumerate(KINDS):
        assert (
            dtype_name(run(snp.add, x, np.ones(2, NUMPY_DTYPES[kind])).dtype)
            == (table[row][column])
        )


@pytest.mark.parametrize(
    ("x", "number", "expected"),
    [
        (BYTES, 1, "u8"),
        (BYTES, 1.0, "f32"),
        (FLOATS.astype(ml_dtypes.bfloat16), 1.5, "bf16"),
        (FLOATS, 1j, "c64"),
        (TRUTH, 1, "i32"),
        (WHOLE, True, "i32"),
    ],
)
def test_python_scalars_are_weakly_typed(x: Any, number: complex, expected: str) -> None:
    assert dtype_name(run(lambda v: v + number, x).dtype) == expected
    assert dtype_name(run(lambda v: number + v, x).dtype) == expected


def test_sixty_four_bits_when_enabled() -> None:
    with config(enable_x64=True):
        assert run(lambda x: x / 3, np.arange(3)).dtype == np.float64
        check("add", np.arange(3), np.array([0.5, 1.0, 2.0]))
        check("frexp", np.array([1e-310, 3.0]))


def test_a_scalar_operand_is_one_constant() -> None:
    assert ops(lambda x: x + 1, FLOATS) == ["constant", "add"]
    assert ops(lambda x: x**2, FLOATS) == ["mul"]
    assert ops(lambda x: snp.maximum(x, 0), FLOATS) == ["constant", "maximum"]
    assert ops(lambda x: x % 3, WHOLE) == ["constant", "rem", "constant", "lt", "add", "select"]


@pytest.mark.parametrize("name", ["subtract", "negative", "sign"])
def test_subtraction_of_bools_is_an_error(name: str) -> None:
    args = (TRUTH, TRUTH) if name == "subtract" else (TRUTH,)
    with pytest.raises(OperationTypeError, match=f"^{name} does not take bools; "):
        run(getattr(snp, name), *args)


@pytest.mark.parametrize("name", RATIO)
def test_remainder_of_complex_numbers_is_an_error(name: str) -> None:
    told = "remainder" if name == "mod" else name
    with pytest.raises(OperationTypeError, match=COMPLEX_REFUSAL.format(told)):
        run(getattr(snp, name), PLANE, PLANE)


def test_shapes_that_do_not_broadcast_are_errors() -> None:
    with pytest.raises(OperationTypeError) as error:
        run(lambda x, y: x + y, FLOATS, ROW[:3])
    text = str(error.value)
    assert text.startswith("shapes (3, 4) and (3,) do not broadcast to one shape\n")
    assert "run(lambda x, y: x + y, FLOATS, ROW[:3])" in text


def test_the_derivative_of_a_floored_quotient_is_zero() -> None:
    x, y = (each.ravel() for each in np.meshgrid(ODD, ODD))
    derivative = sd.grad(lambda x, y: snp.floor_divide(x, y).sum(), (0, 1))
    for each in derivative(x, y):
        np.testing.assert_array_equal(each, 0)
    np.testing.assert_array_equal(sd.grad(lambda x: snp.floor_divide(x, 2.0).sum())(x), 0)


def test_power_of_one_half_is_sqrt_with_the_signs_of_pow() -> None:
    x = np.array([0, -0.0, 1, 2, 9, np.inf, -np.inf, np.nan, -1, 1e-45, 3e38], np.float32)
    got = run(lambda x: x**0.5, x)
    with np.errstate(invalid="ignore"):
        expected = np.where(x == -np.inf, np.float32(np.inf), np.sqrt(x + 0))
    same(got, expected)
    assert not np.signbit(got[:7]).any()
    for dtype in (np.float16, np.int32, np.bool_, np.complex64):
        check("power", x[:5].astype(dtype), 0.5)
    assert sd.grad(lambda x: x**0.5)(4.0) == 0.25


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4"])
def test_quotients_of_narrow_integers_are_exact(dtype: str) -> None:
    """All pairs of bytes; of wider ones, multiples of all sizes and what is beside them."""
    info, random = np.iinfo(dtype), np.random.default_rng(5)
    if info.bits == 8:
        every = np.arange(info.min, info.max + 1).astype(dtype)
        x, y = (each.ravel() for each in np.meshgrid(every, every))
    else:
        downs = np.arange(60000) % (info.bits - 1)
        y, z = (
            random.integers(info.min, info.max, 60000, dtype, endpoint=True) >> downs.astype(dtype)
            for _ in range(2)
        )
        z = np.roll(z, 17)
        one = np.array(1, dtype)
        x = np.concatenate([z * y, z * y - one, z * y + one, z, z * 0 + info.min, z * 0 + info.max])
        y = np.tile(y, 6)
    for name in ("floor_divide", "remainder", "fmod"):
        with np.errstate(all="ignore"):
            expected = QUOTIENTS.get(name, getattr(np, name))(x, y)
        same(eagerly(getattr(snp, name), x, y), expected)
        for number in (7, 1, 0, *(() if dtype[0] == "u" else (-1, -7))):
            divisor = np.array(number, dtype)
            with np.errstate(all="ignore"):
                expected = QUOTIENTS.get(name, getattr(np, name))(x, divisor)
            same(eagerly(getattr(snp, name), x, divisor), expected)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4"])
@pytest.mark.parametrize("number", [1, 7, 127])
def test_integers_divided_by_a_constant(dtype: str, number: int) -> None:
    info = np.iinfo(dtype)
    x = np.concatenate([np.arange(-300, 300).astype(dtype), [info.min, info.max]]).astype(dtype)
    expected = np.divmod(x, np.array(number, dtype))
    for got in (sd.jit(lambda x: snp.divmod(x, number))(x), snp.divmod(x, number)):
        for each, its in zip(got, expected, strict=True):
            same(each, its)
    same(sd.jit(lambda x: x // number)(snp.asarray(x)), expected[0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_nextafter_of_two_zeros_is_the_second(dtype: str) -> None:
    zeros = snp.array([-0.0, 0.0], dtype)
    assert np.signbit(np.asarray(snp.nextafter(zeros, zeros[::-1]))).tolist() == [False, True]


@pytest.mark.parametrize(("dtype", "bits"), [("int4", 4), ("uint4", 4), ("int8", 8), ("uint8", 8)])
@pytest.mark.parametrize("exponent", [100, 128, 200, 300, 1000])
def test_exponents_may_exceed_the_type_of_integers(dtype: str, bits: int, exponent: int) -> None:
    found = np.asarray(snp.array([7], dtype) ** exponent).astype(int)[0]
    assert found % (1 << bits) == pow(7, exponent, 1 << bits)
    with pytest.raises(OperationTypeError):
        snp.array([7], dtype) ** -exponent
