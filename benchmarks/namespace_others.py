"""The less common functions that `namespace.py` calls: all others that NumPy also has."""

from collections.abc import Iterator
from typing import Any

import numpy as np

Case = tuple[str, tuple[Any, ...], dict[str, Any]]
"""The name of a function, positional arguments and others. Arrays of 64 bits are measured with
`enable_x64`; a string in the place of a function is the name of one."""

FURTHER = """
    absolute acos asin asinh atan atanh conj deg2rad rad2deg fabs fix i0 iscomplex isreal isneginf
    isposinf real angle round around spacing
"""
PAIRED = "logaddexp2 atan2 true_divide pow greater_equal logical_xor mod"
OF_INTEGERS = """
    abs negative square sign bitwise_count bitwise_invert bitwise_not invert sum prod max min mean
    var any all argmax argmin count_nonzero cumsum sqrt exp sin round
"""
OF_TWO_INTEGERS = """
    subtract divide maximum minimum power less equal remainder fmod gcd lcm bitwise_left_shift
    bitwise_right_shift logical_and hypot arctan2
"""
OF_DOUBLES = """
    exp log sin cos tan tanh sqrt square abs cbrt log10 log1p expm1 arcsin arctan sinh floor rint
    sum prod max mean var argmax cumsum median isnan
"""
OF_COMPLEX = """
    conjugate real imag angle isreal square sqrt exp sin log sum prod mean negative reciprocal
    cumsum
"""
OF_ALL = """
    nanargmax nanargmin nanmean nanmin nanprod nanstd nanvar amax amin average nanpercentile
    nanquantile quantile
"""
FACTORS = """
    eig eigvals inv pinv qr svd svdvals slogdet matrix_rank cond eigh eigvalsh cholesky
"""


def other_cases(size: int, square: Any, other: Any, whole: Any) -> Iterator[Case]:
    """Return calls with matrices of `size` elements, and with their decompositions."""
    yield from _of_other_types(size, square)
    yield from _of_other_shapes(size, square, other)
    yield from _sets_and_orders(size, square.ravel(), whole)
    yield from _products(size, square, other)
    yield from _transforms(square)


def _of_other_types(size: int, square: Any) -> Iterator[Case]:
    """Elementwise functions and reductions of integers, of 64 bits, bools and complex numbers."""
    random = np.random.default_rng(1)
    rows, columns = square.shape
    whole = random.integers(1, 100, (rows, columns)).astype(np.int32)
    few = random.integers(1, 8, (rows, columns)).astype(np.int32)
    long = whole.ravel()[: max(size // 2, 1)].astype(np.int64)
    double = random.uniform(0.1, 0.9, max(size // 2, 1))
    mask = square < 0.5
    pairs = square.ravel().view(np.complex64) if size > 1 else square.astype(np.complex64)
    for name in FURTHER.split():
        yield name, (square,), {}
    yield "acosh", (1 + square,), {}
    for name in PAIRED.split():
        yield name, (square, square[::-1].copy()), {}
    yield "ldexp", (square, few), {}
    for name in OF_INTEGERS.split():
        yield name, (whole,), {}
    for name in OF_TWO_INTEGERS.split():
        yield name, (whole, few), {}
    for name in ("abs", "square", "sum", "max", "mean", "argmax", "cumsum"):
        yield name, (long,), {}
    for name in OF_DOUBLES.split():
        yield name, (double,), {}
    for name in ("add", "multiply", "divide", "power", "arctan2", "hypot", "maximum", "less"):
        yield name, (double, double[::-1].copy()), {}
    for name in ("logical_not", "invert", "sum", "count_nonzero", "mean", "cumsum", "sort"):
        yield name, (mask,), {}
    for name in ("logical_and", "logical_xor", "bitwise_or", "equal", "maximum", "add", "vdot"):
        yield (
            name,
            (mask.ravel(), ~mask.ravel() if name == "vdot" else mask.ravel()[::-1].copy()),
            {},
        )
    yield "dot", (mask.ravel(), mask.ravel()), {}
    for name in OF_COMPLEX.split():
        yield name, (pairs,), {}
    for name in ("add", "multiply", "divide", "power"):
        yield name, (pairs, pairs[::-1].copy()), {}
    for to in (np.float64, np.int32, np.bool_, np.complex64):
        yield "astype", (square, to), {}
    for array, kind in (
        (whole, np.float32),
        (whole, np.int64),
        (mask, np.int32),
        (double, np.float32),
    ):
        yield "astype", (array, kind), {}
    for name in OF_ALL.split():
        more = (0.3,) if name.endswith("quantile") else (30.0,) if "percentile" in name else ()
        for axis in (None, 0, 1):
            yield name, (square, *more), {"axis": axis}
    for name in ("nancumsum", "nancumprod", "cumulative_sum", "cumulative_prod"):
        yield name, (square,), {"axis": 1}
    yield "cumsum", (square.ravel(),), {}
    yield "average", (square,), {"weights": square[::-1].copy()}
    for name in ("allclose", "array_equal", "array_equiv"):
        yield name, (square, square.copy()), {}


def _of_other_shapes(size: int, square: Any, other: Any) -> Iterator[Case]:
    """Functions that create, join, slice and move arrays."""
    rows, columns = square.shape
    flat, side = square.ravel(), min(rows, columns)
    whole = (square * 8).astype(np.int32)
    for name in [
        "array",
        "asarray",
        "matrix_transpose",
        "permute_dims",
        "fliplr",
        "flipud",
        "atleast_3d",
    ]:
        yield name, (square,), {}
    yield "swapaxes", (square, 0, 1), {}
    yield "rollaxis", (square, 1), {}
    yield "roll", (flat, 5), {}
    yield "roll", (square, (3, 4)), {"axis": (0, 1)}
    yield "expand_dims", (square, 0), {}
    yield "squeeze", (square[None],), {}
    for name in ["vstack", "hstack", "dstack", "column_stack", "concat", "block"]:
        yield name, ([square, other],), {}
    yield "append", (square, other), {"axis": 0}
    for name in ("vsplit", "hsplit"):
        yield name, (square, 2), {}
    yield "array_split", (square, 3), {}
    if columns >= 4:
        yield "dsplit", (square.reshape(rows, -1, 2), 2), {}
        yield "unstack", (square.reshape(4, -1, columns),), {}
    for axis in (0, 1):
        yield "insert", (square, 1, 0.0), {"axis": axis}
    yield "delete", (square, 0), {"axis": 1}
    yield "resize", (square, (rows * 2, columns)), {}
    yield "broadcast_arrays", (square, square[:1]), {}
    yield "diag", (square,), {}
    yield "diag", (flat[:side],), {}
    yield "diagflat", (flat[:side],), {}
    yield "triu", (square,), {}
    yield "eye", (rows, columns, 0, np.float32), {}
    yield "identity", (side, np.float32), {}
    yield "tri", (rows, columns, 0, np.float32), {}
    for name in ("ones", "empty"):
        yield name, ((rows, columns), np.float32), {}
    for name in ("zeros_like", "empty_like"):
        yield name, (square,), {}
    yield "full_like", (square, 2.0), {}
    for name in ("geomspace", "logspace"):
        yield name, (1.0, 2.0, max(size, 2)), {"dtype": np.float32}
    for name in ("bartlett", "blackman", "hamming", "hanning"):
        yield name, (size,), {}
    yield "kaiser", (size, 14.0), {}
    yield "fromfunction", (lambda i, j: i + j, (rows, columns)), {"dtype": np.float32}
    yield "indices", ((rows, columns),), {"dtype": np.int32}
    yield "meshgrid", (square[0], square[:, 0].copy()), {}
    yield "ix_", (np.arange(rows), np.arange(columns)), {}
    yield "frombuffer", (flat.tobytes(), np.float32), {}
    for name in ("diag_indices", "triu_indices"):
        yield name, (side,), {}
    for name in ("diag_indices_from", "tril_indices_from", "triu_indices_from"):
        yield name, (square[:side, :side].copy(),), {}
    yield "mask_indices", (side, "triu"), {}
    yield "fill_diagonal", (square, 0.0), {"inplace": False}
    yield "place", (square, square < 0.5, flat[:5]), {"inplace": False}
    yield "put", (square, np.arange(0, size, 2), flat[: -(-size // 2)]), {"inplace": False}
    yield "choose", (whole % 2, [square, other]), {}
    yield "select", ([square < 0.3, square > 0.6], [square, other]), {}
    yield "apply_along_axis", ("sum", 1, square), {}
    yield "apply_over_axes", ("sum", square, (0,)), {}
    yield "ravel_multi_index", ((whole.ravel(), whole.ravel()), (8, 8)), {}
    yield "unravel_index", (whole.ravel(), (4, 4)), {}
    yield "ediff1d", (flat,), {}
    yield "trapezoid", (square,), {}
    yield "unwrap", (flat,), {}
    yield "trim_zeros", (flat,), {}
    yield "vander", (flat[: max(size // 8, 1)], 8), {}


def _sets_and_orders(size: int, flat: Any, whole: Any) -> Iterator[Case]:
    """Return the functions that sort."""
    integers, half = whole.ravel(), max(size // 2, 1)
    for array in (flat, integers, flat.astype(np.float64)[:half]):
        yield "sort", (array,), {}
        yield "argsort", (array,), {}
    yield "sort", (integers.astype(np.uint8),), {}
    yield "argsort", (whole,), {"axis": 0}
    yield "argpartition", (whole, whole.shape[1] // 2), {}
    yield "sort", (flat.view(np.complex64) if size > 1 else flat.astype(np.complex64),), {}
    yield "sort_complex", (flat[:half].astype(np.complex64),), {}
    for array in (flat, integers):
        yield "unique", (array,), {}
        for name in ("union1d", "intersect1d", "setdiff1d", "setxor1d"):
            yield name, (array[:half], array[half // 2 :]), {}
    for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
        yield name, (integers,), {}
    yield "histogram2d", (flat, flat[::-1].copy()), {"bins": 8}
    yield "histogramdd", ((flat, flat[::-1].copy()),), {"bins": 4}
    yield "histogram_bin_edges", (flat,), {"bins": 16}


def _products(size: int, square: Any, other: Any) -> Iterator[Case]:
    """Products, polynomials, matrices and their factors."""
    rows, columns = square.shape
    flat, side = square.ravel(), min(rows, columns, 128)
    small = square[:side, :side].copy()
    whole = (square * 8).astype(np.int32)
    for name in ("matmul", "dot", "matvec"):
        yield name, (square, square[0]), {}
    yield "vecmat", (square[:, 0].copy(), square), {}
    yield "dot", (whole.ravel(), whole.ravel()), {}
    for kind in (np.int32, np.float64, np.complex64):
        yield "matmul", (small.astype(kind), small.astype(kind)), {}
    for text in ("ij,ij->i", "ij,ij->"):
        yield "einsum", (text, square, other), {}
    for text in ("ij->ji", "ij->j"):
        yield "einsum", (text, square), {}
    yield "einsum", ("ij,j->i", square, square[0]), {}
    yield "tensordot", (small, small), {"axes": 1}
    yield "kron", (small[:8, :8], flat[: max(size // 64, 1)].reshape(-1, 1)), {}
    for name in ("vecdot", "linalg.vecdot"):
        yield name, (square, other), {}
    for name in ("cov", "corrcoef"):
        yield name, (square[:16],), {}
    yield "poly", (flat[: min(size, 64)],), {}
    for name in ("polyadd", "polysub"):
        yield name, (flat, flat[::-1].copy()), {}
    for name in ("polyder", "polyint"):
        yield name, (flat,), {}
    yield "polymul", (flat, flat[:8]), {}
    yield "polyfit", (flat, flat[::-1].copy(), 2), {}
    yield "roots", (flat[: min(size, 32)],), {}
    yield "linalg.matrix_norm", (square,), {}
    yield "linalg.vector_norm", (flat,), {}
    for name in ("linalg.trace", "linalg.diagonal", "linalg.matrix_transpose"):
        yield name, (square,), {}
    yield "linalg.norm", (square,), {"axis": 1}
    yield "linalg.outer", (square[0], square[0]), {}
    if size < 64:
        return
    side = 8 if size < 1 << 14 else 64
    even = flat[: side * side].reshape(side, side) / side + np.eye(side, dtype=np.float32)
    for name in FACTORS.split():
        yield f"linalg.{name}", (even @ even.T,), {}
    yield "linalg.matrix_power", (even, 5), {}
    yield "linalg.multi_dot", ([even, even, even],), {}
    for name in ("lstsq", "tensorsolve"):
        yield f"linalg.{name}", (even, even[0].copy()), {}
    yield "linalg.tensorinv", (even.reshape(side // 4, 4, side),), {"ind": 2}
    for name in ("cholesky", "qr", "svd", "eigh"):
        many = np.broadcast_to((even @ even.T)[:8, :8], (size // 64, 8, 8)).copy()
        yield f"linalg.{name}", (many,), {}


def _transforms(square: Any) -> Iterator[Case]:
    flat = square.ravel()
    pairs = flat.view(np.complex64) if flat.size > 1 else flat.astype(np.complex64)
    rows = pairs.reshape(len(square), -1) if pairs.size >= len(square) else pairs.reshape(-1, 1)
    for name in ["fft2", "fftn", "ihfft", "rfft2", "rfftn"]:
        yield f"fft.{name}", (square,), {}
    for name in ["fft", "ifft", "ifft2", "ifftn", "irfft", "irfft2", "irfftn", "hfft"]:
        if rows.shape[-1] > 1 or (name[0] != "h" and "r" not in name):
            yield f"fft.{name}", (rows,), {}
    yield "fft.fft", (flat,), {}
    yield "fft.fft", (rows,), {"axis": 0}
    for name in ("fftfreq", "rfftfreq"):
        yield f"fft.{name}", (flat.size,), {}
    for name in ("fftshift", "ifftshift"):
        yield f"fft.{name}", (square,), {}
