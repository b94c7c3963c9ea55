"""`jacfwd`, `jacrev` and `hessian` against derivatives in closed form."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir.numpy as snp
from shardir.errors import DifferentiateError
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.transforms.grad import grad
from shardir.frontend.transforms.jacobians import hessian, jacfwd, jacrev
from shardir.frontend.transforms.vmap import vmap
from tests.error_assertions import first_line

X = np.array([0.5, 1.0, -2.0], np.float32)
A = np.arange(6, dtype=np.float32).reshape(2, 3)
WAYS = pytest.mark.parametrize("way", [jacfwd, jacrev])
Way = Callable[..., Callable[..., Any]]


def agree(made: Any, expected: Any) -> None:
    assert tree.structure(made) == tree.structure(expected)
    for ours, theirs in zip(tree.leaves(made), tree.leaves(expected), strict=True):
        assert np.shape(ours) == np.shape(theirs)
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-5, atol=1e-6)


@WAYS
def test_a_matrix(way: Way) -> None:
    agree(way(lambda x: A @ x)(X), A)
    agree(jit(way(snp.sin))(X), np.diag(np.cos(X)))
    agree(way(lambda x: x**2)(3.0), np.float32(6))
    agree(way(lambda x: snp.float32(1) * A)(X), np.zeros((2, 3, 3)))


@WAYS
def test_containers(way: Way) -> None:
    def f(p: Any, y: Any) -> Any:
        return {"a": p["m"] @ p["x"], "b": (snp.sum(p["x"]) * y,)}

    at, y = {"m": A, "x": X}, 2.0
    slopes = np.zeros((2, 2, 3), np.float32)
    slopes[0, 0] = slopes[1, 1] = X
    of_p: Any = {
        "a": {"m": slopes, "x": A},
        "b": ({"m": np.zeros((2, 3)), "x": np.full(3, 2)},),
    }
    agree(way(f)(at, y), of_p)
    agree(way(f, argnums=-1)(at, y), {"a": np.zeros(2), "b": (X.sum(),)})
    two = way(f, argnums=(1, 0))(at, y)
    agree(two["a"], (np.zeros(2), of_p["a"]))
    agree(two["b"], ((X.sum(), of_p["b"][0]),))


@WAYS
def test_aux(way: Way) -> None:
    agree(way(lambda x: (x * x, {"n": 3}), has_aux=True)(X), (np.diag(2 * X), {"n": 3}))


@WAYS
def test_holomorphic_functions(way: Way) -> None:
    z = np.array([1 + 2j, 0.5 - 1j], np.complex64)
    agree(way(lambda z: z**3, holomorphic=True)(z), np.diag(3 * z**2))


@WAYS
def test_vmap_of_jacobians(way: Way) -> None:
    rows = np.stack([X, 2 * X])
    agree(vmap(way(lambda x: x**2))(rows), np.stack([np.diag(2 * row) for row in rows]))


@WAYS
def test_empty_arrays_have_empty_jacobians(way: Way) -> None:
    assert way(lambda x: x * 2)(X[:0]).shape == (0, 0)


@WAYS
def test_argnums_order_the_results(way: Way) -> None:
    agree(way(snp.sort)(X), np.eye(3)[[2, 0, 1]])
    agree(way(lambda x: snp.max(x) * snp.prod(x))(X), np.array([-2.0, -2.0, 0.5]))


def cubic(x: Any) -> Any:
    return snp.sum(x**3) * x[0]


def test_second_derivatives() -> None:
    expected = np.diag(6 * X * X[0])
    expected[0] += 3 * X**2
    expected[:, 0] += 3 * X**2
    for made in (hessian(cubic), jit(hessian(cubic)), jacrev(jacfwd(cubic)), jacfwd(grad(cubic))):
        agree(made(X), expected)


def test_second_derivatives_of_containers() -> None:
    def f(p: Any) -> Any:
        return p["k"] * snp.sum(p["x"] ** 2), "aux".count("a")

    made, count = hessian(f, has_aux=True)({"k": 3.0, "x": X})
    assert int(count) == 1
    agree(made, {"k": {"k": 0.0, "x": 2 * X}, "x": {"k": 2 * X, "x": 6 * np.eye(3)}})


def test_functions_without_a_jacobian_are_errors() -> None:
    def f(x: Any) -> Any:
        return x

    told = []
    cases: list[tuple[Any, Any]] = [
        (jacfwd(f), 3),
        (jacfwd(f), 1j),
        (jacrev(lambda x: x + 1j), 1.0),
        (jacrev(f, holomorphic=True), 1.0),
        (jacfwd(lambda x: x > 0), 1.0),
    ]
    for made, at in cases:
        with pytest.raises(DifferentiateError) as caught:
            made(at)
        told.append(first_line(caught))
    assert told == [
        "jacfwd of f is taken with respect to x, which is i32; gradients need floating-point "
        "inputs: convert it (1.0 for 1, x.astype(float)), choose others with argnums",
        "jacfwd of f needs real arguments, and one is c64[]; set holomorphic=True for complex "
        "functions",
        "jacrev of lambda needs real results, and one is c64[]; set holomorphic=True for complex "
        "functions",
        "x of f is f32; a holomorphic gradient needs complex inputs",
        "jacfwd of lambda needs floating-point results, and one is bool[]; return others as aux "
        "with has_aux=True",
    ]
    with pytest.raises(ArgumentError, match="jacrev of f is taken with respect to argument 1, and"):
        jacrev(f, argnums=1)(1.0)
