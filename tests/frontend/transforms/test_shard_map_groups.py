"""Loops and branches of `shard_map` whose decision is equal in each group of a collective inside.

JAX 0.10.2 gives the same results on CPU devices, except for the permutation: there, XLA waits for
the devices of all groups, and then ends the process.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import shardir.numpy as snp
from shardir import (
    Mesh,
    PartitionSpec as P,
    cpu_devices,
    debug,
    grad,
    jit,
    lax,
    make_mesh,
    shard_map,
)
from shardir.errors import PartitionError
from shardir.interpret.interpreter import run
from shardir.passes import Pipeline
from shardir.verify.verifier import verify

Array = npt.NDArray[np.float32]
X: Array = np.linspace(0, 1.875, 16, dtype=np.float32).reshape(4, 4)


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    with cpu_devices(4):
        yield make_mesh((2, 2), ("a", "b"))


def is_first() -> Any:
    return lax.axis_index("b") == 0


def sum_a(x: Array) -> Array:
    """Return the sum of the shards along `a`, on each of them."""
    return np.tile(x[:2] + x[2:], (2, 1))


def join(first: Array, second: Array) -> Array:
    """Return the results of the devices at the positions 0 and 1 along `b`."""
    return np.concatenate([first[:, :2], second[:, 2:]], 1)


def branch(x: Any) -> Any:
    return lax.cond(is_first(), lambda v: lax.psum(v, "a"), lambda v: lax.psum(-v * v, "a"), x)


def branch_of_one(x: Any) -> Any:
    """The sum is NaN in the groups that do not take its branch."""
    y = snp.where(is_first(), x, -1)
    return lax.cond(is_first(), lambda v: v + lax.psum(snp.sqrt(v), "a"), lambda v: v, y)


def permute(x: Any) -> Any:
    def turn(v: Any) -> Any:
        return lax.ppermute(v, "a", [(0, 1), (1, 0)])

    return lax.switch(lax.axis_index("b"), [turn, lambda v: v], x)


def loop(x: Any) -> Any:
    count = 2 + lax.axis_index("b")

    def step(carried: Any) -> Any:
        n, v = carried
        return n + 1, v + snp.sin(lax.psum(v, "a"))

    start = (0 * count, x)
    return lax.while_loop(lambda carried: carried[0] < count, step, start)[1]


def loop_in_branch(x: Any) -> Any:
    """The loop would not end where it is not executed: zero remains zero."""

    def grow(v: Any) -> Any:
        return lax.while_loop(lambda c: snp.sum(lax.psum(c, "a")) < 100, lambda c: 2 * c, v)

    return lax.cond(is_first(), grow, lambda v: v, snp.where(is_first(), x, 0))


def branch_in_branch(x: Any) -> Any:
    """The inner decision differs along `a`, but contains no collective."""

    def inner(v: Any) -> Any:
        return lax.cond(lax.axis_index("a") == 0, lambda u: u, lambda u: 2 * u, lax.psum(v, "a"))

    return lax.cond(is_first(), inner, lambda v: v, x)


def loop_in_inner_branch(x: Any) -> Any:
    """The inner decision differs along `a`; its branch has a loop without a collective."""

    def double(v: Any) -> Any:
        return lax.while_loop(lambda c: snp.sum(c) < 100, lambda c: 2 * c, v)

    def inner(v: Any) -> Any:
        return lax.cond(lax.axis_index("a") == 0, double, lambda u: u, lax.psum(v, "a"))

    return lax.cond(is_first(), inner, lambda v: v, x)


def expected_loop() -> Array:
    values = [X]
    for _ in range(3):
        values.append(values[-1] + np.sin(sum_a(values[-1])))
    return join(values[2], values[3])


def expected_loop_in_branch() -> Array:
    x = X.copy()
    while sum_a(x)[:2, :2].sum() < 100:
        x = 2 * x
    return join(x, np.zeros_like(x))


def expected_loop_in_inner_branch() -> Array:
    total = sum_a(X)
    while total[:2, :2].sum() < 100:
        total[:2] *= 2
    return join(total, X)


ROW_SCALE = np.array([[1], [1], [2], [2]], np.float32)
CASES: dict[str, tuple[Callable[[Any], Any], Array]] = {
    "a sum in each branch": (branch, join(sum_a(X), -sum_a(X * X))),
    "a sum in one branch": (branch_of_one, join(X + sum_a(np.sqrt(X)), np.full_like(X, -1))),
    "a permutation": (permute, join(np.roll(X, 2, 0), X)),
    "a loop": (loop, expected_loop()),
    "a loop in a branch": (loop_in_branch, expected_loop_in_branch()),
    "a branch in a branch": (branch_in_branch, join(ROW_SCALE * sum_a(X), X)),
    "a loop in an inner branch": (loop_in_inner_branch, expected_loop_in_inner_branch()),
}


@pytest.mark.parametrize("name", CASES)
def test_a_collective_runs_in_the_groups_that_take_its_branch(name: str, mesh: Mesh) -> None:
    function, expected = CASES[name]
    cut = shard_map(
        function, mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", "b"), check_vma=False
    )
    compiled = jit(cut)
    np.testing.assert_allclose(compiled(X), expected, 1e-5)
    np.testing.assert_allclose(cut(X), expected, 1e-5)
    (interpreted,) = run(compiled.lower(X).module, [X])
    np.testing.assert_allclose(interpreted, expected, 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_all_devices_execute_the_same_collectives(name: str, mesh: Mesh) -> None:
    function, expected = CASES[name]
    cut = shard_map(
        function, mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", "b"), check_vma=False
    )
    made = Pipeline.parse("propagate,reshard,partition")(jit(cut).lower(X).module)
    verify(made)
    np.testing.assert_allclose(run(made, [X])[0], expected, 1e-5)


def test_the_gradient_of_a_sum_in_each_branch(mesh: Mesh) -> None:
    cut = shard_map(branch, mesh=mesh, in_specs=P("a", "b"), out_specs=P(None, "b"))
    made = jit(grad(lambda x: snp.sum(snp.sin(cut(x)))))(X)
    cosine = np.cos(join(sum_a(X), -sum_a(X * X)))
    np.testing.assert_allclose(made, cosine * join(np.ones_like(X), -2 * X), 1e-5)


def test_a_decision_that_differs_in_a_group_is_refused(mesh: Mesh) -> None:
    """The error names the inner decision: the outer one is equal in each group."""

    def inner(v: Any) -> Any:
        is_top = lax.axis_index("a") == 0
        return lax.cond(is_top, lambda u: lax.psum(u, "a"), lambda u: u, v)

    def f(x: Any) -> Any:
        return lax.cond(is_first(), inner, lambda v: v, x)

    cut = shard_map(f, mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", "b"), check_vma=False)
    with pytest.raises(PartitionError) as caught:
        jit(cut)(X)
    assert str(caught.value).split(" (from")[0] == (
        "all-reduce may be executed by only some devices: case depends on %is_top, which differs "
        "along a; use a value that is equal on all devices, such as an all-reduce of it"
    )


def test_an_effect_beside_a_collective_is_refused(mesh: Mesh) -> None:
    def f(x: Any) -> Any:
        def shout(v: Any) -> Any:
            debug.callback(print, v)
            return lax.psum(v, "a")

        return lax.cond(is_first(), shout, lambda v: v, x)

    cut = shard_map(f, mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", "b"), check_vma=False)
    with pytest.raises(PartitionError) as caught:
        jit(cut)(X)
    assert str(caught.value).split(" (")[0] == (
        "callback is executed by some devices only, because the decision of case differs between "
        "devices, and all devices execute branches and loops with collectives; move it out of the "
        "case"
    )


def test_a_branch_without_a_collective_remains(mesh: Mesh) -> None:
    def f(x: Any) -> Any:
        return lax.cond(is_first(), snp.sin, snp.exp, branch(x))

    cut = shard_map(f, mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", "b"), check_vma=False)
    text = jit(cut).lower(X).as_text()
    assert text.count("case(") == 2
    assert jit(cut).lower(X).compile().as_text().count("case(") == 1
