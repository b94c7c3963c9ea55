"""The vector functions are within their bounds: swept over bit patterns of f32, sampled in f64."""

from typing import Any

import mpmath as mp
import numpy as np
import pytest

from shardir import jit, lax
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernels.math import library
from shardir.frontend.config import config
from shardir.frontend.numpy import api as snp
from tests.backends.cpu.kernels.math.accuracy import (
    EXACT_FUNCTIONS,
    F32_BOUNDS_ULP,
    F64_BOUNDS_ULP,
    f32_patterns,
    f64_arguments,
    ulp_errors,
)
from tests.backends.cpu.kernels.math.elementwise_runner import (
    Array,
    have_equal_bits,
    operand_pairs,
    random_values,
    reference_result,
    run_operation,
    special_values,
)

pytestmark = pytest.mark.sample(4)

STRIDE = 40009
"""Every `STRIDE`-th of the 2^32 patterns is tested."""
UNARY = sorted(set(F32_BOUNDS_ULP) & set(EXACT_FUNCTIONS) - {"pow", "atan2"})
SAMPLED_FUNCTIONS = {
    "erf": mp.erf, "erfc": mp.erfc, "erf_inv": mp.erfinv,
    "lgamma": lambda x: mp.re(mp.loggamma(x)), "digamma": mp.digamma,
}  # fmt: skip
"""Functions that NumPy does not have."""


def check_bound(op: str, dtype: str, arrays: list[Array], truth: Any, bound: float) -> None:
    got = run_operation(op, arrays, [dtype] * len(arrays), dtype)
    distance = ulp_errors(got, truth)
    at = int(distance.argmax())
    details = [a[at] for a in arrays], got[at], truth[at]
    assert distance[at] <= bound, f"{op} of {dtype} is {distance[at]:.3f} ulp off: {details}"


@pytest.mark.parametrize("op", UNARY)
def test_f32_errors_are_within_the_bound(op: str) -> None:
    x = np.concatenate([special_values("f32"), f32_patterns(STRIDE)])
    with np.errstate(all="ignore"):
        truth = EXACT_FUNCTIONS[op](x.astype(np.float64))
    check_bound(op, "f32", [x], truth, F32_BOUNDS_ULP[op])


@pytest.mark.parametrize("op", UNARY)
def test_f64_errors_are_within_the_bound(op: str) -> None:
    x = np.concatenate([special_values("f64"), f64_arguments()])
    with np.errstate(all="ignore"):
        truth = EXACT_FUNCTIONS[op](x.astype(np.longdouble))
    check_bound(op, "f64", [x], truth, F64_BOUNDS_ULP[op])


@pytest.mark.parametrize("op", ["sin", "cos", "tan"])
def test_f64_errors_near_quarter_turns_are_within_the_bound(op: str) -> None:
    # Multiples 29, 232, 464, 511 and others cancel nearly all digits.
    far = np.random.default_rng(3).integers(2000, 1 << 27, 20000)
    x = np.concatenate([np.arange(1, 2000), far]) * (np.pi / 2)
    x = np.concatenate([x, -x, np.nextafter(x, 0)])
    check_bound(op, "f64", [x], EXACT_FUNCTIONS[op](x.astype(np.longdouble)), F64_BOUNDS_ULP[op])


def sample_arguments(op: str, dtype: str) -> Array:
    rng = np.random.default_rng(3)
    count = 400
    far = {"erf": 6.0, "erfc": 26.0 if dtype == "f64" else 9.5}.get(op, 100.0)
    x = np.concatenate([rng.normal(0, 2, count), rng.uniform(0, far, count)])
    if op == "erf_inv":
        edge = 1 - 10 ** rng.uniform(-15 if dtype == "f64" else -6, 0, count)
        x = np.concatenate([rng.uniform(-1, 1, count), edge])
    if op in ("lgamma", "digamma"):
        x = np.abs(x)
    return np.concatenate([x, 10 ** rng.uniform(-30, -1, count)]).astype(
        np.float32 if dtype == "f32" else np.float64
    )


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("op", SAMPLED_FUNCTIONS)
def test_errors_of_functions_without_numpy_equivalent_are_within_the_bound(
    op: str, dtype: str
) -> None:
    x = sample_arguments(op, dtype)
    with mp.workdps(30):
        exact = [SAMPLED_FUNCTIONS[op](mp.mpf(float(v))) for v in x]
        near = [float(e) for e in exact]
        rest = [float(e - n) for e, n in zip(exact, near, strict=True)]
    truth = np.array(near, np.longdouble) + np.array(rest, np.longdouble)
    check_bound(op, dtype, [x], truth, {"f32": F32_BOUNDS_ULP, "f64": F64_BOUNDS_ULP}[dtype][op])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("op", SAMPLED_FUNCTIONS)
def test_special_arguments_of_functions_without_numpy_equivalent_match_the_reference(
    op: str, dtype: str
) -> None:
    """Results for zeros, infinities, NaN, poles and negative numbers equal the reference."""
    x = np.concatenate(
        [special_values(dtype), -np.arange(20.0), -np.linspace(0.1, 30, 200)]
    ).astype(np.float32 if dtype == "f32" else np.float64)
    got = run_operation(op, [x], [dtype], dtype)
    expected = reference_result(op, [x], dtype)
    ends = ~np.isfinite(expected) | (expected == 0)
    assert have_equal_bits(got[ends], expected[ends]).all()
    scale = np.maximum(1, np.abs(expected[~ends]))
    slack = 1e-5 if dtype == "f32" else 1e-13
    assert (np.abs(got[~ends] - expected[~ends]) <= slack * scale).all()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("op", ["pow", "atan2"])
def test_errors_of_binary_functions_are_within_the_bound(op: str, dtype: str) -> None:
    rng, count = np.random.default_rng(1), 40000
    x, y = operand_pairs(dtype, count)
    sizes, exponents = rng.lognormal(0, 2, count), rng.normal(0, 30, count)
    near = 1 + rng.normal(0, 1e-3, count)
    close = np.exp(rng.uniform(-0.1, 0.1, count)).astype(x.dtype)
    large = rng.uniform(-0.99, 0.99, count) * np.log(np.finfo(x.dtype).max)
    far = large / np.log(close.astype(np.float64))
    x = np.concatenate([x, *(a.astype(x.dtype) for a in (sizes, -sizes, near, close))])
    y = np.concatenate(
        [y, *(a.astype(x.dtype) for a in (exponents, np.round(exponents), exponents * 1000, far))]
    )
    with np.errstate(all="ignore"):
        truth = EXACT_FUNCTIONS[op](x.astype(np.longdouble), y.astype(np.longdouble))
    check_bound(op, dtype, [x, y], truth, {"f32": F32_BOUNDS_ULP, "f64": F64_BOUNDS_ULP}[dtype][op])


@pytest.mark.parametrize("others", [1.5, -2.0, np.nan])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_powers_of_zeros_are_exact_and_do_not_affect_other_lanes(dtype: str, others: float) -> None:
    """The fast path for +0 to a positive power runs with and without other special values in its
    vector."""
    rng, type = np.random.default_rng(4), np.float32 if dtype == "f32" else np.float64
    bases = rng.lognormal(0, 1, 4000).astype(type)
    bases[rng.random(4000) < 0.02] = others
    zeros = rng.random(4000) < 0.4
    x = np.where(zeros, type(0), bases)
    x[rng.random(4000) < 0.02] = -0.0
    x[::5] = bases[::5]
    y = rng.choice(np.array([0.5, 2, 3, 1e-30, np.inf, -1, 0, np.nan], type), 4000)
    got = run_operation("pow", [x, y], [dtype, dtype], dtype)
    with np.errstate(all="ignore"):
        expected = np.where(
            x == 0, np.power(x, y), run_operation("pow", [bases, y], [dtype] * 2, dtype)
        )
    assert have_equal_bits(got, expected).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_remainders_are_exact(dtype: str) -> None:
    x, y = operand_pairs(dtype, 20000)
    expected = reference_result("rem", [x, y], dtype)
    assert have_equal_bits(run_operation("rem", [x, y], [dtype, dtype], dtype), expected).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["exp", "log", "sin", "tanh", "logistic", "erf", "lgamma", "pow"])
def test_results_of_16_bit_floats_are_rounded_once(op: str, dtype: str) -> None:
    """The f32 result is rounded: it differs from the reference by at most one step of the narrow
    type."""
    arrays = (
        list(operand_pairs(dtype))
        if op == "pow"
        else [np.concatenate([special_values(dtype), random_values(dtype, 9000)])]
    )
    got = run_operation(op, arrays, [dtype] * len(arrays), dtype)
    expected = reference_result(op, arrays, dtype)
    with np.errstate(all="ignore"):
        step = np.abs(got.view(np.int16).astype(int) - expected.view(np.int16).astype(int))
    assert (have_equal_bits(got, expected) | (step <= 1)).all()


@pytest.mark.parametrize("lanes", [1, 3, 8, 16, 24, 64])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_results_do_not_depend_on_the_lane_count(dtype: str, lanes: int) -> None:
    x = random_values(dtype, 200)
    expected = run_operation("exp", [x], [dtype], dtype, library.FUNCTION_LANES[dtype])
    assert have_equal_bits(run_operation("exp", [x], [dtype], dtype, lanes), expected).all()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("name", "op"), [("sin", "sin"), ("arcsinh", "asinh"), ("power", "pow")])
def test_inlined_functions_equal_the_library_functions(name: str, op: str, dtype: str) -> None:
    """The arguments include distant numbers, which use a call, and an incomplete last vector."""
    x = np.concatenate([special_values(dtype), random_values(dtype, 300)])
    arrays = [x, np.roll(x, 7)] if op == "pow" else [x]
    with config(enable_x64=True):
        got = np.asarray(getattr(snp, name)(*map(snp.asarray, arrays)))
    assert have_equal_bits(got, run_operation(op, arrays, [dtype] * len(arrays), dtype)).all()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("names", [("tanh", "exp"), ("sin", "log"), ("exp", "erf")])
def test_kernels_with_two_functions_equal_the_library_functions(
    names: tuple[str, str], dtype: str
) -> None:
    """One of the functions may be called, such as sin of f64."""
    x = np.concatenate([special_values(dtype), random_values(dtype, 300)])
    first, second = (getattr(lax, name) for name in names)
    with config(enable_x64=True), np.errstate(all="ignore"):
        got = np.asarray(jit(lambda x: first(x) - second(x))(snp.asarray(x)))
        expected = np.subtract(*(run_operation(name, [x], [dtype], dtype) for name in names))
    assert have_equal_bits(got, expected).all()


def test_library_addresses_are_returned_for_known_symbols() -> None:
    exp = library.symbol_of_op("exp", "f32")
    assert exp == "shardir_exp_f32"
    assert list(library.function_addresses(host_machine(), [exp, "another"])) == [exp]
    assert library.symbol_of_op("exp", "i32") is None
    assert library.symbol_of_op("add", "f32") is None
