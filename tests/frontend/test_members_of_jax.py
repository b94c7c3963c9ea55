"""Members of public classes that JAX's classes have, too."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import NamedSharding, P, numpy as snp
from shardir.frontend.distributed.processes import ProcessGroup
from shardir.frontend.errors import ArgumentError, MeshError, ShardingError
from shardir.sharding import AbstractMesh, AxisType
from tests.error_assertions import error_line, raw

X = np.arange(32, dtype=np.float32).reshape(8, 4)
MESH = sd.make_mesh((4, 2), ("x", "y"))
SHARDING = NamedSharding(MESH, P("x"))


def test_members_of_meshes() -> None:
    manual = MESH.abstract_mesh.update_axis_types({"y": AxisType.Manual})
    assert (manual.manual_axes, MESH.manual_axes) == (("y",), ())
    assert [AbstractMesh((), ()).is_scalar, sd.make_mesh((1,), "x").is_scalar] == [False, False]
    assert MESH.local_mesh is MESH
    without_devices = sd.Mesh(np.array(None), ())
    assert without_devices.local_mesh is without_devices


def test_the_local_mesh_has_the_devices_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    group = ProcessGroup(1, (2, 2, 2, 2))
    monkeypatch.setattr("shardir.frontend.shardings.mesh.process_group", lambda: group)
    monkeypatch.setattr("shardir.frontend.shardings.devices.process_group", lambda: group)
    assert MESH.local_mesh.device_ids == (2, 3)
    assert MESH.local_mesh.shape == {"x": 1, "y": 2}
    mixed = sd.Mesh(MESH.devices.ravel()[[2, 0, 3, 1, 4, 5, 6, 7]], ("x",))
    text = error_line(MeshError, lambda: mixed.local_mesh)
    assert text.startswith("the devices of process 1 are no contiguous block of Mesh('x': 8, ")
    elsewhere = sd.Mesh(MESH.devices[:1], ("x", "y"))
    text = error_line(MeshError, lambda: elsewhere.local_mesh)
    assert text.startswith("the devices of process 1 are no contiguous block of Mesh(")


def test_an_abstract_mesh_has_no_local_mesh() -> None:
    assert error_line(MeshError, lambda: MESH.abstract_mesh.local_mesh) == (
        "AbstractMesh('x': 4, 'y': 2, axis_types=(Auto, Auto)) has no devices of this process; use "
        "a Mesh of devices() instead"
    )


def test_members_of_shardings() -> None:
    assert SHARDING.replicated_axes == {"y"}
    assert NamedSharding(MESH, P(("x", "y"))).replicated_axes == frozenset()
    assert SHARDING.update(spec=P("y")) == NamedSharding(MESH, P("y"))
    assert SHARDING.update(spec=("y", None)) == NamedSharding(MESH, P("y", None))
    assert SHARDING.update(mesh=MESH.abstract_mesh).mesh is MESH.abstract_mesh
    assert SHARDING.update(memory_kind="device") == SHARDING
    assert error_line(ShardingError, lambda: SHARDING.update(memory_kind="pinned_host")).startswith(
        "the memory kind 'pinned_host' is not supported: "
    )
    assert SHARDING.has_addressable_devices


def test_members_of_specs() -> None:
    spec = P("x", unreduced={"y"})
    assert spec.partitions == ("x",)
    assert type(spec.partitions) is tuple
    assert spec.update(("z", None)) == P("z", None, unreduced={"y"})
    assert spec.update(unreduced=(), reduced=("y",)) == P("x", reduced={"y"})


def test_the_position_of_a_device_in_its_process() -> None:
    assert [device.local_hardware_id for device in sd.devices()[:3]] == [0, 1, 2]


def test_the_cost_of_a_lowered_program() -> None:
    lowered = sd.jit(lambda x: sd.jit(snp.matmul)(x, x.T), in_shardings=SHARDING).lower(X)
    cost = lowered.cost_analysis()
    assert cost["flops"] == 2 * 8 * 8 * 4
    assert cost["bytes accessed"] >= (8 * 4 * 2 + 8 * 8) * 4
    assert lowered.compile().cost_analysis()["flops"] == cost["flops"] // 4


def test_the_size_of_a_type() -> None:
    kind = sd.typeof(snp.ones((8, 4), "bfloat16"))
    assert (kind.itemsize, kind.nbytes) == (2, 64)


def test_the_functions_of_custom_derivatives_and_rules() -> None:
    def fun(n: int, x: Any) -> Any:
        return x * n

    def rule(*args: Any) -> Any:
        return args

    with_jvp: Any = sd.custom_jvp(fun, nondiff_argnums=(0,))
    with_vjp: Any = sd.custom_vjp(fun, nondiff_argnums=(0,))
    with_vmap: Any = sd.custom_vmap(fun)
    assert [each.fun for each in (with_jvp, with_vjp, with_vmap)] == [fun] * 3
    assert (with_jvp.nondiff_argnums, with_vjp.nondiff_argnums) == ((0,), (0,))
    unset = with_jvp.jvp, with_vjp.fwd, with_vjp.bwd, with_vmap.vmap_rule
    assert unset == (None, None, None, None)
    assert (with_jvp.symbolic_zeros, with_vjp.symbolic_zeros) == (False, False)
    with_jvp.defjvp(rule, symbolic_zeros=True)
    with_vjp.defvjp(rule, fun, symbolic_zeros=True)
    with_vmap.def_vmap(rule)
    assert (with_jvp.jvp, with_vjp.fwd, with_vjp.bwd) == (rule, rule, fun)
    assert with_vmap.vmap_rule is rule
    assert (with_jvp.symbolic_zeros, with_vjp.symbolic_zeros) == (True, True)
    assert with_vjp.optimize_remat is False


def exported(fun: Any, *args: Any, **options: Any) -> Any:
    return sd.export.export(sd.jit(fun, **options))(*args)


def test_the_derivative_of_an_exported_program() -> None:
    def fun(a: Any, b: Any) -> Any:
        return {"s": snp.sin(a["x"]) * b, "t": b.sum()}

    program = exported(fun, {"x": X}, X)
    cotangents = snp.cos(X), snp.float32(3)
    _, pullback = sd.vjp(fun, {"x": X}, X)
    gradients = pullback({"s": cotangents[0], "t": cotangents[1]})
    for each in (program, sd.export.deserialize(program.serialize())):
        derivative = each.vjp()
        assert each.has_vjp()
        assert derivative.fun_name == "fun_vjp"
        found = derivative.call(X, X, *cotangents)
        np.testing.assert_allclose(found[0], gradients[0]["x"], rtol=1e-6)
        np.testing.assert_allclose(found[1], gradients[1], rtol=1e-6)
    assert program.disabled_safety_checks == ()


def test_an_exported_program_of_integers_has_no_derivative() -> None:
    program = exported(lambda n: n * 2, np.ones(3, np.int32))
    assert error_line(ArgumentError, lambda: program.vjp()) == (
        "<lambda> has an argument or a result of type int32, which has no derivative; export "
        "jit(grad(fun, argnums)) instead"
    )


def test_the_shardings_of_an_exported_program() -> None:
    def fun(x: Any, y: Any) -> Any:
        return x + y, y.sum()

    program = exported(fun, X, X, in_shardings=(SHARDING, None), out_shardings=(SHARDING, None))
    other = sd.Mesh(MESH.devices[::-1], ("a", "b"))
    assert program.in_shardings_jax(MESH) == (NamedSharding(MESH, P("x")), None)
    assert program.out_shardings_jax(other) == (NamedSharding(other, P("a")), None)
    again = sd.export.deserialize(program.serialize())
    assert again.in_shardings_jax(MESH) == (NamedSharding(MESH, P("x")), None)
    assert not again.has_vjp()
    unsharded = exported(fun, X, X)
    assert unsharded.in_shardings_jax(MESH) == (None, None)


@pytest.mark.parametrize(
    ("mesh", "text"),
    [
        (
            sd.make_mesh((2,), "x"),
            "the program was exported for 8 devices, and Mesh('x': 2, axis_types=(Auto,)) has 2; "
            "pass a mesh of as many devices",
        ),
        (
            sd.make_mesh((8,), "x"),
            "the axes of Mesh('x': 8, axis_types=(Auto,)) cannot state a sharding of the program; "
            "pass a mesh with the axes x=4, y=2",
        ),
        (raw(3), "the shardings are stated on a Mesh, got 3; make one with make_mesh"),
    ],
)
def test_a_mesh_that_cannot_state_the_shardings_is_an_error(mesh: Any, text: str) -> None:
    program = exported(lambda x: x, X, in_shardings=SHARDING)
    assert error_line(ShardingError, lambda: program.in_shardings_jax(mesh)) == text
