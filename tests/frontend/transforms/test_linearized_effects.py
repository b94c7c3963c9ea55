"""`linearize` runs effects that do not depend on tangents once, in the forward computation."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir.numpy as snp
from shardir import (
    PartitionSpec as P,
    checkpoint,
    checkpoint_policies,
    custom_jvp,
    debug,
    effects_barrier,
    grad,
    io_callback,
    jit,
    jvp,
    lax,
    linearize,
    make_mesh,
    shard_map,
)
from shardir.errors import DifferentiateError
from tests.error_assertions import first_line

SEEN = list[float]()
X = np.float32(0.7)


def note(x: Any) -> Any:
    debug.callback(lambda value: SEEN.append(round(float(value), 5)), x)


def step(x: Any) -> Any:
    note(x)
    return snp.sin(x)


def in_loop(step: Any) -> Any:
    return lambda x: lax.scan(lambda c, i: (step(c) + i, step(c)), x, snp.arange(2.0))[0]


def in_branch(step: Any) -> Any:
    return lambda x: lax.cond(x > 0, step, snp.cos, x)


def in_while(step: Any) -> Any:
    def advance(carry: Any) -> Any:
        return carry[0] + 1, step(carry[1])

    def proceed(carry: Any) -> Any:
        note(carry[0])
        return carry[0] < 3

    return lambda x: lax.while_loop(proceed, advance, (0, x))[1]


def on_devices(step: Any) -> Any:
    mesh = make_mesh((2,), ("x",))
    return shard_map(step, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)


REGIONS: dict[str, Callable[[Any], Any]] = {
    "scan": in_loop,
    "cond": in_branch,
    "while": in_while,
    "shard_map": on_devices,
    "checkpoint": checkpoint,
    "checkpoint that saves dots": checkpoint(policy=checkpoint_policies.dots_saveable),
    "checkpoint that saves everything": checkpoint(policy=checkpoint_policies.everything_saveable),
}


def effects(run: Callable[[], Any]) -> tuple[list[float], Any]:
    SEEN.clear()
    made = run()
    effects_barrier()
    return sorted(SEEN), made


def push_twice(f: Any) -> Any:
    def run(x: Any) -> Any:
        y, pushforward = linearize(f, x)
        return y, pushforward(x), pushforward(2 * x)

    return run


def jvp_of(f: Any) -> Any:
    return lambda x: jvp(f, (x,), (x,))


@pytest.mark.sample(3)
@pytest.mark.parametrize("outer", REGIONS)
@pytest.mark.parametrize("inner", ["", *REGIONS])
def test_effects_inside_of_blocks_run_once(inner: str, outer: str) -> None:
    f = REGIONS[outer](REGIONS[inner](step) if inner else step)
    expected, y = effects(lambda: jit(f)(X))
    assert expected
    _, tangent = jvp(f, (X,), (X,))
    for run in (jit(push_twice(f)), push_twice(f)):
        seen, made = effects(partial(run, X))
        assert seen == expected
        np.testing.assert_allclose(made, (y, tangent, 2 * tangent), rtol=1e-5)


@pytest.mark.parametrize("region", REGIONS)
def test_effects_of_loops_that_tangents_do_not_need_run_once(region: str) -> None:
    def notes(x: Any) -> Any:
        lax.scan(lambda _, i: (note(x * i), None), None, snp.arange(3.0))
        return x * snp.sin(x)

    f = REGIONS[region](notes)
    expected, _ = effects(lambda: jit(f)(X))
    seen, made = effects(lambda: jit(push_twice(f))(X))
    assert seen == expected
    np.testing.assert_allclose(made[1], jvp(f, (X,), (X,))[1], rtol=1e-5)


@pytest.mark.parametrize("region", ["", *REGIONS])
def test_effects_of_custom_rules_run_where_their_operands_are_computed(region: str) -> None:
    @custom_jvp
    def wave(x: Any) -> Any:
        note(-1.0)
        return snp.sin(x)

    @wave.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        note(x)
        note(100 * t)
        return snp.sin(x), snp.cos(x) * t

    f = REGIONS[region](wave) if region else wave
    tangents, _ = effects(lambda: jit(lambda x: jvp(f, (x,), (x,)))(X))
    tangents = [value for value in tangents if value >= 10]
    primals, (_, pushforward) = effects(lambda: jit(lambda x: linearize(f, x))(X))
    assert primals == [value for value in effects(lambda: jvp(f, (X,), (X,)))[0] if value < 10]
    assert effects(lambda: pushforward(X))[0] == tangents
    assert effects(lambda: jit(pushforward)(X))[0] == tangents


def draw(x: Any) -> Any:
    """Return `x` times the number of calls of a function with an effect."""

    def count() -> Any:
        SEEN.append(0)
        return np.float32(len(SEEN))

    return io_callback(count, np.zeros((), np.float32)) * x


@pytest.mark.parametrize(
    "region",
    ["scan", "cond", "shard_map", "checkpoint", "checkpoint that saves dots"],
)
def test_results_of_effects_are_saved(region: str) -> None:
    f = REGIONS[region](draw)
    seen, (y, first, second) = effects(lambda: jit(push_twice(f))(X))
    assert seen == effects(lambda: jit(f)(X))[0]
    # The loop adds 0 and 1 to its products.
    product = y - 1 if region == "scan" else y
    np.testing.assert_allclose([first, second], [product, 2 * product], rtol=1e-6)


def test_results_of_effects_in_a_loop_that_runs_again_are_errors() -> None:
    with pytest.raises(DifferentiateError) as error:
        linearize(in_while(draw), X)
    assert first_line(error) == (
        "the tangents of a while loop need %7, the result of an operation with effects, and "
        "linearize saves no values of such a loop; use scan or fori_loop with a constant number of "
        "iterations, or take jvp"
    )


@pytest.mark.parametrize("differentiate", [grad, jvp_of, push_twice])
@pytest.mark.parametrize("region", ["while", "shard_map", "scan", "cond"])
def test_a_checkpoint_saves_the_results_of_effects(region: str, differentiate: Any) -> None:
    def f(x: Any) -> Any:
        number = REGIONS[region](draw)(lax.stop_gradient(x))
        return snp.sin(x * number) * number

    expected = effects(lambda: jit(differentiate(f))(X))
    made = effects(lambda: jit(differentiate(checkpoint(f)))(X))
    assert made[0] == expected[0]
    np.testing.assert_allclose(made[1], expected[1], rtol=1e-5)

    nested = checkpoint(in_loop(checkpoint(f)))
    assert effects(jit(partial(differentiate(nested), X)))[0] == effects(lambda: jit(nested)(X))[0]


def test_a_checkpoint_saves_the_results_of_effects_beside_custom_derivatives() -> None:
    @custom_jvp
    def wave(x: Any) -> Any:
        return snp.sin(x)

    wave.defjvp(lambda primals, tangents: (wave(*primals), snp.cos(primals[0]) * tangents[0]))

    def f(x: Any) -> Any:
        return wave(on_devices(checkpoint(lambda x: draw(draw(x))))(x))

    found = [effects(partial(jit(grad(g)), X)) for g in (f, checkpoint(f))]
    assert found[0] == found[1]
