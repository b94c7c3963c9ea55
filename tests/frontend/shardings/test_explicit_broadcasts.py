"""`broadcast_arrays` on meshes of Explicit axes: the types are those of JAX 0.10.2."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.errors import ShardingTypeError
from shardir.sharding import AxisType, NamedSharding, PartitionSpec as P, reshard, use_mesh
from tests.frontend.shardings.explicit_programs import Program, make_explicit_mesh, trace_types


@pytest.fixture(autouse=True)
def mesh() -> Iterator[sd.Mesh]:
    mesh = make_explicit_mesh()
    with use_mesh(mesh):
        yield mesh


def types_of(*operands: str) -> str:
    return trace_types(Program("", snp.broadcast_arrays, operands, ""))


BOTH = "float32[8@x,16@y];float32[8@x,16@y]"
ROWS = "float32[8@x,16];float32[8@x,16]"


@pytest.mark.parametrize(
    ("operands", "types"),
    [
        (("f32[8@x,16@y]", "f32[8@x,1]"), BOTH),
        (("f32[8@x,16]", "f32[1,16@y]"), BOTH),
        (("f32[8@x,1]", "f32[1,16@y]"), BOTH),
        (("f32[8,16@y]", "f32[8@x,1]"), BOTH),
        (("f32[8@x,16@y]", "f32[]"), BOTH),
        (("f32[16]", "f32[8@x,16]"), ROWS),
        (("f32[8@x,16]", "f32[8,1]"), ROWS),
        (("f32[8@x,16]", "f32[16]", "f32[1,16@y]"), f"{BOTH};float32[8@x,16@y]"),
        (("f32[8@x,16]", "f32[8,16@y]"), "float32[8@x,16];float32[8,16@y]"),
        (("f32[8@x,16]",), "float32[8@x,16]"),
        (("f32[8,16]", "f32[16]"), "float32[8,16];float32[8,16]"),
    ],
)
def test_arrays_of_different_shapes_get_one_sharding(operands: tuple[str, ...], types: str) -> None:
    assert types_of(*operands) == types


@pytest.mark.parametrize(
    ("operands", "problem"),
    [
        (
            ("f32[8@x,16]", "f32[16@x]"),
            "the arrays of broadcast_arrays, float32[8@x,16] and float32[16@x], are sharded over "
            "'x' along two dimensions of their common shape; reshard one of them "
            "(sharding.reshard)",
        ),
        (
            ("f32[8@x,16]", "f32[8@y,1]"),
            "the arrays of broadcast_arrays, float32[8@x,16] and float32[8@y,1], have different "
            "shardings along dimension 0 of their common shape; reshard one of them "
            "(sharding.reshard)",
        ),
    ],
)
def test_a_conflict_is_refused_in_strict_mode(operands: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ShardingTypeError) as caught:
        types_of(*operands)
    assert str(caught.value).partition("\n")[0] == problem
    with sd.config(explicit_sharding="lenient"):
        assert types_of(*operands).startswith("float32[8@x,16];float32[8")


def test_eager_arrays_and_values() -> None:
    rows = reshard(np.arange(8, dtype="float32").reshape(8, 1), P("x"))
    row = reshard(np.arange(16, dtype="float32"), P("y"))
    made = snp.broadcast_arrays(rows, row)
    assert [str(sd.typeof(x)) for x in made] == BOTH.split(";")
    for x, expected in zip(made, np.broadcast_arrays(rows, row), strict=True):
        np.testing.assert_array_equal(np.asarray(x), expected)


def test_axes_of_type_auto_stay_open() -> None:
    mesh = sd.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))
    with use_mesh(mesh):
        found: list[str] = []

        def run(a: Any, b: Any) -> Any:
            made = snp.broadcast_arrays(a, b)
            found.extend(str(sd.typeof(x)) for x in made)
            return made

        a = sd.device_put(np.ones((8, 16), "float32"), NamedSharding(mesh, P("x", "y")))
        made = sd.jit(run)(a, np.ones(16, "float32"))
        assert found == ROWS.split(";")
        np.testing.assert_array_equal(np.asarray(made[1]), np.ones((8, 16)))
