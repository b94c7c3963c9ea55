"""Every bit pattern of the short float types through every vector function of one operand.

    python -m tests.backends.cpu.kernels.math.sweep [FUNCTION ...] [--patterns all|N]
        [--types f32,f16,bf16] [--numpy]

Prints the largest error of each function and the number where it is, in ulp of the exact result;
`inf` would say that a NaN, an infinity or the sign of a zero is wrong. The exact result is our own
f64 function's, which other tests hold against more digits. Of f32 every N-th of the 2^32 patterns
is taken, or all of them: 10 to 90 s for a function on one core. Of f16 and bf16 all 65,536 are
taken. `--numpy` measures NumPy's functions of f32 too, beside ours.
"""

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np

from shardir.ir.types import NUMPY_DTYPES
from tests.backends.cpu.kernels.math.accuracy import SINGLE, TRUTHS
from tests.backends.cpu.kernels.math.elementwise_runner import Array, applied
from tests.backends.cpu.kernels.math.error_search import judged, worst_of

CHUNK = 1 << 16
IN_NUMPY = frozenset(TRUTHS) - {"logistic", "rsqrt", "pow", "atan2"}
BINARY = frozenset({"pow", "atan2", "rem"})
UNARY = tuple(op for op in SINGLE if op not in BINARY)


def number(pattern: int, dtype: str) -> Array:
    """The number that has a bit pattern, as an array of one."""
    kind = np.dtype(f"u{NUMPY_DTYPES[dtype].itemsize}")
    return np.array([pattern], kind).view(NUMPY_DTYPES[dtype])


def _numbers(stride: int) -> Iterator[Array]:
    for first in range(0, 1 << 32, stride * CHUNK):
        end = min(1 << 32, first + stride * CHUNK)
        yield np.arange(first, end, stride, dtype=np.uint64).astype(np.uint32).view(np.float32)


def of_numpy(op: str, stride: int) -> float:
    """The largest error of NumPy's function of f32."""
    worst = 0.0
    with np.errstate(all="ignore"):
        for x in _numbers(stride):
            exact = applied(op, [x.astype(np.float64)], ["f64"], "f64")
            worst = max(worst, judged(TRUTHS[op](x), exact, "f32").max())
    return worst


def _line(op: str, dtype: str, stride: int, beside: bool) -> str:
    begin = time.monotonic()
    error, pattern = worst_of(op, dtype, stride)
    x = number(pattern, dtype)
    (got,) = applied(op, [x], [dtype], dtype).astype(np.float64)
    (exact,) = applied(op, [x.astype(np.float64)], ["f64"], "f64")
    other = f"{of_numpy(op, stride):.3f}" if beside else "-"
    numbers = f"{float(x[0])!r} | {float(got)!r} | {float(exact)!r}"
    seconds = time.monotonic() - begin
    return f"| {op} | {dtype} | {error:.3f} | {numbers} | {other} | {seconds:.0f} |"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="sweep", description="errors of vector functions")
    parser.add_argument("functions", nargs="*", metavar="FUNCTION", help="all where none is named")
    parser.add_argument("--patterns", default="1021", help="all, or N: every N-th of f32")
    parser.add_argument("--types", default="f32,f16,bf16")
    parser.add_argument("--numpy", action="store_true", help="measure NumPy's functions too")
    options = parser.parse_args(words)
    unknown = [op for op in options.functions if op not in UNARY]
    if unknown:
        parser.error(f"no function {unknown[0]!r}; there are {', '.join(UNARY)}")
    print("| function | type | ulp | of | gives | exact | NumPy ulp | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for op in options.functions or UNARY:
        for dtype in options.types.split(","):
            stride = 1 if options.patterns == "all" or dtype != "f32" else int(options.patterns)
            beside = options.numpy and dtype == "f32" and op in IN_NUMPY
            print(_line(op, dtype, stride, beside), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
