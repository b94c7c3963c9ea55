"""Derivatives by shardir of JAX functions agree with JAX for arguments of all kinds.

Arguments may be integers, bools and random keys, which have no derivative, and a derivative with
respect to some of the arguments may use a custom rule.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardir as sd
from shardir.interop.jax import from_jax

pytestmark = pytest.mark.sample(3)

X = np.array([0.5, -1.5, 2.0], np.float32)
FLOAT0 = jax.dtypes.float0


def with_integer(x: Any, n: Any) -> Any:
    return jnp.sin(x) * n + x[n % 3]


def with_bool(x: Any, n: Any) -> Any:
    return jnp.where(n > 1, x**3, jnp.cos(x))


def with_integer_results(x: Any, n: Any) -> Any:
    """Compute an intermediate integer from a differentiated value."""
    order = jnp.argsort(x)
    return x[order] * (order + n)


@jax.custom_jvp
def scaled(x: Any, n: Any) -> Any:
    return x * n


@scaled.defjvp
def _scaled(primals: Any, tangents: Any) -> Any:
    (x, n), (dx, dn) = primals, tangents
    assert dn.dtype == FLOAT0
    return scaled(x, n), 3 * dx * n


def with_custom_jvp(x: Any, n: Any) -> Any:
    return scaled(scaled(x, n), n + 1)


@jax.custom_vjp
def weighted(x: Any, n: Any) -> Any:
    return x * n, n + 1


weighted.defvjp(
    lambda x, n: (weighted(x, n), (x, n)),
    lambda kept, g: (5 * g[0] * kept[1], np.zeros((), FLOAT0)),
)


def with_custom_vjp(x: Any, n: Any) -> Any:
    y, m = weighted(x, n)
    return y * m + x


def _symbolic(x: Any, y: Any) -> Any:
    return x * y


reached = jax.custom_vjp(_symbolic)


def _ahead(x: Any, y: Any) -> Any:
    assert x.perturbed
    assert not y.perturbed
    return x.value * y.value, y.value


reached.defvjp(_ahead, lambda y, g: (7 * g * y, None), symbolic_zeros=True)


def with_unreached(x: Any, n: Any) -> Any:
    """Use a rule that can only be differentiated with respect to its first argument."""
    return reached(x, jnp.arange(3.0) + n)


def with_loop(x: Any, n: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * (i + n), x)


def with_while(x: Any, n: Any) -> Any:
    return eqxi.while_loop(
        lambda c: c[1] < n + 2, lambda c: (c[0] * x + 1, c[1] + 1), (x, 0),
        kind="checkpointed", max_steps=8,
    )[0]  # fmt: skip


def with_mapped_while(x: Any, n: Any) -> Any:
    def one(y: Any) -> Any:
        return eqxi.while_loop(
            lambda c: c[0] < 5, lambda c: (jnp.abs(c[0] * y) + n, c[1] + 1), (y, 0),
            kind="checkpointed", max_steps=8,
        )[0]  # fmt: skip

    return jax.vmap(one)(x)


@eqx.filter_custom_vjp
def filtered(both: Any, scale: Any) -> Any:
    return both[0] * both[1] * scale


@filtered.def_fwd
def _filtered_ahead(perturbed: Any, both: Any, scale: Any) -> Any:
    assert perturbed == (True, False)
    return filtered(both, scale), None


@filtered.def_bwd
def _filtered_back(residuals: Any, g: Any, perturbed: Any, both: Any, scale: Any) -> Any:
    return g * both[1] * scale * 11, None


def with_filtered(x: Any, n: Any) -> Any:
    return filtered((x, n), jnp.float32(2))


def with_key(x: Any, n: Any) -> Any:
    key = jax.random.key(n)
    return x * jax.random.normal(jax.random.fold_in(key, n), x.shape)


BODIES = (
    with_integer, with_bool, with_integer_results, with_custom_jvp, with_custom_vjp,
    with_unreached, with_loop, with_while, with_mapped_while, with_filtered, with_key,
)  # fmt: skip
FORWARD = [body for body in BODIES if body not in (
    with_custom_vjp, with_unreached, with_while, with_mapped_while, with_filtered
)]  # fmt: skip
N = np.int32(2)


def total(f: Callable[..., Any], *args: Any) -> Any:
    return (f(*args) ** 2).sum()


def vjp(lib: Any, f: Callable[..., Any]) -> Any:
    out, back = lib.vjp(f, X, N)
    return out, back(X)[0]


def vjp_of_one(lib: Any, f: Callable[..., Any]) -> Any:
    out, back = lib.vjp(lambda x: f(x, N), X)
    return out, back(X)


def jvp(lib: Any, f: Callable[..., Any]) -> Any:
    return lib.jvp(f, (X, N), (X, np.zeros((), FLOAT0)))


def linearize(lib: Any, f: Callable[..., Any]) -> Any:
    out, push = lib.linearize(lambda x: f(x, N), X)
    return out, push(X)


REVERSE: dict[str, Callable[[Any, Callable[..., Any]], Any]] = {
    "grad": lambda lib, f: lib.grad(partial(total, f))(X, N),
    "value_and_grad": lambda lib, f: lib.value_and_grad(partial(total, f))(X, N),
    "allow_int": lambda lib, f: lib.grad(partial(total, f), argnums=(0, 1), allow_int=True)(X, N)[
        0
    ],
    "vjp": vjp,
    "vjp of one": vjp_of_one,
    "jacrev": lambda lib, f: lib.jacrev(f)(X, N),
    "mapped": lambda lib, f: lib.vmap(lib.grad(partial(total, f)), in_axes=(0, None))(
        np.stack([X, X + 1]), N
    ),
    "compiled": lambda lib, f: lib.jit(lib.grad(partial(total, f)))(X, N),
}
FORWARDS: dict[str, Callable[[Any, Callable[..., Any]], Any]] = {
    "jvp": jvp,
    "linearize": linearize,
    "jacfwd": lambda lib, f: lib.jacfwd(f)(X, N),
    "hessian": lambda lib, f: lib.hessian(partial(total, f))(X, N),
}


@pytest.mark.parametrize(
    ("body", "mode"),
    [
        (body, mode)
        for i, body in enumerate(BODIES)
        for mode in ("value_and_grad", list(REVERSE)[i % len(REVERSE)])
    ]
    + [(body, list(FORWARDS)[i % len(FORWARDS)]) for i, body in enumerate(FORWARD)],
)
def test_derivatives_agree_with_jax(body: Callable[..., Any], mode: str) -> None:
    take = {**REVERSE, **FORWARDS}[mode]
    expected, found = take(jax, body), take(sd, from_jax(body))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-5)
