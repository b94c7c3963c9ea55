"""Functions of `jit` that are called while other functions are traced."""

from functools import partial
from typing import Any

import numpy as np

import shardir.numpy as snp
from shardir import grad, jit, lax, make_ir, vmap
from shardir.frontend.transforms.custom_jvp import custom_jvp

X = np.arange(3, dtype=np.float32)


def test_calls_with_the_same_types_share_a_trace() -> None:
    traced = []

    @jit
    def double(x: Any, power: int = 1) -> Any:
        traced.append(x.shape)
        total = lax.fori_loop(0, 2, lambda i, y: y + x, snp.zeros_like(x))
        return {"total": total, "number": 1.0, "same": x}

    @jit
    def repeat(x: Any) -> Any:
        for _ in range(3):
            x = double(x)["total"]
        return x

    np.testing.assert_array_equal(repeat(X), 8 * X)
    assert traced == [(3,)]
    np.testing.assert_array_equal(double(X)["total"], 2 * X)  # Another program.
    np.testing.assert_array_equal(vmap(double)(snp.stack([X, X]))["same"], [X, X])
    assert traced == [(3,)]
    assert str(make_ir(repeat)(X)).count("scan(") == 3
    double(X[:2])
    double.clear_cache()
    np.testing.assert_array_equal(grad(lambda x: double(x)["total"].sum())(X), [2, 2, 2])
    assert traced == [(3,), (2,), (3,)]


def test_a_second_derivative_at_another_point_uses_the_trace() -> None:
    traced = []

    @jit
    def square(x: Any) -> Any:
        traced.append(x)
        return x * x

    assert [float(grad(square)(x)) for x in (1.0, 2.0)] == [2.0, 4.0]
    assert float(grad(grad(square))(3.0)) == 2.0
    assert len(traced) == 1


def test_functions_that_capture_values_are_traced_at_each_call() -> None:
    large = snp.arange(1000, dtype=snp.float32)

    @jit
    def outer(x: Any) -> Any:
        @jit
        def add(y: Any) -> Any:
            return y + x

        @jit
        def return_captured(y: Any) -> Any:
            return x

        # `add(x)` captures the value that it takes.
        return add(x), add(3 * x), return_captured(x), return_captured(2 * x)

    assert [float(x) for x in outer(1.0)] == [2.0, 4.0, 1.0, 1.0]

    @jit
    def add_large(x: Any) -> Any:
        return x + large

    for scale in (1, 2):
        program = jit(lambda x, scale=scale: add_large(x) * scale + add_large(x))
        np.testing.assert_array_equal(program(1.0), (scale + 1) * (1 + np.asarray(large)))

    @jit
    def subtract(x: Any, y: Any) -> Any:
        return x - y

    three = jit(lambda x, y: (subtract(x, x), subtract(x, y), subtract(y, x)))(1.0, 3.0)
    assert [float(x) for x in three] == [0.0, -2.0, 2.0]


def test_a_function_that_returns_an_array_from_outside_is_traced_at_each_call() -> None:
    outside = [snp.ones(3)]
    inner = jit(lambda x: (x + 1, outside[0]))
    for value in (1, 2):
        outside[0] = value * snp.ones(3)
        outer = jit(lambda x, value=value: inner(value * x))
        np.testing.assert_array_equal(outer(1.0)[1], [value] * 3)


def test_functions_with_custom_derivatives_keep_them() -> None:
    @custom_jvp
    def identity(x: Any) -> Any:
        return x

    @identity.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return primals[0], 5 * tangents[0]

    inner = jit(lambda x: identity(x) * 2)
    outer = jit(lambda x: inner(x) + inner(inner(x)))
    assert float(outer(1.0)) == 6.0
    assert float(grad(outer)(1.0)) == 110.0


def test_functions_with_traced_nondifferentiable_arguments_are_traced_at_each_call() -> None:
    @partial(custom_jvp, nondiff_argnums=(1,))
    def scale(x: Any, factor: Any) -> Any:
        return x * factor

    @scale.defjvp
    def rule(factor: Any, primals: Any, tangents: Any) -> Any:
        return scale(primals[0], factor), 10 * factor * tangents[0]

    inner = jit(lambda x, factor: scale(x, 2 * factor))
    outer = grad(lambda x, y: inner(x, 2.0) + inner(y, 5.0), (0, 1))
    for function in (outer, outer, jit(outer), jit(outer)):
        assert [float(x) for x in function(2.0, 3.0)] == [40.0, 100.0]


def test_settings_and_static_arguments_have_their_own_traces() -> None:
    inner = jit(lambda x, n: x**n, static_argnums=1)
    outer = jit(lambda x: (inner(x, 2), inner(x, 3), inner(x, 2)))
    assert [float(x) for x in outer(2.0)] == [4.0, 8.0, 4.0]
    in_shapes = jit(lambda x: inner(x, [2][0]) + inner(x.astype(snp.int32), 2))
    assert float(in_shapes(3.0)) == 18.0
