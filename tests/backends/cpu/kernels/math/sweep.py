"""Measure the largest errors of unary vector functions over the bit patterns of short float types.

    python -m tests.backends.cpu.kernels.math.sweep [FUNCTION ...] [--patterns all|N]
        [--types f32,f16,bf16] [--numpy]

Print the largest error of each function and its argument, in ulp of the exact result. `inf` means a
wrong NaN, infinity or sign of zero. The exact result is that of the f64 function, which other tests
compare with more digits. For f32, every N-th of the 2^32 patterns is tested, or all of them: 10 to
90 s per function on one core. For f16 and bf16, all 65,536 patterns are tested. `--numpy` also
measures the f32 functions of NumPy.
"""

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np

from shardir.ir.types import NUMPY_DTYPES
from tests.backends.cpu.kernels.math.accuracy import EXACT_FUNCTIONS, F32_BOUNDS_ULP
from tests.backends.cpu.kernels.math.elementwise_runner import Array, run_operation
from tests.backends.cpu.kernels.math.error_search import errors_in_ulp, largest_error

CHUNK = 1 << 16
NUMPY_FUNCTIONS = frozenset(EXACT_FUNCTIONS) - {"logistic", "rsqrt", "pow", "atan2"}
BINARY = frozenset({"pow", "atan2", "rem"})
UNARY = tuple(op for op in F32_BOUNDS_ULP if op not in BINARY)


def number_of_pattern(pattern: int, dtype: str) -> Array:
    """Return the number with a bit pattern as an array of one element."""
    kind = np.dtype(f"u{NUMPY_DTYPES[dtype].itemsize}")
    return np.array([pattern], kind).view(NUMPY_DTYPES[dtype])


def _numbers(stride: int) -> Iterator[Array]:
    for first in range(0, 1 << 32, stride * CHUNK):
        end = min(1 << 32, first + stride * CHUNK)
        yield np.arange(first, end, stride, dtype=np.uint64).astype(np.uint32).view(np.float32)


def numpy_error(op: str, stride: int) -> float:
    """Return the largest error of NumPy's f32 function."""
    worst = 0.0
    with np.errstate(all="ignore"):
        for x in _numbers(stride):
            exact = run_operation(op, [x.astype(np.float64)], ["f64"], "f64")
            worst = max(worst, errors_in_ulp(EXACT_FUNCTIONS[op](x), exact, "f32").max())
    return worst


def _line(op: str, dtype: str, stride: int, with_numpy: bool) -> str:
    begin = time.monotonic()
    error, pattern = largest_error(op, dtype, stride)
    x = number_of_pattern(pattern, dtype)
    (got,) = run_operation(op, [x], [dtype], dtype).astype(np.float64)
    (exact,) = run_operation(op, [x.astype(np.float64)], ["f64"], "f64")
    other = f"{numpy_error(op, stride):.3f}" if with_numpy else "-"
    numbers = f"{float(x[0])!r} | {float(got)!r} | {float(exact)!r}"
    seconds = time.monotonic() - begin
    return f"| {op} | {dtype} | {error:.3f} | {numbers} | {other} | {seconds:.0f} |"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="sweep", description="errors of vector functions")
    parser.add_argument("functions", nargs="*", metavar="FUNCTION", help="default: all")
    parser.add_argument("--patterns", default="1021", help="all, or N: every N-th of f32")
    parser.add_argument("--types", default="f32,f16,bf16")
    parser.add_argument("--numpy", action="store_true", help="measure NumPy's functions too")
    options = parser.parse_args(arguments)
    unknown = [op for op in options.functions if op not in UNARY]
    if unknown:
        parser.error(f"no function {unknown[0]!r}; there are {', '.join(UNARY)}")
    print("| function | type | ulp | of | gives | exact | NumPy ulp | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for op in options.functions or UNARY:
        for dtype in options.types.split(","):
            stride = 1 if options.patterns == "all" or dtype != "f32" else int(options.patterns)
            with_numpy = options.numpy and dtype == "f32" and op in NUMPY_FUNCTIONS
            print(_line(op, dtype, stride, with_numpy), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
