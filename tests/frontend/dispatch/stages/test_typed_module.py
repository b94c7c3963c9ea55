"""`in_avals` and `out_avals` of traced programs and stages."""

from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir.interop.in_place_of_jax import shardir_as_jax
from shardir.interop.jax_shim.program import Program
from tests.optional_dependencies import require


def texts(types: Any) -> list[str]:
    return list(map(repr, sd.tree.leaves(types)))


def test_programs_have_lists_of_types() -> None:
    def add(x: Any, y: Any) -> Any:
        return x + y, x * 2

    y = snp.ones((3, 2), "float16")
    module = sd.make_ir(add)(1.0, y)
    assert module.in_avals == [sd.typeof(1.0), sd.typeof(y)]
    assert list(map(repr, module.out_avals)) == [
        "ShapedArray(float16[3,2])", "ShapedArray(float32[], weak_type=True)",
    ]  # fmt: skip
    assert module.out_avals[0].dtype == np.float16
    assert str(module) == str(sd.jit(add).lower(1.0, y).module)
    again, shapes = sd.make_ir(add, return_shape=True)(1.0, y)
    assert again.out_avals == module.out_avals
    assert shapes[0].shape == (3, 2)
    assert sd.jit(add).trace(1.0, y).jaxpr.in_avals == module.in_avals


def test_captured_arrays_and_static_arguments_are_no_arguments() -> None:
    captured = snp.ones(1000)
    module = sd.make_ir(lambda x, n: x * n + captured, static_argnums=1)(np.float32(2), 3)
    assert len(module.main.body.params) == 2
    assert texts(module.in_avals) == ["ShapedArray(float32[])"]
    assert texts(module.out_avals) == ["ShapedArray(float32[1000])"]


def test_types_state_explicit_axes_and_keys() -> None:
    mesh = sd.make_mesh((4,), ("x",), axis_types=(sd.sharding.AxisType.Explicit,))
    with sd.set_mesh(mesh):
        x = sd.device_put(np.ones((8, 2), "float32"), sd.P("x", None))
        module = sd.make_ir(lambda x, key: (x.T, sd.random.split(key)))(x, sd.random.key(0))
    assert texts(module.in_avals) == ["ShapedArray(float32[8@x,2])", "ShapedArray(key<fry>[])"]
    assert texts(module.out_avals) == ["ShapedArray(float32[2,8@x])", "ShapedArray(key<fry>[2])"]


def test_stages_have_trees_of_types() -> None:
    x, y = 1.0, {"y": np.ones(3, "float32")}

    def f(x: Any, *, y: Any) -> dict[str, Any]:
        return {"sum": x + y["y"]}

    traced = sd.jit(f).trace(x, y=y)
    expected = ((sd.typeof(x),), {"y": {"y": sd.typeof(y["y"])}})
    for stage in (traced, traced.lower(), traced.lower().compile()):
        assert stage.in_avals == expected
    assert str(traced.out_avals["sum"]) == str(traced.lower().out_avals["sum"]) == "float32[3]"


def test_the_types_are_those_of_jax() -> None:
    require("jax")
    import jax
    import jax.numpy as jnp

    def program(np_: Any) -> Any:
        return lambda x, y, z: (x + y, {"a": y * 2, "b": (z > 1, np_.sum(z))})

    arguments = (1.0, np.ones((3, 2), "float16"), np.arange(4, dtype="int32"))
    expected = jax.make_jaxpr(program(jnp))(*arguments)
    found = sd.make_ir(program(snp))(*arguments)
    assert list(map(repr, found.in_avals)) == list(map(repr, expected.in_avals))
    assert list(map(repr, found.out_avals)) == list(map(repr, expected.out_avals))
    names: dict[str, Any] = {}
    with shardir_as_jax():
        Program().execute(
            "import jax\n"
            "program = jax.make_jaxpr(lambda x: x)(1.5)\n"
            "types = [f'{a.shape} {a.dtype}' for a in program.out_avals]\n",
            names,
        )
    assert names["types"] == ["() float32"]
