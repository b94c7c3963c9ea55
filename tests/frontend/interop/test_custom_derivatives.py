"""JAX functions with custom derivatives keep their rules in derivatives by shardir and by JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.ode import odeint

import shardir as sd
from shardir.interop.jax import from_jax

pytestmark = pytest.mark.sample(2)

X = np.random.default_rng(0).uniform(0.5, 1.5, (3, 4)).astype("float32")


@jax.custom_vjp
def tripled(x: Any, y: Any) -> Any:
    """x sin y, whose rule returns three times its gradient."""
    return x * jnp.sin(y)


tripled.defvjp(
    lambda x, y: (tripled(x, y), (x, y)),
    lambda saved, g: (3 * g * jnp.sin(saved[1]), 3 * g * saved[0] * jnp.cos(saved[1])),
)


@jax.custom_jvp
def powered(x: Any, n: Any) -> Any:
    """x**n, whose rule returns the derivative 5 n."""
    return x**n


@powered.defjvp
def _powered_jvp(primals: Any, tangents: Any) -> Any:
    x, n = primals
    return powered(x, n), 5 * n * tangents[0]


def symbolic() -> Any:
    """Return a function whose rule inspects which tangents are symbolic zeros."""

    @jax.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * y

    def rule(primals: Any, tangents: Any) -> Any:
        x, y = primals
        zero = jax.custom_derivatives.SymbolicZero
        slope = sum(
            (t * other for t, other in zip(tangents, (y, x), strict=True) if type(t) is not zero),
            start=jnp.zeros_like(x),
        )
        return f(x, y), 2 * slope

    f.defjvp(rule, symbolic_zeros=True)
    return f


PROGRAMS = {
    "alone": lambda x: jnp.sum(tripled(x, x)),
    "with another": lambda x: jnp.sum(tripled(x, 2 * x) * powered(x, jnp.int32(3))),
    "in a loop": lambda x: lax.scan(lambda c, v: (tripled(c, v), None), x[0], x)[0].sum(),
    "in a branch": lambda x: lax.cond(x[0, 0] > 1, lambda v: powered(v, 2).sum(), jnp.sum, x),
    "inside of itself": lambda x: jnp.sum(tripled(tripled(x, x), tripled(x, x))),
    "of a constant": lambda x: jnp.sum(tripled(x, jnp.full_like(x, 1.5))),
    "mapped": lambda x: jnp.sum(jax.vmap(tripled)(x, x)),
    "with symbolic zeros": lambda x: jnp.sum(symbolic()(x, x + 1)),
    "of a linear solve": lambda x: jnp.sum(
        lax.custom_linear_solve(
            lambda v: 3 * v + v.sum(), x[0], lambda matvec, b: (b - b.sum() / 7) / 3, symmetric=True
        )
    ),
    "of activations": lambda x: jnp.sum(jax.nn.relu(x - 1) + jax.nn.gelu(x) + jax.nn.elu(x - 1)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_follow_the_rule(name: str) -> None:
    function = PROGRAMS[name]
    expected = jax.grad(function)(X)
    np.testing.assert_allclose(sd.grad(from_jax(function))(X), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        sd.jit(sd.grad(from_jax(function)))(X), expected, rtol=1e-5, atol=1e-6
    )


def test_the_gradients_of_examples() -> None:
    def f(x: Any) -> Any:
        return jnp.sum(tripled(x, x))

    np.testing.assert_allclose(
        sd.vmap(sd.grad(from_jax(f)))(X), jax.vmap(jax.grad(f))(X), rtol=1e-5
    )


def test_tangents_follow_the_rule() -> None:
    def f(x: Any) -> Any:
        return powered(x, jnp.int32(3))

    found = sd.jvp(from_jax(f), (X,), (X,))[1]
    np.testing.assert_allclose(found, jax.jvp(f, (X,), (X,))[1], rtol=1e-5)


def test_second_order_gradients_use_the_rule_twice() -> None:
    def f(x: Any) -> Any:
        return jnp.sum(tripled(x, x))

    def twice(g: Any) -> Any:
        return lambda x: jnp.sum(g(f)(x) ** 2)

    inner = from_jax(jax.grad(f))
    found = sd.grad(lambda x: (inner(x) ** 2).sum())(X)
    np.testing.assert_allclose(found, jax.grad(twice(jax.grad))(X), rtol=1e-4)


SCALES = np.linspace(0.5, 2, 4).astype("float32")


def test_derivatives_of_captured_arrays_are_errors() -> None:
    table = jnp.asarray(SCALES)
    referring = jax.custom_vjp(lambda x: x * table)
    referring.defvjp(lambda x: (x * table, None), lambda _, g: (2 * g * table,))
    found = sd.grad(from_jax(lambda x: jnp.sum(referring(x))))(X)
    np.testing.assert_allclose(found, np.broadcast_to(2 * SCALES, X.shape), rtol=1e-6)


def test_solvers_have_gradients_of_captured_constants() -> None:
    def loss(rate: Any, y: Any) -> Any:
        return jnp.sum(odeint(lambda y, t: jnp.sin(rate * y), y, jnp.array([0.0, 1.0])))

    expected = jax.grad(loss, (0, 1))(np.float32(0.5), X[0])
    for a, b in zip(sd.grad(from_jax(loss), (0, 1))(np.float32(0.5), X[0]), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def inner(w: Any, x: Any) -> Any:
    """Return a function with a rule that captures an argument of the outer function."""

    @jax.custom_vjp
    def within(x: Any) -> Any:
        return w * x

    within.defvjp(lambda x: (w * x, w), lambda saved, g: (saved * g,))
    return jnp.sum(within(x))


def test_derivatives_of_values_captured_by_rules_are_errors() -> None:
    w = np.float32(2)
    with pytest.raises(sd.ShardirError) as caught:
        sd.grad(from_jax(inner))(w, X)
    assert str(caught.value).startswith(
        "within has a custom derivative and closes over %w: f32[], whose derivative is needed too; "
        "pass it as an argument"
    )
    with pytest.raises(sd.ShardirError) as caught:
        sd.grad(from_jax(inner), 1)(w, X)
    assert str(caught.value).startswith(
        "the derivative of within uses a value of an enclosing function whose JAX trace "
        "has ended; pass the value as an argument, or take the gradient by jax.grad inside of "
        "from_jax"
    )
    np.testing.assert_allclose(from_jax(jax.grad(inner, 1))(w, X), np.full_like(X, 2))


def test_a_rule_that_communicates_is_refused() -> None:
    """JAX traces the rule alone, without the types that state along which axes values vary."""

    @jax.custom_vjp
    def sums(x: Any) -> Any:
        return lax.psum(x.sum(), "i")

    sums.defvjp(lambda x: (sums(x), None), lambda _, g: (lax.psum(g, "i") + jnp.zeros(1),))
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    cut = jax.shard_map(sums, mesh=mesh, in_specs=spec("i"), out_specs=spec())
    with pytest.raises(sd.ShardirError) as caught:
        sd.grad(from_jax(cut))(np.ones(1, "float32"))
    assert str(caught.value).splitlines()[0] == (
        "the derivative of sums communicates between the devices of a shard_map of JAX; take the "
        "gradient by jax.grad inside of from_jax"
    )
