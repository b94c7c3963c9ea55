"""`grad` and `value_and_grad`, in `jit` and outside of it."""

from typing import Any

import numpy as np
import pytest

import shardir.numpy as snp
from shardir.errors import DifferentiateError
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.config import enable_x64
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.pytree import tree
from shardir.frontend.shardings.mesh import make_mesh
from shardir.frontend.shardings.partition_spec import P
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.transforms.grad import grad, value_and_grad
from tests.error_assertions import first_line

RNG = np.random.default_rng(0)
MESH = make_mesh((4, 2), ("data", "model"))


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


PARAMS = [{"w": floats(6, 8), "b": floats(8)}, {"w": floats(8, 4), "b": floats(4)}]
BATCH = floats(16, 6), floats(16, 4)


def loss(params: Any, batch: Any) -> Any:
    x, targets = batch
    for layer in params:
        x = snp.tanh(x @ layer["w"] + layer["b"])
    return snp.mean((x - targets) ** 2)


def numeric(fun: Any, params: Any, step: float = 1e-4) -> Any:
    """Return the gradient by central differences, one element at a time, in double precision."""
    leaves, structure = tree.flatten(params)
    with enable_x64():
        wide = [np.asarray(leaf, np.float64) for leaf in leaves]
        run = jit(fun)
        slopes = []
        for i, leaf in enumerate(wide):
            slope = np.zeros(leaf.shape)
            for place in np.ndindex(leaf.shape):
                values = []
                for sign in (1, -1):
                    moved = leaf.copy()
                    moved[place] += sign * step
                    values.append(
                        float(run(structure.unflatten([*wide[:i], moved, *wide[i + 1 :]])))
                    )
                slope[place] = (values[0] - values[1]) / (2 * step)
            slopes.append(slope)
    return structure.unflatten(slopes)


def agree(made: Any, expected: Any, tolerance: float = 2e-5) -> None:
    assert tree.structure(made) == tree.structure(expected)
    for ours, theirs in zip(tree.leaves(made), tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-3, atol=tolerance)


def test_gradients_agree_with_differences() -> None:
    expected = numeric(lambda p: loss(p, BATCH), PARAMS)
    agree(grad(loss)(PARAMS, BATCH), expected)
    agree(jit(grad(loss))(PARAMS, BATCH), expected)


def test_value_and_grad_returns_the_value() -> None:
    value, gradient = value_and_grad(loss)(PARAMS, BATCH)
    np.testing.assert_allclose(value, jit(loss)(PARAMS, BATCH), rtol=1e-6)
    agree(gradient, grad(loss)(PARAMS, BATCH))


def test_gradients_of_several_arguments() -> None:
    def f(x: Any, y: Any, z: Any) -> Any:
        return x * x * y["a"] + z

    first, second = grad(f, argnums=(0, 1))(3.0, {"a": 2.0}, 1.0)
    assert (float(first), float(second["a"])) == (12.0, 9.0)
    assert float(grad(f, argnums=-1)(3.0, {"a": 2.0}, 1.0)) == 1.0
    assert float(grad(f)(3.0, y={"a": 2.0}, z=1.0)) == 12.0


def test_has_aux() -> None:
    def f(x: Any) -> Any:
        y = x * x
        return y, {"square": y, "count": 3}

    (value, aux), gradient = value_and_grad(f, has_aux=True)(2.0)
    assert (float(value), float(aux["square"]), int(aux["count"]), float(gradient)) == (4, 4, 3, 4)
    gradient, aux = jit(grad(f, has_aux=True))(2.0)
    assert (float(gradient), float(aux["square"])) == (4.0, 4.0)


def test_second_order_gradients() -> None:
    def f(x: Any) -> Any:
        return snp.sin(x) * x**2

    third = grad(grad(grad(f)))
    x = 1.3
    expected = 6 * np.cos(x) - 6 * x * np.sin(x) - x**2 * np.cos(x)
    np.testing.assert_allclose(third(x), expected, rtol=1e-5)
    np.testing.assert_allclose(jit(third)(x), expected, rtol=1e-5)


def test_a_gradient_inside_a_function() -> None:
    @jit
    def step(x: Any, rate: Any) -> Any:
        slope = grad(lambda y: snp.sum(y**2 * x))(x)
        return x - rate * slope

    x = floats(4)
    np.testing.assert_allclose(step(x, 0.1), x - 0.1 * 2 * x * x, rtol=1e-5)


def test_arguments_outside_argnums_are_passed_unchanged() -> None:
    def f(x: Any, times: int, label: str) -> Any:
        assert label == "power"
        for _ in range(times):
            x = x * x
        return x

    assert float(grad(f)(2.0, 2, "power")) == 32.0


def test_captured_arrays_may_change_between_calls() -> None:
    scale = 2.0
    table = np.array([1.0, 2.0], np.float32) if scale else None

    def f(x: Any) -> Any:
        return snp.sum(x * table) * scale

    np.testing.assert_array_equal(grad(f)(np.ones(2, np.float32)), [2, 4])
    scale, table = 3.0, np.array([5.0, 6.0], np.float32)
    np.testing.assert_array_equal(grad(f)(np.ones(2, np.float32)), [15, 18])


def test_gradients_have_the_sharding_of_the_arguments() -> None:
    batch = device_put(BATCH, NamedSharding(MESH, P("data")))
    params = device_put(PARAMS, NamedSharding(MESH, P(None)))
    for function in (grad(loss), jit(grad(loss))):
        made = function(params, batch)
        agree(made, grad(loss)(PARAMS, BATCH))
        assert made[0]["w"].sharding.is_fully_replicated
    text = jit(grad(loss)).lower(params, batch).compile().as_text()
    assert "all-reduce" in text
    assert "all-gather" not in text


def test_weak_types_are_kept() -> None:
    assert grad(lambda x: x * x)(3.0).weak_type
    assert not grad(lambda x: x * x)(from_numpy(np.float32(3.0))).weak_type


def test_integer_arguments_are_allowed_without_a_gradient() -> None:
    tree_of_both = {"x": np.ones(3, np.float32), "n": np.arange(3)}

    def f(p: Any) -> Any:
        return snp.sum(p["x"] * p["n"])

    gradient = grad(f, allow_int=True)(tree_of_both)
    assert gradient["n"].dtype == np.dtype([("float0", np.void, 0)])
    np.testing.assert_array_equal(gradient["x"], [0, 1, 2])


def test_arguments_without_a_gradient_are_errors() -> None:
    with pytest.raises(DifferentiateError) as caught:
        grad(lambda x: x["n"] * 2.0)({"n": 3})
    assert first_line(caught) == (
        "grad of lambda is taken with respect to x.n, which is i32; gradients need floating-point "
        "inputs: convert it (1.0 for 1, x.astype(float)), choose others with argnums, or set "
        "allow_int=True"
    )
    with pytest.raises(NotAnArrayError, match="with respect to x, which is 'a' of type str and no"):
        grad(lambda x: x)("a")
    with pytest.raises(ArgumentError, match="with respect to argument 1, and it was called with 1"):
        grad(lambda x: x, argnums=1)(1.0)


def test_results_without_a_gradient_are_errors() -> None:
    def f(x: Any) -> Any:
        return x * 2

    with pytest.raises(DifferentiateError) as caught:
        grad(f)(np.ones(3, np.float32))
    assert first_line(caught) == (
        "grad of f needs a scalar result, and it is f32[3]; reduce it, for example with .sum() or "
        ".mean()"
    )
    with pytest.raises(
        DifferentiateError, match=r"needs a real floating-point result, and it is i"
    ):
        grad(lambda x: x.astype(int))(1.0)
    with pytest.raises(DifferentiateError, match=r"needs a scalar result, and it is tuple; return"):
        grad(lambda x: (x, x))(1.0)
    with pytest.raises(ArgumentError, match=r"must return \(value, aux\); it returned"):
        grad(f, has_aux=True)(1.0)
    with pytest.raises(DifferentiateError, match="set holomorphic=True for complex functions"):
        grad(lambda x: x * x)(1j)


def test_errors_of_operations_without_a_gradient_show_their_line() -> None:
    from shardir.frontend.lax import api as lax

    def f(x: Any) -> Any:
        return lax.while_loop(lambda y: y < 10, lambda y: y * 2, x)

    with pytest.raises(DifferentiateError, match=r"(?s)while has no gradient.*test_grad.py"):
        grad(f)(1.0)


def test_gradients_of_values_that_are_no_functions_are_errors() -> None:
    with pytest.raises(ArgumentError, match="a function is required, got 5"):
        grad(5)  # type: ignore[arg-type]


def test_holomorphic_functions() -> None:
    z = np.complex64(1.5 + 0.5j)
    np.testing.assert_allclose(grad(lambda z: z**3, holomorphic=True)(z), 3 * z**2, rtol=1e-5)
    with pytest.raises(DifferentiateError, match="x of lambda is f32; a holomorphic gradient"):
        grad(lambda x: x, holomorphic=True)(1.0)
