"""Compositions of two transformations, on functions with and without derivative rules."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardir import checkpoint, custom_jvp, custom_vjp, enable_x64, grad, jit, jvp, lax, vmap
from shardir.frontend.numpy import api as snp

pytestmark = pytest.mark.sample(3)

Scalar = Callable[[Any], Any]
"""From one number to another."""


def plain(x: Any) -> Any:
    return snp.sin(x) * x + snp.exp(-x * x)


def slope(x: Any) -> Any:
    return snp.cos(x) * x + snp.sin(x) - 2 * x * snp.exp(-x * x)


def with_jvp() -> Scalar:
    made = custom_jvp(plain)
    made.defjvp(lambda primals, tangents: (made(*primals), slope(*primals) * tangents[0]))
    return made


def with_vjp() -> Scalar:
    made = custom_vjp(plain)
    made.defvjp(lambda x: (plain(x), x), lambda x, g: (slope(x) * g,))
    return made


FUNCTIONS: dict[str, Callable[[], Scalar]] = {
    "plain": lambda: plain,
    "checkpoint": lambda: checkpoint(plain),
    "custom_jvp": with_jvp,
    "custom_vjp": with_vjp,
    "checkpoint of custom_jvp": lambda: checkpoint(with_jvp()),
    "checkpoint of custom_vjp": lambda: checkpoint(with_vjp()),
}


def scanned(f: Scalar) -> Scalar:
    def body(carry: Any, y: Any) -> tuple[Any, Any]:
        return f(carry * y), carry

    def run(x: Any) -> Any:
        last, all_ = lax.scan(body, x, snp.array([0.5, 1.0, 0.8]))
        return last + snp.sum(all_)

    return run


AROUND: dict[str, Callable[[Scalar], Scalar]] = {
    "grad": grad,
    "jvp": lambda f: lambda x: jvp(f, (x,), (snp.ones_like(x),))[1],
    "vmap": lambda f: lambda x: snp.sum(vmap(f)(snp.stack([x, x + 0.5, x * 2]))),
    "jit": jit,
    "checkpoint": checkpoint,
    "scan": scanned,
    "cond": lambda f: lambda x: lax.cond(x > 0, f, lambda y: 2 * f(y), x),
}


def measure(f: Scalar, name: str) -> Scalar:
    """Return the transformation of a NumPy function, with derivatives by finite differences."""
    step = 1e-4

    def slope(x: Any) -> Any:
        return (8 * (f(x + step) - f(x - step)) - f(x + 2 * step) + f(x - 2 * step)) / (12 * step)

    def scan(x: Any) -> Any:
        total = 0.0
        for y in (0.5, 1.0, 0.8):
            total, x = total + x, f(x * y)
        return total + x

    ways: dict[str, Scalar] = {
        "grad": slope,
        "jvp": slope,
        "vmap": lambda x: f(x) + f(x + 0.5) + f(x * 2),
        "scan": scan,
        "cond": lambda x: f(x) if x > 0 else 2 * f(x),
    }
    return ways.get(name, f)


def by_numpy(x: Any) -> Any:
    return np.sin(x) * x + np.exp(-x * x)


@pytest.mark.parametrize("outer", AROUND)
@pytest.mark.parametrize("inner", AROUND)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_pair_of_transformations(name: str, inner: str, outer: str) -> None:
    """A function without a forward derivative still has none inside other transformations,
    unless a gradient was taken first.
    """
    function = AROUND[outer](AROUND[inner](FUNCTIONS[name]()))
    if "custom_vjp" in name and (inner == "jvp" or (outer == "jvp" and inner != "grad")):
        return
    expected = measure(measure(by_numpy, inner), outer)
    with enable_x64():
        for x in (0.3, -0.7):
            got = function(snp.asarray(x))
            np.testing.assert_allclose(np.asarray(got), expected(x), rtol=2e-5, atol=1e-6)
