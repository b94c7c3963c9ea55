"""Special matrices with the names of SciPy."""

from math import comb, sqrt

import numpy as np

from shardir.frontend.argument_checks import check_flag, check_integer
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy.creation import diagonal_matrices, filling
from shardir.frontend.numpy.creation.array_conversion import asarray
from shardir.frontend.numpy.dtypes import issubdtype
from shardir.frontend.numpy.elementwise import selection
from shardir.frontend.numpy.indexing import take
from shardir.frontend.numpy.shaping import concatenation, padding, reshaping
from shardir.frontend.numpy.tracer_helpers.axis_slices import flatten
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    emit_conjugate,
    is_complex,
    promote_args_inexact,
)
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, promote
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.ir.dtypes import NumpyArray
from shardir.ir.types import NUMPY_DTYPES


def _as_vector(name: str, x: ArrayLike) -> Tracer:
    found = as_tracer(x)
    if found.ndim > 1:
        raise ShapeError(with_location(f"{name} takes vectors, got shape {found.shape}"))
    return flatten(found)


@public()
@strip_weak_types
def block_diag(*arrs: object) -> Tracer:
    """Return a block diagonal matrix."""

    blocks = [as_tracer(reshaping.atleast_2d(x)) for x in (promote(*arrs) if arrs else [])]
    for x in blocks:
        if x.ndim != 2:
            raise ShapeError(with_location(f"block_diag takes matrices, got shape {x.shape}"))
    if not blocks:
        return filling.zeros((1, 0))
    width = sum(x.shape[1] for x in blocks)
    rows, start = [], 0
    for x in blocks:
        rows.append(padding.pad(x, [(0, 0), (start, width - start - x.shape[1])]))
        start += x.shape[1]
    return concatenation.concatenate(rows, axis=0)


@public()
@strip_weak_types
def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Tracer:
    """Return the Toeplitz matrix with first column `c` and first row `r`.

    Without `r` it is Hermitian. The first element of `r` is not used.
    """
    column = _as_vector("toeplitz", c)
    row = _as_vector("toeplitz", r) if r is not None else (
        emit_conjugate(column) if is_complex(column) else column
    )  # fmt: skip

    line = concatenation.concatenate([reshaping.flip(row[1:]), column])
    rows, columns = column.shape[0], row.shape[0]
    positions = np.arange(columns - 1, columns - 1 + rows)[:, None] - np.arange(columns)[None]
    return take.take(line, positions, axis=0)


@public()
@strip_weak_types
def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Tracer:
    """Return the Hankel matrix with first column `c` and last row `r`.

    Without `r` the last row is zeros. The first element of `r` is not used.
    """

    column = _as_vector("hankel", c)
    row = filling.zeros_like(column) if r is None else _as_vector("hankel", r)
    line = concatenation.concatenate([column, row[1:]])
    positions = np.arange(column.shape[0])[:, None] + np.arange(row.shape[0])[None]
    return take.take(line, positions, axis=0)


@public()
def circulant(c: ArrayLike) -> Tracer:
    """Return the circulant matrix with first column `c`."""

    column = _as_vector("circulant", c)
    size = column.shape[0]
    positions = (np.arange(size)[:, None] - np.arange(size)[None]) % max(size, 1)
    return take.take(column, positions, axis=0)


@public()
def companion(a: ArrayLike) -> Tracer:
    """Return the companion matrix, whose eigenvalues are the roots of the polynomial `a`."""

    line = _as_vector("companion", a)
    size = line.shape[0] - 1
    if size < 1:
        raise ShapeError(
            with_location(f"companion takes at least two coefficients, got {size + 1}")
        )
    first = -line[1:] / line[0]
    below = diagonal_matrices.eye(size - 1, size, dtype=first.dtype)
    return concatenation.concatenate([first[None], below])


@public(static=("n", "mode"))
@strip_weak_types
def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Tracer:
    """Return the matrix of the convolution of a vector of `n` elements with `a`."""

    line = _as_vector("convolution_matrix", a)
    size, count = line.shape[0], check_integer("n of convolution_matrix", n, least=0)
    if mode not in ("full", "same", "valid") or count < 1 or not size:
        raise ArgumentError(
            with_location(
                f"convolution_matrix takes n of at least 1 and the modes 'full', 'same' and "
                f"'valid', got {n} and {mode!r}"
            )
        )
    padded = padding.pad(line, (0, count - 1))
    positions = np.arange(size + count - 1)[:, None] - np.arange(count)[None]
    result = selection.where(positions >= 0, take.take(padded, np.maximum(positions, 0), axis=0), 0)
    if mode == "full":
        return result
    kept = max(size, count) if mode == "same" else max(size, count) - min(size, count) + 1
    start = (size + count - 1 - kept) // 2 if mode == "same" else min(size, count) - 1
    return result[start : start + kept]


@public()
def leslie(f: ArrayLike, s: ArrayLike) -> Tracer:
    """Return the Leslie matrix with `f` as first row and `s` below the diagonal."""

    births, lives = promote(_as_vector("leslie", f), _as_vector("leslie", s))
    if lives.shape[0] != births.shape[0] - 1:
        raise ShapeError(
            with_location(f"leslie takes one survival less than births, got {lives.shape[0]} and "
                  f"{births.shape[0]}")
        )  # fmt: skip
    below = padding.pad(diagonal_matrices.diag(lives), [(0, 0), (0, 1)])
    return concatenation.concatenate([births[None], below])


@public()
def fiedler(a: ArrayLike) -> Tracer:
    """Return the absolute differences of all pairs of elements of a vector."""
    line = _as_vector("fiedler", a)
    return abs(line[:, None] - line[None])


@public()
def fiedler_companion(a: ArrayLike) -> Tracer:
    """Return the Fiedler companion matrices, whose eigenvalues are the roots of polynomials.

    Coefficients are along the last dimension, the one of the highest power first. The matrices have
    at most five diagonals with elements. Source: M. Fiedler, "A note on companion matrices" (2003).
    Raise `ShapeError` for a polynomial without coefficients. A leading coefficient of zero results
    in elements that are not finite.
    """
    (given,) = promote_args_inexact(a)
    lines = as_tracer(reshaping.atleast_1d(given))
    size = lines.shape[-1] - 1
    if size < 0:
        raise ShapeError(
            with_location(f"fiedler_companion takes coefficients, got shape {lines.shape}")
        )
    if size < 2:
        elements = -(lines[..., 1:] / lines[..., :1])
        return as_tracer(reshaping.reshape(elements, (*elements.shape, size)))
    row, column = np.indices((size, size))
    even = row % 2 == 0
    # Each even row has two coefficients beside the diagonal; the first row begins with its own.
    is_coefficient = even & (np.abs(row - column) == 1) | (row == 0) & (column == 0)
    is_one = even & (column == row + 2) | ~even & (column == row - 2) | (row == 1) & (column == 0)
    positions = np.where(is_coefficient, np.maximum(row, column) + 1, 0)
    positions[0, 0] = 1
    normalized = lines / lines[..., :1]
    coefficients = take.take(normalized, positions, axis=-1)
    return selection.where(
        is_coefficient,
        -coefficients,
        as_tracer(is_one.astype(NUMPY_DTYPES[lines.value.type.dtype])),
    )


MAX_ROWS = 1 << 15
"""The maximum number of rows; NumPy creates these matrices in memory."""

MAX_PASCAL_ROWS = 500
"""The maximum number of rows of the Pascal matrix or its inverse without overflow of floats."""

MAX_INVERSE_HILBERT_ROWS = 200
"""The maximum number of rows of the inverse Hilbert matrix without overflow of floats."""

MAX_EXACT_INVERSE_HILBERT_ROWS = 14
"""The maximum number of rows of the exact inverse Hilbert matrix in 64-bit integers."""


def _check_rows(name: str, n: object, least: int = 0, most: int = MAX_ROWS) -> int:
    return check_integer(f"the number of rows of {name}", n, least, most)


@with_argument_errors
def dft(n: int, scale: str | None = None, *, dtype: DTypeLike | None = None) -> Tracer:
    """Return the matrix of the discrete Fourier transform of n elements; `scale` is "sqrtn", "n" or
    None, `dtype` a complex element type.
    """
    if dtype is not None and not issubdtype(dtype, np.complexfloating):
        raise ArgumentError(
            with_location(f"the element type of dft is complex, got {brief(dtype)}")
        )
    if scale is not None and not (isinstance(scale, str) and scale in ("sqrtn", "n")):
        raise ArgumentError(
            with_location(f"dft has the scales 'sqrtn', 'n' and None, not {scale!r}")
        )
    size = _check_rows("dft", n)
    powers = np.outer(np.arange(size), np.arange(size)) % max(size, 1)
    matrix = np.exp(-2j * np.pi * powers / max(size, 1))
    scaled = matrix / {None: 1, "sqrtn": sqrt(max(size, 1)), "n": max(size, 1)}[scale]
    return asarray(scaled, dtype)


@with_argument_errors
def hadamard(n: int, dtype: DTypeLike = int) -> Tracer:
    """Return the Hadamard matrix of 1 and -1 with orthogonal rows; n is a power of two."""
    size = _check_rows("hadamard", n)
    if size < 1 or size & (size - 1):
        raise ArgumentError(with_location(f"hadamard takes a power of two, got {size}"))
    matrix = np.ones((1, 1), int)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return asarray(matrix, dtype)


@with_argument_errors
def helmert(n: int, full: bool = False) -> Tracer:
    """Return orthonormal rows, each of which compares an element with the mean of those before.

    The first row, of equal elements, is included only if `full`.
    """
    size = _check_rows("helmert", n, least=1)
    matrix = np.tril(np.ones((size, size)), -1) - np.diag(np.arange(size))
    matrix[0] = 1
    counts = np.arange(size)
    lengths = np.sqrt(counts * (counts + 1))
    lengths[0] = sqrt(size)
    matrix = matrix / lengths[:, None]
    return asarray(matrix if full else matrix[1:])


@with_argument_errors
def hilbert(n: int) -> Tracer:
    """Return the matrix of 1 / (i + j + 1)."""
    size = np.arange(_check_rows("hilbert", n))
    return asarray(1 / (size[:, None] + size[None] + 1.0))


@with_argument_errors
def invhilbert(n: int, exact: bool = False) -> Tracer:
    """Return the inverse of `hilbert`; with `exact` as integers."""
    exact = check_flag("exact of invhilbert", exact)
    size = _check_rows(
        "invhilbert", n, most=MAX_EXACT_INVERSE_HILBERT_ROWS if exact else MAX_INVERSE_HILBERT_ROWS
    )
    rows = [
        [
            (-1) ** (i + j) * (i + j + 1) * comb(size + i, size - j - 1)
            * comb(size + j, size - i - 1) * comb(i + j, i) ** 2
            for j in range(size)
        ]
        for i in range(size)
    ]  # fmt: skip
    return asarray(np.array(rows, int if exact else float).reshape(size, size))


@with_argument_errors
def pascal(n: int, kind: str | None = None) -> Tracer:
    """Return Pascal's triangle as a matrix: "lower", "upper", or "symmetric", their product."""
    return asarray(_pascal("pascal", n, kind), np.float32)


def _pascal(name: str, n: int, kind: str | None) -> NumpyArray:
    kinds = ("symmetric", "lower", "upper")
    if kind is not None and not (isinstance(kind, str) and kind in kinds):
        raise ArgumentError(
            with_location(f"{name} has the kinds 'symmetric', 'lower' and 'upper', not {kind!r}")
        )
    size = _check_rows(name, n, most=MAX_PASCAL_ROWS)
    indices = range(size)
    if kind in (None, "symmetric"):
        rows = [[comb(i + j, j) for j in indices] for i in indices]
    else:
        rows = [[comb(i, j) for j in indices] for i in indices]
    # 64-bit integers overflow beyond row 34.
    matrix = np.array([[float(x) for x in row] for row in rows]).reshape(size, size)
    return matrix.T if kind == "upper" else matrix


@with_argument_errors
def invpascal(n: int, kind: str | None = None) -> Tracer:
    """Return the inverse of `pascal`."""
    symmetric = kind is None or (isinstance(kind, str) and kind == "symmetric")
    lower = _pascal("invpascal", n, "lower" if symmetric else kind)
    indices = np.arange(len(lower))
    signed = lower * (-1.0) ** (indices[:, None] + indices[None])
    return asarray(signed if not symmetric else signed.T @ signed)
