"""`checkpoint`: equal gradients with fewer saved values."""

from typing import Any

import numpy as np
import pytest

from shardir import (
    PartitionSpec as P,
    checkpoint,
    checkpoint_policies,
    custom_jvp,
    custom_vjp,
    debug,
    effects_barrier,
    grad,
    jit,
    jvp,
    lax,
    linearize,
    make_ir,
    make_mesh,
    remat,
    shard_map,
    tree,
    value_and_grad,
    vmap,
)
from shardir.ad_checkpoint import checkpoint_name
from shardir.errors import ShardirError
from shardir.frontend.errors import ShardingError
from shardir.frontend.numpy import api as snp
from shardir.passes.pipeline import Pipeline
from tests.error_assertions import assert_raises_exactly

W, X = snp.ones((2, 3)) * 0.3, snp.arange(6.0).reshape(3, 2)


def layer(w: Any, x: Any) -> Any:
    return snp.sum(checkpoint_name(snp.sin(w @ x), "waves") ** 2)


def counts(policy: Any) -> tuple[int, int]:
    text = jit(grad(checkpoint(layer, policy=policy))).lower(W, X).as_text()
    return text.count(" sin("), text.count(" dot(")


def test_gradients_are_equal_with_checkpoint() -> None:
    np.testing.assert_array_equal(grad(checkpoint(layer))(W, X), grad(layer)(W, X))
    assert remat is checkpoint


def test_checkpoint_name_under_vmap() -> None:
    def f(x: Any) -> Any:
        return checkpoint_name(snp.sin(x), "waves")

    np.testing.assert_array_equal(vmap(f)(X), snp.sin(X))


def test_policies_select_recomputed_values() -> None:
    policies = checkpoint_policies
    assert counts(policies.everything_saveable) == (1, 2)
    assert counts(None) == counts(policies.nothing_saveable) == (2, 3)
    assert counts(policies.dots_saveable) == (2, 2)
    assert counts(policies.save_only_these_names("waves")) == (1, 3)
    assert counts(policies.save_any_names_but_these("waves")) == (2, 3)
    waves = policies.save_only_these_names("waves")
    assert counts(policies.save_from_both_policies(policies.dots_saveable, waves)) == (1, 2)
    # The named value is the sine, which this policy saves like any other value.
    assert counts(policies.save_anything_except_these_names("waves")) == (1, 2)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, (1, 2, 6)),
        (checkpoint_policies.dots_saveable, (1, 2, 4)),
        (checkpoint_policies.everything_saveable, (0, 0, 4)),
        (lambda operation, *_, **__: operation == "cos", (1, 0, 5)),
    ],
)
def test_a_linearized_function_recomputes_what_the_policy_does_not_save(
    policy: Any, expected: tuple[int, int, int]
) -> None:
    def chain(x: Any) -> Any:
        return snp.sin(snp.sin(x @ x) @ x)

    x = snp.arange(4.0).reshape(2, 2) / 4
    results, pushforward = linearize(checkpoint(chain, policy=policy), x)
    text = str(jit(pushforward).lower(x).as_text())
    assert (text.count("sin("), text.count("cos("), text.count("dot(")) == expected
    expected_results, expected_tangents = jvp(chain, (x,), (x,))
    np.testing.assert_allclose(results, expected_results, rtol=1e-6)
    np.testing.assert_allclose(pushforward(x), expected_tangents, rtol=1e-6)


def test_policies_that_offload_values_are_refused() -> None:
    policies = checkpoint_policies
    kinds = {"offload_src": "device", "offload_dst": "pinned_host"}
    saved = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["waves"], names_which_can_be_offloaded=[], **kinds
    )
    assert counts(saved) == counts(policies.save_only_these_names("waves"))
    assert_raises_exactly(
        lambda: policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[], names_which_can_be_offloaded=["waves"], **kinds
        ),
        ShardingError,
        "checkpoint_policies.save_and_offload_only_these_names moves saved values to the memory "
        "kind 'pinned_host', which is not supported: arrays are in the memory of their devices; "
        "save_only_these_names saves them there",
    )
    assert_raises_exactly(
        lambda: policies.offload_dot_with_no_batch_dims(**kinds),
        ShardingError,
        "checkpoint_policies.offload_dot_with_no_batch_dims moves saved values to the memory kind "
        "'pinned_host', which is not supported: arrays are in the memory of their devices; "
        "dots_with_no_batch_dims_saveable saves them there",
    )


def test_a_linearized_function_runs_effects_of_a_checkpoint_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def shown(x: Any) -> Any:
        debug.print("ran")
        return snp.sin(x)

    _, pushforward = linearize(checkpoint(shown), 1.0)
    pushforward(1.0)
    assert capfd.readouterr().out == "ran\n"


def test_user_policies_receive_operations() -> None:
    seen = []

    def policy(operation: str, *types: Any, **attrs: Any) -> bool:
        seen.append(operation)
        return operation == "dot"

    assert counts(policy) == (2, 2)
    assert "sin" in seen


def test_a_parameter_of_a_policy_may_have_the_name_of_an_attribute() -> None:
    def f(x: Any, i: Any) -> Any:
        return snp.sin(snp.zeros(3).at[i].add(x)).sum()

    saves_scatters = checkpoint(f, policy=lambda op, *_, **__: op == "scatter")
    np.testing.assert_allclose(grad(saves_scatters)(2.0, 1), np.cos(2.0), rtol=1e-6)


def test_checkpoint_of_loops_and_in_loops() -> None:
    def body(x: Any, w: Any) -> tuple[Any, None]:
        return snp.tanh(x * w), None

    def run(step: Any) -> Any:
        return lambda x: snp.sum(lax.scan(step, x, snp.array([1.0, 2.0, 3.0]))[0])

    expected = grad(run(body))(X)
    np.testing.assert_allclose(grad(run(checkpoint(body)))(X), expected, rtol=1e-6)
    np.testing.assert_allclose(grad(checkpoint(run(body)))(X), expected, rtol=1e-6)
    np.testing.assert_allclose(vmap(grad(checkpoint(run(body))))(X), expected, rtol=1e-6)


def test_static_arguments_and_options() -> None:
    @checkpoint(static_argnums=(1,))
    def f(x: Any, n: int, *, scale: Any) -> Any:
        return x**n * scale if n > 2 else x

    assert float(grad(lambda x: f(x, 3, scale=2.0))(2.0)) == 24


def test_invalid_arguments_are_errors() -> None:
    with pytest.raises(ShardirError) as error:
        checkpoint(layer, policy="dots")
    assert str(error.value).split("\n")[0] == (
        "policy of checkpoint is 'dots'; use one of checkpoint_policies, or a function of the name "
        "of an operation, the types of its operands and its attributes"
    )
    with pytest.raises(ShardirError) as error:
        checkpoint_policies.save_only_these_names("a|b")
    assert str(error.value).split("\n")[0] == (
        "the name of a checkpointed value is a string without |, got 'a|b'"
    )


def test_checkpoint_outside_of_a_trace() -> None:
    seen = []

    @checkpoint
    def f(x: Any) -> Any:
        seen.append(type(x).__name__)
        return x.sum() * 2

    assert f(2.0) == f(3.0) - 2 == 4
    assert seen == ["Tracer"]


def loop_of_sines(x: Any) -> Any:
    return lax.scan(lambda c, _: (snp.sin(c), c), x, None, length=3)


def loop_of_branches(x: Any) -> Any:
    def step(c: Any, i: Any) -> Any:
        return lax.cond(i > 1, snp.sin, snp.cos, c) * c, c + i

    return lax.scan(step, x, snp.arange(4.0), reverse=True)


@pytest.mark.parametrize(
    ("fun", "saved", "recomputed"),
    [
        (loop_of_sines, "cos", set()),
        (loop_of_sines, "sin", {"cos"}),
        (loop_of_sines, "", {"sin", "cos"}),
        (loop_of_branches, "sin", {"cos"}),
        (loop_of_branches, "cos", {"sin"}),
    ],
)
def test_a_linearized_function_takes_saved_values_of_loops_and_branches(
    fun: Any, saved: str, recomputed: set[str]
) -> None:
    kept = checkpoint(fun, policy=lambda name, *_, **__: name == saved)
    results, pushforward = linearize(kept, 0.5)
    expected, tangents = jvp(fun, (0.5,), (1.0,))
    found = [*tree.leaves(results), *tree.leaves(pushforward(1.0))]
    for one, other in zip(found, [*tree.leaves(expected), *tree.leaves(tangents)], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    program = Pipeline.parse("dce")(make_ir(pushforward)(1.0))
    assert {op.name for op in program.main.body.walk()} & {"sin", "cos"} == recomputed


def exponential_with_rule(how: str) -> Any:
    """Return a function whose derivative needs only its result, which its rule names `y`."""

    def named(x: Any) -> Any:
        return checkpoint_name(snp.exp(x), "y")

    if how == "custom_vjp":
        with_vjp = custom_vjp(snp.exp)
        with_vjp.defvjp(lambda x: (named(x),) * 2, lambda y, g: (y * g,))
        return with_vjp
    with_jvp = custom_jvp(snp.exp)

    def rule(primals: Any, tangents: Any) -> Any:
        y = named(primals[0])
        return y, y * tangents[0]

    with_jvp.defjvp(rule)
    return with_jvp


@pytest.mark.parametrize("how", ["custom_vjp", "custom_jvp"])
@pytest.mark.parametrize(("saved", "exponentials"), [("y", 1), ("z", 2)])
def test_a_policy_saves_values_that_derivative_rules_name(
    how: str, saved: str, exponentials: int
) -> None:
    f = exponential_with_rule(how)

    def fun(x: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            return c + 1, None

        # A loop beside the rule keeps its own operations.
        start, _ = lax.scan(body, x * 2, None, length=2)
        return snp.sum(snp.sin(f(start)) * 3)

    kept = checkpoint(fun, policy=save_only(saved))
    x = np.arange(4, dtype=np.float32) / 4
    np.testing.assert_allclose(grad(kept)(x), grad(fun)(x), rtol=1e-5)
    program = Pipeline.parse("default")(make_ir(value_and_grad(kept))(x))
    assert [op.name for op in program.main.body.walk()].count("exp") == exponentials


@pytest.mark.parametrize(("saved", "logarithms"), [("y", 1), ("z", 3)])
def test_a_policy_saves_values_of_a_checkpoint_inside(saved: str, logarithms: int) -> None:
    @checkpoint(policy=save_only(saved))
    def inner(x: Any) -> Any:
        return snp.sin(checkpoint_name(snp.log(x), "y"))

    def fun(x: Any) -> Any:
        return snp.sum(snp.cos(inner(x * 2)))

    kept = checkpoint(fun, policy=save_only(saved))
    x = np.arange(1, 5, dtype=np.float32)
    np.testing.assert_allclose(grad(kept)(x), grad(fun)(x), rtol=1e-5)
    program = Pipeline.parse("default")(make_ir(value_and_grad(kept))(x))
    assert [op.name for op in program.main.body.walk()].count("log") == logarithms


def save_only(name: str) -> Any:
    return checkpoint_policies.save_only_these_names(name)


def nested_loops(x: Any) -> Any:
    def step(c: Any, i: Any) -> Any:
        inner, _ = lax.scan(lambda d, _: (snp.sin(d) * i, None), c, None, length=2)
        return lax.cond(i > 1, snp.sin, snp.cos, inner) * c, snp.tanh(c)

    return lax.scan(step, x, snp.arange(4.0))


def static_fori_loop(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: snp.sin(c) + i, x)


@pytest.mark.parametrize(
    ("fun", "saved", "once", "recomputed"),
    [
        (loop_of_sines, "sin", "sin", ""),
        (loop_of_sines, "", "", "sin"),
        (loop_of_branches, "sin", "sin", "cos"),
        (loop_of_branches, "cos", "cos", "sin"),
        (nested_loops, "tanh", "tanh", "sin"),
        (static_fori_loop, "sin", "sin", ""),
    ],
)
def test_reverse_mode_takes_saved_values_of_loops_and_branches(
    fun: Any, saved: str, once: str, recomputed: str
) -> None:
    """A saved operation occurs as often as without a checkpoint, others more often."""

    def total(f: Any) -> Any:
        return lambda x: sum(snp.sum(leaf**2) for leaf in tree.leaves(f(x)))

    def count(f: Any, name: str) -> int:
        program = Pipeline.parse("dce")(make_ir(grad(f))(0.5))
        return sum(op.name == name for op in program.main.body.walk())

    kept = total(checkpoint(fun, policy=lambda name, *_, **__: name == saved))
    fun = total(fun)
    np.testing.assert_allclose(grad(kept)(0.5), grad(fun)(0.5), rtol=1e-6)
    xs = np.array([0.5, 0.25], np.float32)
    np.testing.assert_allclose(vmap(grad(kept))(xs), vmap(grad(fun))(xs), rtol=1e-6)
    np.testing.assert_allclose(
        grad(lambda xs: vmap(kept)(xs).sum())(xs), vmap(grad(fun))(xs), rtol=1e-6
    )
    np.testing.assert_allclose(grad(grad(kept))(0.5), grad(grad(fun))(0.5), rtol=1e-5)
    assert not once or count(kept, once) == count(fun, once)
    assert not recomputed or count(kept, recomputed) > count(fun, recomputed)


@custom_vjp
def round_straight(x: Any) -> Any:
    return snp.round(x)


round_straight.defvjp(lambda x: (snp.round(x), None), lambda _, g: (g,))


@pytest.mark.parametrize(
    "f",
    [
        round_straight,
        lambda x: lax.fori_loop(0, 2, lambda _, c: round_straight(c) * 1.5, x),
        lambda x: lax.cond(x > 0, round_straight, lambda x: x, x),
        checkpoint(round_straight),
    ],
    ids=["call", "loop", "branch", "checkpoint"],
)
@pytest.mark.parametrize("policy", [None, checkpoint_policies.save_only_these_names("a")])
def test_second_derivatives_of_a_checkpoint_differentiate_the_rules_of_custom_vjp(
    f: Any, policy: Any
) -> None:
    x = snp.float32(1.7)

    def slope(x: Any) -> Any:
        return grad(lambda x: checkpoint(f, policy=policy)(x) ** 2)(x)

    # The rule rounds, and the derivative of that is 0.
    assert slope(x) != 0
    assert grad(slope)(x) == 0
    assert jvp(slope, (x,), (snp.ones_like(x),))[1] == 0


@pytest.mark.parametrize("kind", ["loop", "branch", "loop in a branch", "while", "shard_map"])
def test_a_checkpoint_does_not_repeat_effects_inside_of_blocks(kind: str) -> None:
    seen = list[float]()

    def note(x: Any) -> Any:
        debug.callback(lambda value: seen.append(float(value)), x)

    def note_twice(x: Any) -> None:
        lax.scan(lambda _, i: (note(x * i), None), None, snp.arange(2.0))

    def f(x: Any) -> Any:
        if kind == "while":
            return lax.while_loop(lambda c: c < 3, lambda c: (note(c), c + 1)[1], 0) * x
        if kind == "shard_map":
            mesh = make_mesh((2,), ("x",))
            body = lambda x: (note(x), snp.sin(x))[1]  # noqa: E731
            return shard_map(body, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)(x)
        if kind == "loop":
            note_twice(x)
        else:
            write = note if kind == "branch" else note_twice
            lax.cond(x > 0, lambda: write(x), lambda: None)
        return snp.sin(x)

    def effects(g: Any) -> list[float]:
        seen.clear()
        jit(value_and_grad(g))(snp.float32(0.7))
        effects_barrier()
        return sorted(seen)

    expected = effects(f)
    assert expected
    assert effects(checkpoint(f)) == expected
    assert effects(checkpoint(f, policy=checkpoint_policies.dots_saveable)) == expected


def test_static_arguments_need_no_hash() -> None:
    @checkpoint(static_argnums=(0, 2))
    def scaled(options: Any, x: Any, powers: Any, *, shift: Any = 0.0) -> Any:
        return sum(options["scale"] * x**power for power in powers) + shift

    x = np.arange(3, dtype=np.float32)
    expected = 2 * (x + x**3) + 1
    np.testing.assert_allclose(scaled({"scale": 2}, x, [1, 3], shift=1.0), expected, 1e-6)
    np.testing.assert_allclose(scaled({"scale": 4}, x, [1, 3], shift=2.0), 2 * expected, 1e-6)
    gradient = grad(lambda x: scaled({"scale": 2}, x, [1, 3]).sum())(x)
    np.testing.assert_allclose(gradient, 2 * (1 + 3 * x**2), 1e-6)
