"""Types of operations that broadcast on meshes of Explicit axes: those of JAX 0.10.2."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
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


def types(fun: Any, *operands: str) -> str:
    return trace_types(Program("", fun, operands, ""))


def test_the_result_of_clamp_has_the_sharding_of_its_operand() -> None:
    for operands in (
        ("f32[8]", "f32[8@x]", "f32[8@y]"),
        ("f32[8@y]", "f32[8@x]", "f32[8@(x,y)]"),
        ("f32[8]", "f32[8@x]", "f32[]"),
    ):
        assert types(lax.clamp, *operands) == "float32[8@x]"
    assert types(lax.clamp, "f32[8@x]", "f32[8]", "f32[8@y]") == "float32[8]"


def test_norms_and_repetitions_of_sharded_arrays() -> None:
    assert types(snp.linalg.norm, "f32[8@x,16@y]") == "float32[]"
    assert types(lambda a: snp.linalg.norm(a, keepdims=True), "f32[8@x]") == "float32[1]"
    assert types(lambda a: snp.tile(a, (2, 1, 1)), "f32[8,4@x,1]") == "float32[16,4@x,1]"
    assert types(lambda a: snp.tile(a, (2, 1)), "f32[8@x]") == "float32[2,8@x]"
    with pytest.raises(ShardingTypeError):
        types(lambda a: snp.tile(a, 2), "f32[8@x]")
    values = np.arange(8, dtype="float32")
    placed = reshard(values, P(("x", "y")))
    np.testing.assert_allclose(snp.linalg.norm(placed), np.linalg.norm(values), rtol=1e-6)


@pytest.mark.parametrize(
    ("fun", "name", "operands", "result"),
    [
        (snp.matmul, "matmul", ("f32[4@x,8,16]", "f32[4,16,8@y]"), "float32[4@x,8,8@y]"),
        (snp.matmul, "matmul", ("f32[4,8,16]", "f32[4@x,16,8]"), "float32[4,8,8]"),
        (snp.vecdot, "vecdot", ("f32[4@x,16]", "f32[4,16]"), "float32[4@x]"),
    ],
)
def test_batch_dimensions_have_one_sharding(
    fun: Any, name: str, operands: tuple[str, str], result: str
) -> None:
    with pytest.raises(ShardingTypeError) as caught:
        types(fun, *operands)
    left, right = (each.replace("f32", "float32") for each in operands)
    assert str(caught.value).partition("\n")[0] == (
        f"the operands of {name}, {left} and {right}, have different shardings along a batch "
        "dimension; reshard one of them (sharding.reshard)"
    )
    with sd.config(explicit_sharding="lenient"):
        assert types(fun, *operands) == result


def test_batch_dimensions_of_constants_and_of_size_one_have_any_sharding() -> None:
    assert types(lambda a: a @ snp.ones((4, 16, 8)), "f32[4@x,8,16]") == "float32[4@x,8,8]"
    assert types(snp.matmul, "f32[4@x,8,16]", "f32[1,16,8@y]") == "float32[4@x,8,8@y]"
    assert types(snp.matmul, "f32[2,4@x,8,16]", "f32[4@x,16,8]") == "float32[2,4@x,8,8]"
    assert types(snp.matmul, "f32[4@x,8,16]", "f32[16,8@y]") == "float32[4@x,8,8@y]"
