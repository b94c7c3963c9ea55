"""Decompositions of `lax.linalg`: their defining equations, and agreement with JAX."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from shardir import lax
from shardir.errors import OperationTypeError
from shardir.frontend.errors import ArgumentError, ShapeError
from tests.error_assertions import assert_raises_exactly
from tests.frontend.numpy.linear_algebra.random_matrices import Matrices
from tests.namespace import close, eagerly, run

DRAWN = Matrices(41)
normal, plane, definite = DRAWN.normal, DRAWN.complex_normal, DRAWN.positive_definite


def adjoint(x: Any) -> Any:
    return np.swapaxes(x.conj(), -1, -2)


@pytest.mark.sample(3)
@pytest.mark.parametrize("flags", list(product((False, True), repeat=5)), ids=str)
def test_triangular_solve(flags: tuple[bool, ...]) -> None:
    left, lower, transpose, conjugate, unit = flags
    a, b = plane(2, 4, 4) + 4 * np.eye(4, dtype="c8"), plane(2, 4, 3)
    kept = np.tril(a, -unit) if lower else np.triu(a, unit)
    matrix = kept + unit * np.eye(4, dtype="c8")
    matrix = np.swapaxes(matrix, -1, -2) if transpose else matrix
    matrix = matrix.conj() if conjugate else matrix
    options = {"lower": lower, "transpose_a": transpose, "conjugate_a": conjugate}
    sides = b if left else np.swapaxes(b, -1, -2)
    got = run(lax.linalg.triangular_solve, a, sides, left_side=left, unit_diagonal=unit, **options)
    close(matrix @ got if left else got @ matrix, sides, 1e-3)


def test_a_vector_per_matrix() -> None:
    a, b = plane(2, 4, 4) + 4 * np.eye(4, dtype="c8"), plane(2, 4)
    got = run(lax.linalg.triangular_solve, a, b, left_side=True, lower=True)
    close((np.tril(a) @ got[..., None])[..., 0], b, 1e-3)


def test_decompositions() -> None:
    x, s = plane(2, 5, 3), definite(2, 4, 4, make=plane)
    factor = eagerly(lax.linalg.cholesky, s)
    close(factor @ adjoint(factor), s, 1e-3)
    close(eagerly(lax.linalg.cholesky, np.tril(s), symmetrize_input=False), factor, 1e-3)
    for full in (True, False):
        q, r = eagerly(lax.linalg.qr, x, full_matrices=full)
        close(q @ r, x, 1e-3)
    u, values, vh = eagerly(lax.linalg.svd, x, full_matrices=False)
    close((u * values[..., None, :]) @ vh, x, 1e-3)
    first = eagerly(lax.linalg.svd, x, full_matrices=False, subset_by_index=(0, 2))
    close(first[1], values[..., :2])
    vectors, values = eagerly(lax.linalg.eigh, s)
    close(s @ vectors, vectors * values[..., None, :], 1e-2)
    for triangle, lower in ((np.tril(s), True), (np.triu(s), False)):
        options = {"symmetrize_input": False, "lower": lower}
        close(eagerly(lax.linalg.eigh, triangle, **options)[1], values, 1e-3)
    a = plane(4, 4)
    values, left, right = eagerly(lax.linalg.eig, a)
    close(a @ right, right * values, 1e-3)
    close(adjoint(left) @ a, values[:, None] * adjoint(left), 1e-2)
    assert len(eagerly(lax.linalg.eig, a, compute_left_eigenvectors=False)) == 2


@pytest.mark.parametrize("shape", [(2, 4, 4), (5, 3), (2, 3, 5)])
def test_lu(shape: tuple[int, ...]) -> None:
    x = plane(*shape)
    packed, pivots, order = eagerly(lax.linalg.lu, x)
    size = min(shape[-2:])
    lower = np.tril(packed, -1)[..., :size] + np.eye(shape[-2], size, dtype="c8")
    made = lower @ np.triu(packed)[..., :size, :]
    close(made, np.take_along_axis(x, order[..., None], -2), 1e-3)
    got = run(lax.linalg.lu_pivots_to_permutation, pivots, permutation_size=shape[-2])
    np.testing.assert_array_equal(got, order)


def test_derived_decompositions() -> None:
    x, w = normal(5, 3), normal(3)
    raw, taus = np.linalg.qr(x, mode="raw")
    got = run(lax.linalg.householder_product, np.ascontiguousarray(raw.T), taus.astype("f"))
    close(got, np.linalg.qr(x)[0], 1e-3)
    r = np.linalg.qr(x)[1] * np.sign(np.diag(np.linalg.qr(x)[1]))[:, None]
    made = run(lax.linalg.cholesky_update, r, w)
    close(made.T @ made, r.T @ r + np.outer(w, w), 1e-3)
    c = x.T @ x
    close(run(lax.linalg.symmetric_product, x.T, c, alpha=2.0, beta=0.5), 2.5 * c, 1e-3)
    d, b = normal(3, 6) + np.array([[0], [5], [0]], "f"), normal(6, 2)
    whole = np.diag(d[0, 1:], -1) + np.diag(d[1]) + np.diag(d[2, :-1], 1)
    close(run(lax.linalg.tridiagonal_solve, *d, b), np.linalg.solve(whole, b), 1e-3)
    unitary, positive, *_ = eagerly(lax.linalg.qdwh, x)
    close(unitary @ positive, x, 1e-3)
    close(unitary.T @ unitary, np.eye(3), 1e-3)


def test_fourier_transforms() -> None:
    z, x = plane(2, 3, 4), normal(2, 3, 4)
    close(run(lax.fft, z, lax.FftType.FFT, (4,)), np.fft.fft(z), 1e-4)
    close(run(lax.fft, z, "IFFT", (3, 4)), np.fft.ifft2(z), 1e-4)
    close(run(lax.fft, x, "RFFT", (2, 3, 4)), np.fft.rfftn(x), 1e-4)
    close(run(lax.fft, z, lax.FftType.IRFFT, (3, 7)), np.fft.irfft2(z, (3, 7)), 1e-4)
    close(run(lax.fft, z, "FFT", ()), z)


ERRORS: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda x: lax.linalg.cholesky(x), ShapeError,
     "cholesky takes square matrices, got shape (3, 4)"),
    (lambda x: lax.linalg.qr(x, pivoting=True), ArgumentError,
     "qr does not pivot columns; use svd for rank-deficient matrices"),
    (lambda x: lax.linalg.lu(x.astype(int)), OperationTypeError,
     "lu: takes f32, f64, c64 or c128 operands, got i32[3, 4]"),
    (lambda x: lax.linalg.triangular_solve(x[:, :3], x.astype("complex64"), left_side=True),
     OperationTypeError,
     "triangular_solve takes one element type, got f32[3, 3], c64[3, 4]"),
    (lambda x: lax.fft(x, "FFTN", (4,)), ArgumentError,
     "fft_type 'FFTN' is none of FFT, IFFT, RFFT, IRFFT"),
    (lambda x: lax.fft(x, "RFFT", (5,)), ShapeError,
     "fft of type RFFT and lengths (5,) does not fit shape (3, 4)"),
    (lambda x: lax.fft(x, "FFT", (4,)), OperationTypeError,
     "fft: takes c64 or c128 operands, got f32[3, 4]"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_invalid_arguments_are_errors(
    call: Callable[[Any], Any], kind: type[Exception], message: str
) -> None:
    assert_raises_exactly(lambda: run(call, normal(3, 4)), kind, message)
