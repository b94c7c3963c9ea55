"""Prints columns of the table in docs/numerics.md: the largest errors in f64, and NumPy's in f32.

    python -m tests.backends.cpu.kernels.math.measure_errors [stride]

f32 over every so-many-th bit pattern (`sweep` takes all of ours), f64 over random numbers. Takes
the extended precision of x86 for f64.
"""

import sys

import numpy as np

from tests.backends.cpu.kernels.math.accuracy import TRUTHS, Truth, doubles, errors
from tests.backends.cpu.kernels.math.elementwise_runner import Array, applied

CHUNK = 1 << 20
IN_NUMPY = {
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "cbrt", "sqrt",
}  # fmt: skip


def swept(op: str, truth: Truth, stride: int) -> tuple[float, float]:
    """The largest errors in f32 of ours and of NumPy's function, where it has one."""
    worst = [0.0, 0.0]
    for start in range(0, 2**32, stride * CHUNK):
        stop = min(2**32, start + stride * CHUNK)
        x = np.arange(start, stop, stride, dtype=np.uint64).astype(np.uint32).view(np.float32)
        exact = truth(x.astype(np.float64))
        worst[0] = max(worst[0], errors(applied(op, [x], ["f32"], "f32"), exact).max())
        if op in IN_NUMPY:
            worst[1] = max(worst[1], errors(truth(x), exact).max())
    return worst[0], worst[1]


def pair(type: type[np.floating]) -> tuple[Array, Array]:
    """Operands of pow and atan2: any bits, and of sizes around one."""
    rng, count = np.random.default_rng(11), 1 << 20
    width = np.dtype(type).itemsize
    bits = rng.integers(0, 256, (2, count * width), np.uint8).view(type)
    near = rng.lognormal(0, 2, count).astype(type), rng.normal(0, 30, count).astype(type)
    return np.concatenate([bits[0], near[0]]), np.concatenate([bits[1], near[1]])


def main(stride: int) -> None:
    np.seterr(all="ignore")
    for op, truth in TRUTHS.items():
        if op in ("pow", "atan2"):
            found = []
            for name, type in (("f32", np.float32), ("f64", np.float64)):
                x, y = pair(type)
                exact = truth(x.astype(np.longdouble), y.astype(np.longdouble))
                got = applied(op, [x, y], [name, name], name)
                found += [errors(got, exact).max(), errors(truth(x, y), exact).max()]
            print(f"| {op} | {found[0]:.2f} | {found[1]:.2f} | {found[2]:.2f} |", flush=True)
            continue
        ours, theirs = swept(op, truth, stride)
        x = doubles(1 << 19)
        wide = errors(applied(op, [x], ["f64"], "f64"), truth(x.astype(np.longdouble))).max()
        other = f"{theirs:.2f}" if op in IN_NUMPY else "-"
        print(f"| {op} | {ours:.2f} | {other} | {wide:.2f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 211)
