"""`shard_map`: every device of a mesh runs a function on its shard."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import shardir.numpy as snp
from shardir import (
    Mesh,
    NamedSharding,
    PartitionSpec as P,
    checkpoint,
    cpu_devices,
    custom_vjp,
    device_put,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    lax,
    linearize,
    make_mesh,
    shard_map,
    vjp,
    vmap,
)
from shardir.experimental.shard_map import shard_map as older_shard_map
from shardir.interpret.interpreter import run

Array = npt.NDArray[np.float32]
rng = np.random.default_rng(0)
A: Array = rng.standard_normal((8, 8)).astype(np.float32)
B: Array = rng.standard_normal((8, 4)).astype(np.float32)
W: Array = rng.standard_normal(4).astype(np.float32)


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    with cpu_devices(8):
        yield make_mesh((4, 2), ("x", "y"))


def agree(made: Any, expected: Any, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(np.asarray(made), np.asarray(expected), tolerance, tolerance)


def test_functions_receive_shards_and_return_shards(mesh: Mesh) -> None:
    def f(a: Any, b: Any) -> Any:
        assert (a.shape, b.shape) == ((2, 4), (4, 4))
        return lax.psum(a @ b, "y")

    cut = shard_map(f, mesh=mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x"))
    for made in (cut(A, B), jit(cut)(A, B)):
        agree(made, A @ B)
        assert made.sharding.is_equivalent_to(NamedSharding(mesh, P("x")), 2)


def test_shard_map_compiles_to_the_program_of_jit(mesh: Mesh) -> None:
    """The program is a contraction over a sharded dimension, with and without `shard_map`."""
    a = device_put(A, NamedSharding(mesh, P("x", "y")))
    b = device_put(B, NamedSharding(mesh, P("y")))

    def manual(a: Any, b: Any) -> Any:
        return shard_map(
            lambda a, b: lax.psum(a @ b, "y"),
            mesh=mesh, in_specs=(P("x", "y"), P("y")), out_specs=P("x"),
        )(a, b)  # fmt: skip

    def body(fun: Any) -> list[str]:
        lines = jit(fun).lower(a, b).compile().as_text().splitlines()
        return [line.split(" = ")[1].split("(%")[0] + line.split(")")[-1]
                for line in lines if " = " in line and "mesh" not in line]  # fmt: skip

    assert body(manual) == body(lambda a, b: a @ b)


def test_containers_of_specs(mesh: Mesh) -> None:
    def f(t: Any, w: Any) -> Any:
        return {"sum": t["a"] + w, "parts": [t["b"], lax.axis_index(("x", "y"))[None]]}

    cut = shard_map(
        f,
        mesh=mesh,
        in_specs=(P("x"), P()),
        out_specs={"sum": P("x"), "parts": [P("x"), P(("x", "y"))]},
    )
    made = cut({"a": B, "b": A}, W)
    agree(made["sum"], B + W)
    agree(made["parts"][0], A)
    agree(made["parts"][1], np.arange(8))


def test_decorator_and_current_mesh(mesh: Mesh) -> None:
    doubled = shard_map(in_specs=P("x"), out_specs=P("x"))(lambda a: a * 2)
    with mesh:
        agree(doubled(A), A * 2)
    older = older_shard_map(lambda a: a * 2, mesh, P("x"), P("x"), check_rep=False)
    agree(older(A), A * 2)


def test_captured_values_are_replicated(mesh: Mesh) -> None:
    scale = snp.ones(4) * 3

    def outer(a: Any, w: Any) -> Any:
        shift = w * 2
        return shard_map(lambda a: a * scale + shift, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(
            a
        )

    agree(jit(outer)(B, W), B * 3 + W * 2)
    agree(jit(grad(lambda a, w: snp.sum(outer(a, w) ** 2), 1))(B, W),
          (4 * (B * 3 + W * 2)).sum(0))  # fmt: skip


def test_the_compiler_shards_along_free_axes(mesh: Mesh) -> None:
    def f(a: Any, b: Any) -> Any:
        assert a.shape == (2, 8)
        return lax.pmax(snp.tanh(a @ b), "x")

    part = shard_map(f, mesh=mesh, in_specs=(P("x"), P()), out_specs=P(), axis_names={"x"})
    a = device_put(A, NamedSharding(mesh, P("x")))
    b = device_put(B, NamedSharding(mesh, P(None, "y")))
    agree(part(a, b), np.tanh(A @ B).reshape(4, 2, 4).max(0))
    same = shard_map(f, mesh=mesh, in_specs=(P("x"), P()), out_specs=P(), auto={"y"})
    agree(same(a, b), part(a, b))


def test_nested_shard_map(mesh: Mesh) -> None:
    def inner(a: Any) -> Any:
        assert a.shape == (2, 4)
        return lax.psum(a, ("x", "y")), a * lax.axis_index("x")

    def outer(a: Any) -> Any:
        assert a.shape == (2, 8)
        return shard_map(
            inner, mesh=mesh, in_specs=P(None, "y"), out_specs=(P(), P(None, "y")),
            axis_names={"y"},
        )(a)  # fmt: skip

    cut = shard_map(
        outer, mesh=mesh, in_specs=P("x"), out_specs=(P(), P("x")), axis_names={"x"},
        check_vma=False,
    )  # fmt: skip
    total, places = cut(A)
    agree(total, A.reshape(4, 2, 2, 4).sum((0, 2)))
    agree(places, A * np.repeat(np.arange(4), 2)[:, None])
    agree(grad(lambda a: snp.sum(cut(a)[0] ** 2))(A),
          np.tile(2 * A.reshape(4, 2, 2, 4).sum((0, 2)), (4, 2)))  # fmt: skip


@pytest.mark.parametrize("check", [True, False])
def test_derivatives_of_shard_map(mesh: Mesh, check: bool) -> None:
    cut = shard_map(
        lambda a, b: lax.psum(snp.tanh(a @ b), "y"),
        mesh=mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x"), check_vma=check,
    )  # fmt: skip

    def plain(a: Any, b: Any) -> Any:
        return snp.tanh(a[:, :4] @ b[:4]) + snp.tanh(a[:, 4:] @ b[4:])

    def loss(f: Any) -> Any:
        return lambda a, b: snp.sum(f(a, b) ** 2)

    ways: list[Callable[[Any], Any]] = [
        lambda f: grad(f, (0, 1)),
        lambda f: jit(grad(f, (0, 1))),
    ]
    for way in ways:
        for made, expected in zip(way(loss(cut))(A, B), way(loss(plain))(A, B), strict=True):
            agree(made, expected)
    for made, expected in zip(jvp(cut, (A, B), (A, B)), jvp(plain, (A, B), (A, B)), strict=True):
        agree(made, expected)
    y, pull = vjp(cut, A, B)
    for made, expected in zip(pull(y), vjp(plain, A, B)[1](y), strict=True):
        agree(made, expected)
    agree(linearize(cut, A, B)[1](A, B), jvp(plain, (A, B), (A, B))[1])
    agree(jacrev(cut)(A, B)[0], jacrev(plain)(A, B)[0])
    agree(jacfwd(cut)(A, B)[0], jacrev(plain)(A, B)[0])


@pytest.mark.parametrize("check", [True, False])
def test_gradients_of_replicated_arguments_are_sums(mesh: Mesh, check: bool) -> None:
    cut = shard_map(
        lambda x, w: lax.pmean(snp.sum(snp.sin(x * w)), ("x", "y")),
        mesh=mesh, in_specs=(P("x"), P()), out_specs=P(), check_vma=check,
    )  # fmt: skip

    def plain(x: Any, w: Any) -> Any:
        return snp.sum(snp.sin(x * w)) / 4

    agree(grad(cut, 1)(B, W), grad(plain, 1)(B, W))
    agree(grad(cut, 0)(B, W), grad(plain, 0)(B, W))
    agree(hessian(cut, 1)(B, W), hessian(plain, 1)(B, W), 1e-3)


def test_gradients_inside_distinguish_replicated_values(mesh: Mesh) -> None:
    def inside(f: Any, **options: Any) -> Any:
        return shard_map(f, mesh=mesh, **options)

    # The loss is replicated: the gradient on each device is that of its own shard.
    total = grad(lambda x: lax.psum(snp.sum(x**2), ("x", "y")))
    agree(inside(total, in_specs=P(("x", "y")), out_specs=P(("x", "y")))(A), 2 * A)
    agree(
        inside(total, in_specs=P(("x", "y")), out_specs=P(("x", "y")), check_vma=False)(A), 16 * A
    )

    # The weights are replicated: their gradient is the sum over the devices.
    def of_weights(w: Any, x: Any) -> Any:
        return grad(lambda w: snp.sum(w * x))(w)

    agree(inside(of_weights, in_specs=(P(), P("x")), out_specs=P())(W, B), B.sum(0))

    # The weights vary: each device has its own gradient.
    def of_copies(w: Any, x: Any) -> Any:
        return of_weights(lax.pvary(w, "x"), x)

    agree(inside(of_copies, in_specs=(P(), P("x")), out_specs=P("x"))(W, B),
          B.reshape(4, 2, 4).sum(1).reshape(-1))  # fmt: skip

    def trained(w: Any, xs: Any) -> Any:
        def step(w: Any, x: Any) -> Any:
            loss, g = value(w, x)
            return w - 0.1 * g, loss

        def value(w: Any, x: Any) -> Any:
            def loss(w: Any) -> Any:
                return lax.pmean(snp.sum(snp.sin(w * x)), "x")

            return loss(w), grad(loss)(w)

        return lax.scan(step, w, xs)

    def plainly(w: Any, xs: Any) -> Any:
        for x in xs:
            w = w - 0.1 * (np.cos(w * x) * x).sum() / 4
        return w

    xs = np.arange(12, dtype=np.float32).reshape(3, 4)
    made, _ = inside(trained, in_specs=(P(), P(None, "x")), out_specs=(P(), P()))(np.float32(0.5),
                                                                                 xs)  # fmt: skip
    agree(made, plainly(0.5, xs))


def test_custom_derivative_rules_inside(mesh: Mesh) -> None:
    @custom_vjp
    def times(w: Any, x: Any) -> Any:
        return w * x

    times.defvjp(
        lambda w, x: (w * x, (w, x)),
        lambda saved, g: (lax.psum(g * saved[1], "x"), g * saved[0]),
    )

    def of_weights(w: Any, x: Any) -> Any:
        return grad(lambda w: snp.sum(checkpoint(times)(w[None] * snp.ones((2, 1)), x)))(w)

    cut = shard_map(of_weights, mesh=mesh, in_specs=(P(), P("x")), out_specs=P())
    agree(cut(W, B), B.sum(0))


def test_vmap_of_shard_map(mesh: Mesh) -> None:
    cut = shard_map(
        lambda a, b: (lax.psum(a @ b, "y"), lax.all_gather(a, "x")),
        mesh=mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=(P("x"), P(None, "x", "y")),
        check_vma=False,
    )  # fmt: skip
    batch = np.stack([A, 2 * A, 3 * A])
    made = vmap(cut, in_axes=(0, None))(batch, B)
    for i in range(3):
        for one, other in zip(made, cut(batch[i], B), strict=True):
            agree(one[i], other)
    named = vmap(lambda a: shard_map(
        lambda a: a - lax.pmean(a, ("b", "x")), mesh=mesh, in_specs=P("x"), out_specs=P("x")
    )(a), axis_name="b")  # fmt: skip
    mean = batch.reshape(3, 4, 2, 8).mean((0, 1))
    agree(named(batch), batch - np.tile(mean, (4, 1)))


def test_random_numbers_loops_and_branches_inside(mesh: Mesh) -> None:
    def f(a: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return lax.ppermute(c, "x", [(i, (i + 1) % 4) for i in range(4)]), lax.psum(c, "x")

        last, sums = lax.scan(step, a, None, length=4)
        return lax.cond(snp.sum(sums) > 0, lambda: last, lambda: -last)

    cut = shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    agree(cut(A), A * np.sign(A.sum()))


def test_the_traced_program_has_the_same_results(mesh: Mesh) -> None:
    """The reference interpreter runs the traced program before partitioning."""
    cut = shard_map(
        lambda a, b: lax.psum(a @ b, "y"), mesh=mesh, in_specs=(P("x", "y"), P("y")),
        out_specs=P("x"),
    )  # fmt: skip
    (made,) = run(jit(cut).lower(A, B).module, [A, B])
    agree(made, A @ B)


def test_none_as_spec_of_arguments(mesh: Mesh) -> None:
    def g(a: Any, kind: Any, b: Any) -> Any:
        assert kind == ("some", "words")
        return a + b

    cut = shard_map(g, mesh=mesh, in_specs=(P("x"), None, None), out_specs=P("x"))
    agree(cut(B, ("some", "words"), W), B + W)
    assert shard_map(lambda x: x, mesh=mesh, in_specs=None, out_specs=P())(3.0) == 3


def test_axis_index_groups_along_several_axes(mesh: Mesh) -> None:
    groups = [[0, 1, 2, 3], [4, 5, 6, 7]]
    cut = shard_map(
        lambda a: lax.psum(a, ("x", "y"), axis_index_groups=groups),
        mesh=mesh, in_specs=P(("x", "y")), out_specs=P(("x", "y")), check_vma=False,
    )  # fmt: skip
    agree(cut(B), np.repeat(B.reshape(2, 4, 4).sum(1), 4, 0))


def test_vmap_with_spmd_axis_name(mesh: Mesh) -> None:
    seen = []

    def g(a: Any) -> Any:
        seen.append(a.shape)
        return lax.psum(a, "x")

    cut = shard_map(g, mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False)
    batch = np.stack([A, 2 * A])
    spread = jit(vmap(cut, spmd_axis_name="y"))
    agree(spread(batch), batch.reshape(2, 4, 2, 8).sum(1))
    text = spread.lower(batch).as_text()
    assert "in_axes=[[[y], [x], []]], out_axes=[[[y], [], []]]" in text
    assert vmap(cut, spmd_axis_name="y")(batch[:1]).shape == (1, 2, 8)


def test_uneven_pad_fills_indivisible_dimensions_with_zeros(
    mesh: Mesh,
) -> None:
    x = np.arange(14, dtype=np.float32).reshape(7, 2)

    def total(a: Any) -> Any:
        return lax.psum(a.sum(0), "x")

    f = shard_map(total, mesh=mesh, in_specs=P("x"), out_specs=P(), uneven="pad")
    placed = device_put(x, NamedSharding(mesh, P("x")), uneven="pad")
    for result in (f(x), jit(f)(x), f(placed)):
        np.testing.assert_array_equal(np.asarray(result), x.sum(0))
    twice = shard_map(lambda a: a * 2, mesh, P("x"), P("x"), uneven="pad")(x)
    np.testing.assert_array_equal(np.asarray(twice), 2 * x)
    gradient = grad(lambda z: f(z).sum())(x)
    np.testing.assert_array_equal(np.asarray(gradient), np.ones_like(x))
