"""Print columns of the table in docs/numerics.md: the largest errors in f64, and NumPy's in f32.

    python -m tests.backends.cpu.kernels.math.measure_errors [stride]

f32 functions run on every `stride`-th bit pattern (`sweep` tests all patterns), f64 functions on
random numbers. The exact results of f64 functions require the extended precision of x86.
"""

import sys

import numpy as np

from tests.backends.cpu.kernels.math.accuracy import (
    EXACT_FUNCTIONS,
    ExactFunction,
    f64_arguments,
    ulp_errors,
)
from tests.backends.cpu.kernels.math.elementwise_runner import Array, run_operation

CHUNK = 1 << 20
NUMPY_FUNCTIONS = {
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "cbrt", "sqrt",
}  # fmt: skip


def largest_f32_errors(op: str, truth: ExactFunction, stride: int) -> tuple[float, float]:
    """Return the largest f32 errors of the native and the NumPy function; 0 if NumPy lacks it."""
    worst = [0.0, 0.0]
    for start in range(0, 2**32, stride * CHUNK):
        stop = min(2**32, start + stride * CHUNK)
        x = np.arange(start, stop, stride, dtype=np.uint64).astype(np.uint32).view(np.float32)
        exact = truth(x.astype(np.float64))
        worst[0] = max(worst[0], ulp_errors(run_operation(op, [x], ["f32"], "f32"), exact).max())
        if op in NUMPY_FUNCTIONS:
            worst[1] = max(worst[1], ulp_errors(truth(x), exact).max())
    return worst[0], worst[1]


def random_operands(type: type[np.floating]) -> tuple[Array, Array]:
    """Return operands of pow and atan2: random bits, and numbers around one."""
    rng, count = np.random.default_rng(11), 1 << 20
    width = np.dtype(type).itemsize
    bits = rng.integers(0, 256, (2, count * width), np.uint8).view(type)
    near = rng.lognormal(0, 2, count).astype(type), rng.normal(0, 30, count).astype(type)
    return np.concatenate([bits[0], near[0]]), np.concatenate([bits[1], near[1]])


def main(stride: int) -> None:
    np.seterr(all="ignore")
    for op, truth in EXACT_FUNCTIONS.items():
        if op in ("pow", "atan2"):
            found = []
            for name, type in (("f32", np.float32), ("f64", np.float64)):
                x, y = random_operands(type)
                exact = truth(x.astype(np.longdouble), y.astype(np.longdouble))
                got = run_operation(op, [x, y], [name, name], name)
                found += [ulp_errors(got, exact).max(), ulp_errors(truth(x, y), exact).max()]
            print(f"| {op} | {found[0]:.2f} | {found[1]:.2f} | {found[2]:.2f} |", flush=True)
            continue
        native_error, numpy_error = largest_f32_errors(op, truth, stride)
        x = f64_arguments(1 << 19)
        wide = ulp_errors(
            run_operation(op, [x], ["f64"], "f64"), truth(x.astype(np.longdouble))
        ).max()
        other = f"{numpy_error:.2f}" if op in NUMPY_FUNCTIONS else "-"
        print(f"| {op} | {native_error:.2f} | {other} | {wide:.2f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 211)
