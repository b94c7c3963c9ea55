"""Functions of `jit` that are called in several contexts: meshes, bound axes and programs."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir.numpy as snp
from shardir import device_put, jit, lax, make_mesh, shard_map, typeof, vmap
from shardir.lax import with_sharding_constraint
from shardir.sharding import AxisType, NamedSharding, PartitionSpec as P, use_mesh

MESH = make_mesh((2, 2), ("a", "b"))
X = np.arange(4, dtype=np.float32)


def test_the_size_of_a_bound_axis_is_part_of_a_trace() -> None:
    inner = jit(lambda x: x * lax.psum(1, "i"))
    for size in (2, 3, 2):
        outer = jit(vmap(inner, axis_name="i"))
        np.testing.assert_array_equal(outer(X[:size]), X[:size] * size)
    for size in (2, 4, 2):
        part = partial(
            shard_map, mesh=make_mesh((size,), ("i",)), in_specs=P("i"), out_specs=P("i")
        )
        np.testing.assert_array_equal(jit(part(inner))(X), X * size)


def test_sharding_types_are_part_of_a_trace() -> None:
    mesh = make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Explicit,) * 2)

    @jit
    def inner(x: Any) -> Any:
        return x * (2 if typeof(x).sharding.spec[0] == "a" else 3)

    outer = jit(lambda x, y: (inner(x), inner(y)))
    ones = np.ones((4, 4), np.float32)
    x, y = (device_put(ones, NamedSharding(mesh, spec)) for spec in (P("a", None), P(None, "b")))
    with use_mesh(mesh):
        for results in (outer(x, y), outer(y, x)[::-1]):
            np.testing.assert_array_equal(results[0], 2 * ones)
            np.testing.assert_array_equal(results[1], 3 * ones)


def test_constraints_refer_to_the_program_in_which_they_are() -> None:
    along_a, along_b = (NamedSharding(MESH, P(axis)) for axis in ("a", "b"))
    inner = jit(lambda x: with_sharding_constraint(x * 2, along_a))

    @jit
    def first(x: Any) -> Any:
        return inner(x)

    @jit
    def second(x: Any) -> Any:
        return with_sharding_constraint(x + 1, along_b), inner(x)

    for _ in range(2):
        assert first(X).sharding.is_equivalent_to(along_a, 1)
        one, other = second(X)
        assert one.sharding.is_equivalent_to(along_b, 1)
        assert other.sharding.is_equivalent_to(along_a, 1)
        np.testing.assert_array_equal(other, X * 2)


@pytest.mark.parametrize("axis_names", [{"a"}, {"a", "b"}])
def test_manual_computations_refer_to_the_mesh_of_their_program(axis_names: set[str]) -> None:
    total = shard_map(
        lambda x: lax.psum(snp.sum(x), "a"),
        mesh=MESH,
        in_specs=P("a"),
        out_specs=P(),
        axis_names=axis_names,
    )
    inner = jit(total)
    other = NamedSharding(make_mesh((2, 2), ("b", "a")), P("a"))
    for factor in (2, 3, 4):
        outer = jit(lambda x, factor=factor: inner(x) + inner(factor * x))
        for x in (X, device_put(X, NamedSharding(MESH, P("a"))), device_put(X, other)):
            assert outer(x) == (1 + factor) * X.sum()
