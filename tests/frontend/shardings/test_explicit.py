"""Shardings in types on meshes with Explicit axes: types, refusals and values."""

import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.frontend.errors import (
    ControlFlowError,
    MeshError,
    ShardingError,
    ShardingMismatchError,
    ShardingTypeError,
)
from shardir.sharding import (
    AbstractMesh,
    AxisType,
    NamedSharding,
    PartitionSpec as P,
    auto_axes,
    explicit_axes,
    get_abstract_mesh,
    reshard,
    use_mesh,
)
from tests.frontend.shardings.explicit_programs import (
    PROGRAMS,
    REFUSED,
    Program,
    make_explicit_mesh,
    make_operand,
    trace_types,
)

ids = [program.name for program in PROGRAMS]


@pytest.fixture(autouse=True)
def mesh() -> Iterator[sd.Mesh]:
    mesh = make_explicit_mesh()
    with use_mesh(mesh):
        yield mesh


@pytest.mark.parametrize("program", PROGRAMS, ids=ids)
def test_the_type_is_that_of_jax(program: Program) -> None:
    if program.result == REFUSED:
        with pytest.raises((ShardingTypeError, ControlFlowError)) as caught:
            trace_types(program)
        assert "out_sharding=" in str(caught.value) or "reshard" in str(caught.value)
    else:
        assert trace_types(program) == program.result


def test_the_numbers_of_programs_are_those_of_the_table() -> None:
    assert len(PROGRAMS) == 97
    assert sum(program.result == REFUSED for program in PROGRAMS) == 33


@pytest.mark.parametrize(
    "program", [each for each in PROGRAMS if each.result == REFUSED], ids=lambda each: each.name
)
def test_lenient_mode_accepts_what_strict_mode_refuses(program: Program) -> None:
    with sd.config(explicit_sharding="lenient"):
        assert trace_types(program) != REFUSED


@pytest.mark.sample(8)
@pytest.mark.parametrize("program", PROGRAMS, ids=ids)
def test_the_values_do_not_depend_on_the_mesh(program: Program, mesh: sd.Mesh) -> None:
    single = sd.make_mesh((1, 1), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with sd.config(explicit_sharding="lenient"):
        made = sd.jit(program.run)(*map(make_operand, program.operands))
        with use_mesh(single):
            expected = sd.jit(program.run)(*map(make_operand, program.operands))
    leaves, others = sd.tree.leaves(made), sd.tree.leaves(expected)
    for one, other in zip(leaves, others, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-5, atol=1e-5)
        assert str(sd.typeof(one)).partition("[")[0] == str(one.dtype)


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "program", [each for each in PROGRAMS if each.result != REFUSED], ids=lambda each: each.name
)
def test_results_have_the_sharding_of_their_type(program: Program, mesh: sd.Mesh) -> None:
    if "unreduced" in program.name or not program.operands or "key[]" in program.operands:
        pytest.skip("the type is that of an intermediate value, or the program states no sharding")
    made = sd.jit(program.run)(*map(make_operand, program.operands))
    assert ";".join(str(sd.typeof(x)) for x in sd.tree.leaves(made)) == program.result


# Callbacks


def test_callbacks_receive_whole_arrays() -> None:
    seen: list[Any] = []

    def double(x: Any) -> Any:
        seen.append(x.shape)
        return 2 * np.asarray(x)

    @sd.jit
    def f(x: Any) -> Any:
        sd.debug.callback(lambda x: seen.append(x.shape), x)
        result = sd.ShapeDtypeStruct(x.shape, x.dtype)
        y = sd.pure_callback(double, result, x)
        z = sd.io_callback(double, result, x)
        assert str(sd.typeof(y)) == str(sd.typeof(z)) == "float32[8,16]"
        return x + y + z

    x = make_operand(XY)
    np.testing.assert_allclose(f(x), 5 * np.asarray(x))
    sd.effects_barrier()
    assert seen == [(8, 16)] * 3
    pending = reshard(snp.ones((8, 16)), P(unreduced={"y"}))
    with pytest.raises(ShardingTypeError, match="holds partial sums over 'y', and pure-callback"):
        sd.jit(lambda x: sd.pure_callback(double, sd.ShapeDtypeStruct((8, 16), x.dtype), x))(
            pending
        )


# Types

X, XY = "f32[8@x,16]", "f32[8@x,16@y]"


def types_of(fun: Any, *operands: str) -> str:
    """Return the types of the results of a traced function."""
    return trace_types(Program("", fun, operands, ""))


def first_line(caught: pytest.ExceptionInfo[Any]) -> str:
    return str(caught.value).partition("\n")[0]


def test_typeof_describes_arrays_numbers_and_abstract_arrays(mesh: sd.Mesh) -> None:
    x = make_operand(XY)
    assert str(sd.typeof(x)) == "float32[8@x,16@y]"
    assert sd.typeof(x).sharding == NamedSharding(mesh.abstract_mesh, P("x", "y"))
    assert (sd.typeof(x).shape, sd.typeof(x).ndim, sd.typeof(x).size) == ((8, 16), 2, 128)
    assert repr(sd.typeof(x)) == "ShapedArray(float32[8@x,16@y])"
    assert repr(sd.typeof(2.0)) == "ShapedArray(float32[], weak_type=True)"
    assert str(sd.typeof(2.0)) == "~float32[]"
    assert sd.typeof(2.0).weak_type
    assert str(sd.typeof(np.zeros((2, 3)))) == "float32[2,3]"
    both = sd.ShapeDtypeStruct((8, 4), "int32", sharding=NamedSharding(mesh, P(("x", "y"))))
    assert str(sd.typeof(both)) == "int32[8@(x,y),4]"
    assert str(sd.typeof(sd.eval_shape(lambda a: a.T, x))) == "float32[16@y,8@x]"


def test_a_type_can_be_made_and_lowered(mesh: sd.Mesh) -> None:
    made = sd.ShapedArray((8, 4), "float32", sharding=NamedSharding(mesh, P("x")))
    assert made == sd.typeof(make_operand("f32[8@x,4]"))
    assert sd.jit(lambda a: a.sum(0)).lower(made).out_info.shape == (4,)
    with pytest.raises(sd.ShardirError) as caught:
        sd.ShapedArray((6, 4), "float32", sharding=NamedSharding(mesh, P("x")))
    assert first_line(caught) == (
        "dimension 0 of shape (6, 4) has size 6, which is not divisible by 4: it is sharded over "
        "the mesh axis 'x' of size 4, which is Explicit"
    )


def test_axes_of_type_auto_are_not_in_types() -> None:
    mesh = sd.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))
    with use_mesh(mesh):
        x = sd.device_put(np.ones((8, 16), np.float32), NamedSharding(mesh, P("x", "y")))
        assert str(sd.typeof(x)) == "float32[8@x,16]"
        assert types_of(lambda a: a.T, XY) == "float32[16,8@x]"
        assert types_of(lambda a: a @ a.T, "f32[8,16@y]") == "float32[8,8]"


def test_programs_on_auto_meshes_have_no_types() -> None:
    mesh = sd.make_mesh((4, 2), ("x", "y"))
    with use_mesh(mesh):
        assert types_of(lambda a: a.T @ a, X) == "float32[16,16]"


@pytest.mark.parametrize(
    ("fun", "operands", "expected"),
    [
        (lambda a: sd.vmap(lambda r: sd.vmap(snp.sin)(r))(a), (XY,), "float32[8@x,16@y]"),
        (lambda a: sd.vmap(lambda r: r * 2, in_axes=1)(a), (XY,), "float32[16@y,8@x]"),
        (lambda a: sd.vmap(sd.grad(lambda r: (r**2).sum()))(a), (X,), "float32[8@x,16]"),
        (lambda a: sd.jvp(snp.sin, (a,), (a,)), (X,), "float32[8@x,16];float32[8@x,16]"),
        (lambda a: sd.vjp(snp.sin, a)[1](a), (X,), "float32[8@x,16]"),
        (lambda a: sd.linearize(snp.sin, a)[1](a), (X,), "float32[8@x,16]"),
        (lambda a: sd.grad(sd.checkpoint(lambda b: snp.sin(b).sum()))(a), (X,), "float32[8@x,16]"),
        (lambda a: sd.jacfwd(snp.sin)(a), ("f32[8@x]",), "float32[8@x,8]"),
        (lambda a: sd.jit(lambda b: b * 2)(a), (X,), "float32[8@x,16]"),
        (lambda a: snp.zeros_like(a), (X,), "float32[8@x,16]"),
        (lambda a: lax.full_like(a, 1.0), (X,), "float32[8@x,16]"),
        (lambda a: lax.map(snp.sin, a), ("f32[8,16@y]",), "float32[8,16@y]"),
        (
            lambda a: lax.while_loop(lambda c: c.sum() < 0, lambda c: c + 1, a),
            (X,),
            "float32[8@x,16]",
        ),
        (
            lambda a: lax.scan(lambda c, _: (c + 1, c.sum(0)), a, None, length=2),
            (X,),
            "float32[8@x,16];float32[2,16]",
        ),
        (lambda a: lax.fori_loop(0, 3, lambda i, c: c * i, a), (X,), "float32[8@x,16]"),
        (lambda a: a.reshape(2, 2, 2, 16), ("f32[8@(x,y),16]",), REFUSED),
        (lambda a: a.reshape(4, 2, 16), ("f32[8@(x,y),16]",), "float32[4@x,2@y,16]"),
        (lambda a, i: snp.take_along_axis(a, i, 1), (X, "i32[8@x,3]"), "float32[8@x,3]"),
        (lambda a, i: a[:, i], (X, "i32[4]"), "float32[8@x,4]"),
        (lambda a, b: snp.kron(a, b), ("f32[8@x]", "f32[16@y]"), "float32[128@(x,y)]"),
        (lambda a: snp.median(a, 1), (X,), "float32[8@x]"),
        (lambda a: snp.where(a > 0, a, 0.0), (X,), "float32[8@x,16]"),
        (lambda a: a + snp.arange(16.0), (X,), "float32[8@x,16]"),
        (lambda a: snp.linalg.det(a), ("f32[4@x,8,8]",), "float32[4@x]"),
    ],
)
def test_types(fun: Any, operands: tuple[str, ...], expected: str) -> None:
    if expected == REFUSED:
        with pytest.raises(ShardingTypeError):
            types_of(fun, *operands)
    else:
        assert types_of(fun, *operands) == expected


def test_functions_see_the_type_of_a_slice() -> None:
    seen: list[str] = []

    def record(row: Any) -> Any:
        seen.append(str(sd.typeof(row)))
        return row

    types_of(lambda a: sd.vmap(record)(a), XY)
    types_of(lambda a: lax.scan(lambda c, x: (c, record(x)), 0.0, a), "f32[8,16@y]")
    assert seen == ["float32[16@y]", "float32[16@y]"]


# Refusals


def test_an_error_names_operands_dimensions_axes_and_remedy() -> None:
    with pytest.raises(ShardingTypeError) as caught:
        types_of(lambda a, b: a @ b, "f32[8,16@y]", "f32[16@y,8]")
    assert first_line(caught) == (
        "operand 0 of dot, float32[8,16@y], and operand 1 of dot, float32[16@y,8], are both "
        "sharded over 'y' along the contracted dimension (1 and 0), so the sharding of the result "
        "of dot is ambiguous; state the sharding of the result with out_sharding=PartitionSpec(...)"
    )
    with pytest.raises(ShardingTypeError) as caught:
        types_of(lambda a, b: a + b, "f32[8@x,16]", "f32[8@y,16]")
    assert first_line(caught) == (
        "operand 0 of add, float32[8@x,16], is sharded over 'x' along dimension 0, and operand 1 "
        "of add, float32[8@y,16], over 'y' along dimension 0, which is the same dimension of add; "
        "reshard one of them (sharding.reshard)"
    )


def test_eager_operations_are_checked_too() -> None:
    x = make_operand(X)
    assert str(sd.typeof(x * 2)) == "float32[8@x,16]"
    with pytest.raises(ShardingTypeError):
        x.T @ x
    made = snp.dot(x.T, x, out_sharding=P(None, "x"))
    assert str(sd.typeof(made)) == "float32[16,16@x]"
    np.testing.assert_allclose(made, np.asarray(x).T @ np.asarray(x))


def test_a_constraint_asserts_the_sharding() -> None:
    with pytest.raises(ShardingMismatchError) as caught:
        types_of(lambda a: lax.with_sharding_constraint(a, P("y")), X)
    assert isinstance(caught.value, AssertionError)
    assert first_line(caught) == (
        "with_sharding_constraint states P('y',) for an array that is float32[8@x,16]; "
        "on a mesh of Explicit axes it asserts the sharding; change it with sharding.reshard"
    )
    with pytest.raises(ShardingMismatchError):
        lax.with_sharding_constraint(make_operand(X), P("y"))


def test_carried_values_keep_their_type() -> None:
    with pytest.raises(ControlFlowError) as caught:
        types_of(lambda a: lax.scan(lambda c, _: (reshard(c, P()), None), a, None, length=2), X)
    assert first_line(caught) == (
        "the body of scan must return the types of its carry: value 0 is float32[8@x,16] in the "
        "carry and float32[8,16] in the result; reshard one of them (sharding.reshard)"
    )
    with sd.config(explicit_sharding="lenient"):
        loop = lambda a: lax.scan(lambda c, _: (reshard(c, P()), None), a, None, length=2)[0]  # noqa: E731
        assert types_of(loop, X) == "float32[8@x,16]"


def test_vmap_maps_dimensions_that_are_sharded_alike() -> None:
    with pytest.raises(ShardingTypeError) as caught:
        types_of(lambda a, b: sd.vmap(lambda r, s: r + s)(a, b), X, "f32[8@y,16]")
    assert first_line(caught) == (
        "vmap of lambda maps dimension 0 of float32[8@x,16] and float32[8@y,16], which are sharded "
        "differently along it; reshard them (sharding.reshard)"
    )


def test_vmap_refuses_batch_axes_elsewhere() -> None:
    with pytest.raises(ShardingTypeError) as caught:
        types_of(lambda a: sd.vmap(snp.sin, spmd_axis_name="y")(a), X)
    assert "has spmd_axis_name='y', and Explicit axes shard the mapped dimension" in str(
        caught.value
    )
    assert types_of(lambda a: sd.vmap(snp.sin, spmd_axis_name="x")(a), X) == "float32[8@x,16]"
    with pytest.raises(ShardingTypeError) as caught:
        types_of(lambda a, b: sd.vmap(snp.add, in_axes=(0, None))(a, b), X, "f32[16@x]")
    assert first_line(caught) == (
        "vmap of add maps dimensions that are sharded over 'x', and an argument that is not "
        "mapped, float32[16@x], is sharded over the same axes; reshard one of them "
        "(sharding.reshard)"
    )


def test_a_result_of_vmap_without_arguments_has_the_batch_axes() -> None:
    mapped = sd.vmap(lambda r: snp.zeros(4), out_axes=-1)
    assert types_of(mapped, "f32[8@x]") == "float32[4,8@x]"


def test_operands_on_two_meshes_are_an_error(mesh: sd.Mesh) -> None:
    other = sd.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    x = sd.device_put(np.ones(8, np.float32), NamedSharding(other, P("x")))
    with pytest.raises(ShardingTypeError) as caught:
        sd.jit(lambda a, b: a + b)(x, make_operand("f32[8@x]"))
    assert first_line(caught) == (
        f"operand 0 of add, float32[8@x], is on {other!r}, and the operation is on {mesh!r}; "
        "reshard it to this mesh first (sharding.reshard)"
    )
    small = sd.make_mesh((4,), ("x",), axis_types=AxisType.Explicit)
    sharding = NamedSharding(small, P("x"))
    with pytest.raises(ShardingTypeError) as caught:
        sd.jit(lambda a, b: a + b)(x, sd.device_put(np.ones(8, np.float32), sharding))
    assert first_line(caught) == (
        f"{sharding} is used in a program on {other!r}; all arrays on meshes with Explicit axes "
        "must use the same devices; move one with device_put before the call"
    )


def test_arrays_on_other_devices_have_no_types() -> None:
    there = sd.device_put(np.ones(8, np.float32), sd.devices()[3])
    assert (there + there).sharding == there.sharding
    small = sd.make_mesh((2,), ("z",))
    with use_mesh(small):
        x = sd.device_put(np.ones(8, np.float32), NamedSharding(small, P("z")))
    assert (x * 2).sharding == x.sharding
    assert str(sd.typeof(x)) == "float32[8]"


# Meshes with Explicit and Auto axes


@pytest.fixture
def mixed_mesh() -> Iterator[sd.Mesh]:
    mesh = sd.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))
    with use_mesh(mesh):
        yield mesh


@pytest.mark.parametrize(
    ("fun", "type", "spec"),
    [
        (lambda a: reshard(a, P()), "float32[8,4]", P(None, "y")),
        (lambda a: reshard(a, P(None, "x")), "float32[8,4@x]", P(None, "x")),
        (lambda a: reshard(a, P()) * 2, "float32[8,4]", P(None, "y")),
        (lambda a: a * 2, "float32[8@x,4]", P("x", "y")),
        (lambda a: a.T, "float32[4,8@x]", P("y", "x")),
        (lambda a: snp.sort(a, 1), "float32[8@x,4]", P("x", "y")),
        (lambda a: lax.with_sharding_constraint(a, P("y")), "float32[8@x,4]", P(("x", "y"))),
    ],
)
def test_explicit_axes_shard_only_what_the_type_states(
    fun: Any, type: str, spec: P, mixed_mesh: sd.Mesh
) -> None:
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    made = sd.jit(fun)(sd.device_put(x, NamedSharding(mixed_mesh, P("x", "y"))))
    assert str(sd.typeof(made)) == type
    assert made.sharding.is_equivalent_to(NamedSharding(mixed_mesh, spec), 2)
    with use_mesh(sd.make_mesh((1, 1), ("x", "y"), axis_types=mixed_mesh.axis_types)):
        np.testing.assert_array_equal(made, fun(snp.asarray(x)))


@pytest.mark.parametrize("transform", [lambda f: f, sd.jit])
def test_reshard_names_explicit_axes_and_constraints_auto_axes(
    transform: Any, mixed_mesh: sd.Mesh
) -> None:
    x = sd.device_put(np.ones((8, 4), np.float32), NamedSharding(mixed_mesh, P("x")))
    with pytest.raises(ShardingError) as caught:
        transform(lambda a: reshard(a, P("x", "y")))(x)
    assert first_line(caught) == (
        "out_shardings of reshard has P('x', 'y'), and 'y' is an Auto axis of the "
        "mesh; name Explicit axes only, and constrain the value along Auto axes with "
        "lax.with_sharding_constraint"
    )
    with pytest.raises(ShardingError) as caught:
        transform(lambda a: lax.with_sharding_constraint(a, P("x", "y")))(x)
    assert first_line(caught) == (
        "with_sharding_constraint has P('x', 'y'), and 'x' is an Explicit axis of the "
        "mesh; name Auto axes only, and change the sharding along Explicit axes with "
        "sharding.reshard"
    )


# Partial sums


def test_partial_sums_are_added_and_resharded() -> None:
    def f(a: Any, b: Any) -> Any:
        pending = snp.dot(a, b, out_sharding=P(None, None, unreduced={"y"}))
        assert str(sd.typeof(pending + pending)) == "float32[8,8]{U:y}"
        assert str(sd.typeof(pending.T)) == "float32[8,8]{U:y}"
        return reshard(pending + pending, P("y"))

    a, b = make_operand("f32[8,16@y]"), make_operand("f32[16@y,8]")
    made = sd.jit(f)(a, b)
    assert str(sd.typeof(made)) == "float32[8@y,8]"
    np.testing.assert_allclose(made, np.asarray(a) @ np.asarray(b) * 2)
    kinds = [each.kind for each in sd.jit(f).lower(a, b).compile().collectives()]
    assert kinds == ["reduce-scatter"]


def double(a: Any) -> Any:
    return a + a


@pytest.mark.parametrize(
    ("fun", "kinds"),
    [
        (lambda a: reshard(double(reshard(a, P(None, unreduced={"y"}))), P(None)), []),
        (lambda a: reshard(double(reshard(a, P("x", unreduced={"y"}))), P("x")), []),
        (
            lambda a: sd.grad(
                lambda b: reshard(
                    snp.dot(b, snp.ones((8, 4)), out_sharding=P(None, unreduced={"y"})), P("x")
                ).sum()
            )(reshard(a, P("y"))),
            None,
        ),
    ],
)
def test_partial_sums_of_arrays_have_their_values(fun: Any, kinds: list[str] | None) -> None:
    a = make_operand("f32[8]")
    made, compiled = sd.jit(fun)(a), sd.jit(fun).lower(a).compile()
    if kinds is not None:
        assert [each.kind for each in compiled.collectives()] == kinds
    with use_mesh(sd.make_mesh((1, 1), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)):
        np.testing.assert_allclose(made, sd.jit(fun)(np.asarray(a)))


def test_the_gradient_of_a_reduced_value_is_unreduced() -> None:
    """Gradients of microbatches are added before one reduction, which `reshard` states."""

    def loss(w: Any, x: Any) -> Any:
        return snp.sum(snp.tanh(x @ w) ** 2)

    def step(w: Any, xs: Any) -> Any:
        if spec.reduced:
            assert str(sd.typeof(w)) == "float32[16,8]{R:x}"

        def add(total: Any, x: Any) -> tuple[Any, None]:
            gradient = sd.grad(loss)(w, x)
            seen.append(str(sd.typeof(gradient)))
            return total + gradient, None

        zeros = reshard(snp.zeros_like(w), P(None, None, unreduced=spec.reduced))
        return reshard(lax.scan(add, zeros, xs)[0], P())

    w, xs = make_operand("f32[16,8]"), make_operand("f32[4,8@x,16]")
    results = []
    for spec, type in ((P(), "float32[16,8]"), (P(reduced={"x"}), "float32[16,8]{U:x}")):
        seen: list[str] = []
        program = sd.jit(step).lower(reshard(w, spec), xs)
        assert set(seen) == {type}
        (row,) = program.compile().collectives()
        assert (row.kind, row.counted_executions) == ("all-reduce", 1)
        results.append(sd.jit(step)(reshard(w, spec), xs))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


@pytest.mark.parametrize(
    ("fun", "expected"),
    [
        (lambda a, b: a + a, "float32[8@x,16]{R:y}"),
        (lambda a, b: a.T * 2 + snp.ones(8), "float32[16,8@x]{R:y}"),
        (lambda a, b: snp.sum(a), "float32[]{R:y}"),
        (lambda a, b: lax.fori_loop(0, 2, lambda _, c: c * 2, a), "float32[8@x,16]{R:y}"),
        (lambda a, b: lax.scan(lambda c, r: (c, r), 0.0, a.T)[1], "float32[16,8@x]{R:y}"),
        (lambda a, b: a @ b.T, "float32[8@x,8]"),
        (lambda a, b: reshard(a, P("x", "y")), "float32[8@x,16@y]"),
        (lambda a, b: reshard(b, P(reduced={"y", "x"})), "float32[8,16]{R:(x,y)}"),
    ],
)
def test_operations_keep_reduced_axes(fun: Any, expected: str) -> None:
    def typed(a: Any, b: Any) -> Any:
        return fun(reshard(a, P("x", reduced={"y"})), b)

    assert types_of(typed, X, "f32[8,16]") == expected
    made = sd.jit(typed)(make_operand(X), make_operand("f32[8,16]"))
    assert str(sd.typeof(made)) == expected


def test_operands_with_different_reduced_axes_are_refused() -> None:
    with pytest.raises(ShardingTypeError) as caught:
        types_of(lambda a, b: reshard(a, P("x", reduced={"y"})) + b, X, X)
    assert first_line(caught) == (
        "operand 0 of add, float32[8@x,16]{R:y}, and operand 1 of add, float32[8@x,16], have "
        "different reduced axes, so the gradients of add would have different sums; reshard one "
        "of them (sharding.reshard)"
    )


def test_partial_sums_are_refused_where_they_are_no_values() -> None:
    def pending(a: Any, b: Any) -> Any:
        return snp.dot(a, b, out_sharding=P(unreduced={"y"}))

    operands = "f32[8,16@y]", "f32[16@y,8]"
    with pytest.raises(ShardingTypeError) as caught:
        types_of(lambda a, b: pending(a, b) * pending(a, b), *operands)
    assert first_line(caught) == (
        "operand 0 of mul, float32[8,8]{U:y}, holds partial sums over 'y', and mul is not linear "
        "in its unreduced operands alone; reshard it first (sharding.reshard)"
    )


def test_a_spec_with_unreduced_axes(mesh: sd.Mesh) -> None:
    spec = P("x", unreduced={"y"})
    assert repr(spec) == "P('x', unreduced={'y'})"
    assert spec != P("x")
    assert P("x") != spec
    assert spec == P("x", unreduced=["y"])
    assert spec + (None,) == P("x", None, unreduced={"y"})
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(spec) == hash(P("x", unreduced="y"))
    assert spec.unreduced == {"y"}
    assert P("x").unreduced == P("x").reduced == frozenset()
    with pytest.raises(sd.ShardirError) as caught:
        P("x", unreduced={"x"})
    assert first_line(caught) == (
        "a PartitionSpec names 'x' in an entry and in unreduced; an axis can shard a value or hold "
        "its partial sums, not both"
    )
    with pytest.raises(sd.ShardirError) as caught:
        P("x", reduced={"y"}, unreduced={"y"})
    assert first_line(caught) == (
        "a PartitionSpec names 'y' in unreduced and in reduced; devices hold partial sums of a "
        "value or copies of it, not both"
    )
    spec = P("x", reduced=("y", "z"))
    assert repr(spec + (None,)) == "P('x', None, reduced={'y', 'z'})"
    assert spec.reduced == {"y", "z"}
    assert P("x", reduced={"y"}) not in (P("x"), P("x", unreduced={"y"}))
    assert pickle.loads(pickle.dumps(spec)) == spec
    with pytest.raises(sd.ShardirError) as caught:
        P("x", unreduced=[1])  # type: ignore[list-item]
    assert first_line(caught) == (
        "unreduced of a PartitionSpec has 1; it must be the names of mesh axes"
    )
    with pytest.raises(sd.ShardirError) as caught:
        P("x", reduced=3)  # type: ignore[arg-type]
    assert first_line(caught) == (
        "reduced of a PartitionSpec has 3; it must be the names of mesh axes"
    )
    with pytest.raises(sd.ShardirError):
        NamedSharding(mesh, P(unreduced={"z"}))


# Modes


def test_auto_axes_leaves_the_mode() -> None:
    seen: list[str] = []

    def product(a: Any) -> Any:
        seen.append(f"{sd.typeof(a)} {get_abstract_mesh().axis_types}")
        return a @ a.T

    gram = auto_axes(product, out_sharding=P("x"))
    x = make_operand(XY)
    assert str(sd.typeof(gram(x))) == "float32[8@x,8]"
    assert types_of(gram, XY) == "float32[8@x,8]"
    assert seen[-1] == "float32[8,16] (Auto, Auto)"
    assert types_of(lambda a: gram(a, out_sharding=P(None, "y")), XY) == "float32[8,8@y]"
    np.testing.assert_allclose(gram(x), np.asarray(x) @ np.asarray(x).T, rtol=1e-5)


def test_auto_axes_of_some_axes_keep_the_others() -> None:
    seen: list[str] = []

    def double(a: Any) -> Any:
        seen.append(str(sd.typeof(a)))
        return a * 2

    inside = auto_axes(double, axes="x", out_sharding=P("x", "y"))
    assert types_of(inside, XY) == "float32[8@x,16@y]"
    assert seen == ["float32[8,16@y]"]
    # The compiler may shard the first dimension, which is not closed (`8@-`).
    assert " = mul(%a, %0) : f32[8, 16@y]\n" in str(sd.jit(inside).trace(make_operand(XY)).module)


def test_explicit_axes_enters_the_mode() -> None:
    mesh = sd.make_mesh((4, 2), ("x", "y"))
    seen: list[str] = []

    def double(a: Any) -> Any:
        seen.append(f"{sd.typeof(a)} {get_abstract_mesh().axis_types}")
        return a * 2

    with use_mesh(mesh):
        made = sd.jit(explicit_axes(double, in_sharding=(P("x"),)))(np.ones((8, 16), np.float32))
        assert seen == ["float32[8@x,16] (Explicit, Explicit)"]
        assert made.sharding.is_equivalent_to(NamedSharding(mesh, P("x")), 2)


def test_decorators_of_modes_accept_options_alone() -> None:
    def double(a: Any) -> Any:
        types.append(str(sd.typeof(a)))
        return a * 2

    types: list[str] = []
    assert (
        types_of(auto_axes(axes="x", out_sharding=P("x", "y"))(double), XY) == "float32[8@x,16@y]"
    )
    placed = NamedSharding(sd.make_mesh((4, 2), ("x", "y")), P("x"))
    made = explicit_axes(in_sharding=(placed,))(double)(np.ones((8, 16), np.float32))
    assert made.sharding.is_equivalent_to(placed, 2)
    assert types == ["float32[8,16@y]", "float32[8@x,16]"]


def test_the_inside_of_shard_map_is_not_typed() -> None:
    seen: list[str] = []

    def shard(a: Any) -> Any:
        seen.append(str(sd.typeof(a)))
        assert get_abstract_mesh().are_all_axes_manual
        assert sd.typeof(a).sharding.mesh.axis_types == (AxisType.Manual,) * 2
        return a * lax.axis_size("x")

    spec = P("x", None)
    assert types_of(sd.shard_map(shard, out_specs=spec), X) == "float32[8@x,16]"
    assert types_of(sd.shard_map(shard, in_specs=spec, out_specs=spec), X) == "float32[8@x,16]"
    assert seen == ["float32[2,16]{V:x}"] * 2
    with pytest.raises(ShardingTypeError) as caught:
        types_of(sd.shard_map(shard, in_specs=P("y"), out_specs=P("y")), X)
    assert first_line(caught) == (
        "in_specs of shard_map of shard has P('y',) for a, which is float32[8@x,16]; "
        "state P('x', None), omit in_specs, or reshard the argument (sharding.reshard)"
    )


def test_shard_map_over_all_axes_needs_the_specs_of_the_types(mesh: sd.Mesh) -> None:
    x = np.ones((8, 16), np.float32)
    mapped = sd.shard_map(lambda a: a * 2, in_specs=P("x"), out_specs=P("x"))
    arguments = (x, sd.device_put(x, NamedSharding(mesh, P())))
    functions: tuple[Any, ...] = (mapped, sd.jit(mapped))
    for fun, arg in itertools.product(functions, arguments):
        with pytest.raises(ShardingTypeError) as caught:
            fun(arg)
        assert first_line(caught) == (
            "in_specs of shard_map of lambda has P('x',) for a, which is "
            "float32[8,16]; state P(None, None), omit in_specs, or reshard the "
            "argument (sharding.reshard)"
        )
        with sd.config(explicit_sharding="lenient"):
            assert str(sd.typeof(fun(arg))) == "float32[8@x,16]"
    constants = sd.jit(lambda: (mapped(x), mapped(snp.ones((8, 16)))))()
    assert [str(sd.typeof(each)) for each in constants] == ["float32[8@x,16]"] * 2


@pytest.mark.parametrize(
    ("spec", "expected"),
    [(P(None, "x"), "float32[8@x,16]"), (P("y", "x"), "float32[8@(x,y),16]")],
)
def test_a_partly_manual_function_accepts_any_sharding(
    mesh: sd.Mesh, spec: P, expected: str
) -> None:
    x = sd.device_put(np.arange(128.0, dtype=np.float32).reshape(8, 16), NamedSharding(mesh, spec))
    mapped = sd.shard_map(lambda a: a * 2, axis_names={"x"}, in_specs=P("x"), out_specs=P("x"))
    doubled = sd.jit(mapped)(x)
    assert str(sd.typeof(doubled)) == expected
    np.testing.assert_array_equal(doubled, 2 * np.asarray(x))


def test_a_partly_manual_function_keeps_the_other_axes() -> None:
    seen: list[str] = []

    def shard(a: Any) -> Any:
        seen.append(str(sd.typeof(a)))
        return a * 2

    mapped = sd.shard_map(shard, axis_names={"x"}, in_specs=P("x"), out_specs=P("x"))
    assert types_of(mapped, XY) == "float32[8@x,16@y]"
    assert seen == ["float32[2,16@y]{V:x}"]


def test_use_mesh_ends_with_its_block(mesh: sd.Mesh) -> None:
    other = sd.make_mesh((8,), ("z",))
    with use_mesh(other) as entered:
        assert entered is other
        assert sd.sharding.get_mesh() is other
    assert sd.sharding.get_mesh() is mesh
    with use_mesh(None):
        assert get_abstract_mesh().empty
    with pytest.raises(sd.ShardirError, match="use_mesh takes a Mesh, got 3"):
        use_mesh(3)  # type: ignore[arg-type]
    assert repr(use_mesh(other)) == "<use_mesh of Mesh('z': 8)>"


def test_meshes_with_other_axes(mesh: sd.Mesh) -> None:
    changed = mesh.update_axis_types({"x": AxisType.Auto})
    assert changed.axis_types == (AxisType.Auto, AxisType.Explicit)
    assert mesh.are_all_axes_explicit
    assert not changed.are_all_axes_auto
    assert mesh.update(axis_names=("a", "b")).axis_names == ("a", "b")
    assert mesh.update(axis_sizes=(2, 4)).axis_sizes == (2, 4)
    abstract = mesh.abstract_mesh.update(axis_sizes=(16, 2))
    assert isinstance(abstract, AbstractMesh)
    assert abstract.axis_sizes == (16, 2)
    with pytest.raises(MeshError) as caught:
        mesh.update(axis_sizes=(3, 2))
    message, place, *_ = str(caught.value).split("\n")
    assert message == (
        "axes of the sizes (3, 2) need 6 devices, and the Mesh has 8; make a Mesh of other devices "
        "with make_mesh"
    )
    assert "test_explicit.py:" in place


# Programs


def test_a_step_of_a_sharded_network_communicates_as_in_megatron() -> None:
    def loss(weights: Any, x: Any) -> Any:
        hidden = snp.tanh(x @ weights[0])
        return (snp.dot(hidden, weights[1], out_sharding=P("x", None)) ** 2).mean()

    weights = make_operand("f32[16,32@y]"), make_operand("f32[32@y,16]")
    x = make_operand(X)
    step = sd.jit(lambda w, x: sd.tree.map(lambda a, b: a - b, w, sd.grad(loss)(w, x)))
    made = step(weights, x)
    assert [str(sd.typeof(each)) for each in made] == ["float32[16,32@y]", "float32[32@y,16]"]
    kinds = [each.kind for each in step.lower(weights, x).compile().collectives()]
    assert kinds == ["all-reduce"] * 3
    expected = step(*sd.tree.map(np.asarray, (weights, x)))
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_lenient_choices_are_stated_in_why() -> None:
    with sd.config(explicit_sharding="lenient"):
        compiled = (
            sd.jit(lambda a, b: a @ b)
            .lower(make_operand("f32[8,16@y]"), make_operand("f32[16@y,8]"))
            .compile()
        )
    (each,) = compiled.collectives()
    assert each.why == (
        "sum over 'i' of %0 = dot (explicit_sharding=lenient chose float32[8,8]: operand 0 of dot, "
        "float32[8,16@y], and operand 1 of dot, float32[16@y,8], are both sharded over 'y' along "
        "the contracted dimension (1 and 0), so the sharding of the result of dot is ambiguous)"
    )


def test_the_setting_has_two_values() -> None:
    with pytest.raises(sd.ShardirError) as caught:
        sd.config.update("explicit_sharding", "maybe")
    assert first_line(caught) == (
        "the setting explicit_sharding is 'maybe'; it must be 'strict' or 'lenient'"
    )


def test_out_sharding_of_random_bits_is_that_of_the_bits() -> None:
    state = np.arange(4, dtype=np.uint32)

    def generate(state: Any) -> Any:
        return lax.rng_bit_generator(state, (8, 4), out_sharding=P(None, "y"))

    for run in (generate, sd.jit(generate)):
        following, bits = run(state)
        assert str(sd.typeof(bits)) == "uint32[8,4@y]"
        assert str(sd.typeof(following)) == "uint32[4]"
        expected = lax.rng_bit_generator(state, (8, 4))
        np.testing.assert_array_equal(np.asarray(following), np.asarray(expected[0]))
        np.testing.assert_array_equal(np.asarray(bits), np.asarray(expected[1]))


def test_broadcast_like_refuses_another_sharding_of_a_dimension() -> None:
    like = make_operand("f32[8@x,4]")
    assert str(sd.typeof(lax.broadcast_like(np.ones(4), like))) == "float32[8@x,4]"
    assert str(sd.typeof(lax.broadcast_like(make_operand("f32[8@x,1]"), like))) == "float32[8@x,4]"
    for operand in ("f32[4@x]", "f32[4@y]"):
        with pytest.raises(ShardingTypeError) as caught:
            lax.broadcast_like(make_operand(operand), like)
        assert first_line(caught) == (
            f"arr of broadcast_like is {sd.typeof(make_operand(operand))}, and like_arr is "
            "float32[8@x,4], which has another sharding along dimension 1 of the result; reshard "
            "one of them (sharding.reshard)"
        )


@pytest.mark.parametrize("method", ["sum", "prod", "max", "min"])
def test_segments_have_the_stated_sharding(method: str) -> None:
    ids = np.array([0, 1, 0, 1, 2, 2, 2, 2])
    rows = make_operand("f32[8@x,16]")
    reduce_segments = getattr(sd, f"segment_{method}")
    made = sd.jit(lambda a: reduce_segments(a, ids, 3, out_sharding=P(None, "y")))(rows)
    assert str(sd.typeof(made)) == "float32[3,16@y]"
    np.testing.assert_array_equal(made, reduce_segments(np.asarray(rows), ids, 3))


def test_out_sharding_may_be_on_another_mesh_of_the_devices(mesh: sd.Mesh) -> None:
    other = mesh.update(axis_sizes=(8, 1), axis_names=("z", "w"))
    x = make_operand("f32[8@x,16]")
    for function, expected in (
        (
            lambda a: snp.dot(a, a.T, out_sharding=NamedSharding(other, P("z"))),
            np.asarray(x) @ np.asarray(x).T,
        ),
        (lambda a: reshard(a, NamedSharding(other, P("z"))), x),
    ):
        made = sd.jit(function)(x)
        assert made.sharding == NamedSharding(other, P("z", None))
        np.testing.assert_allclose(made, expected, rtol=1e-6)


def test_zeros_like_a_type_on_an_abstract_mesh_have_its_sharding(mesh: sd.Mesh) -> None:
    like = sd.ShapeDtypeStruct(
        (8, 4), np.float32, sharding=NamedSharding(mesh.abstract_mesh, P("x"))
    )
    for made in (snp.zeros_like(like), sd.jit(lambda: snp.ones_like(like))()):
        assert made.sharding.mesh == mesh
        assert str(sd.typeof(made)) == "float32[8@x,4]"
    other = sd.ShapeDtypeStruct(
        (8,), np.float32, sharding=NamedSharding(AbstractMesh((8,), "z"), P("z"))
    )
    assert str(sd.typeof(snp.zeros_like(other))) == "float32[8]"


@pytest.mark.parametrize(
    ("fun", "type"),
    [
        (lambda a: lax.reduce_window(a, 0.0, lax.max, (1, 3, 2), (1, 2, 1), "VALID"),
         "float32[8@x,1,4]"),
        (lambda a: lax.reduce_window(a, 2.0, lambda p, q: p * q * 1, (1, 2, 1), (1, 1, 1), "SAME"),
         "float32[8@x,4,5]"),
        (lambda a: lax.reduce(a, 0.0, lambda p, q: snp.maximum(p, q) * 1, (2,)), "float32[8@x,4]"),
        (lambda a: lax.reduce(a, 0.0, lambda p, q: snp.maximum(p, q) * 1, (1, 2)), "float32[8@x]"),
    ],
)  # fmt: skip
def test_reductions_by_any_computation_keep_the_axes_of_other_dimensions(
    fun: Callable[[Any], Any], type: str, mesh: sd.Mesh
) -> None:
    numbers = np.random.default_rng(0).normal(size=(8, 4, 5)).astype(np.float32)
    made = sd.jit(fun)(sd.device_put(numbers, NamedSharding(mesh, P("x"))))
    assert str(sd.typeof(made)) == type
    np.testing.assert_allclose(made, fun(numbers), rtol=1e-6)
