"""`custom_root` and `custom_linear_solve`: implicit derivatives agree with JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.errors import DifferentiateError
from shardir.frontend.errors import ArgumentError

pytestmark = pytest.mark.sample(4)

RNG = np.random.default_rng(0)
A = (RNG.normal(size=(3, 3)) + 4 * np.eye(3)).astype("f")
B = np.arange(3, dtype="f")


def dense(np_: Any, lax_: Any) -> Callable[..., Any]:
    """Solve with the matrix itself, with respect to which the equation is differentiated."""

    def f(a: Any, b: Any) -> Any:
        x, steps = lax_.custom_linear_solve(
            lambda v: a @ v,
            b,
            lambda matvec, b: (np_.linalg.solve(a, b), np_.sum(b) * 0 + 7),
            lambda vecmat, b: (np_.linalg.solve(a.T, b), 1),
            has_aux=True,
        )
        return np_.sum(np_.sin(x)) + steps

    return f


def repeated(np_: Any, lax_: Any) -> Callable[..., Any]:
    """Solve by a loop that has no gradient of its own."""

    def f(a: Any, b: Any) -> Any:
        s = a + a.T + 8 * np_.eye(3)

        def solve(matvec: Any, b: Any) -> Any:
            def step(state: Any) -> Any:
                i, x = state
                return i + 1, np_.asarray(x + 0.05 * (b - matvec(x)))

            return lax_.while_loop(lambda state: state[0] < 120, step, (0, b * 0))[1]

        x = lax_.custom_linear_solve(lambda v: s @ v, b, solve, symmetric=True)
        return np_.sum(np_.sin(x))

    return f


def root(np_: Any, lax_: Any) -> Callable[..., Any]:
    def f(a: Any, b: Any) -> Any:
        c = a[0, 0] + b[1]

        def solve(fun: Any, guess: Any) -> Any:
            def step(state: Any) -> Any:
                i, x = state
                return i + 1, x - 0.1 * fun(x)

            return lax_.while_loop(lambda state: state[0] < 120, step, (0, guess))[1]

        start = np_.asarray(1.0, np.float32)
        return lax_.custom_root(
            lambda x: x**3 - c * np_.cos(x), start, solve, lambda g, y: y / g(np_.ones_like(y))
        )

    return f


ASKED: dict[str, Callable[[Any, Any], Any]] = {
    "value": lambda lib, f: f,
    "grad": lambda lib, f: lib.grad(f, (0, 1)),
    "jit": lambda lib, f: lib.jit(lib.grad(f, (0, 1))),
    "jvp": lambda lib, f: lambda a, b: lib.jvp(f, (a, b), (a, b)),
    "hessian": lambda lib, f: lib.hessian(f, 1),
    "twice": lambda lib, f: lib.jacrev(lib.grad(f, 1), 0),
    "vmap": lambda lib, f: (
        lambda a, b: lib.vmap(lib.grad(f, (0, 1)), (None, 0))(a, np.stack([b, b + 1]))
    ),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("make", [dense, repeated, root])
def test_derivatives_agree_with_jax(make: Callable[..., Any], asked: str) -> None:
    found = ASKED[asked](sd, make(snp, lax))(A, B)
    expected = ASKED[asked](jax, make(jnp, jax.lax))(A, B)
    pairs = zip(sd.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=1e-5)


def test_containers() -> None:
    def f(scale: Any) -> Any:
        def matvec(v: Any) -> Any:
            return {"x": v["x"] * scale, "y": v["y"] * 2}

        def solve(matvec: Any, b: Any) -> Any:
            return {"x": b["x"] / scale, "y": b["y"] / 2}

        b = {"x": snp.ones(2), "y": snp.ones(3)}
        made = lax.custom_linear_solve(matvec, b, solve, solve)
        return made["x"].sum() + made["y"].sum()

    value, slope = sd.value_and_grad(f)(4.0)
    assert (float(value), float(slope)) == (2.0, -0.125)


def test_invalid_arguments_are_errors() -> None:
    def f(b: Any) -> Any:
        return lax.custom_linear_solve(lambda v: 2 * v, b, lambda matvec, b: b / 2).sum()

    with pytest.raises(DifferentiateError) as caught:
        sd.grad(f)(B)
    assert str(caught.value).startswith(
        "a gradient through custom_linear_solve needs a solver of the transposed equation; pass "
        "transpose_solve, or symmetric=True if that holds"
    )
    with pytest.raises(ArgumentError) as wrong:
        lax.custom_linear_solve(lambda v: v, B, 3)  # type: ignore[arg-type]
    assert str(wrong.value).startswith(
        "solve of custom_linear_solve is 3, which is not a function\n"
    )
    one: Any = 1
    with pytest.raises(ArgumentError) as wrong:
        lax.custom_root(one, 2.0, lambda f, x: x, lambda g, y: y)
    assert str(wrong.value).startswith("f of custom_root is 1, which is not a function\n")
