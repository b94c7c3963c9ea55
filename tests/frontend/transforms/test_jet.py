"""`jet`: Taylor series along paths, compared with derivatives and with JAX."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import lax, numpy as snp
from shardir.errors import ShardirError
from shardir.experimental.jet import jet
from shardir.frontend.config import config
from tests.error_assertions import first_line, raw
from tests.optional_dependencies import require

RNG = np.random.default_rng(0)
W: Any = RNG.standard_normal((3, 3))
X: Any = RNG.standard_normal(3)
TERMS: Any = [RNG.standard_normal(3) for _ in range(4)]


def network(np_like: Any) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        return np_like.exp(np_like.tanh(W @ x) / (1 + x**2)) * np_like.sin(x).sum()

    return call


def loop(x: Any) -> Any:
    y, _ = lax.scan(lambda c, w: (snp.tanh(c * w), None), x, snp.asarray(W))
    return lax.cond(y.sum() > 0, lambda y: y**2, lambda y: snp.cos(y), y)


def test_terms_are_derivatives_of_the_composition() -> None:
    h = 0.5**3, 3 * 0.5**2, 6 * 0.5
    value, (first, second) = jet(snp.sin, (h[0],), ((h[1], h[2]),))
    np.testing.assert_allclose(value, np.sin(h[0]), 1e-6)
    np.testing.assert_allclose(first, np.cos(h[0]) * h[1], 1e-6)
    np.testing.assert_allclose(second, np.cos(h[0]) * h[2] - np.sin(h[0]) * h[1] ** 2, 1e-5)
    _, terms = jet(lambda x: {"a": x**3, "b": (x, 7)}, (2.0,), ((1.0, 0.0, 0.0),))
    assert [float(x) for x in terms["a"]] == [12, 12, 6]
    assert [float(x) for x in terms["b"][0]] == [1, 0, 0]
    assert [int(x) for x in terms["b"][1]] == [0, 0, 0]


@pytest.mark.parametrize("scaled", [True, False])
def test_terms_are_those_of_jax(scaled: bool) -> None:
    require("jax")
    import jax
    from jax.experimental.jet import jet as jax_jet

    with config(enable_x64=True), jax.enable_x64(True):
        ours = jet(network(snp), (X,), (TERMS,), scaled)
        theirs = jax_jet(network(jax.numpy), (X,), (TERMS,), scaled)
        np.testing.assert_allclose(ours[0], theirs[0], 1e-10)
        for found, expected in zip(ours[1], theirs[1], strict=True):
            np.testing.assert_allclose(found, expected, 1e-8, 1e-8)


def weak_types(result: Any) -> list[bool]:
    return [bool(sd.typeof(leaf).weak_type) for leaf in sd.tree.leaves(result)]


def test_weak_types_are_those_of_jax() -> None:
    calls: list[tuple[Any, tuple[Any, ...], list[Any], list[bool]]] = [
        (lambda np_: np_.sin, (1.0,), [[1.0, 0.0]], [True] * 3),
        (lambda np_: np_.sin, (np.float32(1),), [[1.0, 0.0]], [False] * 3),
        (lambda np_: np_.sin, (1.0,), [[np.float32(1), np.float32(0)]], [True, False, False]),
        (lambda np_: np_.sin, (1.0,), [[1.0, np.float32(0)]], [True, False, False]),
        (lambda np_: lambda x: x.astype("float32"), (1.0,), [[1.0, 0.0]], [False] * 3),
        (lambda np_: np_.multiply, (1.0, np.float32(2)), [[1.0], [1.0]], [False] * 2),
    ]
    for make, primals, series, expected in calls:
        assert weak_types(jet(make(snp), primals, series)) == expected
    require("jax")
    import jax
    from jax.experimental.jet import jet as jax_jet

    for make, primals, series, expected in calls:
        if len({type(term) for terms in series for term in terms}) == 1:
            primals = tuple(map(jax.numpy.asarray, primals))
            found = jax_jet(make(jax.numpy), primals, series)
            assert [leaf.weak_type for leaf in jax.tree.leaves(found)] == expected


def test_control_flow_and_transformations() -> None:
    with config(enable_x64=True):
        for f in (loop, network(snp)):
            value, (first, second) = jet(f, (X,), (TERMS[:2],))
            np.testing.assert_allclose(value, f(X))
            _, tangent = sd.jvp(f, (X,), (TERMS[0],))
            np.testing.assert_allclose(first, tangent, 1e-10)
            along = sd.jvp(lambda x, f=f: sd.jvp(f, (x,), (TERMS[0],))[1], (X,), (TERMS[0],))[1]
            change = sd.jvp(f, (X,), (TERMS[1],))[1]
            np.testing.assert_allclose(second, along + change, 1e-8, 1e-10)
        batch = np.stack([X, X + 1])
        mapped = sd.jit(sd.vmap(lambda x: jet(network(snp), (x,), (TERMS[:2],))))(batch)
        np.testing.assert_allclose(mapped[1][1][0], jet(network(snp), (X,), (TERMS[:2],))[1][1])
        gradient = sd.grad(lambda x: jet(lambda x: snp.sin(x).sum(), (x,), ((x * 0 + 1,),))[1][0])
        np.testing.assert_allclose(gradient(X), -np.sin(X), 1e-10)
    with sd.cpu_devices(8):
        sharding = sd.NamedSharding(sd.make_mesh((8,), ("i",)), sd.P("i"))
        x = sd.device_put(snp.arange(8.0), sharding)
        program = sd.jit(lambda x: jet(snp.sin, (x,), ((x, x),)))
        assert program.lower(x).compile().collectives() == []
        np.testing.assert_allclose(program(x)[1][0], np.cos(np.arange(8)) * np.arange(8), 1e-5)


def test_several_arguments_integers_and_complex_numbers() -> None:
    _, (first, second) = jet(lambda x, n: x**2 * n, (3.0, 2), ((1.0, 0.0), (5, 5)))
    assert (float(first), float(second)) == (12, 4)
    _, (first,) = jet(lambda x: x * x, (1 + 1j,), ((1j,),))
    np.testing.assert_allclose(first, 2 * (1 + 1j) * 1j)


FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: jet(snp.sin, raw(1.0), ((1.0,),)), "jet of sin takes a tuple as primals, got 1.0"),
    (lambda: jet(snp.sin, (1.0,), ()),
     "jet of sin takes as many series as arguments, and at least one; got 0 and 1"),
    (lambda: jet(snp.sin, (1.0,), (raw(1.0),)),
     "series[0] of jet of sin is a tuple of terms, got 1.0"),
    (lambda: jet(snp.add, (1.0, 1.0), ((1.0,), (1.0, 1.0))),
     "jet of add takes the same number of terms for each argument, from 1 to 10; got 1, 2"),
    (lambda: jet(snp.sin, (1.0,), ((),)),
     "jet of sin takes the same number of terms for each argument, from 1 to 10; got 0"),
    (lambda: jet(snp.sin, (raw({"a": 1.0}),), ((1.0,),)),
     "argument 0 of jet of sin is an array, got {'a': 1.0}"),
    (lambda: jet(snp.sin, (X,), ((1.0,),)),
     "term 0 of argument 0 of jet of sin has shape (), and the argument has (3,)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_wrong_arguments(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShardirError) as error:
        call()
    assert first_line(error) == message
