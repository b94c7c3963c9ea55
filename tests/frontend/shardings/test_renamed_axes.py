"""Types inside of `use_abstract_mesh` with other axes than those of the program, as in JAX."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.frontend.errors import (
    IncompatibleDevicesError,
    ShardingMismatchError,
    ShardingTypeError,
)
from shardir.sharding import (
    AbstractMesh,
    AxisType,
    NamedSharding,
    PartitionSpec as P,
    auto_axes,
    reshard,
    use_abstract_mesh,
    use_mesh,
)
from tests.error_assertions import first_line
from tests.frontend.shardings.explicit_programs import make_explicit_mesh

X = np.arange(128, dtype=np.float32).reshape(8, 16)
OUTSIDE = AbstractMesh((4, 2), ("x", "y"), AxisType.Explicit)
RENAMED = [
    AbstractMesh((4, 2), ("p", "q"), AxisType.Explicit),
    AbstractMesh((2, 2, 2), ("p", "q", "r"), AxisType.Explicit),
    AbstractMesh((2, 4), ("p", "x"), AxisType.Explicit),
    AbstractMesh((8,), ("p",), AxisType.Explicit),
]


@pytest.fixture(autouse=True)
def mesh() -> Iterator[sd.Mesh]:
    """A mesh with the Explicit axes x=4 and y=2."""
    mesh = make_explicit_mesh()
    with use_mesh(mesh):
        yield mesh


def types_inside(
    fun: Callable[[Any], Any], x: Any, renamed: sd.Mesh | AbstractMesh
) -> tuple[list[str], sd.Array]:
    """Return the types of the results of `fun` inside of a block, and the last result."""
    seen: list[str] = []

    def run(x: Any) -> Any:
        with use_abstract_mesh(renamed):
            made = sd.tree.leaves(fun(x))
            seen.extend(str(sd.typeof(each)) for each in made)
            return made[-1]

    return seen, sd.jit(run)(x)


ACCEPTED: list[tuple[Callable[[Any], Any], tuple[str, ...]]] = [
    (lambda x: x, ("float32[8@x,16@y]",)),
    (snp.asarray, ("float32[8@x,16@y]",)),
    (lambda x: reshard(x, P("p")), ("float32[8@p,16]",)),
    (lambda x: snp.sin(reshard(x, P(None, "p"))), ("float32[8,16@p]",)),
    (lambda x: reshard(x, NamedSharding(make_explicit_mesh(), P("x"))), ("float32[8@x,16]",)),
    (lambda x: (reshard(x, P()), reshard(x, P("p"))), ("float32[8,16]", "float32[8@p,16]")),
    (lambda _: snp.zeros((8, 16), out_sharding=P("p")), ("float32[8@p,16]",)),
    (lambda _: snp.ones((8, 16)) * 2, ("float32[8,16]",)),
    (lambda x: sd.grad(lambda x: snp.sum(x * x))(reshard(x, P("p"))), ("float32[8@p,16]",)),
    (lambda x: lax.fori_loop(0, 2, lambda _, c: c * 2, reshard(x, P("p"))), ("float32[8@p,16]",)),
    (lambda x: lax.cond(True, lambda c: c, lambda c: -c, reshard(x, P("p"))), ("float32[8@p,16]",)),
    (lambda x: auto_axes(lambda a: a * 2, out_sharding=P("p"))(reshard(x, P())),
     ("float32[8@p,16]",)),
    (lambda x: sd.vmap(lambda row: row * 2)(reshard(x, P("p"))), ("float32[8@p,16]",)),
]  # fmt: skip


@pytest.mark.parametrize("renamed", RENAMED, ids=lambda each: str(each.axis_names))
def test_types_have_the_names_of_the_mesh_of_their_values(renamed: AbstractMesh) -> None:
    x = sd.device_put(X, NamedSharding(make_explicit_mesh(), P("x", "y")))
    for fun, expected in ACCEPTED:
        seen, _ = types_inside(fun, x, renamed)
        assert tuple(seen) == expected


@pytest.mark.parametrize("renamed", RENAMED, ids=lambda each: str(each.axis_names))
def test_values_are_those_without_the_block(renamed: AbstractMesh, mesh: sd.Mesh) -> None:
    x = sd.device_put(X, NamedSharding(mesh, P("x", "y")))

    def run(x: Any) -> Any:
        y = snp.sin(x)
        with use_abstract_mesh(renamed):
            y = snp.cumsum(reshard(y, P("p")) * 2, 1)
        return snp.sum(reshard(y, P("y")) ** 2)

    def plain(x: Any) -> Any:
        return snp.sum(snp.cumsum(snp.sin(x) * 2, 1) ** 2)

    np.testing.assert_allclose(sd.jit(run)(x), plain(X), rtol=1e-5)
    slope = sd.jit(sd.grad(run))(x)
    assert slope.sharding.spec == P("x", "y")
    np.testing.assert_allclose(slope, sd.grad(plain)(X), rtol=1e-4, atol=1e-3)


def test_a_result_has_the_mesh_of_the_block(mesh: sd.Mesh) -> None:
    x = sd.device_put(X, NamedSharding(mesh, P("x", "y")))
    for renamed in RENAMED:
        _, made = types_inside(lambda x: reshard(x, P("p")) * 2, x, renamed)
        assert made.sharding.spec == P("p", None)
        assert made.sharding.mesh.abstract_mesh == renamed
        assert made.sharding.device_assignment == mesh.device_assignment
        np.testing.assert_array_equal(made, 2 * X)


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (snp.sin, "operand 0 of sin, float32[8@x,16@y],"),
    (lambda x: x + 1, "operand 0 of add, float32[8@x,16@y],"),
    (lambda x: snp.ones((8, 16)) + x, "operand 1 of add, float32[8@x,16@y],"),
    (lambda x: x.T, "operand 0 of transpose, float32[8@x,16@y],"),
    (lambda x: sd.grad(lambda x: snp.sum(x * x))(x), "operand 0 of mul, float32[8@x,16@y],"),
    (lambda x: sd.vmap(lambda row: row * 2)(x), "operand 0 of mul, float32[16@y],"),
    (lambda x: sd.jit(lambda x: x * 2)(x), "operand 0 of mul, float32[8@x,16@y],"),
]


@pytest.mark.parametrize(("fun", "operand"), REFUSED)
@pytest.mark.parametrize("spec", [("x", "y"), ()])
def test_operations_on_values_of_the_mesh_outside_are_refused(
    fun: Callable[[Any], Any], operand: str, spec: tuple[str, ...], mesh: sd.Mesh
) -> None:
    x = sd.device_put(X, NamedSharding(mesh, P(*spec)))
    with pytest.raises(ShardingTypeError) as caught:
        types_inside(fun, x, RENAMED[0])
    if not spec:
        operand = operand.replace("@x", "").replace("@y", "")
    assert first_line(caught) == (
        f"{operand} is on Mesh('x': 4, 'y': 2), and the operation is on Mesh('p': 4, "
        "'q': 2); reshard it to this mesh first (sharding.reshard)"
    )
    with sd.config(explicit_sharding="lenient"):
        _, made = types_inside(fun, x, RENAMED[0])
    _, expected = types_inside(fun, x, OUTSIDE)
    np.testing.assert_allclose(made, expected, rtol=1e-5)


def test_operations_on_values_of_the_block_are_refused_outside(mesh: sd.Mesh) -> None:
    def run(x: Any) -> Any:
        with use_abstract_mesh(RENAMED[2]):
            y = reshard(x, P("x"))
        assert str(sd.typeof(y)) == "float32[8@x,16]"
        return y + x

    x = sd.device_put(X, NamedSharding(mesh, P("x", "y")))
    with pytest.raises(ShardingTypeError) as caught:
        sd.jit(run)(x)
    assert first_line(caught) == (
        "operand 0 of add, float32[8@x,16], is on Mesh('p': 2, 'x': 4), and the operation is "
        "on Mesh('x': 4, 'y': 2); reshard it to this mesh first (sharding.reshard)"
    )
    with sd.config(explicit_sharding="lenient"):
        compiled = sd.jit(run).lower(x).compile()
    np.testing.assert_array_equal(compiled(x), 2 * X)


def test_a_constraint_asserts_the_type_on_the_mesh_of_the_block(mesh: sd.Mesh) -> None:
    x = sd.device_put(X, NamedSharding(mesh, P("x", "y")))
    for spec in (P("p"), P()):
        with pytest.raises(ShardingMismatchError):
            types_inside(partial(lax.with_sharding_constraint, shardings=spec), x, RENAMED[0])
    seen, _ = types_inside(
        lambda x: lax.with_sharding_constraint(reshard(x, P("p")), P("p")), x, RENAMED[0]
    )
    assert seen == ["float32[8@p,16]"]


def test_the_devices_are_those_of_the_program_without_an_entered_mesh(mesh: sd.Mesh) -> None:
    x = sd.device_put(X, NamedSharding(mesh, P("x", "y")))
    with use_mesh(None):
        seen, made = types_inside(lambda x: reshard(x, P("p")) * 2, x, RENAMED[1])
    assert seen == ["float32[8@p,16]"]
    assert made.sharding.device_assignment == mesh.device_assignment
    np.testing.assert_array_equal(made, 2 * X)


def test_a_program_without_an_entered_mesh_has_values_on_several_meshes(mesh: sd.Mesh) -> None:
    other = sd.Mesh(mesh.devices.reshape(2, 4), ("y", "x"), AxisType.Explicit)
    to = NamedSharding(other, P("x"))
    x = sd.device_put(X, NamedSharding(mesh, P("x", "y")))
    y = sd.device_put(X, to)
    programs: list[Callable[[Any, Any], Any]] = [
        lambda x, _: reshard(x, to) * 2,
        lambda x, _: sd.device_put(x, to) * 2,
        lambda x, y: reshard(x * 1, to) + y,
        lambda x, _: sd.shard_map(lambda x: x * 2, mesh=other, in_specs=to.spec, out_specs=to.spec)(
            reshard(x, to)
        ),
    ]
    for entered in (None, other):
        for run in programs if entered is None else programs[:2]:
            with use_mesh(entered):
                made = sd.jit(run)(x, y)
            assert made.sharding.mesh == other
            assert made.sharding.spec in (P("x"), P("x", None))
            np.testing.assert_array_equal(made, 2 * X)
    with use_mesh(None), pytest.raises(ShardingTypeError) as caught:
        sd.jit(lambda x, y: x + y)(x, y)
    assert first_line(caught) == (
        "operand 1 of add, float32[8@x,16], is on Mesh('y': 2, 'x': 4), and the operation is on "
        "Mesh('x': 4, 'y': 2); reshard it to this mesh first (sharding.reshard)"
    )


@pytest.mark.parametrize("types", list(AxisType)[:2])
def test_meshes_with_another_order_of_devices_are_refused_or_exact(types: AxisType) -> None:
    first, second = (
        sd.Mesh(np.array(order, dtype=object).reshape(4, 2), ("x", "y"), types)
        for order in (sd.devices()[:8], sd.devices()[7::-1])
    )
    to = NamedSharding(second, P("x"))
    x, y = (sd.device_put(X, NamedSharding(each, P("x", "y"))) for each in (first, second))
    with use_mesh(None):
        for moved in (sd.device_put(x, to), sd.device_put(x, y.sharding) + 0 * y):
            np.testing.assert_array_equal(moved, X)
        refused: list[Callable[[], Any]] = [
            lambda: x + y,
            lambda: sd.jit(lambda x, y: x + y)(x, y),
            lambda: sd.jit(lambda x: lax.with_sharding_constraint(x, y.sharding))(x),
            lambda: sd.jit(lambda x: sd.device_put(x, to))(x),
            lambda: sd.jit(lambda x: x, out_shardings=to)(x),
        ]
        for run in refused:
            with pytest.raises(IncompatibleDevicesError) as caught:
                run()
            assert first_line(caught).startswith(
                "devices of all arrays of a computation should be the same, in the same order: "
            )
