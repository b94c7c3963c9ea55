"""Axis types, and the arguments that explicit axes allow."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.frontend.errors import ArgumentError, MeshError, NoMeshError, ShardingError
from shardir.frontend.shardings.mesh import AbstractMesh, Mesh, make_mesh
from shardir.sharding import (
    AxisType,
    NamedSharding,
    PartitionSpec as P,
    auto_axes,
    explicit_axes,
    get_abstract_mesh,
    reshard,
    set_mesh,
    use_mesh,
)
from tests.error_assertions import first_line

A = np.arange(128, dtype=np.float32).reshape(8, 16)
B = np.arange(128, dtype=np.float32).reshape(16, 8) / 100


def explicit(*sizes: int) -> Mesh:
    return make_mesh(sizes or (4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


def key() -> Any:
    return sd.random.key(0)


def test_auto_axes_may_be_stated() -> None:
    mesh = make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    assert mesh == make_mesh((2, 4), ("x", "y"))
    assert mesh.axis_types == (AxisType.Auto, AxisType.Auto)
    assert repr(mesh.axis_types) == "(Auto, Auto)"
    assert AbstractMesh((2,), ("x",), axis_types=AxisType.Auto).axis_types == (AxisType.Auto,)


def test_explicit_axes_are_reported() -> None:
    mesh = make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Explicit))
    assert mesh.axis_types == (AxisType.Auto, AxisType.Explicit)
    assert str(mesh) == "Mesh('x': 2, 'y': 4, axis_types=(Auto, Explicit))"
    assert (mesh.auto_axes, mesh.explicit_axes) == (("x",), ("y",))
    assert mesh.abstract_mesh.axis_types == mesh.axis_types
    assert mesh != make_mesh((2, 4), ("x", "y"))
    assert pickle.loads(pickle.dumps(mesh)) is mesh
    assert pickle.loads(pickle.dumps(mesh.abstract_mesh)) is mesh.abstract_mesh
    with set_mesh(mesh):
        assert get_abstract_mesh() == mesh.abstract_mesh
    assert get_abstract_mesh().empty


def test_other_axis_types_are_errors() -> None:
    with pytest.raises(MeshError) as caught:
        make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,))
    assert str(caught.value).partition("\n")[0] == (
        "a Mesh has axes ('x', 'y') and axis_types (Auto,); give one type for each axis"
    )


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (set_mesh, "set_mesh has"),
        (use_mesh, "use_mesh has"),
        (Mesh.__enter__, "`with mesh:` has"),
        (lambda mesh: NamedSharding(mesh, P("x")), "a NamedSharding has"),
    ],
)
def test_a_mesh_with_manual_axes_is_not_entered(use: Callable[[Mesh], Any], words: str) -> None:
    mesh = make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Manual))
    with pytest.raises(MeshError) as caught:
        use(mesh)
    assert str(caught.value).partition("\n")[0] == (
        f"{words} Mesh('x': 2, 'y': 4, axis_types=(Auto, Manual)), which contains manual axes; "
        "they are possible inside of shard_map only; omit axis_types, and map the function with "
        "shard_map"
    )


ASKED: dict[str, tuple[Callable[[], Any], P]] = {
    "reshard": (lambda: reshard(A, P(None, "y")), P(None, "y")),
    "reshard twice": (lambda: reshard(reshard(A, P("x")), P("y", "x")), P("y", "x")),
    "dot": (lambda: snp.dot(A, B, out_sharding=P("x")), P("x")),
    "matmul": (lambda: snp.matmul(A, B, out_sharding=P(None, "y")), P(None, "y")),
    "einsum": (lambda: snp.einsum("ij,jk->ik", A, B, out_sharding=P("x")), P("x")),
    "tensordot": (lambda: snp.tensordot(A, B, 1, out_sharding=P("x")), P("x")),
    "dot_general": (
        lambda: lax.dot_general(A, B, (((1,), (0,)), ((), ())), out_sharding=P("x")),
        P("x"),
    ),
    "reshape": (lambda: snp.reshape(A, (4, 32), out_sharding=P("x")), P("x")),
    "x.reshape": (lambda: snp.asarray(A).reshape(4, 32, out_sharding=P("x")), P("x")),
    "lax.reshape": (lambda: lax.reshape(A, (4, 32), out_sharding=P("x")), P("x")),
    "ravel": (lambda: snp.asarray(A).ravel(out_sharding=P("x")), P("x")),
    "flatten": (lambda: snp.asarray(A).flatten(out_sharding=P("x")), P("x")),
    "broadcast_to": (lambda: snp.broadcast_to(A[0], (8, 16), out_sharding=P("x")), P("x")),
    "repeat": (lambda: snp.repeat(A, 2, axis=0, out_sharding=P("x")), P("x")),
    "zeros": (lambda: snp.zeros((8, 8), out_sharding=P("x")), P("x")),
    "ones": (lambda: snp.ones((8, 8), out_sharding=P("x")), P("x")),
    "full": (lambda: snp.full((8, 8), 3.0, out_sharding=P("x")), P("x")),
    "empty": (lambda: snp.empty((8, 8), out_sharding=P("x")), P("x")),
    "arange": (lambda: snp.arange(8, out_sharding=P("x")), P("x")),
    "zeros_like": (lambda: snp.zeros_like(A, out_sharding=P("x")), P("x")),
    "ones_like": (lambda: snp.ones_like(A, out_sharding=P("x")), P("x")),
    "full_like": (lambda: snp.full_like(A, 2, out_sharding=P("x")), P("x")),
    "array": (lambda: snp.array(A, out_sharding=P("x")), P("x")),
    "asarray": (lambda: snp.asarray(A, out_sharding=P("x")), P("x")),
    "bincount": (lambda: snp.bincount(np.arange(8), length=8, out_sharding=P("x")), P("x")),
    "percentile": (lambda: snp.percentile(A, 50, axis=1, out_sharding=P("x")), P("x")),
    "iota": (lambda: lax.broadcasted_iota("int32", (8, 4), 0, out_sharding=P("x")), P("x")),
    "get": (
        lambda: snp.asarray(A).at[np.array([0, 2, 4, 6])].get(out_sharding=P("x")),
        P("x"),
    ),
    "set": (
        lambda: snp.asarray(A).at[np.array([0, 2])].set(0.0, out_sharding=P("x")),
        P("x"),
    ),
    "divide": (
        lambda: snp.asarray(A).at[np.array([0, 2])].divide(2.0, out_sharding=P("x")),
        P("x"),
    ),
    "normal": (lambda: sd.random.normal(key(), (8, 4), out_sharding=P("x")), P("x")),
    "uniform": (lambda: sd.random.uniform(key(), (8, 4), out_sharding=P("x")), P("x")),
    "randint": (lambda: sd.random.randint(key(), (8, 4), 0, 9, out_sharding=P("x")), P("x")),
    "permutation": (lambda: sd.random.permutation(key(), A, out_sharding=P("x")), P("x")),
    "bernoulli": (lambda: sd.random.bernoulli(key(), 0.5, (8,), out_sharding=P("x")), P("x")),
    "reduce_sum": (lambda: lax.reduce_sum(A, (1,), out_sharding=P("x")), P("x")),
    "initializer": (
        lambda: sd.nn.initializers.glorot_normal()(key(), (8, 4), out_sharding=P("x")),
        P("x"),
    ),
    "zeros of an initializer": (
        lambda: sd.nn.initializers.zeros(key(), (8, 4), np.float32, P("x")),
        P("x"),
    ),
    "auto_axes": (lambda: auto_axes(lambda a: a * 2, out_sharding=P("x"))(A), P("x")),
    "explicit_axes": (
        lambda: explicit_axes(lambda a: a * 2, in_sharding=(P("x"),))(A),
        P("x"),
    ),
}


def plain(asked: Callable[[], Any]) -> Any:
    """Return the value on a mesh of one device, which satisfies every layout."""
    with set_mesh(explicit(1, 1)):
        return np.asarray(asked())


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("compiled", [False, True])
def test_results_have_the_requested_layout(name: str, compiled: bool) -> None:
    asked, spec = ASKED[name]
    mesh = explicit()
    with set_mesh(mesh):
        made = sd.jit(asked)() if compiled else asked()
    assert made.sharding.is_equivalent_to(NamedSharding(mesh, spec), made.ndim)
    np.testing.assert_allclose(np.asarray(made), plain(asked), rtol=1e-6)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", sorted(ASKED.keys() - {"auto_axes", "explicit_axes"}))
@pytest.mark.parametrize("compiled", [False, True])
def test_requested_layouts_name_explicit_axes(name: str, compiled: bool) -> None:
    asked, spec = ASKED[name]
    run = sd.jit(asked) if compiled else asked
    with set_mesh(make_mesh((4, 2), ("x", "y"))):
        with pytest.raises(ShardingError) as caught:
            run()
        with sd.config(explicit_sharding="lenient"):
            made = run()
    word = "out_shardings of reshard has" if "reshard" in name else "out_sharding has"
    (axis, *_) = P("x") if name == "reshard twice" else spec.mentioned_axes()
    assert str(caught.value).startswith(word)
    assert first_line(caught).endswith(
        f", and {axis!r} is an Auto axis of the mesh; name Explicit axes only, and constrain the "
        "value along Auto axes with lax.with_sharding_constraint"
    )
    np.testing.assert_allclose(np.asarray(made), plain(asked), rtol=1e-6)


def test_auto_axes_has_no_effect_on_auto_axes() -> None:
    with set_mesh(make_mesh((4, 2), ("x", "y"))):
        np.testing.assert_array_equal(auto_axes(lambda a: a * 2, out_sharding=P("x"))(A), A * 2)


def test_random_numbers_have_the_requested_sharding() -> None:
    run = sd.jit(lambda: sd.random.normal(key(), (8, 4), out_sharding=P("x", "y")))
    with set_mesh(explicit()):
        compiled = run.lower().compile()
    assert compiled.collectives() == []
    assert "random_bits_at" in compiled.as_text()
    assert "-> (f32[2, 2] of f32[8@x, 4@y])" in compiled.as_text()


def test_layouts_inside_of_transformations() -> None:
    mesh = explicit()

    def loss(w: Any, x: Any) -> Any:
        hidden = snp.dot(x, w, out_sharding=P("x", "y"))
        return (reshard(hidden, P("x")) ** 2).mean()

    def step(w: Any, x: Any) -> Any:
        return w - 0.1 * sd.grad(loss)(w, x), loss(w, x)

    w, xs = B[:, :4], np.stack([A, A + 1]) / 100
    with set_mesh(mesh):
        last, losses = sd.jit(lambda w, xs: lax.scan(step, reshard(w, P(None, "y")), xs))(w, xs)
        mapped = sd.jit(sd.vmap(sd.grad(loss), in_axes=(None, 0)))(w, xs)
    expected, told = w, []
    for x in xs:
        told.append(((x @ expected) ** 2).mean())
        expected = expected - 0.1 * (2 * x.T @ (x @ expected) / 32)
    np.testing.assert_allclose(losses, told, rtol=1e-5)
    np.testing.assert_allclose(last, expected, rtol=1e-5)
    assert last.sharding.is_equivalent_to(NamedSharding(mesh, P(None, "y")), 2)
    np.testing.assert_allclose(mapped, [2 * x.T @ (x @ w) / 32 for x in xs], rtol=1e-5)


def test_layouts_of_containers() -> None:
    mesh = explicit()
    by_name = {"a": NamedSharding(mesh, P("x")), "b": NamedSharding(mesh, P(None, "x"))}
    found = reshard({"a": A, "b": A}, by_name)
    assert {name: x.sharding.spec for name, x in found.items()} == {
        "a": P("x", None),
        "b": P(None, "x"),
    }


def test_invalid_layouts_are_errors() -> None:
    with pytest.raises(NoMeshError) as caught:
        reshard(A, P("x"))
    assert str(caught.value).startswith(
        "out_shardings of reshard has P('x',), which names no devices; "
        "write NamedSharding(mesh, P('x',)), or call it inside `with mesh:`"
    )
    with pytest.raises(ArgumentError, match=r"^out_sharding "):
        snp.dot(A, B, out_sharding="x")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^sin takes "):
        snp.sin(A, **{"out_sharding": P("x")})


@pytest.mark.parametrize("make", [snp.zeros, snp.ones, snp.empty, snp.asarray])
def test_invalid_placements_of_new_arrays_are_errors(make: Callable[..., Any]) -> None:
    with pytest.raises(ArgumentError) as error:
        make(3, device=sd.devices()[0], out_sharding=P())
    assert str(error.value).startswith(
        "both device and out_sharding are given; leave one of them out"
    )
    with pytest.raises(ArgumentError) as error:
        make(3, out_sharding=3)
    assert str(error.value).startswith("out_sharding has 3 of type int, which is not a sharding")
