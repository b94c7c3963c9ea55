"""Derivatives of branches that are batched with different branches per element, against JAX.

All branches are computed for all elements. A branch may divide by zero or take the root of a
negative number in an element that takes another one, and its derivative there must not appear.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.ir.module import Op
from shardir.passes.pipeline import Pipeline

jax = pytest.importorskip("jax")

X = np.array([[-1, 0.5, 2], [0, 0, 0], [1, 2, 3], [0.3, 0.2, 0.1]], np.float32)
INDEX = np.array([0, 1, 2, 0], np.int32)
W = np.array([[1, 2, -1], [0.5, 0, 1], [2, -1, 1]], np.float32)
Function = Callable[..., Any]


class Ours:
    """shardir."""

    np, lax = snp, lax
    grad, vmap, jvp, vjp, linearize = sd.grad, sd.vmap, sd.jvp, sd.vjp, sd.linearize
    custom_vmap = sd.custom_batching.custom_vmap
    hessian, checkpoint, custom_vjp, jit = sd.hessian, sd.checkpoint, sd.custom_vjp, sd.jit


class Theirs:
    """JAX."""

    np, lax = jax.numpy, jax.lax
    grad, vmap, jvp, vjp, linearize = jax.grad, jax.vmap, jax.jvp, jax.vjp, jax.linearize
    custom_vmap = jax.custom_batching.custom_vmap
    hessian, checkpoint, custom_vjp, jit = jax.hessian, jax.checkpoint, jax.custom_vjp, jax.jit


def agree(program: Callable[[Any], Any], tolerance: float = 2e-5) -> None:
    """Check a program, written for the names of one of the libraries, in both."""
    made = [np.asarray(x) for x in sd.tree.leaves(sd.jit(lambda: program(Ours))())]
    expected = [np.asarray(x) for x in jax.tree.leaves(jax.jit(lambda: program(Theirs))())]
    assert len(made) == len(expected)
    for ours, theirs in zip(made, expected, strict=True):
        assert np.isfinite(theirs).all()
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def linearized(lib: Any, f: Function) -> Function:
    def g(x: Any) -> Any:
        y, push = lib.linearize(f, x)
        return 0.5 * y + 0.3 * push(0.5 * x)

    return g


def scan_branch(lib: Any, x: Any, w: Any) -> Any:
    """Carry an unbatched value that the iterations divide by batched ones."""
    step = lambda carry, _: (carry * w[1] / x, carry)  # noqa: E731
    return lib.lax.scan(step, w[0] + 0 * x, None, length=2)[0]


def scan_from_unbatched(lib: Any, x: Any, w: Any) -> Any:
    return lib.lax.scan(lambda carry, _: (carry / x, None), w[0], None, length=2)[0]


def remat_branch(lib: Any, x: Any, w: Any) -> Any:
    return lib.checkpoint(lambda y: (1 / y) @ w * w[0])(x)


def custom_branch(lib: Any, x: Any, w: Any) -> Any:
    divide = lib.custom_vjp(lambda a, b: a / b)
    divide.defvjp(lambda a, b: (a / b, (a, b)), lambda r, g: (g / r[1], -g * r[0] / r[1] ** 2))
    return divide(w[0], x)


def nested_branch(lib: Any, x: Any, w: Any) -> Any:
    first = lambda: lib.np.log(x) @ w + lib.np.sqrt(w[0] * w[0])  # noqa: E731
    return lib.lax.cond(x[0] > 0.5, first, lambda: x / lib.np.sum(x))


BRANCHES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "quotient": lambda lib, x, w: w[0] / x,
    "scalar": lambda lib, x, w: w[0, 0] * lib.np.sqrt(x),
    "product": lambda lib, x, w: lib.np.log(x) @ w,
    "quotient of product": lambda lib, x, w: 1 / (x @ w),
    "batched matrix": lambda lib, x, w: lib.np.linalg.solve(lib.np.diag(x), w[0]),
    "gathered": lambda lib, x, w: w[lib.np.argmax(x)] / x,
    "norm": lambda lib, x, w: x / lib.np.sqrt((x * x).sum()) + w[0],
    "captured only": lambda lib, x, w: w[0],
    "concatenated": lambda lib, x, w: (
        1 / lib.np.sqrt(lib.np.concatenate([x, w[0]]) ** 2)
    )[:3],
    "scan": scan_branch,
    "scan from unbatched": scan_from_unbatched,
    "remat": remat_branch,
    "custom_vjp": custom_branch,
    "nested": nested_branch,
}  # fmt: skip


def switched(lib: Any, name: str, w: Any) -> Function:
    """Return a function that computes the branch `name` where the index is 2."""
    others = [lambda x: x @ w, lambda x: 2 * x + w[1]]
    return lambda i, x: lib.lax.switch(i, [*others, lambda y: BRANCHES[name](lib, y, w)], x)


@pytest.mark.parametrize("name", BRANCHES)
def test_derivatives_of_values_of_all_elements(name: str) -> None:
    def program(lib: Any) -> Any:
        def loss(x: Any, w: Any) -> Any:
            return lib.np.sin(lib.vmap(switched(lib, name, w))(INDEX, x)).sum()

        w = np.where(W == 0, np.float32(0.25), W)
        gradients = lib.grad(loss, (0, 1))
        return gradients(X, w) if name != "norm" else lib.jvp(gradients, (X, w), (X + 1, w))

    agree(program, 1e-4)


@pytest.mark.parametrize("name", ["norm", pytest.param("nested", marks=pytest.mark.long), "scan"])
def test_derivatives_of_linearized_branches(name: str) -> None:
    def program(lib: Any) -> Any:
        def loss(x: Any, w: Any) -> Any:
            def f(i: Any, x: Any) -> Any:
                return linearized(lib, lambda x: switched(lib, name, w)(i, x))(x)

            return lib.np.sin(lib.vmap(f)(INDEX, x)).sum()

        return lib.grad(loss, (0, 1))(X, W)

    agree(program, 1e-4)


def test_a_branch_that_no_element_takes() -> None:
    """Its derivative at a singular value of all elements is not zero times infinity."""

    def program(lib: Any) -> Any:
        def loss(x: Any, w: Any) -> Any:
            def first() -> Any:
                return lib.lax.cond(x[0, 0] < 5, lambda: x[0] * 0, lambda: x[0])

            def f(x: Any) -> Any:
                roots = lambda: lib.np.sqrt(w[0]) * x + lib.np.sqrt(1 / lib.np.sqrt(w[1]))  # noqa: E731
                return lib.lax.cond(x[0] > 9, roots, lambda: x * 2)

            return lib.vmap(f)(x).sum() + first().sum()

        return lib.grad(loss, (0, 1))(X, np.zeros((2, 3), np.float32))

    agree(program)


def test_nested_branches_that_no_element_takes() -> None:
    def program(lib: Any) -> Any:
        def f(x: Any, w: Any) -> Any:
            inner = lambda: lib.np.sqrt(w[0]) + x  # noqa: E731
            outer = lambda: lib.lax.cond(x[1] > 9, inner, lambda: x + lib.np.sqrt(w[1]))  # noqa: E731
            return lib.lax.cond(x[0] > 9, outer, lambda: x * 2)

        loss = lambda x, w: lib.vmap(f, in_axes=(0, None))(x, w).sum()  # noqa: E731
        return lib.grad(loss, (0, 1))(X, np.zeros((2, 3), np.float32))

    agree(program)


def test_hessians() -> None:
    def program(lib: Any) -> Any:
        f = lambda x: lib.lax.cond(x > 0, lib.np.sqrt, lambda y: y * y * y, x)  # noqa: E731
        loss = lambda x: (lib.vmap(f)(x) ** 2).sum()  # noqa: E731
        g = lambda x: lib.lax.cond(x > 0, lambda y: lib.np.log(y) * y, lambda y: y * y, x)  # noqa: E731
        x = np.array([-1, 0, 2], np.float32)
        return lib.hessian(loss)(x), lib.hessian(lambda x: lib.vmap(lib.grad(g))(x).sum())(x)

    agree(program)


def test_pytrees_and_several_batches() -> None:
    def program(lib: Any) -> Any:
        def f(i: Any, tree: Any) -> Any:
            first = lambda t: {"a": t["a"] / t["b"], "b": lib.np.sqrt(t["b"])}  # noqa: E731
            return lib.lax.cond(i == 0, first, lambda t: {"a": t["b"], "b": t["a"] * t["b"]}, tree)

        def loss(tree: Any) -> Any:
            rows = lib.vmap(f, in_axes=(None, 0))
            made = lib.vmap(rows, in_axes=(0, {"a": 0, "b": None}))(np.array([0, 1, 0]), tree)
            return made["a"].sum() + (made["b"] ** 2).sum()

        def only_zero(tree: Any) -> Any:
            return lib.vmap(f)(np.array([1, 1]), tree)["b"].sum()

        tree = {"a": np.ones((3, 2), np.float32), "b": np.array([1, 2], np.float32)}
        zeros = {"a": np.ones(2, np.float32), "b": np.zeros(2, np.float32)}
        return lib.grad(loss)(tree), lib.grad(only_zero)(zeros)

    agree(program)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64"])
def test_element_types(dtype: str) -> None:
    def program(lib: Any) -> Any:
        def f(i: Any, x: Any, w: Any) -> Any:
            return lib.lax.cond(i == 0, lambda: w / x, lambda: x * w * w)

        def loss(x: Any, w: Any) -> Any:
            made = lib.vmap(f, in_axes=(0, 0, None))(np.array([0, 1]), x, w)
            return lib.np.real(made).astype("float32").sum()

        x, w = lib.np.array([2, 0], dtype), lib.np.array(3, dtype)
        return [lib.np.real(g).astype("float32") for g in lib.grad(loss, (0, 1))(x, w)]

    agree(program, 1e-2)


def nest(lib: Any, choices: random.Random, depth: int) -> Function:
    """Return a random nest of branches and transformations of a function of a row."""
    snp = lib.np
    leaves: list[Function] = [
        lambda x: x @ W,
        lambda x: x / snp.sqrt((x * x).sum() + (x[0] == 0)),
        lambda x: snp.log(1 + x * x),
    ]
    if depth == 0:
        leaf: Function = choices.choice(leaves)
        return leaf
    f = nest(lib, choices, depth - 1)
    kind = choices.choice(["switch", "linearize", "jvp", "vjp", "checkpoint", "switch", "vmap"])
    if kind == "switch":
        branches = [f, choices.choice(leaves), nest(lib, choices, depth - 1)]
        return lambda x: lib.lax.switch(snp.clip((x.sum() * 2).astype("int32"), 0, 2), branches, x)
    if kind == "linearize":
        return linearized(lib, f)
    if kind == "jvp":
        return lambda x: sum(lib.jvp(f, (x,), (0.5 * x,)))
    if kind == "vjp":
        return lambda x: lib.vjp(f, x)[1](0.1 * x)[0]
    if kind == "checkpoint":
        again: Function = lib.checkpoint(f)
        return again
    return lambda x: lib.vmap(f)(snp.stack([x, 0.5 * x])).sum(0)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 20))]
)
def test_random_nests(seed: int) -> None:
    def program(lib: Any) -> Any:
        f = nest(lib, random.Random(seed), 3)
        loss = lambda x: lib.np.sin(lib.vmap(f)(x)).sum()  # noqa: E731
        x = np.random.default_rng(seed).standard_normal((6, 3)).astype(np.float32)
        return lib.grad(loss)(x)

    agree(program, 2e-4)


def simplified(f: Function, *args: Any) -> list[Op]:
    """Return the operations of the vectorized function, whose last argument is unbatched."""
    many = sd.vmap(f, in_axes=(*[0] * (len(args) - 1), None))
    module = sd.jit(many).lower(*args).module
    return list(Pipeline.parse("inline,cse,simplify,cse,dce")(module).main.body.walk())


def test_masks_are_simplified() -> None:
    """Without a derivative, the masks cost nothing."""

    def f(i: Any, x: Any, w: Any) -> Any:
        first = lambda: snp.concatenate([snp.sqrt(w[0]) / x, w[1]])  # noqa: E731
        return lax.cond(i == 0, first, lambda: snp.concatenate([x * 2, w[2]]))

    names = [op.name for op in simplified(f, np.arange(4), X, W)]
    assert names.count("select") == 1
    assert "stop_gradient" not in names
    assert "any" not in names


@pytest.mark.parametrize("wrap", [lambda f: f, sd.checkpoint], ids=["plain", "checkpoint"])
def test_products_do_not_copy_unbatched_operands(wrap: Callable[[Function], Function]) -> None:
    """They select their batched operand, besides the selection of the results."""

    def f(i: Any, x: Any, w: Any) -> Any:
        return lax.cond(i == 0, lambda: wrap(lambda y: y @ w)(x), lambda: x * 2)

    ops = simplified(f, np.arange(4), X, W)
    (dot,) = [op for op in ops if op.name == "dot"]
    assert [value.type.shape for value in dot.operands] == [(4, 3), (3, 3)]
    assert [op.name for op in ops].count("select") == 2


@pytest.mark.parametrize("is_nested", [False, True])
def test_sums_over_the_batch_inside_of_branches(is_nested: bool) -> None:
    """They depend on the values of elements that take another branch."""

    def f(x: Any, w: Any) -> Any:
        first = lambda: lax.psum(w[0] * x, "batch") / x  # noqa: E731
        return lax.cond(x[0] > 1.5, first, lambda: x * 2)

    inner = sd.vmap(f, in_axes=(0, None)) if is_nested else f
    rows = sd.vmap(inner, in_axes=(0, None), axis_name="batch")
    x, w = np.array([[1, 2, 1], [2, 4, 1], [1, 1, 3]], np.float32), W
    shape = (3, 1, 3) if is_nested else (3, 3)
    made = sd.jit(sd.grad(lambda x, w: rows(x, w).sum(), (0, 1)))(x.reshape(shape), w)
    others = w[0] / x[1]
    sums = x.sum(0)
    along_x = np.stack([2 + others, others - w[0] * sums / x[1] ** 2, 2 + others])
    np.testing.assert_allclose(np.reshape(made[0], (3, 3)), along_x, rtol=1e-5)
    along_w = np.stack([sums / x[1], x[1] * 0, x[1] * 0])
    np.testing.assert_allclose(made[1], along_w, rtol=1e-5)


def test_only_the_operands_of_collectives_have_derivatives_in_other_elements() -> None:
    """The elements that take the other branch divide by zero, before and after the collective."""

    def f(x: Any, w: Any) -> Any:
        first = lambda: lax.psum(w[0] * lax.sin(x), "batch") / x * w[1]  # noqa: E731
        return lax.cond(x[0] > 1.5, first, lambda: w[2] / (x - 2))

    rows = sd.vmap(f, in_axes=(0, None), axis_name="batch")
    x, w = np.array([[1, 3, 0], [2, 4, 1], [0, 1, 3]], np.float32), W
    made = sd.jit(sd.grad(lambda x, w: rows(x, w).sum(), (0, 1)))(x, w)
    sums, factor = np.sin(x).sum(0), w[0] * w[1] / x[1]
    along_x = factor * np.cos(x)
    along_x[[0, 2]] -= w[2] / (x[[0, 2]] - 2) ** 2
    along_x[1] -= factor * sums / x[1]
    np.testing.assert_allclose(made[0], along_x, rtol=1e-5, atol=1e-6)
    along_w = [w[1] * sums / x[1], w[0] * sums / x[1], (1 / (x[[0, 2]] - 2)).sum(0)]
    np.testing.assert_allclose(made[1], along_w, rtol=1e-5, atol=1e-6)


def test_custom_vmap_inside_of_branches() -> None:
    """Its rule has no masks, so it receives a copy of the unbatched value for each element."""
    seen: dict[Any, list[Any]] = {}

    def program(lib: Any) -> Any:
        divide = lib.custom_vmap(lambda x, w: w / x)

        @divide.def_vmap  # type: ignore[untyped-decorator]
        def rule(size: int, batched: Any, x: Any, w: Any) -> Any:
            seen.setdefault(lib, []).append(batched)
            return w / x, True

        def f(x: Any, w: Any) -> Any:
            return lib.lax.cond(x[0] > 0, lambda: divide(x, w[0]), lambda: x * 2)

        rows = lib.vmap(f, in_axes=(0, None))
        return lib.grad(lambda x, w: rows(x, w).sum(), (0, 1))(X[1:], W)

    agree(program)
    assert [tuple(flags) for flags in seen[Ours]] == [(True, True)]
