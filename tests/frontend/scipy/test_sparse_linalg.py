"""Iterative solvers agree with direct solvers and with JAX, and so do their derivatives."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.errors import ArgumentError
from shardir.scipy.sparse import linalg

pytestmark = pytest.mark.sample(4)

RANDOM = np.random.default_rng(7)
SIZE = 6
GENERAL = (RANDOM.standard_normal((SIZE, SIZE)) + 6 * np.eye(SIZE)).astype("f")
POSITIVE = (GENERAL @ GENERAL.T / SIZE).astype("f")
IMAGINARY = RANDOM.standard_normal((SIZE, SIZE)).astype("f")
HERMITIAN = (POSITIVE + 0.3j * (IMAGINARY - IMAGINARY.T)).astype(np.complex64)
RIGHT = RANDOM.standard_normal(SIZE).astype("f")
SOLVERS = ("cg", "bicgstab", "gmres")


def matrix(name: str) -> Any:
    return POSITIVE if name == "cg" else GENERAL


@pytest.mark.parametrize("name", SOLVERS)
def test_solvers_satisfy_the_equation(name: str) -> None:
    solver, a = getattr(linalg, name), matrix(name)
    expected = np.linalg.solve(a, RIGHT)
    inverse = np.diag(1 / np.diag(a)).astype("f")
    ways: list[Any] = [
        lambda a, b: solver(a, b),
        lambda a, b: solver(lambda x: a @ x, b, snp.ones_like(b), M=inverse),
    ]
    for way in ways:
        found, info = sd.jit(way)(a, RIGHT)
        assert info is None
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", SOLVERS)
def test_vectors_may_be_containers(name: str) -> None:
    a = matrix(name)

    def multiply(x: Any) -> Any:
        whole = a @ snp.concatenate([x["head"], x["tail"]])
        return {"head": whole[:2], "tail": whole[2:]}

    b = {"head": RIGHT[:2], "tail": RIGHT[2:]}
    found, _ = sd.jit(lambda b: getattr(linalg, name)(multiply, b))(b)
    expected = np.linalg.solve(a, RIGHT)
    np.testing.assert_allclose(found["head"], expected[:2], rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(found["tail"], expected[2:], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", SOLVERS)
def test_complex_equations(name: str) -> None:
    b = (RIGHT + 1j * RIGHT[::-1]).astype(np.complex64)
    found, _ = sd.jit(getattr(linalg, name))(HERMITIAN, b)
    np.testing.assert_allclose(found, np.linalg.solve(HERMITIAN, b), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("name", SOLVERS)
def test_gradients_are_implicit_derivatives(name: str) -> None:
    a, weights = matrix(name), np.arange(1, SIZE + 1, dtype="f")

    def loss(a: Any, b: Any) -> Any:
        return (getattr(linalg, name)(lambda x: a @ x, b, tol=1e-7)[0] * weights).sum()

    by_a, by_b = sd.jit(sd.grad(loss, (0, 1)))(a, RIGHT)
    back = np.linalg.solve(a.T, weights)
    np.testing.assert_allclose(by_b, back, rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(
        by_a, -np.outer(back, np.linalg.solve(a, RIGHT)), rtol=5e-3, atol=2e-3
    )


def test_maxiter_bounds_the_iterations() -> None:
    start = np.ones(SIZE, "f")
    for name in SOLVERS:
        found, _ = getattr(linalg, name)(matrix(name), RIGHT, start, maxiter=0)
        np.testing.assert_array_equal(found, start)
    once, _ = linalg.cg(POSITIVE, RIGHT, maxiter=1)
    step = RIGHT @ RIGHT / (RIGHT @ POSITIVE @ RIGHT)
    np.testing.assert_allclose(once, step * RIGHT, rtol=1e-5)


def test_krylov_subspaces_that_terminate_early() -> None:
    b = np.zeros(SIZE, "f")
    b[1] = 3
    diagonal = np.diag(np.arange(1, SIZE + 1)).astype("f")
    for solve_method in ("batched", "incremental"):
        found, _ = linalg.gmres(diagonal, b, solve_method=solve_method)
        np.testing.assert_allclose(found, b / 2, rtol=1e-5)
    for name in SOLVERS:
        np.testing.assert_array_equal(
            getattr(linalg, name)(diagonal, np.zeros(SIZE, "f"))[0], np.zeros(SIZE)
        )


@pytest.mark.parametrize("name", SOLVERS)
def test_restarts_and_initial_guesses_agree_with_jax(name: str) -> None:
    theirs: Any = pytest.importorskip("jax.scipy.sparse.linalg")

    options = {"restart": 3} if name == "gmres" else {}
    for steps in (1, 2):
        found = sd.jit(
            lambda a, b, n=steps: getattr(linalg, name)(a, b, maxiter=n, tol=0.0, **options)[0]
        )(matrix(name), RIGHT)
        expected = getattr(theirs, name)(matrix(name), RIGHT, maxiter=steps, tol=0.0, **options)[0]
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4)


def test_mismatched_arguments_are_errors() -> None:
    refused: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: linalg.cg(POSITIVE, RIGHT, RIGHT[:2]),
            "x0 of cg is not like b: its shapes are [(2,)], those of b [(6,)]; they must be "
            "containers of arrays of the same shapes",
        ),
        (
            lambda: linalg.bicgstab(GENERAL[:2], RIGHT),
            "A of bicgstab is a square matrix or a function, got an array of shape (2, 6)",
        ),
        (
            lambda: linalg.gmres(GENERAL, RIGHT, solve_method="fast"),
            "solve_method of gmres is 'batched' or 'incremental', got 'fast'",
        ),
    ]
    for call, told in refused:
        with pytest.raises(ArgumentError, match=re.escape(told)):
            call()


SKEW = np.array([[0, 1], [-1, 0]], np.float32)


@pytest.mark.parametrize("solve_method", ["batched", "incremental"])
@pytest.mark.parametrize("maxiter", [1, None])
def test_gmres_of_an_operator_that_maps_the_residual_to_0_is_nan(
    solve_method: str, maxiter: int | None
) -> None:
    """JAX has the same result for "batched"."""
    options: Any = {"solve_method": solve_method, "maxiter": maxiter}
    for kind in (np.float32, np.complex64):
        found, info = linalg.gmres(np.zeros((3, 3), kind), np.arange(1, 4, dtype=kind), **options)
        assert np.isnan(found).all()
        assert info == -1


def test_gmres_of_the_right_side_0_is_0() -> None:
    found, info = linalg.gmres(np.zeros((3, 3), "f"), np.zeros(3, "f"))
    assert (found.tolist(), int(info)) == ([0, 0, 0], 0)


def test_gmres_without_an_iteration_is_the_initial_guess() -> None:
    found, info = linalg.gmres(np.zeros((3, 3), "f"), np.ones(3, "f"), maxiter=0)
    assert (found.tolist(), int(info)) == ([0, 0, 0], 0)


@pytest.mark.parametrize("operator", [np.zeros((2, 2), np.float32), SKEW])
def test_a_breakdown_of_bicgstab_is_not_finite(operator: Any) -> None:
    """The first direction is orthogonal to its image."""
    theirs: Any = pytest.importorskip("jax.scipy.sparse.linalg")
    b = np.array([1, 2], np.float32)
    assert not np.isfinite(linalg.bicgstab(operator, b)[0]).any()
    assert not np.isfinite(theirs.bicgstab(operator, b)[0]).any()
    np.testing.assert_allclose(SKEW @ linalg.gmres(SKEW, b)[0], b, rtol=1e-5)
