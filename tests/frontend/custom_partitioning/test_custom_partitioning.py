"""Functions whose program for each device the user states."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.experimental.custom_partitioning import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    custom_partitioning,
)
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.sharding import NamedSharding, PartitionSpec as P
from shardir.stablehlo.printer import show
from shardir.testing import collectives

MESH = sd.make_mesh((2, 2), ("x", "y"))
A = np.arange(64, dtype="f").reshape(8, 8) / 64
B = np.cos(A)


def put(array: Any, *spec: Any) -> Any:
    return sd.device_put(array, NamedSharding(MESH, P(*spec)))


def names(function: Any, *args: Any) -> list[str]:
    """Return the collectives of the program of a call."""
    return [each.kind for each in collectives(function, args)]


def unshard_last(x: Any) -> NamedSharding:
    spec = (*x.sharding.spec, *[None] * x.ndim)[: x.ndim - 1]
    return NamedSharding(x.sharding.mesh, P(*spec))


def make_fft(**rule: Any) -> Any:
    """Return the example of JAX's documentation: a transform that keeps all other dimensions
    sharded."""

    @custom_partitioning
    def my_fft(x: Any) -> Any:
        return snp.fft.fft(x)

    def partition(mesh: Any, arg_shapes: Any, result_shape: Any) -> Any:
        kept = unshard_last(arg_shapes[0])
        return mesh, snp.fft.fft, kept, (kept,)

    my_fft.def_partition(partition, **rule)
    return my_fft


def make_product() -> Any:
    """Return a product whose devices add their partial sums."""

    @custom_partitioning
    def product(a: Any, b: Any) -> Any:
        return a @ b

    def partition(mesh: Any, arg_shapes: Any, result_shape: Any) -> Any:
        a, b = arg_shapes
        axes = a.sharding.spec[1] if len(a.sharding.spec) > 1 else None

        def lower(a: Any, b: Any) -> Any:
            return lax.psum(a @ b, axes) if axes else a @ b

        return mesh, lower, result_shape.sharding, (a.sharding, b.sharding)

    product.def_partition(partition, sharding_rule="i j, j k -> i k", reduction_factors=("j",))
    return product


RULES: dict[str, Any] = {
    "text": "... i -> ... i",
    "object": SdyShardingRule(((BATCHING, "i"),), ((BATCHING, "i"),)),
    "mappings": SdyShardingRule((ArrayMapping(BATCHING, "i"),), (ArrayMapping(BATCHING, "i"),)),
    "function": lambda mesh, operands, results: "... i -> ... i",
    "function with options": lambda mesh, operands, results: (
        "... i -> ... i",
        {"need_replication_factors": ("i",)},
    ),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_sharded_dimension_of_the_rule_stays_sharded(rule: Any) -> None:
    f = sd.jit(make_fft(sharding_rule=rule))
    x = put(A.astype("complex64"), "x")
    assert f(x).sharding.spec == P("x")
    assert names(f, x) == []
    np.testing.assert_allclose(f(x), np.fft.fft(A), rtol=1e-5, atol=1e-5)


def test_the_executable_has_the_text_of_the_program_of_each_device() -> None:
    """JAX's documentation searches it for collectives."""
    f = sd.jit(make_fft(sharding_rule="... i -> ... i"))
    for specs, is_gathered in ((("x",), False), (("x", "y"), True)):
        compiled = f.lower(put(A.astype("complex64"), *specs)).compile()
        (module,) = compiled.runtime_executable().hlo_modules()
        assert module.to_string() == compiled.as_text()
        assert ("all-gather" in module.to_string()) == is_gathered
        assert module.name == compiled.runtime_executable().name == "my_fft"


def test_the_partitioner_moves_arguments_to_the_stated_shardings() -> None:
    f = sd.jit(make_fft(sharding_rule="... i -> ... i"))
    x = put(A.astype("complex64"), "x", "y")
    assert names(f, x) == ["all-gather"]
    np.testing.assert_allclose(f(x), np.fft.fft(A), rtol=1e-5, atol=1e-5)
    assert f(x).sharding.spec == P("x", "y")


def test_no_sharding_propagates_without_a_rule() -> None:
    f = sd.jit(make_fft())
    x = put(A.astype("complex64"), "x")
    assert f(x).sharding.is_fully_replicated
    np.testing.assert_allclose(f(x), np.fft.fft(A), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "specs", [(("x", "y"), ("y",)), ((None, ("x", "y")), (("x", "y"),)), ((), ())]
)
def test_a_device_adds_its_partial_sums(specs: Any) -> None:
    a, b = (put(array, *spec) for array, spec in zip((A, B), specs, strict=True))
    f = sd.jit(make_product())
    np.testing.assert_allclose(f(a, b), A @ B, rtol=1e-5)
    assert names(f, a, b) == (["all-reduce"] if specs[0] else [])


def test_vmap_adds_a_sharded_dimension() -> None:
    many = np.stack([A, B])
    f = sd.jit(sd.vmap(make_product(), (0, None)))
    a, b = put(many, "x", None, "y"), put(B, "y")
    np.testing.assert_allclose(f(a, b), many @ B, rtol=1e-5)
    assert names(f, a, b) == ["all-reduce"]
    assert f(a, b).sharding.spec == P("x")
    twice = sd.jit(sd.vmap(sd.vmap(make_product(), (None, 0)), (0, None)))
    np.testing.assert_allclose(twice(a, many), many[:, None] @ many[None], rtol=1e-5)


def test_vmap_does_not_shard_along_an_axis_that_the_program_uses() -> None:
    @custom_partitioning
    def same(x: Any) -> Any:
        return x * 1

    def partition(mesh: Any, arg_shapes: Any, result_shape: Any) -> Any:
        whole = NamedSharding(mesh, P())
        return mesh, lambda x: lax.pmean(x, "x"), whole, (whole,)

    same.def_partition(partition, sharding_rule="i -> i")
    np.testing.assert_array_equal(sd.jit(sd.vmap(same))(put(A, "x")), A)


def test_derivatives_are_those_of_the_function() -> None:
    f = make_product()

    def loss(a: Any, b: Any) -> Any:
        return (f(a, b) ** 2).sum()

    a, b = put(A, "x", "y"), put(B, "y")
    da, db = sd.jit(sd.grad(loss, argnums=(0, 1)))(a, b)
    np.testing.assert_allclose(da, 2 * (A @ B) @ B.T, rtol=1e-5)
    np.testing.assert_allclose(db, 2 * A.T @ (A @ B), rtol=1e-5)
    _, tangent = sd.jit(lambda a, b: sd.jvp(f, (a, b), (a, b)))(a, b)
    np.testing.assert_allclose(tangent, 2 * A @ B, rtol=1e-5)
    rows = sd.jit(sd.vmap(sd.grad(loss), (0, None)))(put(np.stack([A, B]), "x"), b)
    np.testing.assert_allclose(rows[0], da, rtol=1e-5)


def test_the_gradient_of_the_documented_example_gathers_nothing() -> None:
    f = make_fft(sharding_rule="... i -> ... i")
    slope = sd.jit(sd.grad(lambda x: snp.abs(f(x)).sum()))
    assert names(slope, put(A, "x")) == []


def test_integer_arguments_have_no_derivative() -> None:
    scaled = custom_partitioning(lambda n, x: n * x)
    scaled.def_partition(
        lambda mesh, args, result: (
            mesh,
            lambda n, x: n * x,
            result.sharding,
            (args[0].sharding, args[1].sharding),
        ),
        sharding_rule=", i -> i",
    )
    slope = sd.jit(sd.grad(lambda x, n: scaled(n, x).sum()))
    np.testing.assert_array_equal(slope(put(A[0], "x"), 3), np.full(8, 3, "f"))


def test_static_arguments_come_first() -> None:
    seen = []
    roll = custom_partitioning(lambda x, n: snp.roll(x, n, axis=1), static_argnums=(1,))

    def partition(n: Any, mesh: Any, args: Any, result: Any) -> Any:
        seen.append((n, args[0].shape, result.shape, args[0].sharding.spec))
        return mesh, lambda x: snp.roll(x, n, axis=1), result.sharding, (args[0].sharding,)

    def rule(n: Any, mesh: Any, args: Any, results: Any) -> Any:
        assert (n, mesh, args[0].shape, results[0].shape) == (2, MESH, (8, 8), (8, 8))
        return "i j -> i j", {"need_replication_factors": ("j",)}

    roll.def_partition(partition, sharding_rule=rule)
    f = sd.jit(lambda x: roll(x, 2))
    np.testing.assert_array_equal(f(put(A, "x", "y")), np.roll(A, 2, 1))
    assert [each[:3] for each in seen] == [(2, (8, 8), (8, 8))]
    np.testing.assert_array_equal(roll(A, 2), np.roll(A, 2, 1))


def test_other_programs_call_the_function_itself() -> None:
    f = make_fft(sharding_rule="... i -> ... i")
    x = A.astype("complex64")
    expected = np.fft.fft(A)
    np.testing.assert_allclose(f(x), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sd.jit(f)(x), expected, rtol=1e-5, atol=1e-5)
    mapped = sd.jit(sd.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P("x")))
    np.testing.assert_allclose(mapped(x), expected, rtol=1e-5, atol=1e-5)
    lowered = sd.jit(f).lower(put(x, "x"))
    assert "stablehlo.fft" in show(lowered.module)


def test_uneven_dimensions_are_gathered() -> None:
    f = sd.jit(make_product(), uneven="pad")
    a = sd.device_put(A[:5], NamedSharding(MESH, P("x")), uneven="pad")
    np.testing.assert_allclose(f(a, put(B, "y")), A[:5] @ B, rtol=1e-5)


def test_a_call_in_a_loop() -> None:
    f = make_product()
    loop = sd.jit(lambda a, b: lax.fori_loop(0, 3, lambda i, c: f(c, b), a))
    np.testing.assert_allclose(loop(put(A, "x", "y"), put(B, "y")), A @ B @ B @ B, rtol=1e-4)


def returning(partition: Any, rule: Any = "i j -> i j") -> Any:
    f = custom_partitioning(lambda x: x + 1)
    f.def_partition(partition, sharding_rule=rule)
    return sd.jit(f)


WHOLE = NamedSharding(MESH, P())
ROWS = NamedSharding(MESH, P("x"))
OTHER = NamedSharding(sd.make_mesh((4,), ("z",)), P("z"))
LARGE = snp.ones(3)

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no partition function": (
        lambda: custom_partitioning(snp.sin)(A),
        "custom_partitioning sin has no partition function; give it one with def_partition",
    ),
    "partition is no function": (
        lambda: returning(3),
        "def_partition of lambda takes a function, got 3",
    ),
    "only callbacks": (
        lambda: custom_partitioning(snp.sin).def_partition(
            snp.sin, infer_sharding_from_operands=snp.sin
        ),
        "def_partition of sin has functions for XLA's former partitioner and no sharding_rule; "
        "state the rule, such as sharding_rule='i j -> i j'",
    ),
    "an unknown option": (
        lambda: custom_partitioning(snp.sin).def_partition(
            snp.sin, sharding_rule=lambda *_: "i -> i", reduction_factors=("i",)
        ),
        "def_partition of sin: reduction_factors belong to a sharding_rule in text, and it is "
        "<function ",
    ),
    "a number as the rule": (
        lambda: custom_partitioning(snp.sin).def_partition(snp.sin, sharding_rule=3),  # type: ignore[arg-type]
        "def_partition of sin: sharding_rule is a text such as 'i j -> j i', an SdyShardingRule or "
        "a function, got 3",
    ),
    "a rule of another rank": (
        lambda: returning(lambda mesh, args, y: None, "i -> i")(put(A, "x")),
        "operand 0 has 2 dimensions, but the rule 'i -> i' gives it 1",
    ),
    "a captured array": (
        lambda: sd.jit(captures_array)(A),
        "f refers to an array of type f32[3], and a function with a custom "
        "partitioning receives all arrays as arguments; pass it as an argument, or refer to a "
        "NumPy array",
    ),
    "a captured array of lower": (
        lambda: returning(lambda mesh, args, y: (mesh, lambda x: x * LARGE[0], WHOLE, (WHOLE,)))(
            put(A, "x")
        ),
        "the function that the partition function of lambda returned refers to an array of type "
        "f32[3]; refer to a NumPy array, or pass the array to the partitioned function as an "
        "argument",
    ),
    "a wrong number of values": (
        lambda: returning(lambda mesh, args, y: (mesh, None))(put(A, "x")),
        "the partition function of lambda returns (mesh, function, result_shardings, "
        "arg_shardings), and it returned (",
    ),
    "another mesh": (
        lambda: returning(lambda mesh, args, y: (mesh, snp.sin, OTHER, (OTHER,)))(put(A, "x")),
        "arg_shardings of the partition function of lambda has NamedSharding(",
    ),
    "a shard of another size": (
        lambda: returning(lambda mesh, args, y: (mesh, snp.sin, ROWS, (WHOLE,)))(put(A, "x")),
        "the function that the partition function of lambda returned gives f32[8, 8] for result 0 "
        "on each device, and a shard of f32[8, 8] sharded by P('x',) is f32[4, 8]; "
        "return a shard, or another sharding of the result",
    ),
    "an indivisible sharding": (
        lambda: returning(lambda mesh, args, y: (mesh, snp.sin, ROWS, (ROWS,)))(
            put(A[:5], None, "x")
        ),
        "the partition function of lambda: the sharding of argument 0: dimension 0 of shape "
        "(5, 8) has size 5, which is not divisible by 2",
    ),
    "another structure": (
        lambda: returning(lambda mesh, args, y: (mesh, lambda x: [x], WHOLE, (WHOLE,)))(
            put(A, "x")
        ),
        "the function of shards of the partition function of lambda returned results in the "
        "containers [*]; return results in those of the results of lambda, *",
    ),
    "an error of the user's function": (
        lambda: returning(lambda mesh, args, y: mesh.missing)(put(A, "x")),
        "the partition function of lambda, or the function that it returned, raised "
        "AttributeError: 'Mesh' object has no attribute 'missing'",
    ),
    "a traced static argument": (
        lambda: sd.jit(custom_partitioning_with_static)(A),
        "argument 0 of lambda is listed in static_argnums and contains ",
    ),
    "a compound factor of one": (
        lambda: CompoundFactor("a"),
        "CompoundFactor takes at least two names of factors, got ('a',)",
    ),
    "an entry of a mapping": (
        lambda: ArrayMapping("a", 3),  # type: ignore[arg-type]
        "entry 1 of ArrayMapping is 3; name a factor or give a CompoundFactor",
    ),
    "mappings without tensors": (
        lambda: SdyShardingRule(("i", "j"), (("i",),)),
        "SdyShardingRule takes a mapping for each tensor, such as (('i', 'j'),), got ('i', 'j')",
    ),
}


def captures_array(x: Any) -> Any:
    def f(x: Any) -> Any:
        return x[0, :3] + LARGE

    made = custom_partitioning(f)
    made.def_partition(lambda *_: None)
    return made(x)


def custom_partitioning_with_static(x: Any) -> Any:
    made = custom_partitioning(lambda n, x: x, static_argnums=(0,))
    made.def_partition(lambda *_: None)
    return made(x, x)


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(sd.ShardirError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_compound_factors() -> None:
    rule = SdyShardingRule(
        ((CompoundFactor("a", "b"),),), (("a", "b"),), need_replication_factors=("b",)
    )
    assert str(rule.rule) == "(a b) -> a b need_replication={b}"
    assert repr(rule) == "SdyShardingRule('(a b) -> a b need_replication={b}')"


def test_text_names_the_functions() -> None:
    f = make_fft(sharding_rule="... i -> ... i")
    module = sd.jit(f).lower(put(A.astype("complex64"), "x")).module
    text = str(module)
    assert 'custom-partitioning(%x, function="my_fft", partition="my_fft"' in text
    read = sd.parse(text)
    assert str(read) == text
    with pytest.raises(sd.ShardirError) as caught:
        Pipeline.parse(DEFAULT_PIPELINE)(read)
    assert (
        "'my_fft' is a Python function, of which the text of a program contains only the name; "
        "run the traced program instead of its text"
    ) in str(caught.value)
