"""Numerical derivatives by central differences, for comparison with computed derivatives."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir.interpret.interpreter import evaluate
from shardir.ir.module import Function
from shardir.ir.types import TensorType
from shardir.passes.autodiff.jvp import jvp
from shardir.passes.autodiff.vjp import vjp
from tests.dtype_groups import INEXACT

Array = npt.NDArray[Any]

STEPS = (1e-5, 1e-6, 1e-7)
"""A smaller one where the function bends much."""


def random_like(rng: np.random.Generator, type: TensorType) -> Array:
    """Return normally distributed numbers of a type; in both parts of complex numbers."""
    numbers = rng.normal(size=type.shape)
    if type.numpy.kind == "c":
        numbers = numbers + 1j * rng.normal(size=type.shape)
    return np.asarray(numbers, type.numpy)


def check_gradients(
    function: Function,
    args: Sequence[Array],
    wrt: Sequence[int] | None = None,
    *,
    order: int = 1,
    rel: float = 1e-5,
    seed: int = 0,
) -> None:
    """Check the gradients of a function of f64 and c128 against differences, up to `order`.

    The comparison is along random directions. The cotangent of z pairs with dz as Re(g * dz).
    """
    params = function.body.params
    if wrt is None:
        wrt = [i for i, param in enumerate(params) if param.type.dtype in INEXACT]
    back = vjp(function, wrt)
    rng = np.random.default_rng(seed)
    given = [random_like(rng, p.type) for p in back.body.params[len(params) :]]
    made = evaluate(back, [*args, *given])
    results, gradients = made[: -len(wrt)], made[-len(wrt) :]
    for got, plain in zip(results, evaluate(function, args), strict=True):
        np.testing.assert_array_equal(got, plain)

    def measure(step: float, at: int, direction: Array) -> float:
        moved = list(args)
        moved[at] = np.asarray(args[at] + step * direction)
        outs = [y for y in evaluate(function, moved) if y.dtype.kind in "fc"]
        return sum(float(np.sum(g * y).real) for g, y in zip(given, outs, strict=True))

    for at, gradient in zip(wrt, gradients, strict=True):
        direction = random_like(rng, params[at].type)
        expected = float(np.sum(gradient * direction).real)
        for step in STEPS:
            near, far = (
                measure(h, at, direction) - measure(-h, at, direction) for h in (step, 2 * step)
            )
            change = (8 * near - far) / (12 * step)
            if change == pytest.approx(expected, rel=rel, abs=rel):
                break
        else:
            pytest.fail(f"%{params[at].name}: computed {expected}, measured {change}")
    if order > 1:
        check_gradients(back, [*args, *given], order=order - 1, rel=10 * rel, seed=seed + 1)


def check_tangents(
    function: Function,
    args: Sequence[Array],
    wrt: Sequence[int] | None = None,
    *,
    rel: float = 1e-5,
    seed: int = 0,
) -> None:
    """Check the tangents of a function of f64 and c128 against differences along a direction."""
    params = function.body.params
    if wrt is None:
        wrt = [i for i, param in enumerate(params) if param.type.dtype in INEXACT]
    rng = np.random.default_rng(seed)
    directions = {i: random_like(rng, params[i].type) for i in wrt}
    made = evaluate(jvp(function, wrt), [*args, *directions.values()])
    plain = evaluate(function, args)
    for got, value in zip(made, plain, strict=False):
        np.testing.assert_array_equal(got, value)

    def outs(step: float) -> list[Array]:
        moved = [
            np.asarray(x + step * directions[i]) if i in directions else x
            for i, x in enumerate(args)
        ]
        return [y for y in evaluate(function, moved) if y.dtype.kind in "fc"]

    for n, tangent in enumerate(made[len(plain) :]):
        for step in STEPS:
            near, far = (outs(h)[n] - outs(-h)[n] for h in (step, 2 * step))
            change = (8 * near - far) / (12 * step)
            if np.allclose(tangent, change, rtol=rel, atol=rel):
                break
        else:
            pytest.fail(f"result {n}: computed {tangent}, measured {change}")
