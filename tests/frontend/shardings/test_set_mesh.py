"""`set_mesh`, and `smap` along one axis of the current mesh."""

import threading
from typing import Any

import jax
import numpy as np
import pytest

import shardir as sd
from shardir import P, lax
from shardir.frontend.errors import ArgumentError, MeshError

X = np.arange(32, dtype="f").reshape(8, 4)


def test_use_abstract_mesh_keeps_the_devices_of_an_entered_mesh_with_the_same_axes() -> None:
    mesh, other = sd.make_mesh((4, 2), ("a", "b")), sd.make_mesh((8,), ("c",)).abstract_mesh
    with sd.set_mesh(mesh):
        with sd.sharding.use_abstract_mesh(mesh.abstract_mesh):
            assert sd.sharding.get_mesh() is mesh
        with sd.sharding.use_abstract_mesh(other):
            assert sd.sharding.get_mesh() == other
        assert sd.sharding.get_mesh() is mesh
    with pytest.raises(MeshError, match="use_mesh takes a Mesh, got 3"):
        sd.sharding.use_abstract_mesh(3)  # type: ignore[arg-type]


def test_set_mesh_applies_to_a_block_or_permanently() -> None:
    mesh, other = sd.make_mesh((4, 2), ("a", "b")), sd.make_mesh((8,), ("c",))
    with sd.set_mesh(mesh):
        assert sd.sharding.get_mesh() == mesh
        placed = sd.device_put(X, P("a", "b"))
        assert placed.sharding == sd.NamedSharding(mesh, P("a", "b"))
        with sd.set_mesh(other):
            assert sd.sharding.get_mesh() == other
            assert sd.jit(lambda x: x, out_shardings=P("c"))(X).sharding.spec == P("c")
        assert sd.sharding.get_mesh() == mesh
        seen: list[Any] = []

        def elsewhere() -> None:
            try:
                seen.append(sd.sharding.get_mesh())
            except MeshError as error:
                seen.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert isinstance(seen[0], MeshError)
        before = sd.set_mesh(other)
        assert sd.sharding.get_mesh() == other
        with before:
            pass
        assert sd.sharding.get_mesh() == mesh
        sd.set_mesh(None)
        with pytest.raises(MeshError) as caught:
            sd.sharding.get_mesh()
    assert str(caught.value).startswith(
        "no mesh is entered; enter one with `with mesh:` or set_mesh(mesh)\n"
    )


def test_invalid_meshes_are_errors() -> None:
    with pytest.raises(MeshError) as caught:
        sd.set_mesh(3)  # type: ignore[arg-type]
    assert str(caught.value).startswith("set_mesh takes a Mesh, got 3\n")

    def f(x: Any) -> Any:
        sd.set_mesh(sd.make_mesh((8,), ("c",)))
        return x

    with pytest.raises(MeshError) as traced:
        sd.jit(f)(X)
    assert str(traced.value).startswith(
        "set_mesh is called while a function is traced; call it outside, or use `with mesh:` "
        "inside\n"
    )


def test_nested_smap_along_several_axes() -> None:
    def program(lib: Any, lax: Any) -> Any:
        def inner(x: Any, scale: Any) -> Any:
            return lax.psum(x * scale, "b")

        def outer(x: Any, scale: Any) -> Any:
            inside = lib.smap(inner, in_axes=(1, None), out_axes=None, axis_name="b")
            return inside(x, scale) + lax.axis_index("a")

        return lib.jit(lib.smap(outer, in_axes=(0, None), out_axes=0, axis_name="a"))

    with sd.set_mesh(sd.make_mesh((4, 2), ("a", "b"))):
        found = program(sd, lax)(X, np.float32(2))
    summed = 2 * (X[:, :2] + X[:, 2:])
    np.testing.assert_array_equal(found, summed + np.repeat(np.arange(4), 2)[:, None])
    one = jax.make_mesh((1, 1), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    with jax.set_mesh(one):
        program(jax, jax.lax)(X, np.float32(2))


def test_invalid_axes_of_smap_are_errors() -> None:
    def refused(**options: Any) -> str:
        with pytest.raises(ArgumentError) as caught:
            sd.smap(lambda x: x, **options)
        return str(caught.value).partition("\n")[0]

    assert refused(out_axes=0, axis_name="a") == (
        "in_axes of smap is missing; give a number, None or a tuple"
    )
    assert refused(in_axes=-1, out_axes=0, axis_name="a") == (
        "in_axes of smap has -1; its entries are nonnegative axis numbers, and None for a "
        "replicated value"
    )
    assert refused(in_axes=0, out_axes=0, axis_name=("a", "b")) == (
        "axis_name of smap is ('a', 'b'), which is not a string"
    )


def test_a_sharding_on_a_mesh_without_axes_requests_nothing() -> None:
    def f(x: Any) -> Any:
        to = sd.typeof(x).sharding
        x = sd.reshard(lax.with_sharding_constraint(sd.device_put(x, to), to), to)
        ones = sd.random.bernoulli(sd.random.key(0), 1.0, (3,), out_sharding=to)
        return sd.numpy.zeros(3, out_sharding=to) + x * ones

    assert sd.typeof(sd.numpy.ones(3)).sharding.mesh.axis_names == ()
    for call in (f, sd.jit(f)):
        assert call(sd.numpy.ones(3)).tolist() == [1, 1, 1]
