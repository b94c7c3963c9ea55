"""`jvp`, `vjp` and `linearize`, in `jit` and outside of it."""

import re
from typing import Any

import numpy as np
import pytest

import shardir.numpy as snp
from shardir.errors import DifferentiateError
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.dtypes import float0
from shardir.frontend.errors import ArgumentError, LeakedTracerError, NotAnArrayError
from shardir.frontend.lax import api as lax
from shardir.frontend.pytree import tree
from shardir.frontend.shardings.mesh import make_mesh
from shardir.frontend.shardings.partition_spec import P
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.shardings.traced_constraints import constrain
from shardir.frontend.transforms.grad import grad
from shardir.frontend.transforms.jvp_vjp import jvp, linearize, vjp
from shardir.frontend.transforms.pullback import NotNeeded
from shardir.frontend.transforms.vmap import vmap
from tests.error_assertions import first_line

X = np.array([0.5, 1.0, -2.0], np.float32)
T = np.array([1.0, -3.0, 0.25], np.float32)
MESH = make_mesh((4, 2), ("data", "model"))
FLOAT0 = np.dtype([("float0", np.void, 0)])


def both(x: Any, p: Any) -> Any:
    return {"wave": snp.sin(x) * p["k"], "total": snp.sum(x * x)}


P0 = {"k": np.float32(2)}
WAVE = {"wave": 2 * np.sin(X), "total": np.sum(X * X)}
PUSHED = {"wave": 2 * np.cos(X) * T + 0.5 * np.sin(X), "total": 2 * np.sum(X * T)}
PULLED = (2 * np.cos(X) * T + 6 * X, {"k": np.sum(np.sin(X) * T)})


def agree(made: Any, expected: Any) -> None:
    assert tree.structure(made) == tree.structure(expected)
    for ours, theirs in zip(tree.leaves(made), tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-5, atol=1e-6)


def test_jvp_agrees_with_differences() -> None:
    for run in (jvp, jit(jvp, static_argnums=0)):
        results, tangents = run(both, (X, P0), (T, {"k": 0.5}))
        agree(results, WAVE)
        agree(tangents, PUSHED)


def test_a_vjp_function_may_be_called_several_times() -> None:
    results, pullback = vjp(both, X, P0)
    agree(results, WAVE)
    for scale in (1.0, 2.0):
        pulled = pullback({"wave": np.float32(scale) * T, "total": scale * 3.0})
        agree(pulled, tree.map(lambda g, s=scale: s * g, PULLED))


def test_a_linearized_function_may_be_called_several_times() -> None:
    results, pushforward = linearize(both, X, P0)
    agree(results, WAVE)
    for scale in (1.0, 2.0):
        pushed = pushforward(np.float32(scale) * T, {"k": scale * 0.5})
        agree(pushed, tree.map(lambda g, s=scale: s * g, PUSHED))


def test_vjp_functions_may_be_called_in_other_programs() -> None:
    _, pullback = vjp(both, X, P0)
    _, pushforward = linearize(both, X, P0)
    agree(jit(lambda t: pullback({"wave": t, "total": 3.0}))(T), PULLED)
    agree(jit(lambda t: pushforward(t, {"k": 0.5}))(T), PUSHED)

    @jit
    def inside(x: Any, t: Any) -> Any:
        _, back = vjp(both, x, P0)
        first = back({"wave": t, "total": 1.0})
        second = vmap(lambda u: back({"wave": u, "total": 0.0})[0])(snp.stack([t, 2 * t]))
        return first, second

    first, second = inside(X, T)
    agree(first, (PULLED[0] - 4 * X, PULLED[1]))
    agree(second, np.stack([2 * np.cos(X) * T, 4 * np.cos(X) * T]))


def test_functions_may_capture_arrays() -> None:
    scale = from_numpy(np.array([1.0, 2.0, 3.0], np.float32))
    _, pullback = vjp(lambda x: x * x * scale, X)
    agree(pullback(T), (2 * X * np.array([1, 2, 3]) * T,))
    _, pushforward = linearize(lambda x: x * scale, X)
    agree(pushforward(T), T * np.array([1, 2, 3]))


def test_has_aux() -> None:
    def f(x: Any) -> Any:
        return x * x, {"n": 3, "x": x}

    results, tangents, aux = jvp(f, (X,), (T,), has_aux=True)
    agree((results, tangents, aux), (X * X, 2 * X * T, {"n": 3, "x": X}))
    results, pullback, aux = vjp(f, X, has_aux=True)
    agree((results, pullback(T), aux), (X * X, (2 * X * T,), {"n": 3, "x": X}))
    results, pushforward, aux = linearize(f, X, has_aux=True)
    agree((results, pushforward(T), aux), (X * X, 2 * X * T, {"n": 3, "x": X}))


def test_derivatives_compose() -> None:
    def slope(x: Any) -> Any:
        return jvp(lambda y: y**3, (x,), (1.0,))[1]

    assert float(grad(slope)(2.0)) == 12
    assert float(jit(grad(slope))(2.0)) == 12
    assert float(jvp(grad(lambda y: y**3), (2.0,), (1.0,))[1]) == 12
    assert float(jvp(slope, (2.0,), (1.0,))[1]) == 12
    assert float(grad(lambda x: linearize(lambda y: y**3, x)[1](1.0))(2.0)) == 12
    assert float(grad(lambda x: vjp(lambda y: y**3, x)[1](1.0)[0])(2.0)) == 12
    agree(vmap(slope)(X), 3 * X * X)
    agree(vmap(grad(slope))(X), 6 * X)


def test_jvp_of_loops() -> None:
    def power(x: Any, n: Any) -> Any:
        start = (0, snp.ones_like(x))
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), start)[1]

    _, slope = jvp(lambda x: power(x, 4), (X,), (T,))
    agree(slope, 4 * X**3 * T)
    agree(linearize(lambda x: power(x, 4), X)[1](T), 4 * X**3 * T)

    def running(x: Any) -> Any:
        return lax.scan(lambda c, y: (c * y, c + y), snp.float32(1), x)

    expected = jvp(lambda x: (x[0] * x[1] * x[2], snp.stack([1 + x[0], x[0] + x[1], x[0] * x[1]
                   + x[2]])), (X,), (T,))  # fmt: skip
    agree(jvp(running, (X,), (T,)), expected)
    agree(linearize(running, X)[1](T), expected[1])


def test_integers_have_float0_tangents() -> None:
    n = np.arange(3)
    none = np.zeros(3, FLOAT0)
    results, tangents = jvp(lambda x, n: (x * n, n), (X, n), (T, none))
    agree(results, (X * n, n))
    np.testing.assert_allclose(tangents[0], T * n)
    assert (tangents[1].dtype, tangents[1].shape) == (FLOAT0, (3,))
    _, pullback = vjp(lambda x, n: (x * n, n), X, n)
    gradient, nothing = pullback((T, none))
    np.testing.assert_allclose(gradient, T * n)
    assert (nothing.dtype, nothing.shape) == (FLOAT0, (3,))


def test_complex_numbers() -> None:
    z, t = np.complex64(1 + 2j), np.complex64(0.5 - 1j)
    agree(jvp(lambda z: z**2, (z,), (t,)), (z**2, 2 * z * t))
    agree(jvp(snp.abs, (z,), (t,))[1], (np.conj(z) * t).real / abs(z))
    agree(vjp(lambda z: z**2, z)[1](t), (2 * z * t,))


def test_results_keep_their_shardings() -> None:
    cut = NamedSharding(MESH, P("data"))
    x = device_put(np.arange(8, dtype=np.float32), cut)
    results, tangents = jvp(snp.sin, (x,), (x,))
    assert results.sharding.is_equivalent_to(cut, 1)
    assert tangents.sharding.is_equivalent_to(cut, 1)


def test_constraints_are_kept_in_vjp_functions() -> None:
    cut = NamedSharding(MESH, P("data"))
    x = np.arange(8, dtype=np.float32)
    _, pullback = vjp(lambda x: snp.sin(constrain(x * 1, cut)), x)
    agree(pullback(x), (np.cos(x) * x,))

    @jit
    def later(t: Any) -> Any:
        other = constrain(t, NamedSharding(MESH, P("model")))
        return pullback(other)[0]

    agree(later(x), np.cos(x) * x)


def test_mismatched_tangents_are_errors() -> None:
    def f(x: Any, n: Any) -> Any:
        return x * n

    told = []
    cases: list[tuple[Any, Any]] = [
        ((X, 2), (T, 1)),
        ((X, 2.0), (T,)),
        ((X, 2.0), (T[:2], 1.0)),
        ((X, 2.0), ("a", 1.0)),
        ((2.0, 2.0), (1j, 1.0)),
        ((2.0, 2.0), (1, 1.0)),
        (X, T),
    ]
    for primals, tangents in cases:
        with pytest.raises(ArgumentError) as caught:
            jvp(f, primals, tangents)
        told.append(first_line(caught))
    with pytest.raises(ArgumentError) as caught:
        vjp(f, X, 2.0)[1](T[:2])
    told.append(first_line(caught))
    with pytest.raises(ArgumentError) as caught:
        vjp(f, X, 2.0)[1]([T])
    told.append(first_line(caught))
    with pytest.raises(ArgumentError) as caught:
        vjp(lambda n: {"n": n}, 3)[1]({"n": 1})
    told.append(first_line(caught))
    assert told == [
        "jvp of f got a tangent i32[] for n, which is i32[]; integers have no tangents, so let the "
        "function capture it instead",
        "jvp of f got tangents in (*,), and its arguments are in (*, *); pass one tangent for each",
        "jvp of f got a tangent f32[2] for x, which is f32[3]; give one of that type",
        "jvp of f got a tangent 'a' of type str for x, which is f32[3]; give one of that type",
        "jvp of f got a tangent c64[] for x, which is f32[]; give one of that type",
        "jvp of f got a tangent i32[] for x, which is f32[]; give one of that type",
        f"jvp takes its primals as a tuple, one for each argument, got {X!r}; write ({X!r},)",
        "the pullback of f got a cotangent f32[2] for the result, which is f32[3]; give one of "
        "that type",
        "the pullback of f got cotangents in [*], and its results are in *; pass one cotangent for "
        "each",
        "the pullback of lambda got a cotangent i32[] for result['n'], which is i32[]; integers "
        "have none, so return it as aux, with has_aux=True",
    ]


def test_functions_without_a_derivative_are_errors() -> None:
    with pytest.raises(NotAnArrayError) as caught:
        jvp(lambda x, way: x, (X, "up"), (T, None))
    assert first_line(caught) == (
        "jvp of lambda is taken with respect to way, which is 'up' of type str and not an array; "
        "let the function capture it, for example in a lambda"
    )
    with pytest.raises(ArgumentError, match=r"jvp takes a function, got 3"):
        jvp(3, (X,), (T,))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"must return \(results, aux\); it returned"):
        vjp(lambda x: x, X, has_aux=True)

    def loop(x: Any) -> Any:
        return lax.while_loop(lambda y: y < 10, lambda y: y * 2, x)

    with pytest.raises(DifferentiateError, match=r"(?s)while has no gradient.*test_jvp_vjp.py"):
        vjp(loop, 1.0)


def test_a_vjp_function_used_after_its_trace_is_an_error() -> None:
    kept = []

    @jit
    def f(x: Any) -> Any:
        y, pullback = vjp(snp.sin, x)
        kept.append(pullback)
        return y

    f(X)
    with pytest.raises(LeakedTracerError, match="was used outside of the trace it belongs to"):
        kept[0](T)


def test_jitted_functions_return_and_accept_vjp_functions() -> None:
    def double(x: Any) -> Any:
        return snp.sin(x) * 2

    expected = 2 * np.cos(np.float32(0.5)) * 3
    pushed = jit(lambda x: linearize(double, x)[1])(0.5)
    np.testing.assert_allclose(pushed(3.0), expected, rtol=1e-6)
    np.testing.assert_allclose(jit(lambda f, t: f(t))(pushed, 3.0), expected, rtol=1e-6)
    value, pulled = jit(lambda x: vjp(double, x))(0.5)
    np.testing.assert_allclose(value, 2 * np.sin(0.5), rtol=1e-6)
    np.testing.assert_allclose(pulled(3.0)[0], expected, rtol=1e-6)
    np.testing.assert_allclose(jit(lambda f, t: f(t))(pulled, 3.0)[0], expected, rtol=1e-6)


def test_jitted_functions_accept_and_return_float0() -> None:
    nothing = np.zeros((), float0)
    value, pulled = vjp(lambda x, y: x + y, 2, 1)
    assert value == 3
    assert [made.dtype for made in jit(pulled)(nothing)] == [float0, float0]
    moved, still = jit(grad(lambda x, i: x[i], argnums=(0, 1), allow_int=True))(np.ones(2), 1)
    np.testing.assert_array_equal(moved, [0, 1])
    assert (still.dtype, still.shape) == (float0, ())


def test_arguments_among_the_residuals_of_a_vjp_function_can_be_released() -> None:
    def layer(x: Any, w: Any) -> Any:
        return 2 * snp.tanh(x @ w["w"])

    x = np.ones((3, 4), np.float32)
    w = {"b": np.float32(1), "w": np.ones((4, 4), np.float32)}
    y, back = vjp(layer, x, w)
    assert back.opaque_residuals
    wanted = back(snp.ones_like(y))
    assert isinstance(back.args_res[1]["b"], NotNeeded)
    back.args_res[1] = None
    message = (
        "the pullback of layer needs the argument w.w, which is f32[4, 4], and it is absent in "
        "args_res; assign the argument of vjp there"
    )
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}"):
        back(y)
    back.args_res[1] = {"b": 1.0, "w": "rows"}
    with pytest.raises(ArgumentError, match="it is 'rows' of type str in args_res"):
        back(y)
    back.args_res[1] = {"b": 1.0, "w": np.ones((2, 4), np.float32)}
    with pytest.raises(ArgumentError, match=re.escape("it is f32[2, 4] in args_res")):
        back(y)
    back.args_res[1] = w
    for got, expected in zip(tree.leaves(back(snp.ones_like(y))), tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(got, expected)
    back.args_res = [x]
    message = (
        "args_res of the pullback of layer is a list with an entry for each of 2 arguments, got "
    )
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}"):
        back(y)


def test_jitted_functions_return_vjp_functions_without_their_arguments() -> None:
    @jit
    def forward(x: Any, w: Any) -> Any:
        y, back = vjp(lambda x, w: x * w, x, w)
        back.args_res = [None, None]
        return y, back

    @jit
    def backward(back: Any, x: Any, w: Any) -> Any:
        back.args_res = [x, w]
        return back(1.0)

    y, back = forward(2.0, 3.0)
    assert tree.leaves(back) == []
    assert [float(y), *map(float, backward(back, 2.0, 3.0))] == [6.0, 3.0, 2.0]
