"""Linear algebra under SciPy's names: defining equations, and agreement with JAX."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.frontend.config import config
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.scipy import linalg
from tests.error_assertions import assert_raises_exactly
from tests.frontend.numpy.linear_algebra.random_matrices import Matrices
from tests.namespace import close, eagerly, run

pytestmark = pytest.mark.sample(4)

DRAWN = Matrices(43)
normal, plane, definite = DRAWN.normal, DRAWN.complex_normal, DRAWN.positive_definite


@pytest.mark.parametrize("make", [normal, plane])
def test_solving_with_decompositions(make: Any) -> None:
    s, a = definite(4, 4, make=make), make(4, 4) + 4 * np.eye(4, dtype=make(1).dtype)
    for b in (make(4), make(4, 2)):
        for lower in (True, False):
            factor, told = linalg.cho_factor(s, lower)
            close(np.asarray(linalg.cho_solve((factor, told), b)), np.linalg.solve(s, b), 1e-2)
        close(run(linalg.solve, s, b, assume_a="pos"), np.linalg.solve(s, b), 1e-2)
        close(run(linalg.solve, a, b), np.linalg.solve(a, b), 1e-2)
        turned = (a, a.T, a.conj().T)
        for trans, matrix in enumerate(turned):
            found = eagerly(lambda a, b, t=trans: linalg.lu_solve(linalg.lu_factor(a), b, t), a, b)
            close(matrix @ found, b, 1e-3)
            found = run(linalg.solve_triangular, a, b, trans, lower=True)
            triangle = (np.tril(a), np.tril(a).T, np.tril(a).conj().T)[trans]
            close(triangle @ found, b, 1e-3)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_decompositions(shape: tuple[int, ...]) -> None:
    x = plane(*shape)
    p, lower, upper = eagerly(linalg.lu, x)
    close(p @ lower @ upper, x, 1e-3)
    left, upper = eagerly(linalg.lu, x, permute_l=True)
    close(left @ upper, x, 1e-3)
    for mode in ("full", "economic"):
        q, r = eagerly(linalg.qr, x, mode=mode)
        close(q @ r, x, 1e-3)
    assert len(eagerly(linalg.qr, x, mode="r")) == 1
    u, values, vh = eagerly(linalg.svd, x, full_matrices=False)
    close((u * values) @ vh, x, 1e-3)
    close(eagerly(linalg.svd, x, compute_uv=False), values, 1e-3)
    unitary, positive = eagerly(linalg.polar, x)
    close(unitary @ positive, x, 1e-3)
    unitary, positive = eagerly(linalg.polar, x, side="left")
    close(positive @ unitary, x, 1e-3)


def test_functions_shared_with_numpy() -> None:
    a, s = plane(2, 4, 4), definite(2, 4, 4)
    close(run(linalg.det, a), np.linalg.det(a), 1e-3)
    close(run(linalg.inv, s), np.linalg.inv(s), 1e-2)
    lower = np.linalg.cholesky(s)
    close(run(linalg.cholesky, s, lower=True), lower, 1e-3)
    close(run(linalg.cholesky, s), np.swapaxes(lower, -1, -2), 1e-3)


@pytest.mark.parametrize("make", [normal, plane])
def test_eigenvalues(make: Any) -> None:
    a, b = definite(4, 4, make=make), definite(4, 4, make=make)
    values, vectors = eagerly(linalg.eigh, a)
    close(a @ vectors, vectors * values, 1e-2)
    for triangle, lower in ((np.tril(a), True), (np.triu(a), False)):
        close(run(linalg.eigh, triangle, lower=lower, eigvals_only=True), values, 1e-3)
    values, vectors = eagerly(linalg.eigh, a, b)
    close(a @ vectors, b @ vectors * values, 2e-2)
    close(run(linalg.eigh, a, b, eigvals_only=True), values, 1e-3)
    d, e = normal(5), normal(4)
    whole = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    close(run(linalg.eigh_tridiagonal, d, e, eigvals_only=True), np.linalg.eigvalsh(whole), 1e-3)


def test_exponentials() -> None:
    turn = np.array([[0, -1], [1, 0]], "f")
    angle = np.array([0.3, 40.0], "f")[:, None, None]
    expected = np.cos(angle) * np.eye(2) + np.sin(angle) * turn
    close(run(linalg.expm, angle * turn), expected, 1e-3)
    assert np.isnan(run(linalg.expm, 1e9 * turn)).all()
    x, direction = normal(3, 3), normal(3, 3)
    whole, moved = eagerly(linalg.expm_frechet, x, direction)
    close(whole, eagerly(linalg.expm, x), 1e-3)
    change = (eagerly(linalg.expm, x + 1e-2 * direction) -
              eagerly(linalg.expm, x - 1e-2 * direction)) / 2e-2  # fmt: skip
    np.testing.assert_allclose(moved, change, rtol=1e-2, atol=1e-2)


def test_matrix_functions() -> None:
    s = definite(4, 4)
    root = eagerly(linalg.sqrtm, s)
    close(root @ root, s, 1e-3)
    a, b, c = definite(3, 3), definite(2, 2), normal(3, 2)
    x = eagerly(linalg.solve_sylvester, a, b, c)
    close(a @ x + x @ b, c, 1e-3)


def test_derivatives_agree_with_jax() -> None:
    jax = pytest.importorskip("jax")
    x = np.random.default_rng(5).normal(size=(3, 3))
    with config(enable_x64=True), jax.enable_x64(True):
        for name in ("expm", "inv", "det"):
            ours = sd.grad(lambda x, n=name: getattr(linalg, n)(x).sum())(x)
            theirs = jax.jit(jax.grad(lambda x, n=name: getattr(jax.scipy.linalg, n)(x).sum()))(x)
            np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-8)


V, W = normal(4), normal(3)
BUILT: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("block_diag", (normal(2, 3), V, normal(1, 1)), {}),
    ("toeplitz", (V,), {}),
    ("toeplitz", (V, W), {}),
    ("toeplitz", (plane(3),), {}),
    ("hankel", (V,), {}),
    ("hankel", (V, W), {}),
    ("circulant", (V,), {}),
    ("companion", (V,), {}),
    ("fiedler_companion", (V,), {}),
    ("fiedler_companion", (normal(2, 6),), {}),
    ("fiedler_companion", (plane(3),), {}),
    ("fiedler_companion", (V[:2],), {}),
    ("fiedler_companion", (V[:1],), {}),
    ("leslie", (V, W), {}),
    ("fiedler", (V,), {}),
    ("convolution_matrix", (V, 2), {}),
    ("convolution_matrix", (V, 6), {"mode": "same"}),
    ("convolution_matrix", (V, 2), {"mode": "same"}),
    ("convolution_matrix", (V, 6), {"mode": "valid"}),
    ("convolution_matrix", (V, 3), {"mode": "valid"}),
    ("dft", (5,), {}),
    ("dft", (4,), {"scale": "sqrtn"}),
    ("hadamard", (8,), {}),
    ("helmert", (5,), {}),
    ("helmert", (4,), {"full": True}),
    ("hilbert", (4,), {}),
    ("invhilbert", (4,), {}),
    ("pascal", (4,), {}),
    ("pascal", (4,), {"kind": "upper"}),
    ("invpascal", (4,), {}),
    ("invpascal", (4,), {"kind": "lower"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "options"), BUILT, ids=lambda x: str(x)[:20])
def test_structured_matrices(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    jax = pytest.importorskip("jax")
    arrays = [x for x in args if isinstance(x, np.ndarray)]

    def expected(*arrays: Any) -> Any:
        return getattr(jax.scipy.linalg, name)(*arrays, *args[len(arrays) :], **options)

    # One compilation takes less time than those of single operations.
    theirs = jax.jit(expected)(*arrays)
    close(np.asarray(getattr(linalg, name)(*args, **options)), np.asarray(theirs), 1e-4)


ERRORS: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda x: linalg.expm(x), ShapeError, "expm takes square matrices, got shape (3, 4)"),
    (lambda x: linalg.toeplitz(x), ShapeError, "toeplitz takes vectors, got shape (3, 4)"),
    (lambda x: linalg.fiedler_companion(x[:, :0]), ShapeError,
     "fiedler_companion takes coefficients, got shape (3, 0)"),
    (lambda x: linalg.solve(x[:, :3], x[0]), ShapeError,
     "solve of 3 equations takes right-hand sides with as many rows, got shape (4,)"),
    (lambda x: linalg.solve_triangular(x[:, :3], x, trans="X"), ArgumentError,
     "solve_triangular takes as trans one of 0, 'N', 1, 'T', 2, 'C', got 'X'"),
    (lambda x: linalg.polar(x, side="top"), ArgumentError,
     "polar has the sides 'right' and 'left', not 'top'"),
    (lambda x: linalg.hadamard(6), ArgumentError, "hadamard takes a power of two, got 6"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_invalid_arguments_are_errors(
    call: Callable[[Any], Any], kind: type[Exception], message: str
) -> None:
    assert_raises_exactly(lambda: run(call, normal(3, 4)), kind, message)
