"""Code for machines without some instructions, tested on machines that have them."""

import math
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest

from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.kernels.math.error_function import (
    ERF_PIECE_BASES,
    ERFC_PIECE_BASES,
    scaled_erfc,
)
from shardir.backends.cpu.kernels.math.hyperbolic_tangent import PIECE_BASES
from shardir.backends.cpu.kernels.math.inverse_trigonometric import PIECE_BASES as ARC_BASES
from tests.backends.cpu.kernels.math.accuracy import (
    EXACT_FUNCTIONS,
    F32_BOUNDS_ULP,
    f32_patterns,
    ulp_errors,
)
from tests.backends.cpu.kernels.math.elementwise_runner import (
    Array,
    have_equal_bits,
    run_operation,
    special_values,
)

NO_FEATURES = replace(host_machine(), cpu="", features="")
"""This host without instructions for f16, scaling and tables in registers."""


AVX2 = host_machine().limited_to("avx2")
"""This host with permutations of eight lanes instead of tables in registers."""


def run_without_features(op: str, arrays: list[Array], dtypes: list[str], result: str) -> Array:
    return run_operation(op, arrays, dtypes, result, machine=NO_FEATURES)


def test_all_f16_numbers_are_converted_to_f32() -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        expected = x.astype(np.float32)
    assert have_equal_bits(run_without_features("convert", [x], ["f16"], "f32"), expected).all()


def test_f32_numbers_are_rounded_to_f16() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        wide = halves.astype(np.float32)
        between = (wide + np.roll(wide, 1)) / 2  # ties, mostly
        x = np.concatenate([f32_patterns(9973), between, np.nextafter(between, np.float32(1))])
        expected = x.astype(np.float16)
    assert have_equal_bits(run_without_features("convert", [x], ["f32"], "f16"), expected).all()


@pytest.mark.parametrize("op", ["exp", "exp2", "sinh", "cosh", "logistic"])
def test_scaling_in_two_steps_is_within_the_bound(op: str) -> None:
    x = np.concatenate([special_values("f32"), np.linspace(-160, 130, 20011, dtype=np.float32)])
    with np.errstate(all="ignore"):
        truth = EXACT_FUNCTIONS[op](x.astype(np.float64))
    assert (
        ulp_errors(run_without_features(op, [x], ["f32"], "f32"), truth).max() <= F32_BOUNDS_ULP[op]
    )


@pytest.mark.parametrize(
    ("op", "dtype"),
    [("pow", "f32"), ("pow", "f64"), ("log", "f64"), ("log1p", "f64"), ("atan", "f64")],
)
def test_tables_in_memory_give_the_bits_of_tables_in_registers(op: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    type = np.float32 if dtype == "f32" else np.float64
    x, y = rng.lognormal(0, 2, 20011).astype(type), rng.normal(0, 9, 20011).astype(type)
    operands = [x, y] if op == "pow" else [x]
    dtypes = [dtype] * len(operands)
    expected = run_operation(op, operands, dtypes, dtype)
    assert have_equal_bits(run_without_features(op, operands, dtypes, dtype), expected).all()
    with_avx2 = run_operation(op, operands, dtypes, dtype, machine=AVX2)
    assert have_equal_bits(with_avx2, expected).all()


@pytest.mark.parametrize("op", ["log", "log2", "log1p", "asinh", "acosh", "atanh", "tanh", "exp"])
def test_single_polynomials_are_within_the_bound(op: str) -> None:
    near = np.linspace(-2, 4, 20011, dtype=np.float32)
    x = np.concatenate([special_values("f32"), f32_patterns(400009), near])
    with np.errstate(all="ignore"):
        truth = EXACT_FUNCTIONS[op](x.astype(np.float64))
    assert (
        ulp_errors(run_without_features(op, [x], ["f32"], "f32"), truth).max() <= F32_BOUNDS_ULP[op]
    )


@pytest.mark.parametrize(
    ("op", "machine", "bound"),
    [
        ("erfc", NO_FEATURES, 0.51),
        ("erfc", AVX2, F32_BOUNDS_ULP["erfc"]),
        ("erf", NO_FEATURES, F32_BOUNDS_ULP["erf"]),
        ("erf", AVX2, F32_BOUNDS_ULP["erf"]),
    ],
)
def test_error_functions_without_tables_in_registers_are_within_the_bound(
    op: str, machine: HostDescription, bound: float
) -> None:
    """Without AVX2, erfc is computed in f64, and erf by the exponential of a polynomial."""
    near = np.linspace(-2, 11, 200011, dtype=np.float32)
    x = np.concatenate([special_values("f32"), f32_patterns(400009), near])
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
    truth = run_operation(op, [wide], ["f64"], "f64")
    found = run_operation(op, [x], ["f32"], "f32", machine=machine)
    assert ulp_errors(found, truth).max() <= bound


def test_permuted_registers_of_avx2_give_the_bits_of_avx512() -> None:
    x = np.concatenate([special_values("f32"), np.linspace(-5, 11, 20011, dtype=np.float32)])
    expected = run_operation("erf", [x], ["f32"], "f32")
    found = run_operation("erf", [x], ["f32"], "f32", machine=AVX2)
    assert have_equal_bits(found, expected).all()


def test_erf_of_the_bases_is_nearly_representable() -> None:
    """The rounding of a value adds at most a hundredth of an ulp to the error."""
    with mp.workdps(30):
        for base in ERF_PIECE_BASES:
            exact, near = mp.erf(mp.mpf(base)), np.float32(math.erf(base))
            assert abs(exact - mp.mpf(float(near))) <= mp.mpf(float(np.spacing(near))) / 100


def test_scaled_erfc_of_the_bases_is_nearly_representable() -> None:
    """The rounding of a value adds at most a hundredth of an ulp to the error."""
    with mp.workdps(30):
        for base in ERFC_PIECE_BASES:
            exact = mp.exp(mp.mpf(base) ** 2) * mp.erfc(base)
            near = np.float32(scaled_erfc(base))
            assert abs(exact - mp.mpf(float(near))) <= mp.mpf(float(np.spacing(near))) / 100


def test_tanh_of_the_bases_is_nearly_representable() -> None:
    """The rounding of a value adds at most a tenth of an ulp to the error."""
    exact = np.tanh(np.array(PIECE_BASES))
    near = exact.astype(np.float32)
    assert (np.abs(near - exact) <= np.spacing(near) / 10).all()


def test_atan_of_the_bases_is_nearly_representable() -> None:
    """The rounding of a value adds at most a thousandth of an ulp to the error."""
    for base in ARC_BASES:
        with mp.workdps(30):
            near = math.atan(base)
            distance = abs(mp.atan(mp.mpf(base)) - near)
            assert distance <= mp.mpf(math.ulp(near)) / 1000
