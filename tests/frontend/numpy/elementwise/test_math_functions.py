"""Elementwise functions against NumPy, over shapes, dtypes and special values."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
from shardir.errors import OperationTypeError
from shardir.frontend.numpy import api as snp
from tests.namespace import check, eagerly, numpy_result, ops, run, words

pytestmark = pytest.mark.sample(5)

GENERATOR = np.random.default_rng(7)
NORMAL = GENERATOR.normal(size=(3, 4)).astype("f")
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-40, 0.5, 1.5, -2.5], "f")
WHOLE = np.array([[-7, -1, 0], [1, 5, 2**31 - 1]], "i4")
BYTES = np.array([0, 1, 7, 200, 255], "u1")
TRUTH = np.array([True, False])
PLANE = (GENERATOR.normal(size=(2, 3)) + 1j * GENERATOR.normal(size=(2, 3))).astype("c8")
FLOATS = [NORMAL, NORMAL[0], np.asarray(0.25, "f"), NORMAL[:0], ODD]

COMPLEX = words("""
    exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan arcsin arccos arctan sinh cosh tanh
    arcsinh arccosh arctanh square reciprocal positive negative sign conj conjugate real imag angle
    abs absolute isnan isinf isfinite iscomplex isreal rint round""")
REAL = words("""
    cbrt fabs deg2rad rad2deg degrees radians sinc floor ceil trunc signbit spacing isposinf
    isneginf modf frexp nan_to_num asin acos atan asinh acosh atanh fix""")
KEEPING = words("""
    square positive negative sign conj conjugate real imag abs absolute floor ceil trunc
    round fix""")
"""Functions of integers that give integers."""
TELLING = words("isnan isinf isfinite iscomplex isreal isposinf isneginf signbit")


@pytest.mark.parametrize("name", COMPLEX + REAL)
@pytest.mark.parametrize("x", FLOATS, ids=lambda x: f"f32{list(x.shape)}")
def test_floats(name: str, x: Any) -> None:
    check(name, x, rtol=0 if name == "spacing" else None)


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers(name: str) -> None:
    check(name, PLANE, reference=np.rint if name == "round" else None)


@pytest.mark.parametrize("name", [n for n in COMPLEX + REAL if n not in KEEPING + TELLING])
@pytest.mark.parametrize("x", [WHOLE, BYTES], ids=["i32", "u8"])
def test_integers_become_floats(name: str, x: Any) -> None:
    """Integers of every width become float32; NumPy makes narrow floats of narrow integers."""
    if name == "nan_to_num":
        return
    check(name, x, reference=lambda v: getattr(np, name)(v.astype("f")))


@pytest.mark.parametrize("name", KEEPING + TELLING)
@pytest.mark.parametrize("x", [WHOLE, BYTES], ids=["i32", "u8"])
def test_integers_stay_integers(name: str, x: Any) -> None:
    check(name, x)


def test_nan_to_num_leaves_integers_alone() -> None:
    check("nan_to_num", WHOLE)


@pytest.mark.parametrize("name", TELLING)
def test_predicates_of_bools(name: str) -> None:
    check(name, TRUTH)


@pytest.mark.parametrize("name", words("abs positive conj real floor ceil trunc round"))
def test_bools_stay_bools(name: str) -> None:
    check(name, TRUTH, reference=lambda x: x)


@pytest.mark.parametrize("name", ["exp", "tanh", "sqrt", "abs", "floor", "sinc", "round", "isnan"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_floats_stay_half_floats(name: str, dtype: Any) -> None:
    x = np.abs(NORMAL).astype(dtype)
    expected = getattr(np, name)(x.astype("f"))
    got = run(getattr(snp, name), x)
    assert got.dtype == (bool if name == "isnan" else dtype)
    np.testing.assert_allclose(got.astype("f"), expected.astype("f"), rtol=2e-2, atol=5e-3)


@pytest.mark.parametrize("decimals", [-3, -1, 0, 1, 2])
@pytest.mark.parametrize(
    "x",
    [NORMAL * 100, PLANE * 100, np.array([5, 15, 25, -15, -25, 1234, 2**30, -4], "i4"), BYTES],
    ids=["f32", "c64", "i32", "u8"],
)
def test_round_to_decimals(x: Any, decimals: int) -> None:
    check("round", x, decimals=decimals)


def test_round_of_integers_to_large_powers_of_ten_is_zero() -> None:
    check("round", WHOLE, decimals=-11, reference=lambda x, decimals: np.zeros_like(x))


@pytest.mark.parametrize(("nan", "posinf", "neginf"), [(0.0, None, None), (1.0, 2.0, -3.0)])
def test_nan_to_num_with_given_replacements(nan: float, posinf: Any, neginf: Any) -> None:
    check("nan_to_num", ODD, nan=nan, posinf=posinf, neginf=neginf)
    both = ODD.astype("c8") + 1j
    check("nan_to_num", both, nan=nan, posinf=posinf, neginf=neginf)


def test_frexp_of_subnormal_numbers_and_ldexp_back() -> None:
    x = np.array([1e-40, -3e-39, 1e-45, 5.0, -0.1, 3e38], "f")
    check("frexp", x)
    mantissa, exponent = np.frexp(x)
    check("ldexp", mantissa, exponent)


@pytest.mark.parametrize("exponent", ["i4", "u1", "i1", "u4"])
def test_ldexp(exponent: str) -> None:
    """Every kind of number to every kind of power; what loses bits is rounded once."""
    x = np.concatenate([ODD, NORMAL.ravel(), [1e-45, 3e38, 1.9999999e-38, -1.1754942e-38]])
    powers = np.array([-300, -277, -149, -130, -36, -1, 0, 1, 127, 128, 150, 276, 1000, 10**6])
    kept = powers[np.isin(powers, powers.astype(exponent))].astype(exponent)
    expected = numpy_result(np.ldexp, x.astype("f")[:, None], kept.astype("i4"))
    for way in (run, eagerly):
        got = way(snp.ldexp, x.astype("f")[:, None].copy(), kept)
        np.testing.assert_array_equal(got, expected)


def test_ldexp_takes_integers() -> None:
    check("ldexp", NORMAL[0], np.array([True, False, True, True]))
    with pytest.raises(OperationTypeError, match=r"ldexp takes an integer exponent, got f32\[4\]"):
        run(snp.ldexp, NORMAL, NORMAL[0])


def test_angles_in_degrees() -> None:
    check("angle", PLANE, deg=True)


@pytest.mark.parametrize(("name", "count"), [("sin", 1), ("square", 1), ("isnan", 1), ("floor", 1)])
def test_each_function_is_one_operation(name: str, count: int) -> None:
    assert len(ops(getattr(snp, name), NORMAL)) == count


@pytest.mark.parametrize("name", ["negative", "sign"])
def test_negation_of_bools_is_an_error(name: str) -> None:
    with pytest.raises(OperationTypeError, match=f"{name} does not take bools"):
        run(getattr(snp, name), TRUTH)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "fabs", "isposinf", "spacing"])
def test_order_functions_of_complex_numbers_are_errors(name: str) -> None:
    with pytest.raises(OperationTypeError, match=f"{name} takes no complex numbers") as error:
        run(lambda x: getattr(snp, name)(x), PLANE)
    assert "test_math_functions.py" in str(error.value)


def test_python_scalars_stay_weakly_typed() -> None:
    assert run(lambda x: snp.sin(1) * x, NORMAL.astype(np.float16)).dtype == np.float16
    assert run(lambda x: snp.floor(1) + x, BYTES).dtype == np.uint8


def test_frexp_is_one_loop_and_differentiable() -> None:
    x = np.array([3.0, -0.75, 1e-41, 0.0, np.inf, 6e4], np.float32)
    text = sd.jit(snp.frexp).lower(x).compile().as_text("schedule")
    assert "native call of 1 phase" in text
    slope = sd.grad(lambda x: snp.frexp(x)[0].sum())(x[:2])
    np.testing.assert_array_equal(slope, [0.25, 1.0])


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_log10_of_complex_zeros_and_infinities_has_no_nan(dtype: str) -> None:
    parts = [0.0, -0.0, 2.0, np.inf, -np.inf]
    x = np.array([complex(a, b) for a in parts for b in parts], dtype)
    with np.errstate(divide="ignore"), sd.enable_x64(dtype == "c16"):
        np.testing.assert_allclose(snp.log10(x), np.log10(x), rtol=1e-6)


def test_log10_of_16_bit_floats_is_rounded_once() -> None:
    x = np.arange(1, 0x7C00, dtype=np.uint16).view(np.float16)
    expected = np.log10(x.astype(np.float64)).astype(np.float16)
    got = np.asarray(snp.log10(x))
    assert got.dtype == np.float16
    apart = np.abs(got.view(np.int16).astype(int) - expected.view(np.int16))
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= 10
