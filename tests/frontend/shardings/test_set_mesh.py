"""`set_mesh`, and `smap` along one axis of the current mesh."""

import threading
from typing import Any

import jax
import numpy as np
import pytest

import shardir as sd
from shardir import P, lax, numpy as snp
from shardir.frontend.errors import ArgumentError, MeshError
from shardir.sharding import AbstractMesh, AxisType
from tests.error_assertions import first_line, raw

X = np.arange(32, dtype="f").reshape(8, 4)


def test_use_abstract_mesh_arranges_the_devices_of_the_entered_mesh() -> None:
    mesh = sd.make_mesh((4, 2), ("a", "b"), devices=sd.devices()[::-1])
    other = AbstractMesh((8,), ("c",))
    with sd.set_mesh(mesh):
        with sd.sharding.use_abstract_mesh(mesh.abstract_mesh) as entered:
            assert sd.sharding.get_mesh() is entered is mesh
        with sd.sharding.use_abstract_mesh(other) as entered:
            assert sd.sharding.get_mesh() is entered == mesh.update((8,), ("c",), AxisType.Auto)
            placed = sd.device_put(X, P("c"))
            assert placed.sharding.device_assignment == mesh.device_assignment
            assert sd.jit(lambda x: x + 1, out_shardings=P("c"))(X).sharding.spec == P("c")
        kinds = mesh.abstract_mesh.update(axis_types=AxisType.Explicit)
        with sd.sharding.use_abstract_mesh(kinds):
            assert sd.sharding.get_mesh() == mesh.update(axis_types=AxisType.Explicit)
        with sd.sharding.use_abstract_mesh(AbstractMesh((), ())):
            assert sd.sharding.get_mesh().empty
        assert sd.sharding.get_mesh() is mesh
        with (
            pytest.raises(MeshError) as caught,
            sd.sharding.use_abstract_mesh(AbstractMesh(4, "a")),
        ):
            pass
        assert first_line(caught) == (
            "use_abstract_mesh has AbstractMesh('a': 4, axis_types=(Auto,)) of 4 devices, and "
            "Mesh('a': 4, 'b': 2, device_ids=[7, 6, 5, 4, 3, 2, 1, 0]) with 8 devices is entered; "
            "use a mesh of as many devices"
        )
        assert sd.sharding.get_mesh() is mesh
    with sd.sharding.use_abstract_mesh(other) as entered:
        assert entered is sd.sharding.get_mesh() is other
    with pytest.raises(MeshError) as wrong:
        sd.sharding.use_abstract_mesh(raw(3))
    assert first_line(wrong) == "use_abstract_mesh takes an AbstractMesh, got 3"


def explicit_mesh(kind: AxisType = AxisType.Explicit) -> Any:
    return sd.make_mesh((2, 2), ("x", "y"), axis_types=(kind, kind), devices=sd.devices()[:4])


def spec_in_type(x: Any) -> Any:
    return sd.typeof(x).sharding.spec


def test_use_abstract_mesh_changes_the_types_of_axes_while_a_function_is_traced() -> None:
    mesh = explicit_mesh()
    seen: list[Any] = []

    @sd.jit
    def all_auto(x: Any) -> Any:
        auto = mesh.abstract_mesh.update(axis_types=AxisType.Auto)
        with sd.sharding.use_abstract_mesh(auto):
            y = sd.reshard(x * 2, P(None, None))
            seen.extend([spec_in_type(y), spec_in_type(y @ y.T)])
            z = y @ y.T
        return sd.reshard(z, P("x", None))

    @sd.jit
    def one_auto(x: Any) -> Any:
        with sd.sharding.use_abstract_mesh(
            mesh.abstract_mesh.update_axis_types({"x": AxisType.Auto})
        ):
            y = snp.sin(sd.reshard(x, P(None, "y")))
            seen.append(spec_in_type(y))
            z = snp.einsum("xy,yz->xz", y, y.T, out_sharding=P(None, None))
        return sd.reshard(z, P("x", None))

    with sd.sharding.use_mesh(mesh):
        x = sd.device_put(X, P("x", "y"))
        for call, expected in ((all_auto, 4 * X @ X.T), (one_auto, np.sin(X) @ np.sin(X).T)):
            found = call(x)
            assert found.sharding == sd.NamedSharding(mesh, P("x", None))
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert seen == [P(None, None), P(None, None), P(None, "y")]


def test_use_abstract_mesh_gives_types_in_a_program_on_auto_axes() -> None:
    mesh = explicit_mesh(AxisType.Auto)
    seen: list[Any] = []

    @sd.jit
    def f(x: Any) -> Any:
        with sd.sharding.use_abstract_mesh(mesh.abstract_mesh.update(axis_types=AxisType.Explicit)):
            y = snp.sin(sd.reshard(x * 2, P(None, "y")))
            seen.append(spec_in_type(y))
        seen.append(spec_in_type(y))
        return y

    with sd.sharding.use_mesh(mesh):
        found = f(sd.device_put(X, P("x", "y")))
    np.testing.assert_allclose(found, np.sin(2 * X), rtol=1e-6)
    assert seen == [P(None, "y"), P(None, None)]
    assert found.sharding.spec == P(None, "y")


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
        "in_axes of smap has -1; its entries are axis numbers from 0 to 63, and None for a "
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
