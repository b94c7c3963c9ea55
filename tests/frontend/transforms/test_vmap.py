"""`vmap` against loops, in combination with other transformations, and its errors."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir.numpy as snp
from shardir import random
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import ArgumentError, AxisError, BatchError, NotAnArrayError
from shardir.frontend.lax import api as lax
from shardir.frontend.pytree import tree
from shardir.frontend.shardings.mesh import make_mesh
from shardir.frontend.shardings.partition_spec import P
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.transforms.grad import grad, value_and_grad
from shardir.frontend.transforms.vmap import vmap
from tests import error_assertions

RNG = np.random.default_rng(0)
MESH = make_mesh((4, 2), ("data", "model"))


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def agree(made: Any, expected: Any, tolerance: float = 1e-5) -> None:
    assert tree.structure(made) == tree.structure(expected)
    for ours, theirs in zip(tree.leaves(made), tree.leaves(expected), strict=True):
        assert np.shape(ours) == np.shape(theirs)
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-4, atol=tolerance)


def both(fun: Callable[..., Any], *args: Any) -> Any:
    """Return the result, and check that it is the same inside `jit`."""
    made = fun(*args)
    agree(jit(fun)(*args), tree.map(np.asarray, made))
    return made


X, W = floats(5, 3), floats(3, 4)


def layer(x: Any, w: Any) -> Any:
    return snp.tanh(x @ w)


def test_in_axes_none_shares_an_argument() -> None:
    agree(both(vmap(layer, in_axes=(0, None)), X, W), np.tanh(X @ W))
    agree(both(vmap(lambda w: layer(X, w), in_axes=1, out_axes=1), W), np.tanh(X @ W))


@pytest.mark.sample(3)
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("out", [0, 1, 2, -1, -2, -3])
def test_in_axes_and_out_axes(axis: int, out: int) -> None:
    x = floats(2, 3, 4)
    made = vmap(lambda y: snp.sin(y), in_axes=axis, out_axes=out)(x)
    agree(made, np.moveaxis(np.sin(x), axis, out))


def test_containers_and_their_axes() -> None:
    params = {"w": floats(5, 3, 4), "b": floats(4)}

    def f(p: Any, x: Any, *, scale: Any) -> Any:
        return {"y": x @ p["w"] + p["b"], "rest": (scale, p["b"])}

    made = vmap(f, ({"w": 0, "b": None}, 1), {"y": 1, "rest": (0, None)})(
        params, X.T, scale=np.arange(5)
    )
    expected = {
        "y": np.stack([X[i] @ params["w"][i] + params["b"] for i in range(5)], 1),
        "rest": (np.arange(5), params["b"]),
    }
    agree(made, expected)


def test_independent_results_are_broadcast_along_out_axes() -> None:
    agree(vmap(lambda x: (x, 2.0, snp.arange(3)), out_axes=(0, 0, 1))(X[:, 0]), (
        X[:, 0], np.full(5, 2.0, np.float32), np.repeat(np.arange(3)[:, None], 5, 1)
    ))  # fmt: skip
    agree(vmap(lambda: snp.ones(2), axis_size=3)(), np.ones((3, 2), np.float32))
    assert vmap(lambda x: 2.0)(X).weak_type


def test_arguments_that_are_not_mapped_may_be_any_value() -> None:
    def f(x: Any, kind: str, n: int) -> Any:
        assert kind == "power"
        return x**n

    agree(vmap(f, (0, None, None))(X, "power", 2), X**2)


def test_nested_vmap() -> None:
    x, y = floats(3), floats(4)
    outer = vmap(vmap(lambda a, b: a * b, (None, 0)), (0, None))
    agree(both(outer, x, y), np.outer(x, y))
    agree(both(vmap(lambda a: vmap(lambda b: a - b)(y)), x), x[:, None] - y)
    cube = floats(2, 3, 4)
    agree(vmap(vmap(vmap(lambda a: a * 2, 0), 1, 1), 2, 2)(cube), cube * 2)


def loss(w: Any, x: Any) -> Any:
    return snp.sum(snp.tanh(x @ w) ** 2)


def test_per_example_gradients() -> None:
    each = both(vmap(grad(loss), (None, 0)), W, X)
    agree(each, np.stack([np.asarray(grad(loss)(W, x)) for x in X]))
    values, gradients = both(vmap(value_and_grad(loss), (None, 0)), W, X)
    agree(values, np.sum(np.tanh(X @ W) ** 2, 1))
    agree(gradients, np.asarray(each))


def test_gradients_of_vmap() -> None:
    def total(w: Any) -> Any:
        return snp.mean(vmap(loss, (None, 0))(w, X))

    agree(both(grad(total), W), np.mean(np.asarray(vmap(grad(loss), (None, 0))(W, X)), 0))


def test_second_derivatives() -> None:
    x = floats(4)

    def f(x: Any) -> Any:
        return snp.sum(snp.sin(x) * x[::-1])

    hessian = vmap(lambda v: grad(lambda y: snp.sum(grad(f)(y) * v))(x))(np.eye(4, dtype="f4"))
    flat = np.diag(-np.sin(x) * x[::-1])
    agree(hessian, flat + np.diag(np.cos(x))[::-1] + np.diag(np.cos(x))[:, ::-1])


def test_while_loops_with_different_trip_counts() -> None:
    limits = np.array([1, 7, 100, 0], np.int32)

    def doubled(limit: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < limit, lambda c: (c[0] * 2, c[1] + 1), (1, 0))

    agree(both(vmap(doubled), limits), (np.array([1, 8, 128, 1]), np.array([0, 3, 7, 0])))


def test_loops_with_equal_trip_counts() -> None:
    def power(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, c: c * x, 1.0)

    agree(both(vmap(power), X[:, 0]), X[:, 0] ** 3)
    agree(both(vmap(grad(power)), X[:, 0]), 3 * X[:, 0] ** 2)

    def running(xs: Any, start: Any) -> Any:
        return lax.scan(lambda c, x: (c + x, c * x), start, xs)

    xs, starts = floats(4, 6), floats(4)
    ends, outs = both(vmap(running), xs, starts)
    agree(ends, starts + xs.sum(1))
    before = starts[:, None] + np.concatenate([np.zeros((4, 1)), xs.cumsum(1)[:, :-1]], 1)
    agree(outs, before * xs)
    agree(vmap(running, (1, None))(xs.T, starts[0])[0], starts[0] + xs.sum(1))


def test_branches_with_different_predicates() -> None:
    index = np.array([0, 1, 2, 7, -1], np.int32)
    branches = [lambda x: x, lambda x: x * 10, snp.negative]
    x = X[:, 0]
    made = both(vmap(lambda i, x: lax.switch(i, branches, x)), index, x)
    agree(made, np.array([x[0], x[1] * 10, -x[2], -x[3], x[4]]))
    positive = both(vmap(lambda x: lax.cond(x > 0, lambda y: y, lambda y: y * 0.1, x)), x)
    agree(positive, np.where(x > 0, x, x * np.float32(0.1)))
    agree(vmap(lambda x: lax.cond(True, snp.sin, snp.cos, x))(x), np.sin(x))


def test_indexing_slicing_and_updates() -> None:
    x, at = floats(5, 6), np.array([0, 5, 2, 2, 4])
    agree(both(vmap(lambda row, i: row[i]), x, at), x[np.arange(5), at])
    agree(both(vmap(lambda i: snp.asarray(x)[:, i]), at), x[:, at].T)
    expected = x.copy()
    expected[np.arange(5), at] += 1
    agree(both(vmap(lambda row, i: row.at[i].add(1.0)), x, at), expected)
    near = np.minimum(at, 4)
    sliced = np.stack([row[i : i + 2] for row, i in zip(x, near, strict=True)])
    agree(both(vmap(lambda row, i: lax.dynamic_slice(row, (i,), (2,))), x, at), sliced)
    expected = x.copy()
    for row, i in zip(expected, near, strict=True):
        row[i : i + 2] = 0
    update = np.zeros(2, np.float32)
    agree(vmap(lambda row, i: lax.dynamic_update_slice(row, update, (i,)))(x, at), expected)


def test_random_numbers_depend_on_each_key() -> None:
    keys = random.split(random.key(3), 4)
    made = vmap(lambda key: (random.normal(key, (3,)), random.split(key)))(keys)
    for i in range(4):
        agree(made[0][i], np.asarray(random.normal(keys[i], (3,))), 0)
        ours, theirs = made[1][i], random.split(keys[i])
        agree(random.key_data(ours), np.asarray(random.key_data(theirs)), 0)
    words = vmap(random.PRNGKey)(np.arange(3))
    agree(words, np.stack([np.asarray(random.PRNGKey(i)) for i in range(3)]), 0)


def test_names_of_values_are_kept() -> None:
    def f(x: Any, w: Any) -> Any:
        hidden = x @ w
        scale = snp.sum(w)
        out = snp.tanh(hidden) * scale
        return out

    text = jit(vmap(f, (0, None))).lower(X, W).as_text()
    assert re.findall(r"%(\w+) = ", text)[:3] == ["hidden", "scale", "0"]
    assert '%hidden = dot(%x, %w, dims="ai,ih->ah") : f32[5, 4]' in text
    assert "%scale = sum(%w, dims=[0, 1]) : f32[]" in text
    assert "%out = mul(" in text


def test_batches_keep_their_sharding() -> None:
    x = device_put(floats(8, 3), NamedSharding(MESH, P("data")))
    made = vmap(layer, (0, None))(x, W)
    assert made.sharding.spec == P("data")
    text = jit(vmap(grad(loss), (None, 0))).lower(W, x).compile().as_text()
    assert "all-" not in text


def constraint(x: Any) -> Any:
    return lax.with_sharding_constraint(x * 2, NamedSharding(MESH, P("model")))


def test_constraints_inside() -> None:
    x = floats(8, 4)
    open = jit(vmap(constraint))(device_put(x, NamedSharding(MESH, P("data"))))
    assert open.sharding.spec == P("data", "model")
    named = jit(vmap(constraint, spmd_axis_name="data"))(x)
    assert named.sharding.spec == P("data", "model")
    agree(named, x * 2)
    twice = vmap(vmap(constraint), spmd_axis_name="data")
    assert jit(twice)(floats(4, 3, 2)).sharding.spec == P("data", None, "model")
    inside = vmap(vmap(constraint, spmd_axis_name="data"))
    assert jit(inside)(floats(3, 4, 2)).sharding.spec == P(None, "data", "model")


def vmap_error(kind: type[Exception], fun: Callable[..., Any], *args: Any) -> str:
    return error_assertions.error_line(kind, lambda: fun(*args))


def test_mismatched_sizes_are_errors_that_name_each_argument() -> None:
    def f(x: Any, p: Any) -> Any:
        return x

    assert vmap_error(BatchError, vmap(f), X, {"a": W, "b": np.ones(5)}) == (
        "vmap of f maps axes of different sizes: axis 0 of x is 5, axis 0 of p.a is 3, axis 0 of "
        "p.b is 5; choose others with in_axes, or None for arguments that all slices share"
    )
    assert vmap_error(BatchError, vmap(f, (0, None), axis_size=4), X, W) == (
        "vmap of f maps axes of different sizes: axis_size is 4, axis 0 of x is 5; choose others "
        "with in_axes, or None for arguments that all slices share"
    )
    assert vmap_error(BatchError, vmap(f, None), X, W) == (
        "vmap of f maps nothing: no argument has an axis in in_axes; give one, or state axis_size"
    )


def test_invalid_axes_are_errors() -> None:
    assert vmap_error(AxisError, vmap(lambda x: x, 2), X) == (
        "vmap of lambda maps axis 2 of x, which is f32[5, 3]; give it another axis in in_axes, or "
        "None to share it among all slices"
    )
    assert vmap_error(AxisError, vmap(lambda x: x), 1.0).startswith(
        "vmap of lambda maps axis 0 of x, which is f32[]; give"
    )
    assert vmap_error(AxisError, vmap(lambda x: x, out_axes=2), X[0]) == (
        "out_axes has axis 2 for the result of lambda, which is f32[] for each slice; the mapped "
        "axis can be 0"
    )


def test_axes_that_do_not_match_containers_are_errors() -> None:
    assert vmap_error(BatchError, vmap(layer, (0, None, 0)), X, W) == (
        "in_axes of vmap of layer has 3 entries, and it was called with 2 positional arguments; "
        "give one entry for each, or one number for all"
    )
    assert vmap_error(BatchError, vmap(layer, (0, {"w": 0})), X, W) == (
        "in_axes of vmap of layer has a dict of 1 at [1], where the value has one leaf; give one "
        "entry for the whole subtree, or the same containers"
    )
    assert vmap_error(BatchError, vmap(lambda d: d["a"], ({"b": 0},)), {"a": X}) == (
        "in_axes of vmap of lambda has a dict with the keys ['b'] at [0], where the value has a "
        "dict with the keys ['a']; give one entry for the whole subtree, or the same containers"
    )
    assert vmap_error(BatchError, vmap(lambda x: x, out_axes=(0, 0)), X) == (
        "out_axes of vmap of lambda has a tuple of 2, where the value has one leaf; give one entry "
        "for the whole subtree, or the same containers"
    )
    assert vmap_error(BatchError, vmap(lambda x: (x, x), out_axes=(0, None)), X) == (
        "out_axes is None for result[1] of lambda, which depends on a mapped argument; give it an "
        "axis, or reduce it over the batch"
    )


def test_invalid_axes_types_and_values_are_errors() -> None:
    assert vmap_error(ArgumentError, lambda: vmap(layer, (0, "x"))) == (
        "in_axes of vmap of layer has 'x' of type str; its entries are axis numbers, and None for "
        "an argument that is not mapped"
    )
    assert vmap_error(ArgumentError, lambda: vmap(layer, {"x": 0})) == (
        "in_axes of vmap of layer is {'x': 0}; it is a number, None, or a tuple with an entry for "
        "each positional argument"
    )
    number: Any = 3
    assert vmap_error(ArgumentError, lambda: vmap(number)) == "vmap takes a function, got 3"
    assert vmap_error(NotAnArrayError, vmap(layer), X, "w") == (
        "vmap of layer maps w, which is 'w' of type str and not an array; give it None in in_axes"
    )
    assert vmap_error(
        BatchError, vmap(lambda x: x, spmd_axis_name="data", in_axes=None), X
    ).startswith("vmap of lambda maps nothing")


def test_sharded_arrays_are_arguments() -> None:
    agree(vmap(lambda x: x + 1)(from_numpy(X)), X + 1)
