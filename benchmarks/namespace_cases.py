"""The common functions that `namespace.py` calls in both libraries, with equal arguments."""

from collections.abc import Iterator

import numpy as np
from namespace_others import Case, other_cases

UNARY = """
    abs negative positive sign square sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan
    arcsin arccos arctan sinh cosh tanh arcsinh floor ceil trunc rint reciprocal isfinite isnan
    isinf signbit degrees radians nan_to_num logical_not sinc frexp modf
"""
BINARY = """
    add subtract multiply divide maximum minimum fmax fmin power arctan2 hypot copysign nextafter
    logaddexp less less_equal equal not_equal greater logical_and logical_or fmod remainder
    floor_divide float_power heaviside isclose
"""
INTEGERS = "add multiply bitwise_and bitwise_or bitwise_xor left_shift right_shift floor_divide"
REDUCTIONS = """
    sum prod max min mean var std any all argmax argmin nansum nanmax count_nonzero median ptp
"""
SCANS = "cumsum cumprod"


def cases(size: int) -> Iterator[Case]:
    """Return calls with arrays of at most `size` elements of 4 bytes."""
    random = np.random.default_rng(0)
    rows = 1 << (size.bit_length() // 2)
    columns = size // rows
    flat = random.uniform(0.1, 0.9, size).astype(np.float32)
    square, other = flat.reshape(rows, columns), flat[::-1].reshape(rows, columns).copy()
    whole = random.integers(1, 100, (rows, columns)).astype(np.int32)
    few = random.integers(0, 8, (rows, columns)).astype(np.int32)
    mask = square < 0.5
    for name in UNARY.split():
        yield name, (square,), {}
    for name in BINARY.split():
        yield name, (square, other), {}
    for name in INTEGERS.split():
        yield name, (whole, few + 1), {}
    for name in REDUCTIONS.split():
        for axis in (None, 0, 1):
            yield name, (square,), {"axis": axis}
    for name in SCANS.split():
        for axis in (0, 1):
            yield name, (square,), {"axis": axis}
    yield "add", (square, square[:1]), {}
    yield "add", (square, square[:, :1].copy()), {}
    yield "power", (square, 0.5), {}
    for name in ("floor_divide", "remainder", "divmod"):
        for kind in (np.int32, np.int16, np.uint8):
            yield name, (whole.astype(kind), 7), {}
    for name in ("argmax", "argmin"):
        yield name, (whole.astype(np.uint8),), {}
    yield "abs", (flat.view(np.complex64),), {}
    for name in ("equal", "not_equal"):
        yield name, (flat.view(np.complex64), flat.view(np.complex64).copy()), {}
    yield "where", (mask, square, other), {}
    yield "clip", (square, 0.2, 0.7), {}
    yield "transpose", (square,), {}
    yield "reshape", (square, (columns, rows)), {}
    yield "ravel", (square,), {}
    yield "flip", (square,), {"axis": 0}
    yield "flip", (square,), {"axis": 1}
    yield "roll", (square, 3), {"axis": 0}
    yield "roll", (square, 3), {"axis": 1}
    yield "rot90", (square,), {}
    yield "concatenate", ((square, other),), {"axis": 0}
    yield "concatenate", ((square, other),), {"axis": 1}
    yield "stack", ((square, other),), {"axis": 0}
    yield "stack", ((square, other),), {"axis": 2}
    yield "split", (square, 2), {"axis": 0}
    yield "repeat", (square, 2), {"axis": 0}
    yield "repeat", (square, 2), {"axis": 1}
    yield "tile", (square, (2, 1)), {}
    yield "pad", (square, 1), {}
    yield "tril", (square,), {}
    yield "diagonal", (square,), {}
    yield "trace", (square,), {}
    yield "diff", (square,), {}
    yield "broadcast_to", (square[:1], (rows, columns)), {}
    yield "moveaxis", (square.reshape(rows, -1, 2) if columns > 1 else square, 0, 1), {}
    yield "zeros", ((rows, columns), np.float32), {}
    yield "full", ((rows, columns), 2.0, np.float32), {}
    yield "arange", (size,), {"dtype": np.int32}
    yield "linspace", (0.0, 1.0, max(size, 2)), {"dtype": np.float32}
    yield "ones_like", (square,), {}
    yield "copy", (square,), {}
    yield "sort", (square,), {"axis": 0}
    yield "sort", (square,), {"axis": 1}
    yield "argsort", (square,), {"axis": 1}
    yield "unique", (few,), {}
    yield "searchsorted", (np.sort(flat), other.ravel()), {}
    yield "take", (square, random.integers(0, rows, rows)), {"axis": 0}
    yield "take", (square, random.integers(0, columns, columns)), {"axis": 1}
    for kind in (np.uint8, np.int16):
        short = whole.astype(kind)
        yield "take", (short, random.integers(0, columns, columns)), {"axis": 1}
    yield "take_along_axis", (square, np.argsort(square, axis=1)), {"axis": 1}
    yield "bincount", (few.ravel(),), {"length": 8}
    yield "histogram", (flat,), {"bins": 16}
    yield "interp", (flat, np.linspace(0, 1, 64, dtype=np.float32),
                     np.linspace(1, 2, 64, dtype=np.float32)), {}  # fmt: skip
    if size >= 1 << 14:
        yield "tril_indices", (rows,), {}
    yield "nonzero", (mask,), {}
    yield "extract", (mask, square), {}
    yield "compress", (mask[:, 0], square), {"axis": 0}
    yield "compress", (mask[0], square), {"axis": 1}
    yield "flatnonzero", (mask,), {}
    yield "argwhere", (mask,), {}
    for name in ("any", "all", "argmax"):
        yield name, (mask,), {}
    yield "cumprod", (flat.view(np.complex64),), {}
    yield "piecewise", (square, [mask, ~mask], [1, 2]), {}
    yield "packbits", (mask,), {}
    yield "unpackbits", (few.astype(np.uint8),), {}
    yield "lexsort", ((flat, other.ravel()),), {}
    yield "partition", (square, columns // 2), {}
    yield "nanmedian", (flat,), {}
    yield "digitize", (flat, np.linspace(0, 1, 32, dtype=np.float32)), {}
    yield "searchsorted", (np.arange(0, 100, 4, dtype=np.int32), whole), {}
    yield "isin", (few, np.arange(3, dtype=np.int32)), {}
    yield "isin", (flat, flat[:100]), {}
    yield "isin", (whole, whole[: rows // 4] + 50), {}
    yield "gradient", (flat,), {}
    yield "delete", (square, 0), {"axis": 0}
    yield "percentile", (flat, 30.0), {}
    yield "vdot", (flat, flat), {}
    yield "vdot", (whole.ravel(), few.ravel()), {}
    yield "inner", (flat, flat), {}
    yield "outer", (square[0], square[0]), {}
    yield "convolve", (flat, flat[:8]), {}
    yield "convolve", (whole.ravel(), few.ravel()[:8]), {}
    yield "convolve", (flat.view(np.complex64), flat.view(np.complex64)[:4]), {}
    yield "correlate", (whole.ravel(), few.ravel()[:3]), {}
    yield "polyval", (flat[:4], flat), {}
    yield "cross", (flat[: size // 3 * 3].reshape(-1, 3), flat[: size // 3 * 3].reshape(-1, 3)), {}
    side = min(1 << (size.bit_length() // 2), 1024)
    if side * side <= size:
        a, b = (x.ravel()[: side * side].reshape(side, side) for x in (square, other))
        yield "matmul", (a, b), {}
        yield "dot", (a, b[0]), {}
        yield "einsum", ("ij,kj->ik", a, b), {}
    yield "linalg.norm", (flat,), {}
    yield "fft.fft", (square,), {}
    yield "fft.rfft", (square,), {}
    if size >= 64:
        small = flat.reshape(-1, 8, 8)
        yield "matmul", (small, small), {}
        yield "linalg.inv", (small + 4 * np.eye(8, dtype=np.float32),), {}
        yield "linalg.det", (small + 4 * np.eye(8, dtype=np.float32),), {}
    if size >= 1 << 14:
        even = flat[: 128 * 128].reshape(128, 128) / 100 + np.eye(128, dtype=np.float32)
        yield "linalg.det", (even,), {}
        yield "linalg.solve", (even, even[0].copy()), {}
    yield from other_cases(size, square, other, whole)
