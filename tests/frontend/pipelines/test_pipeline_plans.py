"""Plans of programs with pipelines: the stages have shardings on the other axes of the mesh, and
the predicted costs are those of the compiled program."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.errors import ArgumentError
from shardir.sharding import PartitionSpec as P
from tests.error_assertions import first_line

ROWS, WIDTH, HIDDEN = 32, 16, 64


def layer(w: Any, x: Any) -> Any:
    return snp.tanh(x @ w[0]) @ w[1]


def loss(params: Any, x: Any, y: Any) -> Any:
    for i in range(2):
        x = sd.stage(i)(layer)([each[i] for each in params], x)
    with sd.stage(1):
        return snp.mean((x - y) ** 2)


def step(params: Any, x: Any, y: Any) -> Any:
    pipelined = sd.pipeline(loss, microbatches=4, schedule="1f1b")
    value, gradients = sd.value_and_grad(pipelined)(params, x, y)
    return value, sd.tree.map(lambda w, g: w - 0.1 * g, params, gradients)


def arguments(*, stacked: bool) -> Any:
    rng = np.random.default_rng(0)
    up = rng.normal(size=(2, WIDTH, HIDDEN)).astype("f") / 4
    down = rng.normal(size=(2, HIDDEN, WIDTH)).astype("f") / 8
    x, y = rng.normal(size=(2, ROWS, WIDTH)).astype("f")
    return ([up, down] if stacked else [list(up), list(down)]), x, y


def mesh() -> Any:
    return sd.make_mesh((2, 2), ("pipe", "model"), devices=sd.devices("cpu")[:4])


def check_program(planned: Any, args: Any) -> None:
    """Check that a planned program computes the numbers of the replicated one."""
    with mesh():
        expected = sd.jit(step)(*args)
    for mine, theirs in zip(sd.tree.leaves(planned(*args)), sd.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("machine", [None, "a100x8"])
def test_the_model_is_the_compiled_program(machine: str | None) -> None:
    args = arguments(stacked=False)
    plan = sd.plan(step, args, mesh(), machine, evaluations=40)
    compiled = plan.jit().lower(*args).compile()
    assert plan.collectives() == compiled.collectives()
    assert "send" in {each.kind for each in plan.collectives()}
    simulation = compiled.simulate("a100x8")
    assert plan.peak_memory == simulation.memory.peak
    assert plan.step_seconds == (None if machine is None else simulation.step_seconds)
    check_program(plan.jit(), args)


def test_stacked_weights_are_on_the_devices_of_their_stages() -> None:
    args = arguments(stacked=True)
    plan = sd.plan(step, args, mesh(), evaluations=20)
    assert plan.in_specs[0] == [P("pipe", None, "model"), P("pipe", "model")]
    assert plan.evaluation.flops * 2 == plan.compare().evaluations["replicated"].flops
    planned = plan.jit()
    assert planned.lower(*args).compile().collectives() == plan.collectives()
    check_program(planned, args)


def test_a_memory_limit_shards_the_stages() -> None:
    args = arguments(stacked=False)
    free = sd.plan(step, args, mesh(), "a100x8", evaluations=10)
    small = sd.plan(step, args, mesh(), "a100x8", memory=free.peak_memory * 2 // 3, evaluations=20)
    assert small.peak_memory <= free.peak_memory * 2 // 3
    check_program(small.jit(), args)


def test_auto_plans_pipelines() -> None:
    args = arguments(stacked=True)
    planned = sd.jit(step, in_shardings=sd.AUTO(mesh()))
    _, (up, _) = planned(*args)
    assert up.sharding.spec == P("pipe", None, "model")
    check_program(planned, args)


def test_plans_are_explained_and_exported() -> None:
    plan = sd.plan(step, arguments(stacked=True), mesh(), evaluations=20)
    difference = plan.why_not(f"%params.0: f32[2, {WIDTH}, {HIDDEN}]")
    assert difference.after.arguments[0] == ((), (), ())
    assert difference.before.key(None) <= difference.after.key(None)
    assert f"%params.0: f32[2@pipe, {WIDTH}@-, {HIDDEN}@model]" in plan.as_ir()
    assert "in_specs = ([P('pipe', None, 'model'), P('pipe', 'model')], P(" in plan.as_jax()
    with pytest.raises(ArgumentError) as error:
        plan.as_sdy()
    assert first_line(error) == (
        "as_sdy cannot write the plan of step: StableHLO and the dialect sdy have no pipelines; "
        "use as_jax or as_ir"
    )
