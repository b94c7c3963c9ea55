"""The vector functions keep their bounds: swept over bit patterns of f32, sampled in f64."""

from typing import Any

import mpmath as mp
import numpy as np
import pytest

from shardir import jit, lax
from shardir.backends.cpu.kernels.math import library
from shardir.frontend.config import config
from shardir.frontend.numpy import api as snp
from tests.backends.cpu.kernels.math.accuracy import (
    DOUBLE,
    SINGLE,
    TRUTHS,
    doubles,
    errors,
    patterns,
)
from tests.backends.cpu.kernels.math.elementwise_runner import (
    Array,
    applied,
    expected,
    pairs,
    same,
    some,
    specials,
)

STRIDE = 40009
"""Of all 2^32 patterns every so-many-th is tried."""
UNARY = sorted(set(SINGLE) & set(TRUTHS) - {"pow", "atan2"})
SAMPLED = {
    "erf": mp.erf, "erfc": mp.erfc, "erf_inv": mp.erfinv,
    "lgamma": lambda x: mp.re(mp.loggamma(x)), "digamma": mp.digamma,
}  # fmt: skip
"""What NumPy does not have."""


def worst(op: str, dtype: str, arrays: list[Array], truth: Any, bound: float) -> None:
    got = applied(op, arrays, [dtype] * len(arrays), dtype)
    apart = errors(got, truth)
    at = int(apart.argmax())
    shown = [a[at] for a in arrays], got[at], truth[at]
    assert apart[at] <= bound, f"{op} of {dtype} is {apart[at]:.3f} ulp off: {shown}"


@pytest.mark.parametrize("op", UNARY)
def test_f32_keeps_its_bound(op: str) -> None:
    x = np.concatenate([specials("f32"), patterns(STRIDE)])
    with np.errstate(all="ignore"):
        truth = TRUTHS[op](x.astype(np.float64))
    worst(op, "f32", [x], truth, SINGLE[op])


@pytest.mark.parametrize("op", UNARY)
def test_f64_keeps_its_bound(op: str) -> None:
    x = np.concatenate([specials("f64"), doubles()])
    with np.errstate(all="ignore"):
        truth = TRUTHS[op](x.astype(np.longdouble))
    worst(op, "f64", [x], truth, DOUBLE[op])


@pytest.mark.parametrize("op", ["sin", "cos", "tan"])
def test_f64_keeps_its_bound_next_to_quarters_of_a_turn(op: str) -> None:
    # Those where next to nothing is left are 29, 232, 464 and 511 quarters, and others.
    far = np.random.default_rng(3).integers(2000, 1 << 27, 20000)
    x = np.concatenate([np.arange(1, 2000), far]) * (np.pi / 2)
    x = np.concatenate([x, -x, np.nextafter(x, 0)])
    worst(op, "f64", [x], TRUTHS[op](x.astype(np.longdouble)), DOUBLE[op])


def sampled(op: str, dtype: str) -> Array:
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
@pytest.mark.parametrize("op", SAMPLED)
def test_what_numpy_lacks_keeps_its_bound(op: str, dtype: str) -> None:
    x = sampled(op, dtype)
    with mp.workdps(30):
        exact = [SAMPLED[op](mp.mpf(float(v))) for v in x]
        near = [float(e) for e in exact]
        rest = [float(e - n) for e, n in zip(exact, near, strict=True)]
    truth = np.array(near, np.longdouble) + np.array(rest, np.longdouble)
    worst(op, dtype, [x], truth, {"f32": SINGLE, "f64": DOUBLE}[dtype][op])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("op", SAMPLED)
def test_edges_of_what_numpy_lacks(op: str, dtype: str) -> None:
    """Zeros, infinities, NaN, poles and negative numbers are as the reference has them."""
    x = np.concatenate([specials(dtype), -np.arange(20.0), -np.linspace(0.1, 30, 200)]).astype(
        np.float32 if dtype == "f32" else np.float64
    )
    got = applied(op, [x], [dtype], dtype)
    wanted = expected(op, [x], dtype)
    ends = ~np.isfinite(wanted) | (wanted == 0)
    assert same(got[ends], wanted[ends]).all()
    scale = np.maximum(1, np.abs(wanted[~ends]))
    slack = 1e-5 if dtype == "f32" else 1e-13
    assert (np.abs(got[~ends] - wanted[~ends]) <= slack * scale).all()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("op", ["pow", "atan2"])
def test_two_operands_keep_their_bound(op: str, dtype: str) -> None:
    rng, count = np.random.default_rng(1), 40000
    x, y = pairs(dtype, count)
    sizes, by = rng.lognormal(0, 2, count), rng.normal(0, 30, count)
    near = 1 + rng.normal(0, 1e-3, count)
    close = np.exp(rng.uniform(-0.1, 0.1, count)).astype(x.dtype)
    large = rng.uniform(-0.99, 0.99, count) * np.log(np.finfo(x.dtype).max)
    far = large / np.log(close.astype(np.float64))
    x = np.concatenate([x, *(a.astype(x.dtype) for a in (sizes, -sizes, near, close))])
    y = np.concatenate([y, *(a.astype(x.dtype) for a in (by, np.round(by), by * 1000, far))])
    with np.errstate(all="ignore"):
        truth = TRUTHS[op](x.astype(np.longdouble), y.astype(np.longdouble))
    worst(op, dtype, [x, y], truth, {"f32": SINGLE, "f64": DOUBLE}[dtype][op])


@pytest.mark.parametrize("others", [1.5, -2.0, np.nan])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_powers_of_zeros_are_exact_and_change_nothing_beside_them(
    dtype: str, others: float
) -> None:
    """+0 to a positive power is seen at once, with and without other rare numbers around it."""
    rng, type = np.random.default_rng(4), np.float32 if dtype == "f32" else np.float64
    bases = rng.lognormal(0, 1, 4000).astype(type)
    bases[rng.random(4000) < 0.02] = others
    zeros = rng.random(4000) < 0.4
    x = np.where(zeros, type(0), bases)
    x[rng.random(4000) < 0.02] = -0.0
    x[::5] = bases[::5]
    y = rng.choice(np.array([0.5, 2, 3, 1e-30, np.inf, -1, 0, np.nan], type), 4000)
    got = applied("pow", [x, y], [dtype, dtype], dtype)
    with np.errstate(all="ignore"):
        wanted = np.where(x == 0, np.power(x, y), applied("pow", [bases, y], [dtype] * 2, dtype))
    assert same(got, wanted).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_remainders_are_exact(dtype: str) -> None:
    x, y = pairs(dtype, 20000)
    wanted = expected("rem", [x, y], dtype)
    assert same(applied("rem", [x, y], [dtype, dtype], dtype), wanted).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["exp", "log", "sin", "tanh", "logistic", "erf", "lgamma", "pow"])
def test_narrow_floats_are_rounded_once(op: str, dtype: str) -> None:
    """As f32, rounded: a step of the narrow type from the reference at most."""
    arrays = (
        list(pairs(dtype))
        if op == "pow"
        else [np.concatenate([specials(dtype), some(dtype, 9000)])]
    )
    got = applied(op, arrays, [dtype] * len(arrays), dtype)
    wanted = expected(op, arrays, dtype)
    with np.errstate(all="ignore"):
        step = np.abs(got.view(np.int16).astype(int) - wanted.view(np.int16).astype(int))
    assert (same(got, wanted) | (step <= 1)).all()


@pytest.mark.parametrize("lanes", [1, 3, 8, 16, 24, 64])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_calls_of_any_number_of_lanes_agree(dtype: str, lanes: int) -> None:
    x = some(dtype, 200)
    wanted = applied("exp", [x], [dtype], dtype, library.FUNCTION_LANES[dtype])
    assert same(applied("exp", [x], [dtype], dtype, lanes), wanted).all()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("name", "op"), [("sin", "sin"), ("arcsinh", "asinh"), ("power", "pow")])
def test_a_kernel_that_has_a_function_as_instructions_gives_its_bits(
    name: str, op: str, dtype: str
) -> None:
    """Also far numbers, which a call computes, and the last ones, which do not fill a vector."""
    x = np.concatenate([specials(dtype), some(dtype, 300)])
    arrays = [x, np.roll(x, 7)] if op == "pow" else [x]
    with config(enable_x64=True):
        got = np.asarray(getattr(snp, name)(*map(snp.asarray, arrays)))
    assert same(got, applied(op, arrays, [dtype] * len(arrays), dtype)).all()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("names", [("tanh", "exp"), ("sin", "log"), ("exp", "erf")])
def test_a_kernel_of_two_functions_gives_their_bits(names: tuple[str, str], dtype: str) -> None:
    """Also where one of them is called, as sin of f64 is."""
    x = np.concatenate([specials(dtype), some(dtype, 300)])
    first, second = (getattr(lax, name) for name in names)
    with config(enable_x64=True), np.errstate(all="ignore"):
        got = np.asarray(jit(lambda x: first(x) - second(x))(snp.asarray(x)))
        wanted = np.subtract(*(applied(name, [x], [dtype], dtype) for name in names))
    assert same(got, wanted).all()


def test_addresses_are_those_that_are_asked_for() -> None:
    exp = library.symbol_of_op("exp", "f32")
    assert exp == "shardir_exp_f32"
    assert list(library.function_addresses([exp, "another"])) == [exp]
    assert library.symbol_of_op("exp", "i32") is None
    assert library.symbol_of_op("add", "f32") is None
