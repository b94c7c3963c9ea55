"""JAX programs with meshes and devices."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shardir as sd
from shardir.frontend.errors import ShardingError
from shardir.frontend.interop.jax_shardings import convert_sharding, convert_spec
from shardir.interop.jax import from_jax
from shardir.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

X = np.random.default_rng(0).standard_normal((16, 8)).astype("float32")
MESH = jax.sharding.AbstractMesh((4, 2), ("data", "model"))
JP = jax.sharding.PartitionSpec


def local(function: Any, into: Any, out: Any, **options: Any) -> Any:
    """Map `function` over the shards of its argument, by JAX."""
    return jax.shard_map(function, mesh=MESH, in_specs=into, out_specs=out, **options)


def both(function: Any) -> Any:
    """Return the result of a function where every device of a mesh has a part of one array."""
    return from_jax(function)(X)


def test_psum() -> None:
    total = local(lambda x: lax.psum(x, "data"), JP("data", "model"), JP(None, "model"))
    np.testing.assert_allclose(both(total), X.reshape(4, 4, 8).sum(0), rtol=1e-5)


def test_pmax_and_pmin() -> None:
    both_ends = local(
        lambda x: (lax.pmax(x, "data"), lax.pmin(x, ("data", "model"))),
        JP("data", "model"), (JP(None, "model"), JP()), check_vma=False,
    )  # fmt: skip
    high, low = both(both_ends)
    np.testing.assert_array_equal(high, X.reshape(4, 4, 8).max(0))
    np.testing.assert_array_equal(low, X.reshape(4, 4, 2, 4).min((0, 2)))


def test_permutations() -> None:
    def moved(x: Any) -> Any:
        there = lax.ppermute(x, "data", [(i, (i + 1) % 4) for i in range(4)])
        whole = lax.all_gather(there, "data", tiled=True)
        mine = lax.psum_scatter(whole, "data", scatter_dimension=0, tiled=True)
        turned = lax.all_to_all(mine, "model", 0, 1, tiled=True)
        return turned + lax.axis_index("data").astype(jnp.float32)

    found = both(local(moved, JP("data", "model"), JP(("data", "model"), None)))
    rolled = 4 * np.roll(X.reshape(4, 4, 8), 1, 0)
    expected = rolled + np.arange(4, dtype="float32")[:, None, None]
    np.testing.assert_allclose(found, expected.reshape(16, 8), rtol=1e-5)


def test_gradients_of_shard_map() -> None:
    def loss(w: Any, x: Any) -> Any:
        def piece(w: Any, x: Any) -> Any:
            return lax.pmean(jnp.mean(jnp.sin(x @ w)), "data")

        return jax.shard_map(piece, mesh=MESH, in_specs=(JP(), JP("data")), out_specs=JP())(w, x)

    w = X[:8, :4]
    expected = jax.grad(lambda w, x: jnp.mean(jnp.sin(x @ w)))(w, X)
    np.testing.assert_allclose(sd.grad(from_jax(loss))(w, X), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(from_jax(jax.grad(loss))(w, X), expected, rtol=1e-4, atol=1e-6)


def test_a_constraint_refers_to_the_mesh_with_its_axes() -> None:
    def held(x: Any) -> Any:
        y = lax.with_sharding_constraint(
            x * 2, jax.sharding.NamedSharding(MESH, JP("data", "model"))
        )
        return y + 1

    found = from_jax(held)(X)
    np.testing.assert_array_equal(found, X * 2 + 1)
    assert found.sharding.spec == P("data", "model")


def test_a_spec_refers_to_the_entered_mesh() -> None:
    def held(x: Any) -> Any:
        return lax.with_sharding_constraint(x * 2, JP(None, "model"))

    with sd.make_mesh((4, 2), ("data", "model")):
        found = from_jax(held)(X)
    assert found.sharding.spec == P(None, "model")


def test_explicit_axes_are_kept() -> None:
    explicit = jax.sharding.AbstractMesh(
        (4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Explicit,) * 2
    )

    def summed(x: Any) -> Any:
        return jnp.sum(jax.sharding.reshard(x, JP("data", "model")), axis=1) * 2

    imported = from_jax(summed)
    with sd.make_mesh((4, 2), ("data", "model")), jax.sharding.use_abstract_mesh(explicit):
        assert imported(X).sharding.spec == P("data")


RAGGED = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0])


@pytest.mark.parametrize(
    ("function", "shapes", "spec"),
    [
        (lambda x, y: lax.dot(x, y, out_sharding=JP("data", "model")), ((8, 4), (4, 6)),
         P("data", "model")),
        (lambda x, y: jnp.einsum("ij,jk->ik", x, y, out_sharding=JP(None, "model")),
         ((8, 4), (4, 6)), P(None, "model")),
        (lambda x, y: lax.ragged_dot_general(x, y, jnp.full(2, 4), RAGGED,
                                             out_sharding=JP("data", None)),
         ((8, 4), (2, 4, 6)), P("data", None)),
        (lambda x, y: lax.conv_general_dilated(x, y, (1, 1), "SAME",
                                               out_sharding=JP("data", None, None, None)),
         ((8, 2, 4, 4), (3, 2, 3, 3)), P("data", None, None, None)),
        (lambda x: lax.reduce_sum(x, (1,), out_sharding=JP("data")), ((8, 4),), P("data")),
        (lambda x: x + jax.random.bits(jax.random.key(0), (8, 8), out_sharding=JP("data", "model")),
         ((8, 8),), P("data", "model")),
    ],
)  # fmt: skip
def test_the_out_sharding_of_an_operation(function: Any, shapes: Any, spec: P) -> None:
    explicit = jax.sharding.AbstractMesh(
        (4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Explicit,) * 2
    )
    args = [np.ones(shape, np.float32) for shape in shapes]
    with sd.make_mesh((4, 2), ("data", "model")), jax.sharding.use_abstract_mesh(explicit):
        assert from_jax(function)(*args).sharding.spec == spec


def test_unconstrained_dimensions_stay_unconstrained() -> None:
    free = JP.UNCONSTRAINED

    def held(x: Any) -> Any:
        return lax.with_sharding_constraint(x, jax.sharding.NamedSharding(MESH, JP(free, "model")))

    mesh = sd.make_mesh((4, 2), ("data", "model"))
    found = from_jax(held)(sd.device_put(X, NamedSharding(mesh, P("data"))))
    assert found.sharding.spec == P("data", "model")


def test_shardings_of_jit_are_kept() -> None:
    sharding = jax.sharding.NamedSharding(MESH, JP("data"))
    doubled = jax.jit(lambda x: x * 2, out_shardings=sharding)
    assert from_jax(lambda x: doubled(x) + 1)(X).sharding.spec == P("data")


def test_an_abstract_mesh_refers_to_the_mesh_of_the_program() -> None:
    small = jax.sharding.AbstractMesh((1, 1), ("data", "model"))

    def held(x: Any) -> Any:
        return lax.with_sharding_constraint(x, jax.sharding.NamedSharding(small, JP("data")))

    with AbstractMesh((16, 4), ("data", "model")):
        text = from_jax(held).lower(X).as_text()
    assert "mesh @mesh = [data=16, model=4]" in text
    assert "f32[16@data, 8@-]" in text


class Odd(jax.sharding.Sharding):
    """A sharding that is not a NamedSharding."""

    @property
    def device_set(self) -> Any:
        return {0, 1}

    def __repr__(self) -> str:
        return "Odd()"


def test_shardings_without_names_are_errors() -> None:
    with pytest.raises(sd.ShardirError) as caught:
        convert_sharding(Odd())
    assert str(caught.value).startswith(
        "Odd() of JAX is not a NamedSharding, which is the only supported kind; make it one, over "
        "a mesh with named axes"
    )


def test_the_mesh_of_a_program_may_differ_from_the_entered_mesh() -> None:
    theirs = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    def doubled(x: Any) -> Any:
        whole = jax.shard_map(
            lambda x: lax.psum(2 * x, "data"), mesh=theirs, in_specs=JP("data"), out_specs=JP()
        )
        return whole(x)

    def held(x: Any) -> Any:
        return lax.with_sharding_constraint(doubled(x), JP("data"))

    with sd.make_mesh((1,), ("data",)):
        np.testing.assert_array_equal(from_jax(held)(X), 2 * X)
    with sd.make_mesh((4, 2), ("data", "model")):
        np.testing.assert_array_equal(from_jax(doubled)(X), 2 * X)


def test_shard_map_bodies_depend_on_mesh_sizes() -> None:
    def summed(x: Any, mesh: Any) -> Any:
        return jax.shard_map(
            lambda x: lax.psum(x, "data"), mesh=mesh, in_specs=JP("data"), out_specs=JP()
        )(x)

    with AbstractMesh((8, 2), ("data", "model")):
        with pytest.raises(ShardingError) as caught:
            from_jax(lambda x: summed(x, MESH)).lower(X)
        from_jax(lambda x: summed(x, None)).lower(X)
    assert str(caught.value).startswith(
        "shard_map of JAX over data=4, model=2, on a mesh of data=8, model=2; omit its mesh to use "
        "the current mesh"
    )


def test_unreduced_and_reduced_axes_of_explicit_meshes() -> None:
    """The gradient of an array with a reduced axis is unreduced, until `reshard` sums it."""
    kinds = (jax.sharding.AxisType.Explicit,) * 2
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"), axis_types=kinds)
    reshard = jax.sharding.reshard

    def loss(w: Any, x: Any) -> Any:
        return (jnp.einsum("ab,bc->ac", x, w) ** 2).sum()

    def gradient(w: Any, x: Any) -> Any:
        held = reshard(w, JP(reduced={"data"}))
        return reshard(jax.grad(loss)(held, reshard(x, JP("data"))), JP())

    def product(w: Any, x: Any) -> Any:
        x, w = reshard(x, JP(None, "data")), reshard(w, JP("data"))
        made = jnp.einsum("ab,bc->ac", x, w, out_sharding=JP(unreduced={"data"}))
        return reshard(made, JP("data"))

    w = np.random.default_rng(1).standard_normal((8, 4)).astype("float32")
    with jax.sharding.use_abstract_mesh(mesh):
        found = [from_jax(function)(w, X) for function in (gradient, product)]
    wanted = [jax.grad(loss)(w, X), X @ w]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-5, atol=1e-5)
    assert found[1].sharding.spec == P("data", None)
    spec = JP(None, JP.UNCONSTRAINED, reduced={"data"})
    assert convert_spec(spec) == P(None, P.UNCONSTRAINED, reduced={"data"})
