"""Programs on meshes of Explicit axes that strict mode refuses, as JAX 0.10.2 does."""

from collections.abc import Iterator
from typing import Any

import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.frontend.errors import ShardingError, ShardingTypeError
from shardir.sharding import AxisType, NamedSharding, PartitionSpec as P, reshard, use_mesh
from tests.frontend.shardings.explicit_programs import Program, make_explicit_mesh, trace_types


@pytest.fixture(autouse=True)
def mesh() -> Iterator[sd.Mesh]:
    mesh = make_explicit_mesh()
    with use_mesh(mesh):
        yield mesh


def types_of(fun: Any, *operands: str) -> str:
    return trace_types(Program("", fun, operands, ""))


def refusal(fun: Any, *operands: str) -> str:
    """Return the first line of the error of strict mode; lenient mode accepts the program."""
    with sd.config(explicit_sharding="lenient"):
        assert types_of(fun, *operands)
    with pytest.raises((ShardingTypeError, ShardingError)) as caught:
        types_of(fun, *operands)
    return str(caught.value).partition("\n")[0]


def dot(**spec: Any) -> Any:
    return lambda a, b: snp.dot(a, b, out_sharding=P(None, None, **spec))


U, R = {"unreduced": {"y"}}, {"reduced": {"y"}}
HAS_SUMS = (
    "out_sharding has P(None, None, unreduced={{'y'}}), and the result of the "
    "operation, float32[8,8], has partial sums along {0}; state these axes, and change them "
    "afterwards with sharding.reshard"
)


@pytest.mark.parametrize(
    ("operands", "axes"),
    [
        (("f32[8,16]", "f32[16,8]"), "no axis"),
        (("f32[8,16@y]", "f32[16,8]"), "no axis"),
        (("f32[8,16@x]", "f32[16@x,8]"), "'x'"),
        (("f32[8,16@x]", "f32[16@y,8]"), "no axis"),
        (("f32[8,16@(x,y)]", "f32[16@(x,y),8]"), "'x' and 'y'"),
    ],
)
def test_products_are_unreduced_along_the_contracted_axes_only(
    operands: tuple[str, ...], axes: str
) -> None:
    assert refusal(dot(**U), *operands) == HAS_SUMS.format(axes)


def test_products_may_be_unreduced_along_the_contracted_axes() -> None:
    assert types_of(dot(**U), "f32[8@x,16@y]", "f32[16@y,8]") == "float32[8,8]{U:y}"
    assert types_of(dot(), "f32[8@x,16@y]", "f32[16@y,8]") == "float32[8,8]"

    def transposed(a: Any, b: Any) -> Any:
        return snp.einsum("ij,jk->ki", a, b, out_sharding=P(None, "x", **U))

    assert types_of(transposed, "f32[8,16@y]", "f32[16@y,8]") == "float32[8,8@x]{U:y}"

    def both(a: Any, b: Any) -> Any:
        return snp.einsum("ijk,jkl->il", a, b, out_sharding=P(unreduced={"x", "y"}))

    assert types_of(both, "f32[8,8@x,8@y]", "f32[8@x,8@y,4]") == "float32[8,4]{U:(x,y)}"


def test_sums_may_be_unreduced_along_a_part_of_the_summed_axes() -> None:
    def run(a: Any) -> Any:
        return lax.reduce_sum(a, (1,), out_sharding=P(None, **U))

    assert types_of(run, "f32[8,16@(x,y)]") == "float32[8]{U:y}"
    assert "has partial sums along no axis" in refusal(run, "f32[8@y,16@x]")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (U, {}, "float32[16,8]{U:y}, has partial sums along 'y'; state these axes, and change "
                "them afterwards with sharding.reshard"),
        ({}, U, "float32[16,8], has partial sums along no axis; state these axes, and change "
                "them afterwards with sharding.reshard"),
        (R, {}, "float32[16,8]{R:y}, has copies whose gradients are summed along 'y'; state these "
                "axes, and change them afterwards with sharding.reshard"),
        ({}, R, "float32[16,8], has copies whose gradients are summed along no axis; state these "
                "axes, and change them afterwards with sharding.reshard"),
    ],
)  # fmt: skip
def test_reshapes_keep_unreduced_and_reduced_axes(
    before: dict[str, Any], after: dict[str, Any], message: str
) -> None:
    def run(a: Any) -> Any:
        a = reshard(a, P(None, "x", **before))
        return snp.reshape(a, (16, 8), out_sharding=P("x", None, **after))

    assert refusal(run, "f32[8,16]").endswith(message)


@pytest.mark.parametrize("axes", [U, R])
def test_reshapes_to_a_stated_sharding_have_the_axes_of_the_operand(axes: dict[str, Any]) -> None:
    def run(a: Any) -> Any:
        a = reshard(a, P(None, "x", **axes))
        return snp.reshape(a, (16, 8), out_sharding=P("x", None, **axes))

    letter = "U" if axes is U else "R"
    assert types_of(run, "f32[8,16]") == f"float32[16@x,8]{{{letter}:y}}"


@pytest.mark.parametrize(
    ("operands", "number", "dim"),
    [
        (("f32[8,4@x,8,8]", "f32[4,4,3,3]"), 0, 1),
        (("f32[8,4,8,8]", "f32[4@x,4,3,3]"), 1, 0),
        (("f32[8,4@x,8,8]", "f32[4,4@x,3,3]"), 0, 1),
    ],
)
def test_convolutions_need_replicated_features_and_filters(
    operands: tuple[str, ...], number: int, dim: int
) -> None:
    def run(a: Any, b: Any) -> Any:
        return lax.conv_general_dilated(a, b, (1, 1), "SAME")

    assert refusal(run, *operands).endswith(
        f" is sharded over 'x' along dimension {dim}, so the sharding of the result of "
        "convolution is ambiguous; state the sharding of the result with "
        "out_sharding=PartitionSpec(...)"
    )

    def stated(a: Any, b: Any) -> Any:
        return lax.conv_general_dilated(a, b, (1, 1), "SAME", out_sharding=P(None, "x"))

    assert types_of(stated, *operands) == "float32[8,4@x,8,8]"

    def grad(a: Any, b: Any) -> Any:
        return sd.grad(lambda b: run(a, b).sum())(b)

    assert types_of(grad, "f32[8@x,4,8,8]", "f32[4,4,3,3]") == "float32[4,4,3,3]"


@pytest.mark.parametrize(
    ("operand", "shape", "result"),
    [
        ("f32[8@x,16@y]", (4, 2, 4, 4), None),
        ("f32[8@x,2,4@y,2]", (16, 8), None),
        ("f32[4@x,2@y]", (8, 1), None),
        ("f32[8@x,16]", (1, 8, 4, 4), None),
        ("f32[8@x,16,1]", (8, 4, 4), None),
        ("f32[8@x,16,4]", (1, 8, 64), None),
        ("f32[8@x,16@y]", (8, 4, 4), "float32[8@x,4@y,4]"),
        ("f32[8@x,16@y]", (4, 2, 16), "float32[4@x,2,16@y]"),
        ("f32[8@x,16@y]", (8, 1, 4, 4), "float32[8@x,1,4@y,4]"),
        ("f32[4@x,2@y,4]", (8, 4), "float32[8@(x,y),4]"),
        ("f32[4@x,2@y,4]", (4, 8), "float32[4@x,8@y]"),
        ("f32[8@x,1,16@y]", (1, 8, 16, 1), "float32[1,8@x,16@y,1]"),
        ("f32[8,16]", (4, 2, 4, 4), "float32[4,2,4,4]"),
    ],
)
def test_reshapes_split_or_merge_one_sharded_dimension(
    operand: str, shape: tuple[int, ...], result: str | None
) -> None:
    def run(a: Any) -> Any:
        return snp.reshape(a, shape)

    if result is not None:
        assert types_of(run, operand) == result
        return
    assert refusal(run, operand).endswith(
        ", which is neither the split of one dimension nor the merge of adjacent dimensions into "
        "one; state the sharding of the result with out_sharding=PartitionSpec(...) of reshape, or "
        "reshape one dimension at a time"
    )

    def stated(a: Any) -> Any:
        return snp.reshape(a, shape, out_sharding=P("x"))

    if shape[0] % 4 == 0:
        assert types_of(stated, operand).startswith(f"float32[{shape[0]}@x,")


def test_updates_are_sharded_only_where_the_updated_array_is() -> None:
    def run(a: Any, i: Any, b: Any) -> Any:
        return a.at[i].add(b)

    message = refusal(run, "f32[8,16]", "i32[4]", "f32[4,16@y]")
    assert message.startswith(
        "operand 2 of scatter, float32[4,16@y], is sharded over 'y' along dimension 1, and operand "
        "0 of scatter, float32[8,16], is not; reshard one of them (sharding.reshard)"
    )
    assert types_of(run, "f32[8,16@y]", "i32[4]", "f32[4,16]") == "float32[8,16@y]"
    assert types_of(run, "f32[8,16@y]", "i32[4]", "f32[4,16@y]") == "float32[8,16@y]"


def test_products_have_the_batch_axes_of_their_first_operand() -> None:
    def batched(a: Any, b: Any) -> Any:
        return lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,))))

    assert types_of(batched, "f32[8,4,16]", "f32[8@x,16,4]") == "float32[8,4,4]"
    assert types_of(batched, "f32[8@x,4,16]", "f32[8,16,4]") == "float32[8@x,4,4]"
    assert types_of(batched, "f32[8,4@x,16]", "f32[8@x,16,4]") == "float32[8,4@x,4]"
    assert types_of(lambda b: batched(snp.ones((8, 4, 16)), b), "f32[8@x,16,4]") == (
        "float32[8@x,4,4]"
    )


def test_the_condition_of_where_has_the_dimensions_of_the_values_only() -> None:
    def run(c: Any, a: Any) -> Any:
        a = reshard(a, P("x", None, **U))
        return snp.where(c > 0, a, a)

    assert types_of(run, "f32[8@x,16]", "f32[8,16]") == "float32[8@x,16]{U:y}"
    message = refusal(lambda c, a: snp.where(c > 0, a, a), "f32[8,16]", "f32[8@x,16]")
    assert message == (
        "operand 0 of select, bool[8,16], and operand 1 of select, float32[8@x,16], have different "
        "shardings, and select needs the same one; reshard one of them (sharding.reshard)"
    )


@pytest.mark.parametrize(
    ("operands", "result"),
    [
        (("f32[8,16]", "f32[8@x,16@y]"), "float32[8@x,16@y]"),
        (("f32[16@y]", "f32[8@x,16]"), "float32[8@x,16@y]"),
        (("f32[8@x,1]", "f32[8,16@y]"), "float32[8@x,16@y]"),
        (("f32[8@x,16]", "f32[16]"), "float32[8@x,16]"),
        (("f32[16@x]", "f32[8@x,16]"), None),
        (("f32[16@x]", "f32[8,16@y]"), None),
    ],
)
def test_where_broadcasts_operands_of_different_shapes_to_a_common_sharding(
    operands: tuple[str, ...], result: str | None
) -> None:
    def run(c: Any, a: Any) -> Any:
        return snp.where(c > 0, a, 0.0)

    if result is None:
        assert "'x'" in refusal(run, *operands)
    else:
        assert types_of(run, *operands) == result


def test_where_with_a_scalar_condition_broadcasts_the_values() -> None:
    def run(a: Any, b: Any) -> Any:
        return snp.where(True, a, b)

    assert types_of(run, "f32[8@x,16]", "f32[16@y]") == "float32[8@x,16@y]"
    assert "have different shardings" in refusal(run, "f32[8@x,16]", "f32[8,16]")


@pytest.mark.parametrize(
    ("run", "operands", "result"),
    [
        (snp.logaddexp, ("f32[8@x,16]", "f32[16@y]"), "float32[8@x,16@y]"),
        (snp.mod, ("f32[8@x,16]", "f32[16@y]"), "float32[8@x,16@y]"),
        (snp.heaviside, ("f32[8@x,16]", "f32[8,16@y]"), "float32[8@x,16@y]"),
        (lambda a, b: snp.select([a > 0, b > 0], [a, 1.0], 0.0), ("f32[8@x,16]", "f32[8,16]"),
         "float32[8@x,16]"),
        (lambda a, b: sd.nn.softmax(a, where=b > 0), ("f32[8@x,16]", "f32[8,16]"),
         "float32[8@x,16]"),
    ],
)  # fmt: skip
def test_functions_that_select_combine_the_shardings_of_their_operands(
    run: Any, operands: tuple[str, ...], result: str
) -> None:
    assert types_of(run, *operands) == result


@pytest.mark.parametrize("which", [lax.select, lax.select_n])
def test_cases_of_select_have_one_sharding(which: Any) -> None:
    def run(c: Any, a: Any, b: Any) -> Any:
        return which(c > 0, a, b)

    assert types_of(run, "f32[8@x,16]", "f32[8@x,16]", "f32[8@x,16]") == "float32[8@x,16]"
    for operands in (
        ("f32[8,16]", "f32[8@x,16]", "f32[8@x,16]"),
        ("f32[8@x,16]", "f32[8@x,16]", "f32[8,16]"),
    ):
        assert "of select, " in refusal(run, *operands)


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (lambda a: reshard(a, P(P.UNCONSTRAINED, "y")), "out_shardings of reshard"),
        (lambda a: snp.reshape(a, (16, 8), out_sharding=P(P.UNCONSTRAINED, "y")), "out_sharding"),
        (lambda a: lax.with_sharding_constraint(a, P(P.UNCONSTRAINED, "y")),
         "with_sharding_constraint"),
    ],
)  # fmt: skip
def test_no_dimension_is_unconstrained_on_a_mesh_of_explicit_axes(run: Any, word: str) -> None:
    with pytest.raises(ShardingError) as caught:
        types_of(run, "f32[8,16]")
    assert str(caught.value).partition("\n")[0] == (
        f"{word} has P(UNCONSTRAINED, 'y'), and the mesh has no Auto "
        "axes along which the compiler could shard an unconstrained dimension; state its axes, or "
        "None"
    )


def test_a_dimension_may_be_unconstrained_along_auto_axes() -> None:
    mesh = sd.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Explicit))
    with use_mesh(mesh):

        def run(a: Any) -> Any:
            return reshard(a, NamedSharding(mesh, P(P.UNCONSTRAINED, "y")))

        assert types_of(run, "f32[8,16]") == "float32[8,16@y]"


@pytest.mark.parametrize(
    ("run", "sharded", "axes"),
    [
        (lambda a, b: snp.dot(a, b, out_sharding=P(unreduced={"y"})), "x", "'x'"),
        (lambda a, b: snp.dot(a, b, out_sharding=P(unreduced={"x", "y"})), "x", "'x'"),
        (lambda a, b: snp.dot(a, b, out_sharding=P(unreduced={"y"})), None, "no axis"),
        (lambda a, b: snp.reshape(a, (4, 2, 8), out_sharding=P(unreduced={"y"})), None, "no axis"),
        (lambda a, b: snp.reshape(a, (4, 2, 8), out_sharding=P(reduced={"y"})), None, "no axis"),
        (lambda a, b: snp.reshape(reshard(a, P(unreduced={"x"})), (64,), out_sharding=P()), None,
         "'x'"),
    ],
)  # fmt: skip
def test_unreduced_axes_are_checked_outside_of_traces(run: Any, sharded: Any, axes: str) -> None:
    a = reshard(snp.ones((8, 8)), P(None, sharded))
    b = reshard(snp.ones((8, 8)), P(sharded, None))
    for call in (run, sd.jit(run)):
        with pytest.raises(ShardingTypeError) as caught:
            call(a, b)
        text = str(caught.value).partition("\n")[0]
        assert text.startswith("out_sharding has P(")
        assert f" along {axes}; state these axes, and change them afterwards" in text


def test_a_product_is_unreduced_outside_of_traces() -> None:
    a, b = reshard(snp.ones((8, 8)), P(None, "y")), reshard(snp.ones((8, 8)), P("y"))
    made = snp.dot(a, b, out_sharding=P(unreduced={"y"}))
    assert str(sd.typeof(made)) == "float32[8,8]{U:y}"
    assert float(reshard(made, P())[0, 0]) == 8


@pytest.mark.parametrize(
    "run",
    [
        lambda a: a.at[2].set(1.0),
        lambda a: a.at[1:3].add(1.0),
        lambda a: a.at[:4, 1].multiply(2.0),
    ],
)
def test_updates_of_a_part_of_a_sharded_dimension_state_their_sharding(run: Any) -> None:
    assert refusal(run, "f32[8@y,16@x]") == (
        "x of x.at[...], float32[8@y,16@x], is sharded over 'y' along dimension 0, of which a part "
        "is updated, so the sharding of the updated array is ambiguous; state it with "
        "x.at[...].set(..., out_sharding=PartitionSpec(...)), or with out_sharding= of add, "
        "multiply, min or max"
    )
    assert types_of(run, "f32[8,16]") == "float32[8,16]"
    assert types_of(lambda a: a.at[:, 1].set(1.0), "f32[8@y,16]") == "float32[8@y,16]"
    stated = P("y", "x")
    assert types_of(lambda a: a.at[2].set(1.0, out_sharding=stated), "f32[8@y,16@x]") == (
        "float32[8@y,16@x]"
    )
