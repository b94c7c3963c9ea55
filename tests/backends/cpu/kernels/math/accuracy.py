"""Error bounds of the vector functions, and their measurement.

An error is in units in the last place (ulp) of the exact result. Results beyond the largest number
have no error if the exact result is the largest number or infinite, and the reverse.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.backends.cpu.kernels.math.elementwise_runner import Array

ExactFunction = Callable[..., Any]

F32_BOUNDS_ULP = {
    "exp": 1.0, "exp2": 1.0, "expm1": 1.5, "log": 1.0, "log2": 1.7, "log1p": 1.45, "sin": 1.6,
    "cos": 1.6, "tan": 3.05, "asin": 1.15, "acos": 1.2, "atan": 1.25, "sinh": 1.45,
    "cosh": 2.15, "tanh": 2.0, "asinh": 1.85, "acosh": 1.8, "atanh": 1.2, "logistic": 1.4,
    "cbrt": 0.95, "sqrt": 0.5, "rsqrt": 1.5, "erf": 1.15, "erfc": 1.65, "erf_inv": 0.51,
    "lgamma": 0.51, "digamma": 0.51, "pow": 1.2, "atan2": 1.6, "rem": 0.0,
}  # fmt: skip
"""The largest errors of f32, in ulp."""
F64_BOUNDS_ULP = {
    "exp": 1.0, "exp2": 1.0, "expm1": 1.5, "log": 0.85, "log2": 0.8, "log1p": 1.5, "sin": 0.9,
    "cos": 0.9, "tan": 1.7, "asin": 1.15, "acos": 1.2, "atan": 1.45, "sinh": 1.85, "cosh": 1.5,
    "tanh": 2.0, "asinh": 1.2, "acosh": 1.9, "atanh": 1.1, "logistic": 1.5, "cbrt": 0.95,
    "sqrt": 0.5, "rsqrt": 1.5, "erf": 1.0, "erfc": 2.0, "erf_inv": 2.0, "lgamma": 2.0,
    "digamma": 2.0, "pow": 1.5, "atan2": 1.9, "rem": 0.0,
}  # fmt: skip
"""The largest errors of f64, in ulp; those of lgamma and digamma hold for positive arguments."""


def logistic(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


EXACT_FUNCTIONS: dict[str, ExactFunction] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "logistic": logistic,
    "cbrt": np.cbrt, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "pow": np.power,
    "atan2": np.arctan2,
}  # fmt: skip
"""NumPy functions for exact results, which are called with a wider type."""


def ulp_errors(got: Array, exact: Any) -> Array:
    """Return errors in ulp; infinite if only one side is NaN, or if a zero has the wrong sign."""
    type, limits = got.dtype.type, np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        near = exact.astype(type)
        step = np.spacing(np.minimum(np.abs(near), limits.max)).astype(exact.dtype)
        distance = np.abs(got.astype(exact.dtype) - exact) / step
        both = (np.isnan(got) & np.isnan(near)) | (np.isinf(near) & (got == near))
        at_limit = (np.abs(got) >= limits.max) & (np.abs(near) >= limits.max)
        distance = np.where(both | (at_limit & (np.sign(got) == np.sign(near))), 0, distance)
        wrong_sign = (near == 0) & (got == 0) & (np.signbit(got) != np.signbit(near))
    return np.where(np.isnan(distance) | wrong_sign, np.inf, distance).astype(np.float64)


def f32_patterns(stride: int, start: int = 0) -> Array:
    """Return every `stride`-th bit pattern of f32 as a number, which includes all kinds of
    numbers."""
    return np.arange(start, 2**32, stride, dtype=np.uint64).astype(np.uint32).view(np.float32)


def f64_arguments(count: int = 40000) -> Array:
    """Return f64 test arguments: random bits, random magnitudes, and numbers around 0 and 1."""
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 256, 8 * count, np.uint8).view(np.float64)
    sizes = 10.0 ** rng.uniform(-20, 20, count) * rng.choice([-1, 1], count)
    near = [rng.normal(0, 1, count), rng.uniform(-1, 1, count), 1 + rng.normal(0, 0.01, count)]
    return np.concatenate([bits, sizes, *near, rng.uniform(-746, 711, count)])
